//! In-memory storage: the default, and the read side of a durable storage.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use imbl::OrdMap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Change, Conflict, Entry, Event, Expect, Expired, Key, Revision, Snapshot, Storage, TableName};
use crate::object::Encoded;

/// In-memory storage. Its history is bounded by the number of events per table and by the bytes of all tables.
pub struct Memory {
    max_history: usize,
    history_bytes: usize,
    state: Mutex<State>,
}

struct State {
    /// The last assigned revision. No event has a higher one.
    revision: Revision,
    tables: HashMap<TableName, Table>,
    /// The memory that only the histories use: the sum of [`weight`] over all events.
    bytes: usize,
}

struct Table {
    live: OrdMap<Key, Arc<Entry>>,
    /// In order of revision. Undoing all of them in `live` gives the table at `compacted`.
    history: VecDeque<Arc<Event>>,
    /// The revision of the newest event that was dropped. All later ones are in `history`.
    compacted: Revision,
    /// The revision of the table's last event; wakes its watches.
    last_revision: watch::Sender<Revision>,
}

impl Table {
    fn new() -> Self {
        Self {
            live: OrdMap::new(),
            history: VecDeque::new(),
            compacted: Revision(0),
            last_revision: watch::Sender::new(Revision(0)),
        }
    }
}

impl Memory {
    /// The default number of events per table: what a client may miss before it has to relist.
    pub const HISTORY: usize = 10_000;

    /// The default size of all tables' histories in bytes: 10,000 changes of objects of 6 KB.
    pub const HISTORY_BYTES: usize = 64 * 1024 * 1024;

    /// Creates an empty storage at revision 1, as etcd starts. It keeps the last `history` events of each table, as far
    /// as they fit into [`Self::HISTORY_BYTES`].
    pub fn new(history: usize) -> Self {
        Self {
            max_history: history.max(1),
            history_bytes: Self::HISTORY_BYTES,
            state: Mutex::new(State {
                revision: Revision(1),
                tables: HashMap::new(),
                bytes: 0,
            }),
        }
    }

    /// Sets the maximum size of all tables' histories in bytes. The oldest events are dropped first.
    #[must_use]
    pub fn history_bytes(mut self, bytes: usize) -> Self {
        self.history_bytes = bytes;
        self
    }
}

/// The bytes that only the event keeps in memory: the previous state, and the last state of a deleted object.
fn weight(event: &Event) -> usize {
    /// The event itself, its queue slot, and the reference counts.
    const OVERHEAD: usize = 256;
    let before = event
        .previous
        .as_ref()
        .map_or(0, |entry| entry.object.json().len());
    let last = if event.deleted {
        event.entry.object.json().len()
    } else {
        0
    };
    OVERHEAD + before + last
}

impl State {
    /// Drops the oldest events of all tables until the rest fits. The newest event always stays: watches have not
    /// read it yet.
    fn compact(&mut self, limit: usize) {
        while self.bytes > limit {
            let oldest = self
                .tables
                .values_mut()
                .filter_map(|table| Some((table.history.front()?.revision, table)))
                .min_by_key(|(revision, _)| *revision);
            match oldest {
                Some((revision, table)) if revision < self.revision => self.bytes -= table.drop_oldest(),
                _ => return,
            }
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Self::HISTORY)
    }
}

impl Storage for Memory {
    fn revision(&self) -> Revision {
        self.state.lock().revision
    }

    fn get(&self, table: &TableName, key: &Key) -> Option<Arc<Entry>> {
        self.state.lock().tables.get(table)?.live.get(key).cloned()
    }

    fn snapshot(&self, table: &TableName, at: Option<Revision>) -> Result<Snapshot, Expired> {
        let (revision, mut entries, newer) = {
            let state = self.state.lock();
            let revision = at.unwrap_or(state.revision);
            let Some(table) = state.tables.get(table) else {
                return Ok(Snapshot {
                    revision,
                    entries: OrdMap::new(),
                });
            };
            if revision < table.compacted {
                return Err(Expired {
                    requested: revision,
                    oldest: table.compacted,
                });
            }
            (
                revision,
                table.live.clone(),
                table.events_after(revision, usize::MAX),
            )
        };
        for event in newer.iter().rev() {
            match &event.previous {
                Some(previous) => entries.insert(event.entry.key.clone(), previous.clone()),
                None => entries.remove(&event.entry.key),
            };
        }
        Ok(Snapshot { revision, entries })
    }

    fn commit(
        &self,
        table: &TableName,
        key: &Key,
        expect: Expect,
        change: Change,
        encode: &mut dyn FnMut(Revision) -> Encoded,
    ) -> Result<Arc<Entry>, Conflict> {
        let mut state = self.state.lock();
        let revision = Revision(state.revision.0 + 1);
        if !state.tables.contains_key(table) {
            state.tables.insert(table.clone(), Table::new());
        }
        let table = state.tables.get_mut(table).expect("inserted above");
        let previous = table.live.get(key).cloned();
        match (&previous, expect) {
            (None, Expect::Absent) => {}
            (Some(entry), Expect::At(at)) if entry.revision == at => {}
            _ => return Err(Conflict(previous)),
        }
        let entry = Arc::new(Entry {
            key: key.clone(),
            revision,
            object: encode(revision),
        });
        match change {
            Change::Put => table.live.insert(key.clone(), entry.clone()),
            Change::Remove => table.live.remove(key),
        };
        let deleted = change == Change::Remove;
        let event = Event {
            revision,
            previous,
            entry: entry.clone(),
            deleted,
        };
        let added = weight(&event);
        table.history.push_back(Arc::new(event));
        let removed = if table.history.len() > self.max_history {
            table.drop_oldest()
        } else {
            0
        };
        table.last_revision.send_replace(revision);
        state.bytes = state.bytes + added - removed;
        state.revision = revision;
        state.compact(self.history_bytes);
        Ok(entry)
    }

    fn subscribe(&self, table: &TableName) -> watch::Receiver<Revision> {
        let mut state = self.state.lock();
        state
            .tables
            .entry(table.clone())
            .or_insert_with(Table::new)
            .last_revision
            .subscribe()
    }

    fn events(&self, table: &TableName, after: Revision, limit: usize) -> Result<Vec<Arc<Event>>, Expired> {
        let state = self.state.lock();
        let Some(table) = state.tables.get(table) else {
            return Ok(Vec::new());
        };
        if after < table.compacted {
            return Err(Expired {
                requested: after,
                oldest: table.compacted,
            });
        }
        Ok(table.events_after(after, limit))
    }
}

impl Table {
    /// Drops the oldest event; returns its weight.
    fn drop_oldest(&mut self) -> usize {
        self.history.pop_front().map_or(0, |forgotten| {
            self.compacted = forgotten.revision;
            weight(&forgotten)
        })
    }

    fn events_after(&self, revision: Revision, limit: usize) -> Vec<Arc<Event>> {
        let first = self.history.partition_point(|event| event.revision <= revision);
        self.history.iter().skip(first).take(limit).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(storage: &Memory, name: &str, expect: Expect) -> Result<Arc<Entry>, Conflict> {
        write(storage, name, expect, Change::Put)
    }

    fn write(storage: &Memory, name: &str, expect: Expect, change: Change) -> Result<Arc<Entry>, Conflict> {
        storage.commit(
            &"things".into(),
            &Key::new("a", name),
            expect,
            change,
            &mut |_| Encoded::default(),
        )
    }

    fn names(snapshot: &Snapshot) -> Vec<(String, u64)> {
        snapshot
            .range(None, None)
            .map(|e| (e.key.name.to_string(), e.revision.0))
            .collect()
    }

    #[test]
    fn write_with_stale_precondition_changes_nothing() {
        let storage = Memory::default();
        let first = put(&storage, "x", Expect::Absent).expect("created");
        assert!(put(&storage, "x", Expect::Absent).is_err());
        let second = put(&storage, "x", Expect::At(first.revision)).expect("updated");
        let Conflict(current) = put(&storage, "x", Expect::At(first.revision)).expect_err("stale");
        assert_eq!(current.expect("exists").revision, second.revision);
        assert_eq!(storage.revision(), second.revision);
    }

    #[test]
    fn snapshot_at_old_revision_has_the_old_state() {
        let storage = Memory::default();
        let table: TableName = "things".into();
        let mut snapshots = Vec::new();
        let x = put(&storage, "x", Expect::Absent).expect("created");
        snapshots.push(names(&storage.snapshot(&table, None).expect("now")));
        let y = put(&storage, "y", Expect::Absent).expect("created");
        snapshots.push(names(&storage.snapshot(&table, None).expect("now")));
        let x2 = put(&storage, "x", Expect::At(x.revision)).expect("updated");
        snapshots.push(names(&storage.snapshot(&table, None).expect("now")));
        write(&storage, "y", Expect::At(y.revision), Change::Remove).expect("removed");
        for (revision, expected) in [x.revision, y.revision, x2.revision].into_iter().zip(snapshots) {
            assert_eq!(
                names(&storage.snapshot(&table, Some(revision)).expect("in the window")),
                expected
            );
        }
    }

    #[test]
    fn history_is_bounded_and_reports_the_oldest_revision() {
        let storage = Memory::new(2);
        let table: TableName = "things".into();
        let revisions: Vec<_> = ["a", "b", "c"]
            .map(|n| put(&storage, n, Expect::Absent).expect("created").revision)
            .into();
        assert_eq!(storage.events(&table, revisions[0], 9).expect("known").len(), 2);
        let expired = storage.events(&table, Revision(1), 9).expect_err("dropped");
        assert_eq!(
            expired,
            Expired {
                requested: Revision(1),
                oldest: revisions[0]
            }
        );
        assert!(storage.snapshot(&table, Some(Revision(1))).is_err());
    }

    #[test]
    fn history_is_bounded_in_bytes_over_all_tables() {
        const LIMIT: usize = 100_000;
        let storage = Memory::new(1_000_000).history_bytes(LIMIT);
        let large = |table: &str, expect| {
            let entry = storage.commit(
                &table.into(),
                &Key::new("a", "x"),
                expect,
                Change::Put,
                &mut |revision| {
                    let value = serde_json::json!({"metadata": {}, "data": "x".repeat(10_000)});
                    crate::object::Object::new(value)
                        .expect("an object")
                        .encode(revision, &[])
                },
            );
            Expect::At(entry.expect("as expected").revision)
        };
        let (mut one, mut other) = (large("one", Expect::Absent), large("other", Expect::Absent));
        let first = storage.revision();
        for _ in 0..100 {
            one = large("one", one);
            other = large("other", other);
            assert!(storage.state.lock().bytes <= LIMIT);
        }
        for table in ["one", "other"] {
            let newest = storage
                .events(&table.into(), Revision(storage.revision().0 - 4), 9)
                .expect("recent");
            assert_eq!(newest.len(), 2, "the newest events are there");
            assert!(
                storage.events(&table.into(), first, 9).is_err(),
                "the oldest were dropped"
            );
        }
    }

    #[tokio::test]
    async fn commit_wakes_only_subscribers_of_its_table() {
        let storage = Memory::default();
        let mut things = storage.subscribe(&"things".into());
        let others = storage.subscribe(&"others".into());
        let entry = put(&storage, "x", Expect::Absent).expect("created");
        things.changed().await.expect("storage lives");
        assert_eq!(*things.borrow(), entry.revision);
        assert!(!others.has_changed().expect("storage lives"));
    }
}
