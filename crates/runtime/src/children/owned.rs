//! The kinds that a controller owns: lists the children of an object, and deletes unwanted ones.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    api::{DeleteParams, Preconditions},
    core::{ApiResource, DynamicObject},
};
use serde_json::Value;
use windlass_cache::{Cacheable, GroupVersionKind, Index, Lister, ObjectKey, Query};

use super::{
    Parent,
    child::{CONTROLLER_LABEL, ChildRef, is_controlled_by},
};
use crate::{error::Error, reconcile::TermContext};

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

impl Parent<'_> {
    /// Deletes the children that are no longer desired. Returns how many.
    pub(super) async fn prune(&self, wanted: &[ChildRef]) -> Result<usize, Error> {
        let mut deleted = 0;
        let TermContext { listers, writer, .. } = &*self.ctx.term;
        let uid = self.object.meta().uid.as_deref().unwrap_or_default();
        for owned in &listers.owned_kinds {
            let kind = owned.kind();
            for metadata in owned.children_of(uid, &listers.controller) {
                let unwanted = DynamicObject {
                    types: None,
                    metadata,
                    data: Value::Null,
                };
                let key = ObjectKey::of(&unwanted);
                if wanted.iter().any(|wanted| wanted.matches(kind, &key)) {
                    continue;
                }
                tracing::info!(kind = kind.kind, child = %key, "deleting unwanted child");
                // Only the observed version: another owner may have adopted it since.
                let options = DeleteParams::background().preconditions(Preconditions {
                    uid: unwanted.metadata.uid.clone(),
                    resource_version: unwanted.metadata.resource_version.clone(),
                });
                writer
                    .dynamic(owned.resource())
                    .delete_with(&unwanted, &options)
                    .await?;
                self.history.lock().forget_child(&self.key, &kind.kind, &key);
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}
