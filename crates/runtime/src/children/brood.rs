//! The kinds that a controller owns: which of their objects are whose, and how to delete one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    api::{DeleteParams, Preconditions},
    core::{ApiResource, DynamicObject},
};
use serde_json::Value;
use windlass_cache::{Cacheable, Index, KindName, Lister, ObjectKey, Query};

use super::{
    Parent,
    child::{CONTROLLER, Identity, is_controlled_by},
};
use crate::{error::Error, reconcile::World};

/// A kind that a controller owns.
pub(crate) trait Brood: Send + Sync + 'static {
    /// Which kind.
    fn kind(&self) -> &KindName;

    /// The objects that this one controls, that have the controller's label, and that are not going already.
    fn of(&self, owner_uid: &str, controller: &str) -> Vec<ObjectMeta>;

    /// How to write objects of it.
    fn resource(&self) -> ApiResource;
}

/// The children of one kind.
pub(crate) struct Offspring<K: Cacheable> {
    lister: Lister<K>,
    by_owner: Index<K>,
    dynamic: K::DynamicType,
}

impl<K: Cacheable> Offspring<K> {
    pub(crate) fn new(lister: Lister<K>, by_owner: Index<K>, dynamic: K::DynamicType) -> Self {
        Self {
            lister,
            by_owner,
            dynamic,
        }
    }
}

impl<K: Cacheable + Resource<DynamicType: Send + Sync>> Brood for Offspring<K> {
    fn kind(&self) -> &KindName {
        self.lister.kind()
    }

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<K>(&self.dynamic)
    }

    fn of(&self, owner_uid: &str, controller: &str) -> Vec<ObjectMeta> {
        let query = Query::all().indexed(&self.by_owner, owner_uid);
        let mut members = Vec::new();
        for stored in self.lister.list_stored(&query) {
            let meta = stored.meta();
            if meta.is_deleting() || meta.label(CONTROLLER) != Some(controller) {
                continue;
            }
            let Ok(object) = stored.object() else { continue };
            if is_controlled_by(object.meta(), owner_uid) {
                members.push(object.meta().clone());
            }
        }
        members
    }
}

impl<K: Cacheable> Parent<'_, K> {
    /// Deletes the children that are no longer wanted. The answer says how many.
    pub(super) async fn prune(&self, wanted: &[Identity]) -> Result<usize, Error> {
        let mut deleted = 0;
        let World { listers, writer, .. } = &*self.ctx.world;
        let uid = self.object.meta().uid.as_deref().unwrap_or_default();
        for brood in &listers.broods {
            let kind = brood.kind();
            for metadata in brood.of(uid, &listers.controller) {
                let unwanted = DynamicObject {
                    types: None,
                    metadata,
                    data: Value::Null,
                };
                let key = ObjectKey::of(&unwanted);
                if wanted.iter().any(|wanted| wanted.is(kind, &key)) {
                    continue;
                }
                tracing::info!(kind = kind.kind, child = %key, "deleting a child that is not wanted any more");
                // Exactly what was looked at: somebody may have taken it over since.
                let how = DeleteParams::background().preconditions(Preconditions {
                    uid: unwanted.metadata.uid.clone(),
                    resource_version: unwanted.metadata.resource_version.clone(),
                });
                writer.of(brood.resource()).delete_with(&unwanted, &how).await?;
                self.memory.lock().pruned(&self.key, &kind.kind, &key);
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}
