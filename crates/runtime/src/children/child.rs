//! One child: from what the author says to what is applied.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Resource,
    api::GetParams,
    core::{ApiResource, DynamicObject, Request, TypeMeta},
};
use serde::Serialize;
use serde_json::Value;
use windlass_cache::{Cacheable, KindName, ObjectKey, is_cluster_scoped};

use super::{
    Parent,
    compare::{content, covers, fingerprint},
    error::ChildError,
    memory::Deed,
};
use crate::{
    error::Error,
    listers::Listers,
    names::is_path_segment,
    reconcile::World,
    writer::{Apply, Writer},
};

/// The label that says which controller made a child, beside the owner reference that says for whom.
pub const CONTROLLER: &str = "windlass.dev/controller";

/// The annotation that says what was applied last, as a fingerprint: a controller that starts again sees from it that
/// there is nothing to say anew.
pub const APPLIED: &str = "windlass.dev/applied";

/// Which object, whatever version of its kind is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    kind: KindName,
    key: ObjectKey,
}

impl Identity {
    pub(super) fn is(&self, kind: &KindName, key: &ObjectKey) -> bool {
        let group = |kind: &KindName| {
            kind.api_version
                .rsplit_once('/')
                .map(|(group, _)| group.to_owned())
        };
        self.key == *key && self.kind.kind == kind.kind && group(&self.kind) == group(kind)
    }
}

pub(super) fn is_controlled_by(meta: &ObjectMeta, owner_uid: &str) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && owner.uid == owner_uid)
}

/// What had to be done about a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Did {
    Nothing,
    Applied,
    Created,
}

/// A child, its type forgotten.
pub(super) struct Child {
    kind: KindName,
    resource: ApiResource,
    /// Objects of the kind have no namespace.
    cluster_scoped: bool,
    object: Result<DynamicObject, serde_json::Error>,
    cached: Cached,
    view: View,
}

/// What the cache has in its place. An error if the controller does not cache the kind.
type Cached = Box<dyn Fn(&ObjectKey, &Listers) -> Result<Option<There>, Error> + Send + Sync>;

/// An object as its type writes it, so that what the server answers and what the cache has can be compared.
type View = fn(&DynamicObject) -> Result<Value, serde_json::Error>;

/// What is there in a child's place.
struct There {
    meta: ObjectMeta,
    body: Value,
}

impl Child {
    pub(super) fn new<C>(object: &C, dynamic: C::DynamicType) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Send + Sync>,
    {
        Self {
            kind: KindName::of::<C>(&dynamic),
            resource: ApiResource::erase::<C>(&dynamic),
            cluster_scoped: is_cluster_scoped::<C>(),
            object: serde_json::to_value(object).and_then(serde_json::from_value),
            cached: Box::new(move |key, listers| {
                // One that does not decode is there, and must not be taken for absent.
                let there = listers.get::<C>(&dynamic)?.try_get(key)?;
                let there = there.map(|there| {
                    serde_json::to_value(&*there).map(|body| There {
                        meta: there.meta().clone(),
                        body,
                    })
                });
                Ok(there.transpose()?)
            }),
            view: |object| {
                let object: C = serde_json::to_value(object).and_then(serde_json::from_value)?;
                serde_json::to_value(object)
            },
        }
    }

    /// What the server has in its place.
    async fn live(&self, key: &ObjectKey, writer: &Writer) -> Result<Option<There>, Error> {
        let request = Request::new(DynamicObject::url_path(&self.resource, key.namespace()));
        let request = request
            .get(key.name(), &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        match writer.client().request::<DynamicObject>(request).await {
            Ok(there) => Ok(Some(There {
                body: (self.view)(&there)?,
                meta: there.metadata,
            })),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl<K: Cacheable + Resource<DynamicType: Clone + Send + Sync> + Serialize> Parent<'_, K> {
    /// Makes one child what it should be, with at most one write. The answer says which object it is, and what was done.
    pub(super) async fn ensure(&self, child: Child) -> Result<(Identity, Did), Error> {
        let wanted = self.wanted(&child)?;
        let (kind, key) = (&child.kind, ObjectKey::of(&wanted));
        let identity = Identity {
            kind: kind.clone(),
            key: key.clone(),
        };
        let uid = self.object.meta().uid.as_deref().unwrap_or_default();
        let World { listers, writer, .. } = &*self.ctx.world;
        let body = serde_json::to_value(&wanted)?;
        let remember = |there: Value| {
            let deed = Deed {
                wanted: fingerprint(&body),
                there: fingerprint(&content(there)),
            };
            self.memory.lock().applied(&self.key, &kind.kind, &key, deed);
        };
        let mut there = (child.cached)(&key, listers)?;
        if there.is_none() && self.memory.lock().has(&self.key, &kind.kind, &key) {
            // It is gone, or not among what the cache is told of.
            there = child.live(&key, writer).await?;
        }
        let writer = writer.of(child.resource.clone());
        let mut is_unseen = false;
        let there = match there {
            Some(there) => there,
            None => match writer.apply_with(&wanted, Apply::default().new_object()).await {
                Ok(made) => {
                    tracing::info!(kind = kind.kind, child = %key, "created a child");
                    remember((child.view)(&made)?);
                    return Ok((identity, Did::Created));
                }
                // There is one, of which the cache has not told: now it matters whose.
                Err(taken) if taken.is_conflict() => {
                    is_unseen = true;
                    child.live(&key, self.ctx.writer()).await?.ok_or(taken)?
                }
                Err(error) => return Err(error.into()),
            },
        };
        if !is_controlled_by(&there.meta, uid) {
            return Err(self.exists(identity));
        }
        // It comes anew when it is gone, and its going is told.
        if there.meta.deletion_timestamp.is_some() {
            return Ok((identity, Did::Nothing));
        }
        if self.is_as_wanted(&identity, &body, &there.body) {
            if is_unseen {
                remember(there.body);
            }
            return Ok((identity, Did::Nothing));
        }
        let mut changed = wanted;
        // Not to another object that has taken its name since.
        changed.metadata.uid = there.meta.uid;
        let applied = writer
            .apply_with(&changed, Apply::default().force().same_object())
            .await?;
        tracing::info!(kind = kind.kind, child = %key, "applied a child");
        remember((child.view)(&applied)?);
        Ok((identity, Did::Applied))
    }

    /// What to apply: what the author says, in its place, with the marks of a child.
    fn wanted(&self, child: &Child) -> Result<DynamicObject, Error> {
        let kind = &child.kind;
        let object = child.object.as_ref().map_err(|cause| {
            let what = format!("a child of kind {}", kind.kind);
            let cause = cause.to_string();
            Error::terminal(ChildError::Unserialisable { what, cause })
        })?;
        let mut wanted = object.clone();
        wanted.types = Some(TypeMeta {
            api_version: kind.api_version.clone(),
            kind: kind.kind.clone(),
        });
        let own = self.key.namespace();
        let metadata = &mut wanted.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err(Error::terminal(ChildError::Nameless { kind: kind.clone() }));
        }
        if let Some(name) = metadata.name.as_ref().filter(|name| !is_path_segment(name)) {
            let (kind, name) = (kind.clone(), name.clone());
            return Err(Error::terminal(ChildError::NotAName { kind, name }));
        }
        metadata.namespace = match metadata.namespace.take() {
            _ if child.cluster_scoped => None,
            None => own.map(str::to_owned),
            said => said,
        };
        // An object outside namespaces may have children everywhere.
        if own.is_some() && own != metadata.namespace.as_deref() {
            return Err(Error::terminal(ChildError::Elsewhere {
                kind: kind.clone(),
                key: ObjectKey::of(&wanted),
                namespace: own.map(str::to_owned),
            }));
        }
        let listers = &self.ctx.world.listers;
        if !listers.broods.iter().any(|brood| brood.kind() == kind) {
            return Err(Error::terminal(ChildError::NotOwned {
                kind: kind.clone(),
                controller: listers.controller.clone(),
            }));
        }
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(CONTROLLER.to_owned(), listers.controller.clone());
        metadata.owner_references = self.object.controller_owner_ref(self.kind).map(|owner| {
            // Who deletes the object in the foreground waits for its children.
            let block_owner_deletion = Some(true);
            vec![OwnerReference {
                block_owner_deletion,
                ..owner
            }]
        });
        let fingerprint = fingerprint(&serde_json::to_value(&wanted)?);
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(APPLIED.to_owned(), format!("{fingerprint:016x}"));
        Ok(wanted)
    }

    fn is_as_wanted(&self, identity: &Identity, wanted: &Value, there: &Value) -> bool {
        let applied = |body: &Value| {
            let annotations = body.get("metadata")?.get("annotations")?;
            annotations.get(APPLIED)?.as_str().map(str::to_owned)
        };
        if applied(there) == applied(wanted) && covers(there, wanted) {
            return true;
        }
        let deed = Deed {
            wanted: fingerprint(wanted),
            there: fingerprint(&content(there.clone())),
        };
        let Identity { kind, key } = identity;
        self.memory.lock().is_applied(&self.key, &kind.kind, key, deed)
    }

    fn exists(&self, child: Identity) -> Error {
        let Identity { kind, key } = child;
        let owner = K::kind(self.kind).into_owned();
        let message = format!(
            "Resource {:?} already exists and is not managed by {owner}",
            key.name()
        );
        let about = self.object.object_ref(self.kind);
        // The words that people know from the sample controller.
        self.ctx.recorder().warning(&about, "ErrResourceExists", message);
        ChildError::Exists { kind, key, owner }.into()
    }
}
