//! Stored objects that a webhook has converted, so that it is not asked about the same object again.
//!
//! ```text
//!   by_source: key, revision, version ─► weak: what is still in use, or was converted recently
//!   asked:     key, revision, version ─► a reader asks the webhook about it now, and others wait for that
//! ```
//!
//! An object at a revision never changes, and neither does its conversion while the CRD stays the same: the cache ends with
//! the definition. What a running request or watch has converted stays until it ends, since it holds the entries; the
//! [`WebhookBudget`](crate::webhook::WebhookBudget) keeps the recent ones of all CRDs, and counts all of them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    status::Status,
    storage::{Entry, Key, Revision},
};

/// The smallest number of entries from which those that are gone are removed.
const MIN_SWEEP: usize = 1024;

type Source = (Key, Revision, Box<str>);

/// Converted objects by their key, revision and version.
#[derive(Debug, Default)]
pub(super) struct ConvertedEntries(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_source: HashMap<Source, Weak<Entry>>,
    /// The number of entries at which those that are gone are removed, so that sweeping costs no more than adding.
    sweep_at: usize,
    asked: HashMap<Source, Asked>,
}

/// Receives why the webhook failed. Closed when the reader who asks has an answer, or has given up.
type Asked = watch::Receiver<Option<Arc<Failure>>>;

/// Why a webhook did not convert some entries.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: Status,
    /// What it was asked about: each of them may be the reason.
    entries: Vec<Arc<Entry>>,
}

impl Failure {
    pub(super) fn new(status: Status, entries: &[Arc<Entry>]) -> Self {
        Self {
            status,
            entries: entries.to_vec(),
        }
    }

    /// Whether the webhook fails for a reader of these entries too.
    pub(super) fn applies_to(&self, entries: &[Arc<Entry>]) -> bool {
        let wanted: HashSet<_> = entries.iter().map(|entry| (&entry.key, entry.revision)).collect();
        let mut asked = self.entries.iter();
        asked.all(|entry| wanted.contains(&(&entry.key, entry.revision)))
    }
}

/// What a reader asks about now. Dropping it lets those go on who wait for it.
pub(super) struct Question<'a> {
    cache: &'a ConvertedEntries,
    sources: Vec<Source>,
    asking: watch::Sender<Option<Arc<Failure>>>,
}

/// What to do about an entry that a reader needs.
pub(super) enum Known {
    Converted(Arc<Entry>),
    /// Another reader asks about it.
    Asked(Asked),
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
        let (asking, is_asked) = watch::channel(None);
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
            asking,
        };
        (known, question)
    }

    /// Adds an entry that was converted to this version.
    pub(super) fn add(&self, version: &str, converted: &Arc<Entry>) {
        let mut cache = self.0.lock();
        let source = source_of(converted, version);
        cache.by_source.insert(source, Arc::downgrade(converted));
        if cache.by_source.len() > cache.sweep_at.max(MIN_SWEEP) {
            cache.by_source.retain(|_, entry| entry.strong_count() > 0);
            cache.sweep_at = cache.by_source.len() * 2;
        }
    }
}

impl Question<'_> {
    /// Ends the question with the failure of the webhook, for those who wait: each of them would ask a webhook that fails.
    pub(super) fn fail(self, why: Failure) {
        self.asking.send_replace(Some(Arc::new(why)));
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
    fn entries_stay_while_they_are_used() {
        let cache = ConvertedEntries::default();
        let used = entry(1, 10);
        cache.add("v1", &used);
        cache.add("v1", &entry(2, 10));
        assert!(cache.get(&used, "v1").is_some());
        assert!(cache.get(&used, "v2").is_none());
        assert!(cache.get(&entry(2, 10), "v1").is_none());
        let source = entry(1, 1);
        drop(used);
        assert!(cache.get(&source, "v1").is_none());
    }

    #[test]
    fn entries_that_are_gone_are_forgotten() {
        let cache = ConvertedEntries::default();
        for revision in 0..20_000 {
            cache.add("v1", &entry(revision, 10));
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
