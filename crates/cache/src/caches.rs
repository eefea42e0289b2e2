//! One cache per kind and selection, shared by everybody who asks.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, Weak},
};

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    cache::{Cache, Shared},
    kind::{Cacheable, KindName, Selection},
};

/// The caches of one client. Asking twice for the same kind and selection gives the same watch; it ends with its
/// last user, not with this.
#[derive(Clone)]
pub struct Caches {
    client: Client,
    /// Weak, so that the map keeps no watch alive.
    known: Arc<Mutex<HashMap<Identity, Weak<dyn Any + Send + Sync>>>>,
    /// Every watch's task holds a receiver.
    closing: watch::Sender<bool>,
}

/// The type is part of it because a kind can be read as different types; each is stored for itself.
type Identity = (TypeId, KindName, Selection);

impl Caches {
    /// No caches yet.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Arc::default(),
            closing: watch::Sender::new(false),
        }
    }

    /// The client that the caches use.
    pub fn client(&self) -> &Client {
        &self.client
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
        let identity = (TypeId::of::<K>(), KindName::of::<K>(dynamic), selection.clone());
        let mut known = self.known.lock();
        let existing = known.get(&identity).and_then(Weak::upgrade);
        if let Some(shared) = existing.and_then(|any| any.downcast::<Shared<K>>().ok()) {
            return Cache { shared };
        }
        known.retain(|_, cache| cache.strong_count() > 0);
        let cache = Cache::start_within(
            self.client.clone(),
            dynamic,
            selection,
            Some(self.closing.subscribe()),
        );
        let weak: Weak<Shared<K>> = Arc::downgrade(&cache.shared);
        known.insert(identity, weak);
        cache
    }

    /// Ends every watch, also those that are still in use, and waits until their tasks are gone. A cache that is
    /// asked for afterwards ends at once. Cancellation-safe.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        self.closing.closed().await;
    }
}
