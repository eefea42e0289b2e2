//! Follows a table: what was written to it since the last look.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Entry, Revision, Storage, TableName};

/// A place in the history of a table, for an index of its objects that is brought up to date before it is read.
pub(crate) struct TableFollower {
    table: TableName,
    changes: watch::Receiver<Revision>,
    /// All events up to this revision were returned.
    seen: Revision,
}

/// What was written to a table.
pub(crate) enum TableChanges {
    /// The written objects, oldest first, and whether each still exists.
    Events(Vec<(Arc<Entry>, bool)>),
    /// All objects: the history does not reach back far enough.
    Relist(Vec<Arc<Entry>>),
}

impl TableFollower {
    /// Starts before the first write. A storage that was used before has objects already.
    pub(crate) fn new(storage: &dyn Storage, table: &str) -> Self {
        let table: TableName = table.into();
        let mut changes = storage.subscribe(&table, None);
        changes.mark_changed();
        Self {
            table,
            changes,
            seen: Revision(0),
        }
    }

    /// Whether there is something new, from a look at one counter.
    pub(crate) fn is_behind(&self) -> bool {
        // The sender lives in the storage, which outlives its indexes.
        self.changes.has_changed().unwrap_or(false)
    }

    /// Returns what is new.
    pub(crate) fn catch_up(&mut self, storage: &dyn Storage) -> TableChanges {
        if !self.is_behind() {
            return TableChanges::Events(Vec::new());
        }
        self.changes.mark_unchanged();
        if let Ok(events) = storage.events(&self.table, None, self.seen, usize::MAX) {
            self.seen = events.last().map_or(self.seen, |event| event.revision);
            let written = events.iter().map(|event| (event.entry.clone(), !event.deleted));
            return TableChanges::Events(written.collect());
        }
        let snapshot = storage
            .snapshot(&self.table, None, None)
            .expect("the current revision is never compacted");
        self.seen = snapshot.revision;
        TableChanges::Relist(snapshot.range(None, None).cloned().collect())
    }
}
