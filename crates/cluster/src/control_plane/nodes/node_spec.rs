//! The specification of a simulated node.

use std::collections::BTreeMap;

/// Specification of a simulated node: its name, labels, taints and capacity.
///
/// A string converts into one with the defaults: 8 cores, 32Gi of memory, 100Gi of ephemeral storage, 110 pods, the
/// labels that a kubelet sets, and no taints.
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
#[must_use = "a spec does nothing before it is passed to `Nodes::add`"]
pub struct NodeSpec {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<(String, String, String)>,
    pub(super) capacity: BTreeMap<String, String>,
}

impl NodeSpec {
    /// Creates a spec with the default labels, taints and capacity.
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

    /// Returns the node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a label, or overrides one that the kubelet sets.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds a taint that the node registers with. The effect is `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub fn taint(
        mut self,
        key: impl Into<String>,
        value: impl Into<String>,
        effect: impl Into<String>,
    ) -> Self {
        self.taints.push((key.into(), value.into(), effect.into()));
        self
    }

    /// Sets the capacity of a resource; extended resources such as `nvidia.com/gpu` work too.
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
