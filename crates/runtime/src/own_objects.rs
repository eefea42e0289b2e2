//! The objects of a controller's own kind, as its workers see them.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use parking_lot::Mutex;
use windlass_cache::{Cacheable, DecodeError, ObjectKey, Query};

use crate::{
    children::ApplyHistory,
    listers::Listers,
    trigger::{ChangeType, Trigger, TriggerCause},
};

/// What a worker needs to know about the objects of the controller's own kind. These are closures, so that workers need
/// to know neither the kind nor that a key names an object.
pub(crate) struct OwnObjects<Key> {
    /// Called before each reconcile. Forgets the history of a deleted object. Fails for an object that does not decode,
    /// which must not be taken for deleted.
    pub(crate) check: CheckFn<Key>,
    /// The keys of all objects.
    pub(crate) keys: KeysFn<Key>,
    /// A reference to an object that exists, for events.
    pub(crate) reference: ReferenceFn<Key>,
    /// Whether the only change since a reconcile failed is the report of that in the object's status: the change must
    /// neither end the backoff nor start the retries again.
    pub(crate) is_own_report: IsOwnReportFn<Key>,
}

type CheckFn<Key> = Box<dyn Fn(&Key, &Mutex<ApplyHistory>) -> Result<(), DecodeError> + Send + Sync>;
type ReferenceFn<Key> = Box<dyn Fn(&Key) -> Option<ObjectReference> + Send + Sync>;
type IsOwnReportFn<Key> = Box<dyn Fn(&Key, &Trigger, &Mutex<ApplyHistory>) -> bool + Send + Sync>;
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
        let (all, referred, reported) = (own.clone(), own.clone(), own.clone());
        Some(OwnObjects {
            check: Box::new(move |key, history| {
                if own.try_get(key)?.is_none() {
                    history.lock().forget_object(key);
                }
                Ok(())
            }),
            is_own_report: Box::new(move |key, trigger, history| {
                let TriggerCause::Change(changed) = trigger.cause() else {
                    return false;
                };
                trigger.external_times() == 1
                    && changed.change == ChangeType::Updated
                    && changed.object == *key
                    && *changed.kind == *reported.kind().kind
                    && history.lock().failure_report(key).is_some_and(|version| {
                        let current = reported.get_cached(key);
                        current
                            .is_some_and(|current| current.meta().resource_version().to_string() == version)
                    })
            }),
            keys: Box::new(move || {
                let objects = all.list_cached(&Query::all());
                objects.iter().map(|object| object.key().clone()).collect()
            }),
            reference: Box::new(move |key| {
                let object = referred.get_cached(key)?;
                let kind = referred.kind();
                let uid = match object.object() {
                    Ok(decoded) => decoded.meta().uid.clone(),
                    Err(_) => Some(object.meta().uid().to_string()),
                };
                Some(ObjectReference {
                    api_version: Some(kind.api_version.clone()),
                    kind: Some(kind.kind.clone()),
                    namespace: key.namespace().map(str::to_owned),
                    name: Some(key.name().to_owned()),
                    uid,
                    resource_version: Some(object.meta().resource_version().to_string()),
                    ..ObjectReference::default()
                })
            }),
        })
    })
}
