//! The events on the server after one or many calls.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{Node, ObjectReference},
    events::v1::Event as NewEvent,
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::{Value, json, to_value};
use windlass_apiserver::{Server, User};
use windlass_runtime::events::{DropReason, EventCounts, RecorderOptions};

use crate::events::recorded_server::{RecordedServer, Running, config_map, epoch, seconds, settle};

/// The fields are those that `kubectl` shows.
#[tokio::test(start_paused = true)]
async fn repeated_event_is_one_create_and_one_patch() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    seconds(90).await;
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    settle().await;
    assert_eq!(server.methods(), ["POST", "PATCH"]);
    let events = server.events("default").await;
    assert_eq!(events.len(), 1);
    let mut event = to_value(&events[0]).expect("it is JSON");
    let metadata = event["metadata"].take();
    assert_eq!(metadata["namespace"], "default");
    let name = metadata["name"].as_str().expect("it has a name");
    assert!(name.starts_with("a."), "{name}");
    let expected = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": null,
        "involvedObject": {
            "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "a", "uid": "uid-of-a",
        },
        "type": "Normal", "reason": "Synced", "message": "it works", "count": 2,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:30Z",
        "source": {"component": "test"}, "reportingComponent": "test", "reportingInstance": "",
    });
    assert_eq!(event, expected);
    assert_eq!((running.counts().created, running.counts().patched), (1, 1));
    running.stop().await;
}

/// The writers of two processes.
#[tokio::test(start_paused = true)]
async fn lasting_state_is_announced_by_one_process() {
    let server = RecordedServer::new();
    let first = Running::start(&server);
    first
        .recorder
        .lasting()
        .warning(&config_map("a"), "ErrInvalid", "no such port");
    settle().await;
    assert_eq!(first.counts().created, 1);
    first.stop().await;
    let before = server.events("default").await;

    let second = Running::start(&server);
    let recorder = second.recorder.lasting();
    recorder.warning(&config_map("a"), "ErrInvalid", "no such port");
    settle().await;
    assert_eq!((second.counts().written(), second.counts().found), (0, 1));
    assert_eq!(server.events("default").await, before);

    // Again in this process: its own count is not the event's.
    seconds(90).await;
    recorder.warning(&config_map("a"), "ErrInvalid", "no such port");
    settle().await;
    let [event] = &server.events("default").await[..] else {
        panic!("one event")
    };
    assert_eq!(event.count, Some(1));
    assert_eq!(
        to_value(&event.last_timestamp).expect("it is JSON"),
        "2026-01-01T00:01:30Z"
    );

    // Everything else is another event: the message, the type, the object.
    recorder.warning(&config_map("a"), "ErrInvalid", "no such host");
    recorder.normal(&config_map("a"), "ErrInvalid", "no such port");
    recorder.warning(&config_map("b"), "ErrInvalid", "no such port");
    second
        .recorder
        .warning(&config_map("a"), "ErrOther", "no such port");
    settle().await;
    assert_eq!(server.events("default").await.len(), 5);
    second.stop().await;
}

/// After six minutes without a new event.
#[tokio::test(start_paused = true)]
async fn ended_series_is_written_with_its_last_count() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    for _ in 0..100 {
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        seconds(1).await;
    }
    assert_eq!(server.sent().len(), 25);
    seconds(6 * 60 - 2).await;
    assert_eq!(server.sent().len(), 25);
    seconds(2).await;
    assert_eq!(server.sent().len(), 26);
    let event = &server.events("default").await[0];
    assert_eq!(event.count, Some(100));
    let last = event.last_timestamp.as_ref().expect("is set").0;
    assert_eq!(last, epoch() + Duration::from_secs(99));
    // Nothing more is written.
    seconds(24 * 3600).await;
    assert_eq!(server.sent().len(), 26);
    assert_eq!(running.counts().dropped(DropReason::Spam), 0);
    running.stop().await;
}

/// So that the event does not expire.
#[tokio::test(start_paused = true)]
async fn ongoing_series_is_written_every_half_hour() {
    let server = RecordedServer::new();
    let running = Running::with(
        &server,
        RecorderOptions::default().burst(1, Duration::from_hours(24)),
    );
    for _ in 0..100 {
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        seconds(70).await;
    }
    let sent = server.sent();
    let first = sent[0].at;
    let minutes: Vec<_> = sent.iter().map(|sent| (sent.at - first).as_secs() / 60).collect();
    assert_eq!(minutes, [0, 30, 60, 90]);
    let counts: Vec<_> = sent.iter().map(|sent| sent.body["count"].clone()).collect();
    assert_eq!(counts, [1, 26, 52, 78].map(Value::from));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_about_cluster_scoped_objects_are_in_the_default_namespace() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    let mut node = Node::default();
    node.metadata.name = Some("worker-1".to_owned());
    running.recorder.warning(&node, "NotReady", "it is away");
    settle().await;
    assert_eq!(server.sent()[0].path, "/api/v1/namespaces/default/events");
    let event = &server.events("default").await[0];
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(event.involved_object.namespace, None);
    assert_eq!(event.involved_object.kind.as_deref(), Some("Node"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn flood_of_one_event_is_one_request_with_the_right_count() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    let object = config_map("a");
    for _ in 0..100_000 {
        running.recorder.normal(&object, "Synced", "it works");
    }
    settle().await;
    assert_eq!(server.methods(), ["POST"]);
    assert_eq!(server.events("default").await[0].count, Some(100_000));
    assert_eq!(running.stop().await.counts().written(), 1);
}

#[tokio::test(start_paused = true)]
async fn flood_with_a_running_writer_is_limited_to_the_burst() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    let object = config_map("a");
    for call in 0..100_000 {
        running.recorder.normal(&object, "Synced", "it works");
        if call % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    running.stop().await;
    assert!(server.sent().len() <= 26, "{} requests", server.sent().len());
    assert_eq!(server.events("default").await[0].count, Some(100_000));
}

/// The combined event has its own object and shows the newest message.
#[tokio::test(start_paused = true)]
async fn many_messages_of_one_reason_are_combined() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    for n in 1..=15 {
        running
            .recorder
            .warning(&config_map("a"), "Failed", format!("attempt {n} failed"));
        seconds(1).await;
    }
    let events = server.events("default").await;
    assert_eq!(events.len(), 10);
    let combined = &events[9];
    let message = "(combined from similar events): attempt 15 failed";
    assert_eq!(combined.message.as_deref(), Some(message));
    assert_eq!(combined.count, Some(6));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_above_the_rate_limit_are_dropped_and_counted() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    for n in 0..40 {
        running
            .recorder
            .normal(&config_map("a"), &format!("Reason{n}"), "x");
        running
            .recorder
            .normal(&config_map("b"), &format!("Reason{}", n % 5), "x");
    }
    settle().await;
    assert_eq!(server.events("default").await.len(), 25 + 5);
    assert_eq!(running.counts().dropped(DropReason::Spam), 15);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn event_can_regard_typed_dynamic_and_referenced_objects() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    let recorder = &running.recorder;
    let resource = ApiResource::erase::<Node>(&());
    let dynamic = DynamicObject::new("dynamic", &resource);
    let reference = ObjectReference {
        kind: Some("Foo".to_owned()),
        name: Some("referred".to_owned()),
        field_path: Some("spec.replicas".to_owned()),
        resource_version: Some("7".to_owned()),
        ..ObjectReference::default()
    };
    recorder.normal(&config_map("typed"), "Seen", "x");
    recorder.normal(&Arc::new(config_map("shared")), "Seen", "x");
    recorder.normal(&dynamic.object_ref(&resource), "Seen", "x");
    recorder.normal(&reference, "Seen", "x");
    // A role's name may be invalid for an event.
    let role = ObjectReference {
        name: Some("system:node".to_owned()),
        ..reference.clone()
    };
    recorder.normal(&role, "Seen", "x");
    settle().await;
    let mut about: Vec<_> = server
        .events("default")
        .await
        .into_iter()
        .map(|event| {
            let object = event.involved_object;
            (object.kind.unwrap_or_default(), object.name.unwrap_or_default())
        })
        .collect();
    about.sort();
    let expected = [
        ("ConfigMap", "shared"),
        ("ConfigMap", "typed"),
        ("Foo", "referred"),
        ("Foo", "system:node"),
        ("Node", "dynamic"),
    ];
    assert_eq!(
        about,
        expected.map(|(kind, name)| (kind.to_owned(), name.to_owned()))
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_writer_serves_many_sources() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    let other = running.recorder.source("other");
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    other.normal(&config_map("a"), "Synced", "it works");
    settle().await;
    let mut sources: Vec<_> = server
        .events("default")
        .await
        .into_iter()
        .filter_map(|event| event.source?.component)
        .collect();
    sources.sort();
    assert_eq!(sources, ["other", "test"]);
    assert_eq!(other.counts(), running.counts());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn long_message_is_truncated_to_the_limit_of_the_newer_api() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    running
        .recorder
        .normal(&config_map("a"), &"R".repeat(200), "ä".repeat(1000));
    settle().await;
    running.stop().await;
    let events = Api::<NewEvent>::default_namespaced(Client::new(server.inner.clone(), "default"));
    let event = &events.list(&ListParams::default()).await.expect("listed").items[0];
    // 1024 bytes: 510 letters of two bytes, an ellipsis of three, and one byte left.
    let note = format!("{}…", "ä".repeat(510));
    assert_eq!(event.note.as_deref(), Some(note.as_str()));
    let reason = format!("{}…", "R".repeat(125));
    assert_eq!(event.reason.as_deref(), Some(reason.as_str()));
    assert_eq!(event.deprecated_count, Some(1));
}

#[tokio::test(start_paused = true)]
async fn create_and_patch_on_events_are_sufficient_and_necessary() {
    let server = Server::builder().rbac().epoch(epoch()).build();
    let admin = Client::new(server.clone(), "default");
    let server = RecordedServer::to(server.as_user(User::new("robot", ["system:authenticated"])));
    let running = Running::start(&server);
    running.recorder.normal(&config_map("a"), "Synced", "it works");
    seconds(600).await;
    assert_eq!(server.methods(), ["POST"]);
    let counts = running.counts();
    assert_eq!((counts.failed, counts.written()), (1, 0));

    grant(&admin).await;
    for _ in 0..2 {
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        settle().await;
    }
    assert_eq!(server.methods(), ["POST", "POST", "PATCH"]);
    let counts: EventCounts = running.counts();
    assert_eq!((counts.failed, counts.created, counts.patched), (1, 1, 1));
    running.stop().await;
}

async fn grant(admin: &Client) {
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "events"},
        "rules": [{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "events"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "events"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "robot"}],
    });
    for (path, object) in [("roles", role), ("rolebindings", binding)] {
        let request = http::Request::post(format!("{roles}/{path}"))
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes());
        let created = admin.request::<Value>(request.expect("valid request")).await;
        created.expect("the administrator is authorized");
    }
}
