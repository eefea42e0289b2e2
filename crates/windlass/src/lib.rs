//! The toolkit for Kubernetes controllers in Rust.
//!
//! A controller keeps the world as an object asks for it to be. You write one function that looks at an object and
//! does what is missing; Windlass watches, caches, queues, retries and stops.
//!
//! # From zero to a running controller
//!
//! 1. **A type.** A kind of your own is a struct with `kube`'s derive; built-in kinds come from `k8s-openapi`. Both are
//!    re-exported, as [`kube`] and [`k8s_openapi`], in the versions that fit.
//! 2. **A reconcile function.** It gets a key, reads what it needs from caches that are complete, and writes with the
//!    client. It is called again after every change, so it starts from what it finds, not from what happened.
//! 3. **A controller** says which kinds matter: its own, those it owns, those it watches or reads.
//! 4. **A manager** runs controllers on one set of caches until the process is told to stop.
//!
//! ```no_run
//! use windlass::k8s_openapi::api::core::v1::{ConfigMap, Namespace};
//! use windlass::kube::{Api, api::PostParams};
//! use windlass::prelude::*;
//!
//! /// Every namespace gets a ConfigMap `welcome` with its name in it.
//! async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
//!     let name = request.key.name();
//!     let welcome = ObjectKey::namespaced(name, "welcome");
//!     let Some(namespace) = ctx.lister::<Namespace>()?.get(&request.key) else {
//!         return Ok(Action::done()); // it is gone, and its ConfigMap with it
//!     };
//!     if namespace.metadata.deletion_timestamp.is_some() || ctx.lister::<ConfigMap>()?.get(&welcome).is_some() {
//!         return Ok(Action::done());
//!     }
//!     let mut config = ConfigMap::default();
//!     config.metadata.name = Some("welcome".into());
//!     config.metadata.owner_references = namespace.controller_owner_ref(&()).map(|owner| vec![owner]);
//!     config.data = Some([("namespace".into(), name.into())].into());
//!     let api = Api::<ConfigMap>::namespaced(ctx.client().clone(), name);
//!     api.create(&PostParams::default(), &config).await?; // an error is retried with backoff
//!     Ok(Action::done())
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let welcome = Controller::<Namespace>::new("welcome").owns::<ConfigMap>().reconcile(reconcile);
//!     Manager::new(Client::try_default().await?).controller(welcome).run().await?;
//!     Ok(())
//! }
//! ```
//!
//! # Where to look
//!
//! [`runtime`] has the controller and the manager, [`cache`] what a lister reads and how it stays current, [`workqueue`]
//! the order and pace of work. This crate has nothing of its own: it names the versions that belong together.

pub use k8s_openapi;
pub use kube;
pub use windlass_cache as cache;
pub use windlass_runtime as runtime;
pub use windlass_workqueue as workqueue;

/// What almost every controller uses.
///
/// ```
/// use windlass::prelude::*;
/// ```
pub mod prelude {
    pub use kube::{Client, Resource, ResourceExt};
    pub use windlass_cache::{Change, Lister, ObjectKey, Query};
    pub use windlass_runtime::{Action, Context, Controller, Error, Manager, Reconciler, Request};
}
