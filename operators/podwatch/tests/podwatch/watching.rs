//! Any kind, and what is told of it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::StatusCode;
use windlass::{
    k8s_openapi::{
        api::{
            coordination::v1::Lease,
            core::v1::{ConfigMap, Secret},
        },
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::{
        Api,
        api::{DynamicObject, PostParams},
        core::ApiResource,
    },
    prelude::{Client, ObjectKey, Resource, ResourceExt, from_value, json},
};
use windlass_podwatch::{Kind, KindRef, Notice, REDACTED, Scope, What, Wishes, journal::Journal, resolve};
use windlass_suite::{Context as Case, Line, Log, Shipped, World, install};

use crate::{
    ear::{Ear, Watching},
    world::scope,
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

/// What a cluster puts into each namespace by itself is not the case's.
fn ours(case: &Case) -> Scope {
    Scope {
        fields: Some("metadata.name!=kube-root-ca.crt".to_owned()),
        ..scope(case)
    }
}

pub(crate) async fn what_happens_to_an_object_is_told_with_what_changed(case: Case) -> anyhow::Result<()> {
    let (world, ear) = (World::new(&case), Ear::default());
    world.create(config("a", "1")).await?;
    world.wait_for::<ConfigMap>("a", |_| true).await?;
    let running = Watching::of(kind::<ConfigMap>(), ours(&case)).start(case.client(), &ear);
    ear.hears(&["synced ConfigMap a"]).await?;
    let b = world.create(config("b", "1")).await?;
    ear.hears_of(What::Added, "b").await?;
    let change = json!({ "data": { "text": "2", "more": "x" }, "metadata": { "labels": { "a.b/c": "d" } } });
    let changed = world.patch::<ConfigMap>("b", change).await?;
    ear.hears_of(What::Updated, "b").await?;
    world.delete::<ConfigMap>("b").await?;
    ear.hears(&[
        "synced ConfigMap a",
        "added ConfigMap b",
        "updated ConfigMap b data.more data.text metadata.labels",
        "deleted ConfigMap b",
    ])
    .await?;
    let heard = ear.heard();
    assert_eq!(heard[1].uid, b.uid());
    assert_eq!(heard[1].resource_version, b.resource_version());
    assert_eq!(heard[1].key, ObjectKey::namespaced(case.namespace(), "b"));
    assert_eq!(heard[2].resource_version, changed.resource_version());
    let text = &heard[2].changes[1];
    assert_eq!((&text.old, &text.new), (&Some(json!("1")), &Some(json!("2"))));
    let last = heard[3]
        .object
        .as_ref()
        .map(|object| object["data"]["text"].clone());
    assert_eq!(last, Some(json!("2")), "of what is gone, the last state");
    let ids: BTreeSet<_> = heard.iter().map(|notice| notice.id()).collect();
    assert_eq!(ids.len(), 4);
    running.stop().await
}

/// A kind of one's own; its objects are told with the kind's name as it says it itself.
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

/// With the rights that the docs name for other kinds, and no others: finding kinds needs none.
pub(crate) async fn kinds_are_found_by_name_and_several_are_told_of(case: Case) -> anyhow::Result<()> {
    let crd = widgets(&case);
    install(&case, [crd.clone()]).await?;
    let shipped = Shipped::read(
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
    assert_eq!(kinds.len(), 3, "one twice is one");
    let (ear, widget) = (Ear::default(), kinds[1].clone());
    assert!(!kinds[2].namespaced);
    let running = Watching::of(kinds, scope(&case)).start(client, &ear);
    World::new(&case).create(config("a", "1")).await?;
    create_widget(&case, &widget, "w").await?;
    ear.wait(|heard| {
        let is_there = |name| heard.iter().any(|notice| notice.key.name() == name);
        is_there("a") && is_there("w")
    })
    .await?;
    let told = ear.heard().into_iter().find(|notice| notice.key.name() == "w");
    assert_eq!(told.map(|told| told.kind.kind.clone()), Some(crd.spec.names.kind));
    // Kinds outside namespaces are told of as well.
    ear.hears_of(What::Synced, case.namespace()).await?;
    assert_eq!(shipped.refused(), [""; 0]);
    running.stop().await
}

/// It is waited for, and delays no other kind.
pub(crate) async fn a_kind_may_be_installed_later(case: Case) -> anyhow::Result<()> {
    let (world, ear, crd) = (World::new(&case), Ear::default(), widgets(&case));
    let name = format!("{}.v1.podwatch.example.com", crd.spec.names.plural);
    let kinds = found(&case.client(), &[&name, "configmaps"]).await?;
    assert!(!kinds[0].installed && kinds[1].installed);
    let mut widget = kinds[0].clone();
    crd.spec.names.kind.clone_into(&mut widget.resource.kind);
    let running = Watching::of(kinds, ours(&case)).start(case.client(), &ear);
    world.create(config("a", "1")).await?;
    ear.wait(|heard| heard.len() == 1).await?;
    install(&case, [crd.clone()]).await?;
    create_widget(&case, &widget, "w").await?;
    ear.wait(|heard| heard.len() == 2).await?;
    let told = &ear.heard()[1];
    assert_eq!(
        told.kind.kind, crd.spec.names.kind,
        "what was guessed is put right"
    );
    running.stop().await
}

/// What cannot be found is an error that says what to write.
pub(crate) async fn a_name_that_means_nothing_or_two_kinds_is_refused(case: Case) -> anyhow::Result<()> {
    for (name, said) in [
        ("podz", "did you mean `pods.v1`?"),
        ("xyzzy", "`kubectl api-resources`"),
        ("events", "write one of `events.v1`, `events.events.k8s.io`"),
        ("widgets.example.com", "name its version too"),
    ] {
        let error = found(&case.client(), &[name]).await.expect_err(name).to_string();
        assert!(error.contains(said) && error.contains(name), "{name}: {error}");
    }
    Ok(())
}

pub(crate) async fn only_what_is_wanted_is_told_and_what_cannot_be_judged_is(
    case: Case,
) -> anyhow::Result<()> {
    let (world, ear) = (World::new(&case), Ear::default());
    world.create(config("old", "x")).await?;
    world.wait_for::<ConfigMap>("old", |_| true).await?;
    let mut watching = Watching::of(kind::<ConfigMap>(), ours(&case));
    watching.wishes = Wishes {
        events: vec![What::Synced, What::Added, What::Updated],
        filter: Some("object.data.text != 'hide'".parse()?),
        ..Wishes::default()
    };
    let running = watching.start(case.client(), &ear);
    ear.hears(&["synced ConfigMap old"]).await?;
    world.create(config("a", "1")).await?;
    ear.hears_of(What::Added, "a").await?;
    world.create(config("b", "hide")).await?;
    world
        .patch::<ConfigMap>("a", json!({ "data": { "text": "hide" } }))
        .await?;
    world
        .patch::<ConfigMap>("a", json!({ "data": { "text": "2" } }))
        .await?;
    ear.hears_of(What::Updated, "a").await?;
    world.delete::<ConfigMap>("a").await?;
    // The field is not there, and so the filter fails.
    world
        .create(from_value::<ConfigMap>(json!({ "metadata": { "name": "c" } }))?)
        .await?;
    ear.hears(&[
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

pub(crate) async fn a_heartbeat_is_told_only_to_who_wants_it(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case);
    world
        .create(from_value::<Lease>(json!({ "metadata": { "name": "a" } }))?)
        .await?;
    world.patch::<Lease>("a", lease(1)).await?;
    world.wait_for::<Lease>("a", |lease| lease.spec.is_some()).await?;
    let (quiet, loud) = (Ear::default(), Ear::default());
    let mut wishes = Wishes::default();
    let watching = |wishes: &Wishes| Watching {
        wishes: wishes.clone(),
        ..Watching::of(kind::<Lease>(), scope(&case))
    };
    let first = watching(&wishes).start(case.client(), &quiet);
    wishes.heartbeats = true;
    let second = watching(&wishes).start(case.client(), &loud);
    for ear in [&quiet, &loud] {
        ear.hears(&["synced Lease a"]).await?;
    }
    world.patch::<Lease>("a", lease(2)).await?;
    loud.hears(&["synced Lease a", "updated Lease a spec.renewTime"])
        .await?;
    world
        .patch::<Lease>("a", json!({ "spec": { "holderIdentity": "you" } }))
        .await?;
    loud.hears(&[
        "synced Lease a",
        "updated Lease a spec.renewTime",
        "updated Lease a spec.holderIdentity",
    ])
    .await?;
    quiet
        .hears(&["synced Lease a", "updated Lease a spec.holderIdentity"])
        .await?;
    first.stop().await?;
    second.stop().await
}

/// What follows from a list says so; another object of the same name is another object.
pub(crate) async fn what_is_missed_while_the_connection_is_lost_is_told_as_inferred(
    case: Case,
) -> anyhow::Result<()> {
    let (world, ear) = (World::new(&case), Ear::default());
    for name in ["a", "b", "c"] {
        world.create(config(name, "1")).await?;
        world.wait_for::<ConfigMap>(name, |_| true).await?;
    }
    let line = Line::new(world.wire().client());
    let running = Watching::of(kind::<ConfigMap>(), ours(&case)).start(line.client(), &ear);
    ear.wait(|heard| heard.len() == 3).await?;
    line.cut();
    world.delete::<ConfigMap>("a").await?;
    world.delete::<ConfigMap>("b").await?;
    let second = world.create(config("b", "2")).await?;
    world
        .patch::<ConfigMap>("c", json!({ "data": { "text": "2" } }))
        .await?;
    world.wait_gone::<ConfigMap>("a").await?;
    world.wire().refuse(1, StatusCode::GONE, |_| true);
    line.mend();
    ear.wait(|heard| heard.len() == 7).await?;
    let mut words = ear.words().split_off(3);
    words.sort();
    assert_eq!(
        words,
        [
            "added ConfigMap b",
            "deleted ConfigMap a (inferred)",
            "deleted ConfigMap b (inferred)",
            "updated ConfigMap c data.text",
        ]
    );
    let about_b: Vec<_> = ear
        .heard()
        .into_iter()
        .filter(|notice| notice.key.name() == "b")
        .collect();
    assert_eq!(about_b[2].what, What::Added, "the end comes first");
    assert_eq!(about_b[2].uid, second.uid());
    assert_eq!(about_b[1].uid, about_b[0].uid);
    running.stop().await
}

/// With a state file nothing is missed while it is away, and what was told is not told again.
pub(crate) async fn what_happens_while_it_is_away_is_told_when_it_is_back(case: Case) -> anyhow::Result<()> {
    let (world, folder) = (World::new(&case), tempfile::tempdir()?);
    let state = folder.path().join("state");
    let start = |ear: &Ear| {
        let journal = Some(Journal::open(&state)?);
        let watching = Watching {
            journal,
            ..Watching::of(kind::<ConfigMap>(), ours(&case))
        };
        anyhow::Ok(watching.start(case.client(), ear))
    };
    for name in ["same", "changed", "gone", "replaced"] {
        world.create(config(name, "1")).await?;
    }
    world.wait_for::<ConfigMap>("replaced", |_| true).await?;
    let before = Ear::default();
    let running = start(&before)?;
    before.wait(|heard| heard.len() == 4).await?;
    running.stop().await?;

    world
        .patch::<ConfigMap>("changed", json!({ "data": { "text": "2" } }))
        .await?;
    world.delete::<ConfigMap>("gone").await?;
    world.delete::<ConfigMap>("replaced").await?;
    world.create(config("replaced", "2")).await?;
    world.create(config("new", "1")).await?;
    world.wait_for::<ConfigMap>("new", |_| true).await?;

    let after = Ear::default();
    let running = start(&after)?;
    after.wait(|heard| heard.len() == 5).await?;
    running.stop().await?;
    let mut words = after.words();
    words.sort();
    assert_eq!(
        words,
        [
            "added ConfigMap new (inferred)",
            "added ConfigMap replaced (inferred)",
            "deleted ConfigMap gone (inferred)",
            "deleted ConfigMap replaced (inferred)",
            "updated ConfigMap changed (inferred)",
        ]
    );
    let again = Ear::default();
    let running = start(&again)?;
    world.create(config("last", "1")).await?;
    again.hears_of(What::Added, "last").await?;
    running.stop().await?;
    assert_eq!(again.words().len(), 1, "{:#?}", again.words());

    // Where nothing is left, the ends are told nevertheless.
    let all = ["same", "changed", "replaced", "new", "last"];
    for name in all {
        world.delete::<ConfigMap>(name).await?;
        world.wait_gone::<ConfigMap>(name).await?;
    }
    let end = Ear::default();
    let running = start(&end)?;
    end.wait(|heard| heard.len() == all.len()).await?;
    let is_end = |notice: &Arc<Notice>| notice.what == What::Deleted && notice.inferred;
    assert!(end.heard().iter().all(is_end), "{:#?}", end.words());
    running.stop().await
}

/// What must not get out.
const CANARY: &str = "c4n4ry-in-the-mine";

/// Neither to a sink, nor into the log at its most talkative, nor by a filter that fails.
pub(crate) async fn no_value_of_a_secret_gets_out(case: Case) -> anyhow::Result<()> {
    let (log, world, ear) = (Log::begin(), World::new(&case), Ear::default());
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
    let mut watching = Watching::of(kind::<Secret>(), scope(&case));
    // It is false of no secret, and fails on the values that it compares.
    watching.wishes.filter = Some("object.data.password < 5 || object.nothing == object.data".parse()?);
    world.create(secret(CANARY)).await?;
    world.wait_for::<Secret>("s", |_| true).await?;
    let running = watching.start(case.client(), &ear);
    ear.hears_of(What::Synced, "s").await?;
    let patch = json!({ "stringData": { "password": format!("{CANARY}-2") }, "metadata": { "annotations": { "example.com/token": CANARY.to_uppercase() } } });
    world.patch::<Secret>("s", patch).await?;
    ear.hears_of(What::Updated, "s").await?;
    world.delete::<Secret>("s").await?;
    ear.hears(&[
        "synced Secret s",
        "updated Secret s data.password metadata.annotations[\"example.com/token\"]",
        "deleted Secret s",
    ])
    .await?;
    running.stop().await?;
    let heard = ear.heard();
    let password = heard[0]
        .object
        .as_ref()
        .map(|object| object["data"]["password"].clone());
    assert_eq!(password, Some(json!(REDACTED)));
    let change = &heard[1].changes[0];
    assert_eq!(
        (&change.old, &change.new),
        (&Some(json!(REDACTED)), &Some(json!(REDACTED)))
    );
    let (told, log) = (format!("{heard:?}"), log.text());
    assert!(
        log.contains("the filter fails on an object"),
        "the log is at hand"
    );
    for hidden in [
        CANARY.to_owned(),
        CANARY.to_uppercase(),
        base64(CANARY),
        base64(&format!("{CANARY}-2")),
    ] {
        assert!(!told.contains(&hidden), "told: {hidden}");
        // What the API server in this process logs of a request is the server's own.
        let line = log
            .lines()
            .find(|line| line.contains(&hidden) && !line.contains("windlass_apiserver"));
        assert_eq!(line, None, "logged");
    }
    Ok(())
}

/// As a Secret has it.
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
    // Without what pads it.
    text.as_bytes().chunks(3).map(group).collect()
}

/// One that was known before and is not there is told of, in any kind.
pub(crate) async fn an_object_that_was_known_and_is_gone_is_told_of(case: Case) -> anyhow::Result<()> {
    let (world, ear) = (World::new(&case), Ear::default());
    world.create(config("a", "1")).await?;
    world.wait_for::<ConfigMap>("a", |_| true).await?;
    let known = ["a", "b"]
        .map(|name| ObjectKey::namespaced(case.namespace(), name))
        .to_vec();
    let running =
        Watching::of(kind::<ConfigMap>(), Scope { known, ..ours(&case) }).start(case.client(), &ear);
    ear.wait(|heard| heard.len() == 2).await?;
    let mut words = ear.words();
    words.sort();
    assert_eq!(words, ["deleted ConfigMap b (inferred)", "synced ConfigMap a"]);
    running.stop().await
}

/// A server that cannot be reached is asked no more often than its backoff allows.
pub(crate) async fn a_server_that_refuses_is_not_asked_in_a_loop(case: Case) -> anyhow::Result<()> {
    let (world, ear) = (World::new(&case), Ear::default());
    world.wire().refuse(usize::MAX, StatusCode::FORBIDDEN, |_| true);
    let running = Watching::of(kind::<ConfigMap>(), ours(&case)).start(world.wire().client(), &ear);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = world.wire().requests();
    assert!((2..30).contains(&asked), "{asked} requests in 10 s");
    assert_eq!(ear.words(), [""; 0]);
    running.stop().await
}
