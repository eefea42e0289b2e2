//! Storage that tells a test what requests do with it, or delays them.

use std::sync::Arc;

use windlass_apiserver::{
    Encoded,
    storage::{
        Change, Conflict, Entry, Event, Expect, Expired, Key, Memory, Revision, Snapshot, Storage, TableName,
    },
};

type Hook<T> = Box<dyn Fn(&T) + Send + Sync>;

/// Storage in memory, with functions that are called before each snapshot, each commit, and each look at a table's events, on
/// the thread that handles the request. Default: they do nothing.
pub(super) struct HookedStorage {
    inner: Memory,
    on_snapshot: Hook<TableName>,
    on_commit: Hook<Key>,
    on_events: Hook<TableName>,
}

impl Default for HookedStorage {
    fn default() -> Self {
        Self {
            inner: Memory::default(),
            on_snapshot: Box::new(|_| ()),
            on_commit: Box::new(|_| ()),
            on_events: Box::new(|_| ()),
        }
    }
}

impl HookedStorage {
    pub(super) fn on_snapshot(mut self, hook: impl Fn(&TableName) + Send + Sync + 'static) -> Self {
        self.on_snapshot = Box::new(hook);
        self
    }

    pub(super) fn on_events(mut self, hook: impl Fn(&TableName) + Send + Sync + 'static) -> Self {
        self.on_events = Box::new(hook);
        self
    }

    pub(super) fn on_commit(mut self, hook: impl Fn(&Key) + Send + Sync + 'static) -> Self {
        self.on_commit = Box::new(hook);
        self
    }
}

impl Storage for HookedStorage {
    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn get(&self, table: &TableName, key: &Key) -> Option<Arc<Entry>> {
        self.inner.get(table, key)
    }

    fn snapshot(
        &self,
        table: &TableName,
        namespace: Option<&str>,
        at: Option<Revision>,
    ) -> Result<Snapshot, Expired> {
        (self.on_snapshot)(table);
        self.inner.snapshot(table, namespace, at)
    }

    fn commit(
        &self,
        table: &TableName,
        key: &Key,
        expect: Expect,
        change: Change,
        encode: &mut dyn FnMut(Revision) -> Encoded,
    ) -> Result<Arc<Entry>, Conflict> {
        (self.on_commit)(key);
        self.inner.commit(table, key, expect, change, encode)
    }

    fn subscribe(
        &self,
        table: &TableName,
        namespace: Option<&str>,
    ) -> tokio::sync::watch::Receiver<Revision> {
        self.inner.subscribe(table, namespace)
    }

    fn events(
        &self,
        table: &TableName,
        namespace: Option<&str>,
        after: Revision,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, Expired> {
        (self.on_events)(table);
        self.inner.events(table, namespace, after, limit)
    }
}
