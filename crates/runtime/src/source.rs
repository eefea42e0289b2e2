//! Where a controller's keys come from: the changes of one kind, mapped to the objects that they concern.

use std::{future::Future, pin::Pin, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use windlass_cache::{
    Cache, Cacheable, Caches, Change, ObjectKey, Selection, Subscription, SyncError, is_cluster_scoped,
};
use windlass_workqueue::{Add, Priority, WorkQueue};

use crate::listers::Listers;

/// How often a wait for a cache says what it waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A kind that a controller declared, before it runs.
pub(crate) type Declared = Box<dyn FnOnce(&Caches, &Selection) -> Source + Send>;

/// A kind whose watch has started.
pub(crate) struct Source {
    /// Puts keys into the queue until the cache ends. `None` for a kind that is only read.
    pub(crate) pump: Option<Pump>,
    /// Waits until the kind can be read.
    pub(crate) ready: Box<dyn FnOnce() -> Boxed<Result<Ready, SyncError>> + Send>,
}

pub(crate) type Pump = Box<dyn FnOnce(WorkQueue<ObjectKey>) -> Boxed<()> + Send>;
pub(crate) type Ready = Box<dyn FnOnce(&mut Listers) + Send>;
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A kind that is read, and triggers nothing.
pub(crate) fn reads<K: Cacheable>() -> Declared
where
    K::DynamicType: Default,
{
    Box::new(|caches, selection| {
        let cache = caches.get::<K>(selection);
        Source {
            pump: None,
            ready: Box::new(move || Box::pin(ready(cache))),
        }
    })
}

/// A kind whose changes trigger the keys that `map` gives.
pub(crate) fn triggers<K: Cacheable>(map: impl Fn(&Change<K>) -> Vec<ObjectKey> + Send + 'static) -> Declared
where
    K::DynamicType: Default,
{
    Box::new(|caches, selection| {
        let cache = caches.get::<K>(selection);
        let subscription = cache.subscribe();
        let mut handled = subscription.synced();
        Source {
            pump: Some(Box::new(move |queue| Box::pin(pump(subscription, map, queue)))),
            ready: Box::new(move || {
                Box::pin(async move {
                    let ready = ready(cache).await?;
                    handled.wait().await;
                    Ok(ready)
                })
            }),
        }
    })
}

async fn pump<K: Cacheable>(
    mut subscription: Subscription<K>,
    map: impl Fn(&Change<K>) -> Vec<ObjectKey>,
    queue: WorkQueue<ObjectKey>,
) {
    while let Some(change) = subscription.next().await {
        let priority = match change {
            // Objects that were there at the start give way to those that change while these are worked through.
            Change::Applied { initial: true, .. } => Priority::LOW,
            _ => Priority::NORMAL,
        };
        for key in map(&change) {
            queue.add_with(
                key,
                Add {
                    priority,
                    ..Add::default()
                },
            );
        }
    }
}

/// Waits as long as it takes: a kind may be installed later. Says every now and then what is missing.
async fn ready<K: Cacheable>(cache: Cache<K>) -> Result<Ready, SyncError> {
    loop {
        match cache.synced(PATIENCE).await {
            Ok(lister) => return Ok(Box::new(move |listers: &mut Listers| listers.insert(lister))),
            Err(waiting @ SyncError::Deadline { .. }) => tracing::warn!("waiting to start: {waiting}"),
            Err(ended) => return Err(ended),
        }
    }
}

/// The object itself.
pub(crate) fn itself<K>(change: &Change<K>) -> Vec<ObjectKey> {
    vec![change.key().clone()]
}

/// The `Owner` that controls the object, now or before the change.
pub(crate) fn controller_of<Owner, Child>(change: &Change<Child>) -> Vec<ObjectKey>
where
    Owner: Resource<DynamicType: Default, Scope: 'static>,
    Child: Cacheable,
{
    let mut owners = Vec::new();
    for stored in change.old().into_iter().chain([change.stored()]) {
        // Most objects have no owner, and need not be decoded to know that. What does not decode is reported.
        if stored.meta().owners().is_empty() {
            continue;
        }
        let Ok(object) = stored.object() else { continue };
        let owner = object
            .meta()
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true));
        let key = owner.and_then(|owner| owner_key::<Owner>(owner, object.meta().namespace.as_deref()));
        owners.extend(key.filter(|key| !owners.contains(key)));
    }
    owners
}

/// The owner's key if it is an `Owner`; the version in the reference does not matter.
fn owner_key<Owner>(owner: &OwnerReference, namespace: Option<&str>) -> Option<ObjectKey>
where
    Owner: Resource<DynamicType: Default, Scope: 'static>,
{
    let dynamic = Owner::DynamicType::default();
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    if owner.kind != Owner::kind(&dynamic) || group != Owner::group(&dynamic) {
        return None;
    }
    // A namespaced object may have an owner outside any namespace.
    let cluster_scoped = is_cluster_scoped::<Owner>();
    Some(match namespace.filter(|_| !cluster_scoped) {
        Some(namespace) => ObjectKey::namespaced(namespace, owner.name.as_str()),
        None => ObjectKey::cluster(owner.name.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, core::v1::Node};

    use windlass_cache::Stored;

    use super::*;
    use crate::model::{CONFIG_MAPS, Server, config_map};

    /// 132: a complete cache is not enough; its initial objects must have become keys.
    #[tokio::test(start_paused = true)]
    async fn a_source_is_ready_when_its_initial_objects_are_queued() {
        let server = Server::with(&[CONFIG_MAPS]);
        server.put(CONFIG_MAPS, config_map("a", ""));
        let caches = Caches::new(server.client());
        let Source { pump, ready } = triggers::<ConfigMap>(itself)(&caches, &Selection::all());
        let (queue, mut ready) = (WorkQueue::new(), ready());
        let early = tokio::time::timeout(Duration::from_mins(1), &mut ready).await;
        assert!(early.is_err(), "ready before anything was queued");
        let pump = tokio::spawn(pump.expect("it triggers")(queue.clone()));
        assert!(ready.await.is_ok());
        assert_eq!(queue.len(), 1);
        pump.abort();
    }

    fn owned_by(api_version: &str, kind: &str, name: &str, controller: bool) -> Stored<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("n".into());
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            controller: Some(controller),
            ..OwnerReference::default()
        }]);
        Stored::of(Arc::new(object))
    }

    /// go-anchors 144, 147.
    #[test]
    fn a_child_leads_to_the_owner_that_controls_it() {
        let cases = [
            ("apps/v1", "Deployment", true, vec!["n/d"]),
            ("apps/v1beta9", "Deployment", true, vec!["n/d"]),
            ("apps/v1", "Deployment", false, vec![]),
            ("apps/v1", "ReplicaSet", true, vec![]),
            ("example.com/v1", "Deployment", true, vec![]),
            ("v1", "Deployment", true, vec![]),
            ("", "", true, vec![]),
        ];
        for (api_version, kind, controller, expected) in cases {
            let new = owned_by(api_version, kind, "d", controller);
            let change = Change::Applied {
                old: None,
                new,
                initial: false,
            };
            let keys: Vec<_> = controller_of::<Deployment, _>(&change)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(keys, expected, "{api_version} {kind} {controller}");
        }
    }

    #[test]
    fn a_child_that_changes_hands_leads_to_both_owners() {
        let (old, new) = (
            owned_by("apps/v1", "Deployment", "a", true),
            owned_by("apps/v1", "Deployment", "b", true),
        );
        let change = Change::Applied {
            old: Some(old.clone()),
            new,
            initial: false,
        };
        let names = |change| {
            controller_of::<Deployment, _>(&change)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(change), ["n/a", "n/b"]);
        let same = Change::Applied {
            old: Some(old.clone()),
            new: old,
            initial: false,
        };
        assert_eq!(names(same), ["n/a"]);
    }

    #[test]
    fn an_owner_outside_namespaces_has_a_key_without_one() {
        let change = Change::Applied {
            old: None,
            new: owned_by("v1", "Node", "n1", true),
            initial: false,
        };
        assert_eq!(controller_of::<Node, _>(&change), [ObjectKey::cluster("n1")]);
    }
}
