use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::{
    change::Change,
    core::Core,
    ingest::{Ingest, Ingested},
    kind::GroupVersionKind,
    scan::Cursor,
    settings::{UntypedSettings, decode},
    subscription::Subscription,
};

mod indexes;

/// A store with its core, and one scope.
struct TestStore {
    core: Arc<Core>,
    scope: NamespaceScope,
}

impl TestStore {
    fn new() -> Self {
        Self::with_settings(UntypedSettings::default())
    }

    fn with_settings(keeping: UntypedSettings) -> Self {
        let kind = GroupVersionKind {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        };
        let core = Arc::new(Core::new(kind, keeping));
        let scope = NamespaceScope::from("");
        core.store.add_scope(&scope);
        Self { core, scope }
    }

    fn replace(&self, objects: &[(&str, &str, u64)], version: &str) {
        self.core.store.replace(&self.scope, staged(objects), version);
    }

    fn apply(&self, name: &str, uid: &str, version: u64) {
        let changes = vec![WatchChange::Applied(entry(name, uid, version))];
        self.core.store.commit(&self.scope, changes, &version.to_string());
    }

    fn remove(&self, name: &str, uid: &str, version: u64) {
        let changes = vec![WatchChange::Removed(entry(name, uid, version))];
        self.core.store.commit(&self.scope, changes, &version.to_string());
    }

    fn content(&self) -> Vec<String> {
        let snapshot = self.core.store.snapshot();
        snapshot.objects.iter().map(|entry| describe(entry)).collect()
    }

    fn subscribe(&self) -> Subscription<ConfigMap> {
        Subscription {
            buffer: self.core.store.subscribe(),
            core: Arc::clone(&self.core),
            decode: decode::<ConfigMap>,
            resync: None,
            _cache: Arc::new(()),
        }
    }
}

fn json(name: &str, uid: &str, version: u64) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"n","name":"{name}","uid":"{uid}","resourceVersion":"{version}"}},"data":{{"v":"{version}"}}}}"#
    )
}

fn ingested(json: &str) -> Ingested {
    let kind = GroupVersionKind {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    let found = Cursor::new(json.as_bytes()).object().expect("an object");
    Ingest::new(kind, UntypedSettings::default()).make_and_queue(json.as_bytes(), &found)
}

fn entry_from_json(json: &str) -> Arc<Entry> {
    match ingested(json) {
        Ingested::Object(entry) => entry,
        Ingested::Invalid(broken) => panic!("{broken:?}"),
    }
}

fn entry(name: &str, uid: &str, version: u64) -> Arc<Entry> {
    entry_from_json(&json(name, uid, version))
}

fn staged(objects: &[(&str, &str, u64)]) -> StagedObjects {
    let entries = objects
        .iter()
        .map(|(name, uid, version)| entry(name, uid, *version));
    entries
        .map(|entry| (entry.meta.key.clone(), Some(entry)))
        .collect()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("n", name)
}

fn describe(entry: &Entry) -> String {
    format!("{}@{}", entry.meta.key.name(), entry.meta.resource_version)
}

fn describe_object(stored: &crate::CachedObject<ConfigMap>) -> String {
    format!("{}@{}", stored.key().name(), stored.meta().resource_version())
}

/// Receives all pending changes.
fn receive_all(subscription: &mut Subscription<ConfigMap>) -> Vec<String> {
    std::iter::from_fn(|| subscription.next().now_or_never().flatten())
        .map(|change| describe_change(&change))
        .collect()
}

fn describe_change(change: &Change<ConfigMap>) -> String {
    let recreated = if change.is_recreated() { " recreated" } else { "" };
    match change {
        Change::Applied {
            old: None,
            new,
            initial: true,
        } => format!("initial {}", describe_object(new)),
        Change::Applied { old: None, new, .. } => format!("new {}", describe_object(new)),
        Change::Applied {
            old: Some(old), new, ..
        } => format!("{} -> {}{recreated}", describe_object(old), describe_object(new)),
        Change::Deleted { old, last, deletion } if old.is_same(last) => {
            format!("{deletion:?} gone {}", describe_object(last))
        }
        Change::Deleted { old, last, deletion } => format!(
            "{deletion:?} gone {} -> {}",
            describe_object(old),
            describe_object(last)
        ),
    }
}

#[test]
fn changes_carry_the_previous_state() {
    let store = TestStore::new();
    let mut all = store.subscribe();
    store.replace(&[("a", "1", 1), ("b", "2", 2)], "2");
    assert_eq!(receive_all(&mut all), ["initial a@1", "initial b@2"]);
    store.apply("a", "1", 3);
    store.apply("c", "3", 4);
    store.remove("b", "2", 5);
    assert_eq!(
        receive_all(&mut all),
        ["a@1 -> a@3", "new c@4", "Observed gone b@2 -> b@5"]
    );
    assert_eq!(store.content(), ["a@3", "c@4"]);
}

/// Missing objects are delivered first, as inferred deletions.
#[test]
fn relist_delivers_only_differences() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1), ("b", "2", 2), ("c", "3", 3)], "3");
    let mut all = store.subscribe();
    receive_all(&mut all);
    store.replace(&[("b", "2", 2), ("c", "3", 7), ("d", "4", 8)], "8");
    assert_eq!(
        receive_all(&mut all),
        ["Inferred gone a@1", "c@3 -> c@7", "new d@8"]
    );
    assert_eq!(store.content(), ["b@2", "c@7", "d@8"]);
}

#[test]
fn recreated_object_is_flagged() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1)], "1");
    let mut all = store.subscribe();
    receive_all(&mut all);
    store.replace(&[("a", "2", 5)], "5");
    assert_eq!(receive_all(&mut all), ["a@1 -> a@5 recreated"]);
}

/// One change per object, from the first to the last state.
#[test]
fn missed_changes_are_coalesced() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["a@1", "a@2"], &["a@0 -> a@2"]),
        (&["b@1", "b@2"], &["new b@2"]),
        (&["b@1", "b-2"], &["Observed gone b@2"]),
        (&["a@1", "a-2"], &["Observed gone a@0 -> a@2"]),
        (&["a-1", "a@2"], &["a@0 -> a@2"]),
        (&["a-1", "a@2", "a-3"], &["Observed gone a@0 -> a@3"]),
        (&["a@1", "b@2", "a@3"], &["a@0 -> a@3", "new b@2"]),
        (&["b@1", "b-2", "a@3", "b@4"], &["new b@4", "a@0 -> a@3"]),
    ];
    for (events, expected) in cases {
        let store = TestStore::new();
        store.replace(&[("a", "1", 0)], "0");
        let mut slow = store.subscribe();
        receive_all(&mut slow);
        for event in *events {
            let version: u64 = event[2..].parse().expect("a version");
            match &event[1..2] {
                "@" => store.apply(&event[..1], "1", version),
                _ => store.remove(&event[..1], "1", version),
            }
        }
        assert_eq!(receive_all(&mut slow), *expected, "{events:?}");
    }
}

/// A buffer that is not read does not grow with churn, and keeps the newest deletions.
#[test]
fn unseen_deletions_in_a_buffer_are_bounded() {
    let store = TestStore::new();
    store.replace(&[], "0");
    let mut stalled = store.subscribe();
    for version in 0..1000 {
        let name = format!("job-{version}");
        store.apply(&name, "1", version);
        store.remove(&name, "1", version);
    }
    let changes = receive_all(&mut stalled);
    assert_eq!(changes.len(), 256);
    assert_eq!(
        changes.last().map(String::as_str),
        Some("Observed gone job-999@999")
    );
}

#[test]
fn queue_keeps_every_change_up_to_its_capacity_and_counts_the_others() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1)], "1");
    let queue = crate::ChangeQueue::new(4);
    let mut all = store.subscribe().queue(&queue);
    assert_eq!(receive_all(&mut all), ["initial a@1"]);
    for version in 2..5 {
        store.apply("a", "1", version);
    }
    store.remove("a", "1", 5);
    assert_eq!(queue.coalesced(), 0);
    assert_eq!(
        receive_all(&mut all),
        [
            "a@1 -> a@2",
            "a@2 -> a@3",
            "a@3 -> a@4",
            "Observed gone a@4 -> a@5"
        ]
    );
    for version in 6..12 {
        store.apply("a", "2", version);
    }
    store.apply("b", "3", 12);
    store.remove("a", "2", 13);
    assert_eq!(queue.coalesced(), 3, "of `a`; the only change of `b` is kept");
    let mut received = Vec::new();
    while let Some(change) = all.next().now_or_never().flatten() {
        received.push((describe_change(&change), queue.coalesced_into_last()));
    }
    let expected = [
        ("new a@6", 0),
        ("a@6 -> a@7", 0),
        ("a@7 -> a@8", 0),
        ("Observed gone a@8 -> a@13", 3),
        ("new b@12", 0),
    ];
    assert_eq!(received, expected.map(|(text, merged)| (text.to_owned(), merged)));
    store.apply("b", "3", 14);
    assert_eq!(receive_all(&mut all), ["b@12 -> b@14"]);
}

#[test]
fn queue_without_capacity_coalesces_and_counts() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1)], "1");
    let queue = crate::ChangeQueue::default();
    let mut all = store.subscribe().queue(&queue);
    store.apply("a", "1", 2);
    store.apply("a", "1", 3);
    assert_eq!(receive_all(&mut all), ["new a@3"]);
    assert_eq!(queue.coalesced(), 2);
}

#[test]
fn late_subscriber_starts_with_current_objects() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1)], "1");
    store.apply("b", "2", 2);
    let mut late = store.subscribe();
    assert!(!late.synced().is_synced());
    store.apply("a", "1", 3);
    assert_eq!(receive_all(&mut late), ["new a@3", "initial b@2"]);
    assert!(late.synced().is_synced());
}

/// Receiving the last initial object is not enough; the next call to `next` marks it as processed.
#[test]
fn subscriber_is_synced_after_processing_initial_objects() {
    let store = TestStore::new();
    let mut subscription = store.subscribe();
    assert!(receive_all(&mut subscription).is_empty());
    assert!(!subscription.synced().is_synced(), "before the first list");
    store.replace(&[("a", "1", 1)], "1");
    assert!(subscription.next().now_or_never().flatten().is_some());
    assert!(
        !subscription.synced().is_synced(),
        "while the last one is processed"
    );
    assert!(receive_all(&mut subscription).is_empty());
    assert!(subscription.synced().is_synced());
}

#[test]
fn subscriber_of_an_empty_store_is_synced_immediately() {
    let store = TestStore::new();
    store.replace(&[], "1");
    let mut subscription = store.subscribe();
    assert!(receive_all(&mut subscription).is_empty());
    assert!(subscription.synced().is_synced());
}

#[test]
fn invalid_object_keeps_its_last_state() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1), ("b", "2", 2)], "2");
    let mut all = store.subscribe();
    receive_all(&mut all);
    let mut list = staged(&[("b", "2", 2)]);
    list.insert(key("a"), None);
    list.insert(key("never-seen"), None);
    store.core.store.replace(&store.scope, list, "4");
    assert_eq!(receive_all(&mut all), [""; 0]);
    assert_eq!(store.content(), ["a@1", "b@2"]);
    let changes = vec![WatchChange::RemovedInvalid(key("a"))];
    store.core.store.commit(&store.scope, changes, "5");
    assert_eq!(receive_all(&mut all), ["Observed gone a@1"]);
}

#[test]
fn deletion_of_an_unknown_object_is_not_delivered() {
    let store = TestStore::new();
    store.replace(&[], "1");
    let mut all = store.subscribe();
    store.remove("a", "1", 2);
    assert_eq!(receive_all(&mut all), [""; 0]);
}

#[test]
fn snapshot_is_immutable() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1)], "1");
    let snapshot = store.core.store.snapshot();
    store.apply("a", "1", 2);
    store.replace(&[], "3");
    let seen: Vec<_> = snapshot.objects.iter().map(|entry| describe(entry)).collect();
    assert_eq!((seen, &*snapshot.resource_version), (vec!["a@1".to_owned()], "1"));
    assert_eq!(store.content(), [""; 0]);
}

#[test]
fn resync_delivers_objects_without_pending_changes() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1), ("b", "2", 2)], "2");
    let mut all = store.subscribe();
    receive_all(&mut all);
    store.apply("b", "2", 3);
    all.resync();
    all.resync();
    assert_eq!(receive_all(&mut all), ["b@2 -> b@3", "a@1 -> a@1"]);
    all.resync();
    let again = all.next().now_or_never().flatten().expect("a change");
    assert!(again.is_resync() && !again.is_recreated());
}

/// An own write is visible immediately.
#[test]
fn older_watch_events_do_not_undo_an_own_write() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1)], "1");
    let mut all = store.subscribe();
    receive_all(&mut all);
    store.core.store.apply_own_write(entry("a", "1", 5), true);
    store.core.store.apply_own_write(entry("b", "2", 6), true);
    assert_eq!(store.content(), ["a@5", "b@6"]);
    store.apply("a", "1", 3);
    assert_eq!(store.content(), ["a@5", "b@6"], "an older state");
    store.replace(&[("a", "1", 3)], "4");
    assert_eq!(store.content(), ["a@5", "b@6"], "an older list");
    store.apply("a", "1", 5);
    store.apply("b", "2", 6);
    assert_eq!(receive_all(&mut all), ["a@1 -> a@5", "new b@6"]);
    store.remove("a", "1", 7);
    assert_eq!(store.content(), ["b@6"]);
    assert_eq!(store.core.store.backlog().2, 0, "no own write is left");
    store.core.store.apply_own_write(entry("a", "1", 5), true);
    assert_eq!(
        store.content(),
        ["b@6"],
        "a response that came after the watch reported the deletion"
    );
}

/// A deletion, and a write that moves an object out of the scope.
#[test]
fn older_watch_events_do_not_restore_removed_objects() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1), ("b", "2", 2)], "2");
    store
        .core
        .store
        .apply_own_delete(&key("a"), crate::Uid::from("1"), 3);
    store.core.store.apply_own_write(entry("b", "2", 6), false);
    assert_eq!(store.content(), [""; 0]);
    store.apply("a", "1", 3);
    store.apply("b", "2", 4);
    assert_eq!(store.content(), [""; 0], "late watch event");
    store.replace(&[("a", "1", 3), ("b", "2", 4)], "4");
    assert_eq!(store.content(), [""; 0], "late list");
    store.remove("a", "1", 5);
    store.apply("a", "9", 7);
    assert_eq!(store.content(), ["a@7"], "recreated");
    assert_eq!(store.core.store.backlog().2, 0, "no own write is left");
}

/// The deletion is delivered once, whether the response or the watch is first, and only for the deleted UID.
#[test]
fn own_delete_is_delivered_once_and_never_removes_a_recreated_object() {
    let store = TestStore::new();
    let own_delete = |uid: &str, version| {
        let uid = crate::Uid::from(uid);
        store.core.store.apply_own_delete(&key("a"), uid, version);
    };
    let mut all = store.subscribe();
    store.replace(&[("a", "1", 1)], "1");
    receive_all(&mut all);

    own_delete("1", 1);
    assert_eq!(
        receive_all(&mut all),
        ["Observed gone a@1"],
        "the response is first"
    );
    store.apply("a", "1", 2);
    store.remove("a", "1", 3);
    assert_eq!(receive_all(&mut all), [""; 0], "the watch follows");

    store.apply("a", "2", 4);
    store.remove("a", "2", 5);
    receive_all(&mut all);
    own_delete("2", 4);
    assert_eq!(receive_all(&mut all), [""; 0], "the watch was first");
    assert_eq!(store.core.store.backlog().2, 0, "nothing is left to confirm");

    store.core.store.apply_own_write(entry("a", "4", 8), true);
    receive_all(&mut all);
    own_delete("3", 6);
    store.replace(&[("a", "3", 6)], "7");
    assert_eq!(store.content(), ["a@8"], "recreated, and the list is older");
    own_delete("5", 9);
    store.apply("a", "5", 9);
    assert_eq!(
        store.content(),
        ["a@8"],
        "created and deleted between two watch events"
    );
}

/// Readers and subscribers get the transformed object.
#[test]
fn transform_runs_once_per_state() {
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let keeping = UntypedSettings {
        transform: Some(Arc::new(move |object| {
            assert!(object["metadata"].get("managedFields").is_none());
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            object["data"] = serde_json::json!({ "made": "here" });
        })),
        ..UntypedSettings::default()
    };
    let store = TestStore::with_settings(keeping);
    let text = r#"{"metadata":{"managedFields":[{}],"namespace":"n","name":"a","uid":"1","resourceVersion":"1"},"data":{"x":"y"}}"#;
    let found = Cursor::new(text.as_bytes()).object().expect("an object");
    let Ingested::Object(entry) = store.core.ingest.lock().make_and_queue(text.as_bytes(), &found) else {
        panic!("it is valid")
    };
    let staged = StagedObjects::from([(key("a"), Some(entry))]);
    store.core.store.replace(&store.scope, staged, "1");
    let mut all = store.subscribe();
    let change = all.next().now_or_never().flatten().expect("a change");
    let object = change.latest().object().expect("it decodes");
    assert_eq!(
        object.data.as_ref().map(|data| data["made"].as_str()),
        Some("here")
    );
    assert_eq!(object.metadata.managed_fields, None);
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn closed_store_ends_subscriptions_after_pending_changes() {
    let store = TestStore::new();
    store.replace(&[("a", "1", 1)], "1");
    let mut subscription = store.subscribe();
    store.core.store.close();
    assert!(matches!(subscription.next().now_or_never(), Some(Some(_))));
    assert!(matches!(subscription.next().now_or_never(), Some(None)));
    assert!(
        matches!(store.subscribe().next().now_or_never(), Some(Some(_))),
        "a replay still comes first"
    );
}

#[test]
fn reflects_is_true_when_the_object_or_watch_has_reached_the_version() {
    let store = TestStore::new();
    let reflects = |version, outside| {
        let key = ObjectKey::namespaced("n", "a");
        store.core.store.reflects(&key, version, outside)
    };
    assert!(reflects(6, false), "not synced yet");
    store.replace(&[("a", "u", 3)], "5");
    assert!(reflects(5, false) && reflects(3, true));
    assert!(
        !reflects(6, false) && !reflects(6, true),
        "the stored state is older"
    );
    store.apply("b", "v", 6);
    assert!(reflects(6, false) && !reflects(7, false));
    store.remove("a", "u", 8);
    assert!(reflects(8, false) && !reflects(9, false));
    assert!(reflects(9, true), "an excluded object only has to be absent");
    store.core.store.close();
    assert!(reflects(9, false), "the store is closed");
}
