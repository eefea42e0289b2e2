//! A toolkit for Kubernetes controllers in Rust.
//!
//! You declare the desired state of an object; Windlass watches, caches, queues, applies, prunes, retries and shuts
//! down.
//!
//! # From zero to a running controller
//!
//! `windlass` is the only dependency, see [below](#dependencies). This is Kubernetes' sample controller, complete.
//! `operators/foo` has the same code with its tests and the role that it needs:
//!
#![doc = concat!("```no_run\n", include_str!("../examples/foo.rs"), "\n```")]
//!
//! 1. **Types.** [`resource`] makes a struct the spec of a custom resource, [`api_type`] its status and nested types.
//!    Built-in kinds come from [`k8s_openapi`].
//! 2. **Desired state.** `desired` is called for every object, whenever the object or one of its children changes. It
//!    returns the desired state: [`Desired`](runtime::Desired) children are applied with the controller's field
//!    manager, get an owner reference, and are deleted when they are no longer desired, but
//!    [never by accident](runtime::PrunePolicy). Listers read synced caches. Nothing is written if nothing differs, and
//!    objects of other owners are never touched. An error is retried with backoff; an error that needs a user
//!    ([`Error::terminal`](runtime::Error::terminal), or a rejection by the server) becomes a warning event that
//!    `kubectl describe` shows. If the status has `conditions`, they tell [every outcome](runtime::READY_CONDITION).
//! 3. **The controller** declares its kinds (its own, those it owns, watches or reads), the number of workers, and the
//!    field manager of its writes and events.
//! 4. **`main`.** [`launch`](runtime::launch) parses flags (see `--help`), sets up logs, connects to the cluster, and
//!    runs until a signal stops the process. With `--leader-elect`, only one of several replicas is active. Health,
//!    metrics and debug pages are served on 127.0.0.1:8080; in a pod, pass `--listen=0.0.0.0:8080`, so that kubelet and
//!    Prometheus reach the first two, and `--debug-listen=127.0.0.1:8081` for `kubectl port-forward`.
//!
//! Try it: `cargo run --example foo -- --install` with a kubeconfig, or `windlass demo` without a cluster.
//!
//! # Imperative style
//!
//! If the work is not a set of objects, write the reconcile function yourself. It gets a key, reads what it needs, and
//! writes. It is called again after every change, so it acts on the current state, not on events.
//!
//! ```no_run
//! use windlass::k8s_openapi::api::core::v1::Node;
//! use windlass::prelude::*;
//!
//! /// Cordons nodes with the annotation `example.com/rest`.
//! async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
//!     let Some(node) = ctx.lister::<Node>()?.get(&request.key) else {
//!         return Ok(Action::done()); // deleted
//!     };
//!     let is_unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
//!     if node.annotations().contains_key("example.com/rest") && !is_unschedulable {
//!         ctx.writer().merge_patch(&*node, &json!({ "spec": { "unschedulable": true } })).await?; // an error is retried
//!         ctx.recorder().normal(&node, "Cordoned", "made unschedulable");
//!     }
//!     Ok(Action::done())
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     launch("rest", [], |manager| manager.controller(Controller::<Node>::new("rest").reconcile(reconcile)))
//! }
//! ```
//!
//! The styles can be combined: [`Context::apply_desired`](runtime::Context::apply_desired) applies a desired state as
//! one step of such a function. `operators/icecream` is a complete example, with joins, an index and a status.
//!
//! If the work is not about the objects of one kind, a controller has keys of its own type instead:
//! [`Keyed`](runtime::Keyed). `operators/secretsync` is an example, where a key is a sync in a namespace.
//!
//! # Validation
//!
//! `schemars` attributes such as `#[schemars(range(min = 1))]` become part of the schema. Rules in CEL and merge
//! strategies of lists and maps are `x_kube` attributes, as with kube's `KubeSchema` derive. Rules about the name are a
//! `kube` attribute:
//!
//! ```
//! use windlass::{k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition, prelude::*};
//!
//! #[windlass::resource(group = "example.com", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
//! #[kube(validation = Rule::new("self.metadata.name.size() < 20").message("the name is too long"))]
//! #[x_kube(validation = Rule::new("self.min <= self.max").message("min must not be greater than max"))]
//! struct WebsiteSpec {
//!     min: u32,
//!     max: u32,
//!     #[x_kube(validation = Rule::new("self == oldSelf").message("host is immutable"))]
//!     host: String,
//! }
//!
//! #[windlass::api_type]
//! struct WebsiteStatus {
//!     /// Merged by type, so that several controllers can write conditions.
//!     #[serde(default)]
//!     #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
//!     conditions: Vec<Condition>,
//! }
//!
//! let crd = windlass::serde_json::to_value(Website::crd()).unwrap();
//! let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
//! assert_eq!(schema["x-kubernetes-validations"][0]["message"], "the name is too long");
//! let schema = &schema["properties"];
//! assert_eq!(schema["spec"]["x-kubernetes-validations"][0]["rule"], "self.min <= self.max");
//! let host = &schema["spec"]["properties"]["host"];
//! assert_eq!(host["x-kubernetes-validations"][0]["message"], "host is immutable");
//! assert_eq!(schema["status"]["properties"]["conditions"]["x-kubernetes-list-type"], "map");
//! ```
//!
//! The embedded API server enforces the rules as a real one does.
//!
//! # Dependencies
//!
//! A controller needs no other crate for Kubernetes, asynchronous code or flags: [`kube`], [`k8s_openapi`], [`serde`],
//! [`serde_json`], [`schemars`], [`tokio`], [`futures`], [`clap`] and [`tracing`] are re-exported, in versions that match.
//! Some macros name their crate; import it where you use them:
//!
//! ```no_run
//! use windlass::{clap, prelude::*, tokio};
//!
//! #[derive(clap::Parser)]
//! struct Program {
//!     /// Seconds until an object expires
//!     #[arg(long, default_value_t = 3600)]
//!     ttl: u64,
//!     #[command(flatten)]
//!     options: Options,
//! }
//!
//! #[tokio::main]
//! async fn main() {
//!     let program = <Program as clap::Parser>::parse();
//!     println!("{}", program.ttl);
//! }
//! ```
//!
//! # Tests
//!
//! [`testing`] has unit tests of `desired` without a cluster. The crate `windlass-cluster` starts an embedded cluster
//! inside a test. With the feature `test-util` a test can pause the clock (`#[tokio::test(start_paused = true)]`), and all
//! timers and timestamps follow it: an hour takes milliseconds.
//!
//! ```toml
//! [dev-dependencies]
//! windlass = { version = "0.1", features = ["test-util"] }
//! windlass-cluster = "0.1"
//! ```
//!
//! # Traces and metrics
//!
//! With the feature `opentelemetry`, [`launch`](runtime::launch) exports a span of each reconcile, and the metrics of
//! `/metrics`, over OTLP to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names: see `runtime::Telemetry`.
//!
//! # Webhooks
//!
//! With the feature `webhook`, the module `webhook` has admission and conversion webhooks: functions over your own types,
//! served beside the controllers, with certificates that are made and renewed by themselves. `docs/webhooks.md` is the
//! guide, and `examples/webhook.rs` a complete program.
//!
//! # Where to look
//!
//! [`runtime`] has the controller and the manager, [`cache`] the listers and their caches, [`workqueue`] the queue with
//! priorities and backoff, and [`api`] Kubernetes' rules for quantities, names, selectors and conditions. This crate
//! only re-exports them, with dependencies in matching versions.

mod precompiled;
pub mod schemas;

#[cfg(feature = "clap")]
pub use clap;
pub use futures;
pub use k8s_openapi;
pub use kube;
pub use schemars;
pub use serde;
pub use serde_json;
pub use tokio;
pub use tracing;
pub use windlass_api as api;
pub use windlass_cache as cache;
pub use windlass_macros::{api_type, resource};
pub use windlass_runtime as runtime;
pub use windlass_runtime::testing;
#[cfg(feature = "webhook")]
pub use windlass_webhook as webhook;
pub use windlass_workqueue as workqueue;

/// What the code of kube's `KubeSchema` derive names without a path. Only for the macros.
#[doc(hidden)]
pub mod kube_schema_names {
    pub use schemars;
}

/// The items that almost every controller uses.
///
/// ```
/// use windlass::prelude::*;
/// ```
pub mod prelude {
    pub use std::sync::Arc;

    pub use kube::{Client, CustomResourceExt, Resource, ResourceExt};
    pub use serde_json::{from_value, json};
    pub use windlass_cache::{Change, Lister, ObjectKey, Query};
    pub use windlass_runtime::{
        Action, ConditionUpdate, Conditions, Context, Controller, Desired, Error, Manager, Options,
        Predicate, Reconciler, Request, Watch,
    };
    #[cfg(all(feature = "clap", feature = "logging"))]
    pub use windlass_runtime::{launch, launch_with};
}
