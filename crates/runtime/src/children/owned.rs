//! The kinds that a controller owns: lists the children of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::ApiResource};
use windlass_cache::{Cacheable, DecodeError, GroupVersionKind, Index, Lister, ObjectKey, Query};

use super::child::{CONTROLLER_LABEL, is_controlled_by};

/// A child of an object.
pub(crate) struct OwnedChild {
    pub(crate) key: ObjectKey,
    pub(crate) is_deleting: bool,
    /// If it does not decode, whether the owner is its controller is not known.
    pub(crate) metadata: Result<ObjectMeta, DecodeError>,
}

/// A kind that a controller owns.
pub(crate) trait OwnedKind: Send + Sync + 'static {
    fn kind(&self) -> &GroupVersionKind;

    /// Objects that this owner controls and that have the controller's label.
    fn children_of(&self, owner_uid: &str, controller: &str) -> Vec<OwnedChild>;

    /// Whether the object exists and is being deleted. Own deletions are in the cache.
    fn is_deleting(&self, key: &ObjectKey) -> bool;

    /// The resource, for writes.
    fn resource(&self) -> ApiResource;
}

/// Lists the children of one kind from the cache.
pub(crate) struct ChildLister<K: Cacheable> {
    lister: Lister<K>,
    by_owner: Index<K>,
    dynamic: K::DynamicType,
}

impl<K: Cacheable> ChildLister<K> {
    pub(crate) fn new(lister: Lister<K>, by_owner: Index<K>, dynamic: K::DynamicType) -> Self {
        Self {
            lister,
            by_owner,
            dynamic,
        }
    }
}

impl<K: Cacheable + Resource<DynamicType: Send + Sync>> OwnedKind for ChildLister<K> {
    fn kind(&self) -> &GroupVersionKind {
        self.lister.kind()
    }

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<K>(&self.dynamic)
    }

    fn is_deleting(&self, key: &ObjectKey) -> bool {
        self.lister
            .get_cached(key)
            .is_some_and(|stored| stored.meta().is_deleting())
    }

    fn children_of(&self, owner_uid: &str, controller: &str) -> Vec<OwnedChild> {
        let query = Query::all().indexed(&self.by_owner, owner_uid);
        let mut children = Vec::new();
        for stored in self.lister.list_cached(&query) {
            let meta = stored.meta();
            if meta.label(CONTROLLER_LABEL) != Some(controller) {
                continue;
            }
            let metadata = stored.object().map(|object| object.meta().clone());
            if metadata
                .as_ref()
                .is_ok_and(|metadata| !is_controlled_by(metadata, owner_uid))
            {
                continue;
            }
            children.push(OwnedChild {
                key: meta.key().clone(),
                is_deleting: meta.is_deleting(),
                metadata,
            });
        }
        children
    }
}
