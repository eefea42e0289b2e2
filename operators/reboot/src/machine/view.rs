//! What stands on a Node, as the machine sees it.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use windlass::{
    k8s_openapi::api::core::v1::Node,
    prelude::{Resource, ResourceExt},
};

use crate::state::{Names, Order, Phase, Progress, State, Unreadable, clip, read};

/// A Node, read: all that decides what happens to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Which one of that name.
    pub uid: String,
    /// The version that was read; every write is conditional on it.
    pub version: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The boot that its kubelet reports; empty if none.
    pub boot_id: String,
    /// Whether its condition Ready is True: False, Unknown and missing are not.
    pub ready: bool,
    /// Whether it takes no new pods.
    pub unschedulable: bool,
    /// The request, and the beginning of its reason.
    pub needed: Option<String>,
    /// Where it is on its way.
    pub state: Option<Result<State, Unreadable>>,
    /// Whether we made it unschedulable.
    pub cordoned: bool,
    /// Whether, and for which boot, the agent may reboot it.
    pub order: Option<Result<Order, Unreadable>>,
    /// What its agent is about.
    pub progress: Option<Result<Progress, Unreadable>>,
}

impl NodeView {
    /// Reads a Node.
    pub fn of(node: &Node, names: &Names) -> Self {
        let annotations = node.annotations();
        let status = node.status.as_ref();
        let info = status.and_then(|status| status.node_info.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let mut conditions = conditions.into_iter().flatten();
        let meta = node.meta();
        Self {
            name: node.name_any(),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            labels: node.labels().clone(),
            boot_id: info.map(|info| info.boot_id.clone()).unwrap_or_default(),
            ready: conditions.any(|one| one.type_ == "Ready" && one.status == "True"),
            unschedulable: node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true),
            needed: annotations.get(&names.needed).map(|reason| clip(reason)),
            state: annotation(annotations, &names.state),
            cordoned: annotations.contains_key(&names.cordoned),
            order: annotation(annotations, &names.now),
            progress: annotation(annotations, &names.in_progress)
                .map(|progress| progress.map(Progress::clipped)),
        }
    }

    /// What its agent says, if that can be read.
    pub fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()?.as_ref().ok()
    }

    /// Its state, if there is one that can be read.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()?.as_ref().ok()
    }

    /// Its phase, if there is one that can be read.
    pub fn phase(&self) -> Option<Phase> {
        self.state().map(|state| state.phase)
    }

    /// Whether it takes up a slot, whatever the ledger says. A state that cannot be read does: nobody knows what it means.
    pub fn is_active(&self) -> bool {
        match &self.state {
            None => false,
            Some(Ok(state)) => state.phase.is_active(),
            Some(Err(_)) => true,
        }
    }

    /// Whether nothing of ours is on it, and nobody asks for anything.
    pub fn is_idle(&self) -> bool {
        self.needed.is_none() && self.state.is_none() && !self.cordoned
    }
}

fn annotation<T: DeserializeOwned>(
    annotations: &BTreeMap<String, String>,
    name: &str,
) -> Option<Result<T, Unreadable>> {
    annotations.get(name).map(|text| read(name, text))
}
