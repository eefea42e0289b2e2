//! Where a controller's keys come from: the changes of one kind, mapped to the objects that they concern, or a stream.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use windlass_cache::{
    Cache, Cacheable, Caches, Change, Index, IndexBy, Lister, Meta, ObjectKey, Query, Selection,
    Subscription, SyncError,
};
use windlass_workqueue::{Add, Priority, WorkQueue};

use crate::{
    children::Offspring,
    listers::Listers,
    predicate::{Predicate, undeniable},
    watch::{Part, Role, Tap, Watch},
};

/// How often a wait for a cache says what it waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A kind that a controller declared, before it runs.
pub(crate) type Declared = Box<dyn FnOnce(&Caches, &Selection, Option<Anywhere>) -> Source + Send>;

/// A test over the changes of every kind of a controller.
pub(crate) type Anywhere = Arc<dyn Fn(Option<&Meta>, &Meta) -> bool + Send + Sync>;

/// A kind whose watch has started, or a stream.
pub(crate) struct Source {
    /// The kind's name; `None` for a stream.
    pub(crate) kind: Option<String>,
    /// Puts keys into the queue until the source ends. `None` for a kind that is only read.
    pub(crate) pump: Option<Pump>,
    /// Waits until the kind can be read. `None` for what cannot be.
    pub(crate) ready: Option<Waiting>,
}

pub(crate) enum Pump {
    /// Of a cache: it ends only when the cache does.
    Endless(Pumping),
    /// Of a stream, which may end.
    Ending(Pumping),
}

type Waiting = Box<dyn FnOnce() -> Boxed<Result<Ready, SyncError>> + Send>;
pub(crate) type Pumping = Box<dyn FnOnce(WorkQueue<ObjectKey>) -> Boxed<()> + Send>;
pub(crate) type Ready = Box<dyn FnOnce(&mut Listers) + Send>;
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The kind that a controller is for, as owner references name it.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    group: String,
    kind: String,
    cluster_scoped: bool,
}

impl Owner {
    pub(crate) fn of<K: Cacheable>(watch: &Watch<K>) -> Self {
        Self {
            group: K::group(&watch.dynamic).into_owned(),
            kind: K::kind(&watch.dynamic).into_owned(),
            cluster_scoped: watch.part.cluster_scoped,
        }
    }

    /// The owner's key if it is of this kind; the version in the reference does not matter.
    fn key(&self, owner: &OwnerReference, namespace: Option<&str>) -> Option<ObjectKey> {
        let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        if owner.kind != self.kind || group != self.group {
            return None;
        }
        // A namespaced object may have an owner outside any namespace.
        Some(match namespace.filter(|_| !self.cluster_scoped) {
            Some(namespace) => ObjectKey::namespaced(namespace, owner.name.as_str()),
            None => ObjectKey::cluster(owner.name.as_str()),
        })
    }
}

/// What a watch asks for, once there are caches.
pub(crate) fn declare<K: Cacheable>(watch: Watch<K>, owner: &Owner) -> Declared
where
    K::DynamicType: Clone + Send + Sync,
{
    let owner = owner.clone();
    Box::new(move |caches, within, anywhere| {
        let cache = caches.get_dynamic::<K>(&watch.dynamic, &watch.part.selection(within));
        let Watch {
            dynamic,
            predicate,
            role,
            tap,
            ..
        } = watch;
        let by_owner = matches!(role, Role::Controlled).then(|| cache.index(IndexBy::owner()));
        let announce = move |lister: Lister<K>| -> Ready {
            Box::new(move |listers| {
                if let Some(by_owner) = by_owner {
                    listers.bear(Offspring::new(lister.clone(), by_owner, dynamic.clone()));
                }
                listers.insert(&dynamic, lister);
            })
        };
        if matches!(role, Role::Read) {
            return Source {
                kind: Some(cache.kind().kind.clone()),
                pump: None,
                ready: Some(Box::new(move || {
                    Box::pin(async move { Ok(announce(synced(&cache).await?)) })
                })),
            };
        }
        let concerns = move |change: &Change<K>| match &role {
            Role::Read => Vec::new(),
            Role::Itself => vec![change.key().clone()],
            Role::Controlled => owners(change, &owner, |owner| owner.controller == Some(true)),
            Role::Owned => owners(change, &owner, |_| true),
            Role::Mapped(map) => mapped(change, map),
        };
        let sieve = Sieve {
            predicate,
            anywhere,
            tap,
        };
        triggering(cache, announce, move |subscription, queue| {
            Box::pin(pump(subscription, sieve, concerns, queue))
        })
    })
}

/// What objects of a controller's kind have in common with those of another: a change of the other kind concerns the
/// objects that share a value with it. Only within a namespace, where both live in one.
pub(crate) fn join<K: Cacheable, Other: Cacheable>(
    own: K::DynamicType,
    part: Part,
    ours: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    watch: Watch<Other>,
    theirs: impl Fn(&Other) -> Vec<String> + Send + 'static,
) -> Declared
where
    K::DynamicType: Send + Sync,
    Other::DynamicType: Clone + Send + Sync,
{
    Box::new(move |caches, within, anywhere| {
        let own = caches.get_dynamic::<K>(&own, &part.selection(within));
        let index = own.index_by(ours);
        let cache = caches.get_dynamic::<Other>(&watch.dynamic, &watch.part.selection(within));
        let Watch {
            dynamic,
            predicate,
            tap,
            ..
        } = watch;
        let sieve = Sieve {
            predicate,
            anywhere,
            tap,
        };
        let announce = move |lister: Lister<Other>| -> Ready {
            Box::new(move |listers| listers.insert(&dynamic, lister))
        };
        triggering(cache, announce, move |subscription, queue| {
            Box::pin(async move {
                // An object that comes into its cache later is told of there.
                let Ok(own) = synced(&own).await else { return };
                let concerns = move |change: &Change<Other>| {
                    mapped(change, |other| related(&own, &index, other, &theirs(other)))
                };
                pump(subscription, sieve, concerns, queue).await;
            })
        })
    })
}

/// The objects that have one of these values, in the namespace of the other if both have one.
fn related<K: Cacheable>(
    own: &Lister<K>,
    index: &Index<K>,
    other: &impl Resource,
    values: &[String],
) -> Vec<ObjectKey> {
    let within = other.meta().namespace.as_deref().unwrap_or_default();
    let is_near = |key: &ObjectKey| within.is_empty() || key.namespace().is_none_or(|own| own == within);
    let found = values
        .iter()
        .flat_map(|value| own.list_stored(&Query::all().indexed(index, value)));
    found.map(|object| object.key().clone()).filter(is_near).collect()
}

/// The source whose changes a pump turns into keys.
fn triggering<K: Cacheable>(
    cache: Cache<K>,
    announce: impl FnOnce(Lister<K>) -> Ready + Send + 'static,
    pump: impl FnOnce(Subscription<K>, WorkQueue<ObjectKey>) -> Boxed<()> + Send + 'static,
) -> Source {
    let subscription = cache.subscribe();
    let mut handled = subscription.synced();
    Source {
        kind: Some(cache.kind().kind.clone()),
        pump: Some(Pump::Endless(Box::new(move |queue| pump(subscription, queue)))),
        ready: Some(Box::new(move || {
            Box::pin(async move {
                let lister = synced(&cache).await?;
                handled.wait().await;
                Ok(announce(lister))
            })
        })),
    }
}

/// Keys that come from outside the API. A stream that ends is no error.
pub(crate) fn stream(keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Declared {
    Box::new(move |_, _, _| Source {
        kind: None,
        pump: Some(Pump::Ending(Box::new(move |queue| {
            Box::pin(keys.for_each(move |key| {
                queue.add(key);
                std::future::ready(())
            }))
        }))),
        ready: None,
    })
}

/// Which changes get through, and who sees those.
struct Sieve<K: Cacheable> {
    predicate: Option<Predicate<K>>,
    anywhere: Option<Anywhere>,
    tap: Option<Tap<K>>,
}

impl<K: Cacheable> Sieve<K> {
    fn passes(&mut self, change: &Change<K>) -> bool {
        let old = change.old().map(windlass_cache::Stored::meta);
        let passes = self
            .predicate
            .as_ref()
            .is_none_or(|predicate| predicate.passes(change))
            && self
                .anywhere
                .as_ref()
                .is_none_or(|passes| undeniable(change) || passes(old, change.meta()));
        if passes && let Some(tap) = &mut self.tap {
            tap(change);
        }
        passes
    }
}

async fn pump<K: Cacheable>(
    mut subscription: Subscription<K>,
    mut sieve: Sieve<K>,
    concerns: impl Fn(&Change<K>) -> Vec<ObjectKey>,
    queue: WorkQueue<ObjectKey>,
) {
    while let Some(change) = subscription.next().await {
        if !sieve.passes(&change) {
            continue;
        }
        // What was there at the start, or only is told again, gives way to what changes in the meantime.
        let seen_before = matches!(change, Change::Applied { initial: true, .. }) || change.is_resync();
        let priority = if seen_before {
            Priority::LOW
        } else {
            Priority::NORMAL
        };
        let add = Add {
            priority,
            ..Add::default()
        };
        for key in concerns(&change) {
            queue.add_with(key, add);
        }
    }
}

/// Waits as long as it takes: a kind may be installed later. Says every now and then what is missing.
async fn synced<K: Cacheable>(cache: &Cache<K>) -> Result<Lister<K>, SyncError> {
    loop {
        match cache.synced(PATIENCE).await {
            Err(waiting @ SyncError::Deadline { .. }) => tracing::warn!("waiting to start: {waiting}"),
            ended => return ended,
        }
    }
}

/// Every state that the change is about: what was seen before, and what is there now or was last.
fn states<K: Cacheable>(change: &Change<K>) -> impl Iterator<Item = &windlass_cache::Stored<K>> {
    change.old().into_iter().chain([change.stored()])
}

fn mapped<K: Cacheable>(change: &Change<K>, map: impl Fn(&K) -> Vec<ObjectKey>) -> Vec<ObjectKey> {
    // What does not decode is reported by the cache.
    let objects = states(change).filter_map(|state| state.object().ok());
    objects.flat_map(|object| map(&object)).collect()
}

/// The owners of the object, now or before the change, that are of the controller's kind.
fn owners<K: Cacheable>(
    change: &Change<K>,
    kind: &Owner,
    matters: impl Fn(&OwnerReference) -> bool,
) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    for state in states(change) {
        // Most objects have no owner, and need not be decoded to know that.
        if state.meta().owners().is_empty() {
            continue;
        }
        let Ok(object) = state.object() else { continue };
        let namespace = object.meta().namespace.as_deref();
        for owner in object.meta().owner_references.iter().flatten() {
            let key = kind.key(owner, namespace).filter(|_| matters(owner));
            keys.extend(key.filter(|key| !keys.contains(key)));
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, core::v1::Node};
    use kube::Resource;

    use windlass_cache::Stored;

    use super::*;
    use crate::model::{CONFIG_MAPS, Server, config_map};

    fn owner<K: Cacheable + Resource<DynamicType: Default>>() -> Owner {
        Owner::of(&Watch::<K>::new())
    }

    /// 132: a complete cache is not enough; its initial objects must have become keys.
    #[tokio::test(start_paused = true)]
    async fn a_source_is_ready_when_its_initial_objects_are_queued() {
        let server = Server::with(&[CONFIG_MAPS]);
        server.put(CONFIG_MAPS, config_map("a", ""));
        let caches = Caches::new(server.client());
        let declared = declare(Watch::<ConfigMap>::new().itself(), &owner::<ConfigMap>());
        let Source { pump, ready, .. } = declared(&caches, &Selection::all(), None);
        let (queue, mut ready) = (WorkQueue::new(), ready.expect("it can be read")());
        let early = tokio::time::timeout(Duration::from_mins(1), &mut ready).await;
        assert!(early.is_err(), "ready before anything was queued");
        let Some(Pump::Endless(pump)) = pump else {
            panic!("it triggers")
        };
        let pump = tokio::spawn(pump(queue.clone()));
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

    fn new(new: Stored<ConfigMap>) -> Change<ConfigMap> {
        Change::Applied {
            old: None,
            new,
            initial: false,
        }
    }

    fn controllers(change: &Change<ConfigMap>, kind: &Owner) -> Vec<String> {
        let keys = owners(change, kind, |owner| owner.controller == Some(true));
        keys.iter().map(ToString::to_string).collect()
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
            let change = new(owned_by(api_version, kind, "d", controller));
            let found = controllers(&change, &owner::<Deployment>());
            assert_eq!(found, expected, "{api_version} {kind} {controller}");
        }
    }

    /// 144.
    #[test]
    fn a_child_may_lead_to_owners_that_do_not_control_it() {
        let change = new(owned_by("apps/v1", "Deployment", "d", false));
        assert_eq!(owners(&change, &owner::<Deployment>(), |_| true).len(), 1);
    }

    #[test]
    fn a_child_that_changes_hands_leads_to_both_owners() {
        let (old, new) = (
            owned_by("apps/v1", "Deployment", "a", true),
            owned_by("apps/v1", "Deployment", "b", true),
        );
        let change = |new| Change::Applied {
            old: Some(old.clone()),
            new,
            initial: false,
        };
        assert_eq!(controllers(&change(new), &owner::<Deployment>()), ["n/a", "n/b"]);
        assert_eq!(controllers(&change(old.clone()), &owner::<Deployment>()), ["n/a"]);
    }

    #[test]
    fn an_owner_outside_namespaces_has_a_key_without_one() {
        let change = new(owned_by("v1", "Node", "n1", true));
        assert_eq!(controllers(&change, &owner::<Node>()), ["n1"]);
    }
}
