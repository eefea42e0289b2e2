//! The initial state as a stream, on servers that can and on servers that cannot.

mod model;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use model::{CONFIG_MAPS, On, Server, config_map};
use windlass_cache::{Cache, Lister, Query, Selection};

const SOON: Duration = Duration::from_secs(5);

/// Long enough for every backoff; the clock is paused, so nobody waits for it.
const EVENTUALLY: Duration = Duration::from_mins(5);

fn server() -> Server {
    Server::with(&[CONFIG_MAPS])
}

/// Lets everything happen that is going to happen without a timer.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn content(lister: &Lister<ConfigMap>) -> BTreeMap<String, String> {
    let objects = lister.list_stored(&Query::all());
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

/// 68 to 78: the initial state comes as a stream, and the same watch goes on.
#[tokio::test(start_paused = true)]
async fn the_initial_state_is_streamed_where_the_server_can() {
    let server = server();
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let cache = Cache::<ConfigMap>::start(server.client(), &Selection::all());
    let lister = cache.synced(SOON).await.expect("the server is well");
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    server.put(CONFIG_MAPS, config_map("b", "2"));
    settle().await;
    assert_eq!(content(&lister), server.content(CONFIG_MAPS));
    assert_eq!(server.requests(), ["stream"]);
    tokio::time::sleep(SOON).await;
    server.end_watches();
    settle().await;
    assert_eq!(server.requests(), ["stream", "watch rv=3"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_is_listed() {
    let refusing = server();
    refusing.fail(On::Watch, 422);
    let lister = Cache::<ConfigMap>::start(refusing.client(), &Selection::all());
    lister.synced(SOON).await.expect("by a list");
    assert_eq!(lister.trouble(), None, "that it cannot stream is no trouble");
    assert_eq!(refusing.requests()[..2], ["stream", "list rv=0 limit=500"]);
    // One that does not know the parameter never marks the end.
    let unmarked = server();
    unmarked.put(CONFIG_MAPS, config_map("a", "1"));
    unmarked.forget_the_mark();
    let cache = Cache::<ConfigMap>::start(unmarked.client(), &Selection::all());
    assert!(cache.synced(SOON).await.is_err());
    let lister = cache.synced(EVENTUALLY).await.expect("by a list");
    assert_eq!(content(&lister), unmarked.content(CONFIG_MAPS));
}
