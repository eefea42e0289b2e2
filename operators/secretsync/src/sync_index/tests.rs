//! The sync index without a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass::{
    kube::api::ObjectMeta,
    prelude::{from_value, json},
};

use crate::{
    api::{SOURCE_ANNOTATION, SOURCE_UID_LABEL, SYNC_ANNOTATION, SecretSync, SourceKind},
    consent::Consent,
    identity::SyncId,
    plan::Plan,
    source_watch::SourceMetadata,
    sync_index::{Affected, Limits, OperatorConfig, SyncChange, SyncIndex, TargetNamespace, WatchInstance},
};

const HOME: &str = "home";

fn index() -> SyncIndex {
    let mut index = SyncIndex::new(OperatorConfig {
        source_namespace: HOME.into(),
        annotation: SYNC_ANNOTATION.into(),
        allowed_system_namespaces: BTreeSet::from(["kube-allowed".to_owned()]),
        restricted_to: BTreeSet::new(),
        limits: Limits {
            sources: 3,
            copies: 4,
            content: usize::MAX,
            removal_percent: 50,
        },
    });
    for instance in index.annotated_watches() {
        index.mark_complete(&instance);
    }
    index
}

fn place(consent: Option<&str>) -> Arc<TargetNamespace> {
    let annotations = consent.map(|value| BTreeMap::from([(SYNC_ANNOTATION.to_owned(), value.to_owned())]));
    let metadata = ObjectMeta {
        annotations,
        ..ObjectMeta::default()
    };
    Arc::new(TargetNamespace {
        uid: "p".into(),
        consent: Consent::from_metadata(&metadata, SYNC_ANNOTATION),
        adoption_consent: Consent::default(),
        labels: BTreeMap::from([("tier".to_owned(), consent.unwrap_or_default().to_owned())]),
        is_terminating: false,
    })
}

fn add_namespaces(index: &mut SyncIndex, places: &[(&str, Option<&str>)]) {
    for (name, consent) in places {
        index.set_namespace(&Arc::from(*name), Some(place(*consent)));
    }
}

/// Records an object with this metadata.
fn set_source(
    index: &mut SyncIndex,
    instance: &WatchInstance,
    name: &str,
    metadata: &serde_json::Value,
) -> (Vec<Affected>, Vec<SyncId>) {
    let mut whole = json!({ "uid": format!("uid-of-{name}"), "resourceVersion": "1" });
    for (key, value) in metadata.as_object().expect("valid metadata") {
        whole[key] = value.clone();
    }
    let metadata = from_value(whole).expect("valid metadata");
    let seen = Arc::new(SourceMetadata::from_metadata(&metadata, SYNC_ANNOTATION));
    index.set_source(instance, &name.into(), Some(&seen))
}

fn annotated(index: &mut SyncIndex, name: &str) -> (SyncId, Vec<Affected>) {
    let [secrets, _] = index.annotated_watches();
    let (affected, _) = set_source(
        index,
        &secrets,
        name,
        &json!({ "annotations": { SYNC_ANNOTATION: "" } }),
    );
    let id = SyncId::Annotated {
        kind: SourceKind::Secret,
        name: name.into(),
    };
    (id, affected)
}

fn declared(
    index: &mut SyncIndex,
    namespace: &str,
    name: &str,
    spec: &serde_json::Value,
) -> (SyncId, SyncChange) {
    let metadata = json!({
        "namespace": namespace, "name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": [crate::api::FINALIZER],
    });
    let object: SecretSync =
        from_value(json!({ "metadata": metadata, "spec": spec })).expect("a valid SecretSync");
    let id = SyncId::Declared {
        namespace: namespace.into(),
        name: name.into(),
    };
    let moves = index.set_sync(&id, Some(&object));
    (id, moves)
}

/// The names that a sync wants in a namespace; `None` while they are not known.
fn wants(index: &SyncIndex, id: &SyncId, namespace: &str) -> Option<Vec<String>> {
    match index.plan(id, namespace) {
        Plan::Wait | Plan::UnclearConsent(_) => None,
        Plan::NamespaceGone => Some(Vec::new()),
        Plan::Sync(desired) => {
            let free = desired
                .wanted
                .iter()
                .filter(|wanted_copy| wanted_copy.competitor.is_none());
            Some(
                free.map(|wanted_copy| wanted_copy.member.source.name.to_string())
                    .collect(),
            )
        }
    }
}

fn describe(affected: &[Affected]) -> Vec<String> {
    let mut all: Vec<_> = affected
        .iter()
        .map(|one| {
            format!(
                "{}{} {}",
                if one.is_removal { "-" } else { "" },
                one.namespace,
                one.sync
            )
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn copy_is_wanted_only_where_both_sides_agree() {
    let mut index = index();
    let places = [
        ("asks", Some("true")),
        ("silent", None),
        ("team-a", None),
        ("other", Some("team-a")),
        ("strange", Some(".*")),
        ("kube-system", Some("*")),
        ("kube-allowed", Some("*")),
        (HOME, Some("*")),
    ];
    add_namespaces(&mut index, &places);
    let (id, affected) = annotated(&mut index, "token");
    assert_eq!(
        describe(&affected),
        [
            "asks annotated/Secret/token",
            "kube-allowed annotated/Secret/token"
        ]
    );
    assert_eq!(wants(&index, &id, "strange"), None, "its consent is not clear");
    for (name, _) in places.into_iter().filter(|(name, _)| *name != "strange") {
        let is_wanted = ["asks", "kube-allowed"].contains(&name);
        let found = wants(&index, &id, name).expect("all is known");
        assert_eq!(found == ["token"], is_wanted, "{name}: {found:?}");
    }
    let lost = index.set_namespace(&"asks".into(), Some(place(None)));
    assert_eq!(describe(&lost), ["-asks annotated/Secret/token"]);
}

#[test]
fn plan_waits_until_all_sources_are_known() {
    let mut index = index();
    add_namespaces(&mut index, &[("asks", Some("team-a"))]);
    let selector = json!({ "sourceSelector": { "matchLabels": { "shared": "yes" } } });
    let (id, moves) = declared(&mut index, "team-a", "tls", &selector);
    let instance = &moves.opened.expect("one watch");
    assert_eq!(wants(&index, &id, "asks"), None);
    // A namespace that is not wanted is planned too, because it contains a copy.
    add_namespaces(&mut index, &[("silent", None)]);
    assert!(matches!(
        index.plan_or_register(&id, &"silent".into()),
        Plan::Wait
    ));
    set_source(&mut index, instance, "other", &json!({}));
    set_source(
        &mut index,
        instance,
        "one",
        &json!({ "labels": { "shared": "yes" } }),
    );
    assert_eq!(
        describe(&index.mark_complete(instance)),
        ["asks declared/team-a/tls", "silent declared/team-a/tls"]
    );
    assert_eq!(
        wants(&index, &id, "asks").as_deref(),
        Some(&["one".to_owned()][..])
    );
    assert_eq!(wants(&index, &id, "silent").as_deref(), Some(&[][..]));
}

#[test]
fn source_watch_is_open_while_a_sync_uses_it() {
    let mut index = index();
    let spec = json!({ "names": ["one"] });
    let (first, moves) = declared(&mut index, "team-a", "first", &spec);
    assert_eq!((moves.opened.is_some(), moves.closed.is_some()), (true, false));
    let (second, moves) = declared(&mut index, "team-a", "second", &spec);
    assert_eq!((moves.opened.is_some(), moves.closed.is_some()), (false, false));
    assert_eq!(index.set_sync(&first, None).closed, None);
    // Other names and selectors share the watch. Another kind has its own.
    let more = json!({ "names": ["two"], "sourceSelector": { "matchLabels": { "a": "b" } } });
    let (_, moves) = declared(&mut index, "team-a", "second", &more);
    assert_eq!((moves.opened, moves.closed), (None, None));
    let (_, moves) = declared(
        &mut index,
        "team-a",
        "second",
        &json!({ "kind": "ConfigMap", "names": ["two"] }),
    );
    assert_eq!((moves.opened.is_some(), moves.closed.is_some()), (true, true));
    assert!(index.set_sync(&second, None).closed.is_some());
}

#[test]
fn older_sync_gets_the_name_and_the_younger_inherits_it() {
    let mut index = index();
    add_namespaces(&mut index, &[("asks", Some("*"))]);
    let (id, _) = annotated(&mut index, "token");
    let (other, moves) = declared(&mut index, "team-a", "tls", &json!({ "names": ["token"] }));
    let instance = &moves.opened.expect("one watch");
    index.mark_complete(instance);
    let (changed, _) = set_source(&mut index, instance, "token", &json!({}));
    assert_eq!(
        describe(&changed),
        ["asks annotated/Secret/token", "asks declared/team-a/tls"],
        "both are affected"
    );
    // The annotated one has no creation time, and is therefore the older one.
    assert_eq!(wants(&index, &id, "asks").map(|all| all.len()), Some(1));
    assert_eq!(wants(&index, &other, "asks").map(|all| all.len()), Some(0));
    let [secrets, _] = index.annotated_watches();
    let (gone, _) = index.set_source(&secrets, &"token".into(), None);
    assert_eq!(
        describe(&gone),
        ["-asks annotated/Secret/token", "asks declared/team-a/tls"]
    );
    assert_eq!(wants(&index, &other, "asks").map(|all| all.len()), Some(1));
}

#[test]
fn copies_are_sources_only_with_chaining_and_never_loop() {
    let mut index = index();
    add_namespaces(&mut index, &[("asks", Some("*")), (HOME, Some("*"))]);
    let copy =
        json!({ "labels": { SOURCE_UID_LABEL: "u" }, "annotations": { SOURCE_ANNOTATION: "home/token" } });
    for (chaining, expected) in [(false, 0), (true, 1)] {
        let spec = json!({ "names": ["token"], "allowChaining": chaining });
        let (id, moves) = declared(&mut index, "team-a", "tls", &spec);
        if let Some(instance) = &moves.opened {
            index.mark_complete(instance);
            set_source(&mut index, instance, "token", &copy);
        }
        assert_eq!(wants(&index, &id, "asks").map(|all| all.len()), Some(expected));
        if let Plan::Sync(desired) = index.plan(&id, HOME)
            && let Some(wanted_copy) = desired.wanted.first()
        {
            assert!(wanted_copy.member.source.chain_contains(HOME));
            assert!(!wanted_copy.member.source.chain_contains("asks"));
        }
    }
}

#[test]
fn invalid_or_paused_sync_changes_nothing() {
    let mut index = index();
    add_namespaces(&mut index, &[("asks", Some("team-a"))]);
    let strange = json!({ "matchExpressions": [{ "key": "a", "operator": "Near" }] });
    for spec in [json!({ "namespaceSelector": strange }), json!({ "paused": true })] {
        let (id, _) = declared(&mut index, "team-a", "tls", &spec);
        assert_eq!(wants(&index, &id, "asks"), None, "{spec}");
    }
    let (id, _) = declared(&mut index, "team-a", "tls", &json!({}));
    assert_eq!(wants(&index, &id, "asks").as_deref(), Some(&[][..]));
}

#[test]
fn change_affects_only_syncs_that_select_the_object() {
    let mut index = index();
    add_namespaces(&mut index, &[("asks", Some("team-a"))]);
    let labelled = json!({ "sourceSelector": { "matchLabels": { "shared": "yes" } } });
    let (by_label, moves) = declared(&mut index, "team-a", "by-label", &labelled);
    let instance = moves.opened.expect("one watch");
    let (by_name, _) = declared(&mut index, "team-a", "by-name", &json!({ "names": ["one"] }));
    index.mark_complete(&instance);
    let touched = |index: &mut SyncIndex, name: &str, labels: serde_json::Value| {
        let (_, touched) = set_source(index, &instance, name, &json!({ "labels": labels }));
        touched.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (by_label, by_name) = (by_label.to_string(), by_name.to_string());
    assert_eq!(touched(&mut index, "other", json!({})), [""; 0]);
    assert_eq!(touched(&mut index, "one", json!({})), [by_name.as_str()]);
    assert_eq!(
        touched(&mut index, "two", json!({ "shared": "yes" })),
        [by_label.as_str()]
    );
    // It is relabelled: the sync that selected it is affected.
    assert_eq!(touched(&mut index, "two", json!({})), [by_label.as_str()]);
    let (affected, _) = index.set_source(&instance, &"one".into(), None);
    assert_eq!(describe(&affected), [format!("-asks {by_name}")]);
}

#[test]
fn late_events_of_a_closed_watch_are_ignored() {
    let mut index = index();
    add_namespaces(&mut index, &[("asks", Some("team-a"))]);
    let spec = json!({ "sourceSelector": {} });
    let (id, moves) = declared(&mut index, "team-a", "tls", &spec);
    let closed = moves.opened.expect("one watch");
    index.set_sync(&id, None);
    let (id, moves) = declared(&mut index, "team-a", "tls", &spec);
    let open = moves.opened.expect("one watch");
    // A late event of the first watch.
    set_source(&mut index, &closed, "old", &json!({}));
    assert_eq!(index.mark_complete(&closed), []);
    assert_eq!(wants(&index, &id, "asks"), None);
    set_source(&mut index, &open, "new", &json!({}));
    index.mark_complete(&open);
    assert_eq!(
        wants(&index, &id, "asks").as_deref(),
        Some(&["new".to_owned()][..])
    );
}

#[test]
fn sync_over_its_limits_is_enqueued_again_when_it_fits() {
    let mut index = index();
    add_namespaces(&mut index, &[("one", Some("*")), ("two", Some("*"))]);
    let (id, moves) = declared(&mut index, "team-a", "tls", &json!({ "sourceSelector": {} }));
    let instance = moves.opened.expect("one watch");
    index.mark_complete(&instance);
    let excess = |index: &SyncIndex| index.limit_error(&id, index.sync(&id).expect("it exists"));
    for name in ["a", "b", "sh.helm.release.v1.x"] {
        set_source(&mut index, &instance, name, &json!({}));
    }
    assert_eq!(
        excess(&index),
        None,
        "two sources in two namespaces, and one that never counts"
    );
    add_namespaces(&mut index, &[("three", Some("*"))]);
    assert!(excess(&index).is_some_and(|excess| excess.contains("are 6 copies")));
    let relieved = index.set_namespace(&"three".into(), None);
    assert_eq!(
        describe(&relieved),
        [
            "-three declared/team-a/tls",
            "one declared/team-a/tls",
            "two declared/team-a/tls"
        ]
    );
    assert_eq!(excess(&index), None);
    index.set_namespace(&"two".into(), None);
    for name in ["c", "d"] {
        set_source(&mut index, &instance, name, &json!({}));
    }
    assert!(excess(&index).is_some_and(|excess| excess.contains("4 sources")));
    index.set_source(&instance, &"d".into(), None);
    assert_eq!(excess(&index), None);
}
