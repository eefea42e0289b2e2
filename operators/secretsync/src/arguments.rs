//! The command-line flags.

use std::num::NonZeroUsize;

use clap::Args;

use crate::api::{DEFAULT_SOURCE_NAMESPACE, SYNC_ANNOTATION};

/// The command-line flags. Flatten them into a program's own arguments.
#[derive(Args, Clone, Debug)]
#[group(id = "secretsync")]
#[command(about = None, long_about = None)]
pub struct Arguments {
    /// The namespace whose annotated Secrets and ConfigMaps are copied
    #[arg(long, value_name = "NAMESPACE", default_value = DEFAULT_SOURCE_NAMESPACE, help_heading = HEADING)]
    pub source_namespace: String,

    /// The annotation on sources, and the annotation or label on namespaces that consent
    #[arg(long, value_name = "NAME", default_value = SYNC_ANNOTATION, help_heading = HEADING)]
    pub annotation: String,

    /// A system namespace (`kube-*`) that may be a target if it consents; can be repeated
    #[arg(
        long = "allow-system-namespace",
        value_name = "NAMESPACE",
        value_delimiter = ',',
        help_heading = HEADING
    )]
    pub allowed_system_namespaces: Vec<String>,

    /// Maximum number of namespaces that are written to concurrently
    #[arg(long, value_name = "N", default_value_t = WRITERS, help_heading = HEADING)]
    pub writers: NonZeroUsize,

    /// Maximum number of sources that one SecretSync may select; nothing is written for one that selects more
    #[arg(long, value_name = "N", default_value_t = MAX_SOURCES, help_heading = HEADING)]
    pub max_sources: NonZeroUsize,

    /// Maximum number of copies of one SecretSync: its sources times its target namespaces
    #[arg(long, value_name = "N", default_value_t = MAX_COPIES, help_heading = HEADING)]
    pub max_copies: NonZeroUsize,

    /// Maximum content, in MiB, that is held for the Secrets, and for the ConfigMaps, of one source namespace;
    /// sources that do not fit are not copied
    #[arg(long = "max-content-mib", value_name = "MIB", default_value_t = MAX_CONTENT, help_heading = HEADING)]
    pub max_content_mib: NonZeroUsize,

    /// A change that would delete more than this share of the copies of a SecretSync or an annotated source, and at
    /// least ten, waits for a confirmation; 100: never
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = CONFIRM_REMOVALS_OVER,
        value_parser = clap::value_parser!(u8).range(0..=100),
        help_heading = HEADING
    )]
    pub confirm_removals_over: u8,

    /// With --webhooks: refuses changes and deletions of copies by others than secretsync and the cluster's controllers
    #[arg(long, requires = "webhooks", help_heading = HEADING)]
    pub protect_copies: bool,

    /// `/healthz` fails after this many seconds with pending work and without progress
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
const WRITERS: NonZeroUsize = NonZeroUsize::new(8).expect("nonzero");
const MAX_SOURCES: NonZeroUsize = NonZeroUsize::new(1_000).expect("nonzero");
const MAX_COPIES: NonZeroUsize = NonZeroUsize::new(50_000).expect("nonzero");
const MAX_CONTENT: NonZeroUsize = NonZeroUsize::new(16).expect("nonzero");
const CONFIRM_REMOVALS_OVER: u8 = 50;
const STALL_SECONDS: u64 = 300;

impl Default for Arguments {
    fn default() -> Self {
        Self {
            source_namespace: DEFAULT_SOURCE_NAMESPACE.to_owned(),
            annotation: SYNC_ANNOTATION.to_owned(),
            allowed_system_namespaces: Vec::new(),
            writers: WRITERS,
            max_sources: MAX_SOURCES,
            max_copies: MAX_COPIES,
            max_content_mib: MAX_CONTENT,
            confirm_removals_over: CONFIRM_REMOVALS_OVER,
            protect_copies: false,
            stall_seconds: STALL_SECONDS,
        }
    }
}
