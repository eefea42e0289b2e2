//! In-memory storage: the default, and the read side of a durable storage.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::Arc,
};

use imbl::OrdMap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    Change, Conflict, Entry, Event, Expect, Expired, Key, Revision, Snapshot, Storage, StoredBytes, TableName,
};
use crate::object::Encoded;

/// In-memory storage. Its history is bounded by the number of events per table and by the bytes of all tables.
///
/// Where events have to be dropped, they are the oldest of those namespaces that have more than their share, in any table,
/// unless there are much older ones. So a namespace with many or large changes does not shorten the history of others.
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
    /// The bytes of all current objects, and of those of each namespace.
    stored: usize,
    stored_by_namespace: HashMap<Arc<str>, usize>,
}

struct Table {
    live: OrdMap<Key, Arc<Entry>>,
    /// All events after `compacted`, in order of revision. Undoing all of them in `live` gives the table at `compacted`.
    history: VecDeque<Arc<Event>>,
    /// The revision of the newest event that was dropped, of any namespace.
    compacted: Revision,
    namespaces: HashMap<Arc<str>, NamespaceHistory>,
    /// How many events the histories of the namespaces have together.
    events: usize,
    /// The newest event that was dropped of a namespace that is not in `namespaces`.
    forgotten: Revision,
    /// From this number of namespaces on, those that are not used are removed.
    sweep_at: usize,
    /// The revision of the table's last event; wakes the watches of all namespaces.
    last_revision: watch::Sender<Revision>,
}

/// The history of the objects in one namespace of a table; reaches at least as far back as the table's.
struct NamespaceHistory {
    events: VecDeque<Arc<Event>>,
    /// The sum of their [`weight`].
    bytes: usize,
    /// The revision of the newest event that was dropped. All later ones are in `events`.
    compacted: Revision,
    /// The revision of the last event; wakes the watches of this namespace.
    last_revision: watch::Sender<Revision>,
}

/// Where events have to be dropped, those that are this many histories old go first: a namespace that is idle must not keep
/// its history forever, while that of all namespaces becomes short.
const MAX_AGE: u64 = 4;

/// The smallest number of namespaces in a table from which unused ones are removed.
const MIN_SWEEP: usize = 64;

impl Table {
    fn new() -> Self {
        Self {
            live: OrdMap::new(),
            history: VecDeque::new(),
            compacted: Revision(0),
            namespaces: HashMap::new(),
            events: 0,
            forgotten: Revision(0),
            sweep_at: MIN_SWEEP,
            last_revision: watch::Sender::new(Revision(0)),
        }
    }
}

impl Memory {
    /// The default number of events per table: what a client may miss before it has to relist.
    pub const HISTORY: usize = 10_000;

    /// The default size of all tables' histories in bytes: 10,000 changes of objects of 6 KB.
    pub const HISTORY_BYTES: usize = 64 * 1024 * 1024;

    /// Creates an empty storage at revision 1, as etcd starts. It keeps at most `history` events of each table, and at least
    /// fifteen of sixteen of these as far as they fit into [`Self::HISTORY_BYTES`].
    pub fn new(history: usize) -> Self {
        Self {
            max_history: history.max(1),
            history_bytes: Self::HISTORY_BYTES,
            state: Mutex::new(State {
                revision: Revision(1),
                tables: HashMap::new(),
                bytes: 0,
                stored: 0,
                stored_by_namespace: HashMap::new(),
            }),
        }
    }

    /// Sets the maximum size of all tables' histories in bytes.
    #[must_use]
    pub fn history_bytes(mut self, bytes: usize) -> Self {
        self.history_bytes = bytes;
        self
    }
}

/// The bytes that only the event keeps in memory: the previous state, and the last state of a deleted object.
fn weight(event: &Event) -> usize {
    /// The event itself, its queue slots, and the reference counts.
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
    /// Drops events until what `measure` counts is below the limit, in one table or in all: those before the horizon, then
    /// the oldest of the namespaces with more than their share. The newest event always stays: watches have not read it yet.
    ///
    /// Drops a sixteenth more than necessary, so that looking at all namespaces is rarely necessary.
    fn compact(
        &mut self,
        only: Option<&TableName>,
        limit: usize,
        horizon: Revision,
        measure: fn(&NamespaceHistory) -> usize,
    ) {
        let target = limit - limit / 16;
        let (mut total, mut count) = (0, 0);
        let concerned = |name: &TableName| only.is_none_or(|only| only == name);
        for (_, table) in self.tables.iter().filter(|(name, _)| concerned(name)) {
            for namespace in table.namespaces.values().filter(|one| !one.events.is_empty()) {
                total += measure(namespace);
                count += 1;
            }
        }
        let share = target / (count + 1);
        let may_lose =
            |namespace: &NamespaceHistory, oldest: Revision| oldest < horizon || measure(namespace) > share;
        let mut heavy = BinaryHeap::new();
        for (name, table) in self.tables.iter().filter(|(name, _)| concerned(name)) {
            for (key, namespace) in &table.namespaces {
                let oldest = namespace.events.front().map(|event| event.revision);
                let oldest = oldest.filter(|oldest| may_lose(namespace, *oldest));
                heavy.extend(oldest.map(|oldest| Reverse((oldest, name.clone(), key.clone()))));
            }
        }
        while total > target
            && let Some(Reverse((revision, name, key))) = heavy.pop()
        {
            let Some(table) = self.tables.get_mut(&name).filter(|_| revision < self.revision) else {
                continue;
            };
            let Some(namespace) = table.namespaces.get_mut(&key) else {
                continue;
            };
            let before = (measure(namespace), namespace.bytes);
            let oldest = namespace.drop_oldest();
            total -= before.0 - measure(namespace);
            self.bytes -= before.1 - namespace.bytes;
            if let Some(oldest) = oldest.filter(|oldest| may_lose(namespace, *oldest)) {
                heavy.push(Reverse((oldest, name, key)));
            }
            table.dropped(revision);
        }
    }

    /// Counts the bytes of a current object that was written or removed.
    fn count_stored(&mut self, namespace: &Arc<str>, before: usize, now: usize) {
        self.stored = self.stored + now - before;
        let count = match self.stored_by_namespace.get_mut(namespace) {
            Some(count) => count,
            None => self.stored_by_namespace.entry(namespace.clone()).or_default(),
        };
        *count = *count + now - before;
        if *count == 0 {
            self.stored_by_namespace.remove(namespace);
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

    fn snapshot(
        &self,
        table: &TableName,
        namespace: Option<&str>,
        at: Option<Revision>,
    ) -> Result<Snapshot, Expired> {
        let (revision, mut entries, newer) = {
            let state = self.state.lock();
            let revision = at.unwrap_or(state.revision);
            let Some(table) = state.tables.get(table) else {
                return Ok(Snapshot {
                    revision,
                    entries: OrdMap::new(),
                });
            };
            let newer = match at {
                Some(at) => table.events_after(namespace, at, usize::MAX)?,
                None => Vec::new(),
            };
            (revision, table.live.clone(), newer)
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
        table_name: &TableName,
        key: &Key,
        expect: Expect,
        change: Change,
        encode: &mut dyn FnMut(Revision) -> Encoded,
    ) -> Result<Arc<Entry>, Conflict> {
        let mut state = self.state.lock();
        let revision = Revision(state.revision.0 + 1);
        if !state.tables.contains_key(table_name) {
            state.tables.insert(table_name.clone(), Table::new());
        }
        let table = state.tables.get_mut(table_name).expect("inserted above");
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
        let size = |entry: &Arc<Entry>| entry.object.json().len();
        let before = previous.as_ref().map_or(0, size);
        let now = if deleted { 0 } else { size(&entry) };
        let event = Arc::new(Event {
            revision,
            previous,
            entry: entry.clone(),
            deleted,
        });
        let added = weight(&event);
        table.push(event, added);
        let has_many_events = table.events > self.max_history;
        state.bytes += added;
        state.revision = revision;
        state.count_stored(&key.namespace, before, now);
        let horizon = Revision(revision.0.saturating_sub(self.max_history as u64 * MAX_AGE));
        if has_many_events {
            state.compact(Some(table_name), self.max_history, horizon, |one| {
                one.events.len()
            });
        }
        if state.bytes > self.history_bytes {
            state.compact(None, self.history_bytes, horizon, |one| one.bytes);
        }
        Ok(entry)
    }

    fn subscribe(&self, table: &TableName, namespace: Option<&str>) -> watch::Receiver<Revision> {
        let mut state = self.state.lock();
        let table = state.tables.entry(table.clone()).or_insert_with(Table::new);
        match namespace {
            None => table.last_revision.subscribe(),
            Some(namespace) => table.namespace(&namespace.into()).last_revision.subscribe(),
        }
    }

    fn events(
        &self,
        table: &TableName,
        namespace: Option<&str>,
        after: Revision,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, Expired> {
        let state = self.state.lock();
        let table = state.tables.get(table);
        table.map_or_else(
            || Ok(Vec::new()),
            |table| table.events_after(namespace, after, limit),
        )
    }

    fn stored_bytes(&self, namespace: &str) -> StoredBytes {
        let state = self.state.lock();
        StoredBytes {
            all: state.stored,
            namespace: state.stored_by_namespace.get(namespace).copied().unwrap_or(0),
        }
    }
}

impl Table {
    /// The history of a namespace, which is created if there is none.
    fn namespace(&mut self, name: &Arc<str>) -> &mut NamespaceHistory {
        if !self.namespaces.contains_key(name) && self.namespaces.len() >= self.sweep_at {
            let forgotten = &mut self.forgotten;
            self.namespaces.retain(|_, one| {
                let is_used = !one.events.is_empty() || one.last_revision.receiver_count() > 0;
                if !is_used {
                    *forgotten = one.compacted.max(*forgotten);
                }
                is_used
            });
            self.sweep_at = (self.namespaces.len() * 2).max(MIN_SWEEP);
        }
        let forgotten = self.forgotten;
        self.namespaces
            .entry(name.clone())
            .or_insert_with(|| NamespaceHistory {
                events: VecDeque::new(),
                bytes: 0,
                compacted: forgotten,
                last_revision: watch::Sender::new(Revision(0)),
            })
    }

    /// Adds an event and wakes the watches that it concerns.
    fn push(&mut self, event: Arc<Event>, weight: usize) {
        let revision = event.revision;
        self.history.push_back(event.clone());
        self.events += 1;
        self.last_revision.send_replace(revision);
        let namespace = self.namespace(&event.entry.key.namespace);
        namespace.bytes += weight;
        namespace.last_revision.send_replace(revision);
        namespace.events.push_back(event);
    }

    /// Records that an event of a namespace was dropped.
    fn dropped(&mut self, revision: Revision) {
        self.events -= 1;
        self.compacted = self.compacted.max(revision);
        while self
            .history
            .front()
            .is_some_and(|event| event.revision <= self.compacted)
        {
            self.history.pop_front();
        }
    }

    fn events_after(
        &self,
        namespace: Option<&str>,
        revision: Revision,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, Expired> {
        let (oldest, events) = match namespace {
            None => (self.compacted, Some(&self.history)),
            Some(name) => match self.namespaces.get(name) {
                Some(one) => (one.compacted, Some(&one.events)),
                None => (self.forgotten, None),
            },
        };
        if revision < oldest {
            return Err(Expired {
                requested: revision,
                oldest,
            });
        }
        let Some(events) = events else {
            return Ok(Vec::new());
        };
        let first = events.partition_point(|event| event.revision <= revision);
        Ok(events.iter().skip(first).take(limit).cloned().collect())
    }
}

impl NamespaceHistory {
    /// Drops the oldest event; returns the revision of the next one.
    fn drop_oldest(&mut self) -> Option<Revision> {
        let dropped = self.events.pop_front()?;
        self.compacted = dropped.revision;
        self.bytes -= weight(&dropped);
        self.events.front().map(|event| event.revision)
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
        snapshots.push(names(&storage.snapshot(&table, None, None).expect("now")));
        let y = put(&storage, "y", Expect::Absent).expect("created");
        snapshots.push(names(&storage.snapshot(&table, None, None).expect("now")));
        let x2 = put(&storage, "x", Expect::At(x.revision)).expect("updated");
        snapshots.push(names(&storage.snapshot(&table, None, None).expect("now")));
        write(&storage, "y", Expect::At(y.revision), Change::Remove).expect("removed");
        for (revision, expected) in [x.revision, y.revision, x2.revision].into_iter().zip(snapshots) {
            assert_eq!(
                names(
                    &storage
                        .snapshot(&table, None, Some(revision))
                        .expect("in the window")
                ),
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
        assert_eq!(
            storage
                .events(&table, None, revisions[0], 9)
                .expect("known")
                .len(),
            2
        );
        let expired = storage.events(&table, None, Revision(1), 9).expect_err("dropped");
        assert_eq!(
            expired,
            Expired {
                requested: Revision(1),
                oldest: revisions[0]
            }
        );
        assert!(storage.snapshot(&table, None, Some(Revision(1))).is_err());
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
                .events(&table.into(), None, Revision(storage.revision().0 - 4), 9)
                .expect("recent");
            assert_eq!(newest.len(), 2, "the newest events are there");
            assert!(
                storage.events(&table.into(), None, first, 9).is_err(),
                "the oldest were dropped"
            );
        }
    }

    #[tokio::test]
    async fn commit_wakes_only_subscribers_of_its_table_and_namespace() {
        let storage = Memory::default();
        let mut things = storage.subscribe(&"things".into(), None);
        let mut own = storage.subscribe(&"things".into(), Some("a"));
        let others = [
            storage.subscribe(&"others".into(), None),
            storage.subscribe(&"things".into(), Some("b")),
            storage.subscribe(&"things".into(), Some("")),
        ];
        let entry = put(&storage, "x", Expect::Absent).expect("created");
        for woken in [&mut things, &mut own] {
            woken.changed().await.expect("storage lives");
            assert_eq!(*woken.borrow(), entry.revision);
        }
        for other in others {
            assert!(!other.has_changed().expect("storage lives"));
        }
    }

    /// Writes an object of a size again and again.
    fn write_often(storage: &Memory, table: &str, namespace: &str, size: usize, times: usize) {
        let key = Key::new(namespace, "busy");
        for _ in 0..times {
            let current = storage.get(&table.into(), &key);
            let expect = current.map_or(Expect::Absent, |entry| Expect::At(entry.revision));
            let encode = &mut |revision| {
                let value = serde_json::json!({"metadata": {}, "data": "x".repeat(size)});
                let object = crate::object::Object::new(value);
                object.expect("an object").encode(revision, &[])
            };
            let written = storage.commit(&table.into(), &key, expect, Change::Put, encode);
            written.expect("as expected");
        }
    }

    #[test]
    fn namespaces_with_many_or_large_changes_do_not_shorten_the_history_of_others() {
        for (size, times) in [(10_000, 100), (1, 150)] {
            let storage = Memory::new(100).history_bytes(200_000);
            let table: TableName = "things".into();
            let first = put(&storage, "x", Expect::Absent).expect("created").revision;
            write_often(&storage, "others", "c", 100, 2);
            put(&storage, "y", Expect::Absent).expect("created");
            for namespace in ["mallory", "eve"] {
                write_often(&storage, "things", namespace, size, times);
            }
            let events = storage.events(&table, Some("a"), Revision(1), 9).expect("kept");
            assert_eq!(events.len(), 2);
            let snapshot = storage.snapshot(&table, Some("a"), Some(first)).expect("kept");
            let own: Vec<_> = snapshot
                .range(Some("a"), None)
                .map(|entry| &*entry.key.name)
                .collect();
            assert_eq!(own, ["x"]);
            assert!(storage.events(&"others".into(), Some("c"), first, 9).is_ok());
            // Theirs is shorter, and so is that of all namespaces, which must not have gaps.
            for namespace in [Some("mallory"), None] {
                assert!(storage.events(&table, namespace, first, 9).is_err());
            }
            let state = storage.state.lock();
            assert!(state.bytes <= 200_000 && state.tables[&table].events <= 100);
            let sum = |of: fn(&NamespaceHistory) -> usize| -> usize {
                let tables = state.tables.values();
                tables.flat_map(|table| table.namespaces.values()).map(of).sum()
            };
            assert_eq!(state.bytes, sum(|one| one.bytes));
            assert_eq!(
                state.tables.values().map(|table| table.events).sum::<usize>(),
                sum(|one| one.events.len())
            );
        }
    }

    #[test]
    fn history_of_an_idle_namespace_gives_way_to_that_of_all() {
        let storage = Memory::new(100);
        let table: TableName = "things".into();
        for index in 0..45 {
            write_often(&storage, "things", &format!("n{index}"), 1, 2);
        }
        write_often(&storage, "things", "busy", 1, 1_000);
        assert!(storage.events(&table, Some("n0"), Revision(1), 9).is_err());
        let recent = Revision(storage.revision().0 - 80);
        let events = storage.events(&table, None, recent, usize::MAX).expect("kept");
        assert_eq!(events.len(), 80);
    }

    #[test]
    fn history_of_all_namespaces_has_no_gaps() {
        let storage = Memory::new(40).history_bytes(30_000);
        let table: TableName = "things".into();
        for round in 0..200 {
            write_often(
                &storage,
                "things",
                &format!("n{}", round % 7),
                (round % 5) * 300,
                1 + round % 3,
            );
            let compacted = storage.state.lock().tables[&table].compacted;
            let events = storage.events(&table, None, compacted, usize::MAX).expect("kept");
            let revisions: Vec<_> = events.iter().map(|event| event.revision.0).collect();
            assert_eq!(
                revisions,
                (compacted.0.max(1) + 1..=storage.revision().0).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn namespaces_that_nobody_uses_are_forgotten() {
        let storage = Memory::new(10);
        let table: TableName = "things".into();
        let _watched = storage.subscribe(&table, Some("watched"));
        for index in 0..10_000 {
            drop(storage.subscribe(&table, Some(&format!("s{index}"))));
            write_often(&storage, "things", &format!("n{index}"), 1, 1);
        }
        let state = storage.state.lock();
        let namespaces = &state.tables[&table].namespaces;
        assert!(namespaces.len() <= MIN_SWEEP, "{}", namespaces.len());
        assert!(namespaces.contains_key("watched"));
        drop(state);
        assert!(
            storage.events(&table, Some("n0"), Revision(1), 9).is_err(),
            "a gap"
        );
        assert!(storage.events(&table, Some("watched"), Revision(1), 9).is_ok());
    }

    #[test]
    fn stored_bytes_are_those_of_current_objects() {
        let storage = Memory::default();
        let bytes = |namespace: &str| storage.stored_bytes(namespace);
        assert_eq!(bytes("a"), StoredBytes::default());
        write_often(&storage, "things", "a", 1_000, 3);
        write_often(&storage, "others", "a", 2_000, 3);
        write_often(&storage, "others", "b", 500, 3);
        let (all, a, b) = (bytes("a").all, bytes("a").namespace, bytes("b").namespace);
        assert_eq!(all, a + b);
        assert!(
            (3_000..3_200).contains(&a) && (500..600).contains(&b),
            "{a} + {b}"
        );
        let key = Key::new("b", "busy");
        let revision = storage.get(&"others".into(), &key).expect("written").revision;
        let remove = storage.commit(
            &"others".into(),
            &key,
            Expect::At(revision),
            Change::Remove,
            &mut |_| Encoded::default(),
        );
        remove.expect("as expected");
        assert_eq!((bytes("b").all, bytes("b").namespace), (a, 0));
    }
}
