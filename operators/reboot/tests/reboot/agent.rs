//! One agent and its machine: exactly one boot for each command, whatever happens to the agent.

use std::time::Duration;

use anyhow::ensure;
use http::StatusCode;
use serde_json::json;
use tokio::time::{Instant, sleep};
use windlass_cluster::Backend;
use windlass_reboot::{
    agent::Arguments,
    state::{AnnotationKeys, to_annotation},
};
use windlass_suite::{Context as Case, CrashPoint, RequestProxy};

use crate::reboot::node::TestNode;

/// How far the agent's clock is ahead: not at all, and longer than any agent waits.
const NOW: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_hours(1);

/// An agent that has something to do acts within this time.
const QUIET: Duration = Duration::from_millis(300);

fn is_embedded(case: &Case) -> bool {
    case.cluster().backend() == Backend::Embedded
}

pub(crate) async fn armed_node_reboots_once_and_agent_proves_it(case: Case) -> anyhow::Result<()> {
    let (node, proxy) = (
        TestNode::new(&case, "a").await?,
        RequestProxy::new(&case.client()),
    );
    let agent = node.agent(&proxy, NOW).await?;
    proxy.wait_until_idle(QUIET).await;
    assert_eq!(proxy.writes().len(), 0, "no reboot was requested");

    node.arm(7).await?;
    let proof = node.wait_for_proof().await?;
    assert_eq!((proof.boot_id.as_str(), proof.epoch), ("boot-0", 7));
    assert_eq!((proof.attempt, proof.new_boot_id.as_deref()), (1, Some("boot-1")));
    // The command is still there, for a boot that has ended.
    proxy.wait_until_idle(QUIET).await;
    assert_eq!(node.reboots(), 1);
    let writes: Vec<_> = proxy.writes().iter().map(ToString::to_string).collect();
    let own = format!("patch nodes/{}", node.name);
    assert_eq!(
        writes,
        [own.as_str(); 3],
        "it claims, requests the reboot, and proves it"
    );

    // The next grant starts over, whatever is left of the last one.
    node.arm(8).await?;
    node.wait_for_progress(|progress| progress.epoch == 8 && progress.new_boot_id.is_some())
        .await?;
    assert_eq!(node.reboots(), 2);
    agent.stop().await
}

pub(crate) async fn agent_restart_is_not_a_reboot(case: Case) -> anyhow::Result<()> {
    let node = TestNode::new(&case, "a").await?;
    node.set_reacts_to_reboots(false);
    node.arm(7).await?;
    for _ in 0..4 {
        let proxy = RequestProxy::new(&case.client());
        let agent = node.agent(&proxy, NOW).await?;
        node.wait_for_progress(|progress| progress.attempt == 1).await?;
        proxy.wait_until_idle(QUIET).await;
        agent.kill().await;
        let progress = node.progress().await?;
        ensure!(
            progress
                .as_ref()
                .is_some_and(|one| one.new_boot_id.is_none() && one.attempt == 1),
            "{progress:?}"
        );
    }
    assert_eq!(node.reboots(), 0);
    node.set_reacts_to_reboots(true);
    let agent = node.agent(&RequestProxy::new(&case.client()), LATER).await?;
    let proof = node.wait_for_proof().await?;
    assert_eq!(proof.new_boot_id.as_deref(), Some("boot-1"));
    assert_eq!(node.reboots(), 1);
    agent.stop().await
}

/// Before and after every request that it makes, from its start to the proof.
pub(crate) async fn agent_crash_at_any_request_reboots_exactly_once(case: Case) -> anyhow::Result<()> {
    let mut deaths = 0;
    for moment in [CrashPoint::Before, CrashPoint::After] {
        for number in 1.. {
            let node = TestNode::new(&case, &format!("{}-{number}", moment_name(moment))).await?;
            node.arm(7).await?;
            let proxy = RequestProxy::crashing_at(&case.client(), number, moment);
            let died = tokio::select! {
                biased;
                () = proxy.wait_until_crashed() => true,
                done = async {
                    let agent = node.agent(&proxy, NOW).await?;
                    let proved = tokio::select! {
                        biased;
                        () = proxy.wait_until_crashed() => Ok(false),
                        proof = node.wait_for_proof() => proof.map(|_| true),
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
            // Where time is real, the second agent has waited already.
            let ahead = if is_embedded(&case) { NOW } else { LATER };
            let proxy = RequestProxy::new(&case.client());
            let agent = node.agent(&proxy, ahead).await?;
            let proof = node.wait_for_proof().await?;
            proxy.wait_until_idle(QUIET).await;
            assert_eq!(node.reboots(), 1, "dead {moment:?} request {number}: {proof:?}");
            assert_eq!(proof.new_boot_id.as_deref(), Some("boot-1"));
            agent.stop().await?;
        }
    }
    assert!(
        deaths >= 9,
        "{deaths}: it starts, claims, requests the reboot and proves it"
    );
    Ok(())
}

fn moment_name(moment: CrashPoint) -> &'static str {
    match moment {
        CrashPoint::Before => "before",
        CrashPoint::After => "after",
    }
}

pub(crate) async fn agent_gives_up_after_five_attempts(case: Case) -> anyhow::Result<()> {
    let (node, proxy) = (
        TestNode::new(&case, "a").await?,
        RequestProxy::new(&case.client()),
    );
    node.set_reacts_to_reboots(false);
    let begun = Instant::now();
    node.arm(7).await?;
    let failed = if is_embedded(&case) {
        let agent = node.agent(&proxy, NOW).await?;
        let failed = node
            .wait_for_progress(|progress| progress.failure_reason.is_some())
            .await?;
        let seconds = begun.elapsed().as_secs();
        assert!(
            (930..=940).contains(&seconds),
            "30 s, and twice as long each time: {seconds}"
        );
        agent.stop().await?;
        failed
    } else {
        // Each attempt comes after the previous delay.
        for attempt in 1..=5 {
            let agent = node.agent(&proxy, LATER * attempt).await?;
            node.wait_for_progress(|progress| progress.attempt == attempt)
                .await?;
            proxy.wait_until_idle(QUIET).await;
            agent.stop().await?;
        }
        let agent = node.agent(&proxy, LATER * 6).await?;
        let failed = node
            .wait_for_progress(|progress| progress.failure_reason.is_some())
            .await?;
        agent.stop().await?;
        failed
    };
    assert_eq!((failed.attempt, node.reboots()), (5, 0));
    // No more attempts follow, not even after a restart or when the machine would react.
    node.annotate(json!({windlass_cluster::simulation::REBOOT_ANNOTATION: null}))
        .await?;
    node.set_reacts_to_reboots(true);
    let agent = node.agent(&proxy, LATER * 9).await?;
    proxy.wait_until_idle(QUIET).await;
    assert_eq!(node.progress().await?, Some(failed));
    assert_eq!(node.reboots(), 0);
    agent.stop().await
}

pub(crate) async fn agent_ignores_commands_for_other_boots_and_grants(case: Case) -> anyhow::Result<()> {
    let (node, proxy) = (
        TestNode::new(&case, "a").await?,
        RequestProxy::new(&case.client()),
    );
    let (names, armed) = (AnnotationKeys::default(), node.armed_annotations(7));
    let agent = node.agent(&proxy, NOW).await?;
    let other_boot = json!({"bootID": "boot-9", "epoch": 7});
    let other_grant = json!({"bootID": "boot-0", "epoch": 6});
    for (what, name, value) in [
        (
            "a command for another boot",
            &names.reboot_now,
            json!(to_annotation(&other_boot)),
        ),
        (
            "a command of another grant",
            &names.reboot_now,
            json!(to_annotation(&other_grant)),
        ),
        (
            "a state of a newer version",
            &names.state,
            json!(r#"{"phase":"Hovering"}"#),
        ),
        ("no state", &names.state, json!(null)),
        ("no order", &names.reboot_now, json!(null)),
    ] {
        let mut annotations = armed.clone();
        annotations[name] = value;
        node.annotate(annotations).await?;
        proxy.wait_until_idle(QUIET).await;
        assert_eq!(proxy.writes().len(), 0, "{what}");
    }
    node.annotate(armed).await?;
    node.wait_for_proof().await?;
    assert_eq!(node.reboots(), 1);
    agent.stop().await
}

pub(crate) async fn api_outage_after_the_boot_only_delays_the_proof(case: Case) -> anyhow::Result<()> {
    let node = TestNode::new(&case, "a").await?;
    node.arm(7).await?;
    // The API server becomes unavailable after the reboot was requested.
    let proxy = RequestProxy::crashing_at(&case.client(), usize::MAX, CrashPoint::Before);
    node.set_reacts_to_reboots(false);
    let agent = node.agent(&proxy, NOW).await?;
    node.wait_for_progress(|progress| progress.attempt == 1).await?;
    proxy.wait_until_idle(QUIET).await;
    agent.kill().await;
    node.set_reacts_to_reboots(true);
    while node.reboots() == 0 {
        sleep(QUIET).await;
    }

    let away = if is_embedded(&case) {
        Duration::from_mins(10)
    } else {
        Duration::from_secs(2)
    };
    let (proxy, back) = (RequestProxy::new(&case.client()), Instant::now() + away);
    proxy.reject(usize::MAX, StatusCode::SERVICE_UNAVAILABLE, move |_| {
        Instant::now() < back
    });
    let agent = node.agent(&proxy, NOW).await?;
    let proof = node.wait_for_proof().await?;
    assert!(Instant::now() >= back);
    assert_eq!((proof.attempt, proof.new_boot_id.as_deref()), (1, Some("boot-1")));
    proxy.wait_until_idle(QUIET).await;
    assert_eq!(node.reboots(), 1);
    let asked = proxy.request_count();
    assert!(asked < 200, "{asked} requests in {away:?}");
    agent.stop().await
}

pub(crate) async fn trigger_file_requests_a_reboot(case: Case) -> anyhow::Result<()> {
    let (node, proxy) = (
        TestNode::new(&case, "a").await?,
        RequestProxy::new(&case.client()),
    );
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("reboot-required");
    let arguments = Arguments {
        trigger_file: Some(file.clone()),
        trigger_interval: Duration::from_secs(1),
        ..Arguments::default()
    };
    let agent = node.agent_with(&proxy, NOW, arguments).await?;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(proxy.writes().len(), 0, "the file does not exist");
    std::fs::write(&file, "")?;
    let is_request = |sent: &windlass_suite::RecordedRequest| sent.is_write();
    proxy.wait_until_sent(is_request).await?;
    sleep(Duration::from_secs(3)).await;
    let asked = node.nodes.get(&node.name).await?;
    let reason = asked
        .metadata
        .annotations
        .and_then(|all| all.get(&AnnotationKeys::default().reboot_needed).cloned());
    assert_eq!(reason, Some(format!("file {}", file.display())));
    assert_eq!(proxy.writes().len(), 1, "once is enough");
    assert_eq!(node.reboots(), 0, "only the controller allows the reboot");
    agent.stop().await
}
