//! One write to a node.

use serde_json::{Map, Value, json};

use super::NodeView;
use crate::state::{Names, Order, State, text};

/// One write to a node, conditional on the version that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The state afterwards; `None` takes it off.
    pub state: Option<State>,
    /// Whether it takes new pods afterwards, and whose that is; `None` leaves both.
    pub cordon: Option<Cordon>,
    /// Arms it with this.
    pub arm: Option<Order>,
    /// Takes `P/reboot-now` off.
    pub disarm: bool,
    /// Takes `P/reboot-in-progress` off.
    pub forget_progress: bool,
    /// Takes the request off.
    pub done: bool,
    /// What people are told.
    pub said: Said,
}

/// What becomes of a node's schedulability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cordon {
    /// Unschedulable, and marked as ours.
    Set,
    /// Schedulable, and no mark.
    Lift,
    /// As it is, and no mark: it is somebody else's.
    Leave,
}

/// An event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// One word.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Whether something is wrong.
    pub warning: bool,
}

impl Said {
    pub(super) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            warning: false,
        }
    }

    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            warning: true,
            ..Self::normal(reason, message)
        }
    }
}

impl Change {
    pub(super) fn to(state: State, said: Said) -> Self {
        Self {
            state: Some(state),
            cordon: None,
            arm: None,
            disarm: false,
            forget_progress: false,
            done: false,
            said,
        }
    }

    /// The merge patch that does it, if the node still is the version that was looked at.
    pub fn patch(&self, node: &NodeView, names: &Names) -> Value {
        let mut annotations = Map::new();
        let mut put = |name: &String, value: Option<String>| {
            annotations.insert(name.clone(), value.map_or(Value::Null, Value::String));
        };
        put(&names.state, self.state.as_ref().map(text));
        if self.disarm || self.arm.is_some() {
            put(&names.now, self.arm.as_ref().map(text));
        }
        if self.forget_progress {
            put(&names.in_progress, None);
        }
        if self.done {
            put(&names.needed, None);
        }
        let mut spec = Map::new();
        match self.cordon {
            None => {}
            Some(Cordon::Set) => {
                put(&names.cordoned, Some("true".to_owned()));
                spec.insert("unschedulable".to_owned(), true.into());
            }
            Some(Cordon::Lift) => {
                put(&names.cordoned, None);
                spec.insert("unschedulable".to_owned(), Value::Null);
            }
            Some(Cordon::Leave) => put(&names.cordoned, None),
        }
        json!({
            "metadata": { "resourceVersion": node.version, "annotations": annotations },
            "spec": spec,
        })
    }

    /// The node after it, for whoever has no server to ask.
    #[cfg(test)]
    pub(crate) fn apply(&self, node: &mut NodeView) {
        node.state = self.state.clone().map(Ok);
        if self.disarm || self.arm.is_some() {
            node.order = self.arm.clone().map(Ok);
        }
        if self.forget_progress {
            node.progress = None;
        }
        if self.done {
            node.needed = None;
        }
        match self.cordon {
            None => {}
            Some(Cordon::Set) => (node.cordoned, node.unschedulable) = (true, true),
            Some(Cordon::Lift) => (node.cordoned, node.unschedulable) = (false, false),
            Some(Cordon::Leave) => node.cordoned = false,
        }
    }
}
