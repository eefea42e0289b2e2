//! Stored objects that a webhook has converted, so that it is not asked about the same object again.
//!
//! An object at a revision never changes, and neither does its conversion while the CRD stays the same: the cache ends with
//! the definition. What a running request or watch has converted stays until it ends, since it holds the entries; the rest
//! is dropped when there is too much.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::storage::{Entry, Key, Revision};

/// How many bytes are kept of the objects of all CRDs, beside those that are in use.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// What an entry takes beside its object.
const ENTRY_BYTES: usize = 256;

/// The bytes of all caches in the process.
static TOTAL_BYTES: AtomicUsize = AtomicUsize::new(0);

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
        let source = (converted.key.clone(), converted.revision, version.into());
        let mut bytes = entries.bytes + size_of(&converted);
        if let Some(replaced) = entries.by_source.insert(source, converted) {
            bytes -= size_of(&replaced);
        }
        let total = entries.set_bytes(bytes);
        if total > MAX_BYTES && bytes > entries.sweep_at {
            entries.by_source.retain(|_, entry| Arc::strong_count(entry) > 1);
            let kept = entries.by_source.values().map(|entry| size_of(entry)).sum();
            entries.set_bytes(kept);
            // So that sweeping costs no more than adding.
            entries.sweep_at = kept * 2;
        }
    }
}

impl Entries {
    /// Sets the bytes of this cache. Returns those of all.
    fn set_bytes(&mut self, bytes: usize) -> usize {
        let others = TOTAL_BYTES.fetch_sub(self.bytes, Ordering::Relaxed) - self.bytes;
        self.bytes = bytes;
        TOTAL_BYTES.fetch_add(bytes, Ordering::Relaxed);
        others + bytes
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

fn size_of(entry: &Entry) -> usize {
    entry.object.json().len() + ENTRY_BYTES
}
