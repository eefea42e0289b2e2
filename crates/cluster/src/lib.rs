//! A Kubernetes cluster for tests and newcomers, behind one type: [`Cluster`].
//!
//! ```text
//!  Cluster::embedded()  ──► an API server inside this process; a socket and a folder once a kubeconfig is asked for
//!  Cluster::real()      ──► Sandbox: temp folder + process group ──► etcd ◄── kube-apiserver ◄── (controllers, scheduler)
//!  Cluster::existing()  ──► a context of a kubeconfig, or the pod's service account
//!        │
//!        └──► Cluster: client() · kubeconfig() · user() · version() · stop()
//! ```
//!
//! - **embedded** is `windlass-apiserver`: nothing to install, ready in milliseconds, any number of them. Nothing acts on
//!   its objects yet: Deployments get no pods.
//! - **real** starts a control plane of its own from the binaries that `hack/control-plane/build` makes (or those of
//!   `setup-envtest`), in two to three seconds; any number can run side by side.
//! - **existing** uses a cluster that somebody else runs.
//!
//! Every backend has RBAC: [`Cluster::client`] is the administrator's, [`Cluster::user`] makes others, and
//! [`User::with_role`] gives them the rights that a program will have in a cluster. [`recorded`] shows which it needs.
//!
//! A [`Cluster`] owns what it started: the processes and the folder with certificates, data and logs go away with it,
//! on [`Cluster::stop`], on drop (also while unwinding from a panic), and when the whole process is killed.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use windlass_cluster::Cluster;
//!
//! let cluster = Cluster::real().controllers().start().await?;
//! let alice = cluster.user("alice", ["developers"]).await?;
//! println!("kubectl --kubeconfig {} get nodes", cluster.kubeconfig()?.display());
//! println!("alice: {:?}", alice.client().apiserver_version().await?);
//! cluster.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! What this crate does not know: the tests that run on a cluster, and what any controller is for.
//! The real backend needs a Unix with `/bin/sh`.

mod alive;
mod assets;
mod authority;
mod cluster;
mod embedded;
mod error;
mod existing;
mod kubeconfig;
mod kubectl;
mod nodes;
mod real;
mod recorded;
mod sandbox;
pub mod simulation;
mod token;
mod user;

pub use alive::nodes::NodeSpec;
pub use assets::{ETCD_VERSION, KUBERNETES_VERSION};
pub use cluster::{Backend, Cluster};
pub use embedded::Embedded;
pub use error::Error;
pub use existing::Existing;
pub use kubectl::{kubectl, matching_kubectl};
pub use nodes::{Machine, Nodes};
pub use real::Real;
pub use recorded::recorded;
pub use user::User;
