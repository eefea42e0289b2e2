//! Changes of copies by other clients.

use anyhow::Context as _;
use windlass::{
    k8s_openapi::api::core::v1::{Event, Secret},
    kube::{
        ResourceExt,
        api::{Patch, PatchParams, PostParams},
    },
    prelude::*,
    serde_json::Value,
};
use windlass_secretsync::{
    SecretSyncStatus, SyncFailure,
    api::{HASH_ANNOTATION, SOURCE_ANNOTATION, SYNCED_BY_ANNOTATION},
};
use windlass_suite::Context as Case;

use crate::secretsync::test_cluster::{HOME, TestCluster, condition, describe_request, secret};

async fn prepare(case: &Case) -> anyhow::Result<(TestCluster, windlass_suite::RunningManager)> {
    let env = TestCluster::new(case).await?;
    env.consenting(&["asks", "other"]).await?;
    env.source("token", "1").await?;
    let running = env.start().await?;
    env.wait_for_copy("asks", "token", "1").await?;
    env.wait_for_copy("other", "token", "1").await?;
    env.settle().await;
    Ok((env, running))
}

fn is_whole(copy: &Secret) -> bool {
    let marks = [SOURCE_ANNOTATION, SYNCED_BY_ANNOTATION];
    copy.data == secret("token", "1").data
        && marks.iter().all(|mark| copy.annotations().contains_key(*mark))
        && !copy.annotations().contains_key(HASH_ANNOTATION)
}

/// By patch, update, apply and deletion; each is repaired in one write, in less than two seconds.
pub(crate) async fn drift_is_repaired_at_once(case: Case) -> anyhow::Result<()> {
    let (env, running) = prepare(&case).await?;
    let patches: [(&str, Value); 6] = [
        ("a value", json!({ "data": { "password": "d3Jvbmc=" } })),
        ("a key more", json!({ "data": { "more": "d3Jvbmc=" } })),
        (
            "a key by stringData",
            json!({ "stringData": { "more": "wrong" } }),
        ),
        ("a key less", json!({ "data": { "password": null } })),
        ("no data", json!({ "data": null })),
        (
            "a digest",
            json!({ "metadata": { "annotations": { HASH_ANNOTATION: "0123" } } }),
        ),
    ];
    for (what, patch) in patches {
        env.proxy().clear();
        env.in_namespace("asks").patch::<Secret>("token", patch).await?;
        let repaired = env.in_namespace("asks");
        env.within_two_seconds(what, repaired.wait_for::<Secret>("token", is_whole))
            .await?;
        env.settle().await;
        assert_eq!(env.copy_writes(), ["update asks/token"], "{what}");
    }
    // By an update of the whole object, as an editor does it.
    let mut edited = env.in_namespace("asks").get::<Secret>("token").await?;
    edited.data = secret("token", "wrong").data;
    let api = env.in_namespace("asks").case().api::<Secret>();
    api.replace("token", &PostParams::default(), &edited).await?;
    let repaired = env.in_namespace("asks");
    env.within_two_seconds("an edit", repaired.wait_for::<Secret>("token", is_whole))
        .await?;
    // By deletion.
    env.settle().await;
    env.proxy().clear();
    env.in_namespace("asks").delete::<Secret>("token").await?;
    env.within_two_seconds("a deletion", env.wait_for_copy("asks", "token", "1"))
        .await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), ["create asks/token"]);
    running.stop().await
}

/// A namespace that has sources of its own and receives copies is served as quickly as the others.
pub(crate) async fn drift_is_repaired_at_once_in_a_source_namespace(case: Case) -> anyhow::Result<()> {
    let (env, running) = prepare(&case).await?;
    env.in_namespace("asks").create(secret("own", "1")).await?;
    env.sync("asks", "on", json!({ "names": ["own"] })).await?;
    env.wait_for_status("asks", "on", |status| status.sources == 1)
        .await?;
    for value in ["2", "3", "4"] {
        let changed = json!({ "data": secret("token", value).data });
        env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
        env.within_two_seconds("a change", env.wait_for_copy("asks", "token", value))
            .await?;
        env.in_namespace("asks").delete::<Secret>("token").await?;
        env.within_two_seconds("a deletion", env.wait_for_copy("asks", "token", value))
            .await?;
    }
    running.stop().await
}

/// Managed fields prove nothing about content: others can write under our name, also while no process runs.
pub(crate) async fn changes_under_our_name_are_repaired(case: Case) -> anyhow::Result<()> {
    for is_down in [false, true] {
        let case = case.fresh().await?;
        let (env, running) = prepare(&case).await?;
        let mut running = Some(running);
        let api = env.in_namespace("asks").case().api::<Secret>();
        let as_us = PatchParams {
            field_manager: Some("secretsync".to_owned()),
            ..PatchParams::default()
        };
        for (what, patch) in [
            ("a value", json!({ "data": { "password": "d3Jvbmc=" } })),
            ("a key more", json!({ "stringData": { "more": "wrong" } })),
            (
                "another key",
                json!({ "data": { "password": null, "more": "d3Jvbmc=" } }),
            ),
            ("a key less", json!({ "data": null })),
        ] {
            if let Some(running) = running.take_if(|_| is_down) {
                running.stop().await?;
            }
            env.proxy().clear();
            api.patch("token", &as_us, &Patch::Merge(patch)).await?;
            if is_down {
                running = Some(env.start().await?);
            }
            let asks = env.in_namespace("asks");
            asks.wait_for::<Secret>("token", is_whole)
                .await
                .with_context(|| format!("{what}, down: {is_down}"))?;
            env.settle().await;
            assert_eq!(
                env.copy_writes(),
                ["update asks/token"],
                "{what}, down: {is_down}"
            );
        }
        if let Some(running) = running {
            running.stop().await?;
        }
    }
    Ok(())
}

/// After a start, each copy is read once; then only those that others have changed.
pub(crate) async fn copies_are_read_once_after_a_start(case: Case) -> anyhow::Result<()> {
    let (env, running) = prepare(&case).await?;
    running.stop().await?;
    env.proxy().clear();
    let running = env.start().await?;
    env.settle().await;
    let reads = || {
        let sent = env.proxy().requests();
        let mut reads: Vec<_> = sent
            .iter()
            .filter(|sent| sent.access.verb == "get" && sent.resource() == "secrets")
            .map(describe_request)
            .collect();
        reads.sort();
        reads
    };
    assert_eq!(
        reads(),
        ["get asks/token", "get other/token", "get secretsync/token"]
    );
    env.let_time_pass().await;
    assert_eq!(reads().len(), 3, "and not again");
    env.proxy().clear();
    let theirs = json!({ "metadata": { "labels": { "theirs": "1" } } });
    env.in_namespace("asks").patch::<Secret>("token", theirs).await?;
    env.settle().await;
    assert_eq!(reads(), ["get asks/token"]);
    assert_eq!(env.all_writes(), [""; 0]);
    running.stop().await
}

/// After a start, the copies of a source in many namespaces are compared in one request, and those that others have changed
/// meanwhile are repaired; also if the change is the only one, and the metadata claims that there is none.
pub(crate) async fn many_copies_are_compared_together_after_a_start(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    let names: Vec<_> = (0..12).map(|number| format!("ns-{number:02}")).collect();
    env.consenting(&names.iter().map(String::as_str).collect::<Vec<_>>())
        .await?;
    env.source("token", "1").await?;
    let running = env.start().await?;
    let all = |status: &SecretSyncStatus| status.synced == 12;
    env.wait_for_status(HOME, "secret.token", all).await?;
    env.settle().await;
    running.stop().await?;
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace("ns-07")
        .patch::<Secret>("token", changed)
        .await?;
    // A Secret of the target that carries the label: it is neither a copy nor changed.
    let labels = env
        .in_namespace("ns-00")
        .get::<Secret>("token")
        .await?
        .metadata
        .labels;
    let mut theirs = secret("theirs", "3");
    theirs.metadata.labels = labels;
    env.in_namespace("ns-00").create(theirs).await?;
    env.proxy().clear();

    let running = env.start().await?;
    env.wait_for_copy("ns-07", "token", "1").await?;
    env.settle().await;
    let sent = env.proxy().requests();
    let content = |verb: &str| {
        let with_content = sent.iter().filter(|sent| {
            sent.access.verb == verb && sent.resource() == "secrets" && !sent.accept.contains("PartialObject")
        });
        with_content.map(describe_request).collect::<Vec<_>>()
    };
    let mut single = content("get");
    single.sort();
    assert_eq!(single, ["get ns-07/token", "get secretsync/token"]);
    assert_eq!(content("list").len(), 1, "{:?}", content("list"));
    assert_eq!(env.copy_writes(), ["update ns-07/token"]);
    env.wait_for_status(HOME, "secret.token", all).await?;
    // Once is enough: what is changed later is read alone.
    env.proxy().clear();
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace("ns-03")
        .patch::<Secret>("token", changed)
        .await?;
    env.wait_for_copy("ns-03", "token", "1").await?;
    env.settle().await;
    let sent = env.proxy().requests();
    let lists = sent.iter().filter(|sent| sent.access.verb == "list");
    assert_eq!(lists.count(), 0);
    running.stop().await
}

/// A change of a source is one request per copy, unless others have added metadata, which stays.
pub(crate) async fn update_of_a_known_copy_is_one_request(case: Case) -> anyhow::Result<()> {
    let (env, running) = prepare(&case).await?;
    env.consenting(&["labelled"]).await?;
    env.wait_for_copy("labelled", "token", "1").await?;
    let theirs = json!({ "metadata": { "labels": { "theirs": "1" } } });
    env.in_namespace("labelled")
        .patch::<Secret>("token", theirs)
        .await?;
    env.settle().await;
    env.proxy().clear();
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    for namespace in ["asks", "other", "labelled"] {
        env.wait_for_copy(namespace, "token", "2").await?;
    }
    env.settle().await;
    let sent = env.proxy().requests();
    let mut requests: Vec<_> = sent
        .iter()
        .filter(|sent| sent.resource() == "secrets" && sent.access.verb != "watch")
        .map(describe_request)
        .collect();
    requests.sort();
    assert_eq!(
        requests,
        [
            "get labelled/token",
            "get secretsync/token",
            "update asks/token",
            "update labelled/token",
            "update other/token"
        ]
    );
    running.stop().await
}

/// Data that a tool applies as `stringData` has no owner in the managed fields. Whether or not a process runs, the status
/// says that the copy is not right.
pub(crate) async fn data_applied_as_string_data_is_reported(case: Case) -> anyhow::Result<()> {
    for is_down in [false, true] {
        let case = case.fresh().await?;
        let env = TestCluster::new(&case).await?;
        env.consenting(&["asks"]).await?;
        env.in_namespace(HOME).create(secret("token", "1")).await?;
        env.sync(HOME, "shared", json!({ "names": ["token"] })).await?;
        let mut running = Some(env.start().await?);
        let is_ready = |status: &SecretSyncStatus| status.synced == 1 && condition(status, "Ready", "True");
        env.wait_for_status(HOME, "shared", is_ready).await?;
        env.settle().await;
        if let Some(running) = running.take_if(|_| is_down) {
            running.stop().await?;
        }
        let api = env.in_namespace("asks").case().api::<Secret>();
        let apply = |data: Value| {
            let object = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "token" }, "stringData": data,
            });
            let api = api.clone();
            async move {
                let force = PatchParams::apply("flux").force();
                api.patch("token", &force, &Patch::Apply(&object)).await
            }
        };
        apply(json!({ "password": "theirs" })).await?;
        if is_down {
            running = Some(env.start().await?);
        }
        let conflicts = |status: &SecretSyncStatus| {
            let names_it = |failure: &SyncFailure| failure.message.contains("flux");
            status.conflicts == 1
                && condition(status, "Ready", "False")
                && status.failures.iter().any(names_it)
        };
        env.wait_for_status(HOME, "shared", conflicts)
            .await
            .with_context(|| format!("down: {is_down}"))?;
        // When it no longer applies the key, the copy is repaired.
        apply(json!({})).await?;
        env.wait_for_copy("asks", "token", "1").await?;
        env.wait_for_status(HOME, "shared", is_ready).await?;
        if let Some(running) = running {
            running.stop().await?;
        }
    }
    Ok(())
}

/// Labels and annotations of other managers on a copy stay.
pub(crate) async fn metadata_of_other_managers_is_preserved(case: Case) -> anyhow::Result<()> {
    let (env, running) = prepare(&case).await?;
    env.proxy().clear();
    let patch = json!({ "metadata": { "labels": { "theirs": "1" }, "annotations": { "theirs": "1" } } });
    env.in_namespace("asks").patch::<Secret>("token", patch).await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    // They also stay when the copy is updated.
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    let copy = env.wait_for_copy("asks", "token", "2").await?;
    assert_eq!(copy.labels().get("theirs").map(String::as_str), Some("1"));
    assert_eq!(copy.annotations().get("theirs").map(String::as_str), Some("1"));
    running.stop().await
}

/// A manager that applies another value for a key, and would do so again, is reported instead of fought.
pub(crate) async fn applied_data_of_another_manager_is_reported_not_fought(case: Case) -> anyhow::Result<()> {
    let (env, running) = prepare(&case).await?;
    let source = env.in_namespace(HOME).get::<Secret>("token").await?;
    let api = env.in_namespace("asks").case().api::<Secret>();
    let theirs = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "token" },
        "data": { "password": "dGhlaXJz" },
    });
    env.proxy().clear();
    // Like a deployment tool that reconciles every minute.
    for _ in 0..5 {
        api.patch(
            "token",
            &PatchParams::apply("flux").force(),
            &Patch::Apply(&theirs),
        )
        .await?;
        env.settle().await;
    }
    let writes = env.copy_writes();
    assert!(writes.len() <= 1, "repeated writes: {writes:?}");
    let warned = |event: &Event| event.type_.as_deref() == Some("Warning");
    let observed = env.in_namespace(HOME).wait_for_event(&source, warned).await?;
    let message = observed.message.unwrap_or_default();
    assert!(
        message.contains("asks/token") && message.contains("flux"),
        "{message}"
    );
    // The other copies are still updated.
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    env.wait_for_copy("other", "token", "2").await?;
    // When it no longer applies the key, the copy is ours again.
    let nothing = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "token" } });
    api.patch(
        "token",
        &PatchParams::apply("flux").force(),
        &Patch::Apply(&nothing),
    )
    .await?;
    env.wait_for_copy("asks", "token", "2").await?;
    running.stop().await
}
