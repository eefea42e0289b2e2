use std::collections::BTreeMap;

use windlass::k8s_openapi::apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString};

use super::*;
use crate::{
    api::{Grant, RebootPolicySpec},
    state::Progress,
    window::{ExclusionSpec, WindowSpec},
};

fn now() -> Timestamp {
    "2026-06-05T12:00:00.5Z".parse().expect("a valid time")
}

/// A Ready node that requests a reboot.
fn node(name: &str) -> NodeView {
    NodeView {
        name: name.to_owned(),
        uid: name.to_owned(),
        is_ready: true,
        request: Some(String::new()),
        ..NodeView::default()
    }
}

/// The same in this phase, which ends at one o'clock.
fn in_phase(name: &str, phase: Phase, reason: Option<&str>, aborts: u32) -> NodeView {
    let state = State {
        phase,
        policy: "default".to_owned(),
        epoch: 1,
        attempt: 1,
        aborts,
        since: now(),
        deadline: Some("2026-06-05T13:00:00.25Z".parse().expect("a valid time")),
        boot_id_before: None,
        healthy_deadline: None,
        cordoned: true,
        reason: reason.map(ToOwned::to_owned),
        unknown_fields: [].into(),
    };
    NodeView {
        state: Some(Ok(state)),
        ..node(name)
    }
}

struct Case {
    nodes: Vec<NodeView>,
    spec: RebootPolicySpec,
    granted: Vec<Grant>,
    halt: Option<HaltReason>,
    invalid: Option<&'static str>,
    waits: BTreeMap<&'static str, String>,
    alerts: Option<AlertBlock>,
    blocked: bool,
}

impl Case {
    fn new(nodes: impl IntoIterator<Item = NodeView>) -> Self {
        Self {
            nodes: nodes.into_iter().collect(),
            spec: RebootPolicySpec::default(),
            granted: Vec::new(),
            halt: None,
            invalid: None,
            waits: BTreeMap::new(),
            alerts: None,
            blocked: false,
        }
    }

    fn halted(mut self, halt: HaltReason) -> Self {
        self.halt = Some(halt);
        self
    }

    fn nightly(mut self) -> Self {
        self.spec.windows = vec![WindowSpec {
            days: Vec::new(),
            start: "22:00".to_owned(),
            end: "04:00".to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
        }];
        self
    }

    /// The reason, the message and the window.
    fn describe(&self) -> (ProgressReason, String, String) {
        let roll = Rollout {
            spec: &self.spec,
            granted: &self.granted,
            nodes: self.nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
            own_node: None,
            now: now(),
        };
        let windows = Windows::parse(&self.spec.windows, &self.spec.exclusions).expect("valid windows");
        let input = ProgressInput {
            roll: &roll,
            halt: self.halt,
            invalid: self.invalid,
            windows: Some(&windows),
            alerts: self.alerts.as_ref(),
            is_drain_blocked: self.blocked,
            waits: &self.waits,
        };
        (
            input.reason(),
            input.message(),
            input.window().unwrap_or_default(),
        )
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of all states")]
fn every_state_says_what_is_waited_for() {
    let idle = NodeView {
        request: None,
        ..node("a")
    };
    let armed = in_phase("a", Phase::Armed, None, 0);
    let started = NodeView {
        progress: Some(Ok(Progress {
            boot_id: String::new(),
            epoch: 1,
            attempt: 1,
            attempted_at: now(),
            new_boot_id: None,
            checked_boot_id: None,
            failure_reason: None,
            more: [].into(),
        })),
        ..armed.clone()
    };
    let mut draining = Case::new([in_phase("a", Phase::Draining, None, 0)]);
    draining.blocked = true;
    draining.waits.insert(
        "a",
        "1 pod remaining; blocked by: pod x/web: budget strict".to_owned(),
    );
    let mut slot = Case::new([node("a")]);
    slot.granted.push(Grant {
        node: "a".to_owned(),
        uid: "a".to_owned(),
        epoch: 1,
        granted_at: Time(now()),
        boot_id: String::new(),
    });
    let unready = NodeView {
        is_ready: false,
        ..idle.clone()
    };
    let mut none_allowed = Case::new([node("a")]);
    none_allowed.spec.max_unavailable = Some(IntOrString::Int(0));
    let mut wrong = Case::new([node("a")]).halted(HaltReason::InvalidSpec);
    wrong.invalid = Some("invalid maxUnavailable `some`");
    let mut alerted = Case::new([node("a")]);
    alerted.alerts = Some(AlertBlock {
        reason: ProgressReason::AlertsFiring,
        message: "alerts are firing: DiskFull".to_owned(),
    });
    let resting = |aborts| in_phase("a", Phase::Aborted, Some("draining did not finish"), aborts);
    let failed = in_phase("a", Phase::Failed, Some("no new boot ID"), 0);
    let rank = ["node-role.kubernetes.io/control-plane"].map(|key| (key.to_owned(), String::new()));
    let control = NodeView {
        labels: rank.into(),
        ..node("c")
    };
    for (case, reason, message) in [
        (Case::new([idle]), ProgressReason::Idle, "no reboot is requested"),
        // Below the failure budget.
        (
            Case::new([failed.clone()]),
            ProgressReason::NodesFailed,
            "failed: a (no new boot ID)",
        ),
        (
            Case::new([failed.clone()])
                .nightly()
                .halted(HaltReason::WindowClosed),
            ProgressReason::NodesFailed,
            "failed: a (no new boot ID)",
        ),
        (
            slot,
            ProgressReason::Rebooting,
            "a: has a slot, and is about to start",
        ),
        (
            draining,
            ProgressReason::DrainBlocked,
            "a: Draining (1 pod remaining; blocked by: pod x/web: budget strict)",
        ),
        (
            Case::new([armed]),
            ProgressReason::Rebooting,
            "a: Armed (waiting for the agent to start the reboot until 2026-06-05T13:00:00Z)",
        ),
        (
            Case::new([started]),
            ProgressReason::Rebooting,
            "a: Armed (the agent has started the reboot; waiting for a new boot ID until 2026-06-05T13:00:00Z)",
        ),
        (
            Case::new([in_phase("a", Phase::Soaking, None, 0), control]),
            ProgressReason::Rebooting,
            "a: Soaking (soaking: has to stay Ready until 2026-06-05T13:00:00Z); waiting for the nodes before them (spec.order): c",
        ),
        (
            Case::new([resting(1)]),
            ProgressReason::Resting,
            "a rests until 2026-06-05T13:00:00Z (draining did not finish)",
        ),
        (
            Case::new([resting(4)]),
            ProgressReason::Resting,
            "a rests until 2026-06-05T13:00:00Z after 4 aborted attempts (draining did not finish)",
        ),
        (
            Case::new([unready, node("b"), node("c")]),
            ProgressReason::NoSlot,
            "waiting for a slot: b, c (1 of at most 1 nodes are unavailable: a not Ready)",
        ),
        (
            none_allowed,
            ProgressReason::NoSlot,
            "waiting for a slot: a (maxUnavailable is 0)",
        ),
        (
            Case::new([node("a")]).nightly().halted(HaltReason::WindowClosed),
            ProgressReason::WindowClosed,
            "no maintenance window is open: the next one opens at 2026-06-05T20:00:00Z",
        ),
        (
            Case::new([resting(1)]).nightly().halted(HaltReason::WindowClosed),
            ProgressReason::WindowClosed,
            "no maintenance window is open: the next one opens at 2026-06-05T20:00:00Z; a rests until 2026-06-05T13:00:00Z \
             (draining did not finish)",
        ),
        (
            Case::new([failed, node("b")]).halted(HaltReason::FailureBudgetExhausted),
            ProgressReason::FailureBudgetExhausted,
            "too many nodes have failed; failed: a (no new boot ID)",
        ),
        (
            Case::new([node("a")]).halted(HaltReason::Paused),
            ProgressReason::Paused,
            "the policy is paused",
        ),
        (
            Case::new([node("a")]).halted(HaltReason::DryRun),
            ProgressReason::DryRun,
            "the policy is in dry run (spec.dryRun)",
        ),
        (
            alerted,
            ProgressReason::AlertsFiring,
            "alerts are firing: DiskFull",
        ),
        (
            wrong,
            ProgressReason::InvalidSpec,
            "invalid maxUnavailable `some`",
        ),
    ] {
        let (found, text, _) = case.describe();
        assert_eq!((found, text.as_str()), (reason, message));
    }
}

#[test]
fn window_column_shows_when_it_opens_or_closes() {
    let open = |spec: RebootPolicySpec| {
        let mut case = Case::new([]);
        case.spec = spec;
        case.describe().2
    };
    let daily = |start: &str, end: &str| RebootPolicySpec {
        windows: vec![WindowSpec {
            days: Vec::new(),
            start: start.to_owned(),
            end: end.to_owned(),
            time_zone: "UTC".to_owned(),
        }],
        ..RebootPolicySpec::default()
    };
    assert_eq!(open(RebootPolicySpec::default()), "always open");
    assert_eq!(open(daily("11:00", "14:00")), "open until 2026-06-05T14:00:00Z");
    assert_eq!(open(daily("14:00", "15:00")), "closed until 2026-06-05T14:00:00Z");
    let mut years = daily("14:00", "15:00");
    years.exclusions = vec![ExclusionSpec {
        from: "2026-01-01".to_owned(),
        to: "2026-12-31".to_owned(),
        time_zone: "UTC".to_owned(),
    }];
    assert_eq!(open(years), "closed until 2027-01-01T14:00:00Z");
}

/// An idle policy whose window is closed says both.
#[test]
fn idle_policy_shows_the_next_window() {
    let idle = NodeView {
        request: None,
        ..node("a")
    };
    let (reason, message, _) = Case::new([idle])
        .nightly()
        .halted(HaltReason::WindowClosed)
        .describe();
    assert_eq!(reason, ProgressReason::Idle);
    assert_eq!(
        message,
        "no reboot is requested; no maintenance window is open: the next one opens at 2026-06-05T20:00:00Z"
    );
}

/// Node names and reasons come from others, and there may be thousands.
#[test]
fn messages_are_bounded() {
    let long = "x".repeat(100_000);
    let failed = (0..2000).map(|number| in_phase(&format!("n{number:04}"), Phase::Failed, Some(&long), 0));
    let waiting = (2000..4000).map(|number| node(&format!("n{number:04}")));
    let (_, message, _) = Case::new(failed.chain(waiting)).describe();
    assert!(message.contains("and 1995 more"), "{message}");
    assert!(message.len() < 4096, "{}", message.len());
}
