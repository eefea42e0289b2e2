//! Log lines of a process. In a process of its own, because it sets the global subscriber.

mod harness;
mod lines;
#[path = "../../cache/tests/model/mod.rs"]
mod model;

use std::{sync::Arc, time::Duration};

use harness::{Log, SECRETS, controller, done, recording, run, server, settle};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use lines::Lines;
use model::{CONFIG_MAPS, RequestType, config_map};
use parking_lot::Mutex;
use windlass_runtime::{Action, ChildRef, Context, Desired, Election, ElectionConfig, Error, Request};

#[tokio::test(start_paused = true)]
async fn log_lines_of_a_reconcile_have_its_id_and_trigger() {
    let (lines, _guard) = Lines::start();
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let ids = Arc::new(Mutex::new(Vec::new()));
    let ids_by_it = Arc::clone(&ids);
    let reconciler = move |_: Request, ctx: Context| {
        ids_by_it.lock().push(ctx.id().to_string());
        async move {
            tracing::info!("inside");
            Err::<Action, _>(Error::terminal("outcome"))
        }
    };
    let (running, _) = run(&server, controller().reconcile(reconciler));
    settle().await;
    running.stop().await.expect("stops cleanly");
    let id = ids.lock()[0].clone();
    for word in ["inside", "outcome"] {
        let [line] = &lines.with(word)[..] else {
            panic!("one line with {word}: {lines:?}", lines = lines.with(""))
        };
        for field in [&format!("id={id}"), "object=n/a", "trigger=start"] {
            assert!(line.contains(field), "{line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failure_is_one_line_with_numbers_as_numbers() {
    let (lines, _guard) = Lines::start();
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let failing = |_: Request, _: Context| async { Err::<Action, _>(Error::from("broken")) };
    let (running, outcomes) = run(&server, controller().reconcile(failing));
    tokio::time::sleep(Duration::from_mins(1)).await;
    running.stop().await.expect("stops cleanly");
    let failures = lines.with("broken");
    assert_eq!(failures.len() as u64, outcomes.failed());
    assert!(
        failures[0].contains("failures=1") && failures[0].contains("retry_after=0.005"),
        "{}",
        failures[0]
    );
}

/// The lease is tried every two seconds.
#[tokio::test(start_paused = true)]
async fn forbidden_lease_is_logged_at_once_and_at_growing_intervals() {
    let (lines, _guard) = Lines::start();
    let forbid = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": "leases is forbidden: no such right",
        });
        let response = http::Response::builder().status(403);
        Ok::<_, std::convert::Infallible>(
            response
                .body(kube::client::Body::from(status.to_string().into_bytes()))
                .expect("a response"),
        )
    });
    let client = kube::Client::new(forbid, "default");
    let election = Election::new(client, ElectionConfig::new("test")).expect("a valid configuration");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(election.run_until(
        async move {
            let _ = stopped.await;
        },
        async {},
    ));
    let mut counts = Vec::new();
    // The attempts have some jitter: lines are due after 10, 30 and 70 seconds, and written with the next one.
    for seconds in [5, 12, 30, 60] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        counts.push(lines.with("access to the lease is forbidden").len());
    }
    assert_eq!(counts, [1, 2, 3, 4]);
    let line = lines.with("access to the lease").pop().expect("a line");
    assert!(
        line.contains("error=\"leases is forbidden: no such right\""),
        "{line}"
    );
    drop(stop);
    running.await.expect("ends").expect("stops");
}

/// Only requests to the API server are in the log of its connection.
#[tokio::test(start_paused = true)]
async fn failed_io_of_the_author_is_logged() {
    let (lines, _guard) = Lines::start();
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let failing = |_: Request, _: Context| async {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "the data service is down");
        Err::<Action, _>(Error::from(refused))
    };
    let (running, outcomes) = run(&server, controller().reconcile(failing));
    tokio::time::sleep(Duration::from_mins(1)).await;
    running.stop().await.expect("stops cleanly");
    assert!(outcomes.failed() > 0);
    assert_eq!(lines.with(" WARN reconcile").len() as u64, outcomes.failed());
}

#[tokio::test(start_paused = true)]
async fn failed_children_are_one_line_too() {
    let (lines, _guard) = Lines::start();
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let failing = |_: Arc<ConfigMap>, _: Context| async {
        let secret = |name: &str| {
            let mut secret = Secret::default();
            secret.metadata.name = Some(name.to_owned());
            secret
        };
        // Names that are rejected without a request, and a child that waits for one of them.
        let desired = Desired::new()
            .child(secret("Not_Valid!"))
            .child(secret("Nor this"));
        let after = ChildRef::of::<Secret>("Not_Valid!");
        Ok(desired.child(secret("waits")).after([after]))
    };
    let controller = controller().owns::<Secret>().declare(failing);
    let (running, outcomes) = run(&server, controller);
    tokio::time::sleep(Duration::from_secs(10)).await;
    running.stop().await.expect("stops cleanly");
    let failures = outcomes.failed() + outcomes.terminal();
    assert!(failures > 0);
    let problems: Vec<_> = [" WARN reconcile", "ERROR reconcile"]
        .iter()
        .flat_map(|start| lines.with(start))
        .collect();
    assert_eq!(problems.len() as u64, failures, "{problems:#?}");
}

/// The list succeeds, so the controller runs, and polls. The log names the missing right at once, and then less and less often.
#[tokio::test(start_paused = true)]
async fn forbidden_watch_is_logged_at_once_and_at_growing_intervals() {
    let (lines, _guard) = Lines::start();
    let server = server();
    for _ in 0..1000 {
        server.fail_next(RequestType::Watch, 403);
    }
    let controller = controller().reconcile(recording(&Log::default(), done));
    let (running, _) = run(&server, controller);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(lines.with("cannot follow").len(), 1);
    tokio::time::sleep(Duration::from_mins(10)).await;
    let all = lines.with("cannot follow");
    assert!((4..=6).contains(&all.len()), "{all:#?}");
    let fix = "add to the rules of its ClusterRole: [{apiGroups: [\"\"], resources: [configmaps], verbs: [list, watch]}]";
    for line in all {
        // As text, quotes in a field are escaped.
        assert!(line.replace('\\', "").contains(fix), "{line}");
    }
    running.stop().await.expect("stops cleanly");
}

/// At once, then after 10, 20 and 40 seconds; the missing kind and the fix are in each line.
#[tokio::test(start_paused = true)]
async fn wait_for_a_missing_kind_is_logged_at_once_and_at_growing_intervals() {
    let (lines, _guard) = Lines::start();
    let server = server();
    server.uninstall(SECRETS);
    let controller = controller()
        .reads::<Secret>()
        .reconcile(recording(&Log::default(), done));
    let (running, _) = run(&server, controller);
    let counts = async |seconds| {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        lines.with("waiting to start").len()
    };
    assert_eq!(counts(2).await, 1);
    assert_eq!(counts(10).await, 2);
    assert_eq!(counts(17).await, 2);
    assert_eq!(counts(3).await, 3);
    assert_eq!(counts(38).await, 3);
    assert_eq!(counts(2).await, 4);
    let line = lines.with("waiting to start").pop().expect("a line");
    assert!(
        line.contains("controller `test`: the server does not serve secrets: install it"),
        "{line}"
    );
    assert_eq!(
        lines.with("cannot follow").len(),
        0,
        "the cache does not repeat it"
    );
    running.stop().await.expect("stops cleanly");
}
