//! Who wants what where, without a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass::{
    kube::api::ObjectMeta,
    prelude::{from_value, json},
};

use crate::{
    api::{SOURCE, SOURCE_UID, SYNC, SecretSync, SourceKind},
    consent::Consent,
    identity::SyncId,
    plan::Plan,
    room::Seen,
    roster::{Affected, Limits, Moves, Opening, Place, Roster, Scope},
};

const HOME: &str = "home";

fn roster() -> Roster {
    let mut roster = Roster::new(Scope {
        source_namespace: HOME.into(),
        annotation: SYNC.into(),
        allowed: BTreeSet::from(["kube-allowed".to_owned()]),
        within: BTreeSet::new(),
        limits: Limits {
            sources: 3,
            copies: 4,
            content: usize::MAX,
        },
    });
    for opening in roster.annotated_rooms() {
        roster.complete(&opening);
    }
    roster
}

fn place(consent: Option<&str>) -> Arc<Place> {
    let annotations = consent.map(|value| BTreeMap::from([(SYNC.to_owned(), value.to_owned())]));
    let metadata = ObjectMeta {
        annotations,
        ..ObjectMeta::default()
    };
    Arc::new(Place {
        uid: "p".into(),
        consent: Consent::of(&metadata, SYNC),
        adopt: Consent::default(),
        labels: BTreeMap::from([("tier".to_owned(), consent.unwrap_or_default().to_owned())]),
        is_terminating: false,
    })
}

fn settle_in(roster: &mut Roster, places: &[(&str, Option<&str>)]) {
    for (name, consent) in places {
        roster.set_place(&Arc::from(*name), Some(place(*consent)));
    }
}

/// An object with this metadata is seen.
fn see(
    roster: &mut Roster,
    opening: &Opening,
    name: &str,
    metadata: &serde_json::Value,
) -> (Vec<Affected>, Vec<SyncId>) {
    let mut whole = json!({ "uid": format!("uid-of-{name}"), "resourceVersion": "1" });
    for (key, value) in metadata.as_object().expect("it is metadata") {
        whole[key] = value.clone();
    }
    let metadata = from_value(whole).expect("it is metadata");
    let seen = Arc::new(Seen::of(&metadata, SYNC));
    roster.set_source(opening, &name.into(), Some(&seen))
}

fn annotated(roster: &mut Roster, name: &str) -> (SyncId, Vec<Affected>) {
    let [secrets, _] = roster.annotated_rooms();
    let (affected, _) = see(roster, &secrets, name, &json!({ "annotations": { SYNC: "" } }));
    let id = SyncId::Annotated {
        kind: SourceKind::Secret,
        name: name.into(),
    };
    (id, affected)
}

fn declared(roster: &mut Roster, namespace: &str, name: &str, spec: &serde_json::Value) -> (SyncId, Moves) {
    let metadata = json!({
        "namespace": namespace, "name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": [crate::api::FINALIZER],
    });
    let object: SecretSync =
        from_value(json!({ "metadata": metadata, "spec": spec })).expect("it is a SecretSync");
    let id = SyncId::Declared {
        namespace: namespace.into(),
        name: name.into(),
    };
    let moves = roster.set_sync(&id, Some(&object));
    (id, moves)
}

/// The names that a sync wants in a namespace; `None` while that cannot be told.
fn wants(roster: &Roster, id: &SyncId, namespace: &str) -> Option<Vec<String>> {
    match roster.plan(id, namespace) {
        Plan::Wait => None,
        Plan::NoPlace => Some(Vec::new()),
        Plan::Go(order) => {
            let free = order.wanted.iter().filter(|wish| wish.rival.is_none());
            Some(free.map(|wish| wish.member.source.name.to_string()).collect())
        }
    }
}

fn spelled(affected: &[Affected]) -> Vec<String> {
    let mut all: Vec<_> = affected
        .iter()
        .map(|one| {
            format!(
                "{}{} {}",
                if one.takes_away { "-" } else { "" },
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
fn a_copy_is_wanted_where_both_sides_agree_and_nowhere_else() {
    let mut roster = roster();
    let places = [
        ("asks", Some("true")),
        ("silent", None),
        ("other", Some("team-a")),
        ("strange", Some(".*")),
        ("kube-system", Some("*")),
        ("kube-allowed", Some("*")),
        (HOME, Some("*")),
    ];
    settle_in(&mut roster, &places);
    let (id, affected) = annotated(&mut roster, "token");
    assert_eq!(
        spelled(&affected),
        [
            "asks annotated/Secret/token",
            "kube-allowed annotated/Secret/token"
        ]
    );
    for (name, _) in places {
        let is_wanted = ["asks", "kube-allowed"].contains(&name);
        let found = wants(&roster, &id, name).expect("all is known");
        assert_eq!(found == ["token"], is_wanted, "{name}: {found:?}");
    }
    let lost = roster.set_place(&"asks".into(), Some(place(None)));
    assert_eq!(spelled(&lost), ["-asks annotated/Secret/token"]);
}

#[test]
fn nothing_is_decided_before_all_sources_are_known() {
    let mut roster = roster();
    settle_in(&mut roster, &[("asks", Some("team-a"))]);
    let selector = json!({ "secretSelector": { "matchLabels": { "shared": "yes" } } });
    let (id, moves) = declared(&mut roster, "team-a", "tls", &selector);
    let room = &moves.opened.expect("one room");
    assert_eq!(wants(&roster, &id, "asks"), None);
    // Somebody asks about a namespace that is not wanted, because there is a copy in it.
    settle_in(&mut roster, &[("silent", None)]);
    assert!(matches!(roster.plan_or_wait(&id, &"silent".into()), Plan::Wait));
    see(&mut roster, room, "other", &json!({}));
    see(
        &mut roster,
        room,
        "one",
        &json!({ "labels": { "shared": "yes" } }),
    );
    assert_eq!(
        spelled(&roster.complete(room)),
        ["asks declared/team-a/tls", "silent declared/team-a/tls"]
    );
    assert_eq!(
        wants(&roster, &id, "asks").as_deref(),
        Some(&["one".to_owned()][..])
    );
    assert_eq!(wants(&roster, &id, "silent").as_deref(), Some(&[][..]));
}

#[test]
fn a_room_is_open_as_long_as_somebody_uses_it() {
    let mut roster = roster();
    let spec = json!({ "names": ["one"] });
    let (first, moves) = declared(&mut roster, "team-a", "first", &spec);
    assert_eq!((moves.opened.is_some(), moves.closed.is_some()), (true, false));
    let (second, moves) = declared(&mut roster, "team-a", "second", &spec);
    assert_eq!((moves.opened.is_some(), moves.closed.is_some()), (false, false));
    assert_eq!(roster.set_sync(&first, None).closed, None);
    // Other names, other selectors: the same watch. Another kind: another one.
    let more = json!({ "names": ["two"], "secretSelector": { "matchLabels": { "a": "b" } } });
    let (_, moves) = declared(&mut roster, "team-a", "second", &more);
    assert_eq!((moves.opened, moves.closed), (None, None));
    let (_, moves) = declared(
        &mut roster,
        "team-a",
        "second",
        &json!({ "kind": "ConfigMap", "names": ["two"] }),
    );
    assert_eq!((moves.opened.is_some(), moves.closed.is_some()), (true, true));
    assert!(roster.set_sync(&second, None).closed.is_some());
}

#[test]
fn of_two_that_want_one_name_the_older_has_it_and_the_younger_inherits() {
    let mut roster = roster();
    settle_in(&mut roster, &[("asks", Some("*"))]);
    let (id, _) = annotated(&mut roster, "token");
    let (other, moves) = declared(&mut roster, "team-a", "tls", &json!({ "names": ["token"] }));
    let room = &moves.opened.expect("one room");
    roster.complete(room);
    let (told, _) = see(&mut roster, room, "token", &json!({}));
    assert_eq!(
        spelled(&told),
        ["asks annotated/Secret/token", "asks declared/team-a/tls"],
        "both are concerned"
    );
    // The annotated one has no time of creation, and is the older so.
    assert_eq!(wants(&roster, &id, "asks").map(|all| all.len()), Some(1));
    assert_eq!(wants(&roster, &other, "asks").map(|all| all.len()), Some(0));
    let [secrets, _] = roster.annotated_rooms();
    let (gone, _) = roster.set_source(&secrets, &"token".into(), None);
    assert_eq!(
        spelled(&gone),
        ["-asks annotated/Secret/token", "asks declared/team-a/tls"]
    );
    assert_eq!(wants(&roster, &other, "asks").map(|all| all.len()), Some(1));
}

#[test]
fn a_copy_is_no_source_unless_that_is_allowed_and_never_goes_back() {
    let mut roster = roster();
    settle_in(&mut roster, &[("asks", Some("*")), (HOME, Some("*"))]);
    let copy = json!({ "labels": { SOURCE_UID: "u" }, "annotations": { SOURCE: "home/token" } });
    for (chaining, expected) in [(false, 0), (true, 1)] {
        let spec = json!({ "names": ["token"], "allowChaining": chaining });
        let (id, moves) = declared(&mut roster, "team-a", "tls", &spec);
        if let Some(room) = &moves.opened {
            roster.complete(room);
            see(&mut roster, room, "token", &copy);
        }
        assert_eq!(wants(&roster, &id, "asks").map(|all| all.len()), Some(expected));
        if let Plan::Go(order) = roster.plan(&id, HOME)
            && let Some(wish) = order.wanted.first()
        {
            assert!(wish.member.source.has_come_through(HOME));
            assert!(!wish.member.source.has_come_through("asks"));
        }
    }
}

#[test]
fn what_cannot_be_understood_or_is_paused_changes_nothing() {
    let mut roster = roster();
    settle_in(&mut roster, &[("asks", Some("team-a"))]);
    let strange = json!({ "matchExpressions": [{ "key": "a", "operator": "Near" }] });
    for spec in [json!({ "namespaceSelector": strange }), json!({ "paused": true })] {
        let (id, _) = declared(&mut roster, "team-a", "tls", &spec);
        assert_eq!(wants(&roster, &id, "asks"), None, "{spec}");
    }
    let (id, _) = declared(&mut roster, "team-a", "tls", &json!({}));
    assert_eq!(wants(&roster, &id, "asks").as_deref(), Some(&[][..]));
}

#[test]
fn a_change_concerns_only_the_syncs_that_select_the_object() {
    let mut roster = roster();
    settle_in(&mut roster, &[("asks", Some("team-a"))]);
    let labelled = json!({ "secretSelector": { "matchLabels": { "shared": "yes" } } });
    let (by_label, moves) = declared(&mut roster, "team-a", "by-label", &labelled);
    let room = moves.opened.expect("one room");
    let (by_name, _) = declared(&mut roster, "team-a", "by-name", &json!({ "names": ["one"] }));
    roster.complete(&room);
    let touched = |roster: &mut Roster, name: &str, labels: serde_json::Value| {
        let (_, touched) = see(roster, &room, name, &json!({ "labels": labels }));
        touched.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (by_label, by_name) = (by_label.to_string(), by_name.to_string());
    assert_eq!(touched(&mut roster, "other", json!({})), [""; 0]);
    assert_eq!(touched(&mut roster, "one", json!({})), [by_name.as_str()]);
    assert_eq!(
        touched(&mut roster, "two", json!({ "shared": "yes" })),
        [by_label.as_str()]
    );
    // It is relabelled: who selected it has to know.
    assert_eq!(touched(&mut roster, "two", json!({})), [by_label.as_str()]);
    let (affected, _) = roster.set_source(&room, &"one".into(), None);
    assert_eq!(spelled(&affected), [format!("-asks {by_name}")]);
}

#[test]
fn a_closed_watch_is_not_taken_for_the_next_one() {
    let mut roster = roster();
    settle_in(&mut roster, &[("asks", Some("team-a"))]);
    let spec = json!({ "secretSelector": {} });
    let (id, moves) = declared(&mut roster, "team-a", "tls", &spec);
    let closed = moves.opened.expect("one room");
    roster.set_sync(&id, None);
    let (id, moves) = declared(&mut roster, "team-a", "tls", &spec);
    let open = moves.opened.expect("one room");
    // What the first one still had to tell comes late.
    see(&mut roster, &closed, "old", &json!({}));
    assert_eq!(roster.complete(&closed), []);
    assert_eq!(wants(&roster, &id, "asks"), None);
    see(&mut roster, &open, "new", &json!({}));
    roster.complete(&open);
    assert_eq!(
        wants(&roster, &id, "asks").as_deref(),
        Some(&["new".to_owned()][..])
    );
}

#[test]
fn what_is_over_its_budget_is_asked_for_again_when_it_fits() {
    let mut roster = roster();
    settle_in(&mut roster, &[("one", Some("*")), ("two", Some("*"))]);
    let (id, moves) = declared(&mut roster, "team-a", "tls", &json!({ "secretSelector": {} }));
    let room = moves.opened.expect("one room");
    roster.complete(&room);
    let excess = |roster: &Roster| roster.excess(&id, roster.sync(&id).expect("it is there"));
    for name in ["a", "b", "sh.helm.release.v1.x"] {
        see(&mut roster, &room, name, &json!({}));
    }
    assert_eq!(
        excess(&roster),
        None,
        "two sources in two namespaces, and one that never counts"
    );
    settle_in(&mut roster, &[("three", Some("*"))]);
    assert!(excess(&roster).is_some_and(|excess| excess.contains("are 6 copies")));
    let relieved = roster.set_place(&"three".into(), None);
    assert_eq!(
        spelled(&relieved),
        [
            "-three declared/team-a/tls",
            "one declared/team-a/tls",
            "two declared/team-a/tls"
        ]
    );
    assert_eq!(excess(&roster), None);
    roster.set_place(&"two".into(), None);
    for name in ["c", "d"] {
        see(&mut roster, &room, name, &json!({}));
    }
    assert!(excess(&roster).is_some_and(|excess| excess.contains("4 sources")));
    roster.set_source(&room, &"d".into(), None);
    assert_eq!(excess(&roster), None);
}
