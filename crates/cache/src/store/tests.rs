use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::{
    change::Change,
    core::Core,
    ingest::{Arrival, Ingest},
    kind::KindName,
    scan::Cursor,
    settings::{Keeping, decode},
    subscription::Subscription,
};

/// A store with what belongs to it, and one scope.
struct World {
    core: Arc<Core>,
    scope: Scope,
}

impl World {
    fn new() -> Self {
        Self::keeping(Keeping::default())
    }

    fn keeping(keeping: Keeping) -> Self {
        let kind = KindName {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        };
        let core = Arc::new(Core::new(kind, keeping));
        let scope = Scope::from("");
        core.store.open(&scope);
        Self { core, scope }
    }

    fn replace(&self, objects: &[(&str, &str, u64)], version: &str) {
        self.core.store.replace(&self.scope, staged(objects), version);
    }

    fn apply(&self, name: &str, uid: &str, version: u64) {
        let told = vec![Told::Applied(entry(name, uid, version))];
        self.core.store.commit(&self.scope, told, &version.to_string());
    }

    fn remove(&self, name: &str, uid: &str, version: u64) {
        let told = vec![Told::Removed(entry(name, uid, version))];
        self.core.store.commit(&self.scope, told, &version.to_string());
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

fn arrival(json: &str) -> Arrival {
    let kind = KindName {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    let found = Cursor::new(json.as_bytes()).object().expect("an object");
    Ingest::new(kind, Keeping::default()).take(json.as_bytes(), &found)
}

fn made(json: &str) -> Arc<Entry> {
    match arrival(json) {
        Arrival::Object(entry) => entry,
        Arrival::Broken(broken) => panic!("{broken:?}"),
    }
}

fn entry(name: &str, uid: &str, version: u64) -> Arc<Entry> {
    made(&json(name, uid, version))
}

fn staged(objects: &[(&str, &str, u64)]) -> Staged {
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

fn shown(stored: &crate::Stored<ConfigMap>) -> String {
    format!("{}@{}", stored.key().name(), stored.meta().resource_version())
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
        } => format!("initial {}", shown(new)),
        Change::Applied { old: None, new, .. } => format!("new {}", shown(new)),
        Change::Applied {
            old: Some(old), new, ..
        } => format!("{} -> {}{recreated}", shown(old), shown(new)),
        Change::Deleted { old, last, how } if old.is_same(last) => format!("{how:?} gone {}", shown(last)),
        Change::Deleted { old, last, how } => format!("{how:?} gone {} -> {}", shown(old), shown(last)),
    }
}

#[test]
fn a_subscriber_learns_of_each_change_with_the_state_before() {
    let store = World::new();
    let mut all = store.subscribe();
    store.replace(&[("a", "1", 1), ("b", "2", 2)], "2");
    assert_eq!(taken(&mut all), ["initial a@1", "initial b@2"]);
    store.apply("a", "1", 3);
    store.apply("c", "3", 4);
    store.remove("b", "2", 5);
    assert_eq!(taken(&mut all), ["a@1 -> a@3", "new c@4", "Seen gone b@2 -> b@5"]);
    assert_eq!(store.content(), ["a@3", "c@4"]);
}

/// 89, 98: what did not change is not told again; what is missing is told as inferred, and first.
#[test]
fn a_relist_tells_only_what_differs() {
    let store = World::new();
    store.replace(&[("a", "1", 1), ("b", "2", 2), ("c", "3", 3)], "3");
    let mut all = store.subscribe();
    taken(&mut all);
    store.replace(&[("b", "2", 2), ("c", "3", 7), ("d", "4", 8)], "8");
    assert_eq!(taken(&mut all), ["Inferred gone a@1", "c@3 -> c@7", "new d@8"]);
    assert_eq!(store.content(), ["b@2", "c@7", "d@8"]);
}

/// 182.
#[test]
fn an_object_that_was_made_again_unseen_is_flagged() {
    let store = World::new();
    store.replace(&[("a", "1", 1)], "1");
    let mut all = store.subscribe();
    taken(&mut all);
    store.replace(&[("a", "2", 5)], "5");
    assert_eq!(taken(&mut all), ["a@1 -> a@5 recreated"]);
}

/// 180: one change per object, with the first state before and the last state after.
#[test]
fn what_a_slow_subscriber_missed_arrives_as_one_change() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["a@1", "a@2"], &["a@0 -> a@2"]),
        (&["b@1", "b@2"], &["new b@2"]),
        (&["b@1", "b-2"], &["Seen gone b@2"]),
        (&["a@1", "a-2"], &["Seen gone a@0 -> a@2"]),
        (&["a-1", "a@2"], &["a@0 -> a@2"]),
        (&["a-1", "a@2", "a-3"], &["Seen gone a@0 -> a@3"]),
        (&["a@1", "b@2", "a@3"], &["a@0 -> a@3", "new b@2"]),
        (&["b@1", "b-2", "a@3", "b@4"], &["new b@4", "a@0 -> a@3"]),
    ];
    for (events, expected) in cases {
        let store = World::new();
        store.replace(&[("a", "1", 0)], "0");
        let mut slow = store.subscribe();
        taken(&mut slow);
        for event in *events {
            let version: u64 = event[2..].parse().expect("a version");
            match &event[1..2] {
                "@" => store.apply(&event[..1], "1", version),
                _ => store.remove(&event[..1], "1", version),
            }
        }
        assert_eq!(taken(&mut slow), *expected, "{events:?}");
    }
}

/// 180: a subscriber that does not read does not grow with churn, and still hears of what went last.
#[test]
fn objects_that_come_and_go_unseen_leave_little_in_a_buffer() {
    let store = World::new();
    store.replace(&[], "0");
    let mut stalled = store.subscribe();
    for version in 0..1000 {
        let name = format!("job-{version}");
        store.apply(&name, "1", version);
        store.remove(&name, "1", version);
    }
    let told = taken(&mut stalled);
    assert_eq!(told.len(), 256);
    assert_eq!(told.last().map(String::as_str), Some("Seen gone job-999@999"));
}

/// 107.
#[test]
fn a_late_subscriber_starts_with_what_is_there() {
    let store = World::new();
    store.replace(&[("a", "1", 1)], "1");
    store.apply("b", "2", 2);
    let mut late = store.subscribe();
    assert!(!late.synced().is_synced());
    store.apply("a", "1", 3);
    assert_eq!(taken(&mut late), ["new a@3", "initial b@2"]);
    assert!(late.synced().is_synced());
}

/// 92, 132: taking the last initial object is not enough; asking for the next says that it was dealt with.
#[test]
fn a_subscriber_is_synced_when_it_has_dealt_with_its_initial_objects() {
    let store = World::new();
    let mut subscription = store.subscribe();
    assert!(taken(&mut subscription).is_empty());
    assert!(!subscription.synced().is_synced(), "before the first list");
    store.replace(&[("a", "1", 1)], "1");
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
    let store = World::new();
    store.replace(&[], "1");
    let mut subscription = store.subscribe();
    assert!(taken(&mut subscription).is_empty());
    assert!(subscription.synced().is_synced());
}

#[test]
fn an_object_that_cannot_be_kept_stays_as_it_was_last_known() {
    let store = World::new();
    store.replace(&[("a", "1", 1), ("b", "2", 2)], "2");
    let mut all = store.subscribe();
    taken(&mut all);
    let mut list = staged(&[("b", "2", 2)]);
    list.insert(key("a"), None);
    list.insert(key("never-seen"), None);
    store.core.store.replace(&store.scope, list, "4");
    assert_eq!(taken(&mut all), [""; 0]);
    assert_eq!(store.content(), ["a@1", "b@2"]);
    let told = vec![Told::RemovedBroken(key("a"))];
    store.core.store.commit(&store.scope, told, "5");
    assert_eq!(taken(&mut all), ["Seen gone a@1"]);
}

#[test]
fn the_deletion_of_an_object_that_was_never_there_is_not_told() {
    let store = World::new();
    store.replace(&[], "1");
    let mut all = store.subscribe();
    store.remove("a", "1", 2);
    assert_eq!(taken(&mut all), [""; 0]);
}

/// 184, 185: a snapshot is a state, whatever happens after it was taken.
#[test]
fn a_snapshot_does_not_change() {
    let store = World::new();
    store.replace(&[("a", "1", 1)], "1");
    let snapshot = store.core.store.snapshot();
    store.apply("a", "1", 2);
    store.replace(&[], "3");
    let seen: Vec<_> = snapshot.objects.iter().map(|entry| describe(entry)).collect();
    assert_eq!((seen, &*snapshot.resource_version), (vec!["a@1".to_owned()], "1"));
    assert_eq!(store.content(), [""; 0]);
}

/// 82, 95: what has a change pending is told by that change.
#[test]
fn a_resync_tells_everything_again_that_has_nothing_else_to_tell() {
    let store = World::new();
    store.replace(&[("a", "1", 1), ("b", "2", 2)], "2");
    let mut all = store.subscribe();
    taken(&mut all);
    store.apply("b", "2", 3);
    all.resync();
    all.resync();
    assert_eq!(taken(&mut all), ["b@2 -> b@3", "a@1 -> a@1"]);
    all.resync();
    let again = all.next().now_or_never().flatten().expect("a change");
    assert!(again.is_resync() && !again.recreated());
}

/// 191: an own write is there at once, and what the watch tells late does not undo it.
#[test]
fn an_own_write_is_not_undone_by_what_the_watch_tells_late() {
    let world = World::new();
    world.replace(&[("a", "1", 1)], "1");
    let mut all = world.subscribe();
    taken(&mut all);
    let store = &world.core.store;
    store.wrote(entry("a", "1", 5), true);
    store.wrote(entry("b", "2", 6), true);
    assert_eq!(world.content(), ["a@5", "b@6"]);
    world.apply("a", "1", 3);
    assert_eq!(world.content(), ["a@5", "b@6"], "an older state");
    world.replace(&[("a", "1", 3)], "4");
    assert_eq!(world.content(), ["a@5", "b@6"], "an older list");
    world.apply("a", "1", 5);
    world.apply("b", "2", 6);
    assert_eq!(taken(&mut all), ["a@1 -> a@5", "new b@6"]);
    world.remove("a", "1", 7);
    assert_eq!(world.content(), ["b@6"]);
    assert_eq!(store.waiting().2, 0, "nothing is left to remember");
    store.wrote(entry("a", "1", 5), true);
    assert_eq!(
        world.content(),
        ["b@6"],
        "an answer that came after the watch had told of the end"
    );
}

/// 191: a deletion, and a write that moves an object out of the selection.
#[test]
fn what_was_deleted_or_moved_out_by_an_own_write_does_not_come_back() {
    let world = World::new();
    world.replace(&[("a", "1", 1), ("b", "2", 2)], "2");
    let store = &world.core.store;
    store.deleted(&key("a"), crate::Uid::from("1"));
    store.wrote(entry("b", "2", 6), false);
    assert_eq!(world.content(), [""; 0]);
    world.apply("a", "1", 3);
    world.apply("b", "2", 4);
    assert_eq!(world.content(), [""; 0], "told late");
    world.replace(&[("a", "1", 3), ("b", "2", 4)], "4");
    assert_eq!(world.content(), [""; 0], "listed late");
    world.remove("a", "1", 5);
    world.apply("a", "9", 7);
    assert_eq!(world.content(), ["a@7"], "made again");
    assert_eq!(store.waiting().2, 0, "nothing is left to remember");
}

/// 87, 183: the transform sees each object once, and readers and handlers see what it made.
#[test]
fn a_transform_runs_once_for_each_state() {
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let keeping = Keeping {
        transform: Some(Arc::new(move |object| {
            assert!(object["metadata"].get("managedFields").is_none());
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            object["data"] = serde_json::json!({ "made": "here" });
        })),
        ..Keeping::default()
    };
    let world = World::keeping(keeping);
    let text = r#"{"metadata":{"managedFields":[{}],"namespace":"n","name":"a","uid":"1","resourceVersion":"1"},"data":{"x":"y"}}"#;
    let found = Cursor::new(text.as_bytes()).object().expect("an object");
    let Arrival::Object(entry) = world.core.ingest.lock().take(text.as_bytes(), &found) else {
        panic!("it is kept")
    };
    let staged = Staged::from([(key("a"), Some(entry))]);
    world.core.store.replace(&world.scope, staged, "1");
    let mut all = world.subscribe();
    let change = all.next().now_or_never().flatten().expect("a change");
    let object = change.stored().object().expect("it decodes");
    assert_eq!(
        object.data.as_ref().map(|data| data["made"].as_str()),
        Some("here")
    );
    assert_eq!(object.metadata.managed_fields, None);
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
}

mod indexes;
#[test]
fn a_closed_store_ends_its_subscriptions_when_they_are_empty() {
    let store = World::new();
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
fn a_write_is_reflected_when_the_object_or_the_watch_has_come_that_far() {
    let world = World::new();
    let reflects = |version, outside| {
        let key = ObjectKey::namespaced("n", "a");
        world.core.store.reflects(&key, version, outside)
    };
    assert!(reflects(6, false), "nobody can read yet");
    world.replace(&[("a", "u", 3)], "5");
    assert!(reflects(5, false) && reflects(3, true));
    assert!(
        !reflects(6, false) && !reflects(6, true),
        "it is there in an older state"
    );
    world.apply("b", "v", 6);
    assert!(reflects(6, false) && !reflects(7, false));
    world.remove("a", "u", 8);
    assert!(reflects(8, false) && !reflects(9, false));
    assert!(reflects(9, true), "what belongs elsewhere has only to be gone");
    world.core.store.close();
    assert!(reflects(9, false), "nothing will come");
}
