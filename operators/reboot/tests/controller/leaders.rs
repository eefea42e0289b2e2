//! Concurrent controllers with stale caches, and the live reads that protect against them.

use std::time::Duration;

use serde_json::json;
use windlass_reboot::state::Phase;
use windlass_suite::{Context as Case, RecordedRequest, RequestProxy};

use crate::controller::{
    fleet::Fleet,
    roll::{at_a_time, status},
};

/// How long a request is delayed: everything else happens first.
const LONG: Duration = Duration::from_secs(4);

/// Concurrent controllers without leader election; all but one have stale caches and delayed writes.
pub(crate) async fn concurrent_controllers_respect_max_unavailable(case: Case) -> anyhow::Result<()> {
    let mut fleet = Fleet::idle(&case, 12, at_a_time(3)).await?;
    fleet.set_ready(&fleet.name(11), "Unknown").await?;
    fleet.start();
    // With simulated time, one of them lags as much as a leader that was stopped for a while.
    let late: &[u64] = if fleet.is_embedded() { &[200, 8000] } else { &[700] };
    let mut others = Vec::new();
    for late in late {
        let proxy = RequestProxy::new(&case.program_client().await?);
        proxy.delay(usize::MAX, Duration::from_millis(*late), |sent| {
            sent.access.verb == "list" || sent.access.verb == "get" || sent.is_write()
        });
        others.push(fleet.start_another(&proxy, None));
    }
    for number in 0..11 {
        fleet.request(&fleet.name(number)).await?;
    }
    for number in 0..11 {
        fleet.wait_until_idle(&fleet.name(number)).await?;
    }
    assert_eq!(fleet.rebooted().len(), 11, "each of them once");
    assert!(fleet.max_down() <= 3, "{}", fleet.max_down());
    for other in others {
        other.stop().await?;
    }
    fleet.end().await
}

/// A slot that was counted before another one was granted is not granted: the second writer counts again.
pub(crate) async fn concurrent_grants_of_the_last_slot_conflict(case: Case) -> anyhow::Result<()> {
    let mut fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (first, second) = (fleet.name(0), fleet.name(1));
    fleet.wait_for_policy(|policy| status(policy).nodes == 2).await?;
    fleet.settle().await;
    // The slot of the second node is counted, and its write is delayed.
    let gives = |node: &str| {
        let node = format!(r#""node":"{node}""#);
        move |sent: &RecordedRequest| {
            sent.resource() == "rebootpolicies" && sent.is_write() && sent.body.to_string().contains(&node)
        }
    };
    let late = fleet.proxy.clone();
    late.delay(1, LONG, gives(&second));
    fleet.request(&second).await?;
    late.wait_until_sent(gives(&second)).await?;
    fleet.create_protected_pod(&first).await?;
    fleet.request(&first).await?;
    let other = fleet.start_another(&RequestProxy::new(&case.program_client().await?), None);
    fleet.wait_for_phase(&first, Phase::Draining).await?;
    tokio::time::sleep(LONG).await;
    fleet.settle().await;
    let slots = status(&fleet.policy().await?).granted;
    let slots: Vec<_> = slots.iter().map(|grant| &grant.node).collect();
    assert_eq!(slots, [&first]);
    assert_eq!(fleet.view(&first).await?.phase(), Some(Phase::Draining));
    assert!(fleet.view(&second).await?.state.is_none(), "it has no slot");
    fleet.allow(&first, 1).await?;
    for node in [&first, &second] {
        fleet.wait_for_node(node, |view| view.boot_id == "boot-1").await?;
        fleet.wait_until_idle(node).await?;
    }
    assert_eq!((fleet.rebooted().len(), fleet.max_down()), (2, 1));
    other.stop().await?;
    fleet.stop().await?;
    fleet.end().await
}

/// Before a node is armed, the live policy is read.
pub(crate) async fn uncached_pause_stops_a_drained_node(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, at_a_time(1)).await?;
    let node = fleet.name(0);
    fleet.proxy.delay(usize::MAX, LONG, |sent| {
        sent.resource() == "rebootpolicies" && sent.access.verb == "get"
    });
    fleet.request(&node).await?;
    fleet
        .wait_for_node(&node, |view| {
            view.phase().is_some_and(|phase| phase >= Phase::Drained)
        })
        .await?;
    fleet.change_policy(json!({ "paused": true })).await?;
    let over = |phase: Phase| phase == Phase::Aborted || phase == Phase::Rebooted;
    let view = fleet
        .wait_for_node(&node, |view| view.phase().is_none_or(over))
        .await?;
    assert_eq!((view.phase(), view.unschedulable), (Some(Phase::Aborted), false));
    let arms = |sent: &RecordedRequest| {
        sent.resource() == "nodes" && sent.body.to_string().contains(r#"\"phase\":\"Armed\""#)
    };
    assert!(!fleet.proxy.writes().iter().any(arms), "it was armed");
    assert_eq!(fleet.boots(&node), 0);
    fleet.end().await
}
