//! Triggers reconciles for reasons that are not visible in any object.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures::Stream;
use tokio::sync::Notify;
use windlass_runtime::ObjectKey;

/// A set of keys that wait to enter a controller's queue. Clones share the same set.
#[derive(Clone, Default)]
pub(super) struct WakeQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    keys: Mutex<BTreeSet<ObjectKey>>,
    added: Notify,
}

impl WakeQueue {
    pub(super) fn add(&self, key: ObjectKey) {
        self.add_all([key]);
    }

    pub(super) fn add_all(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        self.0.keys.lock().expect("no panic while locked").extend(keys);
        self.0.added.notify_one();
    }

    /// Returns the keys as a stream, for a single consumer.
    pub(super) fn keys(&self) -> impl Stream<Item = ObjectKey> + Send + 'static + use<> {
        let shared = Arc::clone(&self.0);
        futures::stream::unfold(shared, |shared| async {
            loop {
                let first = shared.keys.lock().expect("no panic while locked").pop_first();
                if let Some(key) = first {
                    return Some((key, shared));
                }
                shared.added.notified().await;
            }
        })
    }
}
