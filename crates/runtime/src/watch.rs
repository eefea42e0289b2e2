//! What a controller wants of one kind: which objects, which of their changes, and whom those concern.

use kube::Resource;
use windlass_cache::{Cacheable, Change, ObjectKey, Selection, is_cluster_scoped};

use crate::predicate::Predicate;

/// A kind that a controller looks at: which objects of it, which changes matter, and which objects these concern.
///
/// [`Controller::owns`](crate::Controller::owns), [`watches`](crate::Controller::watches) and
/// [`reads`](crate::Controller::reads) are the short forms; this one says everything:
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Pod}};
/// use kube::core::DynamicObject;
/// use windlass_runtime::{Controller, ObjectKey, Predicate, Watch};
///
/// let controller = Controller::<Deployment>::new("web")
///     .watch(Watch::<ConfigMap>::new().owned().when(Predicate::labels_changed()))
///     .watch(Watch::<Pod>::new().labels("app").fields("status.phase=Failed").mapped(|pod| {
///         pod.metadata.namespace.iter().map(|ns| ObjectKey::namespaced(ns.as_str(), "web")).collect()
///     }));
/// ```
///
/// A kind that is known only at run time is a `DynamicObject` with its
/// [`ApiResource`](kube::core::ApiResource): [`Watch::dynamic`].
#[must_use = "a watch does nothing until a controller has it"]
pub struct Watch<K: Cacheable> {
    pub(crate) dynamic: K::DynamicType,
    pub(crate) predicate: Option<Predicate<K>>,
    pub(crate) role: Role<K>,
    pub(crate) cluster_scoped: bool,
    pub(crate) tap: Option<Tap<K>>,
    namespaces: Option<Vec<String>>,
    labels: Option<String>,
    fields: Option<String>,
    metadata_only: bool,
}

/// Whom a change concerns.
pub(crate) enum Role<K> {
    /// Nobody: the kind is read.
    Read,
    /// The object itself.
    Itself,
    /// Its controller.
    Controlled,
    /// Every owner.
    Owned,
    Mapped(Map<K>),
}

type Map<K> = Box<dyn Fn(&K) -> Vec<ObjectKey> + Send>;
pub(crate) type Tap<K> = Box<dyn FnMut(&Change<K>) + Send>;

impl<K: Cacheable + Resource<DynamicType: Default>> Watch<K> {
    /// All objects of `K`, to read.
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
    /// All objects of a kind that is known at run time, to read.
    pub fn dynamic(kind: K::DynamicType) -> Self {
        Self {
            dynamic: kind,
            predicate: None,
            role: Role::Read,
            cluster_scoped: is_cluster_scoped::<K>(),
            tap: None,
            namespaces: None,
            labels: None,
            fields: None,
            metadata_only: false,
        }
    }

    /// Its changes concern the object that controls it, by owner reference.
    pub fn owned(mut self) -> Self {
        self.role = Role::Controlled;
        self
    }

    /// Its changes concern every owner of the controller's kind, also those that do not control it.
    pub fn owned_by_any(mut self) -> Self {
        self.role = Role::Owned;
        self
    }

    /// Its changes concern the objects that `map` names. It is asked about the state before as well as the state after, so
    /// that what an object no longer refers to is reconciled too.
    pub fn mapped(mut self, map: impl Fn(&K) -> Vec<ObjectKey> + Send + 'static) -> Self {
        self.role = Role::Mapped(Box::new(map));
        self
    }

    pub(crate) fn itself(mut self) -> Self {
        self.role = Role::Itself;
        self
    }

    /// Only these changes trigger; see [`Predicate`] for those that always do. Twice: both must pass. Default: all.
    pub fn when(mut self, predicate: Predicate<K>) -> Self {
        self.predicate = Some(match self.predicate {
            Some(before) => before.and(predicate),
            None => predicate,
        });
        self
    }

    /// Is shown every change of this kind that passes its predicates, before the keys that it concerns are queued: for what
    /// is to be told of changes, not done about them. It sees the states before and after, and how a deletion became
    /// known; a reconcile that runs late sees only what is there then.
    ///
    /// It must not wait. Of a kind that is only read it sees nothing. Default: nobody looks.
    pub fn tap(mut self, tap: impl FnMut(&Change<K>) + Send + 'static) -> Self {
        self.tap = Some(Box::new(tap));
        self
    }

    /// Only objects in these namespaces, whatever the [manager](crate::Manager::namespaces) looks at. Says nothing of kinds
    /// that live outside namespaces. Default: the manager's.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.namespaces = Some(namespaces.into_iter().map(Into::into).collect());
        self
    }

    /// Only objects whose labels match, in the server's syntax (`app=web,tier!=cache`). The server filters, so what is
    /// not selected costs nothing and cannot be told from what does not exist. Default: all.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects whose fields match, in the server's syntax (`spec.nodeName=n1`). Default: all.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Asks the server for metadata alone; for `K`s that are `PartialObjectMeta`. Without it such a `K` is read from the
    /// copy that the kind's other readers share.
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Objects of this kind live outside namespaces. Types say so themselves; a dynamic kind does not, and is taken for a
    /// namespaced one. It matters where the manager or the watch looks at some namespaces only, and for the kind that a
    /// controller is for: whether its children's owner has a namespace.
    pub fn cluster_scoped(mut self) -> Self {
        self.cluster_scoped = true;
        self
    }

    /// Of what the manager looks at, the part that this wants.
    pub(crate) fn selection(&self, within: &Selection) -> Selection {
        let mut selection = match &self.namespaces {
            _ if self.cluster_scoped => Selection::all(),
            Some(namespaces) => Selection::all().namespaces(namespaces),
            None => within.clone(),
        };
        if let Some(labels) = &self.labels {
            selection = selection.labels(labels.as_str());
        }
        if let Some(fields) = &self.fields {
            selection = selection.fields(fields.as_str());
        }
        if self.metadata_only {
            selection = selection.metadata_only();
        }
        selection
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::core::{ApiResource, DynamicObject};

    use super::*;

    #[test]
    fn a_watch_looks_where_the_manager_does_unless_it_says_where() {
        let within = Selection::all().namespace("a");
        let pods = || Watch::<DynamicObject>::dynamic(ApiResource::erase::<Pod>(&()));
        assert_eq!(pods().selection(&within), within);
        assert_eq!(
            pods().namespaces(["b", "c"]).selection(&within),
            Selection::all().namespaces(["b", "c"])
        );
        let nodes = || Watch::<DynamicObject>::dynamic(ApiResource::erase::<Node>(&())).cluster_scoped();
        assert_eq!(nodes().selection(&within), Selection::all());
        assert_eq!(nodes().namespaces(["b"]).selection(&within), Selection::all());
        assert_eq!(
            Watch::<Node>::new().labels("a=b").selection(&within),
            Selection::all().labels("a=b"),
            "the same cache as without a namespace"
        );
    }
}
