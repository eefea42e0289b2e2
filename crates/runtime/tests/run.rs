//! The reconcile loop, from a change to the end of a reconcile, on a paused clock.

use crate::harness;
use crate::model;

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use harness::{DEPLOYMENTS, Log, SECRETS, controller, done, recording, run, server, settle};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use model::{CONFIG_MAPS, RequestType, config_map, key};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use windlass_runtime::{Action, Context, Error, ObjectKey, Request};

#[tokio::test(start_paused = true)]
async fn object_is_reconciled_when_listed_changed_and_deleted() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seen_by_it = Arc::clone(&seen);
    let reconciler = recording(&log, move |request, ctx| {
        let seen = Arc::clone(&seen_by_it);
        async move {
            let object = ctx.lister::<ConfigMap>()?.get(&request.key);
            seen.lock()
                .push(object.and_then(|object| object.data.clone()?.remove("text")));
            Ok(Action::done())
        }
    });
    let (running, outcomes) = run(&server, controller().reconcile(reconciler));
    settle().await;
    server.put(CONFIG_MAPS, config_map("a", "2"));
    settle().await;
    server.delete(CONFIG_MAPS, &key("a"));
    settle().await;
    assert_eq!(*log.lock(), ["a", "a", "a"]);
    assert_eq!(*seen.lock(), [Some("1".to_owned()), Some("2".to_owned()), None]);
    assert_eq!(outcomes.done(), 3);
    running.stop().await.expect("stops cleanly");
}

/// Even if only the cache of another kind is missing.
#[tokio::test(start_paused = true)]
async fn reconciles_wait_until_every_cache_has_synced() {
    let (server, log) = (server(), Log::default());
    server.uninstall(DEPLOYMENTS);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let (running, _) = run(
        &server,
        controller()
            .reads::<Deployment>()
            .reconcile(recording(&log, done)),
    );
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(log.lock().is_empty());
    server.install(DEPLOYMENTS);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(*log.lock(), ["a"]);
    running.stop().await.expect("stops cleanly");
}

/// 5 ms, doubling.
#[tokio::test(start_paused = true)]
async fn failed_reconcile_is_retried_with_exponential_backoff() {
    let (server, times) = (server(), Arc::new(Mutex::new(Vec::new())));
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let noted = Arc::clone(&times);
    let reconciler = move |_: Request, _: Context| {
        let mut noted = noted.lock();
        noted.push(Instant::now());
        let failed = noted.len() < 5;
        async move {
            if failed {
                Err("not yet".into())
            } else {
                Ok(Action::done())
            }
        }
    };
    let (running, outcomes) = run(&server, controller().reconcile(reconciler));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let gaps: Vec<_> = times
        .lock()
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_millis())
        .collect();
    assert_eq!(gaps, [5, 10, 20, 40]);
    assert_eq!((outcomes.failed(), outcomes.done()), (4, 1));
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn terminal_error_waits_for_the_next_change() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let reconciler = recording(&log, |_, _| async { Err(Error::terminal("never")) });
    let (running, outcomes) = run(&server, controller().reconcile(reconciler));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(outcomes.terminal(), 1);
    server.put(CONFIG_MAPS, config_map("a", "2"));
    settle().await;
    assert_eq!(outcomes.terminal(), 2);
    running.stop().await.expect("stops cleanly");
}

/// A reconciler that cleans up after deleted objects must not run for an undecodable one.
#[tokio::test(start_paused = true)]
async fn undecodable_object_is_not_treated_as_deleted() {
    let (server, log) = (server(), Log::default());
    let mut broken = config_map("a", "1");
    broken["data"] = json!(5);
    server.put(CONFIG_MAPS, broken);
    let (running, outcomes) = run(&server, controller().reconcile(recording(&log, done)));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(log.lock().is_empty(), "not reconciled");
    assert_eq!(outcomes.terminal(), 1);
    server.put(CONFIG_MAPS, config_map("a", "mended"));
    settle().await;
    assert_eq!(*log.lock(), ["a"]);
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn reconcile_can_requeue_after_a_delay() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let reconciler = recording(&log, |_, _| async {
        Ok(Action::requeue_after(Duration::from_mins(1)))
    });
    let (running, outcomes) = run(&server, controller().reconcile(reconciler));
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(log.lock().len(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((log.lock().len(), outcomes.requeued()), (2, 2));
    running.stop().await.expect("stops cleanly");
}

/// Including a panic before the future is created.
#[tokio::test(start_paused = true)]
async fn panic_is_counted_and_retried_and_does_not_affect_other_objects() {
    for early in [true, false] {
        let (server, log) = (server(), Log::default());
        for name in ["a", "b"] {
            server.put(CONFIG_MAPS, config_map(name, "1"));
        }
        let times = AtomicUsize::new(0);
        let reconciler = recording(&log, move |request, _| {
            let panics = request.key.name() == "a" && times.fetch_add(1, Ordering::Relaxed) < 2;
            assert!(!(panics && early), "deliberate");
            async move {
                assert!(!panics, "deliberate");
                Ok(Action::done())
            }
        });
        let (running, outcomes) = run(&server, controller().reconcile(reconciler));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((outcomes.panicked(), outcomes.done()), (2, 2));
        running.stop().await.expect("stops cleanly");
    }
}

#[tokio::test(start_paused = true)]
async fn change_of_an_owned_object_reconciles_its_owner() {
    let owned = |owner: &str| {
        let owner = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": "u", "controller": true }]);
        json!({ "metadata": { "namespace": "n", "name": "d", "ownerReferences": owner } })
    };
    let (server, log) = (server(), Log::default());
    let (running, _) = run(
        &server,
        controller().owns::<Deployment>().reconcile(recording(&log, done)),
    );
    settle().await;
    server.put(DEPLOYMENTS, owned("a"));
    settle().await;
    server.put(DEPLOYMENTS, owned("b"));
    settle().await;
    server.delete(DEPLOYMENTS, &key("d"));
    settle().await;
    assert_eq!(*log.lock(), ["a", "a", "b", "b"]);
    running.stop().await.expect("stops cleanly");
}

/// Objects that are no longer referenced are reconciled too.
#[tokio::test(start_paused = true)]
async fn change_of_a_watched_object_reconciles_old_and_new_mapped_keys() {
    let (server, log) = (server(), Log::default());
    let to_user = |secret: &Secret| {
        secret
            .metadata
            .labels
            .iter()
            .flatten()
            .map(|(_, user)| key(user))
            .collect()
    };
    let (running, _) = run(
        &server,
        controller()
            .watches::<Secret>(to_user)
            .reconcile(recording(&log, done)),
    );
    settle().await;
    for user in ["a", "b"] {
        server.put(
            SECRETS,
            json!({ "metadata": { "namespace": "n", "name": "s", "labels": { "user": user } } }),
        );
        settle().await;
    }
    assert_eq!(*log.lock(), ["a", "a", "b"]);
    running.stop().await.expect("stops cleanly");
}

/// A known defect of kube-rs: a failing kind must not delay another.
#[tokio::test(start_paused = true)]
async fn failing_kind_does_not_delay_another() {
    let (server, log) = (server(), Log::default());
    let (running, _) = run(
        &server,
        controller().owns::<Deployment>().reconcile(recording(&log, done)),
    );
    settle().await;
    server.uninstall(DEPLOYMENTS);
    tokio::time::sleep(Duration::from_mins(1)).await;
    server.put(CONFIG_MAPS, config_map("a", "1"));
    settle().await;
    assert_eq!(*log.lock(), ["a"]);
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn changes_are_reconciled_before_initial_objects() {
    let (server, log) = (server(), Log::default());
    for name in ["a", "b", "c"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let slow = recording(&log, |_, _| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(Action::done())
    });
    let (running, _) = run(&server, controller().reconcile(slow));
    settle().await;
    server.put(CONFIG_MAPS, config_map("c", "2"));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(*log.lock(), ["a", "c", "b"]);
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn object_is_never_reconciled_concurrently() {
    let (server, log) = (server(), Log::default());
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let (now, most) = (
        Arc::new(Mutex::new(Vec::<ObjectKey>::new())),
        Arc::new(AtomicUsize::new(0)),
    );
    let most_by_it = Arc::clone(&most);
    let reconciler = recording(&log, move |request, _| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most_by_it));
        async move {
            {
                let mut now = now.lock();
                assert!(
                    !now.contains(&request.key),
                    "{} is reconciled concurrently",
                    request.key
                );
                now.push(request.key.clone());
                most.fetch_max(now.len(), Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            now.lock().retain(|key| *key != request.key);
            Ok(Action::done())
        }
    });
    let four = NonZeroUsize::new(4).expect("not zero");
    let (running, outcomes) = run(&server, controller().concurrency(four).reconcile(reconciler));
    settle().await;
    server.put(CONFIG_MAPS, config_map("a", "2"));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        (most.load(Ordering::Relaxed), outcomes.done(), outcomes.panicked()),
        (2, 3, 0)
    );
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn undeclared_kind_is_an_error_that_names_the_fix() {
    let (server, message) = (server(), Arc::new(Mutex::new(String::new())));
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let in_reconcile = Arc::clone(&message);
    let reconciler = move |_: Request, ctx: Context| {
        let read = ctx.lister::<Secret>().map(|_| Action::done());
        *in_reconcile.lock() = read.as_ref().err().map(ToString::to_string).unwrap_or_default();
        async move { read }
    };
    let (running, outcomes) = run(&server, controller().reconcile(reconciler));
    settle().await;
    assert_eq!(
        *message.lock(),
        "controller `test` does not cache Secret: add `.reads::<Secret>()` to it"
    );
    assert_eq!(outcomes.terminal(), 1);
    running.stop().await.expect("stops cleanly");
}

/// The cache handles a watch that fails after the start; the controller continues with cached data.
#[tokio::test(start_paused = true)]
async fn outage_does_not_stop_a_controller() {
    let (server, log) = (server(), Log::default());
    let (running, _) = run(&server, controller().reconcile(recording(&log, done)));
    settle().await;
    for _ in 0..5 {
        server.fail_next(RequestType::List, 500);
        server.fail_next(RequestType::Watch, 500);
    }
    server.break_watches();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(*log.lock(), ["a"]);
    running.stop().await.expect("stops cleanly");
}
