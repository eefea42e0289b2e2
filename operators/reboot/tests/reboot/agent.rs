//! One agent and its machine: exactly one boot for each order, whatever happens to the agent.

use std::time::Duration;

use anyhow::ensure;
use http::StatusCode;
use serde_json::json;
use tokio::time::{Instant, sleep};
use windlass_cluster::Backend;
use windlass_reboot::{
    agent::Arguments,
    state::{Names, text},
};
use windlass_suite::{Context as Case, Moment, Wire};

use crate::node::TestNode;

/// A clock that is not ahead, and one that is further ahead than any agent waits.
const NOW: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_hours(1);

/// Whoever has something to do is not silent for so long.
const QUIET: Duration = Duration::from_millis(300);

fn is_embedded(case: &Case) -> bool {
    case.cluster().backend() == Backend::Embedded
}

pub(crate) async fn an_armed_node_reboots_once_and_its_agent_proves_it(case: Case) -> anyhow::Result<()> {
    let (node, wire) = (TestNode::new(&case, "a").await?, Wire::new(&case.client()));
    let agent = node.agent(&wire, NOW).await?;
    wire.quiet(QUIET).await;
    assert_eq!(wire.writes().len(), 0, "nobody asked for anything");

    node.arm(7).await?;
    let proof = node.proved().await?;
    assert_eq!((proof.boot_id.as_str(), proof.epoch), ("boot-0", 7));
    assert_eq!((proof.attempt, proof.proved.as_deref()), (1, Some("boot-1")));
    // The order is still there, for a boot that is over.
    wire.quiet(QUIET).await;
    assert_eq!(node.reboots(), 1);
    let writes: Vec<_> = wire.writes().iter().map(ToString::to_string).collect();
    let own = format!("patch nodes/{}", node.name);
    assert_eq!(writes, [own.as_str(); 3], "it claims, asks, and proves");

    // The next grant begins anew, whatever is left of the last one.
    node.arm(8).await?;
    node.until(|progress| progress.epoch == 8 && progress.proved.is_some())
        .await?;
    assert_eq!(node.reboots(), 2);
    agent.stop().await
}

pub(crate) async fn a_restarted_agent_is_no_reboot(case: Case) -> anyhow::Result<()> {
    let node = TestNode::new(&case, "a").await?;
    node.hears(false);
    node.arm(7).await?;
    for _ in 0..4 {
        let wire = Wire::new(&case.client());
        let agent = node.agent(&wire, NOW).await?;
        node.until(|progress| progress.attempt == 1).await?;
        wire.quiet(QUIET).await;
        agent.kill().await;
        let progress = node.progress().await?;
        ensure!(
            progress
                .as_ref()
                .is_some_and(|one| one.proved.is_none() && one.attempt == 1),
            "{progress:?}"
        );
    }
    assert_eq!(node.reboots(), 0);
    node.hears(true);
    let agent = node.agent(&Wire::new(&case.client()), LATER).await?;
    let proof = node.proved().await?;
    assert_eq!(proof.proved.as_deref(), Some("boot-1"));
    assert_eq!(node.reboots(), 1);
    agent.stop().await
}

/// Before and after every request that it makes, from its start to the proof.
pub(crate) async fn an_agent_that_dies_at_any_request_reboots_exactly_once(case: Case) -> anyhow::Result<()> {
    let mut deaths = 0;
    for moment in [Moment::Before, Moment::After] {
        for number in 1.. {
            let node = TestNode::new(&case, &format!("{}-{number}", moment_name(moment))).await?;
            node.arm(7).await?;
            let wire = Wire::that_breaks(&case.client(), number, moment);
            let died = tokio::select! {
                biased;
                () = wire.died() => true,
                done = async {
                    let agent = node.agent(&wire, NOW).await?;
                    let proved = tokio::select! {
                        biased;
                        () = wire.died() => Ok(false),
                        proof = node.proved() => proof.map(|_| true),
                    };
                    agent.kill().await;
                    proved
                } => !done?,
            };
            if !died {
                assert_eq!(node.reboots(), 1);
                break;
            }
            deaths += 1;
            // Where time is real, the second one has waited already.
            let ahead = if is_embedded(&case) { NOW } else { LATER };
            let wire = Wire::new(&case.client());
            let agent = node.agent(&wire, ahead).await?;
            let proof = node.proved().await?;
            wire.quiet(QUIET).await;
            assert_eq!(node.reboots(), 1, "dead {moment:?} request {number}: {proof:?}");
            assert_eq!(proof.proved.as_deref(), Some("boot-1"));
            agent.stop().await?;
        }
    }
    assert!(deaths >= 9, "{deaths}: it starts, claims, asks and proves");
    Ok(())
}

fn moment_name(moment: Moment) -> &'static str {
    match moment {
        Moment::Before => "before",
        Moment::After => "after",
    }
}

pub(crate) async fn a_machine_that_does_not_reboot_is_asked_five_times(case: Case) -> anyhow::Result<()> {
    let (node, wire) = (TestNode::new(&case, "a").await?, Wire::new(&case.client()));
    node.hears(false);
    let begun = Instant::now();
    node.arm(7).await?;
    let failed = if is_embedded(&case) {
        let agent = node.agent(&wire, NOW).await?;
        let failed = node.until(|progress| progress.failed.is_some()).await?;
        let seconds = begun.elapsed().as_secs();
        assert!(
            (930..=940).contains(&seconds),
            "30 s, and twice as long each time: {seconds}"
        );
        agent.stop().await?;
        failed
    } else {
        // Each of these comes when the one before has waited long enough.
        for attempt in 1..=5 {
            let agent = node.agent(&wire, LATER * attempt).await?;
            node.until(|progress| progress.attempt == attempt).await?;
            wire.quiet(QUIET).await;
            agent.stop().await?;
        }
        let agent = node.agent(&wire, LATER * 6).await?;
        let failed = node.until(|progress| progress.failed.is_some()).await?;
        agent.stop().await?;
        failed
    };
    assert_eq!((failed.attempt, node.reboots()), (5, 0));
    // Nothing more comes of it, also from one that starts later and from a machine that hears again.
    node.annotate(json!({windlass_cluster::simulation::REBOOT: null}))
        .await?;
    node.hears(true);
    let agent = node.agent(&wire, LATER * 9).await?;
    wire.quiet(QUIET).await;
    assert_eq!(node.progress().await?, Some(failed));
    assert_eq!(node.reboots(), 0);
    agent.stop().await
}

pub(crate) async fn an_order_that_is_not_meant_for_this_boot_and_grant_is_left_alone(
    case: Case,
) -> anyhow::Result<()> {
    let (node, wire) = (TestNode::new(&case, "a").await?, Wire::new(&case.client()));
    let (names, armed) = (Names::default(), node.arming(7));
    let agent = node.agent(&wire, NOW).await?;
    let other_boot = json!({"bootID": "boot-9", "epoch": 7});
    let other_grant = json!({"bootID": "boot-0", "epoch": 6});
    for (what, name, value) in [
        ("an order for another boot", &names.now, json!(text(&other_boot))),
        ("an order of another grant", &names.now, json!(text(&other_grant))),
        (
            "a state of a newer version",
            &names.state,
            json!(r#"{"phase":"Hovering"}"#),
        ),
        ("no state", &names.state, json!(null)),
        ("no order", &names.now, json!(null)),
    ] {
        let mut annotations = armed.clone();
        annotations[name] = value;
        node.annotate(annotations).await?;
        wire.quiet(QUIET).await;
        assert_eq!(wire.writes().len(), 0, "{what}");
    }
    node.annotate(armed).await?;
    node.proved().await?;
    assert_eq!(node.reboots(), 1);
    agent.stop().await
}

pub(crate) async fn an_api_that_is_away_after_the_boot_costs_nothing_but_time(
    case: Case,
) -> anyhow::Result<()> {
    let node = TestNode::new(&case, "a").await?;
    node.arm(7).await?;
    // It claimed and asked, and is gone when the machine comes back.
    let wire = Wire::that_breaks(&case.client(), usize::MAX, Moment::Before);
    node.hears(false);
    let agent = node.agent(&wire, NOW).await?;
    node.until(|progress| progress.attempt == 1).await?;
    wire.quiet(QUIET).await;
    agent.kill().await;
    node.hears(true);
    while node.reboots() == 0 {
        sleep(QUIET).await;
    }

    let away = if is_embedded(&case) {
        Duration::from_mins(10)
    } else {
        Duration::from_secs(2)
    };
    let (wire, back) = (Wire::new(&case.client()), Instant::now() + away);
    wire.refuse(usize::MAX, StatusCode::SERVICE_UNAVAILABLE, move |_| {
        Instant::now() < back
    });
    let agent = node.agent(&wire, NOW).await?;
    let proof = node.proved().await?;
    assert!(Instant::now() >= back);
    assert_eq!((proof.attempt, proof.proved.as_deref()), (1, Some("boot-1")));
    wire.quiet(QUIET).await;
    assert_eq!(node.reboots(), 1);
    let asked = wire.requests();
    assert!(asked < 200, "{asked} requests in {away:?}");
    agent.stop().await
}

pub(crate) async fn a_file_on_the_machine_asks_for_a_reboot(case: Case) -> anyhow::Result<()> {
    let (node, wire) = (TestNode::new(&case, "a").await?, Wire::new(&case.client()));
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("reboot-required");
    let arguments = Arguments {
        trigger_file: Some(file.clone()),
        trigger_interval: Duration::from_secs(1),
        ..Arguments::default()
    };
    let agent = node.agent_with(&wire, NOW, arguments).await?;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(wire.writes().len(), 0, "there is no such file");
    std::fs::write(&file, "")?;
    let is_request = |sent: &windlass_suite::Sent| sent.is_write();
    wire.seen(is_request).await?;
    sleep(Duration::from_secs(3)).await;
    let asked = node.nodes.get(&node.name).await?;
    let reason = asked
        .metadata
        .annotations
        .and_then(|all| all.get(&Names::default().needed).cloned());
    assert_eq!(reason, Some(format!("file {}", file.display())));
    assert_eq!(wire.writes().len(), 1, "once is enough");
    assert_eq!(node.reboots(), 0, "it is the controller that lets it");
    agent.stop().await
}
