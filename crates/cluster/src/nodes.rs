//! Handles with which tests control the simulated machines of an embedded cluster.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::DeleteParams};

use crate::{
    Error, NodeSpec,
    control_plane::nodes::{Fault, Machines},
};

/// The simulated nodes of an embedded cluster, from [`Cluster::nodes`](crate::Cluster::nodes): reboot, hang, disconnect,
/// add and remove them. Clones are cheap.
///
/// The API shows the consequences as on a real cluster: a node without heartbeats becomes `NotReady` and tainted, and its
/// pods become unready and are evicted when their tolerations expire.
///
/// ```
/// use windlass_cluster::Cluster;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Cluster::embedded().nodes(3).start().await?;
/// let nodes = cluster.nodes().expect("it is embedded and has controllers");
/// let before = nodes.machine("node-1")?.boot_id();
/// nodes.reboot("node-1").await?;
/// assert_ne!(nodes.machine("node-1")?.boot_id(), before);
/// # cluster.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Nodes {
    machines: Machines,
    client: Client,
}

impl Nodes {
    pub(crate) fn new(machines: Machines, client: Client) -> Self {
        Self { machines, client }
    }

    /// Returns the names of the machines, sorted.
    pub fn names(&self) -> Vec<String> {
        self.machines.names()
    }

    /// Returns the machine behind a node, for an agent that would run on it.
    pub fn machine(&self, name: &str) -> Result<Machine, Error> {
        self.machines.require(name).map_err(node_not_found(name))?;
        Ok(Machine {
            name: name.to_owned(),
            machines: self.machines.clone(),
        })
    }

    /// Adds a machine. Returns when its node is schedulable, or registered if it has taints.
    pub async fn add(&self, spec: impl Into<NodeSpec>) -> Result<(), Error> {
        let spec = spec.into();
        let name = spec.name().to_owned();
        if !self.machines.add(spec) {
            return Err(Error::NodeExists { name });
        }
        self.machines
            .wait_until_ready(&name)
            .await
            .map_err(node_not_found(&name))
    }

    /// Removes the machine and its Node, as a cloud provider does. Its pods stay until the pod garbage collector deletes
    /// them.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        self.machines.remove(name).map_err(node_not_found(name))?;
        let nodes = Api::<Node>::all(self.client.clone());
        match nodes.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(source) => Err(Error::Request {
                what: format!("delete node {name}"),
                source: Box::new(source),
            }),
            Ok(_) => Ok(()),
        }
    }

    /// Reboots the machine: its node becomes `NotReady`, returns with another boot ID, and its containers restart. Returns
    /// when the node has reported the new boot. A disconnected machine cannot report it; then running again is enough.
    pub async fn reboot(&self, name: &str) -> Result<(), Error> {
        let before = self.machines.power_cycle(name).map_err(node_not_found(name))?;
        self.machines
            .wait_until_rebooted(name, &before)
            .await
            .map_err(node_not_found(name))
    }

    /// Hangs the machine: no heartbeats, no container starts or ends, and [`Machine::reboot`] has no effect, until
    /// [`restore`](Self::restore) or [`reboot`](Self::reboot).
    pub fn hang(&self, name: &str) -> Result<(), Error> {
        self.machines
            .inject(name, Fault::Hung)
            .map_err(node_not_found(name))
    }

    /// Disconnects the machine from the API server. It keeps running, unobserved, until [`restore`](Self::restore).
    pub fn disconnect(&self, name: &str) -> Result<(), Error> {
        self.machines
            .inject(name, Fault::Disconnected)
            .map_err(node_not_found(name))
    }

    /// Undoes [`hang`](Self::hang) and [`disconnect`](Self::disconnect): the machine continues where it stopped.
    pub fn restore(&self, name: &str) -> Result<(), Error> {
        self.machines.recover(name).map_err(node_not_found(name))
    }
}

/// One machine, as a program on it sees it. Clones are cheap.
///
/// Pass it, or a closure that calls it, to an agent that reboots its node, instead of the real command:
///
/// ```
/// # async fn example(nodes: windlass_cluster::Nodes) -> Result<(), windlass_cluster::Error> {
/// let machine = nodes.machine("node-1")?;
/// let reboot = move || machine.reboot();
/// # let _ = reboot;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Machine {
    name: String,
    machines: Machines,
}

impl Machine {
    /// Returns the name of its node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the boot ID, as in `/proc/sys/kernel/random/boot_id`. Empty once the machine was removed.
    pub fn boot_id(&self) -> String {
        self.machines.boot_id(&self.name).unwrap_or_default()
    }

    /// Starts a reboot, like `systemctl reboot`, and returns immediately. Has no effect on a machine that hangs or was
    /// removed.
    pub fn reboot(&self) {
        self.machines.reboot_from_inside(&self.name);
    }
}

fn node_not_found<T>(name: &str) -> impl FnOnce(T) -> Error + use<T> {
    let name = name.to_owned();
    move |_| Error::NodeNotFound { name }
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes")
            .field("names", &self.names())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
