//! The kinds that a controller owns: lists the children of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::ApiResource};
use windlass_cache::{Cacheable, GroupVersionKind, Index, Lister, Query};

use super::child::{CONTROLLER_LABEL, is_controlled_by};

/// A kind that a controller owns.
pub(crate) trait OwnedKind: Send + Sync + 'static {
    fn kind(&self) -> &GroupVersionKind;

    /// Objects that this owner controls, that have the controller's label, and that are not being deleted.
    fn children_of(&self, owner_uid: &str, controller: &str) -> Vec<ObjectMeta>;

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

    fn children_of(&self, owner_uid: &str, controller: &str) -> Vec<ObjectMeta> {
        let query = Query::all().indexed(&self.by_owner, owner_uid);
        let mut children = Vec::new();
        for stored in self.lister.list_cached(&query) {
            let meta = stored.meta();
            if meta.is_deleting() || meta.label(CONTROLLER_LABEL) != Some(controller) {
                continue;
            }
            let Ok(object) = stored.object() else { continue };
            if is_controlled_by(object.meta(), owner_uid) {
                children.push(object.meta().clone());
            }
        }
        children
    }
}
