//! One cache per kind and selection, shared by everybody who asks.

use std::{
    any::TypeId,
    collections::HashMap,
    sync::{Arc, Weak},
};

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    cache::{Cache, Shared},
    entry::Decode,
    kind::{Cacheable, KindName, Selection},
    report::Report,
    settings::{Keeping, Settings, decode},
    target::Target,
    writes,
};

/// The caches of one client. Asking twice for the same kind and selection gives the same watch, whatever type it is
/// read as; it ends with its last user, not with this.
#[derive(Clone)]
pub struct Caches {
    /// What the watches use.
    reader: Client,
    /// The same, and its writes go into the caches.
    client: Client,
    state: Arc<Mutex<State>>,
    /// Every watch's task holds a receiver.
    closing: watch::Sender<bool>,
}

#[derive(Default)]
pub(crate) struct State {
    known: Vec<Known>,
    settings: HashMap<KindName, Keeping>,
}

struct Known {
    /// Weak, so that being known keeps no watch alive.
    shared: Weak<Shared>,
    /// A projection is one of its own, by its type; everything else is read from one copy.
    view: Option<TypeId>,
}

impl State {
    /// The caches that are in use.
    pub(crate) fn in_use(&self) -> Vec<Arc<Shared>> {
        self.known
            .iter()
            .filter_map(|known| known.shared.upgrade())
            .collect()
    }

    /// The cache that has just these objects now, whatever it was started with.
    fn find(&self, kind: &KindName, selection: &Selection, view: Option<TypeId>) -> Option<Arc<Shared>> {
        let alike = self.known.iter().filter(|known| known.view == view);
        alike
            .filter_map(|known| known.shared.upgrade())
            .find(|shared| shared.core.kind == *kind && shared.selection() == *selection)
    }
}

impl Caches {
    /// No caches yet.
    pub fn new(client: Client) -> Self {
        let state = Arc::default();
        Self {
            client: writes::recording(client.clone(), Arc::downgrade(&state)),
            reader: client,
            state,
            closing: watch::Sender::new(false),
        }
    }

    /// A client whose writes are visible to the next cached read.
    ///
    /// What the server answers to a create, update, patch, apply or delete, of one object or of many, is put into the
    /// caches of that kind before the caller gets it; what the watch then tells late cannot undo it. An answer in another
    /// shape than the cached one (another version of the API, or a part such as an object's scale) is held back until
    /// the watch has told of the write, but no longer than 5 s. Reads go to the server, as with the client that it was
    /// made from.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// From now on caches of `K` are started with these settings. Those that run stay as they are.
    pub fn configure<K: Cacheable>(&self, settings: Settings<K>)
    where
        K::DynamicType: Default,
    {
        let kind = KindName::of::<K>(&K::DynamicType::default());
        self.state.lock().settings.insert(kind, settings.keeping);
    }

    /// The cache of the selected objects, started if nobody uses it yet. Must be called within a tokio runtime.
    pub fn get<K: Cacheable>(&self, selection: &Selection) -> Cache<K>
    where
        K::DynamicType: Default,
    {
        self.get_dynamic(&K::DynamicType::default(), selection)
    }

    /// Like [`get`](Self::get) for a type that learns its kind at run time.
    pub fn get_dynamic<K: Cacheable>(&self, dynamic: &K::DynamicType, selection: &Selection) -> Cache<K> {
        let kind = KindName::of::<K>(dynamic);
        let keeping = self.state.lock().settings.get(&kind).cloned().unwrap_or_default();
        let target = Target::of::<K>(dynamic, selection, false);
        self.shared(kind, target, keeping, None, decode::<K>)
    }

    /// A projection of the selected objects: `project` is used by the first who asks for this type of projection.
    pub fn projected<K: Cacheable, V: Send + Sync + 'static>(
        &self,
        selection: &Selection,
        settings: Settings<K, V>,
    ) -> Cache<V>
    where
        K::DynamicType: Default,
    {
        let dynamic = K::DynamicType::default();
        let target = Target::of::<K>(&dynamic, selection, false);
        let view = Some(TypeId::of::<V>());
        self.shared(
            KindName::of::<K>(&dynamic),
            target,
            settings.keeping,
            view,
            settings.decode,
        )
    }

    fn shared<T>(
        &self,
        kind: KindName,
        target: Target,
        keeping: Keeping,
        view: Option<TypeId>,
        decode: Decode<T>,
    ) -> Cache<T> {
        let mut state = self.state.lock();
        if let Some(shared) = state.find(&kind, &target.selection, view) {
            return Cache { shared, decode };
        }
        state.known.retain(|known| known.shared.strong_count() > 0);
        let closing = Some(self.closing.clone());
        let shared = Shared::start(self.reader.clone(), kind, target, keeping, closing);
        state.known.push(Known {
            shared: Arc::downgrade(&shared),
            view,
        });
        Cache { shared, decode }
    }

    /// What is cached, and for how many users: one report for each watch that is in use.
    pub fn reports(&self) -> Vec<Report> {
        let known = self.state.lock().in_use();
        let mut reports: Vec<_> = known.iter().map(Report::of).collect();
        reports.sort_by_cached_key(|report| (report.kind.to_string(), format!("{:?}", report.selection)));
        reports
    }

    /// Ends every watch, also those that are still in use, and waits until their tasks are gone. A cache that is
    /// asked for afterwards ends at once. Cancellation-safe.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        self.closing.closed().await;
    }
}
