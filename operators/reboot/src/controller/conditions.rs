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
        let waits = waits_in(view, state);
        let message = waits_for.or(state.reason.as_deref()).unwrap_or(&waits);
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

/// What a phase waits for whose wait is all that there is to it.
fn waits_in(view: &NodeView, state: &State) -> String {
    match state.phase {
        Phase::Armed if view.progress.is_none() => "its agent is to reboot it".to_owned(),
        Phase::Armed => "its agent has begun: another boot ID is to be seen".to_owned(),
        Phase::Rebooted => "its kubelet is to report the new boot".to_owned(),
        Phase::Soaking => match state.deadline {
            Some(end) => format!("it is to stay Ready until {end}"),
            None => "it is to stay Ready".to_owned(),
        },
        _ => String::new(),
    }
}

/// Why a node was given back, and until when it rests.
fn given_back(state: &State) -> String {
    let why = state.reason.as_deref().unwrap_or_default();
    match state.deadline {
        Some(rest) => format!("not rebooted now: {why}; it rests until {rest}"),
        None => format!("not rebooted now: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Names, Progress};

    /// The conditions of a node in this phase: type, reason and message.
    fn told(phase: Phase, edit: impl FnOnce(&mut NodeView), waits_for: Option<&str>) -> Vec<[String; 3]> {
        let now = Timestamp::UNIX_EPOCH;
        let node = Node::default();
        let mut view = NodeView::of(&node, &Names::default());
        view.needed = Some("kernel".to_owned());
        view.state = Some(Ok(State {
            phase,
            policy: "default".to_owned(),
            epoch: 1,
            attempt: 1,
            since: now,
            deadline: Some(now),
            boot_id_before: None,
            good_by: None,
            cordoned: true,
            reason: None,
            more: [].into(),
        }));
        edit(&mut view);
        let wanted = wanted(&node, &view, waits_for, now).expect("it has none of them");
        let conditions = conditions(&wanted).map(text);
        conditions
            .map(|[kind, _, reason, message]| [kind, reason, message])
            .collect()
    }

    #[test]
    fn every_phase_can_be_read_in_them() {
        for phase in Phase::ALL {
            let told = told(phase, |_| {}, None);
            let reason = match phase {
                Phase::Aborted => [PLANNED, "RebootAborted"],
                _ => [IN_PROGRESS, phase.name()],
            };
            let found = told.iter().any(|[kind, why, _]| [kind, why] == reason);
            assert!(found, "{phase}: {told:?}");
        }
    }

    #[test]
    fn a_wait_says_what_for() {
        let begun = |view: &mut NodeView| {
            view.progress = Some(Ok(Progress {
                boot_id: String::new(),
                epoch: 1,
                attempt: 1,
                at: Timestamp::UNIX_EPOCH,
                proved: None,
                checked: None,
                failed: None,
                more: [].into(),
            }));
        };
        let why = |view: &mut NodeView| {
            if let Some(Ok(state)) = &mut view.state {
                state.reason = Some("no boot".to_owned());
            }
        };
        for (told, message) in [
            (told(Phase::Armed, |_| {}, None), "its agent is to reboot it"),
            (told(Phase::Armed, begun, None), "its agent has begun"),
            (told(Phase::Rebooted, |_| {}, None), "report the new boot"),
            (told(Phase::Rebooted, |_| {}, Some("not Ready")), "not Ready"),
            (told(Phase::Soaking, |_| {}, None), "until 1970-01-01T00:00:00Z"),
            (told(Phase::Failed, why, None), "no boot"),
            (
                told(Phase::Aborted, why, None),
                "no boot; it rests until 1970-01-01",
            ),
        ] {
            assert!(
                told.iter().any(|[_, _, said]| said.contains(message)),
                "`{message}` in {told:?}"
            );
        }
    }
}
