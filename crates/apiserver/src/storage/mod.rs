//! Where objects live: one global revision, current entries in key order, and a window of history.
//!
//! ```text
//!  commit ──► revision n+1 ──► table of the resource ──► live:    (namespace, name) → Entry   persistent map
//!                                                   └──► history: Event, Event, Event …       last HISTORY events
//!                                                                      ▲         ▲
//!                                                                 watch cursor   watch cursor
//! ```
//!
//! A watcher is a cursor into the history, not a queue of its own: a thousand watchers share one copy of each event,
//! and one that falls behind the window is told so ([`Expired`]) instead of growing memory.
//!
//! Storage knows keys, revisions and encoded bodies; it knows nothing of verbs, kinds or JSON.

mod memory;

use std::{cmp::Ordering, fmt, sync::Arc};

pub use memory::Memory;

use crate::object::Encoded;

/// The number etcd would call a revision and clients see as `resourceVersion`: one counter for the whole server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The table that a resource's objects are in: `plural.group`, whatever version they are served at.
pub type TableName = Arc<str>;

/// An object's place inside its table. Cluster-scoped objects have an empty namespace.
///
/// Keys are ordered as etcd orders them, by the text `namespace/name`: `a-b/x` comes before `a/x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Unique within the namespace.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its two parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl Key {
    fn text(&self) -> impl Iterator<Item = u8> {
        self.namespace.bytes().chain([b'/']).chain(self.name.bytes())
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(&other.name);
        }
        self.text().cmp(other.text())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One object at one revision.
#[derive(Debug)]
pub struct Entry {
    /// Where it is.
    pub key: Key,
    /// When it was last written.
    pub revision: Revision,
    /// What it is.
    pub object: Encoded,
}

/// One committed write, as watchers see it.
#[derive(Debug)]
pub struct Event {
    /// When it happened.
    pub revision: Revision,
    /// The state before, unless this is a creation.
    pub previous: Option<Arc<Entry>>,
    /// The state after; for a deletion, the last state under the deletion's revision.
    pub entry: Arc<Entry>,
    /// Whether the object is gone now.
    pub deleted: bool,
}

/// What a commit relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No object under this key.
    Absent,
    /// The object was last written at this revision.
    At(Revision),
}

/// What a commit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write the object.
    Put,
    /// Remove the object; what is encoded is its last state.
    Remove,
}

/// A commit met another state than it relied on: this one.
#[derive(Debug)]
pub struct Conflict(pub Option<Arc<Entry>>);

/// The revision asked for lies before the history window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// What was asked for.
    pub requested: Revision,
    /// The oldest revision that can still be served.
    pub oldest: Revision,
}

/// A table as it was at one revision: consistent, immutable and cheap to hold.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The revision it shows.
    pub revision: Revision,
    entries: imbl::OrdMap<Key, Arc<Entry>>,
}

impl Snapshot {
    /// The number of its entries.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The entries of a namespace (or all) in key order, starting after `after`.
    pub fn range<'a>(
        &'a self,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        use std::ops::Bound;
        let start = match (after, namespace) {
            (Some(key), _) => Bound::Excluded(key.clone()),
            (None, Some(namespace)) => Bound::Included(Key::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        self.entries
            .range((start, Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(move |entry| namespace.is_none_or(|wanted| *entry.key.namespace == *wanted))
    }
}

/// Where objects are kept.
///
/// Every method is short and does not block on other tasks; an implementation that waits for a disk says so to tokio.
pub trait Storage: Send + Sync + 'static {
    /// The revision of the last commit.
    fn revision(&self) -> Revision;

    /// The current state of one object.
    fn get(&self, table: &TableName, key: &Key) -> Option<Arc<Entry>>;

    /// A whole table as it is now, or as it was at a revision within the history window.
    fn snapshot(&self, table: &TableName, at: Option<Revision>) -> Result<Snapshot, Expired>;

    /// Writes one object if its state is the expected one. `encode` is given the revision of this very write.
    fn commit(
        &self,
        table: &TableName,
        key: &Key,
        expect: Expect,
        change: Change,
        encode: &mut dyn FnMut(Revision) -> Encoded,
    ) -> Result<Arc<Entry>, Conflict>;

    /// Waits for commits to a table; see [`Storage::events`].
    fn subscribe(&self, table: &TableName) -> tokio::sync::watch::Receiver<Revision>;

    /// The events of a table after a revision, oldest first, at most `limit`.
    fn events(&self, table: &TableName, after: Revision, limit: usize) -> Result<Vec<Arc<Event>>, Expired>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_their_texts() {
        let mut keys = [
            Key::new("a", "x"),
            Key::new("a-b", "x"),
            Key::new("a", "a"),
            Key::new("", "z"),
        ];
        keys.sort();
        let texts: Vec<_> = keys
            .iter()
            .map(|k| format!("{}/{}", k.namespace, k.name))
            .collect();
        assert_eq!(texts, ["/z", "a-b/x", "a/a", "a/x"]);
    }
}
