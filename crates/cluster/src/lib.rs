//! A Kubernetes cluster for tests and local development, behind one type: [`Cluster`].
//!
//! ```text
//!  Cluster::embedded()  ──► an API server in this process; opens a socket when `kubeconfig()` is first called
//!  Cluster::real()      ──► Sandbox: temp folder + process group ──► etcd ◄── kube-apiserver ◄── (controllers, scheduler)
//!  Cluster::existing()  ──► a context of a kubeconfig, or the pod's service account
//!        │
//!        └──► Cluster: client() · kubeconfig() · user() · version() · stop()
//! ```
//!
//! - **embedded** is `windlass-apiserver`: nothing to install, ready in milliseconds. [`Embedded::controllers`] adds the
//!   controllers and the scheduler of a real control plane, [`Embedded::nodes`] simulated nodes that run pods.
//! - **real** starts its own control plane in two to three seconds, from the binaries that `hack/control-plane/build`
//!   builds or `setup-envtest` downloads.
//! - **existing** connects to a cluster that is already running.
//!
//! Any number of embedded and real clusters can run side by side.
//!
//! Every backend has RBAC: [`Cluster::client`] acts as the administrator, [`Cluster::user`] creates other users, and
//! [`User::with_role`] grants them the rights that a program will have in production. [`record_rbac`] records which
//! rights a client uses.
//!
//! A [`Cluster`] owns what it started: the processes, and the folder with certificates, data and logs. They are removed
//! on [`Cluster::stop`], on drop (also while unwinding from a panic), and when the whole process is killed; the
//! kubeconfigs of a killed embedded cluster are removed when the next one writes its own.
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
//! This crate knows nothing about the tests that run on a cluster, or about particular operators.
//! The real backend needs a Unix with `/bin/sh`.

mod access_folder;
mod assets;
mod authority;
mod cluster;
mod control_plane;
mod embedded;
mod error;
mod existing;
mod kubeconfig;
mod kubeconfig_copy;
mod kubectl;
mod nodes;
mod real;
mod record_rbac;
mod sandbox;
pub mod simulation;
mod static_token;
mod user;

pub use assets::{ETCD_VERSION, KUBERNETES_VERSION, control_plane_program};
pub use cluster::{Backend, Cluster};
pub use control_plane::nodes::NodeSpec;
pub use embedded::Embedded;
pub use error::Error;
pub use existing::Existing;
pub use kubeconfig_copy::KubeconfigCopy;
pub use kubectl::{kubectl, matching_kubectl};
pub use nodes::{Machine, Nodes};
pub use real::Real;
pub use record_rbac::record_rbac;
pub use user::User;
pub use windlass_apiserver::InProcessWebhook;
