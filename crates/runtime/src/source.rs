//! Sources of a controller's keys: the changes of a watched kind, mapped to keys, or a stream.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use windlass_cache::{
    Cache, CacheSet, Cacheable, CachedObject, Change, ChangeQueue, Index, Indexer, Lister, Meta, ObjectKey,
    Query, Subscription, SyncError, WatchScope,
};
use windlass_workqueue::Priority;

use crate::{
    children::ChildLister,
    key::ReconcileKey,
    listers::Listers,
    predicate::{Predicate, always_triggers},
    start_report::{CustomKinds, RequiredKind},
    trigger::{KeyQueue, Trigger, TriggerCause, enqueue},
    watch::{KeyMapping, TapFn, Watch, WatchSelector},
};

/// How long one wait for a cache takes; there is another one after it.
const SYNC_INTERVAL: Duration = Duration::from_mins(1);

/// Starts a declared source when the controller runs.
pub(crate) type SourceBuilder<Key> =
    Box<dyn FnOnce(&CacheSet, &WatchScope, Option<EventFilter>) -> Source<Key> + Send>;

/// Filters the changes of all watched kinds of a controller.
pub(crate) type EventFilter = Arc<dyn Fn(Option<&Meta>, &Meta) -> bool + Send + Sync>;

/// A started watch of a kind, or a stream.
pub(crate) struct Source<Key> {
    /// What the controller waits for before it starts; `None` for a stream.
    pub(crate) waits_for: Option<WaitsFor>,
    /// Adds keys to the queue until the source ends. `None` for a kind that is only read.
    pub(crate) pump: Option<Pump<Key>>,
    /// Waits until the kind can be read. `None` for a stream.
    pub(crate) ready: Option<WaitReadyFn>,
}

/// What a controller waits for before it starts.
pub(crate) enum WaitsFor {
    Kind(RequiredKind),
    CustomSource(CustomKinds),
}

impl WaitsFor {
    /// The name for status and logs.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Kind(required) => &required.kind,
            Self::CustomSource(_) => "a custom source",
        }
    }
}

pub(crate) enum Pump<Key> {
    /// Follows a cache; its end is an error.
    Endless(PumpFn<Key>),
    /// Follows a stream, which may end.
    Finite(PumpFn<Key>),
}

type WaitReadyFn = Box<dyn FnOnce() -> BoxFuture<Result<RegisterListerFn, SyncError>> + Send>;
pub(crate) type PumpFn<Key> = Box<dyn FnOnce(KeyQueue<Key>) -> BoxFuture<()> + Send>;
pub(crate) type RegisterListerFn = Box<dyn FnOnce(&mut Listers) + Send>;
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The controller's own kind, to match owner references.
#[derive(Clone, Debug)]
pub(crate) struct OwnerKind {
    group: String,
    kind: String,
    cluster_scoped: bool,
}

impl OwnerKind {
    pub(crate) fn from_watch<K: Cacheable>(watch: &Watch<K>) -> Self {
        Self {
            group: K::group(&watch.dynamic).into_owned(),
            kind: K::kind(&watch.dynamic).into_owned(),
            cluster_scoped: watch.selector.cluster_scoped,
        }
    }

    /// Returns the owner's key if it is of this kind. The reference may name any version.
    fn key(&self, owner: &OwnerReference, namespace: Option<&str>) -> Option<ObjectKey> {
        let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        if owner.kind != self.kind || group != self.group {
            return None;
        }
        // A namespaced object may have a cluster-scoped owner.
        Some(match namespace.filter(|_| !self.cluster_scoped) {
            Some(namespace) => ObjectKey::namespaced(namespace, owner.name.as_str()),
            None => ObjectKey::cluster_scoped(owner.name.as_str()),
        })
    }
}

/// The source of a watch. `owner` is the controller's own kind, if it has one.
pub(crate) fn from_watch<K: Cacheable, Key: ReconcileKey>(
    watch: Watch<K, Key>,
    owner: Option<&OwnerKind>,
) -> SourceBuilder<Key>
where
    K::DynamicType: Clone + Send + Sync,
{
    if matches!(watch.mapping, KeyMapping::ReadOnly) {
        return read_only(watch);
    }
    let owner = owner.cloned();
    Box::new(move |caches, within, event_filter| {
        let scope = watch.selector.scope(within);
        let cache = caches.get_dynamic::<K>(&watch.dynamic, &scope);
        let Watch {
            dynamic,
            predicate,
            mapping,
            tap,
            change_queue,
            ..
        } = watch;
        let is_owned = matches!(mapping, KeyMapping::ControllingOwner(_));
        let by_owner = is_owned.then(|| cache.index(Indexer::owner()));
        let required = required_kind(&cache, &dynamic, &scope, is_owned);
        let register = move |lister: Lister<K>| -> RegisterListerFn {
            Box::new(move |listers| {
                if let Some(by_owner) = by_owner {
                    listers.add_owned_kind(ChildLister::new(lister.clone(), by_owner, dynamic.clone()));
                }
                listers.insert(&dynamic, lister);
            })
        };
        let keys_of = move |change: &Change<K>| match &mapping {
            KeyMapping::ReadOnly => Vec::new(),
            KeyMapping::Mapped(map) => map(change),
            KeyMapping::ControllingOwner(map) => {
                owner.as_ref().map_or_else(Vec::new, |owner| map(change, owner))
            }
        };
        let filter = ChangeFilter {
            predicate,
            event_filter,
            tap,
        };
        let kind = Arc::from(cache.kind().kind.as_str());
        with_pump(
            cache,
            change_queue.as_ref(),
            required,
            register,
            move |subscription, queue| Box::pin(pump(kind, subscription, filter, keys_of, queue)),
        )
    })
}

/// The source of a kind that is only read: it adds no keys.
pub(crate) fn read_only<K: Cacheable, Any: 'static, Key>(watch: Watch<K, Any>) -> SourceBuilder<Key>
where
    K::DynamicType: Send + Sync,
{
    Box::new(move |caches, within, _| {
        let scope = watch.selector.scope(within);
        let cache = caches.get_dynamic::<K>(&watch.dynamic, &scope);
        let dynamic = watch.dynamic;
        let required = required_kind(&cache, &dynamic, &scope, false);
        Source {
            waits_for: Some(WaitsFor::Kind(required)),
            pump: None,
            ready: Some(Box::new(move || {
                Box::pin(async move {
                    let lister = synced(&cache).await?;
                    let register: RegisterListerFn =
                        Box::new(move |listers| listers.insert(&dynamic, lister));
                    Ok(register)
                })
            })),
        }
    })
}

/// A controller's own kind, and which objects of it.
type OwnKind<K> = (<K as Resource>::DynamicType, WatchSelector);

/// The source of an indexed watch: a change of the other kind triggers the controller's objects that share an index value
/// with it, in the same namespace if both kinds are namespaced.
pub(crate) fn from_index<K: Cacheable, Other: Cacheable>(
    own: OwnKind<K>,
    ours: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    watch: Watch<Other>,
    theirs: impl Fn(&Other) -> Vec<String> + Send + 'static,
) -> SourceBuilder<ObjectKey>
where
    K::DynamicType: Send + Sync,
    Other::DynamicType: Clone + Send + Sync,
{
    from_lookup(own, watch, |own: &Cache<K>| {
        let index = own.index_by(ours);
        move |own: &Lister<K>, change: &Change<Other>| {
            mapped(change, |other| {
                keys_with_values(own, &index, other, &theirs(other))
            })
        }
    })
}

/// The source of a watch whose changes trigger every object of the controller's own kind.
pub(crate) fn from_all<K: Cacheable, Other: Cacheable>(
    own: OwnKind<K>,
    watch: Watch<Other>,
) -> SourceBuilder<ObjectKey>
where
    K::DynamicType: Send + Sync,
    Other::DynamicType: Clone + Send + Sync,
{
    from_lookup(own, watch, |_: &Cache<K>| {
        |own: &Lister<K>, _: &Change<Other>| keys(own.list_cached(&Query::all())).collect()
    })
}

/// The source of a watch whose changes are mapped to keys with the objects of the controller's own kind. `prepare` gets
/// their cache before it has synced, and returns the mapping.
fn from_lookup<K: Cacheable, Other: Cacheable, Lookup>(
    (kind, selector): OwnKind<K>,
    watch: Watch<Other>,
    prepare: impl FnOnce(&Cache<K>) -> Lookup + Send + 'static,
) -> SourceBuilder<ObjectKey>
where
    K::DynamicType: Send + Sync,
    Other::DynamicType: Clone + Send + Sync,
    Lookup: Fn(&Lister<K>, &Change<Other>) -> Vec<ObjectKey> + Send + 'static,
{
    Box::new(move |caches, within, event_filter| {
        let own = caches.get_dynamic::<K>(&kind, &selector.scope(within));
        let lookup = prepare(&own);
        let scope = watch.selector.scope(within);
        let cache = caches.get_dynamic::<Other>(&watch.dynamic, &scope);
        let Watch {
            dynamic,
            predicate,
            tap,
            change_queue,
            ..
        } = watch;
        let filter = ChangeFilter {
            predicate,
            event_filter,
            tap,
        };
        let kind = Arc::from(cache.kind().kind.as_str());
        let required = required_kind(&cache, &dynamic, &scope, false);
        let register = move |lister: Lister<Other>| -> RegisterListerFn {
            Box::new(move |listers| listers.insert(&dynamic, lister))
        };
        with_pump(
            cache,
            change_queue.as_ref(),
            required,
            register,
            move |subscription, queue| {
                Box::pin(async move {
                    // Objects that are added to the own cache later are queued by its own pump.
                    let Ok(own) = synced(&own).await else { return };
                    let keys_of = move |change: &Change<Other>| lookup(&own, change);
                    pump(kind, subscription, filter, keys_of, queue).await;
                })
            },
        )
    })
}

/// Keys of the objects that have one of these index values, in the namespace of the other object if both have one.
fn keys_with_values<K: Cacheable>(
    own: &Lister<K>,
    index: &Index<K>,
    other: &impl Resource,
    values: &[String],
) -> Vec<ObjectKey> {
    let within = other.meta().namespace.as_deref().unwrap_or_default();
    let is_in_scope = |key: &ObjectKey| within.is_empty() || key.namespace().is_none_or(|own| own == within);
    let found = values
        .iter()
        .flat_map(|value| own.list_cached(&Query::all().indexed(index, value)));
    keys(found).filter(is_in_scope).collect()
}

fn keys<K: Cacheable>(objects: impl IntoIterator<Item = CachedObject<K>>) -> impl Iterator<Item = ObjectKey> {
    objects.into_iter().map(|object| object.key().clone())
}

/// A source whose changes a pump maps to keys.
fn with_pump<K: Cacheable, Key: ReconcileKey>(
    cache: Cache<K>,
    change_queue: Option<&ChangeQueue>,
    required: RequiredKind,
    register: impl FnOnce(Lister<K>) -> RegisterListerFn + Send + 'static,
    pump: impl FnOnce(Subscription<K>, KeyQueue<Key>) -> BoxFuture<()> + Send + 'static,
) -> Source<Key> {
    let mut subscription = cache.subscribe();
    if let Some(queue) = change_queue {
        subscription = subscription.queue(queue);
    }
    let mut handled = subscription.synced();
    Source {
        waits_for: Some(WaitsFor::Kind(required)),
        pump: Some(Pump::Endless(Box::new(move |queue| pump(subscription, queue)))),
        ready: Some(Box::new(move || {
            Box::pin(async move {
                let lister = synced(&cache).await?;
                handled.wait().await;
                Ok(register(lister))
            })
        })),
    }
}

/// The source of a stream of keys. The stream may end.
pub(crate) fn from_stream<Key: ReconcileKey>(
    keys: impl Stream<Item = Key> + Send + 'static,
) -> SourceBuilder<Key> {
    Box::new(move |_, _, _| Source {
        waits_for: None,
        pump: Some(Pump::Finite(Box::new(move |queue| {
            Box::pin(keys.for_each(move |key| {
                let trigger = Trigger::new(TriggerCause::Source);
                enqueue(&queue, key, Priority::NORMAL, Some(trigger));
                std::future::ready(())
            }))
        }))),
        ready: None,
    })
}

/// Filters the changes of one kind, and passes the remaining ones to the tap.
struct ChangeFilter<K: Cacheable> {
    predicate: Option<Predicate<K>>,
    event_filter: Option<EventFilter>,
    tap: Option<TapFn<K>>,
}

impl<K: Cacheable> ChangeFilter<K> {
    fn passes(&mut self, change: &Change<K>) -> bool {
        let old = change.old().map(CachedObject::meta);
        let passes = self
            .predicate
            .as_ref()
            .is_none_or(|predicate| predicate.passes(change))
            && self
                .event_filter
                .as_ref()
                .is_none_or(|passes| always_triggers(change) || passes(old, change.meta()));
        if passes && let Some(tap) = &mut self.tap {
            tap(change);
        }
        passes
    }
}

async fn pump<K: Cacheable, Key: ReconcileKey>(
    kind: Arc<str>,
    mut subscription: Subscription<K>,
    mut filter: ChangeFilter<K>,
    keys_of: impl Fn(&Change<K>) -> Vec<Key>,
    queue: KeyQueue<Key>,
) {
    while let Some(change) = subscription.next().await {
        if !filter.passes(&change) {
            continue;
        }
        // Initial objects and resyncs yield to real changes.
        let is_initial_or_resync =
            matches!(change, Change::Applied { initial: true, .. }) || change.is_resync();
        let priority = if is_initial_or_resync {
            Priority::LOW
        } else {
            Priority::NORMAL
        };
        let keys = keys_of(&change);
        if keys.is_empty() {
            continue;
        }
        let trigger = Trigger::of_change(&kind, &change);
        for key in keys {
            enqueue(&queue, key, priority, trigger.clone());
        }
    }
}

/// Waits without a limit, because a CRD may be installed later. The manager's start report logs what is missing.
async fn synced<K: Cacheable>(cache: &Cache<K>) -> Result<Lister<K>, SyncError> {
    loop {
        match cache.synced(SYNC_INTERVAL).await {
            Err(SyncError::Deadline { .. }) => {}
            ended => return ended,
        }
    }
}

/// The kind of a cache, for the report of what a controller waits for.
fn required_kind<K: Cacheable>(
    cache: &Cache<K>,
    dynamic: &K::DynamicType,
    scope: &WatchScope,
    is_owned: bool,
) -> RequiredKind {
    cache.quiet_until_synced();
    let reported = cache.clone();
    RequiredKind {
        kind: cache.kind().kind.clone(),
        group: K::group(dynamic).into_owned(),
        version: K::version(dynamic).into_owned(),
        plural: K::plural(dynamic).into_owned(),
        namespaces: scope.selected_namespaces().cloned(),
        is_partial: scope.field_selector().is_some(),
        is_owned,
        failures: Box::new(move || reported.sync_failures()),
    }
}

/// The old state, if any, and the current or last known state.
fn states<K: Cacheable>(change: &Change<K>) -> impl Iterator<Item = &CachedObject<K>> {
    change.old().into_iter().chain([change.latest()])
}

/// The keys of an object's old and new state.
pub(crate) fn mapped<K: Cacheable, Key>(change: &Change<K>, map: impl Fn(&K) -> Vec<Key>) -> Vec<Key> {
    // The cache reports objects that do not decode.
    let objects = states(change).filter_map(|state| state.object().ok());
    objects.flat_map(|object| map(&object)).collect()
}

/// Keys of the object's controlling owners, if they are of the controller's kind, before and after the change.
pub(crate) fn controlling_owners<K: Cacheable>(change: &Change<K>, kind: &OwnerKind) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    for state in states(change) {
        // Most objects have no owner; this check does not decode them.
        if state.meta().owners().is_empty() {
            continue;
        }
        let Ok(object) = state.object() else { continue };
        let namespace = object.meta().namespace.as_deref();
        for owner in object.meta().owner_references.iter().flatten() {
            let key = kind
                .key(owner, namespace)
                .filter(|_| owner.controller == Some(true));
            keys.extend(key.filter(|key| !keys.contains(key)));
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, core::v1::Node};
    use kube::Resource;
    use windlass_workqueue::WorkQueue;

    use super::*;
    use crate::model::{CONFIG_MAPS, Server, config_map};

    fn owner<K: Cacheable + Resource<DynamicType: Default>>() -> OwnerKind {
        OwnerKind::from_watch(&Watch::<K>::new())
    }

    /// A synced cache is not enough: its initial objects must have been queued.
    #[tokio::test(start_paused = true)]
    async fn source_is_ready_after_its_initial_objects_are_queued() {
        let server = Server::with(&[CONFIG_MAPS]);
        server.put(CONFIG_MAPS, config_map("a", ""));
        let caches = CacheSet::new(server.client());
        let declared = from_watch(Watch::<ConfigMap>::new().map_key(ObjectKey::clone), None);
        let Source { pump, ready, .. } = declared(&caches, &WatchScope::all(), None);
        let queue: KeyQueue<ObjectKey> = WorkQueue::builder().build_tagged();
        let mut ready = ready.expect("a watched kind can be read")();
        let early = tokio::time::timeout(Duration::from_mins(1), &mut ready).await;
        assert!(early.is_err(), "ready before anything was queued");
        let Some(Pump::Endless(pump)) = pump else {
            panic!("a watch of the own kind has an endless pump")
        };
        let pump = tokio::spawn(pump(queue.clone()));
        assert!(ready.await.is_ok());
        assert_eq!(queue.len(), 1);
        pump.abort();
    }

    fn owned_by(api_version: &str, kind: &str, name: &str, controller: bool) -> CachedObject<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("n".into());
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            controller: Some(controller),
            ..OwnerReference::default()
        }]);
        CachedObject::detached(Arc::new(object))
    }

    fn new(new: CachedObject<ConfigMap>) -> Change<ConfigMap> {
        Change::Applied {
            old: None,
            new,
            initial: false,
        }
    }

    fn controllers(change: &Change<ConfigMap>, kind: &OwnerKind) -> Vec<String> {
        let keys = controlling_owners(change, kind);
        keys.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn child_maps_to_its_controlling_owner() {
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

    #[test]
    fn child_with_a_new_owner_maps_to_both_owners() {
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
    fn cluster_scoped_owner_has_a_key_without_a_namespace() {
        let change = new(owned_by("v1", "Node", "n1", true));
        assert_eq!(controllers(&change, &owner::<Node>()), ["n1"]);
    }
}
