//! What secretsync can be told on the command line, as one group of flags.

use std::num::NonZeroUsize;

use clap::Args;

use crate::api::{SOURCE_NAMESPACE, SYNC};

/// What secretsync can be told. Flattens into a program's own arguments.
#[derive(Args, Clone, Debug)]
#[group(id = "secretsync")]
#[command(about = None, long_about = None)]
pub struct Arguments {
    /// The namespace whose annotated Secrets and ConfigMaps are copied
    #[arg(long, value_name = "NAMESPACE", default_value = SOURCE_NAMESPACE, help_heading = HEADING)]
    pub source_namespace: String,

    /// The annotation on what is copied, and the annotation or label on namespaces that consent
    #[arg(long, value_name = "NAME", default_value = SYNC, help_heading = HEADING)]
    pub annotation: String,

    /// A system namespace (`kube-*`) that may be a target if it consents; may be given more than once
    #[arg(
        long = "allow-namespace",
        value_name = "NAMESPACE",
        value_delimiter = ',',
        help_heading = HEADING
    )]
    pub allowed_namespaces: Vec<String>,

    /// How many namespaces are written to at the same time
    #[arg(long, value_name = "N", default_value_t = WRITERS, help_heading = HEADING)]
    pub writers: NonZeroUsize,

    /// How many sources one SecretSync may select; one that selects more is refused
    #[arg(long, value_name = "N", default_value_t = MAX_SOURCES, help_heading = HEADING)]
    pub max_sources: NonZeroUsize,

    /// How many copies one SecretSync may ask for: its sources times its target namespaces
    #[arg(long, value_name = "N", default_value_t = MAX_COPIES, help_heading = HEADING)]
    pub max_copies: NonZeroUsize,

    /// How many MiB of content are held for the Secrets, and for the ConfigMaps, that are copied from one namespace; what does not
    /// fit is not copied
    #[arg(long = "max-content", value_name = "MIB", default_value_t = MAX_CONTENT, help_heading = HEADING)]
    pub max_content_mib: NonZeroUsize,

    /// After how many seconds without progress, with work to do, `/healthz` fails
    #[arg(
        long = "stall-after",
        value_name = "SECONDS",
        default_value_t = STALL_SECONDS,
        value_parser = clap::value_parser!(u64).range(1..),
        help_heading = HEADING
    )]
    pub stall_seconds: u64,
}

const HEADING: &str = "What to copy";
const WRITERS: NonZeroUsize = NonZeroUsize::new(8).expect("more than none");
const MAX_SOURCES: NonZeroUsize = NonZeroUsize::new(1_000).expect("more than none");
const MAX_COPIES: NonZeroUsize = NonZeroUsize::new(50_000).expect("more than none");
const MAX_CONTENT: NonZeroUsize = NonZeroUsize::new(16).expect("more than none");
const STALL_SECONDS: u64 = 300;

impl Default for Arguments {
    fn default() -> Self {
        Self {
            source_namespace: SOURCE_NAMESPACE.to_owned(),
            annotation: SYNC.to_owned(),
            allowed_namespaces: Vec::new(),
            writers: WRITERS,
            max_sources: MAX_SOURCES,
            max_copies: MAX_COPIES,
            max_content_mib: MAX_CONTENT,
            stall_seconds: STALL_SECONDS,
        }
    }
}
