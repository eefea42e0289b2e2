//! What a controller hears of, and how its reconciles may end, on a clock that the test holds.

mod harness;
#[path = "../../cache/tests/model/mod.rs"]
mod model;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use harness::{DEPLOYMENTS, Log, SECRETS, controller, done, noting, run, server, settle};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use model::{CONFIG_MAPS, config_map, key};
use parking_lot::Mutex;
use serde_json::{Value, json};
use windlass_cache::{Change, Stored};
use windlass_runtime::{Action, Controller, Manager, Predicate, Watch};
use windlass_workqueue::{Exponential, Priority};

fn secret(name: &str, generation: i64) -> Value {
    json!({ "metadata": { "namespace": "n", "name": name, "generation": generation } })
}

fn named(secret: &Secret) -> Vec<windlass_runtime::ObjectKey> {
    secret.metadata.name.iter().map(|name| key(name)).collect()
}

/// 145.
#[tokio::test(start_paused = true)]
async fn a_predicate_concerns_its_own_watch_only() {
    let (server, log) = (server(), Log::default());
    let secrets = Watch::<Secret>::new()
        .mapped(named)
        .when(Predicate::generation_changed());
    let (running, _) = run(&server, controller().watch(secrets).reconcile(noting(&log, done)));
    settle().await;
    for generation in [1, 1, 2] {
        server.put(SECRETS, secret("s", generation));
        server.put(CONFIG_MAPS, config_map("c", &generation.to_string()));
        settle().await;
    }
    let count = |name: &str| log.lock().iter().filter(|there| *there == name).count();
    assert_eq!((count("s"), count("c")), (2, 3));
    server.delete(SECRETS, &key("s"));
    settle().await;
    assert_eq!(count("s"), 3, "a deletion is never filtered out");
    running.stop().await.expect("it stops when asked");
}

/// 145.
#[tokio::test(start_paused = true)]
async fn a_test_for_all_kinds_concerns_all() {
    let (server, log) = (server(), Log::default());
    let only_new = |old: Option<&windlass_cache::Meta>, _: &windlass_cache::Meta| old.is_none();
    let watching = controller()
        .watches::<Secret>(named)
        .only(only_new)
        .reconcile(noting(&log, done));
    let (running, _) = run(&server, watching);
    settle().await;
    for generation in [1, 2] {
        server.put(SECRETS, secret("s", generation));
        server.put(CONFIG_MAPS, config_map("c", &generation.to_string()));
        settle().await;
    }
    log.lock().sort();
    assert_eq!(*log.lock(), ["c", "s"]);
    server.delete(CONFIG_MAPS, &key("c"));
    settle().await;
    assert_eq!(log.lock().len(), 3);
    running.stop().await.expect("it stops when asked");
}

/// 150: what comes before the start waits, each key once; the end of the stream is not the end of the controller.
#[tokio::test(start_paused = true)]
async fn a_stream_from_outside_triggers_and_may_end() {
    let (server, log) = (server(), Log::default());
    server.uninstall(CONFIG_MAPS);
    let keys = stream::iter([key("x"), key("x"), key("y")]).chain(
        stream::once(async {
            tokio::time::sleep(Duration::from_mins(10)).await;
            key("late")
        })
        .boxed(),
    );
    let (running, _) = run(
        &server,
        controller().triggered_by(keys).reconcile(noting(&log, done)),
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        log.lock().is_empty(),
        "nothing is reconciled before the caches are complete"
    );
    server.install(CONFIG_MAPS);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(*log.lock(), ["x", "y"]);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(*log.lock(), ["x", "y", "late"]);
    server.put(CONFIG_MAPS, config_map("c", "1"));
    settle().await;
    assert_eq!(log.lock().len(), 4);
    running.stop().await.expect("it stops when asked");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_known_at_run_time_works_like_a_typed_one() {
    let (server, log) = (server(), Log::default());
    let configs = ApiResource::erase::<ConfigMap>(&());
    let owner =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": true }]);
    server.put(CONFIG_MAPS, config_map("c", "1"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (noted, kind) = (Arc::clone(&seen), configs.clone());
    let dynamic = Controller::of("dynamic", Watch::<DynamicObject>::dynamic(configs))
        .watch(Watch::<DynamicObject>::dynamic(ApiResource::erase::<Deployment>(&())).owned())
        .reconcile(noting(&log, move |request, ctx| {
            let object = ctx
                .lister_of::<DynamicObject>(&kind)
                .map(|lister| lister.get(&request.key));
            let text = object.map(|object| object.map(|object| object.data["data"]["text"].clone()));
            noted.lock().push(text.ok().flatten());
            std::future::ready(Ok(Action::done()))
        }));
    let running = harness::Running::start(Manager::new(server.client()).controller(dynamic));
    settle().await;
    server.put(
        DEPLOYMENTS,
        json!({ "metadata": { "namespace": "n", "name": "d", "ownerReferences": owner } }),
    );
    settle().await;
    assert_eq!(*seen.lock(), [Some(json!("1")), Some(json!("1"))]);
    running.stop().await.expect("it stops when asked");
}

/// 146.
#[tokio::test(start_paused = true)]
async fn metadata_alone_is_enough_to_own_and_to_reconcile() {
    type Bare<K> = PartialObjectMeta<K>;
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("c", "1"));
    let owner =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": true }]);
    let bare = Controller::<Bare<ConfigMap>>::new("bare")
        .watch(Watch::<Bare<Deployment>>::new().owned())
        .reconcile(noting(&log, |request, ctx| async move {
            let object = ctx.lister::<Bare<ConfigMap>>()?.get(&request.key);
            assert_eq!(
                object.and_then(|object| object.metadata.name.clone()).as_deref(),
                Some("c")
            );
            Ok(Action::done())
        }));
    let outcomes = bare.outcomes();
    let running = harness::Running::start(Manager::new(server.client()).controller(bare));
    settle().await;
    server.put(
        DEPLOYMENTS,
        json!({ "metadata": { "namespace": "n", "name": "d", "ownerReferences": owner } }),
    );
    settle().await;
    assert_eq!(outcomes.done(), 2);
    running.stop().await.expect("it stops when asked");
}

/// Tells when it is dropped.
struct Told(Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// 130: it is dropped, counted as such and retried; an error that only says so is not counted as one.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_takes_too_long_is_dropped_and_retried() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let dropped = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&dropped);
    let times = Arc::new(Mutex::new(0));
    let slow = noting(&log, move |_, _| {
        let told = Told(Arc::clone(&seen));
        let nth = {
            let mut times = times.lock();
            *times += 1;
            *times
        };
        async move {
            let _told = told;
            match nth {
                1 => tokio::time::sleep(Duration::from_mins(1)).await,
                2 => return Err("timed out".into()),
                _ => {}
            }
            Ok(Action::done())
        }
    });
    let limited = controller().timeout(Duration::from_secs(10)).reconcile(slow);
    let (running, outcomes) = run(&server, limited);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(!dropped.load(Ordering::Relaxed));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(dropped.load(Ordering::Relaxed));
    assert_eq!(
        (outcomes.timed_out(), outcomes.failed(), outcomes.done()),
        (1, 1, 1)
    );
    running.stop().await.expect("it stops when asked");
}

/// 136: it comes back with the priority that it had, or the one that the result names.
#[tokio::test(start_paused = true)]
async fn a_result_may_change_the_priority_of_what_comes_back() {
    for (named, expected) in [(None, ["a", "b", "a"]), (Some(Priority::HIGH), ["a", "a", "b"])] {
        let (server, log) = (server(), Log::default());
        let (first, reconciled) = (AtomicBool::new(true), Arc::clone(&log));
        let again = move |request: windlass_runtime::Request, _| {
            reconciled.lock().push(request.key.name().to_owned());
            let first = first.swap(false, Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let action = if first {
                    Action::requeue_after(Duration::ZERO)
                } else {
                    Action::done()
                };
                Ok(match named {
                    Some(priority) => action.with_priority(priority),
                    None => action,
                })
            }
        };
        let (running, _) = run(&server, controller().reconcile(again));
        settle().await;
        for name in ["a", "b"] {
            server.put(CONFIG_MAPS, config_map(name, "1"));
            settle().await;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(*log.lock(), expected);
        running.stop().await.expect("it stops when asked");
    }
}

/// 196.
#[tokio::test(start_paused = true)]
async fn a_reconcile_can_see_that_its_object_was_queued_again() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let looking = noting(&log, move |_, ctx| {
        let noted = Arc::clone(&noted);
        async move {
            let before = ctx.is_queued_again();
            tokio::time::sleep(Duration::from_secs(2)).await;
            noted.lock().push((before, ctx.is_queued_again()));
            Ok(Action::done())
        }
    });
    let (running, _) = run(&server, controller().reconcile(looking));
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.put(CONFIG_MAPS, config_map("a", "2"));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(*seen.lock(), [(false, true), (false, false)]);
    running.stop().await.expect("it stops when asked");
}

#[tokio::test(start_paused = true)]
async fn retries_are_limited_and_paced_as_the_author_says() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let failing = noting(&log, |_, _| async { Err("never".into()) });
    let dropped = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&dropped);
    let paced = controller()
        .rate_limiter(Exponential::new(Duration::from_secs(1), Duration::from_secs(1)))
        .max_retries(3)
        .on_dropped(move |key, failures| told.lock().push((key.clone(), failures)))
        .reconcile(failing);
    let (running, outcomes) = run(&server, paced);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(outcomes.failed(), 2);
    assert_eq!(*dropped.lock(), []);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(outcomes.failed(), 4);
    assert_eq!(*dropped.lock(), [(key("a"), 4)]);
    server.put(CONFIG_MAPS, config_map("a", "2"));
    settle().await;
    assert_eq!(outcomes.failed(), 5, "a change begins anew");
    running.stop().await.expect("it stops when asked");
}

/// It sees what a reconcile that runs later cannot: each state, and the last one of what is gone.
#[tokio::test(start_paused = true)]
async fn a_tap_sees_each_change_before_its_object_is_reconciled() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let tapped = Arc::clone(&log);
    let watch = Watch::<ConfigMap>::new().tap(move |change| {
        let text = |stored: &Stored<ConfigMap>| {
            let object = stored.object().expect("it decodes");
            object.data.as_ref().and_then(|data| data.get("text").cloned())
        };
        let (old, new) = (change.old().and_then(text), text(change.stored()));
        let what = match change {
            Change::Applied { initial: true, .. } => "initial",
            Change::Applied { .. } => "applied",
            Change::Deleted { .. } => "deleted",
        };
        let state = |state: Option<String>| state.unwrap_or_default();
        tapped
            .lock()
            .push(format!("{what} {}>{}", state(old), state(new)));
    });
    let (running, _) = run(
        &server,
        Controller::of("tapped", watch).reconcile(noting(&log, done)),
    );
    settle().await;
    server.put(CONFIG_MAPS, config_map("a", "2"));
    settle().await;
    server.delete(CONFIG_MAPS, &key("a"));
    settle().await;
    assert_eq!(
        *log.lock(),
        ["initial >1", "a", "applied 1>2", "a", "deleted 2>2", "a"]
    );
    running.stop().await.expect("it stops when asked");
}
