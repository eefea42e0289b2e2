//! Writes, with what every write of a controller should carry: a field manager, a precondition where one is known, and
//! an error that says what was being written.
//!
//! ```text
//!   Writer ── one request ──► kube::Client (its layers: caches, fences, limits) ──► the server
//!     │ knows: field manager, dry run, for dynamic kinds the resource
//!     └ error.rs: which verb, kind and object; what the server said
//! ```
//!
//! It holds no state and starts no task. Reads are `kube::Api` or a lister.

mod apply;
mod delete;
mod error;
mod evict;
mod finalizers;

use std::{fmt::Debug, sync::Arc};

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
use windlass_cache::{ObjectKey, is_cluster_scoped};

use crate::names::is_path_segment;

pub use apply::{Applied, Apply};
pub use delete::Deleted;
pub use error::{Refusal, WriteError, WriteErrorKind};
pub use evict::Evicted;
pub use finalizers::{InvalidFinalizer, check_finalizer};

/// A kind that can be written. Every type that can be written with `kube::Api` is one.
pub trait Writable: Resource<Scope: 'static> + Serialize + DeserializeOwned + Clone + Debug {}

impl<K: Resource<Scope: 'static> + Serialize + DeserializeOwned + Clone + Debug> Writable for K {}

/// Writes objects in the name of one field manager. Clones are cheap.
///
/// Every method is one request, or none if there is nothing to do. The kind comes from the object, its namespace and
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
/// A type does not know the kind of a `DynamicObject`; [`of`](Self::of) tells it, and all methods are the same:
///
/// ```no_run
/// # use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
/// # use windlass_runtime::{Writer, WriteError};
/// # async fn example(writer: Writer) -> Result<(), WriteError> {
/// let foos = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
/// let foo = DynamicObject::new("a", &foos).within("shop");
/// writer.of(foos).apply(&foo).await?;
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
    /// Writes with this client. The field manager is who the server notes as the author of fields: one name per
    /// controller, for example `foo-controller`, at most 128 characters.
    pub fn new(client: Client, field_manager: impl Into<Arc<str>>) -> Self {
        Self {
            client,
            field_manager: field_manager.into(),
            dry_run: false,
            dynamic: (),
        }
    }

    /// The same writer for objects whose kind is known at run time.
    pub fn of(&self, resource: ApiResource) -> Writer<ApiResource> {
        Writer {
            client: self.client.clone(),
            field_manager: Arc::clone(&self.field_manager),
            dry_run: self.dry_run,
            dynamic: resource,
        }
    }
}

impl<D> Writer<D> {
    /// Has the server check and answer every write, and store none. Default: they are stored.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Whether nothing is stored.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The client that it writes with; for live reads.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The name under which it writes.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// Creates the object; one that is there already is an [error](WriteError::is_already_exists).
    ///
    /// An object that is [applied](Self::apply) later is better applied from the start: the server keeps what was
    /// created and what was applied apart, and fields that are no longer applied stay if they were created.
    /// [`Apply::new_object`] is as particular.
    pub async fn create<K: Writable<DynamicType = D>>(&self, object: &K) -> Result<K, WriteError> {
        let target = self.target("create", object);
        let path = target.collection()?;
        let body = target.body(object)?;
        let request = kube::core::Request::new(path).create(&self.post(), bytes(&body));
        self.send(&target, request).await.map(|(_, created)| created)
    }

    /// Replaces the whole object by this one, if it is still the version that this one was made from; else it is a
    /// [conflict](WriteError::is_conflict).
    ///
    /// An object without resource version is refused without a request: it would overwrite what others wrote since.
    pub async fn replace<K: Writable<DynamicType = D>>(&self, object: &K) -> Result<K, WriteError> {
        self.put(self.target("replace", object), object, None).await
    }

    /// Replaces the status of the object by this one's, if it still is the version that this one was made from; else it is a
    /// [conflict](WriteError::is_conflict). Of the rest of the object nothing is written.
    ///
    /// For a status that is more than an account: one in which something is given away, so that of two who try one has to
    /// look again. Where it is an account, [`apply_status`](Self::apply_status) needs no version.
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
            return Err(target.refuse(Refusal::NoResourceVersion));
        }
        let body = bytes(&target.body(object)?);
        let (resource, name) = (kube::core::Request::new(path), target.key.name());
        let request = match subresource {
            None => resource.replace(name, &self.post(), body),
            Some(subresource) => resource.replace_subresource(subresource, name, &self.post(), body),
        };
        self.send(&target, request).await.map(|(_, replaced)| replaced)
    }

    /// Changes the fields in `patch` (a JSON merge patch: `null` removes, lists are replaced whole) and leaves the others.
    ///
    /// Only this very object: if it has a uid, its successor of the same name is left alone and the error says
    /// [so](WriteError::is_other_object). A `metadata.resourceVersion` in the patch also makes it fail if anything
    /// changed since.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Node;
    /// # use windlass_runtime::{Writer, WriteError};
    /// # async fn example(writer: Writer, node: Node) -> Result<(), WriteError> {
    /// let mark = serde_json::json!({ "metadata": { "annotations": { "example.com/reboot-now": null } } });
    /// let node = writer.merge(&node, &mark).await?;
    /// # Ok(()) }
    /// ```
    pub async fn merge<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        patch: &impl Serialize,
    ) -> Result<K, WriteError> {
        let target = self.target("patch", object);
        let mut patch =
            serde_json::to_value(patch).map_err(|error| target.refuse(Refusal::Unserializable(error)))?;
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

    /// Sends a request; an answer that says no is an error with the status that the server gave.
    async fn send<T: DeserializeOwned>(
        &self,
        target: &Target,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(StatusCode, T), WriteError> {
        let failed = |error| target.failed(WriteErrorKind::Client(Box::new(error)));
        let mut request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        // kube's own calls name themselves like this, for its traces.
        request.extensions_mut().insert(target.verb);
        let response = self.client.send(request.map(Body::from)).await.map_err(failed)?;
        let code = response.status();
        let body = response.into_body().collect().await.map_err(failed)?.to_bytes();
        if code.is_success() {
            let read =
                serde_json::from_slice(&body).map_err(|error| failed(kube::Error::SerdeError(error)))?;
            return Ok((code, read));
        }
        let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(&body);
            Status::failure(&text, code.canonical_reason().unwrap_or("unknown")).with_code(code.as_u16())
        });
        Err(target.failed(WriteErrorKind::Server(Box::new(status))))
    }
}

/// What is written, and how.
struct Target {
    verb: &'static str,
    api_version: String,
    kind: String,
    key: ObjectKey,
    collection: String,
    lacks_namespace: bool,
}

impl Target {
    /// Where objects of this kind and namespace are.
    fn collection(&self) -> Result<&str, WriteError> {
        // Without it the server would only say that there is no such path.
        if self.lacks_namespace {
            return Err(self.refuse(Refusal::NoNamespace));
        }
        Ok(&self.collection)
    }

    /// The collection of an object that has a name.
    fn path(&self) -> Result<&str, WriteError> {
        if self.key.name().is_empty() {
            return Err(self.refuse(Refusal::NoName));
        }
        if !is_path_segment(self.key.name()) {
            return Err(self.refuse(Refusal::NotAName(self.key.name().to_owned())));
        }
        self.collection()
    }

    /// The object as JSON, with the kind that a dynamic one may leave out.
    fn body(&self, object: &impl Serialize) -> Result<Value, WriteError> {
        let mut body =
            serde_json::to_value(object).map_err(|error| self.refuse(Refusal::Unserializable(error)))?;
        if let Some(fields) = body.as_object_mut() {
            fields.insert("apiVersion".to_owned(), self.api_version.as_str().into());
            fields.insert("kind".to_owned(), self.kind.as_str().into());
        }
        Ok(body)
    }

    fn refuse(&self, why: Refusal) -> WriteError {
        self.failed(WriteErrorKind::Refused(why))
    }

    fn failed(&self, kind: WriteErrorKind) -> WriteError {
        WriteError::new(self.verb, self.kind.clone(), self.key.clone(), kind)
    }
}

fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}
