//! The cache follows a server through failures of both, on a paused clock.

use crate::model;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, core::Expression};
use model::{CONFIG_MAPS, PANIC, RequestType, Server, config_map, key};
use windlass_cache::{Cache, CacheSet, Change, Lister, Query, Settings, SyncError, WatchScope};

const SOON: Duration = Duration::from_secs(5);

/// Long enough for every backoff; the clock is paused, so tests do not wait for it.
const EVENTUALLY: Duration = Duration::from_mins(5);

fn server() -> Server {
    Server::with(&[CONFIG_MAPS])
}

fn start(server: &Server) -> Cache<ConfigMap> {
    Cache::start_with(
        server.client(),
        &(),
        &WatchScope::all(),
        Settings::<ConfigMap>::compact().without_watch_list(),
    )
}

async fn synced(server: &Server) -> Lister<ConfigMap> {
    start(server).synced(EVENTUALLY).await.expect("synced")
}

/// Runs all tasks until they wait for a timer.
async fn run_until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn content(lister: &Lister<ConfigMap>) -> BTreeMap<String, String> {
    let objects = lister.list(&Query::all());
    objects
        .iter()
        .map(|object| {
            (
                format!("n/{}", object.name_any()),
                object.resource_version().unwrap_or_default(),
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn cache_lists_then_watches() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let lister = synced(&server).await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    server.put(CONFIG_MAPS, config_map("b", "1"));
    server.put(CONFIG_MAPS, config_map("a", "2"));
    server.delete(CONFIG_MAPS, &key("b"));
    run_until_idle().await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    assert_eq!(&*lister.resource_version(), "4");
    let data = lister.get(&key("a")).and_then(|a| a.data.clone()).expect("data");
    assert_eq!(data["text"], "2");
    assert_eq!(server.requests(), ["list rv=0 limit=500", "watch rv=1"]);
}

#[tokio::test(start_paused = true)]
async fn paged_list_is_stored_at_once() {
    let server = server();
    server.page_size(2);
    for name in ["a", "b", "c", "d", "e"] {
        server.put(CONFIG_MAPS, config_map(name, ""));
    }
    let lister = synced(&server).await;
    assert_eq!(lister.len(), 5);
    let expected = [
        "list rv=0 limit=500",
        "list limit=500 continue=5:2",
        "list limit=500 continue=5:4",
        "watch rv=5",
    ];
    run_until_idle().await;
    assert_eq!(server.requests(), expected);
}

#[tokio::test(start_paused = true)]
async fn list_filters_by_namespace_and_label() {
    let server = server();
    for (namespace, name, app) in [
        ("m", "x", "web"),
        ("n", "a", "web"),
        ("n", "b", "db"),
        ("n-2", "c", "web"),
    ] {
        let labels = serde_json::json!({ "namespace": namespace, "name": name, "labels": { "app": app } });
        server.put(CONFIG_MAPS, serde_json::json!({ "metadata": labels }));
    }
    let lister = synced(&server).await;
    let names = |query: Query| -> Vec<String> {
        lister
            .list(&query)
            .iter()
            .map(|object| object.name_any())
            .collect()
    };
    let web = || Query::all().labels(Expression::Equal("app".into(), "web".into()));
    assert_eq!(names(Query::all()), ["x", "a", "b", "c"]);
    assert_eq!(names(Query::all().namespace("n")), ["a", "b"]);
    assert_eq!(names(web().namespace("n")), ["a"]);
    assert_eq!(names(web().namespace("none")), [""; 0]);
}

/// A kube-rs defect: deletions during an outage were lost.
#[tokio::test(start_paused = true)]
async fn relist_delivers_changes_missed_during_an_outage() {
    let server = server();
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let lister = synced(&server).await;
    let mut changes = lister.subscribe();
    for _ in 0..2 {
        changes.next().await;
    }
    run_until_idle().await;
    server.end_watches();
    server.delete(CONFIG_MAPS, &key("b"));
    server.put(CONFIG_MAPS, config_map("c", "1"));
    server.compact();
    assert!(matches!(changes.next().await, Some(Change::Deleted { last, .. }) if last.key() == &key("b")));
    assert!(
        matches!(changes.next().await, Some(Change::Applied { old: None, new, initial: false }) if new.key() == &key("c"))
    );
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    // The watch ended immediately without an event, or the version has expired: either way a list at the known version
    // comes first, and the newest state only because that version has expired too.
    let requests = server.requests();
    let lists: Vec<_> = requests
        .iter()
        .filter(|request| request.starts_with("list"))
        .collect();
    assert_eq!(lists, ["list rv=0 limit=500", "list rv=2", "list limit=500"]);
}

#[tokio::test(start_paused = true)]
async fn broken_connection_resumes_without_a_relist() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "0"));
    let lister = synced(&server).await;
    tokio::time::sleep(SOON).await;
    server.break_watches();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    run_until_idle().await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    assert_eq!(
        server.requests(),
        ["list rv=0 limit=500", "watch rv=1", "watch rv=1"]
    );
}

#[tokio::test(start_paused = true)]
async fn bookmark_advances_the_resume_version() {
    let server = server();
    let lister = synced(&server).await;
    run_until_idle().await;
    server.send(
        CONFIG_MAPS,
        r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"77"}}}"#,
    );
    run_until_idle().await;
    assert_eq!(&*lister.resource_version(), "77");
    server.end_watches();
    run_until_idle().await;
    assert_eq!(server.requests().last().map(String::as_str), Some("watch rv=77"));
}

/// The connection is dead without an error.
#[tokio::test(start_paused = true)]
async fn watch_beyond_its_timeout_is_ended_by_the_client() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let _lister = synced(&server).await;
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(server.requests().len(), 2);
    tokio::time::sleep(Duration::from_secs(340)).await;
    assert_eq!(server.requests().len(), 3, "{:?}", server.requests());
}

#[tokio::test(start_paused = true)]
async fn unanswered_request_times_out() {
    let server = server();
    server.set_unresponsive(true);
    let cache = start(&server);
    let error = cache
        .synced(Duration::from_secs(125))
        .await
        .err()
        .expect("no response");
    assert!(
        error
            .to_string()
            .ends_with("cannot list: no response within 120 s"),
        "{error}"
    );
    server.set_unresponsive(false);
    let lister = cache.synced(EVENTUALLY).await.expect("the next attempt");
    server.set_unresponsive(true);
    tokio::time::sleep(SOON).await;
    server.end_watches();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    run_until_idle().await;
    server.set_unresponsive(false);
    tokio::time::sleep(EVENTUALLY).await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
}

#[tokio::test(start_paused = true)]
async fn stream_errors_end_the_watch_and_are_recovered() {
    for (frame, next) in [
        (
            r#"{"type":"ERROR","object":{"code":410,"reason":"Expired"}}"#,
            "list rv=1",
        ),
        (
            r#"{"type":"ERROR","object":{"code":429,"reason":"TooManyRequests"}}"#,
            "watch rv=1",
        ),
        (
            r#"{"type":"ERROR","object":{"code":500,"reason":"InternalError"}}"#,
            "list rv=1",
        ),
        (r#"{"type":"ADDED""#, "list rv=1"),
    ] {
        let server = server();
        server.put(CONFIG_MAPS, config_map("a", "1"));
        let lister = synced(&server).await;
        run_until_idle().await;
        server.send(CONFIG_MAPS, frame);
        tokio::time::sleep(SOON).await;
        assert_eq!(server.requests()[2], next, "{frame}");
        server.put(CONFIG_MAPS, config_map("a", "2"));
        run_until_idle().await;
        assert_eq!(content(&lister), server.content(CONFIG_MAPS), "{frame}");
    }
}

/// Returns a `ConfigMap` that does not decode.
fn undecodable(name: &str) -> serde_json::Value {
    let mut object = config_map(name, "");
    object["data"] = 5.into();
    object
}

/// It is skipped and logged.
#[tokio::test(start_paused = true)]
async fn undecodable_object_affects_no_other() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    server.put(CONFIG_MAPS, undecodable("b"));
    let lister = synced(&server).await;
    assert_eq!(lister.list(&Query::all()).len(), 1);
    run_until_idle().await;
    server.put(CONFIG_MAPS, undecodable("a"));
    server.send(CONFIG_MAPS, r#"{"type":"NOVELTY","object":{}}"#);
    server.send(
        CONFIG_MAPS,
        r#"{"type":"ADDED","object":{"kind":"Table","metadata":{}}}"#,
    );
    server.put(CONFIG_MAPS, config_map("c", "1"));
    run_until_idle().await;
    assert!(lister.get(&key("a")).is_none());
    let error = lister.try_get(&key("a")).expect_err("it does not decode");
    assert!(
        error
            .to_string()
            .starts_with("ConfigMap (v1) n/a does not decode: "),
        "{error}"
    );
    let missing = lister.try_list(&Query::all()).expect_err("not all decode");
    assert_eq!(missing.key, key("a"), "the first one is reported");
    assert!(lister.get(&key("c")).is_some());
    let dynamic = lister.cache().view::<kube::core::DynamicObject>();
    let dynamic = dynamic.synced(SOON).await.expect("synced");
    let seen = dynamic.get(&key("a")).expect("decodes dynamically");
    assert_eq!(seen.data["data"], 5);
    server.put(CONFIG_MAPS, config_map("b", "valid"));
    server.delete(CONFIG_MAPS, &key("a"));
    run_until_idle().await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    assert_eq!(server.requests().len(), 2, "no relist: {:?}", server.requests());
    assert_eq!(
        lister.cache().stats().undecodable,
        3,
        "each undecodable state is counted once"
    );
}

/// The policy that decodes on arrival skips undecodable states.
#[tokio::test(start_paused = true)]
async fn full_cache_keeps_the_last_decodable_state() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let cache = Cache::start_with(
        server.client(),
        &(),
        &WatchScope::all(),
        Settings::<ConfigMap>::full(),
    );
    let lister = cache.synced(SOON).await.expect("synced");
    server.put(CONFIG_MAPS, undecodable("a"));
    run_until_idle().await;
    let known = lister.get(&key("a")).expect("previous state");
    assert_eq!(known.resource_version().as_deref(), Some("1"));
    assert!(
        std::sync::Arc::ptr_eq(&known, &lister.get(&key("a")).expect("again")),
        "nothing is copied"
    );
    assert_eq!(lister.cache().stats().decodes, 0, "it was decoded on arrival");
}

#[tokio::test(start_paused = true)]
async fn kind_may_be_installed_late_and_uninstalled() {
    let server = Server::default();
    let cache = start(&server);
    let error = cache.synced(SOON).await.err().expect("not installed");
    let text = error.to_string();
    assert!(
        text.contains("ConfigMap (v1)") && text.contains("not installed"),
        "{text}"
    );
    server.install(CONFIG_MAPS);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let lister = cache.synced(EVENTUALLY).await.expect("installed");
    assert_eq!(lister.len(), 1);
    server.uninstall(CONFIG_MAPS);
    tokio::time::sleep(EVENTUALLY).await;
    assert!(lister.is_empty());
    server.install(CONFIG_MAPS);
    server.put(CONFIG_MAPS, config_map("b", "1"));
    tokio::time::sleep(EVENTUALLY).await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
}

#[tokio::test(start_paused = true)]
async fn objects_may_be_kept_until_the_kind_is_served_again() {
    let server = server();
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let settings = Settings::<ConfigMap>::compact().keep_unserved();
    let cache = Cache::start_with(server.client(), &(), &WatchScope::all(), settings);
    let lister = cache.synced(EVENTUALLY).await.expect("synced");
    server.uninstall(CONFIG_MAPS);
    tokio::time::sleep(EVENTUALLY).await;
    assert_eq!(lister.len(), 2, "they count as existing");
    assert!(
        cache
            .last_error()
            .is_some_and(|error| error.contains("not installed"))
    );
    server.install(CONFIG_MAPS);
    server.put(CONFIG_MAPS, config_map("b", "1"));
    tokio::time::sleep(EVENTUALLY).await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
}

#[tokio::test(start_paused = true)]
async fn sync_error_names_what_is_missing_and_why() {
    let server = server();
    for _ in 0..99 {
        server.fail_next(RequestType::List, 403);
    }
    let error = start(&server).synced(SOON).await.err().expect("forbidden");
    assert!(matches!(error, SyncError::Deadline { .. }));
    assert_eq!(
        error.to_string(),
        "ConfigMap (v1) was not listed within 5s: cannot list: status 403"
    );
}

#[tokio::test(start_paused = true)]
async fn last_error_is_cleared_when_the_watch_is_established() {
    let server = server();
    let cache = start(&server);
    let _lister = cache.synced(SOON).await.expect("synced");
    assert_eq!(cache.last_error(), None);
    server.fail_next(RequestType::Watch, 429);
    tokio::time::sleep(SOON).await;
    server.break_watches();
    run_until_idle().await;
    assert_eq!(cache.last_error().as_deref(), Some("cannot watch: status 429"));
    tokio::time::sleep(SOON).await;
    assert_eq!(cache.last_error(), None);
}

/// A list that fails midway leaves the store unchanged.
#[tokio::test(start_paused = true)]
async fn incomplete_list_is_not_visible() {
    let server = server();
    server.page_size(1);
    for name in ["a", "b", "c"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    server.fail_next(RequestType::NextPage, 500);
    let cache = start(&server);
    assert!(cache.synced(Duration::from_millis(100)).await.is_err());
    let mut early = cache.subscribe();
    let lister = cache.synced(EVENTUALLY).await.expect("the second attempt");
    assert_eq!(lister.len(), 3);
    for name in ["a", "b", "c"] {
        assert!(matches!(early.next().await, Some(change) if change.key() == &key(name)));
    }
}

/// The staged objects of a failed list are not part of the next one.
#[tokio::test(start_paused = true)]
async fn object_deleted_between_list_attempts_is_absent() {
    let server = server();
    server.page_size(1);
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    server.fail_next(RequestType::NextPage, 500);
    let cache = start(&server);
    run_until_idle().await;
    server.delete(CONFIG_MAPS, &key("a"));
    let lister = cache.synced(EVENTUALLY).await.expect("the second attempt");
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
}

/// One watch for all users, and none after the last.
#[tokio::test(start_paused = true)]
async fn users_share_a_watch_that_ends_with_the_last_one() {
    let server = server();
    let caches = CacheSet::new(server.client());
    let (first, second) = (
        caches.get::<ConfigMap>(&WatchScope::all()),
        caches.get::<ConfigMap>(&WatchScope::all()),
    );
    let lister = first.synced(SOON).await.expect("synced");
    let subscription = second.subscribe();
    run_until_idle().await;
    assert_eq!(server.watches(), 1);
    drop((first, second, lister));
    run_until_idle().await;
    assert_eq!(server.watches(), 1, "a subscription is a user");
    drop(subscription);
    run_until_idle().await;
    assert_eq!(server.watches(), 0);
    let again = caches.get::<ConfigMap>(&WatchScope::all());
    again.synced(SOON).await.expect("restarted");
}

#[tokio::test(start_paused = true)]
async fn each_scope_has_its_own_watch() {
    let server = server();
    let caches = CacheSet::new(server.client());
    let some = WatchScope::all().labels("app in (a,b)");
    let _users = (
        caches.get::<ConfigMap>(&WatchScope::all()),
        caches.get::<ConfigMap>(&some),
    );
    run_until_idle().await;
    assert_eq!(server.watches(), 2);
    assert!(
        server
            .requests()
            .iter()
            .any(|request| request.ends_with("labelSelector=app in (a,b)"))
    );
}

#[tokio::test(start_paused = true)]
async fn close_ends_watches_and_subscriptions() {
    let server = server();
    let caches = CacheSet::new(server.client());
    let cache = caches.get::<ConfigMap>(&WatchScope::all());
    let lister = cache.synced(SOON).await.expect("synced");
    let mut changes = lister.subscribe();
    run_until_idle().await;
    caches.close().await;
    assert_eq!(server.watches(), 0);
    assert!(changes.next().await.is_none());
    let late = caches.get::<ConfigMap>(&WatchScope::all().namespace("n"));
    assert!(matches!(late.synced(SOON).await, Err(SyncError::Closed { .. })));
    // Closing also ends a hanging request.
    let server = Server::with(&[CONFIG_MAPS]);
    server.set_unresponsive(true);
    let cache = start(&server);
    run_until_idle().await;
    cache.close().await;
}

#[tokio::test(start_paused = true)]
async fn panicking_driver_is_restarted_and_reported() {
    let server = server();
    server.fail_next(RequestType::List, PANIC);
    let cache = start(&server);
    let waiting = cache.synced(Duration::from_millis(100)).await;
    let error = waiting.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        error.contains("the watch panicked and is restarted: a layer of the client panicked"),
        "{error}"
    );
    let lister = cache.synced(EVENTUALLY).await.expect("the next driver works");
    let mut changes = lister.subscribe();
    run_until_idle().await;

    server.fail_next(RequestType::Watch, PANIC);
    server.end_watches();
    run_until_idle().await;
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let change = tokio::time::timeout(EVENTUALLY, changes.next()).await;
    let change = change
        .expect("the next driver delivers")
        .expect("the cache is open");
    assert_eq!(change.key(), &key("a"));
    assert_eq!(lister.len(), 1);
}
