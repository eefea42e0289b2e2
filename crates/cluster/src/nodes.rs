//! The machines of an embedded cluster, in the hands of a test.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::DeleteParams};

use crate::{
    Error, NodeSpec,
    alive::nodes::{Fault, Machines},
};

/// The simulated nodes of an embedded cluster: what can happen to machines, happens to them here. Clones are cheap.
///
/// Made by [`Cluster::nodes`](crate::Cluster::nodes). What follows is seen in the API as on a real cluster: a node that is
/// silent is `NotReady` and tainted after a while, its pods are not ready and move elsewhere when their tolerations end.
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

    /// The names of the machines, in order.
    pub fn names(&self) -> Vec<String> {
        self.machines.names()
    }

    /// The machine behind a node: what an agent that runs there may use.
    pub fn machine(&self, name: &str) -> Result<Machine, Error> {
        self.machines.check(name).map_err(no_node(name))?;
        Ok(Machine {
            name: name.to_owned(),
            machines: self.machines.clone(),
        })
    }

    /// One more machine, switched on. Returns when its node takes pods, or is registered if it has taints.
    pub async fn add(&self, spec: impl Into<NodeSpec>) -> Result<(), Error> {
        let spec = spec.into();
        let name = spec.name().to_owned();
        if !self.machines.add(spec) {
            return Err(Error::NodeExists { name });
        }
        self.machines.is_up(&name).await.map_err(no_node(&name))
    }

    /// Takes the machine away, and its node with it, as when a cloud removes one. Its pods are on a node that does not
    /// exist until the cluster gives them up.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        self.machines.remove(name).map_err(no_node(name))?;
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

    /// Reboots the machine: its node says that it is not ready, comes back with another boot ID, and its containers are
    /// started again. Returns when the node has said that it is back; one that is cut off says nothing, and it is enough
    /// that it runs.
    pub async fn reboot(&self, name: &str) -> Result<(), Error> {
        let before = self.machines.power_cycle(name).map_err(no_node(name))?;
        self.machines.is_back(name, &before).await.map_err(no_node(name))
    }

    /// From now on nothing on the machine goes on: no heartbeats, no container starts or ends, and its own reboot command
    /// has no effect. [`restore`](Self::restore) or [`reboot`](Self::reboot) end it.
    pub fn hang(&self, name: &str) -> Result<(), Error> {
        self.machines.suffer(name, Fault::Hung).map_err(no_node(name))
    }

    /// From now on the machine is cut off from the API: it works, and nobody hears of it. [`restore`](Self::restore) ends it.
    pub fn cut_off(&self, name: &str) -> Result<(), Error> {
        self.machines.suffer(name, Fault::CutOff).map_err(no_node(name))
    }

    /// Ends [`hang`](Self::hang) and [`cut_off`](Self::cut_off): the machine goes on where it was.
    pub fn restore(&self, name: &str) -> Result<(), Error> {
        self.machines.recover(name).map_err(no_node(name))
    }
}

/// One machine, as a program that runs on it sees it. Clones are cheap.
///
/// An agent that reboots its node takes this, or a function that calls it, in place of the real command:
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
    /// The name of its node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What tells this run of the machine from the one before, as its kernel gives it. Empty once it was removed.
    pub fn boot_id(&self) -> String {
        self.machines.boot_id(&self.name).unwrap_or_default()
    }

    /// Asks for a reboot, as `systemctl reboot` does, and returns at once. Nothing happens on a machine that hangs or was
    /// removed.
    pub fn reboot(&self) {
        self.machines.reboot_command(&self.name);
    }
}

fn no_node<T>(name: &str) -> impl FnOnce(T) -> Error + use<T> {
    let name = name.to_owned();
    move |_| Error::NoNode { name }
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
