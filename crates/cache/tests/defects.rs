//! What kube-rs 5.0.0 gets wrong around list and watch, and this does not. Each was reproduced there with a probe.

mod model;

use std::{
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use model::{CONFIG_MAPS, On, Server, config_map, key};
use windlass_cache::{Cache, Caches, Change, Lister, Selection, Settings};

const SOON: Duration = Duration::from_secs(5);
const EVENTUALLY: Duration = Duration::from_mins(5);

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn listed(server: &Server) -> Lister<ConfigMap> {
    let settings = Settings::<ConfigMap>::compact().listing();
    let cache = Cache::start_with(server.client(), &(), &Selection::all(), settings);
    cache.synced(EVENTUALLY).await.expect("the server is well")
}

/// 1: there, 18 watches and no list.
#[tokio::test(start_paused = true)]
async fn a_410_at_the_start_of_a_watch_leads_to_a_list() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let lister = listed(&server).await;
    tokio::time::sleep(SOON).await;
    server.put(CONFIG_MAPS, config_map("b", "1"));
    server.compact();
    server.end_watches();
    server.fail(On::Watch, 410);
    tokio::time::sleep(EVENTUALLY).await;
    let requests = server.requests();
    assert_eq!(requests[..3], ["list rv=0 limit=500", "watch rv=1", "watch rv=2"]);
    assert!(requests[3].starts_with("list"), "{requests:?}");
    assert!(requests.len() <= 6, "it does not loop: {requests:?}");
    assert_eq!(lister.len(), 2);
}

/// 2: there, the same first page for ever.
#[tokio::test(start_paused = true)]
async fn an_expired_continue_token_leads_to_one_unpaged_list() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.page_size(1);
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    server.fail(On::NextPage, 410);
    assert_eq!(listed(&server).await.len(), 2);
    let requests = server.requests();
    assert_eq!(
        requests[..3],
        ["list rv=0 limit=500", "list limit=500 continue=2:1", "list rv=0"]
    );
}

/// 3: there, a deletion that was missed is never told.
#[tokio::test(start_paused = true)]
async fn a_deletion_during_an_outage_is_told() {
    let server = Server::with(&[CONFIG_MAPS]);
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let lister = listed(&server).await;
    let mut changes = lister.subscribe();
    for _ in 0..2 {
        changes.next().await;
    }
    settle().await;
    server.end_watches();
    server.delete(CONFIG_MAPS, &key("b"));
    server.compact();
    let gone = changes.next().await.expect("it is told");
    assert!(matches!(&gone, Change::Deleted { .. }) && gone.key() == &key("b"));
}

/// 4: there, a subscriber whose object has left the store sleeps until something else wakes it.
#[tokio::test(start_paused = true)]
async fn an_object_that_went_before_it_was_taken_does_not_put_its_subscriber_to_sleep() {
    let server = Server::with(&[CONFIG_MAPS]);
    let lister = listed(&server).await;
    let mut changes = lister.subscribe();
    settle().await;
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

/// 5: there, 0..30 come out as 0, 1, 3, 4, 6, 7, 8, 5.
#[tokio::test(start_paused = true)]
async fn changes_come_in_the_order_in_which_they_happened() {
    let server = Server::with(&[CONFIG_MAPS]);
    let lister = listed(&server).await;
    let mut changes = lister.subscribe();
    settle().await;
    let order: Vec<_> = (0..30).map(|number| (number * 7 % 30).to_string()).collect();
    for name in &order {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    for name in &order {
        assert_eq!(changes.next().await.expect("a change").key(), &key(name));
    }
}

/// 6: there, one kind that is forbidden delays the events of all others by seconds.
#[tokio::test(start_paused = true)]
async fn a_kind_in_trouble_delays_no_other() {
    let server = Server::with(&[CONFIG_MAPS]);
    let caches = Caches::new(server.client());
    let absent = caches.get::<Secret>(&Selection::all());
    let lister = caches
        .get::<ConfigMap>(&Selection::all())
        .synced(SOON)
        .await
        .expect("well");
    let mut changes = lister.subscribe();
    tokio::time::sleep(EVENTUALLY).await;
    assert!(absent.trouble().is_some());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let told = tokio::time::timeout(Duration::from_millis(10), changes.next()).await;
    assert!(told.expect("at once").is_some());
}

/// 7: there, what changed while away is told before the store has it, and what was created is lost.
#[tokio::test(start_paused = true)]
async fn whoever_is_told_of_a_change_finds_it_in_the_store_after_a_relist_too() {
    for streaming in [false, true] {
        let server = Server::with(&[CONFIG_MAPS]);
        server.page_size(1);
        for name in ["a", "b", "c"] {
            server.put(CONFIG_MAPS, config_map(name, "1"));
        }
        let settings = Settings::<ConfigMap>::compact();
        let settings = if streaming { settings } else { settings.listing() };
        let cache = Cache::start_with(server.client(), &(), &Selection::all(), settings);
        let lister = cache.synced(EVENTUALLY).await.expect("the server is well");
        let mut changes = lister.subscribe();
        for _ in 0..3 {
            changes.next().await;
        }
        settle().await;
        server.end_watches();
        for name in ["b", "d"] {
            server.put(CONFIG_MAPS, config_map(name, "2"));
        }
        server.compact();
        for name in ["b", "d"] {
            let change = changes.next().await.expect("it is told");
            assert_eq!(change.key(), &key(name));
            let stored = lister.stored(&key(name)).expect("it is there");
            assert_eq!(stored.meta().resource_version(), change.meta().resource_version());
        }
    }
}

/// 8: there, a panic ends the whole controller. See also `subscribe.rs`, and the runtime's worker.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_callback_ends_nothing() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let lister = listed(&server).await;
    let handler = lister.subscribe().handle(|_| panic!("always"));
    assert!(handler.synced().wait().await);
    server.put(CONFIG_MAPS, config_map("b", "1"));
    settle().await;
    assert_eq!(lister.len(), 2);
    handler.remove().await;
}

/// 9: there, shutting down before the first sync hangs.
#[tokio::test(start_paused = true)]
async fn closing_before_the_first_sync_does_not_hang() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.hang(true);
    let caches = Caches::new(server.client());
    let cache = caches.get::<ConfigMap>(&Selection::all());
    let mut changes = cache.subscribe();
    settle().await;
    caches.close().await;
    assert!(changes.next().await.is_none());
}

/// 10: there, each wake polls everything in flight.
#[tokio::test(start_paused = true)]
async fn a_thousand_changes_wake_a_waiting_subscriber_once() {
    struct Wakes(AtomicUsize);
    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let server = Server::with(&[CONFIG_MAPS]);
    let lister = listed(&server).await;
    let mut changes = lister.subscribe();
    settle().await;
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
        settle().await;
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(next.await.is_some());
    }
    for _ in 1..1000 {
        assert!(changes.next().await.is_some());
    }
}
