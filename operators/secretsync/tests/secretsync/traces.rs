//! Everything that is done leaves a trace: in the log, as events, and in a status.

use anyhow::Context as _;
use windlass::{
    k8s_openapi::api::core::v1::{Event, Secret},
    kube::ResourceExt,
    prelude::*,
};
use windlass_secretsync::{
    SecretSync, SecretSyncStatus,
    api::{ADOPT_ANNOTATION, SYNC_ANNOTATION},
};
use windlass_suite::{CapturedLog, Context as Case, RecordedRequest};

use crate::secretsync::test_cluster::{HOME, TestCluster, condition, consent, secret};

fn has_reason(reason: &'static str) -> impl Fn(&Event) -> bool {
    move |event| event.reason.as_deref() == Some(reason)
}

/// Each copy that is created, updated, adopted, released or deleted is one line of the log, and an event on the
/// SecretSync and in the target namespace.
pub(crate) async fn every_action_is_logged_and_shown_as_an_event(case: Case) -> anyhow::Result<()> {
    let log = CapturedLog::start();
    let env = TestCluster::new(&case).await?;
    // All cases of the process share the log.
    let (name, own) = (
        format!("traced-{}", case.namespace()),
        format!("own-{}", case.namespace()),
    );
    let team = env.in_namespace("team-a");
    env.namespace("team-a", json!({})).await?;
    let annotations = json!({ SYNC_ANNOTATION: "team-a", ADOPT_ANNOTATION: "team-a" });
    env.namespace("asks", json!({ "annotations": annotations }))
        .await?;
    let asks = env.in_namespace("asks");
    asks.create(secret(&own, "own")).await?;
    for name in [&name, &own] {
        team.create(secret(name, "1")).await?;
    }
    let running = env.start().await?;
    let spec = json!({ "names": [name, own], "adoptionPolicy": "Always" });
    let sync = env.sync("team-a", "shared", spec).await?;
    let copy = env.wait_for_copy("asks", &name, "1").await?;
    let adopted = env.wait_for_copy("asks", &own, "1").await?;
    let changed = json!({ "data": secret(&name, "2").data });
    team.patch::<Secret>(&name, changed).await?;
    env.wait_for_copy("asks", &name, "2").await?;
    env.settle().await;
    team.delete::<SecretSync>("shared").await?;
    team.wait_until_deleted::<SecretSync>("shared").await?;
    asks.wait_until_deleted::<Secret>(&name).await?;
    env.settle().await;
    for (action, name, object) in [
        ("created", &name, &copy),
        ("updated", &name, &copy),
        ("deleted", &name, &copy),
        ("adopted", &own, &adopted),
        ("released", &own, &adopted),
    ] {
        let expected = [
            format!("copy {action} "),
            "sync=declared/team-a/shared".to_owned(),
            "namespace=\"asks\"".to_owned(),
            format!("name=\"{name}\""),
        ];
        let text = log.text();
        let lines = text
            .lines()
            .filter(|line| line.contains(" INFO ") && expected.iter().all(|part| line.contains(part)));
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines.len(), 1, "{action} {name}");
        // The span says what the sync was reconciled for.
        let source = format!("Secret team-a/{name} updated");
        assert!(action != "updated" || lines[0].contains(&source), "{lines:?}");
        let reason = match action {
            "created" => "CopyCreated",
            "updated" => "CopyUpdated",
            "deleted" => "CopyDeleted",
            "adopted" => "CopyAdopted",
            _ => "CopyReleased",
        };
        team.wait_for_event(&sync, has_reason(reason)).await?;
        asks.wait_for_event(&**object, has_reason(reason)).await?;
    }
    running.stop().await
}

/// Many targets make few events on the source, and one in each target namespace.
pub(crate) async fn many_targets_do_not_flood_the_source_with_events(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    let all: Vec<_> = (0..60).map(|number| format!("ns-{number:02}")).collect();
    let names: Vec<_> = all.iter().map(String::as_str).collect();
    env.consenting(&names).await?;
    let source = env.source("token", "1").await?;
    let running = env.start().await?;
    for name in &names {
        let copy = env.wait_for_copy(name, "token", "1").await?;
        env.in_namespace(name)
            .wait_for_event(&*copy, has_reason("CopyCreated"))
            .await?;
    }
    env.settle().await;
    let on_source = env.in_namespace(HOME).events(&source).await?;
    assert!(
        !on_source.is_empty() && on_source.len() <= 10,
        "{}",
        on_source.len()
    );
    running.stop().await
}

/// The team of a target namespace sees what is refused there, without access to the source's namespace.
pub(crate) async fn refusals_show_in_the_target_namespace(case: Case) -> anyhow::Result<()> {
    let log = CapturedLog::start();
    let env = TestCluster::new(&case).await?;
    // All cases of the process share the log.
    let name = format!("refused-{}", case.namespace());
    env.consenting(&["taken"]).await?;
    let wrong = env.namespace("wrong", consent("true,team-d")).await?;
    let own = env.in_namespace("taken").create(secret(&name, "own")).await?;
    env.source(&name, "1").await?;
    let running = env.start().await?;
    let seen = async |namespace: &str, reason: &str| {
        let api = env.in_namespace(namespace).case().api::<Event>();
        let all = api.list(&windlass::kube::api::ListParams::default()).await?;
        let found = all
            .items
            .into_iter()
            .find(|event| event.reason.as_deref() == Some(reason));
        found.with_context(|| format!("no event {reason} in {namespace}"))
    };
    env.in_namespace("default")
        .wait_for_event(&wrong, has_reason("InvalidConsent"))
        .await?;
    env.settle().await;
    // The text of the line and the reason's text are two fields, in every log format.
    let text = log.text();
    let mut lines = text
        .lines()
        .filter(|line| line.contains(" WARN ") && line.contains(&*name) && line.contains("copy failed "));
    assert!(
        lines.any(|line| line.contains("reason=Conflict") && line.contains("error=")),
        "{text}"
    );
    let refused = seen("taken", "Conflict").await?;
    assert_eq!(refused.involved_object.name, own.metadata.name);
    assert_eq!(refused.type_.as_deref(), Some("Warning"));
    let invalid = seen("wrong", "InvalidConsent").await?;
    assert_eq!(invalid.involved_object.kind.as_deref(), Some("Namespace"));
    assert!(
        invalid
            .message
            .unwrap_or_default()
            .contains("`true` is not taken"),
        "the reason"
    );
    running.stop().await
}

/// Events are deleted after an hour: a refusal that lasts is recorded again, so that the target namespace shows it.
pub(crate) async fn lasting_refusals_are_recorded_again(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["taken"]).await?;
    env.namespace("wrong", consent("true,team-d")).await?;
    env.in_namespace("taken").create(secret("token", "own")).await?;
    env.source("token", "1").await?;
    let running = env.start().await?;
    env.wait_for_status(HOME, "secret.token", |status| status.conflicts == 1)
        .await?;
    env.settle().await;
    let counts = async |namespace: &str, reason: &str| {
        let api = env.in_namespace(namespace).case().api::<Event>();
        let all = api.list(&windlass::kube::api::ListParams::default()).await?;
        let found = all
            .items
            .iter()
            .filter(|event| event.reason.as_deref() == Some(reason));
        anyhow::Ok(found.map(|event| event.count.unwrap_or(1)).sum::<i32>())
    };
    assert_eq!(counts("taken", "Conflict").await?, 1);
    assert_eq!(counts("wrong", "InvalidConsent").await?, 1);
    env.let_time_pass().await;
    for (namespace, reason) in [("taken", "Conflict"), ("wrong", "InvalidConsent")] {
        // About every half hour, however often it is looked at.
        let count = counts(namespace, reason).await?;
        assert!((2..=3).contains(&count), "{namespace}: {count}");
    }
    running.stop().await
}

/// What still fails after a restart has its events already.
pub(crate) async fn restart_announces_no_refusal_again(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["taken"]).await?;
    env.namespace("wrong", consent("true,team-d")).await?;
    env.in_namespace("taken").create(secret("token", "own")).await?;
    let source = env.source("token", "1").await?;
    let running = env.start().await?;
    env.wait_for_status(HOME, "secret.token", |status| status.conflicts == 1)
        .await?;
    env.settle().await;
    running.stop().await?;
    let before = env.warnings().await?;
    assert!(before.iter().any(has_reason("Conflict")) && before.iter().any(has_reason("InvalidConsent")));
    let running = env.start().await?;
    // The copy that this makes shows that the restarted process is at work.
    env.namespace("later", consent("true")).await?;
    env.wait_for_copy("later", &source.name_any(), "1").await?;
    env.settle().await;
    running.stop().await?;
    assert_eq!(env.warnings().await?, before);
    Ok(())
}

/// A status shows ten failures; the log, the events and the counts have all of them.
pub(crate) async fn every_refusal_is_logged_however_many_there_are(case: Case) -> anyhow::Result<()> {
    let log = CapturedLog::start();
    let env = TestCluster::new(&case).await?;
    env.consenting(&["taken"]).await?;
    // All cases of the process share the log.
    let names: Vec<_> = (0..12)
        .map(|number| format!("{}-{number:02}", case.namespace()))
        .collect();
    for name in &names {
        env.in_namespace("taken").create(secret(name, "own")).await?;
        env.in_namespace(HOME).create(secret(name, "1")).await?;
    }
    let running = env.start().await?;
    env.sync(HOME, "shared", json!({ "names": names })).await?;
    env.wait_for_status(HOME, "shared", |status| {
        status.conflicts == 12 && status.failures.len() == 10
    })
    .await?;
    env.settle().await;
    let text = log.text();
    for name in &names {
        let lines = text
            .lines()
            .filter(|line| line.contains("copy failed ") && line.contains(&**name));
        assert_eq!(lines.count(), 1, "{name}");
    }
    let found = env.metric("windlass_secretsync_conflicts_total");
    assert!((found - 12.0).abs() < f64::EPSILON, "{found}");
    running.stop().await
}

/// A write whose response is lost has its effect, and its line and event.
pub(crate) async fn action_without_a_response_is_logged(case: Case) -> anyhow::Result<()> {
    let log = CapturedLog::start();
    let env = TestCluster::new(&case).await?;
    let name = format!("lost-{}", case.namespace());
    env.consenting(&["asks"]).await?;
    let running = env.start().await?;
    let lose = |verb: &'static str| {
        let is_lost = move |sent: &RecordedRequest| sent.access.verb == verb && sent.resource() == "secrets";
        env.proxy().lose_response(1, is_lost);
    };
    let (home, asks) = (env.in_namespace(HOME), env.in_namespace("asks"));
    lose("create");
    env.source(&name, "1").await?;
    let copy = env.wait_for_copy("asks", &name, "1").await?;
    env.settle().await;
    lose("update");
    let changed = json!({ "data": secret(&name, "2").data });
    home.patch::<Secret>(&name, changed).await?;
    env.wait_for_copy("asks", &name, "2").await?;
    env.settle().await;
    lose("delete");
    home.patch::<Secret>(&name, json!({ "metadata": consent("false") }))
        .await?;
    asks.wait_until_deleted::<Secret>(&name).await?;
    env.settle().await;
    for (action, reason) in [
        ("created", "CopyCreated"),
        ("updated", "CopyUpdated"),
        ("deleted", "CopyDeleted"),
    ] {
        let text = log.text();
        let expected = [format!("copy {action} "), format!("name=\"{name}\"")];
        let lines = text
            .lines()
            .filter(|line| expected.iter().all(|part| line.contains(part)));
        assert_eq!(lines.count(), 1, "{action}");
        asks.wait_for_event(&*copy, has_reason(reason)).await?;
    }
    running.stop().await
}

/// If the name of the SecretSync that would show the status of a source is taken, an event on the source says so.
pub(crate) async fn missing_status_of_a_source_is_reported(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["asks"]).await?;
    env.sync(HOME, "secret.token", json!({ "names": ["other"] }))
        .await?;
    let source = env.source("token", "1").await?;
    let running = env.start().await?;
    env.wait_for_copy("asks", "token", "1").await?;
    let event = env
        .in_namespace(HOME)
        .wait_for_event(&source, has_reason("StatusNotShown"))
        .await?;
    let message = event.message.unwrap_or_default();
    assert!(message.contains("secretsync/secret.token"), "{message}");
    running.stop().await
}

/// An annotated source has no status of its own: a SecretSync shows it, for as long as the source is annotated.
pub(crate) async fn annotated_source_has_a_status(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["asks", "taken"]).await?;
    env.in_namespace("taken").create(secret("token", "own")).await?;
    let source = env.source("token", "1").await?;
    let running = env.start().await?;
    let conflicts = |status: &SecretSyncStatus| {
        status.synced == 1 && status.conflicts == 1 && condition(status, "Ready", "False")
    };
    let shown = env.wait_for_status(HOME, "secret.token", conflicts).await?;
    assert_eq!(shown.owner_references()[0].uid, source.uid().unwrap_or_default());
    let is_ready = |status: &SecretSyncStatus| status.synced == 1 && condition(status, "Ready", "True");
    env.patch_namespace("taken", consent("false")).await?;
    env.wait_for_status(HOME, "secret.token", is_ready).await?;
    // Its spec has no effect.
    env.settle().await;
    env.proxy().clear();
    let home = env.in_namespace(HOME);
    let elsewhere =
        json!({ "spec": { "names": ["other"], "namespaceSelector": { "matchLabels": { "no": "one" } } } });
    home.patch::<SecretSync>("secret.token", elsewhere).await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    // If it is deleted it comes back, and it goes with the annotation.
    home.delete::<SecretSync>("secret.token").await?;
    env.wait_for_status(HOME, "secret.token", is_ready).await?;
    let plain = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: null } } });
    home.patch::<Secret>("token", plain).await?;
    home.wait_until_deleted::<SecretSync>("secret.token").await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("token")
        .await?;
    running.stop().await
}
