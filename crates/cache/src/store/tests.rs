use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::{subscription::Subscription, wire::Broken};

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("n".into());
    object.metadata.name = Some(name.into());
    object.metadata.uid = Some(uid.into());
    object.metadata.resource_version = Some(version.to_string());
    object
}

fn arrival(name: &str, uid: &str, version: u64) -> Arrival<ConfigMap> {
    Arrival::Object(Box::new(object(name, uid, version)))
}

fn broken(name: &str) -> Arrival<ConfigMap> {
    let key = Some(ObjectKey::namespaced("n", name));
    Arrival::Broken(Broken {
        key,
        resource_version: "99".into(),
        error: "no".into(),
    })
}

fn staged(objects: &[(&str, &str, u64)]) -> Staged<ConfigMap> {
    let objects = objects
        .iter()
        .map(|(name, uid, version)| Arc::new(object(name, uid, *version)));
    objects
        .map(|object| (ObjectKey::of(&*object), Some(object)))
        .collect()
}

fn content(store: &Store<ConfigMap>) -> Vec<String> {
    store
        .snapshot()
        .objects
        .values()
        .map(|entry| describe(&entry.object()))
        .collect()
}

fn describe(object: &ConfigMap) -> String {
    let meta = &object.metadata;
    format!(
        "{}@{}",
        meta.name.as_deref().unwrap_or("?"),
        meta.resource_version.as_deref().unwrap_or("?")
    )
}

fn subscribe(store: &Store<ConfigMap>) -> Subscription<ConfigMap> {
    Subscription {
        buffer: store.subscribe(),
        _cache: Arc::new(()),
    }
}

/// Everything that is there to be taken without waiting.
fn taken(subscription: &mut Subscription<ConfigMap>) -> Vec<String> {
    std::iter::from_fn(|| subscription.next().now_or_never().flatten())
        .map(|change| told(&change))
        .collect()
}

fn told(change: &Change<ConfigMap>) -> String {
    let recreated = if change.recreated() { " recreated" } else { "" };
    match change {
        Change::Applied {
            old: None,
            new,
            initial: true,
        } => format!("initial {}", describe(new)),
        Change::Applied { old: None, new, .. } => format!("new {}", describe(new)),
        Change::Applied {
            old: Some(old), new, ..
        } => format!("{} -> {}{recreated}", describe(old), describe(new)),
        Change::Deleted { old, last, how } if old == last => format!("{how:?} gone {}", describe(last)),
        Change::Deleted { old, last, how } => format!("{how:?} gone {} -> {}", describe(old), describe(last)),
    }
}

#[test]
fn a_subscriber_learns_of_each_change_with_the_state_before() {
    let store = Store::new();
    let mut all = subscribe(&store);
    store.replace(staged(&[("a", "1", 1), ("b", "2", 2)]), "2");
    assert_eq!(taken(&mut all), ["initial a@1", "initial b@2"]);
    store.apply(arrival("a", "1", 3), "3");
    store.apply(arrival("c", "3", 4), "4");
    store.remove(arrival("b", "2", 5), "5");
    assert_eq!(taken(&mut all), ["a@1 -> a@3", "new c@4", "Seen gone b@2 -> b@5"]);
    assert_eq!(content(&store), ["a@3", "c@4"]);
}

/// 89, 98: what did not change is not told again; what is missing is told as inferred, and first.
#[test]
fn a_relist_tells_only_what_differs() {
    let store = Store::new();
    store.replace(staged(&[("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]), "3");
    let mut all = subscribe(&store);
    taken(&mut all);
    store.replace(staged(&[("b", "2", 2), ("c", "3", 7), ("d", "4", 8)]), "8");
    assert_eq!(taken(&mut all), ["Inferred gone a@1", "c@3 -> c@7", "new d@8"]);
    assert_eq!(content(&store), ["b@2", "c@7", "d@8"]);
}

/// 182.
#[test]
fn an_object_that_was_made_again_unseen_is_flagged() {
    let store = Store::new();
    store.replace(staged(&[("a", "1", 1)]), "1");
    let mut all = subscribe(&store);
    taken(&mut all);
    store.replace(staged(&[("a", "2", 5)]), "5");
    assert_eq!(taken(&mut all), ["a@1 -> a@5 recreated"]);
}

/// 180: one change per object, with the first state before and the last state after.
#[test]
fn what_a_slow_subscriber_missed_arrives_as_one_change() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["a@1", "a@2"], &["a@0 -> a@2"]),
        (&["b@1", "b@2"], &["new b@2"]),
        (&["b@1", "b-2"], &[]),
        (&["a@1", "a-2"], &["Seen gone a@0 -> a@2"]),
        (&["a-1", "a@2"], &["a@0 -> a@2"]),
        (&["a-1", "a@2", "a-3"], &["Seen gone a@0 -> a@3"]),
        (&["a@1", "b@2", "a@3"], &["a@0 -> a@3", "new b@2"]),
        (&["b@1", "b-2", "a@3", "b@4"], &["a@0 -> a@3", "new b@4"]),
    ];
    for (events, expected) in cases {
        let store = Store::new();
        store.replace(staged(&[("a", "1", 0)]), "0");
        let mut slow = subscribe(&store);
        taken(&mut slow);
        for event in *events {
            let version: u64 = event[2..].parse().expect("a version");
            match &event[1..2] {
                "@" => store.apply(arrival(&event[..1], "1", version), &event[2..]),
                _ => store.remove(arrival(&event[..1], "1", version), &event[2..]),
            }
        }
        assert_eq!(taken(&mut slow), *expected, "{events:?}");
    }
}

/// 180: a subscriber that does not read does not grow with churn.
#[test]
fn objects_that_come_and_go_unseen_leave_nothing_in_a_buffer() {
    let store = Store::new();
    store.replace(staged(&[]), "0");
    let mut stalled = subscribe(&store);
    for version in 0..1000 {
        let name = format!("job-{version}");
        store.apply(arrival(&name, "1", version), "1");
        store.remove(arrival(&name, "1", version), "2");
    }
    assert_eq!(taken(&mut stalled), [""; 0]);
}

/// 107.
#[test]
fn a_late_subscriber_starts_with_what_is_there() {
    let store = Store::new();
    store.replace(staged(&[("a", "1", 1)]), "1");
    store.apply(arrival("b", "2", 2), "2");
    let mut late = subscribe(&store);
    assert!(!late.synced().is_synced());
    store.apply(arrival("a", "1", 3), "3");
    assert_eq!(taken(&mut late), ["new a@3", "initial b@2"]);
    assert!(late.synced().is_synced());
}

/// 92, 132: taking the last initial object is not enough; asking for the next says that it was dealt with.
#[test]
fn a_subscriber_is_synced_when_it_has_dealt_with_its_initial_objects() {
    let store = Store::new();
    let mut subscription = subscribe(&store);
    assert!(taken(&mut subscription).is_empty());
    assert!(!subscription.synced().is_synced(), "before the first list");
    store.replace(staged(&[("a", "1", 1)]), "1");
    assert!(subscription.next().now_or_never().flatten().is_some());
    assert!(
        !subscription.synced().is_synced(),
        "while it deals with the last one"
    );
    assert!(taken(&mut subscription).is_empty());
    assert!(subscription.synced().is_synced());
}

#[test]
fn a_subscriber_is_synced_at_once_where_there_is_nothing() {
    let store = Store::new();
    store.replace(staged(&[]), "1");
    let mut subscription = subscribe(&store);
    assert!(taken(&mut subscription).is_empty());
    assert!(subscription.synced().is_synced());
}

#[test]
fn an_object_that_does_not_decode_stays_as_it_was_last_known() {
    let store = Store::new();
    store.replace(staged(&[("a", "1", 1), ("b", "2", 2)]), "2");
    let mut all = subscribe(&store);
    taken(&mut all);
    store.apply(broken("a"), "3");
    let mut list = staged(&[("b", "2", 2)]);
    list.insert(ObjectKey::namespaced("n", "a"), None);
    list.insert(ObjectKey::namespaced("n", "never-seen"), None);
    store.replace(list, "4");
    assert_eq!(taken(&mut all), [""; 0]);
    assert_eq!(content(&store), ["a@1", "b@2"]);
    store.remove(broken("a"), "5");
    assert_eq!(taken(&mut all), ["Seen gone a@1"]);
}

#[test]
fn the_deletion_of_an_object_that_was_never_there_is_not_told() {
    let store = Store::new();
    store.replace(staged(&[]), "1");
    let mut all = subscribe(&store);
    store.remove(arrival("a", "1", 2), "2");
    assert_eq!(taken(&mut all), [""; 0]);
}

/// 184, 185: a snapshot is a state, whatever happens after it was taken.
#[test]
fn a_snapshot_does_not_change() {
    let store = Store::new();
    store.replace(staged(&[("a", "1", 1)]), "1");
    let snapshot = store.snapshot();
    store.apply(arrival("a", "1", 2), "2");
    store.clear();
    let seen: Vec<_> = snapshot
        .objects
        .values()
        .map(|entry| describe(&entry.object()))
        .collect();
    assert_eq!((seen, &*snapshot.resource_version), (vec!["a@1".to_owned()], "1"));
    assert_eq!(content(&store), [""; 0]);
}

#[test]
fn a_closed_store_ends_its_subscriptions_when_they_are_empty() {
    let store = Store::new();
    store.replace(staged(&[("a", "1", 1)]), "1");
    let mut subscription = subscribe(&store);
    store.close();
    assert!(matches!(subscription.next().now_or_never(), Some(Some(_))));
    assert!(matches!(subscription.next().now_or_never(), Some(None)));
    assert!(
        matches!(subscribe(&store).next().now_or_never(), Some(Some(_))),
        "a replay still comes first"
    );
}
