//! Stored objects that a webhook has converted, so that it is not asked about the same object again.
//!
//! ```text
//!   by_source: key, revision, version ─► weak: what is still in use, by the cache or by a request or watch
//!   recent:    the entries that were added last ─► strong, at most MAX_BYTES
//!   asked:     key, revision, version ─► a reader asks the webhook about it now, and others wait for that
//! ```
//!
//! An object at a revision never changes, and neither does its conversion while the CRD stays the same: the cache ends with
//! the definition. What a running request or watch has converted stays until it ends, since it holds the entries.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::storage::{Entry, Key, Revision};

/// How many bytes are kept of the objects of a CRD, beside those that are in use.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// What an entry takes beside its object.
const ENTRY_BYTES: usize = 256;

/// The smallest number of entries from which those that are gone are removed.
const MIN_SWEEP: usize = 1024;

type Source = (Key, Revision, Box<str>);

/// Converted objects by their key, revision and version.
#[derive(Debug, Default)]
pub(super) struct ConvertedEntries(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_source: HashMap<Source, Weak<Entry>>,
    recent: VecDeque<Arc<Entry>>,
    recent_bytes: usize,
    /// The number of entries at which those that are gone are removed, so that sweeping costs no more than adding.
    sweep_at: usize,
    asked: HashMap<Source, watch::Receiver<()>>,
}

/// What a reader asks about now. Dropping it lets those go on who wait for it.
pub(super) struct Question<'a> {
    cache: &'a ConvertedEntries,
    sources: Vec<Source>,
    _asking: watch::Sender<()>,
}

/// What to do about an entry that a reader needs.
pub(super) enum Known {
    Converted(Arc<Entry>),
    /// Another reader asks about it.
    Asked(watch::Receiver<()>),
    Unknown,
}

impl ConvertedEntries {
    /// A stored entry in this version, if it was converted.
    pub(super) fn get(&self, entry: &Entry, version: &str) -> Option<Arc<Entry>> {
        let source = source_of(entry, version);
        self.0.lock().by_source.get(&source)?.upgrade()
    }

    /// Looks up entries in this version. Those that are unknown are asked about as long as the result lives.
    pub(super) fn ask<'a>(
        &self,
        entries: &'a [Arc<Entry>],
        version: &str,
    ) -> (Vec<(&'a Arc<Entry>, Known)>, Question<'_>) {
        let (asking, is_asked) = watch::channel(());
        let mut cache = self.0.lock();
        let mut sources = Vec::new();
        let mut look_up = |entry: &'a Arc<Entry>| {
            let source = source_of(entry, version);
            if let Some(converted) = cache.by_source.get(&source).and_then(Weak::upgrade) {
                return (entry, Known::Converted(converted));
            }
            if let Some(asked) = cache.asked.get(&source) {
                return (entry, Known::Asked(asked.clone()));
            }
            cache.asked.insert(source.clone(), is_asked.clone());
            sources.push(source);
            (entry, Known::Unknown)
        };
        let known = entries.iter().map(&mut look_up).collect();
        let question = Question {
            cache: self,
            sources,
            _asking: asking,
        };
        (known, question)
    }

    /// Adds an entry that was converted to this version.
    pub(super) fn add(&self, version: &str, converted: &Arc<Entry>) {
        let mut cache = self.0.lock();
        let source = source_of(converted, version);
        cache.by_source.insert(source, Arc::downgrade(converted));
        cache.recent_bytes += size_of(converted);
        cache.recent.push_back(converted.clone());
        while cache.recent_bytes > MAX_BYTES
            && let Some(oldest) = cache.recent.pop_front()
        {
            cache.recent_bytes -= size_of(&oldest);
        }
        if cache.by_source.len() > cache.sweep_at.max(MIN_SWEEP) {
            cache.by_source.retain(|_, entry| entry.strong_count() > 0);
            cache.sweep_at = cache.by_source.len() * 2;
        }
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let mut cache = self.cache.0.lock();
        for source in &self.sources {
            cache.asked.remove(source);
        }
    }
}

fn source_of(entry: &Entry, version: &str) -> Source {
    (entry.key.clone(), entry.revision, version.into())
}

pub(super) fn size_of(entry: &Entry) -> usize {
    entry.object.json().len() + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Object;

    fn entry(revision: u64, size: usize) -> Arc<Entry> {
        let object = json!({"metadata": {"name": "a"}, "data": "x".repeat(size)});
        let revision = Revision(revision);
        Arc::new(Entry {
            key: Key::new("default", "a"),
            revision,
            object: Object::new(object).unwrap().encode(revision, &[]),
        })
    }

    #[test]
    fn entries_stay_while_they_are_used_or_recent() {
        let cache = ConvertedEntries::default();
        let used = entry(1, 1024 * 1024);
        cache.add("v1", &used);
        for revision in 2..100 {
            cache.add("v1", &entry(revision, 1024 * 1024));
        }
        assert!(cache.0.lock().recent_bytes <= MAX_BYTES);
        assert!(cache.get(&used, "v1").is_some());
        assert!(cache.get(&used, "v2").is_none());
        assert!(cache.get(&entry(2, 1), "v1").is_none(), "the oldest");
        assert!(cache.get(&entry(99, 1), "v1").is_some());
        let source = entry(1, 1);
        drop(used);
        assert!(cache.get(&source, "v1").is_none());
    }

    #[test]
    fn entries_that_are_gone_are_forgotten() {
        let cache = ConvertedEntries::default();
        for revision in 0..20_000 {
            cache.add("v1", &entry(revision, 64 * 1024));
        }
        assert!(cache.0.lock().by_source.len() <= 3 * MIN_SWEEP);
    }

    #[tokio::test]
    async fn others_wait_for_the_reader_who_asks() {
        let cache = ConvertedEntries::default();
        let entries = [entry(1, 1), entry(2, 1)];
        let (first, question) = cache.ask(&entries[..1], "v1");
        assert!(matches!(first[0].1, Known::Unknown));
        let (second, other) = cache.ask(&entries, "v1");
        let [(_, Known::Asked(asked)), (_, Known::Unknown)] = &second[..] else {
            panic!("the first entry is asked about");
        };
        let mut asked = asked.clone();
        assert!(asked.has_changed().is_ok());
        cache.add("v1", &entries[0]);
        drop(question);
        assert!(asked.changed().await.is_err());
        drop(other);
        let (known, _question) = cache.ask(&entries, "v1");
        assert!(matches!(known[0].1, Known::Converted(_)));
        assert!(
            matches!(known[1].1, Known::Unknown),
            "no request asks about it any more"
        );
    }
}
