//! The parts of a Node that the state machine reads.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use windlass::{
    api::conditions,
    k8s_openapi::api::core::v1::Node,
    prelude::{Resource, ResourceExt},
};

use crate::state::{
    AnnotationKeys, InvalidAnnotation, Phase, Progress, RebootCommand, State, parse_annotation, truncate,
};

/// A parsed Node: everything that decides its next step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// The node's name.
    pub name: String,
    /// The node's UID.
    pub uid: String,
    /// The resource version that was read; every write is conditional on it.
    pub resource_version: String,
    /// The node's labels.
    pub labels: BTreeMap<String, String>,
    /// The boot ID that the kubelet reports; empty if none.
    pub boot_id: String,
    /// Whether the condition Ready is True. False, Unknown and missing are not.
    pub is_ready: bool,
    /// Whether the node is unschedulable, by the controller or by another client.
    pub unschedulable: bool,
    /// The reboot request, with its (truncated) reason.
    pub request: Option<String>,
    /// The controller's state of the reboot.
    pub state: Option<Result<State, InvalidAnnotation>>,
    /// Whether the controller cordoned the node.
    pub cordoned: bool,
    /// The command to the agent, if the node is armed.
    pub command: Option<Result<RebootCommand, InvalidAnnotation>>,
    /// What the agent reports.
    pub progress: Option<Result<Progress, InvalidAnnotation>>,
}

impl NodeView {
    /// Parses a Node.
    pub fn from_node(node: &Node, names: &AnnotationKeys) -> Self {
        let annotations = node.annotations();
        let status = node.status.as_ref();
        let info = status.and_then(|status| status.node_info.as_ref());
        let meta = node.meta();
        Self {
            name: node.name_any(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            labels: node.labels().clone(),
            boot_id: info.map(|info| info.boot_id.clone()).unwrap_or_default(),
            is_ready: conditions::is_true(node, "Ready"),
            unschedulable: node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true),
            request: annotations
                .get(&names.reboot_needed)
                .map(|reason| truncate(reason)),
            state: find_annotation(annotations, &names.state),
            cordoned: annotations.contains_key(&names.cordoned),
            command: find_annotation(annotations, &names.reboot_now),
            progress: find_annotation(annotations, &names.reboot_in_progress)
                .map(|progress| progress.map(Progress::truncated)),
        }
    }

    /// Returns the agent's progress, if it can be parsed.
    pub fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()?.as_ref().ok()
    }

    /// Returns the state, if it can be parsed.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()?.as_ref().ok()
    }

    /// Returns the phase, if it can be parsed.
    pub fn phase(&self) -> Option<Phase> {
        self.state().map(|state| state.phase)
    }

    /// Returns whether the node occupies a slot, whatever the policy's grants say. An invalid state does, since its
    /// meaning is unknown.
    pub fn is_active(&self) -> bool {
        match &self.state {
            None => false,
            Some(Ok(state)) => state.phase.is_active(),
            Some(Err(_)) => true,
        }
    }

    /// Returns whether the node has no request and no annotations of the controller.
    pub fn is_idle(&self) -> bool {
        self.request.is_none() && self.state.is_none() && !self.cordoned
    }
}

fn find_annotation<T: DeserializeOwned>(
    annotations: &BTreeMap<String, String>,
    name: &str,
) -> Option<Result<T, InvalidAnnotation>> {
    annotations.get(name).map(|text| parse_annotation(name, text))
}
