//! The objects of a controller's own kind, as its workers see them.

use kube::Resource;
use parking_lot::Mutex;
use windlass_cache::{Cacheable, DecodeError, ObjectKey, Query};

use crate::{children::ApplyHistory, listers::Listers};

/// What a worker needs to know about the objects of the controller's own kind. These are closures, so that workers need
/// to know neither the kind nor that a key names an object.
pub(crate) struct OwnObjects<Key> {
    /// Called before each reconcile. Forgets the history of a deleted object. Fails for an object that does not decode,
    /// which must not be taken for deleted.
    pub(crate) check: CheckFn<Key>,
    /// The keys of all objects.
    pub(crate) keys: KeysFn<Key>,
}

type CheckFn<Key> = Box<dyn Fn(&Key, &Mutex<ApplyHistory>) -> Result<(), DecodeError> + Send + Sync>;
type KeysFn<Key> = Box<dyn Fn() -> Vec<Key> + Send + Sync>;

/// Finds the own objects in the listers of a controller that has synced.
pub(crate) type OwnObjectsFn<Key> = Box<dyn FnOnce(&Listers) -> Option<OwnObjects<Key>> + Send>;

/// The own objects of a controller for `K`.
pub(crate) fn of_kind<K>(kind: K::DynamicType) -> OwnObjectsFn<ObjectKey>
where
    K: Cacheable + Resource<DynamicType: Send>,
{
    Box::new(move |listers| {
        let own = listers.get::<K>(&kind).ok()?.clone();
        let all = own.clone();
        Some(OwnObjects {
            check: Box::new(move |key, history| {
                if own.try_get(key)?.is_none() {
                    history.lock().forget_object(key);
                }
                Ok(())
            }),
            keys: Box::new(move || {
                let objects = all.list_cached(&Query::all());
                objects.iter().map(|object| object.key().clone()).collect()
            }),
        })
    })
}
