//! A manager from start to stop: shared watches, failures, and that no task outlives it.

use crate::harness;
use crate::model;

use std::{sync::Arc, time::Duration};

use harness::{Log, Running, SECRETS, controller, done, recording, run, server, settle};
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
    let first = Controller::<ConfigMap>::new("first").reconcile(recording(&log, done));
    let second = Controller::<Secret>::new("second")
        .reads::<ConfigMap>()
        .reconcile(recording(&log, done));
    let third = Controller::<ConfigMap>::new("third").reconcile(recording(&log, done));
    let manager = Manager::new(server.client())
        .controller(first)
        .controller(second)
        .controller(third);
    let running = Running::start(manager);
    settle().await;
    assert_eq!(*log.lock(), ["a", "a"]);
    assert_eq!(server.watches(), 2);
    running.stop().await.expect("stops cleanly");
    assert_eq!(server.watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn manager_can_be_limited_to_one_namespace() {
    let log = Log::default();
    let (one, nodes) = ("/api/v1/namespaces/n/configmaps", "/api/v1/nodes");
    let server = Server::with(&[one, nodes]);
    server.put(one, config_map("a", "1"));
    let controller = controller().reads::<Node>().reconcile(recording(&log, done));
    let running = Running::start(
        Manager::new(server.client())
            .controller(controller)
            .namespace("n"),
    );
    settle().await;
    assert_eq!(*log.lock(), ["a"]);
    running.stop().await.expect("stops cleanly");
}

/// On stop, running reconciles finish, queued keys are not started, and no task is left.
#[tokio::test(start_paused = true)]
async fn stop_waits_for_running_reconciles_and_starts_none() {
    let (server, log) = (server(), Log::default());
    for name in ["a", "b"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let slow = recording(&log, |_, _| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok(Action::done())
    });
    let before = alive_tasks();
    let slow = controller().owns::<Deployment>().reconcile(slow);
    let outcomes = slow.outcomes();
    let manager = Manager::new(server.client())
        .controller(slow)
        .grace_period(Duration::from_mins(5));
    let running = Running::start(manager);
    settle().await;
    let started = Instant::now();
    running.stop().await.expect("stops cleanly");
    assert!(started.elapsed() > Duration::from_secs(50), "it waited");
    assert_eq!((&**log.lock(), outcomes.done()), (&["a".to_owned()][..], 1));
    assert_eq!(server.watches(), 0);
    settle().await;
    assert_eq!(alive_tasks(), before);
}

/// The error names what was cancelled. No task is left either way.
#[tokio::test(start_paused = true)]
async fn reconcile_that_exceeds_the_grace_period_is_cancelled_and_named() {
    for grace in [Duration::ZERO, Duration::from_secs(30)] {
        let (server, log) = (server(), Log::default());
        server.put(CONFIG_MAPS, config_map("a", "1"));
        let stuck = controller().reconcile(recording(&log, |_, _| std::future::pending()));
        let before = alive_tasks();
        let manager = Manager::new(server.client())
            .controller(stuck)
            .task("also-stuck", |_| std::future::pending())
            .task("well", |ctx| async move {
                ctx.stopping().await;
                Ok(())
            })
            .grace_period(grace);
        let running = Running::start(manager);
        settle().await;
        let asked = Instant::now();
        let error = running.stop().await.expect_err("the grace period was exceeded");
        assert_eq!(asked.elapsed().as_secs(), grace.as_secs());
        let ManagerError::GracePeriodExceeded { parts, .. } = &error else {
            panic!("{error}")
        };
        assert!(parts.contains(&"test".to_owned()) && parts.contains(&"also-stuck".to_owned()));
        assert!(grace.is_zero() || !parts.contains(&"well".to_owned()));
        settle().await;
        assert_eq!((alive_tasks(), server.watches()), (before, 0));
    }
}

/// A reconcile that runs during the stop continues, and can see that it should finish.
#[tokio::test(start_paused = true)]
async fn reconcile_can_see_that_it_should_finish() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let patient = recording(&log, |_, ctx| async move {
        assert!(!ctx.is_stopping());
        ctx.stopping().await;
        assert!(ctx.is_stopping());
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(Action::done())
    });
    let (running, outcomes) = run(&server, controller().reconcile(patient));
    settle().await;
    running.stop().await.expect("stops cleanly");
    assert_eq!(outcomes.done(), 1);
}

#[tokio::test(start_paused = true)]
async fn task_starts_after_the_caches_have_synced() {
    let (server, log) = (server(), Log::default());
    server.set_unresponsive(true);
    let started = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&started);
    let manager = Manager::new(server.client())
        .controller(controller().reconcile(recording(&log, done)))
        .task("beside", move |ctx| {
            *noted.lock() = Some(ctx.caches().reports().len());
            std::future::ready(Ok(()))
        });
    let running = Running::start(manager);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(*started.lock(), None);
    server.set_unresponsive(false);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(*started.lock(), Some(1));
    running
        .stop()
        .await
        .expect("a task that succeeded does not stop the manager");
}

#[tokio::test(start_paused = true)]
async fn failed_task_stops_the_manager_and_is_its_error() {
    for (panics, expected) in [
        (false, "task `beside` failed: deliberate"),
        (true, "`beside` panicked: deliberate"),
    ] {
        let (server, log) = (server(), Log::default());
        let manager = Manager::new(server.client())
            .controller(controller().reconcile(recording(&log, done)))
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

#[tokio::test(start_paused = true)]
async fn sync_timeout_is_an_error() {
    let (server, log) = (server(), Log::default());
    server.uninstall(CONFIG_MAPS);
    let impatient = controller()
        .sync_timeout(Duration::from_mins(2))
        .reconcile(recording(&log, done));
    let started = Instant::now();
    let manager = Manager::new(server.client()).controller(impatient);
    let error = manager
        .run_until(std::future::pending())
        .await
        .expect_err("the sync timed out");
    assert_eq!(started.elapsed().as_secs(), 120);
    assert!(error.to_string().contains("controller `test` failed"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn controller_name_must_be_a_valid_label_value() {
    for name in ["", "a b", "-a", "a/b", &"a".repeat(64)] {
        let (server, log) = (server(), Log::default());
        let misnamed = Controller::<ConfigMap>::new(name).reconcile(recording(&log, done));
        let refused = Manager::new(server.client())
            .controller(misnamed)
            .run_until(std::future::pending())
            .await;
        assert!(matches!(refused, Err(ManagerError::InvalidName(_))), "{name:?}");
    }
}

/// A known defect of kube-rs: a stop before the first sync must not hang, whether the server rejects or does not answer.
#[tokio::test(start_paused = true)]
async fn stop_before_the_first_sync_is_quick() {
    for hangs in [true, false] {
        let (server, log) = (server(), Log::default());
        server.uninstall(CONFIG_MAPS);
        server.set_unresponsive(hangs);
        let (running, _) = run(&server, controller().reconcile(recording(&log, done)));
        tokio::time::sleep(Duration::from_mins(1)).await;
        let asked = Instant::now();
        running.stop().await.expect("stops cleanly");
        assert!(
            asked.elapsed() < Duration::from_millis(10),
            "{:?}",
            asked.elapsed()
        );
    }
}

/// A kept context, and with it its listers, keeps cached data but not the watch.
#[tokio::test(start_paused = true)]
async fn kept_context_does_not_keep_the_watch() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let reconciler = recording(&log, move |_, ctx| {
        *keep.lock() = Some(ctx);
        std::future::ready(Ok(Action::done()))
    });
    let manager = Manager::new(server.client()).controller(controller().reconcile(reconciler));
    manager.run_until(settle()).await.expect("stops cleanly");
    assert_eq!(server.watches(), 0);
    let ctx = kept.lock().take().expect("it ran");
    assert!(ctx.lister::<ConfigMap>().is_ok_and(|lister| lister.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn dropped_manager_leaves_no_tasks() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let stuck = recording(&log, |_, _| std::future::pending());
    let before = alive_tasks();
    let manager = Manager::new(server.client()).controller(controller().reconcile(stuck));
    let ran = tokio::time::timeout(Duration::from_secs(1), manager.run_until(std::future::pending())).await;
    assert!(ran.is_err());
    assert_eq!(*log.lock(), ["a"]);
    settle().await;
    assert_eq!(server.watches(), 0);
    assert_eq!(alive_tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn failed_controller_stops_the_manager_and_is_its_error() {
    let (server, log) = (server(), Log::default());
    let broken = Controller::<ConfigMap>::new("broken")
        .watches::<Secret>(|_| panic!("deliberate"))
        .reconcile(recording(&log, done));
    let well = Controller::<Deployment>::new("well").reconcile(recording(&log, done));
    let manager = Manager::new(server.client()).controller(well).controller(broken);
    let running = tokio::spawn(manager.run_until(std::future::pending()));
    settle().await;
    server.put(SECRETS, json!({ "metadata": { "namespace": "n", "name": "s" } }));
    let error = running
        .await
        .expect("the manager does not panic")
        .expect_err("a controller failed");
    let expected = "controller `broken` failed: mapping a change to keys panicked: deliberate";
    assert_eq!(error.to_string(), expected);
    assert_eq!(server.watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn mapping_that_panics_on_initial_objects_is_the_error() {
    let (server, log) = (server(), Log::default());
    server.put(SECRETS, json!({ "metadata": { "namespace": "n", "name": "s" } }));
    let broken = controller()
        .watches::<Secret>(|_| panic!("deliberate"))
        .reconcile(recording(&log, done));
    let (running, _) = run(&server, broken);
    settle().await;
    let error = running.stop().await.expect_err("a controller failed");
    assert!(matches!(error, ManagerError::Controller { controller, .. } if controller == "test"));
}

#[tokio::test(start_paused = true)]
async fn duplicate_controller_names_are_rejected() {
    let (server, log) = (server(), Log::default());
    let twin = || controller().reconcile(recording(&log, done));
    let manager = Manager::new(server.client())
        .controller(twin())
        .controller(twin());
    let error = manager
        .run_until(std::future::pending())
        .await
        .expect_err("duplicate name");
    assert!(matches!(error, ManagerError::DuplicateName(name) if name == "test"));
    assert!(server.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn manager_without_controllers_runs_until_stopped() {
    let running = Running::start(Manager::new(server().client()));
    tokio::time::sleep(Duration::from_mins(1)).await;
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn controller_can_be_stopped_and_run_again_with_the_same_name() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    for runs in 1..3 {
        let again = recording(&log, |_, _| async {
            Ok(Action::requeue_after(Duration::from_secs(1)))
        });
        let (running, _) = run(&server, controller().reconcile(again));
        settle().await;
        running.stop().await.expect("stops cleanly");
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(log.lock().len(), runs, "no delayed work outlives its manager");
    }
}

/// A service that controllers depend on starts before them and ends after them.
#[tokio::test(start_paused = true)]
async fn service_runs_from_before_the_sync_until_reconciles_have_ended() {
    let (server, log) = (server(), Log::default());
    server.uninstall(CONFIG_MAPS);
    let noted = Arc::clone(&log);
    let slow = recording(&log, move |_, _| {
        let noted = Arc::clone(&noted);
        async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            noted.lock().push("reconciled".to_owned());
            Ok(Action::done())
        }
    });
    let service_log = Arc::clone(&log);
    let manager = Manager::new(server.client())
        .controller(controller().reconcile(slow))
        .service("listener", move |ctx| {
            let service_log = Arc::clone(&service_log);
            async move {
                service_log.lock().push("listening".to_owned());
                ctx.stopping().await;
                service_log.lock().push("stopping".to_owned());
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
    running.stop().await.expect("stops cleanly");
    assert_eq!(
        *log.lock(),
        ["listening", "a", "reconciled", "b", "reconciled", "stopping"]
    );
}

#[tokio::test(start_paused = true)]
async fn failed_service_stops_the_manager_and_a_hanging_one_is_named() {
    let server = server();
    let failing = Manager::new(server.client()).service("listener", |_| async { Err("deaf".into()) });
    let error = failing.run_until(std::future::pending()).await;
    assert_eq!(
        error.expect_err("the service failed").to_string(),
        "task `listener` failed: deaf"
    );
    let unresponsive = Manager::new(server.client()).service("listener", |_| std::future::pending());
    let running = Running::start(unresponsive);
    settle().await;
    let late = running.stop().await.expect_err("the service does not stop");
    assert!(
        matches!(&late, ManagerError::GracePeriodExceeded { parts, .. } if *parts == ["listener"]),
        "{late}"
    );
}
