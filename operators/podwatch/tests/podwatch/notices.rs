//! Notices of any kind.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::StatusCode;
use windlass::{
    k8s_openapi::{
        api::{
            coordination::v1::Lease,
            core::v1::{ConfigMap, Event, Secret},
        },
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::{
        Api,
        api::{DynamicObject, ListParams, PostParams},
        core::ApiResource,
    },
    prelude::{Client, Manager, ObjectKey, Resource, ResourceExt, from_value, json},
};
use windlass_podwatch::{
    EventType, Kind, KindRef, Notice, NoticeOptions, REDACTED, Scope,
    delivery::{Hub, Limits},
    journal::Journal,
    resolve,
    sinks::{KubernetesEvents, Sink},
    watch,
};
use windlass_suite::{
    CapturedLog, Context as Case, ManifestRoles, NetworkLink, RunningManager, TestEnvironment, install_crds,
};

use crate::podwatch::{
    fixture::scope,
    recording_sink::{RecordingSink, WatchConfig},
};

fn kind<K: Resource<DynamicType = ()>>() -> Vec<Kind> {
    vec![Kind {
        resource: ApiResource::erase::<K>(&()),
        namespaced: true,
        installed: true,
    }]
}

async fn found(client: &Client, names: &[&str]) -> anyhow::Result<Vec<Kind>> {
    let names: Result<Vec<KindRef>, _> = names.iter().map(|name| name.parse()).collect();
    Ok(resolve(client, &names?).await?)
}

pub(crate) fn config(name: &str, text: &str) -> ConfigMap {
    from_value(json!({ "metadata": { "name": name }, "data": { "text": text } })).expect("a config map")
}

/// Excludes the ConfigMap that a cluster creates in each namespace.
fn ours(case: &Case) -> Scope {
    Scope {
        fields: Some("metadata.name!=kube-root-ca.crt".to_owned()),
        ..scope(case)
    }
}

pub(crate) async fn events_are_reported_with_changed_fields(case: Case) -> anyhow::Result<()> {
    let (env, sink) = (TestEnvironment::new(&case), RecordingSink::default());
    env.create(config("a", "1")).await?;
    env.wait_for::<ConfigMap>("a", |_| true).await?;
    let running = WatchConfig::new(kind::<ConfigMap>(), ours(&case)).start(case.client(), &sink);
    sink.wait_for_exactly(&["synced ConfigMap a"]).await?;
    let b = env.create(config("b", "1")).await?;
    sink.wait_for(EventType::Added, "b").await?;
    let change = json!({ "data": { "text": "2", "more": "x" }, "metadata": { "labels": { "a.b/c": "d" } } });
    let changed = env.patch::<ConfigMap>("b", change).await?;
    sink.wait_for(EventType::Updated, "b").await?;
    env.delete::<ConfigMap>("b").await?;
    sink.wait_for_exactly(&[
        "synced ConfigMap a",
        "added ConfigMap b",
        "updated ConfigMap b data.more data.text metadata.labels",
        "deleted ConfigMap b",
    ])
    .await?;
    let notices = sink.notices();
    assert_eq!(notices[1].uid, b.uid());
    assert_eq!(notices[1].resource_version, b.resource_version());
    assert_eq!(notices[1].key, ObjectKey::namespaced(case.namespace(), "b"));
    assert_eq!(notices[2].resource_version, changed.resource_version());
    let text = &notices[2].changes[1];
    assert_eq!((&text.old, &text.new), (&Some(json!("1")), &Some(json!("2"))));
    let last = notices[3]
        .object
        .as_ref()
        .map(|object| object["data"]["text"].clone());
    assert_eq!(last, Some(json!("2")), "a deletion has the last state");
    let ids: BTreeSet<_> = notices.iter().map(|notice| notice.id()).collect();
    assert_eq!(ids.len(), 4);
    running.stop().await
}

/// A custom resource whose kind cannot be derived from its plural.
fn widgets(case: &Case) -> CustomResourceDefinition {
    let plural = format!("widgets{}", case.namespace().replace('-', ""));
    from_value(json!({
        "metadata": { "name": format!("{plural}.podwatch.example.com") },
        "spec": {
            "group": "podwatch.example.com", "scope": "Namespaced",
            "names": { "plural": plural, "singular": format!("{plural}1"), "kind": format!("Widget{plural}"), "shortNames": [format!("{plural}2")] },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    }))
    .expect("a definition")
}

async fn create_widget(case: &Case, kind: &Kind, name: &str) -> anyhow::Result<()> {
    let widgets = Api::<DynamicObject>::namespaced_with(case.client(), case.namespace(), &kind.resource);
    let widget = DynamicObject::new(name, &kind.resource);
    widgets.create(&PostParams::default(), &widget).await?;
    Ok(())
}

/// With only the rights that rbac.yaml documents for other kinds: discovery needs none.
pub(crate) async fn several_kinds_are_resolved_by_name_and_reported(case: Case) -> anyhow::Result<()> {
    let crd = widgets(&case);
    install_crds(&case, [crd.clone()]).await?;
    let shipped = ManifestRoles::parse(
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: podwatch-more }
rules:
  - { apiGroups: [''], resources: [configmaps, namespaces], verbs: [list, watch] }
  - { apiGroups: [podwatch.example.com], resources: ['*'], verbs: [list, watch] }
",
    )?;
    let client = shipped.client(&case).await?;
    let short = crd.spec.names.short_names.clone().unwrap_or_default().remove(0);
    let kinds = found(&client, &["cm", &short, "Namespace", "configmaps.v1"]).await?;
    assert_eq!(kinds.len(), 3, "duplicates are removed");
    let (sink, widget) = (RecordingSink::default(), kinds[1].clone());
    assert!(!kinds[2].namespaced);
    let running = WatchConfig::new(kinds, scope(&case)).start(client, &sink);
    TestEnvironment::new(&case).create(config("a", "1")).await?;
    create_widget(&case, &widget, "w").await?;
    sink.wait(|notices| {
        let is_there = |name| notices.iter().any(|notice| notice.key.name() == name);
        is_there("a") && is_there("w")
    })
    .await?;
    let widget_notice = sink.notices().into_iter().find(|notice| notice.key.name() == "w");
    assert_eq!(
        widget_notice.map(|notice| notice.kind.kind.clone()),
        Some(crd.spec.names.kind)
    );
    // Cluster-scoped kinds are reported too.
    sink.wait_for(EventType::Synced, case.namespace()).await?;
    assert_eq!(shipped.forbidden(), [""; 0]);
    running.stop().await
}

/// A missing kind delays no other.
pub(crate) async fn kind_installed_later_is_reported(case: Case) -> anyhow::Result<()> {
    let (env, sink, crd) = (
        TestEnvironment::new(&case),
        RecordingSink::default(),
        widgets(&case),
    );
    let name = format!("{}.v1.podwatch.example.com", crd.spec.names.plural);
    let kinds = found(&case.client(), &[&name, "configmaps"]).await?;
    assert!(!kinds[0].installed && kinds[1].installed);
    let mut widget = kinds[0].clone();
    crd.spec.names.kind.clone_into(&mut widget.resource.kind);
    let running = WatchConfig::new(kinds, ours(&case)).start(case.client(), &sink);
    env.create(config("a", "1")).await?;
    sink.wait(|notices| notices.len() == 1).await?;
    install_crds(&case, [crd.clone()]).await?;
    create_widget(&case, &widget, "w").await?;
    sink.wait(|notices| notices.len() == 2).await?;
    let notice = &sink.notices()[1];
    assert_eq!(
        notice.kind.kind, crd.spec.names.kind,
        "the guessed kind is corrected"
    );
    running.stop().await
}

/// The error suggests what to write.
pub(crate) async fn unknown_or_ambiguous_kind_is_rejected(case: Case) -> anyhow::Result<()> {
    for (name, expected) in [
        ("podz", "did you mean `pods.v1`?"),
        ("xyzzy", "`kubectl api-resources`"),
        ("events", "write one of `events.v1`, `events.events.k8s.io`"),
        ("widgets.example.com", "name its version too"),
    ] {
        let error = found(&case.client(), &[name]).await.expect_err(name).to_string();
        assert!(
            error.contains(expected) && error.contains(name),
            "{name}: {error}"
        );
    }
    Ok(())
}

pub(crate) async fn filter_and_event_types_select_notices(case: Case) -> anyhow::Result<()> {
    let (env, sink) = (TestEnvironment::new(&case), RecordingSink::default());
    env.create(config("old", "x")).await?;
    env.wait_for::<ConfigMap>("old", |_| true).await?;
    let mut watching = WatchConfig::new(kind::<ConfigMap>(), ours(&case));
    watching.options = NoticeOptions {
        events: vec![EventType::Synced, EventType::Added, EventType::Updated],
        filter: Some("object.data.text != 'hide'".parse()?),
        ..NoticeOptions::default()
    };
    let running = watching.start(case.client(), &sink);
    sink.wait_for_exactly(&["synced ConfigMap old"]).await?;
    env.create(config("a", "1")).await?;
    sink.wait_for(EventType::Added, "a").await?;
    env.create(config("b", "hide")).await?;
    env.patch::<ConfigMap>("a", json!({ "data": { "text": "hide" } }))
        .await?;
    env.patch::<ConfigMap>("a", json!({ "data": { "text": "2" } }))
        .await?;
    sink.wait_for(EventType::Updated, "a").await?;
    env.delete::<ConfigMap>("a").await?;
    // The filter fails on the missing field, so the object is reported.
    env.create(from_value::<ConfigMap>(json!({ "metadata": { "name": "c" } }))?)
        .await?;
    sink.wait_for_exactly(&[
        "synced ConfigMap old",
        "added ConfigMap a",
        "updated ConfigMap a data.text",
        "added ConfigMap c",
    ])
    .await?;
    running.stop().await
}

fn lease(second: u8) -> serde_json::Value {
    json!({ "spec": { "holderIdentity": "me", "renewTime": format!("2026-01-01T00:00:{second:02}.000000Z") } })
}

pub(crate) async fn heartbeats_are_reported_only_on_request(case: Case) -> anyhow::Result<()> {
    let env = TestEnvironment::new(&case);
    env.create(from_value::<Lease>(json!({ "metadata": { "name": "a" } }))?)
        .await?;
    env.patch::<Lease>("a", lease(1)).await?;
    env.wait_for::<Lease>("a", |lease| lease.spec.is_some()).await?;
    let (quiet, loud) = (RecordingSink::default(), RecordingSink::default());
    let mut options = NoticeOptions::default();
    let watching = |options: &NoticeOptions| WatchConfig {
        options: options.clone(),
        ..WatchConfig::new(kind::<Lease>(), scope(&case))
    };
    let first = watching(&options).start(case.client(), &quiet);
    options.heartbeats = true;
    let second = watching(&options).start(case.client(), &loud);
    for sink in [&quiet, &loud] {
        sink.wait_for_exactly(&["synced Lease a"]).await?;
    }
    env.patch::<Lease>("a", lease(2)).await?;
    loud.wait_for_exactly(&["synced Lease a", "updated Lease a spec.renewTime"])
        .await?;
    env.patch::<Lease>("a", json!({ "spec": { "holderIdentity": "you" } }))
        .await?;
    loud.wait_for_exactly(&[
        "synced Lease a",
        "updated Lease a spec.renewTime",
        "updated Lease a spec.holderIdentity",
    ])
    .await?;
    quiet
        .wait_for_exactly(&["synced Lease a", "updated Lease a spec.holderIdentity"])
        .await?;
    first.stop().await?;
    second.stop().await
}

/// A relist yields inferred deletions, also for a recreated object.
pub(crate) async fn events_missed_during_disconnect_are_inferred(case: Case) -> anyhow::Result<()> {
    let (env, sink) = (TestEnvironment::new(&case), RecordingSink::default());
    for name in ["a", "b", "c"] {
        env.create(config(name, "1")).await?;
        env.wait_for::<ConfigMap>(name, |_| true).await?;
    }
    let line = NetworkLink::new(env.proxy().client());
    let running = WatchConfig::new(kind::<ConfigMap>(), ours(&case)).start(line.client(), &sink);
    sink.wait(|notices| notices.len() == 3).await?;
    line.disconnect();
    env.delete::<ConfigMap>("a").await?;
    env.delete::<ConfigMap>("b").await?;
    let second = env.create(config("b", "2")).await?;
    env.patch::<ConfigMap>("c", json!({ "data": { "text": "2" } }))
        .await?;
    env.wait_until_deleted::<ConfigMap>("a").await?;
    env.proxy().reject(1, StatusCode::GONE, |_| true);
    line.reconnect();
    sink.wait(|notices| notices.len() == 7).await?;
    let mut summaries = sink.summaries().split_off(3);
    summaries.sort();
    assert_eq!(
        summaries,
        [
            "added ConfigMap b",
            "deleted ConfigMap a (inferred)",
            "deleted ConfigMap b (inferred)",
            "updated ConfigMap c data.text",
        ]
    );
    let about_b: Vec<_> = sink
        .notices()
        .into_iter()
        .filter(|notice| notice.key.name() == "b")
        .collect();
    assert_eq!(about_b[2].event, EventType::Added, "the deletion comes first");
    assert_eq!(about_b[2].uid, second.uid());
    assert_eq!(about_b[1].uid, about_b[0].uid);
    running.stop().await
}

/// Each change becomes an Event in the namespace of the object. Objects that existed before have none.
pub(crate) async fn changes_are_reported_as_kubernetes_events(case: Case) -> anyhow::Result<()> {
    let (env, recorded) = (TestEnvironment::new(&case), RecordingSink::default());
    env.create(config("before", "1")).await?;
    env.wait_for::<ConfigMap>("before", |_| true).await?;
    let sinks: Vec<(String, Limits, Box<dyn Sink>)> = vec![
        (
            "recorded".to_owned(),
            Limits::default(),
            Box::new(recorded.clone()),
        ),
        (
            "events".to_owned(),
            Limits::default(),
            Box::new(KubernetesEvents::new(case.client())),
        ),
    ];
    let options = NoticeOptions::default();
    let hub = Arc::new(Hub::new(sinks, None, options.clock)?);
    let manager = Manager::new(case.client());
    let is = |reason: &'static str| move |event: &Event| event.reason.as_deref() == Some(reason);
    let running = RunningManager::start(watch(manager, kind::<ConfigMap>(), &ours(&case), options, &hub));
    recorded.wait_for(EventType::Synced, "before").await?;
    let a = env.create(config("a", "1")).await?;
    // Waits for each Event before the next change: a sink that is behind coalesces what is in its queue.
    env.wait_for_event(&a, is("Added")).await?;
    env.patch::<ConfigMap>("a", json!({ "data": { "text": "2" } }))
        .await?;
    env.wait_for_event(&a, is("Updated")).await?;
    env.delete::<ConfigMap>("a").await?;
    env.wait_for_event(&a, is("Deleted")).await?;
    recorded.wait_for(EventType::Deleted, "a").await?;
    running.stop().await?;

    // A repetition changes nothing.
    let again = KubernetesEvents::new(case.client());
    for notice in recorded.notices() {
        let delivered = again.deliver(&notice).await;
        assert_eq!(delivered, Ok(()), "{notice:?}");
    }
    let events = Api::<Event>::namespaced(case.client(), case.namespace());
    let events = events.list(&ListParams::default()).await?.items;
    let mut ours: Vec<_> = events
        .iter()
        .filter(|event| {
            event
                .source
                .as_ref()
                .and_then(|source| source.component.as_deref())
                == Some("podwatch")
        })
        .map(|event| {
            let object = &event.involved_object;
            (
                object.name.as_deref().unwrap_or_default(),
                event.reason.as_deref().unwrap_or_default(),
                event.message.as_deref().unwrap_or_default().to_owned(),
            )
        })
        .collect();
    ours.sort_unstable();
    let message = |text: &str| format!("{text} ConfigMap {}/a", case.namespace());
    assert_eq!(
        ours,
        [
            ("a", "Added", message("added")),
            ("a", "Deleted", message("deleted")),
            (
                "a",
                "Updated",
                format!("{}: data.text: \"1\" → \"2\"", message("updated"))
            ),
        ]
    );
    Ok(())
}

/// A burst of changes is one notice that says how many changes it includes, or a notice for each change.
pub(crate) async fn burst_of_changes_is_coalesced_and_counted_or_reported_whole(
    case: Case,
) -> anyhow::Result<()> {
    let env = TestEnvironment::new(&case);
    env.create(config("a", "0")).await?;
    env.wait_for::<ConfigMap>("a", |_| true).await?;
    let line = NetworkLink::new(env.proxy().client());
    let (latest, every) = (RecordingSink::default(), RecordingSink::default());
    let mut running = Vec::new();
    for (sink, every_change) in [(&latest, false), (&every, true)] {
        let mut watching = WatchConfig::new(kind::<ConfigMap>(), ours(&case));
        watching.options.every_change = every_change;
        running.push(watching.start(line.client(), sink));
        sink.wait(|notices| notices.len() == 1).await?;
    }
    line.disconnect();
    for text in 1..=20 {
        env.patch::<ConfigMap>("a", json!({ "data": { "text": text.to_string() } }))
            .await?;
    }
    env.delete::<ConfigMap>("a").await?;
    env.wait_until_deleted::<ConfigMap>("a").await?;
    line.reconnect();
    for sink in [&latest, &every] {
        sink.wait_for(EventType::Deleted, "a").await?;
    }
    let updates: Vec<_> = every
        .notices()
        .iter()
        .filter(|notice| notice.event == EventType::Updated)
        .map(|notice| (notice.changes[0].new.clone(), notice.coalesced))
        .collect();
    let expected: Vec<_> = (1..=20).map(|text| (Some(json!(text.to_string())), 0)).collect();
    assert_eq!(updates, expected);
    let notices = latest.notices();
    let included: u64 = notices[1..].iter().map(|notice| notice.coalesced + 1).sum();
    assert_eq!(included, 21, "{:#?}", latest.summaries());
    assert!(notices.len() < 21, "{:#?}", latest.summaries());
    for running in running {
        running.stop().await?;
    }
    Ok(())
}

/// With a state file, nothing is missed and nothing is repeated.
pub(crate) async fn events_missed_while_stopped_are_reported_after_restart(case: Case) -> anyhow::Result<()> {
    let (env, folder) = (TestEnvironment::new(&case), tempfile::tempdir()?);
    let state = folder.path().join("state");
    let start = |sink: &RecordingSink| {
        let journal = Some(Journal::open(&state)?);
        let watching = WatchConfig {
            journal,
            ..WatchConfig::new(kind::<ConfigMap>(), ours(&case))
        };
        anyhow::Ok(watching.start(case.client(), sink))
    };
    for name in ["same", "changed", "gone", "replaced"] {
        env.create(config(name, "1")).await?;
    }
    env.wait_for::<ConfigMap>("replaced", |_| true).await?;
    let before = RecordingSink::default();
    let running = start(&before)?;
    before.wait(|notices| notices.len() == 4).await?;
    running.stop().await?;

    env.patch::<ConfigMap>("changed", json!({ "data": { "text": "2" } }))
        .await?;
    env.delete::<ConfigMap>("gone").await?;
    env.delete::<ConfigMap>("replaced").await?;
    env.create(config("replaced", "2")).await?;
    env.create(config("new", "1")).await?;
    env.wait_for::<ConfigMap>("new", |_| true).await?;

    let after = RecordingSink::default();
    let running = start(&after)?;
    after.wait(|notices| notices.len() == 5).await?;
    running.stop().await?;
    let mut summaries = after.summaries();
    summaries.sort();
    assert_eq!(
        summaries,
        [
            "added ConfigMap new (inferred)",
            "added ConfigMap replaced (inferred)",
            "deleted ConfigMap gone (inferred)",
            "deleted ConfigMap replaced (inferred)",
            "updated ConfigMap changed (inferred)",
        ]
    );
    let again = RecordingSink::default();
    let running = start(&again)?;
    env.create(config("last", "1")).await?;
    again.wait_for(EventType::Added, "last").await?;
    running.stop().await?;
    assert_eq!(again.summaries().len(), 1, "{:#?}", again.summaries());

    // Deletions are reported even if no object is left.
    let all = ["same", "changed", "replaced", "new", "last"];
    for name in all {
        env.delete::<ConfigMap>(name).await?;
        env.wait_until_deleted::<ConfigMap>(name).await?;
    }
    let end = RecordingSink::default();
    let running = start(&end)?;
    end.wait(|notices| notices.len() == all.len()).await?;
    let is_end = |notice: &Arc<Notice>| notice.event == EventType::Deleted && notice.inferred;
    assert!(end.notices().iter().all(is_end), "{:#?}", end.summaries());
    running.stop().await
}

/// A secret value that must not leak.
const CANARY: &str = "c4n4ry-in-the-mine";

/// Neither to a sink, nor to the log at trace level, nor through a failing filter.
pub(crate) async fn secret_values_never_leak(case: Case) -> anyhow::Result<()> {
    let (log, env, sink) = (
        CapturedLog::start(),
        TestEnvironment::new(&case),
        RecordingSink::default(),
    );
    let secret = |value: &str| {
        let mut secret: Secret =
            from_value(json!({ "metadata": { "name": "s" }, "stringData": { "password": value } }))
                .expect("a secret");
        let copy = json!({ "kind": "Secret", "stringData": { "password": value } }).to_string();
        secret.annotations_mut().insert(
            "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
            copy,
        );
        secret
            .annotations_mut()
            .insert("example.com/token".to_owned(), value.to_owned());
        secret
    };
    let mut watching = WatchConfig::new(kind::<Secret>(), scope(&case));
    // It is never false, and fails on the values that it compares.
    watching.options.filter = Some("object.data.password < 5 || object.nothing == object.data".parse()?);
    env.create(secret(CANARY)).await?;
    env.wait_for::<Secret>("s", |_| true).await?;
    let running = watching.start(case.client(), &sink);
    sink.wait_for(EventType::Synced, "s").await?;
    let patch = json!({ "stringData": { "password": format!("{CANARY}-2") }, "metadata": { "annotations": { "example.com/token": CANARY.to_uppercase() } } });
    env.patch::<Secret>("s", patch).await?;
    sink.wait_for(EventType::Updated, "s").await?;
    env.delete::<Secret>("s").await?;
    sink.wait_for_exactly(&[
        "synced Secret s",
        "updated Secret s data.password metadata.annotations[\"example.com/token\"]",
        "deleted Secret s",
    ])
    .await?;
    running.stop().await?;
    let notices = sink.notices();
    let password = notices[0]
        .object
        .as_ref()
        .map(|object| object["data"]["password"].clone());
    assert_eq!(password, Some(json!(REDACTED)));
    let change = &notices[1].changes[0];
    assert_eq!(
        (&change.old, &change.new),
        (&Some(json!(REDACTED)), &Some(json!(REDACTED)))
    );
    let (received, log) = (format!("{notices:?}"), log.text());
    assert!(
        log.contains("the filter fails on an object"),
        "the log was captured"
    );
    for hidden in [
        CANARY.to_owned(),
        CANARY.to_uppercase(),
        base64(CANARY),
        base64(&format!("{CANARY}-2")),
    ] {
        assert!(!received.contains(&hidden), "leaked: {hidden}");
        // The embedded API server logs requests in the same process.
        let line = log
            .lines()
            .find(|line| line.contains(&hidden) && !line.contains("windlass_apiserver"));
        assert_eq!(line, None, "logged");
    }
    Ok(())
}

/// Base64 without padding.
fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |bytes: &[u8]| {
        let number = (0..3).fold(0_usize, |number, place| {
            number << 8 | usize::from(bytes.get(place).copied().unwrap_or_default())
        });
        let letters =
            (0..=bytes.len()).map(move |place| char::from(LETTERS[number >> (18 - 6 * place) & 63]));
        letters.collect::<String>()
    };
    text.as_bytes().chunks(3).map(group).collect()
}

pub(crate) async fn known_object_that_is_gone_is_reported_as_deleted(case: Case) -> anyhow::Result<()> {
    let (env, sink) = (TestEnvironment::new(&case), RecordingSink::default());
    env.create(config("a", "1")).await?;
    env.wait_for::<ConfigMap>("a", |_| true).await?;
    let known = ["a", "b"]
        .map(|name| ObjectKey::namespaced(case.namespace(), name))
        .to_vec();
    let running =
        WatchConfig::new(kind::<ConfigMap>(), Scope { known, ..ours(&case) }).start(case.client(), &sink);
    sink.wait(|notices| notices.len() == 2).await?;
    let mut summaries = sink.summaries();
    summaries.sort();
    assert_eq!(
        summaries,
        ["deleted ConfigMap b (inferred)", "synced ConfigMap a"]
    );
    running.stop().await
}

pub(crate) async fn forbidden_watch_is_retried_with_backoff(case: Case) -> anyhow::Result<()> {
    let (env, sink) = (TestEnvironment::new(&case), RecordingSink::default());
    env.proxy().reject(usize::MAX, StatusCode::FORBIDDEN, |_| true);
    let running = WatchConfig::new(kind::<ConfigMap>(), ours(&case)).start(env.proxy().client(), &sink);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = env.proxy().request_count();
    assert!((2..30).contains(&asked), "{asked} requests in 10 s");
    assert_eq!(sink.summaries(), [""; 0]);
    running.stop().await
}
