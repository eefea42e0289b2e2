//! One write to a node.

use serde_json::{Map, Value, json};

use super::NodeView;
use crate::state::{AnnotationKeys, RebootCommand, State, to_annotation};

/// One write to a node, conditional on the resource version that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeChange {
    /// The new state; `None` removes it.
    pub state: Option<State>,
    /// Cordon or uncordon; `None` leaves the node as it is.
    pub cordon: Option<CordonChange>,
    /// Arms the node with this command.
    pub arm: Option<RebootCommand>,
    /// Removes `P/reboot-now`.
    pub disarm: bool,
    /// Removes `P/reboot-in-progress`.
    pub remove_progress: bool,
    /// Removes the request.
    pub remove_request: bool,
    /// The event to record.
    pub event: NodeEvent,
}

/// What happens to a node's cordon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CordonChange {
    /// Cordon the node, and mark the cordon as ours.
    Set,
    /// Uncordon the node, and remove the mark.
    Lift,
    /// Leave the node as it is and remove the mark: the cordon is not ours.
    Leave,
}

/// An event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    /// Reason, in CamelCase.
    pub reason: &'static str,
    /// Message for humans.
    pub message: String,
    /// Whether the event is a warning.
    pub is_warning: bool,
}

impl NodeEvent {
    pub(super) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            is_warning: false,
        }
    }

    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_warning: true,
            ..Self::normal(reason, message)
        }
    }
}

impl NodeChange {
    pub(super) fn to_state(state: State, event: NodeEvent) -> Self {
        Self {
            state: Some(state),
            cordon: None,
            arm: None,
            disarm: false,
            remove_progress: false,
            remove_request: false,
            event,
        }
    }

    /// Returns the merge patch, conditional on the node's resource version.
    pub fn patch(&self, node: &NodeView, names: &AnnotationKeys) -> Value {
        let mut annotations = Map::new();
        let mut put = |name: &String, value: Option<String>| {
            annotations.insert(name.clone(), value.map_or(Value::Null, Value::String));
        };
        put(&names.state, self.state.as_ref().map(to_annotation));
        if self.disarm || self.arm.is_some() {
            put(&names.reboot_now, self.arm.as_ref().map(to_annotation));
        }
        if self.remove_progress {
            put(&names.reboot_in_progress, None);
        }
        if self.remove_request {
            put(&names.reboot_needed, None);
        }
        let mut spec = Map::new();
        match self.cordon {
            None => {}
            Some(CordonChange::Set) => {
                put(&names.cordoned, Some("true".to_owned()));
                spec.insert("unschedulable".to_owned(), true.into());
            }
            Some(CordonChange::Lift) => {
                put(&names.cordoned, None);
                spec.insert("unschedulable".to_owned(), Value::Null);
            }
            Some(CordonChange::Leave) => put(&names.cordoned, None),
        }
        json!({
            "metadata": { "resourceVersion": node.resource_version, "annotations": annotations },
            "spec": spec,
        })
    }

    /// Applies the change to `node`, for tests without a server.
    #[cfg(test)]
    pub(crate) fn apply(&self, node: &mut NodeView) {
        node.state = self.state.clone().map(Ok);
        if self.disarm || self.arm.is_some() {
            node.command = self.arm.clone().map(Ok);
        }
        if self.remove_progress {
            node.progress = None;
        }
        if self.remove_request {
            node.request = None;
        }
        match self.cordon {
            None => {}
            Some(CordonChange::Set) => (node.cordoned, node.unschedulable) = (true, true),
            Some(CordonChange::Lift) => (node.cordoned, node.unschedulable) = (false, false),
            Some(CordonChange::Leave) => node.cordoned = false,
        }
    }
}
