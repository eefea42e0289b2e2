//! What a simulated node is like.

use std::collections::BTreeMap;

/// A simulated node: its name, and how it differs from the usual ones.
///
/// A plain name is one too. The usual node has 8 cores, 32Gi of memory, 100Gi of ephemeral storage and room for 110
/// pods, the labels that a kubelet sets, and no taints.
///
/// ```
/// use windlass_cluster::NodeSpec;
///
/// let gpu = NodeSpec::new("gpu-1")
///     .label("topology.kubernetes.io/zone", "b")
///     .capacity("nvidia.com/gpu", "4")
///     .taint("nvidia.com/gpu", "present", "NoSchedule");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a node is there when a cluster has it"]
pub struct NodeSpec {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<(String, String, String)>,
    pub(super) capacity: BTreeMap<String, String>,
}

impl NodeSpec {
    /// The usual node, with this name.
    pub fn new(name: impl Into<String>) -> Self {
        let usual = [
            ("cpu", "8"),
            ("ephemeral-storage", "100Gi"),
            ("hugepages-1Gi", "0"),
            ("hugepages-2Mi", "0"),
            ("memory", "32Gi"),
            ("pods", "110"),
        ];
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            capacity: usual
                .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
                .into(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One more label; those that a kubelet sets itself can be replaced.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// One more taint, with which the node registers. The effect is `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub fn taint(
        mut self,
        key: impl Into<String>,
        value: impl Into<String>,
        effect: impl Into<String>,
    ) -> Self {
        self.taints.push((key.into(), value.into(), effect.into()));
        self
    }

    /// How much it has of a resource, also one that usual nodes do not have.
    pub fn capacity(mut self, resource: impl Into<String>, amount: impl Into<String>) -> Self {
        self.capacity.insert(resource.into(), amount.into());
        self
    }
}

impl From<&str> for NodeSpec {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for NodeSpec {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}
