//! Keys that are to be looked at for a reason that no object tells.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures::Stream;
use tokio::sync::Notify;
use windlass_runtime::ObjectKey;

/// A set of keys on its way into a controller's queue; each is in it once. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Wakes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    keys: Mutex<BTreeSet<ObjectKey>>,
    added: Notify,
}

impl Wakes {
    pub(super) fn wake(&self, key: ObjectKey) {
        self.wake_all([key]);
    }

    pub(super) fn wake_all(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        self.0.keys.lock().expect("nobody panics with it").extend(keys);
        self.0.added.notify_one();
    }

    /// The keys as they come; for one reader.
    pub(super) fn keys(&self) -> impl Stream<Item = ObjectKey> + Send + 'static + use<> {
        let shared = Arc::clone(&self.0);
        futures::stream::unfold(shared, |shared| async {
            loop {
                let first = shared.keys.lock().expect("nobody panics with it").pop_first();
                if let Some(key) = first {
                    return Some((key, shared));
                }
                shared.added.notified().await;
            }
        })
    }
}
