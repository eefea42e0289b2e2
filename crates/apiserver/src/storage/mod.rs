//! Object storage: one global revision, current entries in key order, and a window of history.
//!
//! ```text
//!  commit ──► revision n+1 ──► table of the resource ──► live:    (namespace, name) → Entry   persistent map
//!                                                   └──► history: Event, Event, Event …       last HISTORY events
//!                                                                      ▲         ▲
//!                                                                 watch cursor   watch cursor
//! ```
//!
//! A watch is a cursor into the history and has no queue: a thousand watches share one copy of each event. One that
//! falls behind the window gets [`Expired`], so slow watches do not use memory. Each namespace has a window of its own.
//!
//! Storage handles keys, revisions and encoded objects, and does not depend on verbs, kinds or JSON.

mod follower;
mod memory;

use std::{cmp::Ordering, fmt, sync::Arc};

pub(crate) use follower::{TableChanges, TableFollower};
pub use memory::Memory;

use crate::object::Encoded;

/// A revision as in etcd, which clients see as `resourceVersion`: one counter for the whole server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The table of a resource's objects, `plural.group`. All served versions share it.
pub type TableName = Arc<str>;

/// The key of an object in its table. Cluster-scoped objects have an empty namespace.
///
/// Keys have etcd's order, that of the text `namespace/name`: `a-b/x` comes before `a/x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Unique within the namespace.
    pub name: Arc<str>,
}

impl Key {
    /// Creates a key from its two parts.
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
    /// The object's key.
    pub key: Key,
    /// The revision of the last write.
    pub revision: Revision,
    /// The encoded object.
    pub object: Encoded,
}

/// One committed write, as watchers see it.
#[derive(Debug)]
pub struct Event {
    /// The revision of the write.
    pub revision: Revision,
    /// The previous state; none for a creation.
    pub previous: Option<Arc<Entry>>,
    /// The new state; for a deletion, the last state at the deletion's revision.
    pub entry: Arc<Entry>,
    /// Whether the write removed the object.
    pub deleted: bool,
}

/// The precondition of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is no object with this key.
    Absent,
    /// The object was last written at this revision.
    At(Revision),
}

/// The kind of change that a commit makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write the object.
    Put,
    /// Remove the object. The encoded object is its last state.
    Remove,
}

/// A commit's precondition failed. Has the current state.
#[derive(Debug)]
pub struct Conflict(pub Option<Arc<Entry>>);

/// The requested revision is older than the history window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The requested revision.
    pub requested: Revision,
    /// The oldest revision that can still be served.
    pub oldest: Revision,
}

/// The size of the current objects, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredBytes {
    /// Of all objects.
    pub all: usize,
    /// Of those in one namespace.
    pub namespace: usize,
}

/// A consistent, immutable view of a table at one revision. Cheap to clone and to keep.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The snapshot's revision.
    pub revision: Revision,
    entries: imbl::OrdMap<Key, Arc<Entry>>,
}

impl Snapshot {
    /// The number of entries.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The entries of a namespace, or of all, in key order and after the key `after`.
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

/// A store of objects with history.
///
/// Methods are short and do not block on other tasks. An implementation that waits for a disk must use
/// `tokio::task::block_in_place`.
pub trait Storage: Send + Sync + 'static {
    /// The revision of the last commit.
    fn revision(&self) -> Revision;

    /// The current state of one object.
    fn get(&self, table: &TableName, key: &Key) -> Option<Arc<Entry>>;

    /// A snapshot of a table: the current one, or at a revision within the history window. With a namespace, only the
    /// objects of that namespace have to be those of the revision.
    fn snapshot(
        &self,
        table: &TableName,
        namespace: Option<&str>,
        at: Option<Revision>,
    ) -> Result<Snapshot, Expired>;

    /// Writes one object if its state is the expected one. `encode` gets the revision of this write.
    fn commit(
        &self,
        table: &TableName,
        key: &Key,
        expect: Expect,
        change: Change,
        encode: &mut dyn FnMut(Revision) -> Encoded,
    ) -> Result<Arc<Entry>, Conflict>;

    /// Notifies of commits to a table, or to one namespace of it; read them with [`Storage::events`].
    fn subscribe(&self, table: &TableName, namespace: Option<&str>)
    -> tokio::sync::watch::Receiver<Revision>;

    /// The events of a table, or of one namespace of it, after a revision, oldest first, at most `limit`.
    fn events(
        &self,
        table: &TableName,
        namespace: Option<&str>,
        after: Revision,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, Expired>;

    /// How much is stored, for [`Limits::stored_bytes`](crate::Limits::stored_bytes). Default: nothing, so that there is no
    /// such limit.
    fn stored_bytes(&self, namespace: &str) -> StoredBytes {
        let _ = namespace;
        StoredBytes::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_namespace_slash_name() {
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
