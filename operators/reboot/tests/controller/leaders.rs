//! Controllers that know of each other's doings too late, and what they read anew because of that.

use std::time::Duration;

use serde_json::json;
use windlass_reboot::state::Phase;
use windlass_suite::{Context as Case, Sent, Wire};

use crate::{
    fleet::Fleet,
    roll::{at_a_time, status},
};

/// How long something is on its way: whatever else is done meanwhile is done first.
const LONG: Duration = Duration::from_secs(4);

/// Controllers at once, without an election, all but one of them with a view that is always late, and writes too.
pub(crate) async fn two_controllers_at_once_never_let_too_many_go(case: Case) -> anyhow::Result<()> {
    let mut fleet = Fleet::idle(&case, 12, at_a_time(3)).await?;
    fleet.ready(&fleet.name(11), "Unknown").await?;
    fleet.start();
    // Where that costs nothing, one of them is as late as a leader that was stopped for a while.
    let late: &[u64] = if fleet.is_embedded() { &[200, 8000] } else { &[700] };
    let mut others = Vec::new();
    for late in late {
        let wire = Wire::new(&case.program_client().await?);
        wire.delay(usize::MAX, Duration::from_millis(*late), |sent| {
            sent.access.verb == "list" || sent.access.verb == "get" || sent.is_write()
        });
        others.push(fleet.another(&wire, None));
    }
    for number in 0..11 {
        fleet.request(&fleet.name(number)).await?;
    }
    for number in 0..11 {
        fleet.done(&fleet.name(number)).await?;
    }
    assert_eq!(fleet.rebooted().len(), 11, "each of them once");
    assert!(fleet.most_down() <= 3, "{}", fleet.most_down());
    for other in others {
        other.stop().await?;
    }
    fleet.end().await
}

/// A slot that was counted before another one was given is not given: whoever comes second counts again.
pub(crate) async fn of_two_who_give_the_last_slot_one_does(case: Case) -> anyhow::Result<()> {
    let mut fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (first, second) = (fleet.name(0), fleet.name(1));
    fleet.policed(|policy| status(policy).nodes == 2).await?;
    fleet.settle().await;
    // The slot of the second node is counted, and on its way for long.
    let gives = |node: &str| {
        let node = format!(r#""node":"{node}""#);
        move |sent: &Sent| {
            sent.resource() == "rebootpolicies" && sent.is_write() && sent.body.to_string().contains(&node)
        }
    };
    let late = fleet.wire.clone();
    late.delay(1, LONG, gives(&second));
    fleet.request(&second).await?;
    late.seen(gives(&second)).await?;
    fleet.pinned(&first).await?;
    fleet.request(&first).await?;
    let other = fleet.another(&Wire::new(&case.program_client().await?), None);
    fleet.phase(&first, Phase::Draining).await?;
    tokio::time::sleep(LONG).await;
    fleet.settle().await;
    let slots = status(&fleet.policy().await?).granted;
    let slots: Vec<_> = slots.iter().map(|grant| &grant.node).collect();
    assert_eq!(slots, [&first]);
    assert_eq!(fleet.view(&first).await?.phase(), Some(Phase::Draining));
    assert!(
        fleet.view(&second).await?.state.is_none(),
        "there is no slot for it"
    );
    fleet.allow(&first, 1).await?;
    for node in [&first, &second] {
        fleet.until(node, |view| view.boot_id == "boot-1").await?;
        fleet.done(node).await?;
    }
    assert_eq!((fleet.rebooted().len(), fleet.most_down()), (2, 1));
    other.stop().await?;
    fleet.stop().await?;
    fleet.end().await
}

/// The last thing before a node is armed is a look at its policy, as it is then.
pub(crate) async fn a_pause_that_nobody_has_heard_of_yet_stops_a_node_that_is_drained(
    case: Case,
) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, at_a_time(1)).await?;
    let node = fleet.name(0);
    fleet.wire.delay(usize::MAX, LONG, |sent| {
        sent.resource() == "rebootpolicies" && sent.access.verb == "get"
    });
    fleet.request(&node).await?;
    fleet
        .until(&node, |view| {
            view.phase().is_some_and(|phase| phase >= Phase::Drained)
        })
        .await?;
    fleet.change_policy(json!({ "paused": true })).await?;
    let over = |phase: Phase| phase == Phase::Aborted || phase == Phase::Rebooted;
    let view = fleet.until(&node, |view| view.phase().is_none_or(over)).await?;
    assert_eq!((view.phase(), view.unschedulable), (Some(Phase::Aborted), false));
    let arms =
        |sent: &Sent| sent.resource() == "nodes" && sent.body.to_string().contains(r#"\"phase\":\"Armed\""#);
    assert!(!fleet.wire.writes().iter().any(arms), "it was armed");
    assert_eq!(fleet.boots(&node), 0);
    fleet.end().await
}
