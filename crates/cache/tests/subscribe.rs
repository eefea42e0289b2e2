//! Subscribers: isolation, removal and resync.

use crate::model;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use model::{CONFIG_MAPS, Server, config_map, key};
use windlass_cache::{Cache, Lister, WatchScope};

const SOON: Duration = Duration::from_secs(5);

async fn run_until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn synced(server: &Server) -> Lister<ConfigMap> {
    let cache = Cache::start(server.client(), &WatchScope::all());
    cache.synced(SOON).await.expect("synced")
}

/// It loses the change that it panicked on and still becomes synced.
#[tokio::test(start_paused = true)]
async fn panicking_subscriber_affects_no_other() {
    let server = Server::with(&[CONFIG_MAPS]);
    for name in ["a", "b", "c"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let lister = synced(&server).await;
    let calls: [Arc<AtomicUsize>; 2] = Default::default();
    let counted = calls
        .clone()
        .map(|calls| move || calls.fetch_add(1, Ordering::Relaxed));
    let [bad, good] = counted;
    let bad = lister.subscribe().handle(move |change| {
        bad();
        assert_ne!(change.key(), &key("b"), "no");
    });
    let _good = lister.subscribe().handle(move |_| {
        good();
    });
    assert!(bad.synced().wait().await);
    server.put(CONFIG_MAPS, config_map("d", "1"));
    run_until_idle().await;
    assert_eq!(calls.map(|calls| calls.load(Ordering::Relaxed)), [4, 4]);
}

/// No call follows the removal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remove_waits_for_the_running_call() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let lister = synced(&server).await;
    let (started, starts) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = lister.subscribe().handle(move |_| {
        started.send(()).expect("the test listens");
        released.recv().expect("the test releases it");
        counted.fetch_add(1, Ordering::Relaxed);
    });
    tokio::task::spawn_blocking(move || starts.recv())
        .await
        .expect("no panic")
        .expect("it starts");
    let removal = tokio::spawn(handler.remove());
    server.put(CONFIG_MAPS, config_map("b", "1"));
    tokio::task::yield_now().await;
    assert!(!removal.is_finished());
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    release.send(()).expect("the call waits");
    removal.await.expect("no panic");
    assert_eq!(calls.load(Ordering::Relaxed), 1, "b is not delivered any more");
}

#[tokio::test(start_paused = true)]
async fn each_subscriber_has_its_own_resync_interval() {
    let server = Server::with(&[CONFIG_MAPS]);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let lister = synced(&server).await;
    let count = |every: Option<u64>| {
        let subscription = lister.subscribe();
        let subscription = match every {
            Some(seconds) => subscription.resync_every(Duration::from_secs(seconds)),
            None => subscription,
        };
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let handler = subscription.handle(move |change| {
            counted.fetch_add(usize::from(change.is_resync()), Ordering::Relaxed);
        });
        (calls, handler)
    };
    let subscribers = [count(None), count(Some(2)), count(Some(3))];
    tokio::time::sleep(Duration::from_millis(12_500)).await;
    let calls: Vec<_> = subscribers
        .iter()
        .map(|(calls, _)| calls.load(Ordering::Relaxed))
        .collect();
    assert_eq!(calls, [0, 6, 4]);
}

/// Each subscriber gets all objects that exist in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_can_be_added_and_removed_under_load() {
    const OBJECTS: usize = 200;
    let server = Server::with(&[CONFIG_MAPS]);
    let lister = synced(&server).await;
    let users: Vec<_> = (0..50)
        .map(|_| {
            let lister = lister.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    let handler = lister.subscribe().handle(|_| {});
                    tokio::task::yield_now().await;
                    handler.remove().await;
                }
                let mut last = lister.subscribe();
                let mut seen = std::collections::HashSet::new();
                while seen.len() < OBJECTS {
                    seen.insert(last.next().await.expect("the cache is open").key().clone());
                }
            })
        })
        .collect();
    for number in 0..OBJECTS {
        server.put(CONFIG_MAPS, config_map(&number.to_string(), "1"));
        tokio::task::yield_now().await;
    }
    for user in users {
        tokio::time::timeout(Duration::from_mins(1), user)
            .await
            .expect("no deadlock")
            .expect("no panic");
    }
    assert_eq!(lister.cache().stats().subscribers, 0, "none is left");
}
