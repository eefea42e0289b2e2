//! The node's conditions about its reboot, under the names of KEP-5683.
//!
//! Only conditions that are True are present: an idle node has none of them. They are derived from the annotations,
//! for users and `kubectl wait`; the controller never reads them to decide.

use jiff::Timestamp;
use windlass::{
    api::conditions::{HasConditions, find, keep_transition_time},
    k8s_openapi::{
        api::core::v1::{Node, NodeCondition, NodeStatus},
        apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    },
    prelude::*,
};

use crate::{
    progress,
    state::{Phase, State},
    state_machine::NodeView,
};

const MAINTENANCE_PLANNED: &str = "MaintenancePlanned";
const MAINTENANCE_IN_PROGRESS: &str = "MaintenanceInProgress";
const DRAIN_IN_PROGRESS: &str = "DrainInProgress";
const DRAINED: &str = "Drained";

const MANAGED_TYPES: [&str; 4] = [
    MAINTENANCE_PLANNED,
    MAINTENANCE_IN_PROGRESS,
    DRAIN_IN_PROGRESS,
    DRAINED,
];

/// Returns the type, status, reason and message of the node's conditions that this controller manages.
pub(super) fn managed_conditions(node: &Node) -> Vec<[String; 4]> {
    let there = node.conditions().iter();
    let there = there.filter(|condition| MANAGED_TYPES.contains(&condition.type_.as_str()));
    there.map(comparable_fields).collect()
}

fn comparable_fields(condition: &NodeCondition) -> [String; 4] {
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

/// Returns what the node waits for, as its condition says, if the condition is that of its phase.
pub(super) fn reported_wait(node: &Node, view: &NodeView) -> Option<String> {
    let condition = find(node, MAINTENANCE_IN_PROGRESS)?;
    let is_current = condition.reason.as_deref() == view.phase().map(Phase::name);
    condition
        .message
        .clone()
        .filter(|text| is_current && !text.is_empty())
}

/// Returns the node with its desired conditions and nothing else, or `None` if they are up to date. `policy` is the
/// node's policy, `waits_for` describes what the phase is waiting for.
pub(super) fn desired_conditions(
    node: &Node,
    view: &NodeView,
    policy: &str,
    waits_for: Option<&str>,
    now: Timestamp,
) -> Option<Node> {
    let mut wanted = Vec::new();
    let mut holds = |kind: &str, reason: &str, message: &str| {
        let mut condition = NodeCondition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            // kubectl prints it; without one, it prints the year 1.
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(Time(now)),
        };
        keep_transition_time(&mut condition, find(node, kind));
        wanted.push(condition);
    };
    if let Some(reason) = &view.request {
        match view.state().filter(|state| state.phase == Phase::Aborted) {
            Some(state) => holds(MAINTENANCE_PLANNED, "RebootAborted", &abort_message(state)),
            None => holds(
                MAINTENANCE_PLANNED,
                "RebootRequested",
                &request_message(reason, view, policy),
            ),
        }
    }
    if let Some(state) = view.state().filter(|state| state.phase.is_active()) {
        let waits = progress::phase_message(view, state);
        let message = waits_for.or(state.reason.as_deref()).unwrap_or(&waits);
        holds(MAINTENANCE_IN_PROGRESS, state.phase.name(), message);
        match state.phase {
            Phase::Draining => holds(DRAIN_IN_PROGRESS, "Evicting", message),
            Phase::Drained | Phase::Armed | Phase::Rebooted | Phase::Soaking => {
                holds(DRAINED, "DrainFinished", "");
            }
            Phase::Granted | Phase::Cordoned | Phase::Failed | Phase::Aborted => {}
        }
    }
    let is: Vec<_> = wanted.iter().map(comparable_fields).collect();
    let mut has = managed_conditions(node);
    has.sort_by_key(|[kind, ..]| MANAGED_TYPES.iter().position(|ours| ours == kind));
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

/// The request's own reason, and where to see what a node without a slot waits for.
fn request_message(reason: &str, view: &NodeView, policy: &str) -> String {
    if view.state.is_some() {
        return reason.to_owned();
    }
    let reason = if reason.is_empty() {
        ""
    } else {
        &format!("{reason}; ")
    };
    format!(
        "{reason}waiting for a slot of RebootPolicy {policy}, whose status says why: kubectl get rebootpolicy {policy} -o wide"
    )
}

/// Why the attempt was aborted, and when it is retried.
fn abort_message(state: &State) -> String {
    let why = state.reason.as_deref().unwrap_or_default();
    match state.deadline {
        Some(rest) => format!(
            "reboot aborted: {why}; retried after {}",
            progress::to_the_second(rest)
        ),
        None => format!("reboot aborted: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{AnnotationKeys, Progress};

    /// The conditions of a node in this phase: type, reason and message.
    fn conditions_in(
        phase: Phase,
        edit: impl FnOnce(&mut NodeView),
        waits_for: Option<&str>,
    ) -> Vec<[String; 3]> {
        let now = Timestamp::UNIX_EPOCH;
        let node = Node::default();
        let mut view = NodeView::from_node(&node, &AnnotationKeys::default());
        view.request = Some("kernel".to_owned());
        view.state = Some(Ok(State {
            phase,
            policy: "default".to_owned(),
            epoch: 1,
            attempt: 1,
            aborts: 0,
            since: now,
            deadline: Some(now),
            boot_id_before: None,
            healthy_deadline: None,
            cordoned: true,
            reason: None,
            unknown_fields: [].into(),
        }));
        edit(&mut view);
        let wanted =
            desired_conditions(&node, &view, "default", waits_for, now).expect("the conditions differ");
        let conditions = wanted.conditions().iter().map(comparable_fields);
        conditions
            .map(|[kind, _, reason, message]| [kind, reason, message])
            .collect()
    }

    #[test]
    fn conditions_show_every_phase() {
        for phase in Phase::ALL {
            let reported = conditions_in(phase, |_| {}, None);
            let reason = match phase {
                Phase::Aborted => [MAINTENANCE_PLANNED, "RebootAborted"],
                _ => [MAINTENANCE_IN_PROGRESS, phase.name()],
            };
            let found = reported.iter().any(|[kind, why, _]| [kind, why] == reason);
            assert!(found, "{phase}: {reported:?}");
        }
    }

    #[test]
    fn conditions_describe_what_a_phase_waits_for() {
        let begun = |view: &mut NodeView| {
            view.progress = Some(Ok(Progress {
                boot_id: String::new(),
                epoch: 1,
                attempt: 1,
                attempted_at: Timestamp::UNIX_EPOCH,
                new_boot_id: None,
                checked_boot_id: None,
                failure_reason: None,
                more: [].into(),
            }));
        };
        let why = |view: &mut NodeView| {
            if let Some(Ok(state)) = &mut view.state {
                state.reason = Some("no boot".to_owned());
            }
        };
        for (reported, message) in [
            (
                conditions_in(Phase::Armed, |_| {}, None),
                "waiting for the agent to start the reboot until 1970-01-01T00:00:00Z",
            ),
            (
                conditions_in(Phase::Armed, begun, None),
                "waiting for a new boot ID until 1970-01-01T00:00:00Z",
            ),
            (
                conditions_in(Phase::Rebooted, |_| {}, None),
                "report the new boot until 1970-01-01T00:00:00Z",
            ),
            (
                conditions_in(Phase::Rebooted, |_| {}, Some("not Ready")),
                "not Ready",
            ),
            (
                conditions_in(Phase::Soaking, |_| {}, None),
                "until 1970-01-01T00:00:00Z",
            ),
            (conditions_in(Phase::Failed, why, None), "no boot"),
            (
                conditions_in(Phase::Aborted, why, None),
                "no boot; retried after 1970-01-01",
            ),
        ] {
            assert!(
                reported.iter().any(|[_, _, text]| text.contains(message)),
                "`{message}` in {reported:?}"
            );
        }
    }
}
