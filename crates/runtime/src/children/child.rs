//! One child: from what the author says to what is applied.

use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client, Resource,
    api::{Patch, PatchParams},
    core::Request,
};
use serde::Serialize;
use serde_json::{Value, json};
use windlass_cache::{Cacheable, KindName, ObjectKey, is_cluster_scoped};

use super::{
    Parent,
    compare::{content, covers, fingerprint},
    error::ChildError,
    memory::Deed,
};
use crate::{error::Error, listers::Listers, source::Boxed};

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
        let group = |kind: &KindName| kind.api_version.rsplit_once('/').map(|(group, _)| group.to_owned());
        self.key == *key && self.kind.kind == kind.kind && group(&self.kind) == group(kind)
    }
}

pub(super) fn is_controlled_by(meta: &ObjectMeta, owner_uid: &str) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && owner.uid == owner_uid)
}

/// A child whose type is not known here.
pub(super) trait Child: Send + Sync {
    fn kind(&self) -> KindName;
    fn meta(&self) -> &ObjectMeta;
    /// Whether objects of the kind have no namespace.
    fn is_cluster_scoped(&self) -> bool;
    fn body(&self) -> Result<Value, serde_json::Error>;
    /// What the cache has under this key. An error if the controller does not cache the kind.
    fn cached(&self, key: &ObjectKey, listers: &Listers) -> Result<Option<There>, Error>;
    /// What the server has under this key.
    fn live(&self, key: &ObjectKey, client: &Client) -> Boxed<Result<Option<There>, kube::Error>>;
    /// Applies a body; the answer says whether the object is new.
    fn apply(
        &self,
        key: &ObjectKey,
        client: &Client,
        parameters: &PatchParams,
        body: &Value,
    ) -> Boxed<Result<(There, StatusCode), kube::Error>>;
}

/// What is there in a child's place.
pub(super) struct There {
    meta: ObjectMeta,
    body: Value,
}

impl There {
    fn of<C: Resource + Serialize>(object: &C) -> Result<Self, serde_json::Error> {
        Ok(Self {
            meta: object.meta().clone(),
            body: serde_json::to_value(object)?,
        })
    }
}

/// A child of a type.
pub(super) struct Typed<C: Resource> {
    object: C,
    kind: C::DynamicType,
}

impl<C: Resource> Typed<C> {
    pub(super) fn new(object: C, kind: C::DynamicType) -> Self {
        Self { object, kind }
    }
}

impl<C> Child for Typed<C>
where
    C: Cacheable + Serialize + Resource<DynamicType: Clone + Send + Sync>,
{
    fn kind(&self) -> KindName {
        KindName::of::<C>(&self.kind)
    }

    fn meta(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn is_cluster_scoped(&self) -> bool {
        is_cluster_scoped::<C>()
    }

    fn body(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(&self.object)
    }

    fn cached(&self, key: &ObjectKey, listers: &Listers) -> Result<Option<There>, Error> {
        // One that does not decode is there, and must not be taken for absent.
        let there = listers.get::<C>(&self.kind)?.try_get(key)?;
        Ok(there.map(|there| There::of(&*there)).transpose()?)
    }

    fn live(&self, key: &ObjectKey, client: &Client) -> Boxed<Result<Option<There>, kube::Error>> {
        let request = Request::new(C::url_path(&self.kind, key.namespace()));
        let request = request.get(key.name(), &kube::api::GetParams::default());
        let client = client.clone();
        Box::pin(async move {
            let request = request.map_err(kube::Error::BuildRequest)?;
            match client.request::<C>(request).await {
                Ok(there) => There::of(&there).map(Some).map_err(kube::Error::SerdeError),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn apply(
        &self,
        key: &ObjectKey,
        client: &Client,
        parameters: &PatchParams,
        body: &Value,
    ) -> Boxed<Result<(There, StatusCode), kube::Error>> {
        let request = Request::new(C::url_path(&self.kind, key.namespace()));
        let request = request.patch(key.name(), parameters, &Patch::Apply(body));
        let client = client.clone();
        Box::pin(async move {
            let request = request.map_err(kube::Error::BuildRequest)?;
            let (object, status) = answer::<C>(&client, request).await?;
            Ok((There::of(&object).map_err(kube::Error::SerdeError)?, status))
        })
    }
}

/// Sends a request and keeps the answer's status, which says whether the object was made.
async fn answer<C: Cacheable>(
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<(C, StatusCode), kube::Error> {
    let request = request.map(kube::client::Body::from);
    let response = client.send(request).await?;
    let status = response.status();
    let bytes = response.into_body().collect_bytes().await?;
    if status.is_success() {
        let object = serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?;
        return Ok((object, status));
    }
    let told = serde_json::from_slice::<kube::core::Status>(&bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&bytes);
        kube::core::Status::failure(&text, "Failed to parse error data").with_code(status.as_u16())
    });
    Err(kube::Error::Api(Box::new(told)))
}

impl<K: Cacheable + Resource<DynamicType: Clone + Send + Sync> + Serialize> Parent<'_, K> {
    /// Makes one child what it should be, with at most one write. The answer says which object it is.
    pub(super) async fn ensure(&self, child: &dyn Child) -> Result<Identity, Error> {
        let kind = child.kind();
        let key = self.place(child, &kind)?;
        let body = self.wanted(child, &kind, &key)?;
        let uid = self.object.meta().uid.as_deref().unwrap_or_default();
        let listers = &self.ctx.world.listers;
        if !listers.broods.iter().any(|brood| *brood.kind() == kind) {
            let controller = listers.controller.clone();
            return Err(Error::terminal(ChildError::NotOwned { kind, controller }));
        }
        let failed = |action: &'static str| {
            let (kind, key) = (kind.clone(), key.clone());
            move |cause| ChildError::Api {
                action,
                kind,
                key,
                cause,
            }
        };
        let client = self.ctx.client();
        let mut there = child.cached(&key, listers)?;
        if there.is_none() {
            // The cache may be behind, or see a part of the kind only, and an apply does not ask whose the object is.
            there = child.live(&key, client).await.map_err(failed("read"))?;
        }
        let identity = Identity {
            kind: kind.clone(),
            key: key.clone(),
        };
        let applied = match there {
            Some(there) if !is_controlled_by(&there.meta, uid) => return Err(self.exists(kind, key)),
            // It comes anew when it is gone, and its going is told.
            Some(there) if there.meta.deletion_timestamp.is_some() => return Ok(identity),
            Some(there) if self.is_as_wanted(&kind, &key, &body, there.body.clone()) => return Ok(identity),
            Some(there) => {
                let mut body = body.clone();
                // Not to another object that has taken its name since.
                body["metadata"]["uid"] = json!(there.meta.uid);
                let parameters = self.field_manager().force();
                let applied = child.apply(&key, client, &parameters, &body).await;
                tracing::info!(kind = kind.kind, child = %key, "applied a child");
                applied.map_err(failed("apply"))?.0
            }
            None => {
                // Without force: what somebody else made in this moment is not overwritten.
                let (made, status) = child
                    .apply(&key, client, &self.field_manager(), &body)
                    .await
                    .map_err(failed("create"))?;
                if status != StatusCode::CREATED && self.is_others(&made.meta) {
                    self.take_back(child, &kind, &key).await.map_err(failed("take back"))?;
                    return Err(self.exists(kind, key));
                }
                tracing::info!(kind = kind.kind, child = %key, "created a child");
                made
            }
        };
        let deed = Deed {
            wanted: fingerprint(&body),
            there: fingerprint(&content(applied.body)),
        };
        self.memory.lock().applied(self.key, &kind.kind, &key, deed);
        Ok(identity)
    }

    /// Where the child is: in the object's namespace, unless either of them has none.
    fn place(&self, child: &dyn Child, kind: &KindName) -> Result<ObjectKey, Error> {
        let meta = child.meta();
        let Some(name) = meta.name.as_deref().filter(|name| !name.is_empty()) else {
            return Err(Error::terminal(ChildError::Nameless { kind: kind.clone() }));
        };
        let own = self.key.namespace();
        let namespace = match meta.namespace.as_deref() {
            _ if child.is_cluster_scoped() => None,
            None => own,
            said => said,
        };
        let key = namespace.map_or_else(
            || ObjectKey::cluster(name),
            |namespace| ObjectKey::namespaced(namespace, name),
        );
        // An object outside namespaces may have children everywhere.
        if own.is_some() && own != namespace {
            return Err(Error::terminal(ChildError::Elsewhere {
                kind: kind.clone(),
                key,
                namespace: own.map(str::to_owned),
            }));
        }
        Ok(key)
    }

    /// The body to apply: what the author says, and the marks of a child.
    fn wanted(&self, child: &dyn Child, kind: &KindName, key: &ObjectKey) -> Result<Value, Error> {
        let unserialisable = |cause| {
            let what = format!("{} {key}", kind.kind);
            Error::terminal(ChildError::Unserialisable { what, cause })
        };
        let mut body = child.body().map_err(unserialisable)?;
        body["apiVersion"] = json!(kind.api_version);
        body["kind"] = json!(kind.kind);
        strip(&mut body);
        let metadata = &mut body["metadata"];
        metadata["name"] = json!(key.name());
        if let Some(namespace) = key.namespace() {
            metadata["namespace"] = json!(namespace);
        }
        metadata["labels"][CONTROLLER] = json!(self.ctx.world.listers.controller);
        let owner = self.object.controller_owner_ref(self.kind);
        metadata["ownerReferences"] = json!(owner.into_iter().collect::<Vec<_>>());
        let fingerprint = fingerprint(&body);
        body["metadata"]["annotations"][APPLIED] = json!(format!("{fingerprint:016x}"));
        Ok(body)
    }

    fn is_as_wanted(&self, kind: &KindName, key: &ObjectKey, wanted: &Value, there: Value) -> bool {
        let path = ["metadata", "annotations", APPLIED];
        let applied = |body: &Value| path.iter().try_fold(body.clone(), |body, name| body.get(name).cloned());
        if applied(&there) == applied(wanted) && covers(&there, wanted) {
            return true;
        }
        let deed = Deed {
            wanted: fingerprint(wanted),
            there: fingerprint(&content(there)),
        };
        self.memory.lock().is_applied(self.key, &kind.kind, key, deed)
    }

    fn field_manager(&self) -> PatchParams {
        PatchParams {
            field_manager: Some(self.ctx.world.listers.controller.clone()),
            ..PatchParams::default()
        }
    }

    /// Whether anybody else has a part in the object, apart from its status.
    fn is_others(&self, meta: &ObjectMeta) -> bool {
        let mut managers = meta.managed_fields.iter().flatten();
        managers.any(|entry| {
            let ours = entry.manager.as_deref() == Some(&*self.ctx.world.listers.controller);
            !ours && entry.subresource.as_deref().unwrap_or_default().is_empty()
        })
    }

    /// Takes back what an apply added to somebody else's object: applying nothing gives up all fields.
    async fn take_back(&self, child: &dyn Child, kind: &KindName, key: &ObjectKey) -> Result<(), kube::Error> {
        let nothing = json!({
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": { "name": key.name(), "namespace": key.namespace() },
        });
        let parameters = self.field_manager();
        child
            .apply(key, self.ctx.client(), &parameters, &nothing)
            .await
            .map(drop)
    }

    fn exists(&self, kind: KindName, key: ObjectKey) -> Error {
        let owner = K::kind(self.kind).into_owned();
        ChildError::Exists { kind, key, owner }.into()
    }
}

/// Takes out what is the server's to say.
fn strip(body: &mut Value) {
    if let Some(body) = body.as_object_mut() {
        body.remove("status");
    }
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in [
            "managedFields",
            "resourceVersion",
            "uid",
            "creationTimestamp",
            "generation",
            "selfLink",
        ] {
            metadata.remove(name);
        }
    }
}
