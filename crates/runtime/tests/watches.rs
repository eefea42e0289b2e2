//! What triggers a controller, and how its reconciles end, on a paused clock.

use crate::harness;
use crate::model;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use harness::{DEPLOYMENTS, Log, SECRETS, controller, done, recording, run, server, settle};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use model::{CONFIG_MAPS, config_map, key};
use parking_lot::Mutex;
use serde_json::{Value, json};
use windlass_cache::{CachedObject, Change};
use windlass_runtime::{Action, Controller, Manager, ObjectKey, Predicate, Watch};
use windlass_workqueue::{Exponential, Priority};

fn secret(name: &str, generation: i64) -> Value {
    json!({ "metadata": { "namespace": "n", "name": name, "generation": generation } })
}

fn named(secret: &Secret) -> Vec<ObjectKey> {
    secret.metadata.name.iter().map(|name| key(name)).collect()
}

#[tokio::test(start_paused = true)]
async fn predicate_filters_only_its_own_watch() {
    let (server, log) = (server(), Log::default());
    let secrets = Watch::<Secret>::new()
        .mapped(named)
        .filter(Predicate::generation_changed());
    let (running, _) = run(
        &server,
        controller().watch(secrets).reconcile(recording(&log, done)),
    );
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
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn event_filter_applies_to_all_kinds() {
    let (server, log) = (server(), Log::default());
    let only_new = |old: Option<&windlass_cache::Meta>, _: &windlass_cache::Meta| old.is_none();
    let watching = controller()
        .watches::<Secret>(named)
        .event_filter(only_new)
        .reconcile(recording(&log, done));
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
    running.stop().await.expect("stops cleanly");
}

/// The index value of an object: its `colour` label.
fn colour(object: &impl kube::Resource) -> Vec<String> {
    let labels = object.meta().labels.iter().flatten();
    labels
        .filter(|(name, _)| *name == "colour")
        .map(|(_, value)| value.clone())
        .collect()
}

fn coloured(namespace: &str, name: &str, colour: &str) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name, "labels": { "colour": colour } } })
}

#[tokio::test(start_paused = true)]
async fn watch_for_all_reconciles_every_object_of_the_own_kind() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", ""));
    server.put(CONFIG_MAPS, config_map("b", ""));
    let all = controller().watches_for_all(Watch::<Secret>::new());
    let (running, _) = run(&server, all.reconcile(recording(&log, done)));
    settle().await;
    let reconciled = || {
        let mut names = std::mem::take(&mut *log.lock());
        names.sort();
        names
    };
    assert_eq!(reconciled(), ["a", "b"], "at the start");
    server.put(SECRETS, coloured("elsewhere", "s", "red"));
    settle().await;
    assert_eq!(reconciled(), ["a", "b"], "a new object in another namespace");
    server.put(CONFIG_MAPS, config_map("c", ""));
    settle().await;
    assert_eq!(reconciled(), ["c"]);
    server.delete(SECRETS, &ObjectKey::namespaced("elsewhere", "s"));
    settle().await;
    assert_eq!(reconciled(), ["a", "b", "c"], "a deletion");
    running.stop().await.expect("stops cleanly");
}

fn values(config: &ConfigMap) -> Vec<String> {
    config
        .data
        .iter()
        .flatten()
        .map(|(_, text)| text.clone())
        .collect()
}

/// Objects that share an index value are reconciled when the other object changes: by its old and new value, and only in
/// its namespace.
#[tokio::test(start_paused = true)]
async fn indexed_watch_reconciles_objects_with_the_old_or_new_value() {
    let (server, log) = (server(), Log::default());
    for (name, text) in [
        ("red", "red"),
        ("also-red", "red"),
        ("blue", "blue"),
        ("none", ""),
    ] {
        server.put(CONFIG_MAPS, config_map(name, text));
    }
    server.put(SECRETS, coloured("n", "before", "red"));
    let joined = controller().watches_by_index(Watch::<Secret>::new(), values, colour);
    let (running, _) = run(&server, joined.reconcile(recording(&log, done)));
    settle().await;
    let reconciled = || {
        let mut names = std::mem::take(&mut *log.lock());
        names.sort();
        names
    };
    assert_eq!(
        reconciled(),
        ["also-red", "blue", "none", "red"],
        "each once, at the start"
    );
    let steps: [(&str, Value, &[&str]); 4] = [
        ("new", coloured("n", "s", "red"), &["also-red", "red"]),
        ("moved", coloured("n", "s", "blue"), &["also-red", "blue", "red"]),
        ("unmatched", coloured("n", "s", "green"), &["blue"]),
        ("elsewhere", coloured("m", "s", "red"), &[]),
    ];
    for (step, secret, expected) in steps {
        server.put(SECRETS, secret);
        settle().await;
        assert_eq!(reconciled(), expected, "{step}");
    }
    // The controller's own objects change too: their current value counts.
    server.put(CONFIG_MAPS, config_map("red", "green"));
    settle().await;
    assert_eq!(reconciled(), ["red"]);
    server.delete(SECRETS, &key("s"));
    settle().await;
    assert_eq!(reconciled(), ["red"], "a deletion triggers too");
    running.stop().await.expect("stops cleanly");
}

/// The predicate of the indexed watch applies, and its kind can be read.
#[tokio::test(start_paused = true)]
async fn indexed_watch_has_a_predicate_and_a_lister() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("red", "red"));
    let joined = controller().watches_by_index(
        Watch::<Secret>::new().filter(Predicate::labels_changed()),
        values,
        colour,
    );
    let reads = move |_, ctx: windlass_runtime::Context| {
        std::future::ready(ctx.lister::<Secret>().map(|_| Action::done()))
    };
    let (running, outcomes) = run(&server, joined.reconcile(recording(&log, reads)));
    settle().await;
    for _ in 0..3 {
        server.put(SECRETS, coloured("n", "s", "red"));
        settle().await;
    }
    assert_eq!(
        (log.lock().len(), outcomes.done()),
        (2, 2),
        "at the start, and when it was created"
    );
    running.stop().await.expect("stops cleanly");
}

/// Keys that arrive before the start wait, each once; the end of the stream does not end the controller.
#[tokio::test(start_paused = true)]
async fn key_stream_triggers_reconciles_and_may_end() {
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
        controller().triggered_by(keys).reconcile(recording(&log, done)),
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(log.lock().is_empty(), "reconciled before the caches have synced");
    server.install(CONFIG_MAPS);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(*log.lock(), ["x", "y"]);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(*log.lock(), ["x", "y", "late"]);
    server.put(CONFIG_MAPS, config_map("c", "1"));
    settle().await;
    assert_eq!(log.lock().len(), 4);
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn dynamic_kind_works_like_a_typed_one() {
    let (server, log) = (server(), Log::default());
    let configs = ApiResource::erase::<ConfigMap>(&());
    let owner =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": true }]);
    server.put(CONFIG_MAPS, config_map("c", "1"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (noted, kind) = (Arc::clone(&seen), configs.clone());
    let dynamic = Controller::from_watch("dynamic", Watch::<DynamicObject>::dynamic(configs))
        .watch(Watch::<DynamicObject>::dynamic(ApiResource::erase::<Deployment>(&())).owned())
        .reconcile(recording(&log, move |request, ctx| {
            let object = ctx
                .dynamic_lister::<DynamicObject>(&kind)
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
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn metadata_only_watch_can_own_and_reconcile() {
    type Bare<K> = PartialObjectMeta<K>;
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("c", "1"));
    let owner =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": true }]);
    let bare = Controller::<Bare<ConfigMap>>::new("bare")
        .watch(Watch::<Bare<Deployment>>::new().owned())
        .reconcile(recording(&log, |request, ctx| async move {
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
    running.stop().await.expect("stops cleanly");
}

/// Sets the flag when it is dropped.
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// It is cancelled, counted as a timeout and retried; an error with the same text is not counted as a timeout.
#[tokio::test(start_paused = true)]
async fn reconcile_that_times_out_is_cancelled_and_retried() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let dropped = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&dropped);
    let times = Arc::new(Mutex::new(0));
    let slow = recording(&log, move |_, _| {
        let on_drop = SetOnDrop(Arc::clone(&seen));
        let nth = {
            let mut times = times.lock();
            *times += 1;
            *times
        };
        async move {
            let _guard = on_drop;
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
    running.stop().await.expect("stops cleanly");
}

/// A requeued object keeps its priority, or gets that of the action.
#[tokio::test(start_paused = true)]
async fn action_can_change_the_priority_of_the_next_run() {
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
        running.stop().await.expect("stops cleanly");
    }
}

#[tokio::test(start_paused = true)]
async fn reconcile_can_see_that_its_object_was_queued_again() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let looking = recording(&log, move |_, ctx| {
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
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn max_retries_and_rate_limiter_are_respected() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let failing = recording(&log, |_, _| async { Err("never".into()) });
    let dropped = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&dropped);
    let paced = controller()
        .rate_limiter(Exponential::new(Duration::from_secs(1), Duration::from_secs(1)))
        .max_retries(3)
        .on_dropped(move |key, failures| reports.lock().push((key.clone(), failures)))
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
    assert_eq!(outcomes.failed(), 5, "a change resets the failures");
    running.stop().await.expect("stops cleanly");
}

/// It receives what a later reconcile cannot see: every state, and the last state of a deleted object.
#[tokio::test(start_paused = true)]
async fn tap_receives_each_change_before_its_object_is_reconciled() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let tapped = Arc::clone(&log);
    let watch = Watch::<ConfigMap>::new().tap(move |change| {
        let text = |stored: &CachedObject<ConfigMap>| {
            let object = stored.object().expect("decodable");
            object.data.as_ref().and_then(|data| data.get("text").cloned())
        };
        let (old, new) = (change.old().and_then(text), text(change.latest()));
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
        Controller::from_watch("tapped", watch).reconcile(recording(&log, done)),
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
    running.stop().await.expect("stops cleanly");
}
