//! What podwatch can be told on the command line.

use std::num::NonZeroUsize;

use clap::Args;
use windlass::{
    cache::Cacheable,
    prelude::{ObjectKey, Watch},
};

/// Which objects, and how many at a time.
#[derive(Args, Clone, Debug)]
#[command(about = None, long_about = None)]
pub struct Scope {
    /// The namespaces to look at; empty: wherever the manager looks. The shared flag `--namespace` sets it.
    #[arg(skip)]
    pub namespaces: Vec<String>,

    /// Only objects whose labels match, as in `app=web,tier!=cache`; the server selects
    #[arg(long = "selector", value_name = "LABELS", help_heading = "What to tell")]
    pub labels: Option<String>,

    /// Only objects whose fields match, as in `spec.nodeName=node-1`; the server selects
    #[arg(long = "field-selector", value_name = "FIELDS", help_heading = "What to tell")]
    pub fields: Option<String>,

    /// An object that was there before, as `NAMESPACE/NAME`: if it is gone, that is told; may be given more than once
    #[arg(long = "known", value_name = "KEY", value_delimiter = ',', value_parser = key, help_heading = "What to tell")]
    pub known: Vec<ObjectKey>,

    /// How many objects are worked on at the same time, of each kind
    #[arg(long, value_name = "N", default_value = "1", help_heading = "What to tell")]
    pub workers: NonZeroUsize,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            labels: None,
            fields: None,
            known: Vec::new(),
            workers: NonZeroUsize::MIN,
        }
    }
}

impl Scope {
    /// Of a kind, only what is asked for.
    pub(crate) fn narrow<K: Cacheable>(&self, mut watch: Watch<K>) -> Watch<K> {
        if !self.namespaces.is_empty() {
            watch = watch.namespaces(&self.namespaces);
        }
        if let Some(labels) = &self.labels {
            watch = watch.labels(labels);
        }
        if let Some(fields) = &self.fields {
            watch = watch.fields(fields);
        }
        watch
    }
}

/// Reads `NAMESPACE/NAME`, or the `NAME` of what lives outside namespaces.
fn key(text: &str) -> Result<ObjectKey, String> {
    let is_name = |name: &str| !name.is_empty() && !name.contains('/');
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(ObjectKey::namespaced(namespace, name))
        }
        None if is_name(text) => Ok(ObjectKey::cluster(text)),
        _ => Err("an object is `NAMESPACE/NAME`, or `NAME` outside namespaces".to_owned()),
    }
}
