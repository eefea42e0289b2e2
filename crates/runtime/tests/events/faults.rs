//! Event writes to a server that rejects, hangs, loses events or is unreachable.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::DeleteParams};
use serde_json::json;
use tokio::time::Instant;
use windlass_runtime::events::DropReason;

use crate::events::recorded_server::{Fault, RecordedServer, Running, config_map, failure, seconds, settle};

fn terminating() -> Fault {
    Fault::Answers(json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "forbidden: unable to create new content in namespace default because it is being terminated",
        "details": {"causes": [{"reason": "NamespaceTerminating", "message": "it is being terminated"}]},
    }))
}

#[tokio::test(start_paused = true)]
async fn request_is_attempted_twelve_times_unless_the_server_rejects_it() {
    let table = [
        ("no connection", Fault::NoConnection, 12),
        ("no answer", Fault::Hangs, 12),
        ("an error of the server", failure(500, "InternalError"), 12),
        ("a proxy without a server", failure(503, "ServiceUnavailable"), 12),
        ("too many requests", failure(429, "TooManyRequests"), 12),
        ("already there", failure(409, "AlreadyExists"), 1),
        ("namespace goes away", terminating(), 1),
        ("namespace is gone", failure(404, "NotFound"), 1),
        ("invalid", failure(422, "Invalid"), 1),
        ("no right", failure(403, "Forbidden"), 1),
    ];
    for (what, fault, tries) in table {
        let server = RecordedServer::new();
        server.fault(move |_| fault.clone());
        let running = Running::start(&server);
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        seconds(3600).await;
        assert_eq!(server.sent().len(), tries, "{what}");
        assert_eq!(
            (running.counts().written(), running.counts().failed),
            (0, 1),
            "{what}"
        );

        // A failed event does not affect the next.
        server.fault(|_| Fault::None);
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        settle().await;
        assert_eq!(running.counts().created, 1, "{what}");
        running.stop().await;
    }
}

/// It succeeds eventually, with events recorded meanwhile counted.
#[tokio::test(start_paused = true)]
async fn retries_are_ten_seconds_apart_and_send_the_current_count() {
    let server = RecordedServer::new();
    let mut left = 2;
    server.fault(move |_| match left {
        0 => Fault::None,
        _ => {
            left -= 1;
            Fault::NoConnection
        }
    });
    let running = Running::start(&server);
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    seconds(5).await;
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    seconds(60).await;
    let sent = server.sent();
    assert_eq!(server.methods(), ["POST", "POST", "POST"]);
    for pair in sent.windows(2) {
        let pause = pair[1].at - pair[0].at;
        let expected = Duration::from_secs(10)..Duration::from_millis(12_502);
        assert!(expected.contains(&pause), "{pause:?}");
    }
    assert_eq!(sent[2].body["count"], 2);
    assert_eq!((running.counts().created, running.counts().failed), (1, 0));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn expired_event_is_created_again_with_its_count() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    settle().await;
    let events = Api::<Event>::default_namespaced(Client::new(server.inner.clone(), "default"));
    let name = server.events("default").await[0].metadata.name.clone();
    let (name, params) = (name.expect("is set"), DeleteParams::default());
    events.delete(&name, &params).await.expect("exists");
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    settle().await;
    assert_eq!(server.methods(), ["POST", "PATCH", "POST"]);
    assert_eq!(server.events("default").await[0].count, Some(2));
    // Then it is patched again.
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    settle().await;
    assert_eq!(server.methods().len(), 4);
    assert_eq!(server.events("default").await[0].count, Some(3));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_response_creates_no_second_event() {
    let server = RecordedServer::new();
    let mut lost = false;
    server.fault(move |_| {
        if std::mem::replace(&mut lost, true) {
            Fault::None
        } else {
            Fault::LosesAnswer
        }
    });
    let running = Running::start(&server);
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    seconds(20).await;
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    settle().await;
    assert_eq!(server.methods(), ["POST", "POST", "PATCH"]);
    let events = server.events("default").await;
    assert_eq!(
        events.iter().map(|event| event.count).collect::<Vec<_>>(),
        [Some(2)]
    );
    assert_eq!(running.counts().failed, 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hanging_namespace_does_not_block_another() {
    let server = RecordedServer::new();
    server.fault(|sent| {
        if sent.path.contains("/bad/") {
            Fault::Hangs
        } else {
            Fault::None
        }
    });
    let running = Running::start(&server);
    for n in 0..50 {
        let mut bad = config_map(&format!("bad-{n}"));
        bad.metadata.namespace = Some("bad".to_owned());
        running.recorder.normal(&bad, "Synced", "it works");
    }
    // By now each was attempted, four at a time for ten seconds each, and most wait for a retry.
    seconds(200).await;
    let (started, before) = (Instant::now(), server.sent().len());
    running.recorder.normal(&config_map("good"), "Synced", "it works");
    while server.events("default").await.is_empty() {
        seconds(1).await;
    }
    assert!(
        started.elapsed() <= Duration::from_secs(11),
        "{:?}",
        started.elapsed()
    );
    assert!(before > 50, "some of the bad ones are due again: {before}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_bounds_memory_and_gets_kept_events_later() {
    let server = RecordedServer::new();
    server.fault(|_| Fault::Hangs);
    let running = Running::start(&server);
    for n in 0..1500 {
        running
            .recorder
            .normal(&config_map(&format!("a-{n}")), "Synced", "it works");
    }
    assert_eq!(running.counts().dropped(DropReason::QueueFull), 500);
    // Four requests at a time.
    settle().await;
    assert_eq!(server.sent().len(), 4);

    // The server comes back, and the kept events are written.
    server.fault(|_| Fault::None);
    seconds(30).await;
    assert_eq!(server.events("default").await.len(), 1000);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_patch_is_retried_as_a_patch() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    settle().await;
    server.fault(|_| Fault::NoConnection);
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    seconds(5).await;
    server.fault(|_| Fault::None);
    seconds(10).await;
    let methods: Vec<_> = server.sent().into_iter().map(|sent| sent.method).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH, Method::PATCH]);
    assert_eq!(server.events("default").await[0].count, Some(2));
    running.stop().await;
}
