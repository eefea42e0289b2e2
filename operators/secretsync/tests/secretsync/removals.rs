//! The removal of most copies waits for a confirmation; what is unmistakable does not.

use std::time::Duration;

use windlass::{
    k8s_openapi::{
        api::core::v1::{Event, Secret},
        apiextensions_apiserver::pkg::apis::apiextensions::v1::{
            CustomResourceDefinition, CustomResourceDefinitionVersion,
        },
    },
    kube::{
        Api, CustomResourceExt, ResourceExt,
        api::{Patch, PatchParams},
    },
    prelude::*,
    serde_json::{Value, to_value},
};
use windlass_secretsync::{
    SecretSync, SecretSyncStatus,
    api::{CONFIRM_REMOVAL_ANNOTATION, SYNC_ANNOTATION},
};
use windlass_suite::{Context as Case, RecordedRequest, RunningManager};

use crate::secretsync::test_cluster::{HOME, TestCluster, condition, consent, secret};

/// How late a delayed request is.
const LATE: Duration = Duration::from_secs(3);

/// Names of this many namespaces.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("ns-{number:02}")).collect()
}

/// The SecretSync `shared` copies `token` into this many namespaces that have the label `tier`.
async fn prepare(case: &Case, count: usize) -> anyhow::Result<(TestCluster, RunningManager, Vec<String>)> {
    let env = TestCluster::new(case).await?;
    let all = names(count);
    for name in &all {
        let metadata = json!({
            "annotations": { SYNC_ANNOTATION: "true" }, "labels": { "tier": "backend", "is": name },
        });
        env.namespace(name, metadata).await?;
    }
    env.in_namespace(HOME).create(secret("token", "1")).await?;
    let spec = json!({
        "names": ["token"], "namespaceSelector": { "matchLabels": { "tier": "backend" } },
    });
    let running = env.start().await?;
    env.sync(HOME, "shared", spec).await?;
    env.wait_for_status(HOME, "shared", |status| status.synced as usize == count)
        .await?;
    env.settle().await;
    env.proxy().clear();
    Ok((env, running, all))
}

/// The annotated source `token`, in this many namespaces.
async fn prepare_annotated(
    case: &Case,
    count: usize,
) -> anyhow::Result<(TestCluster, RunningManager, Vec<String>)> {
    let env = TestCluster::new(case).await?;
    let all = names(count);
    env.consenting(&all.iter().map(String::as_str).collect::<Vec<_>>())
        .await?;
    env.source("token", "1").await?;
    let running = env.start().await?;
    env.wait_for_status(HOME, "secret.token", |status| status.synced as usize == count)
        .await?;
    env.settle().await;
    env.proxy().clear();
    Ok((env, running, all))
}

async fn stop_if(running: RunningManager, is_down: bool) -> anyhow::Result<Option<RunningManager>> {
    if is_down {
        running.stop().await?;
        return Ok(None);
    }
    Ok(Some(running))
}

async fn running_or_start(
    running: Option<RunningManager>,
    env: &TestCluster,
) -> anyhow::Result<RunningManager> {
    match running {
        Some(running) => Ok(running),
        None => env.start().await,
    }
}

fn confirm(count: usize) -> Value {
    json!({ "metadata": { "annotations": { CONFIRM_REMOVAL_ANNOTATION: count.to_string() } } })
}

fn is_held(status: &SecretSyncStatus) -> bool {
    let mut conditions = status.conditions.iter();
    condition(status, "Ready", "False")
        && conditions.any(|condition| condition.reason == "RemovalNotConfirmed")
}

fn asks_for(count: usize) -> impl Fn(&SecretSyncStatus) -> bool {
    let asked = format!("{CONFIRM_REMOVAL_ANNOTATION}={count}`");
    move |status| is_held(status) && status.conditions.iter().any(|one| one.message.contains(&asked))
}

async fn wait_until_gone(env: &TestCluster, namespaces: &[String], name: &str) -> anyhow::Result<()> {
    for namespace in namespaces {
        env.in_namespace(namespace)
            .wait_until_deleted::<Secret>(name)
            .await?;
    }
    Ok(())
}

/// A change that would delete most copies waits for a confirmation, which covers this change only; also if it was made
/// while no process ran.
pub(crate) async fn removal_of_most_copies_waits_for_a_confirmation(case: Case) -> anyhow::Result<()> {
    for is_down in [false, true] {
        let case = case.fresh().await?;
        let (env, running, all) = prepare(&case, 12).await?;
        let home = env.in_namespace(HOME);
        let selected = |labels: Value| json!({ "spec": { "namespaceSelector": { "matchLabels": labels } } });
        let running = stop_if(running, is_down).await?;
        // Two labels have to match: a mistake.
        home.patch::<SecretSync>("shared", selected(json!({ "is": "ns-00" })))
            .await?;
        let running = running_or_start(running, &env).await?;
        let observed = env
            .wait_for_status(HOME, "shared", |status| {
                condition(status, "Ready", "False") && status.failed == 11
            })
            .await?;
        let status = serde_json::to_string(&observed.status)?;
        assert!(
            status.contains("RemovalNotConfirmed") && status.contains("removing 11 of 12 copies"),
            "{status}"
        );
        env.let_time_pass().await;
        assert_eq!(env.copy_writes(), [""; 0], "nothing is deleted");
        // Less than that many are not confirmed.
        home.patch::<SecretSync>("shared", confirm(10)).await?;
        env.settle().await;
        assert_eq!(env.copy_writes(), [""; 0], "nothing is deleted");
        if is_down {
            home.patch::<SecretSync>("shared", confirm(11)).await?;
            wait_until_gone(&env, &all[1..], "token").await?;
            env.wait_for_status(HOME, "shared", |status| {
                condition(status, "Ready", "True") && status.synced == 1
            })
            .await?;
        } else {
            // Or the mistake is corrected.
            home.patch::<SecretSync>("shared", selected(json!({ "is": null })))
                .await?;
            env.wait_for_status(HOME, "shared", |status| {
                condition(status, "Ready", "True") && status.synced == 12
            })
            .await?;
            assert_eq!(env.copy_writes(), [""; 0], "nothing was deleted");
        }
        // The confirmation does not stay for the next mistake.
        home.wait_for::<SecretSync>("shared", |sync| {
            sync.annotations().get(CONFIRM_REMOVAL_ANNOTATION).is_none()
        })
        .await?;
        running.stop().await?;
    }
    Ok(())
}

/// A script that removes the label of one namespace after the other is stopped half way. What is held stays held: after
/// any time, after restarts, and if the sync was paused meanwhile. The status always asks for the current number.
pub(crate) async fn held_removal_stays_held_until_it_is_confirmed(case: Case) -> anyhow::Result<()> {
    let (env, mut running, all) = prepare(&case, 30).await?;
    let home = env.in_namespace(HOME);
    for name in &all[..20] {
        env.patch_namespace(name, json!({ "labels": { "tier": null } }))
            .await?;
        env.settle().await;
    }
    assert_eq!(env.copy_writes().len(), 15, "{:?}", env.copy_writes());
    env.wait_for_status(HOME, "shared", asks_for(20)).await?;
    env.let_time_pass().await;
    running.stop().await?;
    running = env.start().await?;
    env.settle().await;
    home.patch::<SecretSync>("shared", json!({ "spec": { "paused": true } }))
        .await?;
    env.wait_for_status(HOME, "shared", |status| {
        status.conditions.iter().any(|one| one.reason == "Paused")
    })
    .await?;
    running.stop().await?;
    running = env.start().await?;
    env.settle().await;
    home.patch::<SecretSync>("shared", json!({ "spec": { "paused": false } }))
        .await?;
    env.wait_for_status(HOME, "shared", is_held).await?;
    env.settle().await;
    assert_eq!(env.copy_writes().len(), 15, "{:?}", env.copy_writes());
    // The label comes back: that copy is wanted again, and the others are still held.
    env.patch_namespace(&all[19], json!({ "labels": { "tier": "backend" } }))
        .await?;
    env.wait_for_status(HOME, "shared", |status| is_held(status) && status.synced == 11)
        .await?;
    env.settle().await;
    assert_eq!(env.copy_writes().len(), 15, "{:?}", env.copy_writes());
    home.patch::<SecretSync>("shared", confirm(20)).await?;
    wait_until_gone(&env, &all[..19], "token").await?;
    env.wait_for_status(HOME, "shared", |status| {
        condition(status, "Ready", "True") && status.synced == 11
    })
    .await?;
    running.stop().await
}

/// Removals count together also if the process is restarted between them.
pub(crate) async fn restart_does_not_reset_the_count_of_removals(case: Case) -> anyhow::Result<()> {
    let (env, mut running, all) = prepare(&case, 30).await?;
    for name in &all[..15] {
        env.patch_namespace(name, json!({ "labels": { "tier": null } }))
            .await?;
    }
    wait_until_gone(&env, &all[..15], "token").await?;
    env.settle().await;
    running.kill().await;
    running = env.start().await?;
    env.settle().await;
    env.proxy().clear();
    for name in &all[15..20] {
        env.patch_namespace(name, json!({ "labels": { "tier": null } }))
            .await?;
    }
    env.wait_for_status(HOME, "shared", asks_for(20)).await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    running.stop().await
}

/// A process that dies right after it has removed copies has written before that it would.
pub(crate) async fn crash_right_after_removals_does_not_reset_their_count(case: Case) -> anyhow::Result<()> {
    let (env, running, all) = prepare(&case, 30).await?;
    for name in &all[..15] {
        env.patch_namespace(name, json!({ "labels": { "tier": null } }))
            .await?;
    }
    wait_until_gone(&env, &all[..15], "token").await?;
    running.kill().await;
    for name in &all[15..20] {
        env.patch_namespace(name, json!({ "labels": { "tier": null } }))
            .await?;
    }
    env.proxy().clear();
    let running = env.start().await?;
    env.wait_for_status(HOME, "shared", asks_for(20)).await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    running.stop().await
}

/// Deleting a source revokes its content everywhere, whether or not a process runs.
pub(crate) async fn deletion_of_a_source_is_never_held(case: Case) -> anyhow::Result<()> {
    for is_down in [false, true] {
        let case = case.fresh().await?;
        let (env, running, all) = prepare(&case, 12).await?;
        let running = stop_if(running, is_down).await?;
        env.in_namespace(HOME).delete::<Secret>("token").await?;
        let running = running_or_start(running, &env).await?;
        wait_until_gone(&env, &all, "token").await?;
        running.stop().await?;
    }
    Ok(())
}

/// A deleted source takes along the copies that were held before, and those in a namespace whose consent is invalid.
pub(crate) async fn deletion_of_a_source_ends_what_is_held(case: Case) -> anyhow::Result<()> {
    let (env, running, all) = prepare(&case, 12).await?;
    env.patch_namespace(&all[11], consent("no")).await?;
    let narrow = json!({ "spec": { "names": ["other"] } });
    env.in_namespace(HOME)
        .patch::<SecretSync>("shared", narrow)
        .await?;
    env.wait_for_status(HOME, "shared", asks_for(12)).await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    env.in_namespace(HOME).delete::<Secret>("token").await?;
    wait_until_gone(&env, &all, "token").await?;
    running.stop().await
}

/// A target that says no loses its copies without a question to the source; also while other removals of the sync are held.
pub(crate) async fn withdrawal_of_consent_is_never_held(case: Case) -> anyhow::Result<()> {
    for is_down in [false, true] {
        let case = case.fresh().await?;
        let (env, running, all) = prepare(&case, 14).await?;
        let narrow = json!({ "spec": { "namespaceSelector": { "matchLabels": { "is": "ns-00" } } } });
        env.in_namespace(HOME)
            .patch::<SecretSync>("shared", narrow)
            .await?;
        env.wait_for_status(HOME, "shared", asks_for(13)).await?;
        env.settle().await;
        let running = stop_if(running, is_down).await?;
        let (gone, kept) = (&all[1..12], &all[12..]);
        for (number, name) in gone.iter().enumerate() {
            // Both ways to say so.
            let value = if number == 0 { "default" } else { "false" };
            env.patch_namespace(name, json!({ "annotations": { SYNC_ANNOTATION: value } }))
                .await?;
        }
        let running = running_or_start(running, &env).await?;
        wait_until_gone(&env, gone, "token").await?;
        env.settle().await;
        for name in kept {
            env.wait_for_copy(name, "token", "1").await?;
        }
        env.wait_for_status(HOME, "shared", asks_for(2)).await?;
        running.stop().await?;
    }
    Ok(())
}

/// A tool that drops the annotation of all namespaces removes no copies before that is confirmed, whether or not it runs while no
/// process does. A namespace that says `false` loses its copies at once.
pub(crate) async fn consent_that_vanishes_everywhere_waits_for_a_confirmation(
    case: Case,
) -> anyhow::Result<()> {
    let plain = json!({ "annotations": { SYNC_ANNOTATION: null } });
    for (is_down, is_annotated) in [(false, true), (true, true), (false, false), (true, false)] {
        let case = case.fresh().await?;
        let (env, running, all) = if is_annotated {
            prepare_annotated(&case, 24).await?
        } else {
            prepare(&case, 24).await?
        };
        let shown = if is_annotated { "secret.token" } else { "shared" };
        let running = stop_if(running, is_down).await?;
        for name in &all {
            env.patch_namespace(name, plain.clone()).await?;
        }
        let running = running_or_start(running, &env).await?;
        env.wait_for_status(HOME, shown, is_held).await?;
        env.settle().await;
        env.let_time_pass().await;
        // Up to half of them may go, if one comes after the other.
        let removed = env.copy_writes().len();
        assert!(
            removed <= 12 && (!is_down || removed == 0),
            "{:?}",
            env.copy_writes()
        );
        env.patch_namespace(&all[23], consent("false")).await?;
        wait_until_gone(&env, &all[23..], "token").await?;
        env.in_namespace(HOME)
            .patch::<SecretSync>(shown, confirm(24))
            .await?;
        wait_until_gone(&env, &all, "token").await?;
        running.stop().await?;
    }
    Ok(())
}

/// A script with an unset variable empties the consent of all namespaces, or sets it to `true`, which is about copies from the
/// operator's source namespace only. A namespace that says `false` loses its copies at once.
pub(crate) async fn consent_without_names_waits_for_a_confirmation(case: Case) -> anyhow::Result<()> {
    for value in ["", "true"] {
        let case = case.fresh().await?;
        let env = TestCluster::new(&case).await?;
        env.namespace("team-a", json!({})).await?;
        let all = names(12);
        for name in &all {
            env.namespace(name, consent("team-a")).await?;
        }
        let team = env.in_namespace("team-a");
        team.create(secret("token", "1")).await?;
        let running = env.start().await?;
        env.sync("team-a", "shared", json!({ "names": ["token"] }))
            .await?;
        env.wait_for_status("team-a", "shared", |status| status.synced == 12)
            .await?;
        env.settle().await;
        running.stop().await?;
        for name in &all {
            env.patch_namespace(name, consent(value)).await?;
        }
        env.proxy().clear();
        let running = env.start().await?;
        env.wait_for_status("team-a", "shared", asks_for(12)).await?;
        env.settle().await;
        assert_eq!(env.copy_writes(), [""; 0], "`{value}`");
        env.patch_namespace(&all[11], consent("false")).await?;
        wait_until_gone(&env, &all[11..], "token").await?;
        env.wait_for_status("team-a", "shared", asks_for(11)).await?;
        team.patch::<SecretSync>("shared", confirm(11)).await?;
        wait_until_gone(&env, &all, "token").await?;
        running.stop().await?;
    }
    Ok(())
}

/// The CRD stops serving the version that the process knows, as an upgrade may do before the process is replaced. The SecretSyncs
/// still exist, so nothing is removed, and all goes on when they are served again.
pub(crate) async fn unserved_kind_removes_no_copies(case: Case) -> anyhow::Result<()> {
    let (env, running, all) = prepare(&case, 3).await?;
    let crds = Api::<CustomResourceDefinition>::all(env.case().client());
    let mut crd = SecretSync::crd();
    let name = crd.name_any();
    let served = crd.spec.versions[0].clone();
    crd.spec.versions[0].served = false;
    crd.spec.versions.push(CustomResourceDefinitionVersion {
        name: "v1beta1".to_owned(),
        storage: false,
        ..served.clone()
    });
    let patch = Patch::Merge(json!({ "spec": { "versions": crd.spec.versions } }));
    crds.patch(&name, &PatchParams::default(), &patch).await?;
    // After the second 404 a cache may take the objects for deleted.
    let is_list =
        |request: &RecordedRequest| request.resource() == "secretsyncs" && request.access.verb == "list";
    for _ in 0..4 {
        env.proxy().wait_until_sent(is_list).await?;
        env.proxy().take(|request| is_list(request));
    }
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    for namespace in &all {
        env.wait_for_copy(namespace, "token", "1").await?;
    }
    let patch = Patch::Merge(json!({ "spec": { "versions": [served] } }));
    crds.patch(&name, &PatchParams::default(), &patch).await?;
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    for namespace in &all {
        env.wait_for_copy(namespace, "token", "2").await?;
    }
    let is_deletion = |write: &String| write.starts_with("delete");
    assert!(
        !env.copy_writes().iter().any(is_deletion),
        "{:?}",
        env.copy_writes()
    );
    running.stop().await
}

/// A SecretSync is gone that was never seen being deleted: many copies wait until it exists again. Its deletion is the confirmation.
pub(crate) async fn lost_sync_keeps_its_copies_until_it_is_deleted(case: Case) -> anyhow::Result<()> {
    let (env, running, all) = prepare(&case, 12).await?;
    running.stop().await?;
    let home = env.in_namespace(HOME);
    let lost = home.get::<SecretSync>("shared").await?;
    let free = json!({ "metadata": { "finalizers": null } });
    home.patch::<SecretSync>("shared", free).await?;
    home.delete::<SecretSync>("shared").await?;
    home.wait_until_deleted::<SecretSync>("shared").await?;
    env.proxy().clear();
    let running = env.start().await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    env.sync(HOME, "shared", to_value(&lost.spec)?).await?;
    env.wait_for_status(HOME, "shared", |status| status.synced == 12)
        .await?;
    let is_deletion = |write: &String| write.starts_with("delete");
    assert!(
        !env.copy_writes().iter().any(is_deletion),
        "{:?}",
        env.copy_writes()
    );
    home.delete::<SecretSync>("shared").await?;
    wait_until_gone(&env, &all, "token").await?;
    running.stop().await
}

/// The status of an annotated source is gone, or its name is taken: what happened before a start still waits.
pub(crate) async fn removal_is_held_after_a_restart_without_a_status(case: Case) -> anyhow::Result<()> {
    let plain = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: null } } });
    for (is_taken, is_source) in [(false, true), (true, true), (false, false), (true, false)] {
        let case = case.fresh().await?;
        let (env, running, all) = prepare_annotated(&case, 12).await?;
        let home = env.in_namespace(HOME);
        running.stop().await?;
        home.delete::<SecretSync>("secret.token").await?;
        if is_taken {
            env.sync(HOME, "secret.token", json!({ "names": ["other"] }))
                .await?;
        }
        if is_source {
            home.patch::<Secret>("token", plain.clone()).await?;
        } else {
            for name in &all[..10] {
                env.patch_namespace(name, json!({ "annotations": { SYNC_ANNOTATION: null } }))
                    .await?;
            }
        }
        let running = env.start().await?;
        env.settle().await;
        assert_eq!(env.copy_writes(), [""; 0], "{is_taken} {is_source}");
        let held = |event: &Event| event.reason.as_deref() == Some("RemovalNotConfirmed");
        let source = home.get::<Secret>("token").await?;
        let event = home.wait_for_event(&source, held).await?;
        let message = event.message.unwrap_or_default();
        if is_taken {
            assert!(
                message.contains("annotation of the source to `false`"),
                "{message}"
            );
            let no = json!({ "metadata": consent("false") });
            home.patch::<Secret>("token", no).await?;
        } else {
            env.wait_for_status(HOME, "secret.token", is_held).await?;
            home.patch::<SecretSync>("secret.token", confirm(12)).await?;
        }
        wait_until_gone(&env, &all[..10], "token").await?;
        running.stop().await?;
    }
    Ok(())
}

/// A status that was on its way when a removal was planned does not overwrite the plan, so that a crash does not reset the count.
pub(crate) async fn late_status_does_not_overwrite_the_plan_of_a_removal(case: Case) -> anyhow::Result<()> {
    let (env, running, all) = prepare(&case, 30).await?;
    let is_plain = |sent: &RecordedRequest| {
        let is_status = sent.resource() == "secretsyncs" && sent.subresource() == "status";
        is_status && sent.is_write() && sent.body.pointer("/status/recentRemovals/planned").is_none()
    };
    env.proxy().delay(1, LATE, is_plain);
    // The process dies before it writes another one.
    env.proxy().delay(usize::MAX, Duration::from_hours(1), is_plain);
    env.patch_namespace(&all[29], consent("false")).await?;
    env.proxy().wait_until_sent(is_plain).await?;
    for name in &all[..14] {
        env.patch_namespace(name, json!({ "labels": { "tier": null } }))
            .await?;
    }
    wait_until_gone(&env, &all[..14], "token").await?;
    // By now the late one has arrived.
    tokio::time::sleep(2 * LATE).await;
    running.kill().await;
    for name in &all[14..19] {
        env.patch_namespace(name, json!({ "labels": { "tier": null } }))
            .await?;
    }
    let next = env.another_process();
    let running = next.start().await?;
    env.wait_for_status(HOME, "shared", asks_for(19)).await?;
    next.settle().await;
    assert_eq!(next.copy_writes(), [""; 0]);
    running.stop().await
}

/// A source that loses its annotation, by a tool for example, keeps its copies until that is confirmed. `false` and the
/// deletion of the source are unmistakable.
pub(crate) async fn removed_annotation_of_a_source_waits_for_a_confirmation(
    case: Case,
) -> anyhow::Result<()> {
    let plain = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: null } } });
    let no = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: "false" } } });
    for way_out in ["confirm", "annotate", "refuse", "delete"] {
        let case = case.fresh().await?;
        let (env, mut running, all) = prepare_annotated(&case, 12).await?;
        let home = env.in_namespace(HOME);
        let source = home.patch::<Secret>("token", plain.clone()).await?;
        env.wait_for_status(HOME, "secret.token", asks_for(12)).await?;
        let warned = |event: &Event| event.reason.as_deref() == Some("RemovalNotConfirmed");
        home.wait_for_event(&source, warned).await?;
        env.let_time_pass().await;
        running.stop().await?;
        running = env.start().await?;
        env.settle().await;
        assert_eq!(env.copy_writes(), [""; 0], "nothing is deleted");
        env.wait_for_status(HOME, "secret.token", asks_for(12)).await?;
        match way_out {
            "confirm" => drop(home.patch::<SecretSync>("secret.token", confirm(12)).await?),
            "refuse" => drop(home.patch::<Secret>("token", no.clone()).await?),
            "delete" => home.delete::<Secret>("token").await?,
            _ => {
                home.patch::<Secret>("token", json!({ "metadata": consent("") }))
                    .await?;
                env.wait_for_status(HOME, "secret.token", |status| {
                    status.synced == 12 && condition(status, "Ready", "True")
                })
                .await?;
                env.settle().await;
                assert_eq!(env.copy_writes(), [""; 0], "nothing was deleted");
                running.stop().await?;
                continue;
            }
        }
        wait_until_gone(&env, &all, "token").await?;
        home.wait_until_deleted::<SecretSync>("secret.token").await?;
        running.stop().await?;
    }
    Ok(())
}

/// A start with another annotation finds neither sources nor consents, and removes nothing.
pub(crate) async fn changed_annotation_flag_removes_nothing(case: Case) -> anyhow::Result<()> {
    let (env, running, _) = prepare_annotated(&case, 12).await?;
    env.in_namespace(HOME).create(secret("selected", "1")).await?;
    env.sync(HOME, "shared", json!({ "names": ["selected"] })).await?;
    env.wait_for_status(HOME, "shared", |status| status.synced == 12)
        .await?;
    env.settle().await;
    running.stop().await?;
    let other = env
        .another_process()
        .with_arguments(|arguments| "example.com/sync".clone_into(&mut arguments.annotation));
    // A sync that is paused at first decides later, and still knows.
    for (is_paused, held) in [
        (true, &["secret.token"][..]),
        (false, &["secret.token", "shared"]),
        (false, &["secret.token", "shared"]),
    ] {
        env.in_namespace(HOME)
            .patch::<SecretSync>("shared", json!({ "spec": { "paused": is_paused } }))
            .await?;
        let running = other.start().await?;
        for name in held {
            env.wait_for_status(HOME, name, asks_for(12)).await?;
        }
        other.settle().await;
        running.stop().await?;
    }
    assert_eq!(other.copy_writes(), [""; 0]);
    env.proxy().clear();
    let running = env.start().await?;
    for name in ["secret.token", "shared"] {
        env.wait_for_status(HOME, name, |status| {
            condition(status, "Ready", "True") && status.synced == 12
        })
        .await?;
    }
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    running.stop().await
}

/// Many annotated sources with few copies each: a tool that removes all annotations removes many copies.
pub(crate) async fn removals_of_annotated_sources_count_together(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["one", "two", "three", "four"]).await?;
    let sources: Vec<_> = (0..5).map(|number| format!("token-{number}")).collect();
    for name in &sources {
        env.source(name, "1").await?;
    }
    let running = env.start().await?;
    for name in &sources {
        env.wait_for_status(HOME, &format!("secret.{name}"), |status| status.synced == 4)
            .await?;
    }
    env.settle().await;
    running.stop().await?;
    env.proxy().clear();
    let plain = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: null } } });
    for name in &sources {
        env.in_namespace(HOME)
            .patch::<Secret>(name, plain.clone())
            .await?;
    }
    let running = env.start().await?;
    for name in &sources {
        env.wait_for_status(HOME, &format!("secret.{name}"), is_held)
            .await?;
    }
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    running.stop().await
}

/// Ten failures in a status do not hide that a removal waits for a confirmation, nor remove one that is too low.
pub(crate) async fn failures_do_not_hide_a_held_removal(case: Case) -> anyhow::Result<()> {
    let (env, running, _) = prepare(&case, 12).await?;
    for number in 0..12 {
        let name = format!("a-{number:02}");
        let metadata = json!({ "annotations": { SYNC_ANNOTATION: "true" }, "labels": { "is": "ns-00" } });
        env.namespace(&name, metadata).await?;
        env.in_namespace(&name).create(secret("token", "own")).await?;
    }
    let home = env.in_namespace(HOME);
    let other =
        json!({ "spec": { "namespaceSelector": { "matchLabels": { "is": "ns-00", "tier": null } } } });
    home.patch::<SecretSync>("shared", other).await?;
    env.wait_for_status(HOME, "shared", |status| {
        asks_for(11)(status) && status.conflicts == 12
    })
    .await?;
    home.patch::<SecretSync>("shared", confirm(3)).await?;
    env.settle().await;
    let sync = home.get::<SecretSync>("shared").await?;
    assert_eq!(
        sync.annotations()
            .get(CONFIRM_REMOVAL_ANNOTATION)
            .map(String::as_str),
        Some("3"),
        "it is still asked for"
    );
    running.stop().await
}
