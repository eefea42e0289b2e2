//! A manager from start to stop: what it shares, what ends it, and that nothing outlives it.

mod harness;
#[path = "../../cache/tests/model/mod.rs"]
mod model;

use std::{sync::Arc, time::Duration};

use harness::{Log, Running, SECRETS, controller, done, noting, run, server, settle};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Node, Secret},
};
use model::{CONFIG_MAPS, Server, config_map};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use windlass_runtime::{Action, Controller, Manager, ManagerError};

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn controllers_of_one_manager_share_a_watch_per_kind() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let first = Controller::<ConfigMap>::new("first").reconcile(noting(&log, done));
    let second = Controller::<Secret>::new("second")
        .reads::<ConfigMap>()
        .reconcile(noting(&log, done));
    let third = Controller::<ConfigMap>::new("third").reconcile(noting(&log, done));
    let manager = Manager::new(server.client())
        .controller(first)
        .controller(second)
        .controller(third);
    let running = Running::start(manager);
    settle().await;
    assert_eq!(*log.lock(), ["a", "a"]);
    assert_eq!(server.watches(), 2);
    running.stop().await.expect("it stops when asked");
    assert_eq!(server.watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_manager_may_look_at_one_namespace_only() {
    let log = Log::default();
    let (one, nodes) = ("/api/v1/namespaces/n/configmaps", "/api/v1/nodes");
    let server = Server::with(&[one, nodes]);
    server.put(one, config_map("a", "1"));
    let controller = controller().reads::<Node>().reconcile(noting(&log, done));
    let running = Running::start(
        Manager::new(server.client())
            .controller(controller)
            .namespace("n"),
    );
    settle().await;
    assert_eq!(*log.lock(), ["a"]);
    running.stop().await.expect("it stops when asked");
}

/// 160: on stop what runs is finished, what is queued is not started, and nothing is left.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_what_runs_and_starts_nothing() {
    let (server, log) = (server(), Log::default());
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let slow = noting(&log, |_, _| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok(Action::done())
    });
    let before = alive_tasks();
    let slow = controller().owns::<Deployment>().reconcile(slow);
    let outcomes = slow.outcomes();
    let manager = Manager::new(server.client())
        .controller(slow)
        .grace(Duration::from_mins(5));
    let running = Running::start(manager);
    settle().await;
    let started = Instant::now();
    running.stop().await.expect("it stops when asked");
    assert!(started.elapsed() > Duration::from_secs(50), "it waited");
    assert_eq!((&**log.lock(), outcomes.done()), (&["a".to_owned()][..], 1));
    assert_eq!(server.watches(), 0);
    settle().await;
    assert_eq!(alive_tasks(), before);
}

/// 155: what does not end within the grace period is dropped, and the error names it. None is left either way.
#[tokio::test(start_paused = true)]
async fn what_does_not_end_in_time_is_dropped_and_named() {
    for grace in [Duration::ZERO, Duration::from_secs(30)] {
        let (server, log) = (server(), Log::default());
        server.put(CONFIG_MAPS, config_map("a", "1"));
        let stuck = controller().reconcile(noting(&log, |_, _| std::future::pending()));
        let before = alive_tasks();
        let manager = Manager::new(server.client())
            .controller(stuck)
            .task("also-stuck", |_| std::future::pending())
            .task("well", |ctx| async move {
                ctx.stopping().await;
                Ok(())
            })
            .grace(grace);
        let running = Running::start(manager);
        settle().await;
        let asked = Instant::now();
        let error = running.stop().await.expect_err("something did not end");
        assert_eq!(asked.elapsed().as_secs(), grace.as_secs());
        let ManagerError::Grace { parts, .. } = &error else {
            panic!("{error}")
        };
        assert!(parts.contains(&"test".to_owned()) && parts.contains(&"also-stuck".to_owned()));
        assert!(grace.is_zero() || !parts.contains(&"well".to_owned()));
        settle().await;
        assert_eq!((alive_tasks(), server.watches()), (before, 0));
    }
}

/// 195: a reconcile that is running when the stop comes goes on undisturbed, and can see that it should end.
#[tokio::test(start_paused = true)]
async fn a_reconcile_can_see_that_it_should_end() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let patient = noting(&log, |_, ctx| async move {
        assert!(!ctx.is_stopping());
        ctx.stopping().await;
        assert!(ctx.is_stopping());
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(Action::done())
    });
    let (running, outcomes) = run(&server, controller().reconcile(patient));
    settle().await;
    running.stop().await.expect("it stops when asked");
    assert_eq!(outcomes.done(), 1);
}

/// 153: what runs beside controllers finds their caches complete.
#[tokio::test(start_paused = true)]
async fn a_task_starts_when_the_caches_are_complete() {
    let (server, log) = (server(), Log::default());
    server.uninstall(CONFIG_MAPS);
    let started = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&started);
    let manager = Manager::new(server.client())
        .controller(controller().reconcile(noting(&log, done)))
        .task("beside", move |ctx| {
            *noted.lock() = Some(ctx.caches().reports().len());
            std::future::ready(Ok(()))
        });
    let running = Running::start(manager);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(*started.lock(), None);
    server.install(CONFIG_MAPS);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(*started.lock(), Some(1));
    running
        .stop()
        .await
        .expect("a task that ended well is no reason to stop");
}

/// 154.
#[tokio::test(start_paused = true)]
async fn a_task_that_fails_or_panics_stops_all_and_is_the_error() {
    for (panics, expected) in [
        (false, "task `beside` failed: deliberate"),
        (true, "`beside` panicked: deliberate"),
    ] {
        let (server, log) = (server(), Log::default());
        let manager = Manager::new(server.client())
            .controller(controller().reconcile(noting(&log, done)))
            .task("beside", move |_| async move {
                assert!(!panics, "deliberate");
                Err("deliberate".into())
            });
        let error = manager
            .run_until(std::future::pending())
            .await
            .expect_err("a task failed");
        assert_eq!(error.to_string(), expected);
        assert_eq!(server.watches(), 0);
    }
}

/// 131.
#[tokio::test(start_paused = true)]
async fn caches_that_are_not_complete_in_time_are_an_error_where_that_was_asked_for() {
    let (server, log) = (server(), Log::default());
    server.uninstall(CONFIG_MAPS);
    let impatient = controller()
        .sync_timeout(Duration::from_mins(2))
        .reconcile(noting(&log, done));
    let started = Instant::now();
    let manager = Manager::new(server.client()).controller(impatient);
    let error = manager
        .run_until(std::future::pending())
        .await
        .expect_err("it gave up");
    assert_eq!(started.elapsed().as_secs(), 120);
    assert!(error.to_string().contains("controller `test` failed"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_a_label_is_refused() {
    for name in ["", "a b", "-a", "a/b", &"a".repeat(64)] {
        let (server, log) = (server(), Log::default());
        let misnamed = Controller::<ConfigMap>::new(name).reconcile(noting(&log, done));
        let refused = Manager::new(server.client())
            .controller(misnamed)
            .run_until(std::future::pending())
            .await;
        assert!(matches!(refused, Err(ManagerError::InvalidName(_))), "{name:?}");
    }
}

/// The kube-rs defect: a stop before the first sync must not hang, whether the server refuses or does not answer.
#[tokio::test(start_paused = true)]
async fn a_stop_before_the_first_sync_is_quick() {
    for hangs in [true, false] {
        let (server, log) = (server(), Log::default());
        server.uninstall(CONFIG_MAPS);
        server.hang(hangs);
        let (running, _) = run(&server, controller().reconcile(noting(&log, done)));
        tokio::time::sleep(Duration::from_mins(1)).await;
        let asked = Instant::now();
        running.stop().await.expect("it stops when asked");
        assert!(
            asked.elapsed() < Duration::from_millis(10),
            "{:?}",
            asked.elapsed()
        );
    }
}

/// Whoever keeps a context, and with it listers, keeps what was read, not the watch.
#[tokio::test(start_paused = true)]
async fn a_context_that_is_kept_does_not_keep_the_watch() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let reconciler = noting(&log, move |_, ctx| {
        *keep.lock() = Some(ctx);
        std::future::ready(Ok(Action::done()))
    });
    let manager = Manager::new(server.client()).controller(controller().reconcile(reconciler));
    manager.run_until(settle()).await.expect("it stops when asked");
    assert_eq!(server.watches(), 0);
    let ctx = kept.lock().take().expect("it ran");
    assert!(ctx.lister::<ConfigMap>().is_ok_and(|lister| lister.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_manager_leaves_nothing_behind() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let stuck = noting(&log, |_, _| std::future::pending());
    let before = alive_tasks();
    let manager = Manager::new(server.client()).controller(controller().reconcile(stuck));
    let ran = tokio::time::timeout(Duration::from_secs(1), manager.run_until(std::future::pending())).await;
    assert!(ran.is_err());
    assert_eq!(*log.lock(), ["a"]);
    settle().await;
    assert_eq!(server.watches(), 0);
    assert_eq!(alive_tasks(), before);
}

/// 154.
#[tokio::test(start_paused = true)]
async fn a_controller_that_fails_stops_the_others_and_is_the_error() {
    let (server, log) = (server(), Log::default());
    let broken = Controller::<ConfigMap>::new("broken")
        .watches::<Secret>(|_| panic!("deliberate"))
        .reconcile(noting(&log, done));
    let well = Controller::<Deployment>::new("well").reconcile(noting(&log, done));
    let manager = Manager::new(server.client()).controller(well).controller(broken);
    let running = tokio::spawn(manager.run_until(std::future::pending()));
    settle().await;
    server.put(SECRETS, json!({ "metadata": { "namespace": "n", "name": "s" } }));
    let error = running
        .await
        .expect("the manager does not panic")
        .expect_err("a controller failed");
    let expected = "controller `broken` failed: the mapping from a change to objects panicked: deliberate";
    assert_eq!(error.to_string(), expected);
    assert_eq!(server.watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_fails_on_what_is_there_at_the_start_is_the_error_too() {
    let (server, log) = (server(), Log::default());
    server.put(SECRETS, json!({ "metadata": { "namespace": "n", "name": "s" } }));
    let broken = controller()
        .watches::<Secret>(|_| panic!("deliberate"))
        .reconcile(noting(&log, done));
    let (running, _) = run(&server, broken);
    settle().await;
    let error = running.stop().await.expect_err("a controller failed");
    assert!(matches!(error, ManagerError::Controller { controller, .. } if controller == "test"));
}

/// 140.
#[tokio::test(start_paused = true)]
async fn two_controllers_of_one_name_are_refused() {
    let (server, log) = (server(), Log::default());
    let twin = || controller().reconcile(noting(&log, done));
    let manager = Manager::new(server.client())
        .controller(twin())
        .controller(twin());
    let error = manager
        .run_until(std::future::pending())
        .await
        .expect_err("they cannot be told apart");
    assert!(matches!(error, ManagerError::DuplicateName(name) if name == "test"));
    assert!(server.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_manager_with_nothing_to_run_waits_to_be_stopped() {
    let running = Running::start(Manager::new(server().client()));
    tokio::time::sleep(Duration::from_mins(1)).await;
    running.stop().await.expect("it stops when asked");
}

#[tokio::test(start_paused = true)]
async fn a_controller_can_be_stopped_and_another_of_its_name_run() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    for runs in 1..3 {
        let again = noting(&log, |_, _| async {
            Ok(Action::requeue_after(Duration::from_secs(1)))
        });
        let (running, _) = run(&server, controller().reconcile(again));
        settle().await;
        running.stop().await.expect("it stops when asked");
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(log.lock().len(), runs, "no delayed work outlives its manager");
    }
}

/// What controllers hand things to is there before them and after them.
#[tokio::test(start_paused = true)]
async fn a_service_runs_before_caches_are_complete_and_until_reconciles_have_ended() {
    let (server, log) = (server(), Log::default());
    server.uninstall(CONFIG_MAPS);
    let noted = Arc::clone(&log);
    let slow = noting(&log, move |_, _| {
        let noted = Arc::clone(&noted);
        async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            noted.lock().push("reconciled".to_owned());
            Ok(Action::done())
        }
    });
    let told = Arc::clone(&log);
    let manager = Manager::new(server.client())
        .controller(controller().reconcile(slow))
        .service("listener", move |ctx| {
            let told = Arc::clone(&told);
            async move {
                told.lock().push("listening".to_owned());
                ctx.stopping().await;
                told.lock().push("stopping".to_owned());
                Ok(())
            }
        });
    let running = Running::start(manager);
    settle().await;
    assert_eq!(*log.lock(), ["listening"]);
    server.install(CONFIG_MAPS);
    server.put(CONFIG_MAPS, config_map("a", "1"));
    tokio::time::sleep(Duration::from_mins(1)).await;
    server.put(CONFIG_MAPS, config_map("b", "1"));
    settle().await;
    running.stop().await.expect("it stops when asked");
    assert_eq!(
        *log.lock(),
        ["listening", "a", "reconciled", "b", "reconciled", "stopping"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_stops_the_manager_and_one_that_does_not_stop_is_named() {
    let server = server();
    let failing = Manager::new(server.client()).service("listener", |_| async { Err("deaf".into()) });
    let error = failing.run_until(std::future::pending()).await;
    assert_eq!(
        error.expect_err("it failed").to_string(),
        "task `listener` failed: deaf"
    );
    let deaf = Manager::new(server.client()).service("listener", |_| std::future::pending());
    let running = Running::start(deaf);
    settle().await;
    let late = running.stop().await.expect_err("it does not stop");
    assert!(
        matches!(&late, ManagerError::Grace { parts, .. } if *parts == ["listener"]),
        "{late}"
    );
}
