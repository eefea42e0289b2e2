//! Applies one child.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Resource,
    api::GetParams,
    core::{ApiResource, DynamicObject, Request, TypeMeta},
};
use serde::Serialize;
use serde_json::Value;
use windlass_api::{naming::is_path_segment, status::StatusClass};
use windlass_cache::{Cacheable, GroupVersionKind, ObjectKey, is_cluster_scoped};

use super::{
    Parent,
    child_ref::{ChildId, ChildRef},
    compare::{annotated_fingerprint, content, covers, fingerprint},
    error::ChildError,
    history::AppliedState,
};
use crate::{
    error::Error,
    listers::Listers,
    reconcile::TermContext,
    writer::{ApplyOptions, Writer, decode},
};

/// Label with the name of the controller that manages a child. The owner reference names the parent object.
pub const CONTROLLER_LABEL: &str = "windlass.dev/controller";

/// Annotation with a hash of the last applied child, so that a restarted controller need not apply it again.
pub const APPLIED_HASH_ANNOTATION: &str = "windlass.dev/applied-hash";

pub(super) fn is_controlled_by(meta: &ObjectMeta, owner_uid: &str) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && owner.uid == owner_uid)
}

/// What was done to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChildChange {
    Unchanged,
    /// It is being deleted and was left alone.
    Terminating,
    Applied,
    /// It was applied and has a new generation, so its status is about an earlier one.
    NewGeneration,
    Created,
}

/// A desired child with its type erased.
pub(super) struct Child {
    kind: GroupVersionKind,
    resource: ApiResource,
    cluster_scoped: bool,
    /// Children that must be applied first.
    pub(super) after: Vec<ChildRef>,
    object: Result<DynamicObject, serde_json::Error>,
    read_cached: ReadCachedFn,
    normalize: NormalizeFn,
}

/// Reads the existing child from the cache. Fails if the controller does not cache the kind.
type ReadCachedFn = Box<dyn Fn(&ObjectKey, &Listers) -> Result<Option<ExistingObject>, Error> + Send + Sync>;

/// Round-trips an object through its type, so that a server response compares equal to a cached object.
type NormalizeFn = fn(&DynamicObject) -> Result<Value, serde_json::Error>;

/// The existing object with a child's key.
struct ExistingObject {
    meta: ObjectMeta,
    body: Value,
}

impl Child {
    pub(super) fn new<C>(object: &C, dynamic: C::DynamicType) -> Self
    where
        C: Cacheable + Serialize + Resource<DynamicType: Send + Sync>,
    {
        Self {
            kind: GroupVersionKind::of::<C>(&dynamic),
            resource: ApiResource::erase::<C>(&dynamic),
            cluster_scoped: is_cluster_scoped::<C>(),
            after: Vec::new(),
            object: serde_json::to_value(object).and_then(serde_json::from_value),
            read_cached: Box::new(move |key, listers| {
                // An object that does not decode is an error, not absent.
                let existing = listers.get::<C>(&dynamic)?.try_get(key)?;
                let existing = existing.map(|object| {
                    serde_json::to_value(&*object).map(|body| ExistingObject {
                        meta: object.meta().clone(),
                        body,
                    })
                });
                Ok(existing.transpose()?)
            }),
            normalize: |object| {
                let object: C = decode(&serde_json::to_vec(object)?)?;
                serde_json::to_value(object)
            },
        }
    }

    /// The desired object, as the author wrote it.
    pub(super) fn object(&self) -> Result<&DynamicObject, &serde_json::Error> {
        self.object.as_ref()
    }

    /// Kind and name, for tests and messages.
    pub(super) fn name(&self) -> String {
        let name = self
            .object()
            .ok()
            .and_then(|object| object.metadata.name.as_deref());
        format!("{}/{}", self.kind.kind, name.unwrap_or("?"))
    }

    pub(super) fn kind(&self) -> &GroupVersionKind {
        &self.kind
    }

    /// Reads the existing child from the server.
    async fn read_live(&self, key: &ObjectKey, writer: &Writer) -> Result<Option<ExistingObject>, Error> {
        let request = Request::new(DynamicObject::url_path(&self.resource, key.namespace()));
        let request = request
            .get(key.name(), &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        match writer.client().request::<DynamicObject>(request).await {
            Ok(object) => Ok(Some(ExistingObject {
                body: (self.normalize)(&object)?,
                meta: object.metadata,
            })),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_forbidden(error: &Error) -> bool {
    error.find::<kube::Error>().and_then(StatusClass::of_error) == Some(StatusClass::Forbidden)
}

impl Parent<'_> {
    /// Which object the child is. Without a name or an object, the key is incomplete.
    pub(super) fn child_id(&self, child: &Child) -> ChildId {
        let metadata = child.object.as_ref().ok().map(|object| &object.metadata);
        let name = metadata
            .and_then(|metadata| metadata.name.as_deref())
            .unwrap_or_default();
        let namespace = metadata
            .and_then(|metadata| metadata.namespace.as_deref())
            .or(self.key.namespace());
        ChildId {
            kind: child.kind.clone(),
            key: match namespace.filter(|_| !child.cluster_scoped) {
                Some(namespace) => ObjectKey::namespaced(namespace, name),
                None => ObjectKey::cluster_scoped(name),
            },
        }
    }

    /// Creates or applies one child, with at most one write. Returns what was done.
    pub(super) async fn ensure_child(&self, child: &Child) -> Result<ChildChange, Error> {
        let wanted = self.desired_object(child)?;
        let (kind, key) = (&child.kind, ObjectKey::of(&wanted));
        let uid = self.object.meta().uid.as_deref().unwrap_or_default();
        let TermContext { listers, writer, .. } = &*self.ctx.term;
        let body = serde_json::to_value(&wanted)?;
        let remember = |actual: Value| {
            let state = AppliedState {
                desired_hash: fingerprint(&body),
                actual_hash: fingerprint(&content(actual)),
            };
            self.history
                .lock()
                .record_applied(&self.key, &kind.kind, &key, state);
        };
        let mut existing = (child.read_cached)(&key, listers)?;
        if existing.is_none() && self.history.lock().has_child(&self.key, &kind.kind, &key) {
            // It was deleted, or the watch does not select it.
            existing = match child.read_live(&key, writer).await {
                // A create fails if it exists, so it need not be read.
                Err(error) if is_forbidden(&error) => None,
                read => read?,
            };
        }
        let writer = writer.dynamic(child.resource.clone());
        let mut is_uncached = false;
        let existing = match existing {
            Some(existing) => existing,
            None => match writer
                .apply_with(&wanted, ApplyOptions::default().require_absent())
                .await
            {
                Ok(created) => {
                    tracing::info!(kind = kind.kind, child = %key, "created child");
                    remember((child.normalize)(&created)?);
                    return Ok(ChildChange::Created);
                }
                // It exists but is not in the cache: read it to find its owner.
                Err(conflict) if conflict.is_conflict() => {
                    is_uncached = true;
                    child.read_live(&key, self.ctx.writer()).await?.ok_or(conflict)?
                }
                Err(error) => return Err(error.into()),
            },
        };
        if !is_controlled_by(&existing.meta, uid) {
            let (kind, key, owner) = (kind.clone(), key.clone(), self.object.kind());
            return Err(ChildError::AlreadyExists { kind, key, owner }.into());
        }
        // Its deletion triggers another reconcile, which creates it again.
        if existing.meta.deletion_timestamp.is_some() {
            return Ok(ChildChange::Terminating);
        }
        if self.is_up_to_date(&kind.kind, &key, &body, &existing.body) {
            if is_uncached {
                remember(existing.body);
            }
            return Ok(ChildChange::Unchanged);
        }
        let mut changed = wanted;
        // Not to a recreated object of the same name.
        changed.metadata.uid = existing.meta.uid;
        let applied = writer
            .apply_with(&changed, ApplyOptions::default().require_uid())
            .await?;
        tracing::info!(kind = kind.kind, child = %key, "applied child");
        remember((child.normalize)(&applied)?);
        Ok(if applied.metadata.generation == existing.meta.generation {
            ChildChange::Applied
        } else {
            ChildChange::NewGeneration
        })
    }

    /// The object to apply: the desired child with its namespace, owner reference, label and annotation.
    fn desired_object(&self, child: &Child) -> Result<DynamicObject, Error> {
        let kind = &child.kind;
        let object = child.object.as_ref().map_err(|cause| {
            let what = format!("a child of kind {}", kind.kind);
            let cause = cause.to_string();
            Error::terminal(ChildError::Serialization { what, cause })
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
            return Err(Error::terminal(ChildError::NoName { kind: kind.clone() }));
        }
        if let Some(name) = metadata.name.as_ref().filter(|name| !is_path_segment(name)) {
            let (kind, name) = (kind.clone(), name.clone());
            return Err(Error::terminal(ChildError::InvalidName { kind, name }));
        }
        metadata.namespace = match metadata.namespace.take() {
            _ if child.cluster_scoped => None,
            None => own.map(str::to_owned),
            explicit => explicit,
        };
        // A cluster-scoped object may have children in every namespace.
        if own.is_some() && own != metadata.namespace.as_deref() {
            return Err(Error::terminal(ChildError::NamespaceMismatch {
                kind: kind.clone(),
                key: ObjectKey::of(&wanted),
                namespace: own.map(str::to_owned),
            }));
        }
        let listers = &self.ctx.term.listers;
        if !listers.owned_kinds.iter().any(|brood| brood.kind() == kind) {
            return Err(Error::terminal(ChildError::NotOwned {
                kind: kind.clone(),
                controller: listers.controller.clone(),
            }));
        }
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(CONTROLLER_LABEL.to_owned(), listers.controller.clone());
        metadata.owner_references = self.object.owner_ref().map(|owner| {
            // A foreground deletion of the parent waits for its children.
            let block_owner_deletion = Some(true);
            vec![OwnerReference {
                block_owner_deletion,
                ..owner
            }]
        });
        let fingerprint = annotated_fingerprint(serde_json::to_value(&wanted)?);
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(APPLIED_HASH_ANNOTATION.to_owned(), format!("{fingerprint:016x}"));
        Ok(wanted)
    }

    fn is_up_to_date(&self, kind: &str, key: &ObjectKey, wanted: &Value, actual: &Value) -> bool {
        let applied = |body: &Value| {
            let annotations = body.get("metadata")?.get("annotations")?;
            annotations
                .get(APPLIED_HASH_ANNOTATION)?
                .as_str()
                .map(str::to_owned)
        };
        if applied(actual) == applied(wanted) && covers(actual, wanted) {
            return true;
        }
        let state = AppliedState {
            desired_hash: fingerprint(wanted),
            actual_hash: fingerprint(&content(actual.clone())),
        };
        self.history.lock().is_applied(&self.key, kind, key, state)
    }
}
