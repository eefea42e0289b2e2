//! Watches of a controller: which objects of a kind, which changes trigger, and which keys to reconcile.

use kube::Resource;
use windlass_cache::{Cacheable, Change, ChangeQueue, ObjectKey, WatchScope, is_cluster_scoped};

use crate::{
    key::ReconcileKey,
    predicate::Predicate,
    source::{self, OwnerKind},
};

/// A kind that a controller watches: which objects of it, which changes trigger, and which keys these reconcile.
///
/// [`Controller::owns`](crate::Controller::owns), [`watches`](crate::Controller::watches) and
/// [`reads`](crate::Controller::reads) are shortcuts. A `Watch` has all options:
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Pod}};
/// use kube::core::DynamicObject;
/// use windlass_runtime::{Controller, ObjectKey, Predicate, Watch};
///
/// let controller = Controller::<Deployment>::new("web")
///     .watch(Watch::<ConfigMap>::new().owned().filter(Predicate::labels_changed()))
///     .watch(Watch::<Pod>::new().labels("app").fields("status.phase=Failed").mapped(|pod| {
///         pod.metadata.namespace.iter().map(|ns| ObjectKey::namespaced(ns.as_str(), "web")).collect()
///     }));
/// ```
///
/// A kind known only at run time is a `DynamicObject` with its
/// [`ApiResource`](kube::core::ApiResource): [`Watch::dynamic`].
///
/// `Key` is the type of the keys that changes reconcile: [`ObjectKey`], or what the function of [`mapped`](Self::mapped) or
/// [`map_key`](Self::map_key) returns. It must be the type of the controller's keys.
#[must_use = "a watch does nothing until a controller has it"]
pub struct Watch<K: Cacheable, Key = ObjectKey> {
    pub(crate) dynamic: K::DynamicType,
    pub(crate) predicate: Option<Predicate<K>>,
    pub(crate) mapping: KeyMapping<K, Key>,
    pub(crate) tap: Option<TapFn<K>>,
    pub(crate) change_queue: Option<ChangeQueue>,
    pub(crate) selector: WatchSelector,
}

/// Selects objects of a kind, within the manager's scope unless it names namespaces.
#[derive(Clone, Default)]
pub(crate) struct WatchSelector {
    pub(crate) cluster_scoped: bool,
    namespaces: Option<Vec<String>>,
    labels: Option<String>,
    fields: Option<String>,
    metadata_only: bool,
}

/// Which keys a change triggers.
pub(crate) enum KeyMapping<K, Key> {
    /// None: the kind is only read.
    ReadOnly,
    /// Those that a function returns.
    Mapped(MapFn<K, Key>),
    /// Those of controlling owners of the controller's kind. The function needs that kind, which only the controller knows.
    ControllingOwner(OwnersFn<K, Key>),
}

type MapFn<K, Key> = Box<dyn Fn(&Change<K>) -> Vec<Key> + Send>;
type OwnersFn<K, Key> = fn(&Change<K>, &OwnerKind) -> Vec<Key>;
pub(crate) type TapFn<K> = Box<dyn FnMut(&Change<K>) + Send>;

impl<K: Cacheable + Resource<DynamicType: Default>> Watch<K> {
    /// All objects of `K`, read only.
    pub fn new() -> Self {
        Self::dynamic(K::DynamicType::default())
    }
}

impl<K: Cacheable + Resource<DynamicType: Default>> Default for Watch<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Cacheable> Watch<K> {
    /// All objects of a kind known only at run time, read only.
    pub fn dynamic(kind: K::DynamicType) -> Self {
        Self {
            dynamic: kind,
            predicate: None,
            mapping: KeyMapping::ReadOnly,
            tap: None,
            change_queue: None,
            selector: WatchSelector {
                cluster_scoped: is_cluster_scoped::<K>(),
                ..WatchSelector::default()
            },
        }
    }

    /// Changes reconcile the owner whose owner reference has `controller: true`.
    pub fn owned(mut self) -> Self {
        self.mapping = KeyMapping::ControllingOwner(source::controlling_owners);
        self
    }
}

impl<K: Cacheable, Key> Watch<K, Key> {
    /// Changes reconcile the keys that `map` returns. `map` is called with the old and the new state, so objects that are no
    /// longer referenced are reconciled too.
    pub fn mapped<New: ReconcileKey>(self, map: impl Fn(&K) -> Vec<New> + Send + 'static) -> Watch<K, New> {
        self.map_changes(move |change| source::mapped(change, &map))
    }

    /// Changes reconcile the key that `map` makes of the changed object's own, which need not be decoded for it. For
    /// [keyed](crate::Keyed) controllers:
    ///
    /// ```
    /// use std::fmt;
    ///
    /// use k8s_openapi::api::core::v1::{Pod, Secret};
    /// use windlass_runtime::{Controller, ObjectKey, Watch};
    ///
    /// #[derive(Clone, PartialEq, Eq, Hash)]
    /// enum Key {
    ///     Pod(ObjectKey),
    ///     Secret(ObjectKey),
    /// }
    ///
    /// impl fmt::Display for Key {
    ///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    ///         match self {
    ///             Self::Pod(key) => write!(f, "pod {key}"),
    ///             Self::Secret(key) => write!(f, "secret {key}"),
    ///         }
    ///     }
    /// }
    ///
    /// let controller = Controller::keyed("inventory")
    ///     .watch(Watch::<Pod>::new().map_key(|key| Key::Pod(key.clone())))
    ///     .watch(Watch::<Secret>::new().map_key(|key| Key::Secret(key.clone())));
    /// ```
    pub fn map_key<New: ReconcileKey>(
        self,
        map: impl Fn(&ObjectKey) -> New + Send + 'static,
    ) -> Watch<K, New> {
        self.map_changes(move |change| vec![map(change.key())])
    }

    fn map_changes<New>(self, map: impl Fn(&Change<K>) -> Vec<New> + Send + 'static) -> Watch<K, New> {
        let Self {
            dynamic,
            predicate,
            mapping: _,
            tap,
            change_queue,
            selector,
        } = self;
        Watch {
            dynamic,
            predicate,
            mapping: KeyMapping::Mapped(Box::new(map)),
            tap,
            change_queue,
            selector,
        }
    }

    /// Only changes that pass trigger; see [`Predicate`] for those that always do. When called more than once, all
    /// predicates must pass. Default: all changes trigger.
    pub fn filter(mut self, predicate: Predicate<K>) -> Self {
        self.predicate = Some(match self.predicate {
            Some(before) => before.and(predicate),
            None => predicate,
        });
        self
    }

    /// Calls `tap` with every change that passes the filters, before its keys are queued: to report changes rather than
    /// react to them. It receives the old and the new state, and whether a deletion was observed or inferred; a reconcile
    /// sees only the latest state.
    ///
    /// Must not block. Not called for a kind that is only read. Default: none.
    pub fn tap(mut self, tap: impl FnMut(&Change<K>) + Send + 'static) -> Self {
        self.tap = Some(Box::new(tap));
        self
    }

    /// Lets changes wait for the [tap](Self::tap) in this queue, to report every change instead of the newest one of each
    /// object, or to count those that were coalesced. Default: changes of one object are coalesced while they wait.
    pub fn change_queue(mut self, queue: ChangeQueue) -> Self {
        self.change_queue = Some(queue);
        self
    }

    /// Only objects in these namespaces, instead of the [manager's](crate::Manager::namespaces). Ignored for cluster-scoped
    /// kinds. Default: the manager's namespaces.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.selector.namespaces = Some(namespaces.into_iter().map(Into::into).collect());
        self
    }

    /// Only objects that match this label selector (`app=web,tier!=cache`). The server filters, so objects that do not match
    /// cost nothing and look as if they did not exist. Default: all.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.selector.labels = Some(selector.into());
        self
    }

    /// Only objects that match this field selector (`spec.nodeName=n1`). Default: all.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.selector.fields = Some(selector.into());
        self
    }

    /// Watches metadata only, for `K`s that are `PartialObjectMeta`. Without it such a `K` is read from the full cache that
    /// the kind's other readers share.
    pub fn metadata_only(mut self) -> Self {
        self.selector.metadata_only = true;
        self
    }

    /// Marks a dynamic kind as cluster-scoped. Static types know their scope; a dynamic kind is namespaced by default. The
    /// scope matters if the manager or the watch is limited to namespaces, and for a controller's own kind: it decides
    /// whether owner keys have a namespace.
    pub fn cluster_scoped(mut self) -> Self {
        self.selector.cluster_scoped = true;
        self
    }
}

impl WatchSelector {
    /// Narrows or replaces the manager's scope.
    pub(crate) fn scope(&self, manager_scope: &WatchScope) -> WatchScope {
        let mut scope = match &self.namespaces {
            _ if self.cluster_scoped => WatchScope::all(),
            Some(namespaces) => WatchScope::all().namespaces(namespaces),
            None => manager_scope.clone(),
        };
        if let Some(labels) = &self.labels {
            scope = scope.labels(labels.as_str());
        }
        if let Some(fields) = &self.fields {
            scope = scope.fields(fields.as_str());
        }
        if self.metadata_only {
            scope = scope.metadata_only();
        }
        scope
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::core::{ApiResource, DynamicObject};

    use super::*;

    #[test]
    fn watch_uses_the_managers_namespaces_unless_it_names_its_own() {
        let within = WatchScope::all().namespace("a");
        let pods = || Watch::<DynamicObject>::dynamic(ApiResource::erase::<Pod>(&()));
        assert_eq!(pods().selector.scope(&within), within);
        assert_eq!(
            pods().namespaces(["b", "c"]).selector.scope(&within),
            WatchScope::all().namespaces(["b", "c"])
        );
        let nodes = || Watch::<DynamicObject>::dynamic(ApiResource::erase::<Node>(&())).cluster_scoped();
        assert_eq!(nodes().selector.scope(&within), WatchScope::all());
        assert_eq!(
            nodes().namespaces(["b"]).selector.scope(&within),
            WatchScope::all()
        );
        assert_eq!(
            Watch::<Node>::new().labels("a=b").selector.scope(&within),
            WatchScope::all().labels("a=b"),
            "the same cache as without a namespace"
        );
    }
}
