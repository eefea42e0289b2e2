//! Tools for tests of controllers.
//!
//! - [`context`] makes a [`Context`] from a few objects, for unit tests of `desired` without a cluster. [`inspect`] reads
//!   the desired state that it returns, [`events`] the events that it recorded.
//! - [`outside`] holds a paused clock while real I/O is pending.
//!
//! What a controller does over time is tested on an embedded cluster (`windlass_cluster::Cluster::embedded`), with
//! `#[tokio::test(start_paused = true)]`: waits, [`Context::now`], events, conditions and all timestamps of the embedded
//! API server follow the paused clock, so that an hour takes milliseconds.
//!
//! ```
//! use std::sync::Arc;
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use windlass_runtime::{Context, Desired, Error, testing};
//!
//! /// Notes in every ConfigMap's copy whether the Secret of the same name exists.
//! async fn desired(config: Arc<ConfigMap>, ctx: Context) -> Result<Desired, Error> {
//!     let name = config.metadata.name.clone().unwrap_or_default();
//!     let found = ctx.get::<Secret>(&name)?.is_some();
//!     let mut copy = ConfigMap::default();
//!     copy.metadata.name = Some(format!("{name}-copy"));
//!     copy.data = Some([("found".to_owned(), found.to_string())].into());
//!     Ok(Desired::new().child(copy))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
//! let named = |name: &str| kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
//! let config = ConfigMap { metadata: named("web"), ..ConfigMap::default() };
//! let secret = Secret { metadata: named("web"), ..Secret::default() };
//! let ctx = testing::context(&config).objects([secret]).build()?;
//!
//! let desired = desired(Arc::new(config), ctx.clone()).await?;
//!
//! let copy: ConfigMap = testing::inspect(&desired).child("web-copy")?;
//! assert_eq!(copy.data.unwrap()["found"], "true");
//! assert!(testing::events(&ctx).is_empty());
//! # Ok(()) }
//! ```

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::Arc,
};

use http::{Request as HttpRequest, Response};
use k8s_openapi::api::core::v1::Event;
use kube::{Client, Resource, client::Body};
use serde::Serialize;
use tokio::time::Instant;
use windlass_cache::{Cacheable, Lister, ObjectKey, is_cluster_scoped};
use windlass_workqueue::WorkQueue;

pub use windlass_clock::outside;

pub use crate::children::DesiredView;
use crate::{
    children::{ChildOptions, Desired},
    error::Error,
    events::Recorder,
    listers::Listers,
    reconcile::{Context, ReconcileId, Run, TermContext},
    stop::StopSignal,
    trigger::Trigger,
    writer::Writer,
};

/// Name of the controller and field manager of a context for tests.
const CONTROLLER: &str = "test";

/// Namespace of objects without one.
const DEFAULT_NAMESPACE: &str = "default";

/// Starts to build a [`Context`] in which `object` is reconciled, without a cluster.
///
/// Its listers have exactly the given objects: `object` itself, and those of [`ContextBuilder::objects`]. Objects of
/// namespaced kinds without a namespace are in that of `object`, which is `default` by default.
///
/// The module's documentation has an example.
pub fn context<K>(object: &K) -> ContextBuilder
where
    K: Cacheable + Clone + Serialize + Resource<DynamicType: Default>,
{
    let meta = object.meta();
    let namespace = meta
        .namespace
        .clone()
        .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let name = meta.name.clone().unwrap_or_default();
    let key = if is_cluster_scoped::<K>() {
        ObjectKey::cluster_scoped(name)
    } else {
        ObjectKey::namespaced(&*namespace, name)
    };
    let builder = ContextBuilder {
        key,
        namespace,
        kinds: HashMap::new(),
        client: None,
    };
    builder.objects([object.clone()])
}

/// Returns the events that were recorded with this context, of [`context`], since the last call.
pub fn events(ctx: &Context) -> Vec<Event> {
    ctx.recorder().take_events()
}

/// Reads a desired state: its children, status, conditions and requeue.
pub fn inspect(desired: &Desired) -> DesiredView<'_> {
    DesiredView::new(desired)
}

/// Builds a [`Context`] for unit tests; see [`context`].
#[must_use = "call `build`"]
pub struct ContextBuilder {
    key: ObjectKey,
    namespace: String,
    kinds: HashMap<TypeId, Kind>,
    client: Option<Client>,
}

/// The objects of one kind, without their type.
struct Kind {
    /// A `Vec<K>`.
    objects: Box<dyn Any>,
    /// Makes a lister of them.
    insert: fn(Box<dyn Any>, &mut Listers) -> Result<(), String>,
}

impl ContextBuilder {
    /// Adds objects of a kind. Without objects, the kind is declared and has none. The lister of a kind that is not
    /// declared is an error, as in a controller that neither owns, watches nor reads it.
    pub fn objects<K>(mut self, objects: impl IntoIterator<Item = K>) -> Self
    where
        K: Cacheable + Serialize + Resource<DynamicType: Default>,
    {
        let kind = self.kinds.entry(TypeId::of::<K>()).or_insert_with(|| Kind {
            objects: Box::new(Vec::<K>::new()),
            insert: insert::<K>,
        });
        let all = kind
            .objects
            .downcast_mut::<Vec<K>>()
            .expect("the key is its type");
        let namespace = &self.namespace;
        all.extend(objects.into_iter().map(|mut object| {
            if !is_cluster_scoped::<K>() {
                let meta = object.meta_mut();
                meta.namespace.get_or_insert_with(|| namespace.clone());
            }
            object
        }));
        self
    }

    /// Sets the client of writes and uncached reads. Default: each request fails, and says so.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Builds the context. Must be called within a tokio runtime, such as that of `#[tokio::test]`.
    ///
    /// Fails if an object has no name.
    pub fn build(self) -> Result<Context, Error> {
        let mut listers = Listers::new(CONTROLLER.to_owned(), ChildOptions::default());
        for kind in self.kinds.into_values() {
            (kind.insert)(kind.objects, &mut listers)?;
        }
        let client = self.client.unwrap_or_else(failing_client);
        let term = TermContext {
            writer: Writer::new(client, CONTROLLER),
            recorder: Recorder::without_writer(CONTROLLER),
            listers: Arc::new(listers),
            queue: WorkQueue::builder().build_tagged(),
            stop: StopSignal::never(),
            epoch: None,
            history: parking_lot::Mutex::default(),
        };
        Ok(Context {
            term: Arc::new(term),
            run: Arc::new(Run {
                key: self.key,
                id: ReconcileId::new(),
                trigger: Trigger::default(),
                is_last_attempt: false,
                since: Instant::now(),
            }),
        })
    }
}

fn insert<K>(objects: Box<dyn Any>, listers: &mut Listers) -> Result<(), String>
where
    K: Cacheable + Serialize + Resource<DynamicType: Default>,
{
    let objects = objects.downcast::<Vec<K>>().expect("the key is its type");
    listers.insert(&K::DynamicType::default(), Lister::fixed(*objects)?);
    Ok(())
}

fn failing_client() -> Client {
    let service = tower::service_fn(|request: HttpRequest<Body>| async move {
        let (method, path) = (request.method(), request.uri().path());
        Err::<Response<Body>, _>(format!(
            "cannot send {method} {path}: this context for tests has no cluster; give it a client, or use an embedded \
             cluster"
        ))
    });
    Client::new(service, DEFAULT_NAMESPACE)
}
