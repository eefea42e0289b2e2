//! Many users, types and namespaces of one cache.

mod model;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{
    ResourceExt,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use model::{CONFIG_MAPS, On, Server, config_map, key};
use serde_json::json;
use windlass_cache::{Cache, Caches, Change, ObjectKey, Query, Selection, Settings};

const SOON: Duration = Duration::from_secs(5);
const EVENTUALLY: Duration = Duration::from_mins(5);

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// 186: typed, dynamic and metadata-only views are of one stored copy.
#[tokio::test(start_paused = true)]
async fn an_object_is_stored_once_however_it_is_read() {
    let server = Server::with(&[CONFIG_MAPS]);
    let mut object = config_map("a", "1");
    object["metadata"]["labels"] = json!({ "app": "web" });
    server.put(CONFIG_MAPS, object);
    let caches = Caches::new(server.client());
    let all = Selection::all();
    let typed = caches.get::<ConfigMap>(&all).synced(SOON).await.expect("well");
    let meta = caches
        .get::<PartialObjectMeta<ConfigMap>>(&all)
        .synced(SOON)
        .await
        .expect("well");
    let kind = ApiResource::erase::<ConfigMap>(&());
    let dynamic = caches
        .get_dynamic::<DynamicObject>(&kind, &all)
        .synced(SOON)
        .await
        .expect("well");
    settle().await;
    assert_eq!((server.watches(), caches.reports().len()), (1, 1));
    let typed = typed.get(&key("a")).expect("typed");
    assert_eq!(typed.data.as_ref().map(|data| data["text"].as_str()), Some("1"));
    assert_eq!(meta.get(&key("a")).expect("metadata").labels()["app"], "web");
    let dynamic = dynamic.get(&key("a")).expect("dynamic");
    assert_eq!(dynamic.data["data"]["text"], "1");
    let said = dynamic
        .types
        .as_ref()
        .expect("items of a list do not say their type; the cache does");
    assert_eq!(
        (said.api_version.as_str(), said.kind.as_str()),
        ("v1", "ConfigMap")
    );
}

/// 185: readers share what was decoded once, within the budget.
#[tokio::test(start_paused = true)]
async fn hot_objects_are_shared_and_the_budget_is_kept() {
    for (budget, shared) in [(1 << 20, true), (0, false)] {
        let server = Server::with(&[CONFIG_MAPS]);
        for number in 0..50 {
            server.put(CONFIG_MAPS, config_map(&number.to_string(), "1"));
        }
        let settings = Settings::<ConfigMap>::compact().hot_bytes(budget);
        let cache = Cache::start_with(server.client(), &(), &Selection::all(), settings);
        let lister = cache.synced(SOON).await.expect("the server is well");
        let (one, two) = (lister.list(&Query::all()), lister.list(&Query::all()));
        let same = one.iter().zip(&two).all(|(one, two)| Arc::ptr_eq(one, two));
        assert_eq!(same, shared);
        assert!(cache.stats().hot_bytes <= budget);
        assert_eq!(cache.stats().decodes, if shared { 50 } else { 100 });
    }
    let server = Server::with(&[CONFIG_MAPS]);
    for number in 0..50 {
        server.put(CONFIG_MAPS, config_map(&number.to_string(), "1"));
    }
    let settings = Settings::<ConfigMap>::compact().hot_bytes(8 << 10);
    let cache = Cache::start_with(server.client(), &(), &Selection::all(), settings);
    let lister = cache.synced(SOON).await.expect("the server is well");
    lister.list(&Query::all());
    let used = cache.stats().hot_bytes;
    assert!((1..=8 << 10).contains(&used), "{used}");
}

/// A round through more objects than fit finds most of them at hand: what everything is reconciled in must not push out
/// what it needs next. What is read twice in its turn is decoded once.
#[tokio::test(start_paused = true)]
async fn a_round_through_more_than_fits_finds_most() {
    const OBJECTS: usize = 200;
    let server = Server::with(&[CONFIG_MAPS]);
    for number in 0..OBJECTS {
        server.put(CONFIG_MAPS, config_map(&format!("{number:03}"), "1"));
    }
    let cached = async |budget| {
        let settings = Settings::<ConfigMap>::compact().hot_bytes(budget);
        let cache = Cache::start_with(server.client(), &(), &Selection::all(), settings);
        let lister = cache.synced(SOON).await.expect("the server is well");
        lister.list(&Query::all());
        (cache, lister)
    };
    let all = cached(usize::MAX / 2).await.0.stats().hot_bytes;
    let (cache, lister) = cached(all - all / 10).await;
    let round = || {
        let before = cache.stats().decodes;
        for number in 0..OBJECTS {
            let key = key(&format!("{number:03}"));
            for _ in 0..2 {
                assert!(lister.get(&key).is_some());
            }
        }
        cache.stats().decodes - before
    };
    for _ in 0..10 {
        let decodes = round();
        assert!(
            decodes <= OBJECTS as u64 / 4,
            "{decodes} of {OBJECTS} were decoded"
        );
    }
    // Room that objects leave is used: with half of them gone, the rest fits.
    for number in 0..OBJECTS / 2 {
        server.delete(CONFIG_MAPS, &key(&format!("{number:03}")));
    }
    settle().await;
    let rest = || {
        let before = cache.stats().decodes;
        for number in OBJECTS / 2..OBJECTS {
            assert!(lister.get(&key(&format!("{number:03}"))).is_some());
        }
        cache.stats().decodes - before
    };
    for _ in 0..20 {
        rest();
    }
    assert_eq!(rest(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_projection_keeps_only_what_was_asked_for() {
    struct Text(String);
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "one"));
    let settings = Settings::projected(|object: &ConfigMap| {
        Text(
            object
                .data
                .as_ref()
                .map(|data| data["text"].clone())
                .unwrap_or_default(),
        )
    });
    let caches = Caches::new(server.client());
    let cache = caches.projected(&Selection::all(), settings);
    let lister = cache.synced(SOON).await.expect("the server is well");
    assert_eq!(lister.get(&key("a")).expect("it is there").0, "one");
    let by_text = cache.index_by(|text| vec![text.0.clone()]);
    server.put(CONFIG_MAPS, config_map("a", "two"));
    settle().await;
    assert_eq!(lister.by_index(&by_text, "two").len(), 1);
    assert_eq!((cache.stats().bytes, cache.stats().decodes), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_projection_sees_who_wrote_what_if_it_asks() {
    let server = Server::with(&[CONFIG_MAPS]);
    let mut object = config_map("a", "one");
    object["metadata"]["managedFields"] = json!([{ "manager": "somebody", "operation": "Update" }]);
    server.put(CONFIG_MAPS, object);
    let writers = |object: &ConfigMap| object.managed_fields().len();
    for (settings, expected) in [
        (Settings::projected(writers), 0),
        (Settings::projected(writers).managed_fields(), 1),
    ] {
        let cache = Cache::start_with(server.client(), &(), &Selection::all(), settings);
        let lister = cache.synced(SOON).await.expect("the server is well");
        assert_eq!(*lister.get(&key("a")).expect("it is there"), expected);
    }
}

/// A write that is answered with metadata alone is seen by the next read of metadata; no watch tells of it here.
#[tokio::test(start_paused = true)]
async fn an_answer_of_metadata_is_enough_for_a_cache_of_metadata() {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            return std::future::pending().await;
        }
        let answer = match *request.method() {
            http::Method::POST => json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": { "namespace": "n", "name": "a", "uid": "u", "resourceVersion": "2" },
            }),
            _ => json!({ "kind": "ConfigMapList", "metadata": { "resourceVersion": "1" }, "items": [] }),
        };
        let body = kube::client::Body::from(answer.to_string().into_bytes());
        Ok::<_, std::convert::Infallible>(http::Response::new(body))
    });
    let caches = Caches::new(kube::Client::new(service, "n"));
    let follow = async |selection: Selection| {
        let settings = Settings::projected(|object: &PartialObjectMeta<ConfigMap>| object.uid()).listing();
        let cache = caches.projected(&selection.metadata_only(), settings);
        let lister = cache.synced(SOON).await.expect("the server is well");
        (cache, lister)
    };
    let (_all, lister) = follow(Selection::all()).await;
    // What is of metadata as well: that it is selected, and that it is not.
    let (_named, named) = follow(Selection::all().fields("metadata.name=a")).await;
    let (_other, other) = follow(Selection::all().fields("metadata.name=b")).await;
    let write = http::Request::post("/api/v1/namespaces/n/configmaps")
        .body(kube::client::Body::empty())
        .expect("it is a request");
    let sent = tokio::time::timeout(Duration::from_secs(1), caches.client().send(write));
    sent.await
        .expect("it need not wait for the watch")
        .expect("it is answered");
    for lister in [lister, named] {
        assert_eq!(*lister.get(&key("a")).expect("it is there"), Some("u".to_owned()));
    }
    assert!(other.get(&key("a")).is_none());
}

/// A kind is packed once it has more than a few objects, and reads as before.
#[tokio::test(start_paused = true)]
async fn many_objects_are_packed_when_it_is_quiet_and_read_as_before() {
    let server = Server::with(&[CONFIG_MAPS]);
    let text = |number: usize| format!("{number} {}", "the same long text in every object ".repeat(40));
    for number in 0..400 {
        server.put(CONFIG_MAPS, config_map(&number.to_string(), &text(number)));
    }
    let cache = Cache::<ConfigMap>::start(server.client(), &Selection::all());
    let lister = cache.synced(SOON).await.expect("the server is well");
    let plain = cache.stats().bytes;
    tokio::time::sleep(SOON).await;
    let stats = cache.stats();
    assert!(stats.bytes < plain * 6 / 10, "{} of {plain} bytes", stats.bytes);
    assert_eq!(stats.dictionaries, 1);
    for number in 0..400 {
        let object = lister.get(&key(&number.to_string())).expect("it is there");
        assert_eq!(
            object.data.as_ref().map(|data| &data["text"]),
            Some(&text(number))
        );
    }
}

const IN_A: &str = "/api/v1/namespaces/a/configmaps";
const IN_B: &str = "/api/v1/namespaces/b/configmaps";

fn put(server: &Server, path: &str, namespace: &str, name: &str) {
    server.put(
        path,
        json!({ "metadata": { "namespace": namespace, "name": name } }),
    );
}

/// 165, 189: a set of namespaces grows and shrinks while it is read.
#[tokio::test(start_paused = true)]
async fn namespaces_come_and_go_while_the_cache_runs() {
    let server = Server::with(&[IN_A, IN_B]);
    put(&server, IN_A, "a", "one");
    put(&server, IN_B, "b", "two");
    let cache = Cache::<ConfigMap>::start(server.client(), &Selection::all().namespaces(["a"]));
    let lister = cache.synced(SOON).await.expect("the server is well");
    let mut changes = lister.subscribe();
    assert_eq!(lister.len(), 1);
    assert!(
        changes
            .next()
            .await
            .is_some_and(|change| change.key().name() == "one")
    );
    cache.set_namespaces(["a", "b"]);
    assert!(
        changes
            .next()
            .await
            .is_some_and(|change| change.key() == &ObjectKey::namespaced("b", "two"))
    );
    cache.synced(SOON).await.expect("b is there too");
    put(&server, IN_A, "a", "three");
    assert!(
        changes
            .next()
            .await
            .is_some_and(|change| change.key().name() == "three")
    );
    assert_eq!((lister.len(), server.watches()), (3, 2));
    assert_eq!(
        &*lister.resource_version(),
        "2",
        "the oldest of all: b knows nothing of what happens in a"
    );
    cache.set_namespaces(["b"]);
    for name in ["one", "three"] {
        let gone = changes.next().await.expect("a change");
        assert!(matches!(&gone, Change::Deleted { .. }) && gone.key().name() == name);
    }
    settle().await;
    assert_eq!((lister.len(), server.watches()), (1, 1));
    cache.set_namespaces([""; 0]);
    settle().await;
    assert_eq!((lister.len(), server.watches()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_namespaces_gets_them_whatever_became_of_others_set() {
    let server = Server::with(&[IN_A, IN_B]);
    put(&server, IN_A, "a", "one");
    put(&server, IN_B, "b", "two");
    let caches = Caches::new(server.client());
    let both = Selection::all().namespaces(["a", "b"]);
    let first = caches.get::<ConfigMap>(&both);
    first.synced(SOON).await.expect("the server is well");
    first.set_namespaces(["a"]);
    let second = caches.get::<ConfigMap>(&both);
    let second = second.synced(SOON).await.expect("the server is well");
    assert_eq!(second.len(), 2);
    let third = caches.get::<ConfigMap>(&Selection::all().namespaces(["a"]));
    third.synced(SOON).await.expect("it is the first");
    settle().await;
    assert_eq!(server.watches(), 3, "one of the first, two of the second");
    let reports: Vec<_> = caches
        .reports()
        .iter()
        .map(|report| report.selection.to_string())
        .collect();
    assert_eq!(reports, ["namespaces a+b", "namespaces a"]);
}

/// 93: the wait for a set names each namespace that is missing.
#[tokio::test(start_paused = true)]
async fn the_wait_for_several_namespaces_names_those_that_are_missing() {
    let server = Server::with(&[IN_A]);
    let selection = Selection::all().namespaces(["a", "b", "c"]);
    let cache = Cache::<ConfigMap>::start(server.client(), &selection);
    let error = cache
        .synced(SOON)
        .await
        .err()
        .expect("two are missing")
        .to_string();
    assert!(
        error.contains("namespace `b`: ") && error.contains("namespace `c`: "),
        "{error}"
    );
    assert!(!error.contains("`a`"), "{error}");
}

/// 170.
#[tokio::test(start_paused = true)]
async fn a_kind_outside_namespaces_is_whole_in_a_set_of_namespaces() {
    let server = Server::with(&["/api/v1/nodes"]);
    server.put("/api/v1/nodes", json!({ "metadata": { "name": "n1" } }));
    let cache = Cache::<Node>::start(server.client(), &Selection::all().namespaces(["a", "b"]));
    let lister = cache.synced(SOON).await.expect("the server is well");
    assert!(lister.get(&ObjectKey::cluster("n1")).is_some());
    assert_eq!(server.watches(), 1);
}

/// 171: settings of a kind are for all its users.
#[tokio::test(start_paused = true)]
async fn a_transform_is_for_every_view() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "secret"));
    let caches = Caches::new(server.client());
    caches.configure(Settings::<ConfigMap>::compact().transform(|object| {
        object["data"]["text"] = json!("hidden");
    }));
    let typed = caches
        .get::<ConfigMap>(&Selection::all())
        .synced(SOON)
        .await
        .expect("well");
    assert_eq!(
        typed
            .get(&key("a"))
            .expect("it")
            .data
            .as_ref()
            .map(|data| data["text"].as_str()),
        Some("hidden")
    );
    let dynamic = typed
        .cache()
        .view::<DynamicObject>()
        .synced(SOON)
        .await
        .expect("well");
    assert_eq!(dynamic.get(&key("a")).expect("it").data["data"]["text"], "hidden");
}

/// Every write through the cache's own client comes back with the watch.
#[tokio::test(start_paused = true)]
async fn a_state_that_is_known_is_not_taken_in_again() {
    let server = Server::with(&[CONFIG_MAPS]);
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let caches = Caches::new(server.client());
    caches.configure(Settings::<ConfigMap>::compact().transform(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let cache = caches.get::<ConfigMap>(&Selection::all());
    let lister = cache.synced(SOON).await.expect("well");
    server.put(CONFIG_MAPS, config_map("a", "1"));
    settle().await;
    let known = lister.get(&key("a")).expect("it");
    let again = json!({ "type": "MODIFIED", "object": &*known }).to_string();
    server.send(CONFIG_MAPS, &again);
    settle().await;
    assert_eq!(
        (taken.load(Ordering::Relaxed), lister.cache().stats().events),
        (1, 2)
    );
    server.put(CONFIG_MAPS, config_map("a", "2"));
    settle().await;
    assert_eq!(taken.load(Ordering::Relaxed), 2, "another state of it");
}

/// What is cached, why, and how it goes, for a person and for a machine.
#[tokio::test(start_paused = true)]
async fn reports_say_what_is_cached_and_for_whom() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let caches = Caches::new(server.client());
    let cache = caches.get::<ConfigMap>(&Selection::all().labels("app=web"));
    let lister = cache.synced(SOON).await.expect("the server is well");
    let _changes = lister.subscribe();
    cache.index(windlass_cache::IndexBy::label("app"));
    server.put(CONFIG_MAPS, config_map("b", "1"));
    settle().await;
    let reports = caches.reports();
    let [report] = &reports[..] else {
        panic!("one watch")
    };
    assert_eq!(report.users, 3, "the cache, the lister and the subscription");
    let line = report.to_string();
    assert!(
        line.starts_with("ConfigMap (v1), all namespaces, labels app=web: 2 objects in "),
        "{line}"
    );
    assert!(
        line.ends_with("3 users, 1 subscribers with 2 pending, indexed by label app"),
        "{line}"
    );
    let metrics = report.metrics();
    let labels = r#"{kind="ConfigMap (v1)",selection="all namespaces, labels app=web"}"#;
    for expected in [
        "objects 2",
        "events_total 2",
        "lists_total 1",
        "failures_total 0",
        "pending_changes 2",
    ] {
        let (name, value) = expected.split_once(' ').expect("two parts");
        let line = format!("windlass_cache_{name}{labels} {value}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    server.fail(On::Watch, 410);
    tokio::time::sleep(SOON).await;
    server.break_watches();
    tokio::time::sleep(EVENTUALLY).await;
    let stats = cache.stats();
    assert_eq!((stats.lists, stats.failures), (2, 1), "one relist");
    assert!(
        stats.lag.is_some_and(|lag| lag > Duration::from_mins(1)),
        "{:?}",
        stats.lag
    );
}

/// A version that somebody else told of can be waited for, with a deadline.
#[tokio::test(start_paused = true)]
async fn a_version_can_be_waited_for() {
    let server = Server::with(&[CONFIG_MAPS]);
    let cache = Cache::<ConfigMap>::start(server.client(), &Selection::all());
    let lister = cache.synced(SOON).await.expect("the server is well");
    settle().await;
    assert!(!lister.reaches(1, SOON).await);
    let waiting = tokio::spawn({
        let lister = lister.clone();
        async move { lister.reaches(1, SOON).await }
    });
    settle().await;
    server.put(CONFIG_MAPS, config_map("a", "1"));
    assert!(waiting.await.expect("no panic"));
}
