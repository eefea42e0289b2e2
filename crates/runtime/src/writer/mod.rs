//! Writes with a field manager, preconditions where they are known, and errors that name the object.
//!
//! ```text
//!   Writer ── one request ──► kube::Client (layers: caches, fences, limits) ──► API server
//!     │ holds: field manager, dry run, for dynamic kinds the resource
//!     └ WriteError: verb, kind, object, and the server's status
//! ```
//!
//! A writer has no mutable state and starts no task. For reads use a lister or `kube::Api`.

mod apply;
mod delete;
mod error;
mod evict;
mod finalizers;

use std::{fmt::Debug, sync::Arc};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::{
    Client, Resource,
    api::{ApiResource, Patch, PatchParams, PostParams},
    client::Body,
    core::Status,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use windlass_api::naming::is_path_segment;
use windlass_cache::{ObjectKey, is_cluster_scoped};

pub use apply::{ApplyOptions, ApplyOutcome};
pub use delete::DeleteOutcome;
pub use error::{InvalidWrite, WriteError, WriteErrorKind};
pub use evict::EvictOutcome;
pub use finalizers::{InvalidFinalizer, check_finalizer};

/// A kind that can be written. Implemented for every type that `kube::Api` can write.
pub trait Writable: Resource<Scope: 'static> + Serialize + DeserializeOwned + Clone + Debug {}

impl<K: Resource<Scope: 'static> + Serialize + DeserializeOwned + Clone + Debug> Writable for K {}

/// Writes objects with one field manager. Clones are cheap.
///
/// Every method sends one request, or none if there is nothing to do. The kind comes from the object's type, namespace and
/// name from its metadata:
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass_runtime::{Writer, WriteError};
/// # async fn example(client: kube::Client, mut config: ConfigMap) -> Result<(), WriteError> {
/// let writer = Writer::new(client, "welcome.example.com");
/// let config = writer.add_finalizer(&config, "welcome.example.com/tidy").await?;
/// writer.delete(&config).await?;
/// # Ok(()) }
/// ```
///
/// For a `DynamicObject`, [`dynamic`](Self::dynamic) returns a writer for its kind with the same methods:
///
/// ```no_run
/// # use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
/// # use windlass_runtime::{Writer, WriteError};
/// # async fn example(writer: Writer) -> Result<(), WriteError> {
/// let foos = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
/// let foo = DynamicObject::new("a", &foos).within("shop");
/// writer.dynamic(foos).apply(&foo).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Writer<D = ()> {
    client: Client,
    field_manager: Arc<str>,
    dry_run: bool,
    dynamic: D,
}

impl Writer {
    /// Creates a writer. The field manager is recorded in `managedFields`: one name per controller, for example
    /// `foo-controller`, at most 128 characters.
    pub fn new(client: Client, field_manager: impl Into<Arc<str>>) -> Self {
        Self {
            client,
            field_manager: field_manager.into(),
            dry_run: false,
            dynamic: (),
        }
    }

    /// Returns the same writer for objects of a kind known only at run time.
    pub fn dynamic(&self, resource: ApiResource) -> Writer<ApiResource> {
        Writer {
            client: self.client.clone(),
            field_manager: Arc::clone(&self.field_manager),
            dry_run: self.dry_run,
            dynamic: resource,
        }
    }
}

impl<D> Writer<D> {
    /// Makes every write a dry run: the server validates and answers it but persists nothing. Default: off.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Whether writes are dry runs.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Returns the client, for live reads.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the field manager.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// Creates the object. Fails if it [already exists](WriteError::is_already_exists).
    ///
    /// If the object is [applied](Self::apply) later, create it with an apply too: the server tracks created and applied
    /// fields separately, so a created field stays when it is no longer applied. [`ApplyOptions::require_absent`] fails for an
    /// existing object like a create.
    pub async fn create<K: Writable<DynamicType = D>>(&self, object: &K) -> Result<K, WriteError> {
        let target = self.target("create", object);
        let path = target.collection()?;
        let body = target.body(object)?;
        let request = kube::core::Request::new(path).create(&self.post(), bytes(&body));
        self.send(&target, request).await.map(|(_, created)| created)
    }

    /// Replaces the whole object. Fails with a [conflict](WriteError::is_conflict) if its resource version has changed.
    ///
    /// An object without a resource version is rejected without a request, because it would overwrite concurrent changes.
    pub async fn replace<K: Writable<DynamicType = D>>(&self, object: &K) -> Result<K, WriteError> {
        self.put(self.target("replace", object), object, None).await
    }

    /// Replaces only the status of the object. Fails with a [conflict](WriteError::is_conflict) if its resource version has
    /// changed.
    ///
    /// For a status that allocates something, so that of two concurrent writers one must read it again. For a status that
    /// only reports, use [`apply_status`](Self::apply_status), which needs no resource version.
    pub async fn replace_status<K: Writable<DynamicType = D>>(&self, object: &K) -> Result<K, WriteError> {
        self.put(
            self.target("replace the status of", object),
            object,
            Some("status"),
        )
        .await
    }

    async fn put<K: Writable<DynamicType = D>>(
        &self,
        target: Target,
        object: &K,
        subresource: Option<&str>,
    ) -> Result<K, WriteError> {
        let path = target.path()?;
        if object
            .meta()
            .resource_version
            .as_deref()
            .is_none_or(str::is_empty)
        {
            return Err(target.invalid(InvalidWrite::NoResourceVersion));
        }
        let body = bytes(&target.body(object)?);
        let (resource, name) = (kube::core::Request::new(path), target.key.name());
        let request = match subresource {
            None => resource.replace(name, &self.post(), body),
            Some(subresource) => resource.replace_subresource(subresource, name, &self.post(), body),
        };
        self.send(&target, request).await.map(|(_, replaced)| replaced)
    }

    /// Applies a JSON merge patch: `null` removes a field, lists are replaced, other fields are kept.
    ///
    /// If the object has a UID, a recreated object of the same name is not patched, and the error is a
    /// [UID mismatch](WriteError::is_uid_mismatch). With a `metadata.resourceVersion` in the patch it also fails if the
    /// object has changed.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Node;
    /// # use windlass_runtime::{Writer, WriteError};
    /// # async fn example(writer: Writer, node: Node) -> Result<(), WriteError> {
    /// let patch = serde_json::json!({ "metadata": { "annotations": { "example.com/reboot-now": null } } });
    /// let node = writer.merge_patch(&node, &patch).await?;
    /// # Ok(()) }
    /// ```
    pub async fn merge_patch<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        patch: &impl Serialize,
    ) -> Result<K, WriteError> {
        let target = self.target("patch", object);
        let mut patch = serde_json::to_value(patch)
            .map_err(|error| target.invalid(InvalidWrite::Serialization(error)))?;
        if let (Some(uid), Some(fields)) = (&object.meta().uid, patch.as_object_mut()) {
            let metadata = fields
                .entry("metadata")
                .or_insert_with(|| Value::Object(serde_json::Map::new()));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("uid".to_owned(), uid.as_str().into());
            }
        }
        self.patch(&target, None, &Patch::Merge(patch), false)
            .await
            .map(|(_, patched)| patched)
    }

    async fn patch<K: DeserializeOwned>(
        &self,
        target: &Target,
        subresource: Option<&str>,
        patch: &Patch<Value>,
        force: bool,
    ) -> Result<(StatusCode, K), WriteError> {
        let params = PatchParams {
            dry_run: self.dry_run,
            force,
            field_manager: Some(self.field_manager.to_string()),
            field_validation: None,
        };
        let (resource, name) = (kube::core::Request::new(target.path()?), target.key.name());
        let request = match subresource {
            None => resource.patch(name, &params, patch),
            Some(subresource) => resource.patch_subresource(subresource, name, &params, patch),
        };
        self.send(target, request).await
    }

    fn post(&self) -> PostParams {
        PostParams {
            dry_run: self.dry_run,
            field_manager: Some(self.field_manager.to_string()),
        }
    }

    fn target<K: Writable<DynamicType = D>>(&self, verb: &'static str, object: &K) -> Target {
        let is_namespaced = !is_cluster_scoped::<K>();
        let namespace = object
            .meta()
            .namespace
            .as_deref()
            .filter(|namespace| is_namespaced && !namespace.is_empty());
        Target {
            verb,
            api_version: K::api_version(&self.dynamic).into_owned(),
            kind: K::kind(&self.dynamic).into_owned(),
            key: ObjectKey::of(object),
            collection: K::url_path(&self.dynamic, namespace),
            lacks_namespace: std::any::TypeId::of::<K::Scope>()
                == std::any::TypeId::of::<k8s_openapi::NamespaceResourceScope>()
                && namespace.is_none(),
        }
    }

    /// Sends a request. A response that is not successful becomes an error with the server's status.
    async fn send<T: DeserializeOwned>(
        &self,
        target: &Target,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(StatusCode, T), WriteError> {
        let (code, body) = send(&self.client, target, request).await?;
        let read = decode(&body).map_err(|error| {
            target.failed(WriteErrorKind::Client(Box::new(kube::Error::SerdeError(error))))
        })?;
        Ok((code, read))
    }
}

/// Sends a request and returns the successful response. Compiled once, not for each kind.
async fn send(
    client: &Client,
    target: &Target,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<(StatusCode, Bytes), WriteError> {
    let failed = |error| target.failed(WriteErrorKind::Client(Box::new(error)));
    let mut request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
    // Like kube's own calls, names the operation in traces.
    request.extensions_mut().insert(target.verb);
    let response = client.send(request.map(Body::from)).await.map_err(failed)?;
    let code = response.status();
    let body = response.into_body().collect().await.map_err(failed)?.to_bytes();
    if code.is_success() {
        return Ok((code, body));
    }
    let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body);
        Status::failure(&text, code.canonical_reason().unwrap_or("unknown")).with_code(code.as_u16())
    });
    Err(target.failed(WriteErrorKind::Server(Box::new(status))))
}

/// Decodes an object from text, as kube and the caches do: decoding a type from anything else compiles all of its fields
/// again.
pub(crate) fn decode<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    let text = std::str::from_utf8(json).map_err(serde::de::Error::custom)?;
    serde_json::from_str(text)
}

/// The object and verb of one write.
struct Target {
    verb: &'static str,
    api_version: String,
    kind: String,
    key: ObjectKey,
    collection: String,
    lacks_namespace: bool,
}

impl Target {
    /// The URL path of objects of this kind and namespace.
    fn collection(&self) -> Result<&str, WriteError> {
        // Without a namespace the server would only answer that there is no such path.
        if self.lacks_namespace {
            return Err(self.invalid(InvalidWrite::NoNamespace));
        }
        Ok(&self.collection)
    }

    /// Like [`collection`](Self::collection), but requires a valid name.
    fn path(&self) -> Result<&str, WriteError> {
        if self.key.name().is_empty() {
            return Err(self.invalid(InvalidWrite::NoName));
        }
        if !is_path_segment(self.key.name()) {
            return Err(self.invalid(InvalidWrite::InvalidName(self.key.name().to_owned())));
        }
        self.collection()
    }

    /// The object as JSON, with its `apiVersion` and `kind`.
    fn body(&self, object: &impl Serialize) -> Result<Value, WriteError> {
        let mut body =
            serde_json::to_value(object).map_err(|error| self.invalid(InvalidWrite::Serialization(error)))?;
        if let Some(fields) = body.as_object_mut() {
            fields.insert("apiVersion".to_owned(), self.api_version.as_str().into());
            fields.insert("kind".to_owned(), self.kind.as_str().into());
        }
        Ok(body)
    }

    fn invalid(&self, why: InvalidWrite) -> WriteError {
        self.failed(WriteErrorKind::Invalid(why))
    }

    fn failed(&self, kind: WriteErrorKind) -> WriteError {
        WriteError::new(self.verb, self.kind.clone(), self.key.clone(), kind)
    }
}

fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}
