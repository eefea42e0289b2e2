//! A cache follows a server through everything that happens to the two, on a clock that the test holds.

mod model;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, core::Expression};
use model::{CONFIG_MAPS, On, PANIC, Server, config_map, key};
use windlass_cache::{Cache, Caches, Change, Lister, Query, Selection, Settings, SyncError};

const SOON: Duration = Duration::from_secs(5);

/// Long enough for every backoff; the clock is paused, so nobody waits for it.
const EVENTUALLY: Duration = Duration::from_mins(5);

fn server() -> Server {
    Server::with(&[CONFIG_MAPS])
}

fn start(server: &Server) -> Cache<ConfigMap> {
    Cache::start_with(
        server.client(),
        &(),
        &Selection::all(),
        Settings::<ConfigMap>::compact().listing(),
    )
}

async fn synced(server: &Server) -> Lister<ConfigMap> {
    start(server)
        .synced(EVENTUALLY)
        .await
        .expect("the server is well")
}

/// Lets everything happen that is going to happen without a timer.
async fn settle() {
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
async fn it_lists_then_follows_the_watch() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let lister = synced(&server).await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    server.put(CONFIG_MAPS, config_map("b", "1"));
    server.put(CONFIG_MAPS, config_map("a", "2"));
    server.delete(CONFIG_MAPS, &key("b"));
    settle().await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    assert_eq!(&*lister.resource_version(), "4");
    let data = lister
        .get(&key("a"))
        .and_then(|a| a.data.clone())
        .expect("it has data");
    assert_eq!(data["text"], "2");
    assert_eq!(server.requests(), ["list rv=0 limit=500", "watch rv=1"]);
}

#[tokio::test(start_paused = true)]
async fn pages_become_one_state() {
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
    settle().await;
    assert_eq!(server.requests(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_list_reads_one_namespace_and_selects_by_label() {
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

/// The kube-rs defect: deletions that happened while away must be seen.
#[tokio::test(start_paused = true)]
async fn what_happened_while_away_is_made_up_for() {
    let server = server();
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let lister = synced(&server).await;
    let mut changes = lister.subscribe();
    for _ in 0..2 {
        changes.next().await;
    }
    settle().await;
    server.end_watches();
    server.delete(CONFIG_MAPS, &key("b"));
    server.put(CONFIG_MAPS, config_map("c", "1"));
    server.compact();
    assert!(matches!(changes.next().await, Some(Change::Deleted { last, .. }) if last.key() == &key("b")));
    assert!(
        matches!(changes.next().await, Some(Change::Applied { old: None, new, initial: false }) if new.key() == &key("c"))
    );
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    // The watch ended at once with nothing seen, or the version has expired: either way a list at the known version
    // comes first, and the newest state only because that has expired too.
    let requests = server.requests();
    let lists: Vec<_> = requests
        .iter()
        .filter(|request| request.starts_with("list"))
        .collect();
    assert_eq!(lists, ["list rv=0 limit=500", "list rv=2", "list limit=500"]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_resumes_without_a_list() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "0"));
    let lister = synced(&server).await;
    tokio::time::sleep(SOON).await;
    server.break_watches();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    settle().await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    assert_eq!(
        server.requests(),
        ["list rv=0 limit=500", "watch rv=1", "watch rv=1"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_moves_the_version_from_which_a_watch_resumes() {
    let server = server();
    let lister = synced(&server).await;
    settle().await;
    server.send(
        CONFIG_MAPS,
        r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"77"}}}"#,
    );
    settle().await;
    assert_eq!(&*lister.resource_version(), "77");
    server.end_watches();
    settle().await;
    assert_eq!(server.requests().last().map(String::as_str), Some("watch rv=77"));
}

/// A path to the server that is dead and does not say so.
#[tokio::test(start_paused = true)]
async fn a_watch_that_outlives_its_time_is_ended_from_here() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let _lister = synced(&server).await;
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(server.requests().len(), 2);
    tokio::time::sleep(Duration::from_secs(340)).await;
    assert_eq!(server.requests().len(), 3, "{:?}", server.requests());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_never_answered_is_given_up() {
    let server = server();
    server.hang(true);
    let cache = start(&server);
    let error = cache
        .synced(Duration::from_secs(125))
        .await
        .err()
        .expect("there is no answer");
    assert!(
        error.to_string().ends_with("cannot list: no answer within 120 s"),
        "{error}"
    );
    server.hang(false);
    let lister = cache.synced(EVENTUALLY).await.expect("the next attempt");
    server.hang(true);
    tokio::time::sleep(SOON).await;
    server.end_watches();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    settle().await;
    server.hang(false);
    tokio::time::sleep(EVENTUALLY).await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
}

#[tokio::test(start_paused = true)]
async fn errors_in_the_stream_end_it_and_are_made_up_for() {
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
        settle().await;
        server.send(CONFIG_MAPS, frame);
        tokio::time::sleep(SOON).await;
        assert_eq!(server.requests()[2], next, "{frame}");
        server.put(CONFIG_MAPS, config_map("a", "2"));
        settle().await;
        assert_eq!(content(&lister), server.content(CONFIG_MAPS), "{frame}");
    }
}

/// What is not a `ConfigMap`, though the server says so.
fn broken(name: &str) -> serde_json::Value {
    let mut object = config_map(name, "");
    object["data"] = 5.into();
    object
}

/// 48: it is skipped and reported, and everything else goes on.
#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_hurts_only_itself() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    server.put(CONFIG_MAPS, broken("b"));
    let lister = synced(&server).await;
    assert_eq!(lister.list(&Query::all()).len(), 1);
    settle().await;
    server.put(CONFIG_MAPS, broken("a"));
    server.send(CONFIG_MAPS, r#"{"type":"NOVELTY","object":{}}"#);
    server.send(
        CONFIG_MAPS,
        r#"{"type":"ADDED","object":{"kind":"Table","metadata":{}}}"#,
    );
    server.put(CONFIG_MAPS, config_map("c", "1"));
    settle().await;
    assert!(lister.get(&key("a")).is_none());
    let error = lister
        .try_get(&key("a"))
        .expect_err("it is there and does not decode");
    assert!(
        error
            .to_string()
            .starts_with("ConfigMap (v1) n/a does not decode: "),
        "{error}"
    );
    let missing = lister.try_list(&Query::all()).expect_err("not all decode");
    assert_eq!(missing.key, key("a"), "the first is named");
    assert!(lister.get(&key("c")).is_some());
    let dynamic = lister.cache().view::<kube::core::DynamicObject>();
    let dynamic = dynamic.synced(SOON).await.expect("it is the same cache");
    let seen = dynamic.get(&key("a")).expect("as what it is, it decodes");
    assert_eq!(seen.data["data"], 5);
    server.put(CONFIG_MAPS, config_map("b", "mended"));
    server.delete(CONFIG_MAPS, &key("a"));
    settle().await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    assert_eq!(server.requests().len(), 2, "no relist: {:?}", server.requests());
    assert_eq!(
        lister.cache().stats().undecodable,
        3,
        "each state that was met is counted once"
    );
}

/// With the policy that decodes on arrival, what does not decode leaves what was known.
#[tokio::test(start_paused = true)]
async fn a_full_cache_keeps_the_last_state_that_decoded() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let cache = Cache::start_with(
        server.client(),
        &(),
        &Selection::all(),
        Settings::<ConfigMap>::full(),
    );
    let lister = cache.synced(SOON).await.expect("the server is well");
    server.put(CONFIG_MAPS, broken("a"));
    settle().await;
    let known = lister.get(&key("a")).expect("as it was");
    assert_eq!(known.resource_version().as_deref(), Some("1"));
    assert!(
        std::sync::Arc::ptr_eq(&known, &lister.get(&key("a")).expect("again")),
        "nothing is copied"
    );
    assert_eq!(lister.cache().stats().decodes, 0, "it was decoded on arrival");
}

/// 187.
#[tokio::test(start_paused = true)]
async fn a_kind_may_be_installed_late_and_go_again() {
    let server = Server::default();
    let cache = start(&server);
    let error = cache.synced(SOON).await.err().expect("there is nothing to list");
    let text = error.to_string();
    assert!(
        text.contains("ConfigMap (v1)") && text.contains("not installed"),
        "{text}"
    );
    server.install(CONFIG_MAPS);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let lister = cache.synced(EVENTUALLY).await.expect("it is installed");
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
async fn the_wait_for_sync_names_what_is_missing_and_why() {
    let server = server();
    for _ in 0..99 {
        server.fail(On::List, 403);
    }
    let error = start(&server).synced(SOON).await.err().expect("it is forbidden");
    assert!(matches!(error, SyncError::Deadline { .. }));
    assert_eq!(
        error.to_string(),
        "ConfigMap (v1) was not listed within 5s: cannot list: the server says 403"
    );
}

#[tokio::test(start_paused = true)]
async fn trouble_is_over_when_the_watch_stands_again() {
    let server = server();
    let cache = start(&server);
    let _lister = cache.synced(SOON).await.expect("the server is well");
    assert_eq!(cache.trouble(), None);
    server.fail(On::Watch, 429);
    tokio::time::sleep(SOON).await;
    server.break_watches();
    settle().await;
    assert_eq!(
        cache.trouble().as_deref(),
        Some("cannot watch: the server says 429")
    );
    tokio::time::sleep(SOON).await;
    assert_eq!(cache.trouble(), None);
}

/// A list that fails in the middle leaves the store as it was, and half a list is never seen.
#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_is_not_seen() {
    let server = server();
    server.page_size(1);
    for name in ["a", "b", "c"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    server.fail(On::NextPage, 500);
    let cache = start(&server);
    assert!(cache.synced(Duration::from_millis(100)).await.is_err());
    let mut early = cache.subscribe();
    let lister = cache.synced(EVENTUALLY).await.expect("the second attempt");
    assert_eq!(lister.len(), 3);
    for name in ["a", "b", "c"] {
        assert!(matches!(early.next().await, Some(change) if change.key() == &key(name)));
    }
}

/// What a list that broke off had brought is not part of the next one.
#[tokio::test(start_paused = true)]
async fn an_object_that_went_between_two_attempts_to_list_is_not_there() {
    let server = server();
    server.page_size(1);
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    server.fail(On::NextPage, 500);
    let cache = start(&server);
    settle().await;
    server.delete(CONFIG_MAPS, &key("a"));
    let lister = cache.synced(EVENTUALLY).await.expect("the second attempt");
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
}

/// 188: one watch for all users, and none after the last.
#[tokio::test(start_paused = true)]
async fn users_of_one_kind_share_a_watch_that_ends_with_the_last() {
    let server = server();
    let caches = Caches::new(server.client());
    let (first, second) = (
        caches.get::<ConfigMap>(&Selection::all()),
        caches.get::<ConfigMap>(&Selection::all()),
    );
    let lister = first.synced(SOON).await.expect("the server is well");
    let subscription = second.subscribe();
    settle().await;
    assert_eq!(server.watches(), 1);
    drop((first, second, lister));
    settle().await;
    assert_eq!(server.watches(), 1, "a subscription is a user");
    drop(subscription);
    settle().await;
    assert_eq!(server.watches(), 0);
    let again = caches.get::<ConfigMap>(&Selection::all());
    again.synced(SOON).await.expect("it starts again");
}

#[tokio::test(start_paused = true)]
async fn another_selection_is_another_watch() {
    let server = server();
    let caches = Caches::new(server.client());
    let some = Selection::all().labels("app in (a,b)");
    let _users = (
        caches.get::<ConfigMap>(&Selection::all()),
        caches.get::<ConfigMap>(&some),
    );
    settle().await;
    assert_eq!(server.watches(), 2);
    assert!(
        server
            .requests()
            .iter()
            .any(|request| request.ends_with("labelSelector=app in (a,b)"))
    );
}

/// 108.
#[tokio::test(start_paused = true)]
async fn closing_ends_watches_and_whoever_waits_on_them() {
    let server = server();
    let caches = Caches::new(server.client());
    let cache = caches.get::<ConfigMap>(&Selection::all());
    let lister = cache.synced(SOON).await.expect("the server is well");
    let mut changes = lister.subscribe();
    settle().await;
    caches.close().await;
    assert_eq!(server.watches(), 0);
    assert!(changes.next().await.is_none());
    let late = caches.get::<ConfigMap>(&Selection::all().namespace("n"));
    assert!(matches!(late.synced(SOON).await, Err(SyncError::Ended { .. })));
    // Closing one that hangs in a request is as quick.
    let server = Server::with(&[CONFIG_MAPS]);
    server.hang(true);
    let cache = start(&server);
    settle().await;
    cache.close().await;
}

#[tokio::test(start_paused = true)]
async fn driver_that_panics_starts_again_and_says_so() {
    let server = server();
    server.fail(On::List, PANIC);
    let cache = start(&server);
    let waiting = cache.synced(Duration::from_millis(100)).await;
    let error = waiting.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        error.contains("its driver panicked and starts again: a layer of the client panicked"),
        "{error}"
    );
    let lister = cache.synced(EVENTUALLY).await.expect("the next driver is well");
    let mut changes = lister.subscribe();
    settle().await;

    server.fail(On::Watch, PANIC);
    server.end_watches();
    settle().await;
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let change = tokio::time::timeout(EVENTUALLY, changes.next()).await;
    let change = change.expect("the next driver tells").expect("the cache goes on");
    assert_eq!(change.key(), &key("a"));
    assert_eq!(lister.len(), 1);
}
