//! The initial state as a stream (WatchList), on servers with and without support for it.

use crate::model;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use model::{CONFIG_MAPS, RequestType, Server, config_map};
use windlass_cache::{Cache, Lister, Query, WatchScope};

const SOON: Duration = Duration::from_secs(5);

/// Long enough for every backoff; the clock is paused, so tests do not wait for it.
const EVENTUALLY: Duration = Duration::from_mins(5);

fn server() -> Server {
    Server::with(&[CONFIG_MAPS])
}

/// Runs all tasks until they wait for a timer.
async fn run_until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn content(lister: &Lister<ConfigMap>) -> BTreeMap<String, String> {
    let objects = lister.list_cached(&Query::all());
    objects
        .iter()
        .map(|object| {
            (
                object.key().to_string(),
                object.meta().resource_version().to_string(),
            )
        })
        .collect()
}

/// The same watch continues after the initial events.
#[tokio::test(start_paused = true)]
async fn initial_state_is_streamed_if_supported() {
    let server = server();
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let cache = Cache::<ConfigMap>::start(server.client(), &WatchScope::all());
    let lister = cache.synced(SOON).await.expect("synced");
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    server.put(CONFIG_MAPS, config_map("b", "2"));
    run_until_idle().await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    assert_eq!(server.requests(), ["stream"]);
    tokio::time::sleep(SOON).await;
    server.end_watches();
    run_until_idle().await;
    assert_eq!(server.requests(), ["stream", "watch rv=3"]);
}

#[tokio::test(start_paused = true)]
async fn server_without_watch_list_is_listed() {
    let refusing = server();
    refusing.fail_next(RequestType::Watch, 422);
    let lister = Cache::<ConfigMap>::start(refusing.client(), &WatchScope::all());
    lister.synced(SOON).await.expect("by a list");
    assert_eq!(lister.last_error(), None, "missing support is not an error");
    assert_eq!(refusing.requests()[..2], ["stream", "list rv=0 limit=500"]);
    // A server that does not know the parameter never marks the end.
    let unmarked = server();
    unmarked.put(CONFIG_MAPS, config_map("a", "1"));
    unmarked.omit_initial_events_end();
    let cache = Cache::<ConfigMap>::start(unmarked.client(), &WatchScope::all());
    assert!(cache.synced(SOON).await.is_err());
    let lister = cache.synced(EVENTUALLY).await.expect("by a list");
    assert_eq!(content(&lister), unmarked.content(CONFIG_MAPS));
}

#[tokio::test(start_paused = true)]
async fn busy_server_is_reported_while_the_cache_waits_for_the_stream() {
    let busy = server();
    busy.fail_next(RequestType::Watch, 429);
    let cache = Cache::<ConfigMap>::start(busy.client(), &WatchScope::all());
    run_until_idle().await;
    assert_eq!(cache.last_error().as_deref(), Some("cannot watch: status 429"));
    cache.synced(EVENTUALLY).await.expect("synced");
    assert_eq!(cache.last_error(), None);
}
