//! Stored objects that a webhook has converted, so that it is not asked about the same object again.
//!
//! An object at a revision never changes, and neither does its conversion while the CRD stays the same: the cache ends with
//! the definition. What a running request or watch has converted stays until it ends, since it holds the entries; the rest
//! is dropped when there is too much.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::storage::{Entry, Key, Revision};

/// How many bytes of objects are kept, beside those that are in use.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Converted objects by their key, revision and version.
#[derive(Debug, Default)]
pub(super) struct ConvertedEntries(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_source: HashMap<(Key, Revision, Box<str>), Arc<Entry>>,
    bytes: usize,
    /// The number of bytes at which unused entries are dropped.
    sweep_at: usize,
}

impl ConvertedEntries {
    /// A stored entry in this version, if it was converted.
    pub(super) fn get(&self, entry: &Entry, version: &str) -> Option<Arc<Entry>> {
        let source = (entry.key.clone(), entry.revision, version.into());
        self.0.lock().by_source.get(&source).cloned()
    }

    /// Adds an entry that was converted to this version.
    pub(super) fn add(&self, version: &str, converted: Arc<Entry>) {
        let mut entries = self.0.lock();
        let size = converted.object.json().len();
        let source = (converted.key.clone(), converted.revision, version.into());
        if let Some(replaced) = entries.by_source.insert(source, converted) {
            entries.bytes -= replaced.object.json().len();
        }
        entries.bytes += size;
        if entries.bytes > entries.sweep_at.max(MAX_BYTES) {
            entries.by_source.retain(|_, entry| Arc::strong_count(entry) > 1);
            let kept = entries.by_source.values();
            entries.bytes = kept.map(|entry| entry.object.json().len()).sum();
            // So that sweeping costs no more than adding.
            entries.sweep_at = entries.bytes * 2;
        }
    }
}
