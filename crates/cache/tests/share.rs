//! Many users, types and namespaces of one cache.

use crate::model;

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
use model::{CONFIG_MAPS, RequestType, Server, config_map, key};
use serde_json::json;
use windlass_cache::{
    Cache, CacheSet, Change, ObjectKey, Query, STATISTICS, Settings, StatisticValue, WatchScope,
};

const SOON: Duration = Duration::from_secs(5);
const EVENTUALLY: Duration = Duration::from_mins(5);

async fn run_until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Typed, dynamic and metadata-only views.
#[tokio::test(start_paused = true)]
async fn views_of_all_types_share_one_stored_copy() {
    let server = Server::with(&[CONFIG_MAPS]);
    let mut object = config_map("a", "1");
    object["metadata"]["labels"] = json!({ "app": "web" });
    server.put(CONFIG_MAPS, object);
    let caches = CacheSet::new(server.client());
    let all = WatchScope::all();
    let typed = caches.get::<ConfigMap>(&all).synced(SOON).await.expect("synced");
    let meta = caches
        .get::<PartialObjectMeta<ConfigMap>>(&all)
        .synced(SOON)
        .await
        .expect("synced");
    let kind = ApiResource::erase::<ConfigMap>(&());
    let dynamic = caches
        .get_dynamic::<DynamicObject>(&kind, &all)
        .synced(SOON)
        .await
        .expect("synced");
    run_until_idle().await;
    assert_eq!((server.watches(), caches.reports().len()), (1, 1));
    let typed = typed.get(&key("a")).expect("typed");
    assert_eq!(typed.data.as_ref().map(|data| data["text"].as_str()), Some("1"));
    assert_eq!(meta.get(&key("a")).expect("metadata").labels()["app"], "web");
    let dynamic = dynamic.get(&key("a")).expect("dynamic");
    assert_eq!(dynamic.data["data"]["text"], "1");
    let type_meta = dynamic
        .types
        .as_ref()
        .expect("the cache adds the type that list items lack");
    assert_eq!(
        (type_meta.api_version.as_str(), type_meta.kind.as_str()),
        ("v1", "ConfigMap")
    );
}

#[tokio::test(start_paused = true)]
async fn decoded_objects_are_shared_within_the_budget() {
    for (budget, shared) in [(1 << 20, true), (0, false)] {
        let server = Server::with(&[CONFIG_MAPS]);
        for number in 0..50 {
            server.put(CONFIG_MAPS, config_map(&number.to_string(), "1"));
        }
        let settings = Settings::<ConfigMap>::compact().decoded_budget(budget);
        let cache = Cache::start_with(server.client(), &(), &WatchScope::all(), settings);
        let lister = cache.synced(SOON).await.expect("synced");
        let (one, two) = (lister.list(&Query::all()), lister.list(&Query::all()));
        let same = one.iter().zip(&two).all(|(one, two)| Arc::ptr_eq(one, two));
        assert_eq!(same, shared);
        assert!(cache.stats().decoded_bytes <= budget);
        assert_eq!(cache.stats().decodes, if shared { 50 } else { 100 });
    }
    let server = Server::with(&[CONFIG_MAPS]);
    for number in 0..50 {
        server.put(CONFIG_MAPS, config_map(&number.to_string(), "1"));
    }
    let settings = Settings::<ConfigMap>::compact().decoded_budget(8 << 10);
    let cache = Cache::start_with(server.client(), &(), &WatchScope::all(), settings);
    let lister = cache.synced(SOON).await.expect("synced");
    lister.list(&Query::all());
    let used = cache.stats().decoded_bytes;
    assert!((1..=8 << 10).contains(&used), "{used}");
}

/// Reconciling more objects than fit must not evict those that are needed next. An object that is read twice in its
/// turn is decoded once.
#[tokio::test(start_paused = true)]
async fn scan_beyond_the_budget_mostly_hits() {
    const OBJECTS: usize = 200;
    let server = Server::with(&[CONFIG_MAPS]);
    for number in 0..OBJECTS {
        server.put(CONFIG_MAPS, config_map(&format!("{number:03}"), "1"));
    }
    let cached = async |budget| {
        let settings = Settings::<ConfigMap>::compact().decoded_budget(budget);
        let cache = Cache::start_with(server.client(), &(), &WatchScope::all(), settings);
        let lister = cache.synced(SOON).await.expect("synced");
        lister.list(&Query::all());
        (cache, lister)
    };
    let all = cached(usize::MAX / 2).await.0.stats().decoded_bytes;
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
    // The room of deleted objects is reused: with half of them deleted, the rest fits.
    for number in 0..OBJECTS / 2 {
        server.delete(CONFIG_MAPS, &key(&format!("{number:03}")));
    }
    run_until_idle().await;
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
async fn projection_stores_only_its_result() {
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
    let caches = CacheSet::new(server.client());
    let cache = caches.projected(&WatchScope::all(), settings);
    let lister = cache.synced(SOON).await.expect("synced");
    assert_eq!(lister.get(&key("a")).expect("it is there").0, "one");
    let by_text = cache.index_by(|text| vec![text.0.clone()]);
    server.put(CONFIG_MAPS, config_map("a", "two"));
    run_until_idle().await;
    assert_eq!(lister.by_index(&by_text, "two").len(), 1);
    assert_eq!((cache.stats().bytes, cache.stats().decodes), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn projection_sees_managed_fields_on_request() {
    let server = Server::with(&[CONFIG_MAPS]);
    let mut object = config_map("a", "one");
    object["metadata"]["managedFields"] = json!([{ "manager": "kubectl", "operation": "Update" }]);
    server.put(CONFIG_MAPS, object);
    let writers = |object: &ConfigMap| object.managed_fields().len();
    for (settings, expected) in [
        (Settings::projected(writers), 0),
        (Settings::projected(writers).managed_fields(), 1),
    ] {
        let cache = Cache::start_with(server.client(), &(), &WatchScope::all(), settings);
        let lister = cache.synced(SOON).await.expect("synced");
        assert_eq!(*lister.get(&key("a")).expect("it is there"), expected);
    }
}

/// The server's watch sends no events here.
#[tokio::test(start_paused = true)]
async fn metadata_response_updates_a_metadata_only_cache() {
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
    let caches = CacheSet::new(kube::Client::new(service, "n"));
    let follow = async |selection: WatchScope| {
        let settings =
            Settings::projected(|object: &PartialObjectMeta<ConfigMap>| object.uid()).without_watch_list();
        let cache = caches.projected(&selection.metadata_only(), settings);
        let lister = cache.synced(SOON).await.expect("synced");
        (cache, lister)
    };
    let (_all, lister) = follow(WatchScope::all()).await;
    // Field selectors on metadata are evaluated too.
    let (_named, named) = follow(WatchScope::all().fields("metadata.name=a")).await;
    let (_other, other) = follow(WatchScope::all().fields("metadata.name=b")).await;
    let write = http::Request::post("/api/v1/namespaces/n/configmaps")
        .body(kube::client::Body::empty())
        .expect("a request");
    let sent = tokio::time::timeout(Duration::from_secs(1), caches.client().send(write));
    sent.await
        .expect("does not wait for the watch")
        .expect("a response");
    for lister in [lister, named] {
        assert_eq!(*lister.get(&key("a")).expect("it is there"), Some("u".to_owned()));
    }
    assert!(other.get(&key("a")).is_none());
}

/// A kind with more than a few objects is packed.
#[tokio::test(start_paused = true)]
async fn idle_objects_are_packed_and_read_unchanged() {
    let server = Server::with(&[CONFIG_MAPS]);
    let text = |number: usize| format!("{number} {}", "the same long text in every object ".repeat(40));
    for number in 0..400 {
        server.put(CONFIG_MAPS, config_map(&number.to_string(), &text(number)));
    }
    let cache = Cache::<ConfigMap>::start(server.client(), &WatchScope::all());
    let lister = cache.synced(SOON).await.expect("synced");
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

#[tokio::test(start_paused = true)]
async fn namespaces_can_be_added_and_removed_at_run_time() {
    let server = Server::with(&[IN_A, IN_B]);
    put(&server, IN_A, "a", "one");
    put(&server, IN_B, "b", "two");
    let cache = Cache::<ConfigMap>::start(server.client(), &WatchScope::all().namespaces(["a"]));
    let lister = cache.synced(SOON).await.expect("synced");
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
    cache.synced(SOON).await.expect("b is synced too");
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
        "the oldest of all: the watch of b does not see changes in a"
    );
    cache.set_namespaces(["b"]);
    for name in ["one", "three"] {
        let gone = changes.next().await.expect("a change");
        assert!(matches!(&gone, Change::Deleted { .. }) && gone.key().name() == name);
    }
    run_until_idle().await;
    assert_eq!((lister.len(), server.watches()), (1, 1));
    cache.set_namespaces([""; 0]);
    run_until_idle().await;
    assert_eq!((lister.len(), server.watches()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn changed_namespaces_do_not_affect_later_requests() {
    let server = Server::with(&[IN_A, IN_B]);
    put(&server, IN_A, "a", "one");
    put(&server, IN_B, "b", "two");
    let caches = CacheSet::new(server.client());
    let both = WatchScope::all().namespaces(["a", "b"]);
    let first = caches.get::<ConfigMap>(&both);
    first.synced(SOON).await.expect("synced");
    first.set_namespaces(["a"]);
    let second = caches.get::<ConfigMap>(&both);
    let second = second.synced(SOON).await.expect("synced");
    assert_eq!(second.len(), 2);
    let third = caches.get::<ConfigMap>(&WatchScope::all().namespaces(["a"]));
    third.synced(SOON).await.expect("the same as the first");
    run_until_idle().await;
    assert_eq!(server.watches(), 3, "one of the first, two of the second");
    let reports: Vec<_> = caches
        .reports()
        .iter()
        .map(|report| report.scope.to_string())
        .collect();
    assert_eq!(reports, ["namespaces a+b", "namespaces a"]);
}

#[tokio::test(start_paused = true)]
async fn sync_error_names_missing_namespaces() {
    let server = Server::with(&[IN_A]);
    let selection = WatchScope::all().namespaces(["a", "b", "c"]);
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

#[tokio::test(start_paused = true)]
async fn cluster_scoped_kind_ignores_namespaces() {
    let server = Server::with(&["/api/v1/nodes"]);
    server.put("/api/v1/nodes", json!({ "metadata": { "name": "n1" } }));
    let cache = Cache::<Node>::start(server.client(), &WatchScope::all().namespaces(["a", "b"]));
    let lister = cache.synced(SOON).await.expect("synced");
    assert!(lister.get(&ObjectKey::cluster_scoped("n1")).is_some());
    assert_eq!(server.watches(), 1);
}

/// Settings of a kind apply to all its users.
#[tokio::test(start_paused = true)]
async fn transform_applies_to_every_view() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "secret"));
    let caches = CacheSet::new(server.client());
    caches.configure(Settings::<ConfigMap>::compact().transform(|object| {
        object["data"]["text"] = json!("hidden");
    }));
    let typed = caches
        .get::<ConfigMap>(&WatchScope::all())
        .synced(SOON)
        .await
        .expect("synced");
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
        .expect("synced");
    assert_eq!(dynamic.get(&key("a")).expect("it").data["data"]["text"], "hidden");
}

/// The watch reports every own write again.
#[tokio::test(start_paused = true)]
async fn known_state_is_not_ingested_again() {
    let server = Server::with(&[CONFIG_MAPS]);
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let caches = CacheSet::new(server.client());
    caches.configure(Settings::<ConfigMap>::compact().transform(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let cache = caches.get::<ConfigMap>(&WatchScope::all());
    let lister = cache.synced(SOON).await.expect("synced");
    server.put(CONFIG_MAPS, config_map("a", "1"));
    run_until_idle().await;
    let known = lister.get(&key("a")).expect("it");
    let again = json!({ "type": "MODIFIED", "object": &*known }).to_string();
    server.send(CONFIG_MAPS, &again);
    run_until_idle().await;
    assert_eq!(
        (taken.load(Ordering::Relaxed), lister.cache().stats().events),
        (1, 2)
    );
    server.put(CONFIG_MAPS, config_map("a", "2"));
    run_until_idle().await;
    assert_eq!(taken.load(Ordering::Relaxed), 2, "another state");
}

#[tokio::test(start_paused = true)]
async fn reports_show_scope_users_and_stats() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let caches = CacheSet::new(server.client());
    let cache = caches.get::<ConfigMap>(&WatchScope::all().labels("app=web"));
    let lister = cache.synced(SOON).await.expect("synced");
    let _changes = lister.subscribe();
    cache.index(windlass_cache::Indexer::label("app"));
    server.put(CONFIG_MAPS, config_map("b", "1"));
    run_until_idle().await;
    let reports = caches.reports();
    let [report] = &reports[..] else {
        panic!("one watch")
    };
    assert_eq!(report.users, 3, "the cache, the lister and the subscription");
    assert_eq!(
        (
            report.kind.to_string().as_str(),
            report.scope.to_string().as_str()
        ),
        ("ConfigMap (v1)", "all namespaces, labels app=web")
    );
    assert_eq!(report.indexes, ["label app"]);
    for (name, expected) in [
        ("objects", 2),
        ("events", 2),
        ("lists", 1),
        ("failures", 0),
        ("subscribers", 1),
        ("pending_changes", 2),
    ] {
        let statistic = STATISTICS.iter().find(|statistic| statistic.name == name);
        let value = statistic.and_then(|statistic| (statistic.value)(&report.stats));
        assert_eq!(value, Some(StatisticValue::Count(expected)), "{name}");
    }
    server.fail_next(RequestType::Watch, 410);
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

#[tokio::test(start_paused = true)]
async fn wait_for_resource_version_returns_when_reached() {
    let server = Server::with(&[CONFIG_MAPS]);
    let cache = Cache::<ConfigMap>::start(server.client(), &WatchScope::all());
    let lister = cache.synced(SOON).await.expect("synced");
    run_until_idle().await;
    assert!(!lister.wait_for_resource_version(1, SOON).await);
    let waiting = tokio::spawn({
        let lister = lister.clone();
        async move { lister.wait_for_resource_version(1, SOON).await }
    });
    run_until_idle().await;
    server.put(CONFIG_MAPS, config_map("a", "1"));
    assert!(waiting.await.expect("no panic"));
}
