//! The kinds that a controller owns: which of their objects are whose, and how to delete one.

use kube::{
    Client, Resource,
    api::{DeleteParams, Preconditions},
    core::Request,
};
use windlass_cache::{Cacheable, Index, KindName, Lister, ObjectKey, Query};

use super::{
    Parent,
    child::{CONTROLLER, Identity, is_controlled_by},
    error::ChildError,
};
use crate::{error::Error, source::Boxed};

/// A kind that a controller owns.
pub(crate) trait Brood: Send + Sync + 'static {
    /// Which kind.
    fn kind(&self) -> &KindName;

    /// The objects that this one controls, that have the controller's label, and that are not going already.
    fn of(&self, owner_uid: &str, controller: &str) -> Vec<Member>;

    /// Deletes exactly the object that was looked at. One that is gone is fine.
    fn delete(&self, client: &Client, member: &Member) -> Boxed<Result<(), kube::Error>>;
}

/// One of them.
pub(crate) struct Member {
    pub(crate) key: ObjectKey,
    uid: String,
    resource_version: Option<String>,
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

    fn of(&self, owner_uid: &str, controller: &str) -> Vec<Member> {
        let query = Query::all().indexed(&self.by_owner, owner_uid);
        let mut members = Vec::new();
        for stored in self.lister.list_stored(&query) {
            let meta = stored.meta();
            if meta.is_deleting() || meta.label(CONTROLLER) != Some(controller) {
                continue;
            }
            let Ok(object) = stored.object() else { continue };
            if is_controlled_by(object.meta(), owner_uid) {
                members.push(Member {
                    key: stored.key().clone(),
                    uid: object.meta().uid.clone().unwrap_or_default(),
                    resource_version: object.meta().resource_version.clone(),
                });
            }
        }
        members
    }

    fn delete(&self, client: &Client, member: &Member) -> Boxed<Result<(), kube::Error>> {
        let request = Request::new(K::url_path(&self.dynamic, member.key.namespace()));
        let parameters = DeleteParams::background().preconditions(Preconditions {
            uid: Some(member.uid.clone()),
            resource_version: member.resource_version.clone(),
        });
        let request = request.delete(member.key.name(), &parameters);
        let client = client.clone();
        Box::pin(async move {
            let request = request.map_err(kube::Error::BuildRequest)?;
            match client.request_text(request).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                answer => answer.map(drop),
            }
        })
    }
}

impl<K: Cacheable> Parent<'_, K> {
    /// Deletes the children that are no longer wanted.
    pub(super) async fn prune(&self, wanted: &[Identity]) -> Result<(), Error> {
        let listers = &self.ctx.world.listers;
        let uid = self.object.meta().uid.as_deref().unwrap_or_default();
        for brood in &listers.broods {
            let kind = brood.kind();
            for member in brood.of(uid, &listers.controller) {
                if wanted.iter().any(|wanted| wanted.is(kind, &member.key)) {
                    continue;
                }
                tracing::info!(kind = kind.kind, child = %member.key, "deleting a child that is not wanted any more");
                let deleted = brood.delete(self.ctx.client(), &member).await;
                deleted.map_err(|cause| ChildError::Api {
                    action: "delete",
                    kind: kind.clone(),
                    key: member.key.clone(),
                    cause,
                })?;
                self.memory.lock().pruned(self.key, &kind.kind, &member.key);
            }
        }
        Ok(())
    }
}
