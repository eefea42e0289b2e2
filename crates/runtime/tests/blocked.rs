//! Controllers that cannot start because something is missing.

use crate::harness;
use crate::model;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use harness::{Log, Running, SECRETS, controller, done, recording, server};
use k8s_openapi::api::core::v1::Secret;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use model::{CONFIG_MAPS, Server, config_map};
use serde_json::json;
use windlass_runtime::{
    Controller, CrdInstaller, ElectionConfig, Manager, ManagerError, OnBlocked, SourceContext, SourceEvent,
    Watch, serving::ControllerState,
};

/// A controller of config maps, which runs, one of secrets, whose kind is missing, and a task.
fn manager(server: &Server, log: &Log, policy: OnBlocked) -> (Manager, Arc<AtomicBool>) {
    server.put(CONFIG_MAPS, config_map("a", "1"));
    server.uninstall(SECRETS);
    let started = Arc::new(AtomicBool::new(false));
    let task = Arc::clone(&started);
    let secrets = Controller::<Secret>::new("secrets").reconcile(recording(log, done));
    let manager = Manager::new(server.client())
        .controller(controller().reconcile(recording(log, done)))
        .controller(secrets)
        .task("task", |_| async move {
            task.store(true, Ordering::Relaxed);
            Ok(())
        })
        .on_blocked(policy);
    (manager, started)
}

#[tokio::test(start_paused = true)]
async fn blocked_controller_does_not_hold_the_others() {
    let (server, log) = (server(), Log::default());
    let (manager, task) = manager(&server, &log, OnBlocked::default());
    let controllers = manager.controllers();
    let running = Running::start(manager);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(*log.lock(), ["a"]);
    assert!(task.load(Ordering::Relaxed), "tasks start without it");
    let status = controllers.status();
    assert_eq!(
        status[0].state,
        ControllerState::Syncing {
            waiting_for: vec!["Secret".to_owned()],
            blocked_by: Some("the server does not serve secrets: install it".to_owned()),
        }
    );
    assert_eq!(status[1].state, ControllerState::Running);

    server.install(SECRETS);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(controllers.status()[0].state, ControllerState::Running);
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn manager_can_wait_for_a_blocked_controller() {
    let (server, log) = (server(), Log::default());
    let (manager, task) = manager(&server, &log, OnBlocked::Wait);
    let running = Running::start(manager);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(!task.load(Ordering::Relaxed));
    server.install(SECRETS);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(task.load(Ordering::Relaxed));
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn manager_can_fail_because_of_a_blocked_controller() {
    let (server, log) = (server(), Log::default());
    let (manager, _) = manager(&server, &log, OnBlocked::Fail);
    let error = manager
        .run_until(std::future::pending())
        .await
        .expect_err("a kind is missing");
    assert!(matches!(error, ManagerError::Blocked(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        "cannot start: controller `secrets`: the server does not serve secrets: install it"
    );
}

/// The election waits for the controllers, but not longer than the manager.
#[tokio::test(start_paused = true)]
async fn stop_before_the_election_is_quick() {
    let (server, log) = (server(), Log::default());
    let (manager, _) = manager(&server, &log, OnBlocked::Wait);
    let running = Running::start(manager.elect(ElectionConfig::new("test").namespace("n")));
    tokio::time::sleep(Duration::from_mins(1)).await;
    let stopped = tokio::time::timeout(Duration::from_secs(5), running.stop()).await;
    stopped.expect("it stops in time").expect("stops cleanly");
}

/// A server that is down is not a missing kind: nothing but time helps.
#[tokio::test(start_paused = true)]
async fn silent_server_does_not_block() {
    let (server, log) = (server(), Log::default());
    let (manager, task) = manager(&server, &log, OnBlocked::Fail);
    server.install(SECRETS);
    server.set_unresponsive(true);
    let running = Running::start(manager);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!task.load(Ordering::Relaxed));
    server.set_unresponsive(false);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(task.load(Ordering::Relaxed));
    running.stop().await.expect("stops cleanly");
}

/// Without `--install`, the CRDs of a program are not awaited before all controllers.
#[tokio::test(start_paused = true)]
async fn missing_crd_of_the_program_does_not_hold_the_others() {
    let (server, log) = (server(), Log::default());
    let (manager, task) = manager(&server, &log, OnBlocked::default());
    server.install(SECRETS);
    let crd = json!({
        "metadata": { "name": "gadgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [{ "name": "v1", "served": true, "storage": true }],
            "names": { "plural": "gadgets", "kind": "Gadget" },
        },
    });
    let crd = serde_json::from_value(crd).expect("a CRD");
    let gadgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Gadget"));
    let gadgets = Controller::from_watch("gadgets", Watch::<DynamicObject>::dynamic(gadgets));
    let manager = manager
        .install(CrdInstaller::new([crd]))
        .controller(gadgets.reconcile(recording(&log, done)));
    let controllers = manager.controllers();
    let running = Running::start(manager);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(*log.lock(), ["a"]);
    assert!(task.load(Ordering::Relaxed), "tasks start without it");
    tokio::time::sleep(Duration::from_mins(10)).await;
    let missing = "the CRD gadgets.example.com is not installed, or does not serve v1: start with --install, or apply its \
                   manifest with kubectl";
    assert_eq!(
        controllers.status()[0].state,
        ControllerState::Syncing {
            waiting_for: vec!["Gadget".to_owned()],
            blocked_by: Some(missing.to_owned()),
        }
    );
    server.install("/apis/example.com/v1/gadgets");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(controllers.status()[0].state, ControllerState::Running);
    running.stop().await.expect("stops cleanly");
}

/// A conversion webhook or an aggregated API that is down: the server is well, but not the kind.
#[tokio::test(start_paused = true)]
async fn kind_that_answers_with_errors_blocks_after_some_seconds() {
    for (code, message) in [(500, "status 500"), (503, "status 503")] {
        let (server, log) = (server(), Log::default());
        let (manager, task) = manager(&server, &log, OnBlocked::default());
        server.install(SECRETS);
        server.break_kind(SECRETS, code);
        let controllers = manager.controllers();
        let running = Running::start(manager);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!task.load(Ordering::Relaxed), "it may pass");
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert!(task.load(Ordering::Relaxed), "tasks start without it");
        assert_eq!(
            controllers.status()[0].state,
            ControllerState::Syncing {
                waiting_for: vec!["Secret".to_owned()],
                blocked_by: Some(format!("cannot list secrets: {message}")),
            }
        );
        server.repair(SECRETS);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(controllers.status()[0].state, ControllerState::Running);
        running.stop().await.expect("stops cleanly");
    }
}

#[tokio::test(start_paused = true)]
async fn manager_can_fail_because_of_a_kind_that_answers_with_errors() {
    let (server, log) = (server(), Log::default());
    let (manager, _) = manager(&server, &log, OnBlocked::Fail);
    server.install(SECRETS);
    server.break_kind(SECRETS, 503);
    let error = manager.run_until(std::future::pending()).await;
    let error = error.expect_err("a kind is broken").to_string();
    assert_eq!(
        error,
        "cannot start: controller `secrets`: cannot list secrets: status 503"
    );
}

/// If the server itself is not ready, all controllers wait for the same.
#[tokio::test(start_paused = true)]
async fn errors_of_a_server_that_is_not_ready_block_nothing() {
    let (server, log) = (server(), Log::default());
    let (manager, task) = manager(&server, &log, OnBlocked::Fail);
    server.install(SECRETS);
    for path in [SECRETS, CONFIG_MAPS, "/readyz"] {
        server.break_kind(path, 500);
    }
    let running = Running::start(manager);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(!task.load(Ordering::Relaxed));
    for path in [SECRETS, CONFIG_MAPS, "/readyz"] {
        server.repair(path);
    }
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(task.load(Ordering::Relaxed));
    running.stop().await.expect("stops cleanly");
}

/// A custom source waits for caches of its own.
#[tokio::test(start_paused = true)]
async fn missing_kind_of_a_custom_source_does_not_hold_the_others() {
    let (server, log) = (server(), Log::default());
    let (manager, task) = manager(&server, &log, OnBlocked::default());
    let rooms = Controller::keyed("rooms").source(|source: SourceContext| async move {
        let secrets = source.caches().get::<Secret>(source.scope());
        let ready = source.clone();
        let mut watch = source.watch(&secrets, move |event| {
            if matches!(event, SourceEvent::Synced) {
                ready.mark_ready();
            }
        });
        watch.ended().await;
        Ok(())
    });
    let manager = manager.controller(rooms.reconcile(recording(&log, done)));
    let controllers = manager.controllers();
    let running = Running::start(manager);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        controllers.status()[0].state,
        ControllerState::Syncing {
            waiting_for: vec!["a custom source".to_owned()],
            blocked_by: Some("the server does not serve secrets: install it".to_owned()),
        }
    );
    assert!(task.load(Ordering::Relaxed), "tasks start without it");
    server.install(SECRETS);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(controllers.status()[0].state, ControllerState::Running);
    running.stop().await.expect("stops cleanly");
}
