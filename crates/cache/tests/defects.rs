//! Ten defects of kube-rs 5.0.0 around list and watch that this cache does not have. Each was reproduced in kube-rs.

use crate::model;

use std::{
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use model::{CONFIG_MAPS, RequestType, Server, config_map, key};
use windlass_cache::{Cache, CacheSet, Change, Lister, Settings, WatchScope};

const SOON: Duration = Duration::from_secs(5);
const EVENTUALLY: Duration = Duration::from_mins(5);

async fn run_until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn synced_lister(server: &Server) -> Lister<ConfigMap> {
    let settings = Settings::<ConfigMap>::compact().without_watch_list();
    let cache = Cache::start_with(server.client(), &(), &WatchScope::all(), settings);
    cache.synced(EVENTUALLY).await.expect("synced")
}

/// kube-rs: 18 watches and no list.
#[tokio::test(start_paused = true)]
async fn expired_version_at_watch_start_causes_a_relist() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let lister = synced_lister(&server).await;
    tokio::time::sleep(SOON).await;
    server.put(CONFIG_MAPS, config_map("b", "1"));
    server.compact();
    server.end_watches();
    server.fail_next(RequestType::Watch, 410);
    tokio::time::sleep(EVENTUALLY).await;
    let requests = server.requests();
    assert_eq!(requests[..3], ["list rv=0 limit=500", "watch rv=1", "watch rv=2"]);
    assert!(requests[3].starts_with("list"), "{requests:?}");
    assert!(requests.len() <= 6, "it does not loop: {requests:?}");
    assert_eq!(lister.len(), 2);
}

/// kube-rs: requests the same first page forever.
#[tokio::test(start_paused = true)]
async fn expired_continue_token_causes_one_unpaged_list() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.page_size(1);
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    server.fail_next(RequestType::NextPage, 410);
    assert_eq!(synced_lister(&server).await.len(), 2);
    let requests = server.requests();
    assert_eq!(
        requests[..3],
        ["list rv=0 limit=500", "list limit=500 continue=2:1", "list rv=0"]
    );
}

/// kube-rs: a missed deletion is never delivered.
#[tokio::test(start_paused = true)]
async fn deletion_during_an_outage_is_delivered() {
    let server = Server::with(&[CONFIG_MAPS]);
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let lister = synced_lister(&server).await;
    let mut changes = lister.subscribe();
    for _ in 0..2 {
        changes.next().await;
    }
    run_until_idle().await;
    server.end_watches();
    server.delete(CONFIG_MAPS, &key("b"));
    server.compact();
    let gone = changes.next().await.expect("delivered");
    assert!(matches!(&gone, Change::Deleted { .. }) && gone.key() == &key("b"));
}

/// kube-rs: the subscriber sleeps until another event wakes it.
#[tokio::test(start_paused = true)]
async fn object_deleted_before_delivery_does_not_stall_the_subscriber() {
    let server = Server::with(&[CONFIG_MAPS]);
    let lister = synced_lister(&server).await;
    let mut changes = lister.subscribe();
    run_until_idle().await;
    server.put(CONFIG_MAPS, config_map("short-lived", "1"));
    server.delete(CONFIG_MAPS, &key("short-lived"));
    server.put(CONFIG_MAPS, config_map("next", "1"));
    for expected in ["short-lived", "next"] {
        let next = tokio::time::timeout(Duration::from_millis(10), changes.next()).await;
        let next = next.expect("no timer is needed").expect("a change");
        assert_eq!(next.key(), &key(expected));
        assert_eq!(matches!(next, Change::Deleted { .. }), expected == "short-lived");
    }
}

/// kube-rs: 0..30 are delivered as 0, 1, 3, 4, 6, 7, 8, 5.
#[tokio::test(start_paused = true)]
async fn changes_are_delivered_in_order() {
    let server = Server::with(&[CONFIG_MAPS]);
    let lister = synced_lister(&server).await;
    let mut changes = lister.subscribe();
    run_until_idle().await;
    let order: Vec<_> = (0..30).map(|number| (number * 7 % 30).to_string()).collect();
    for name in &order {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    for name in &order {
        assert_eq!(changes.next().await.expect("a change").key(), &key(name));
    }
}

/// kube-rs: a forbidden kind delays the events of all others by seconds.
#[tokio::test(start_paused = true)]
async fn failing_kind_does_not_delay_others() {
    let server = Server::with(&[CONFIG_MAPS]);
    let caches = CacheSet::new(server.client());
    let absent = caches.get::<Secret>(&WatchScope::all());
    let lister = caches
        .get::<ConfigMap>(&WatchScope::all())
        .synced(SOON)
        .await
        .expect("synced");
    let mut changes = lister.subscribe();
    tokio::time::sleep(EVENTUALLY).await;
    assert!(absent.last_error().is_some());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let change = tokio::time::timeout(Duration::from_millis(10), changes.next()).await;
    assert!(change.expect("delivered immediately").is_some());
}

/// kube-rs: changes missed during an outage are delivered before the store has them, and creations are lost.
#[tokio::test(start_paused = true)]
async fn changes_are_in_the_store_before_delivery_after_a_relist() {
    for streaming in [false, true] {
        let server = Server::with(&[CONFIG_MAPS]);
        server.page_size(1);
        for name in ["a", "b", "c"] {
            server.put(CONFIG_MAPS, config_map(name, "1"));
        }
        let settings = Settings::<ConfigMap>::compact();
        let settings = if streaming {
            settings
        } else {
            settings.without_watch_list()
        };
        let cache = Cache::start_with(server.client(), &(), &WatchScope::all(), settings);
        let lister = cache.synced(EVENTUALLY).await.expect("synced");
        let mut changes = lister.subscribe();
        for _ in 0..3 {
            changes.next().await;
        }
        run_until_idle().await;
        server.end_watches();
        for name in ["b", "d"] {
            server.put(CONFIG_MAPS, config_map(name, "2"));
        }
        server.compact();
        for name in ["b", "d"] {
            let change = changes.next().await.expect("delivered");
            assert_eq!(change.key(), &key(name));
            let stored = lister.get_cached(&key(name)).expect("stored");
            assert_eq!(stored.meta().resource_version(), change.meta().resource_version());
        }
    }
}

/// kube-rs: a panic ends the whole controller. See also `subscribe.rs`, and the runtime's worker.
#[tokio::test(start_paused = true)]
async fn panicking_callback_does_not_end_the_cache() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let lister = synced_lister(&server).await;
    let handler = lister.subscribe().handle(|_| panic!("always"));
    assert!(handler.synced().wait().await);
    server.put(CONFIG_MAPS, config_map("b", "1"));
    run_until_idle().await;
    assert_eq!(lister.len(), 2);
    handler.remove().await;
}

/// kube-rs: shutdown before the first sync hangs.
#[tokio::test(start_paused = true)]
async fn close_before_the_first_sync_does_not_hang() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.set_unresponsive(true);
    let caches = CacheSet::new(server.client());
    let cache = caches.get::<ConfigMap>(&WatchScope::all());
    let mut changes = cache.subscribe();
    run_until_idle().await;
    caches.close().await;
    assert!(changes.next().await.is_none());
}

/// kube-rs: each wake-up polls everything in flight.
#[tokio::test(start_paused = true)]
async fn burst_of_changes_wakes_a_subscriber_once() {
    struct Wakes(AtomicUsize);
    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let server = Server::with(&[CONFIG_MAPS]);
    let lister = synced_lister(&server).await;
    let mut changes = lister.subscribe();
    run_until_idle().await;
    let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
    let counting = Waker::from(Arc::clone(&wakes));
    {
        let mut next = std::pin::pin!(changes.next());
        assert!(matches!(
            next.as_mut().poll(&mut Context::from_waker(&counting)),
            Poll::Pending
        ));
        for number in 0..1000 {
            server.put(CONFIG_MAPS, config_map(&number.to_string(), "1"));
        }
        run_until_idle().await;
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(next.await.is_some());
    }
    for _ in 1..1000 {
        assert!(changes.next().await.is_some());
    }
}
