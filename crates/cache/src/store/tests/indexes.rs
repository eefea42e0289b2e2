//! Indexes stay exact through updates, removals and lists, and queries work with and without them.

use kube::core::Expression;
use proptest::prelude::*;

use super::*;
use crate::{
    index::{Index, Indexer},
    query::{FieldSelector, Query},
};

fn pod(name: &str, version: u64, app: &str, node: &str, owners: &[&str]) -> Arc<Entry> {
    let owners: Vec<_> = owners
        .iter()
        .map(|uid| serde_json::json!({ "uid": uid, "name": "o" }))
        .collect();
    let data = serde_json::json!({
        "metadata": {
            "namespace": "n", "name": name, "uid": name, "resourceVersion": version.to_string(),
            "labels": { "app": app }, "ownerReferences": owners,
        },
        "data": { "node": node, "list": "a b" },
    });
    entry_from_json(&data.to_string())
}

fn apply(store: &TestStore, entry: Arc<Entry>) {
    let version = entry.meta.resource_version.to_string();
    store
        .core
        .store
        .commit(&store.scope, vec![WatchChange::Applied(entry)], &version);
}

fn names(store: &TestStore, query: &Query) -> Vec<String> {
    let snapshot = store.core.store.snapshot();
    let found = query.run(&snapshot, &store.core.store.definitions());
    found
        .iter()
        .map(|entry| entry.meta.key.name().to_owned())
        .collect()
}

fn index(store: &TestStore, by: Indexer<ConfigMap>) -> Index<ConfigMap> {
    Index::of(store.core.store.index(by))
}

fn by_words() -> Indexer<ConfigMap> {
    Indexer::function(decode::<ConfigMap>, |object| {
        let text = object
            .data
            .as_ref()
            .and_then(|data| data.get("list"))
            .cloned()
            .unwrap_or_default();
        text.split(' ').map(str::to_owned).collect()
    })
}

#[test]
fn indexes_find_objects_and_follow_updates() {
    let store = TestStore::new();
    store.replace(&[], "0");
    apply(&store, pod("a", 1, "web", "n1", &["o1", "o2"]));
    let label = index(&store, Indexer::label("app"));
    let owner = index(&store, Indexer::owner());
    let field = index(&store, Indexer::field("data.node".parse().expect("a path")));
    let words = index(&store, by_words());
    apply(&store, pod("b", 2, "web", "n2", &[]));
    let found = |index, value| names(&store, &Query::all().indexed(index, value));
    assert_eq!(found(&label, "web"), ["a", "b"]);
    assert_eq!(
        (found(&owner, "o1"), found(&owner, "o2")),
        (vec!["a".into()], vec!["a".into()])
    );
    assert_eq!(
        (found(&field, "n1"), found(&field, "n2")),
        (vec!["a".into()], vec!["b".into()])
    );
    assert_eq!(
        (found(&words, "a"), found(&words, "b")),
        (vec!["a".to_owned(), "b".into()], vec!["a".into(), "b".into()])
    );
    apply(&store, pod("a", 3, "db", "n2", &["o2"]));
    assert_eq!(
        (found(&label, "web"), found(&label, "db")),
        (vec!["b".to_owned()], vec!["a".into()])
    );
    assert_eq!(
        (found(&owner, "o1"), found(&owner, "o2")),
        (vec![], vec!["a".to_owned()])
    );
    assert_eq!(
        (found(&field, "n1"), found(&field, "n2")),
        (vec![], vec!["a".to_owned(), "b".into()])
    );
    store.remove("a", "a", 4);
    store.replace(&[], "5");
    let snapshot = store.core.store.snapshot();
    assert!(
        snapshot.indexes.values().all(imbl::OrdMap::is_empty),
        "empty buckets go"
    );
    assert_eq!(snapshot.indexes.len(), 4);
    index(&store, Indexer::label("app"));
    assert_eq!(
        store.core.store.definitions().len(),
        4,
        "the same index is not created twice"
    );
}

#[test]
fn query_combines_conditions_and_applies_the_limit() {
    let store = TestStore::new();
    store.replace(&[], "0");
    for (number, (app, node)) in [("web", "n1"), ("web", "n2"), ("db", "n1"), ("web", "n1")]
        .iter()
        .enumerate()
    {
        apply(
            &store,
            pod(&format!("p{number}"), number as u64 + 1, app, node, &["o"]),
        );
    }
    let web = || Query::all().labels(Expression::Equal("app".into(), "web".into()));
    let on_n1: FieldSelector = "data.node=n1".parse().expect("fields");
    let without_index = names(&store, &web().fields(on_n1.clone()));
    assert_eq!(without_index, ["p0", "p3"]);
    let (label, owner) = (
        index(&store, Indexer::label("app")),
        index(&store, Indexer::owner()),
    );
    index(&store, Indexer::field("data.node".parse().expect("a path")));
    assert_eq!(
        names(&store, &web().fields(on_n1.clone())),
        without_index,
        "the same with an index"
    );
    assert_eq!(
        names(&store, &Query::all().indexed(&label, "db").indexed(&owner, "o")),
        ["p2"]
    );
    assert_eq!(
        names(&store, &Query::all().indexed(&label, "db").indexed(&owner, "x")),
        [""; 0]
    );
    assert_eq!(names(&store, &web().limit(2)), ["p0", "p1"]);
    assert_eq!(names(&store, &web().limit(0)), [""; 0]);
    assert_eq!(names(&store, &Query::all().namespace("m")), [""; 0]);
    assert_eq!(
        names(
            &store,
            &Query::all().fields("data.node!=n1".parse().expect("fields"))
        ),
        ["p1"]
    );
    let other = index(&TestStore::new(), Indexer::label("app"));
    assert_eq!(
        names(&store, &Query::all().indexed(&other, "db")),
        ["p2"],
        "an index of another cache"
    );
}

#[test]
fn panicking_index_function_affects_only_its_index() {
    let store = TestStore::new();
    store.replace(&[], "0");
    let bad = index(&store, Indexer::function(decode::<ConfigMap>, |_| panic!("no")));
    apply(&store, pod("a", 1, "web", "n1", &[]));
    assert_eq!(names(&store, &Query::all().indexed(&bad, "x")), [""; 0]);
    assert_eq!(store.content(), ["a@1"]);
}

proptest! {
    /// After any history.
    #[test]
    fn index_matches_a_full_scan(history in prop::collection::vec((0..5_u8, 0..3_u8, 0..3_u8, 0..8_u8), 1..40)) {
        let store = TestStore::new();
        store.replace(&[], "0");
        let (label, field) = (index(&store, Indexer::label("app")), index(&store, Indexer::field("data.node".parse().expect("a path"))));
        for (number, (name, app, node, what)) in history.into_iter().enumerate() {
            let (name, version) = (format!("p{name}"), number as u64 + 1);
            let entry = pod(&name, version, &format!("app{app}"), &format!("n{node}"), &[]);
            match what {
                0 => store.remove(&name, &name, version),
                1 => {
                    let staged = StagedObjects::from([(entry.meta.key.clone(), Some(entry))]);
                    store.core.store.replace(&store.scope, staged, &version.to_string());
                }
                _ => apply(&store, entry),
            }
            let snapshot = store.core.store.snapshot();
            let all: Vec<_> = snapshot.objects.iter().collect();
            prop_assert_eq!(snapshot.objects.len(), all.len());
            for name in 0..5 {
                let key = ObjectKey::namespaced("n", format!("p{name}"));
                let listed = all.iter().find(|entry| entry.meta.key == key).map(|entry| Arc::as_ptr(entry));
                prop_assert_eq!(snapshot.objects.get(&key).map(Arc::as_ptr), listed);
            }
            for value in 0..3 {
                let scanned = Query::all().labels(Expression::Equal("app".into(), format!("app{value}")));
                prop_assert_eq!(names(&store, &Query::all().indexed(&label, &format!("app{value}"))), names(&store, &scanned));
                let path = "data.node".parse().expect("a path");
                // A query with "in" does not use the index.
                let scanned = Query::all().fields(FieldSelector::any().is_in(path, [format!("n{value}"), "no".to_owned()]));
                prop_assert_eq!(names(&store, &Query::all().indexed(&field, &format!("n{value}"))), names(&store, &scanned));
            }
        }
    }
}
