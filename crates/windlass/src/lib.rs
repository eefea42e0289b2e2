//! The toolkit for Kubernetes controllers in Rust.
//!
//! A controller keeps the world as an object asks for it to be. You say what should be there for an object; Windlass
//! watches, caches, queues, applies, prunes, retries and stops.
//!
//! # From zero to a running controller
//!
//! Depend on `windlass`, and on nothing else. This is Kubernetes' sample controller, whole: `operators/foo`, line by line,
//! where its tests are too, and the role that it needs:
//!
#![doc = concat!("```no_run\n", include_str!("../examples/foo.rs"), "\n```")]
//!
//! 1. **Types.** [`resource`] makes a struct the spec of a kind of your own, [`part`] its status and what is inside. Built-in
//!    kinds come from [`k8s_openapi`].
//! 2. **What should be there.** `desired` is called for every object, whenever it or one of its children changes. It says what
//!    should be, not what to do: [`Desired`](runtime::Desired) children are applied under the controller's name, get an
//!    owner reference, and are deleted when they are not said any more. Listers read caches that are complete.
//!    When nothing differs nothing is written, and an object of somebody else is never touched. An error is tried again,
//!    ever more seldom; what only people can put right ([`Error::terminal`](runtime::Error::terminal), or what the server
//!    refuses for good) is told as a warning that `kubectl describe` shows.
//! 3. **A controller** names the kinds that matter: its own, those it owns, watches or reads; how many workers it has, and
//!    who its writes and events come from.
//! 4. **`main`.** [`launch`](runtime::launch) reads flags (`--help` tells them), sets up logs, finds the cluster, and runs
//!    until the process is told to stop. `--leader-elect` makes many of them one. Health, metrics and debug
//!    pages are served on 127.0.0.1:8080; a pod passes `--listen=0.0.0.0:8080`, so that kubelet and Prometheus reach the first
//!    two, and `--debug-listen=127.0.0.1:8081` for `kubectl port-forward`.
//!
//! Try it: `cargo run --example foo -- --install` with a kubeconfig, or see `windlass demo` for one without a cluster.
//!
//! # Step by step instead
//!
//! Where what is to be done is no set of objects, reconcile by hand. The function gets a key, reads what it needs, and
//! writes. It is called again after every change, so it starts from what it finds, not from what happened.
//!
//! ```no_run
//! use windlass::k8s_openapi::api::core::v1::Node;
//! use windlass::prelude::*;
//!
//! /// Nodes that are told so by an annotation are made unschedulable.
//! async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
//!     let Some(node) = ctx.lister::<Node>()?.get(&request.key) else {
//!         return Ok(Action::done()); // it is gone
//!     };
//!     let is_unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
//!     if node.annotations().contains_key("example.com/rest") && !is_unschedulable {
//!         ctx.writer().merge(&*node, &json!({ "spec": { "unschedulable": true } })).await?; // an error is retried
//!         ctx.recorder().normal(&node, "Resting", "made unschedulable");
//!     }
//!     Ok(Action::done())
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     launch("rest", [], |manager| manager.controller(Controller::<Node>::new("rest").reconcile(reconcile)))
//! }
//! ```
//!
//! Both styles go together: [`Context::bring_about`](runtime::Context::bring_about) makes what should be there one step of
//! such a function. A whole one that does, with joins, an index and a status, is in `operators/icecream`.
//!
//! # Where to look
//!
//! [`runtime`] has the controller and the manager, [`cache`] what a lister reads and how it stays current, [`workqueue`]
//! the order and pace of work. This crate has nothing of its own: it names the versions that belong together.

pub use k8s_openapi;
pub use kube;
pub use schemars;
pub use serde;
pub use serde_json;
pub use tracing;
pub use windlass_cache as cache;
pub use windlass_macros::{part, resource};
pub use windlass_runtime as runtime;
pub use windlass_workqueue as workqueue;

/// What almost every controller uses.
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
        Action, Conditions, Context, Controller, Desired, Error, Finding, Manager, Options, Predicate,
        Reconciler, Request, Watch, launch, launch_with,
    };
}
