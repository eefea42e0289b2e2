//! What a node's conditions say of its reboot, under the names of KEP-5683.
//!
//! A condition that does not hold is not there: a node at rest has none of ours. They are an account of the annotations, for
//! people and for `kubectl wait`; nothing is decided by them.

use jiff::Timestamp;
use windlass::{
    k8s_openapi::{
        api::core::v1::{Node, NodeCondition, NodeStatus},
        apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    },
    prelude::*,
};

use crate::{
    machine::NodeView,
    state::{Phase, State},
};

const PLANNED: &str = "MaintenancePlanned";
const IN_PROGRESS: &str = "MaintenanceInProgress";
const DRAINING: &str = "DrainInProgress";
const DRAINED: &str = "Drained";

const OURS: [&str; 4] = [PLANNED, IN_PROGRESS, DRAINING, DRAINED];

/// Those that are there: type, status, reason and message.
pub(super) fn ours(node: &Node) -> Vec<[String; 4]> {
    let there = conditions(node).filter(|condition| OURS.contains(&condition.type_.as_str()));
    there.map(text).collect()
}

fn conditions(node: &Node) -> impl Iterator<Item = &NodeCondition> {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    conditions.into_iter().flatten()
}

fn text(condition: &NodeCondition) -> [String; 4] {
    let NodeCondition {
        type_,
        status,
        reason,
        message,
        ..
    } = condition;
    let [reason, message] = [reason, message].map(|text| text.clone().unwrap_or_default());
    [type_.clone(), status.clone(), reason, message]
}

/// The node with the conditions that it should have and nothing else, if they are not what it has. `waits_for` is what
/// its phase waits for.
pub(super) fn wanted(node: &Node, view: &NodeView, waits_for: Option<&str>, now: Timestamp) -> Option<Node> {
    let mut wanted = Vec::new();
    let mut holds = |kind: &str, reason: &str, message: &str| {
        let before = conditions(node).find(|one| one.type_ == kind && one.status == "True");
        let since = before.and_then(|before| before.last_transition_time.clone());
        wanted.push(NodeCondition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            // When it was written; kubectl shows it, and without one the year 1.
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: since.or(Some(Time(now))),
        });
    };
    if let Some(reason) = &view.needed {
        match view.state().filter(|state| state.phase == Phase::Aborted) {
            Some(state) => holds(PLANNED, "RebootAborted", &given_back(state)),
            None => holds(PLANNED, "RebootRequested", reason),
        }
    }
    if let Some(state) = view.state().filter(|state| state.phase.is_active()) {
        let message = waits_for.or(state.reason.as_deref()).unwrap_or_default();
        holds(IN_PROGRESS, state.phase.name(), message);
        match state.phase {
            Phase::Draining => holds(DRAINING, "Evicting", message),
            Phase::Drained | Phase::Armed | Phase::Rebooted | Phase::Soaking => {
                holds(DRAINED, "DrainOver", "");
            }
            Phase::Granted | Phase::Cordoned | Phase::Failed | Phase::Aborted => {}
        }
    }
    let is: Vec<_> = wanted.iter().map(text).collect();
    let mut has = ours(node);
    has.sort_by_key(|[kind, ..]| OURS.iter().position(|ours| ours == kind));
    (is != has).then(|| Node {
        metadata: ObjectMeta {
            name: Some(node.name_any()),
            uid: node.uid(),
            ..ObjectMeta::default()
        },
        spec: None,
        status: Some(NodeStatus {
            conditions: Some(wanted),
            ..NodeStatus::default()
        }),
    })
}

/// Why a node was given back, and until when it rests.
fn given_back(state: &State) -> String {
    let why = state.reason.as_deref().unwrap_or_default();
    match state.deadline {
        Some(rest) => format!("not rebooted now: {why}; it rests until {rest}"),
        None => format!("not rebooted now: {why}"),
    }
}
