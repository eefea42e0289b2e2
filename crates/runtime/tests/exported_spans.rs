//! Spans of reconciles.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    common::v1::KeyValue,
    trace::v1::{Span, status::StatusCode},
};
use tokio::sync::mpsc;
use tracing::Instrument as _;
use windlass_runtime::{Action, Context, Error, Manager, Reconciler, Request};

use crate::{
    ENDPOINT,
    collector::{Collector, attribute},
    harness::{Running, controller, server},
    model::{CONFIG_MAPS, config_map},
    subscribe, telemetry,
};

/// The content of a Secret.
const MARK: &str = "c2VjcmV0LW1hcms=";

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Fails by the name of the object, after spans and events of its own and of kube's client.
fn reconciler(ran: mpsc::UnboundedSender<String>) -> impl Reconciler {
    move |request: Request, _: Context| {
        let ran = ran.clone();
        async move {
            let child = tracing::info_span!("child", replicas = 3);
            async { tracing::info!(step = 1, "inside") }
                .instrument(child)
                .await;
            drop(tracing::debug_span!(target: "kube_client::client::builder", "HTTP", http.method = "GET"));
            drop(tracing::debug_span!("too detailed"));
            // kube prints a whole response that it cannot decode.
            tracing::warn!(target: "kube_client::client", "{MARK}");
            let _ = ran.send(request.key.name().to_owned());
            match request.key.name() {
                "flaky" => Err(Error::from("broken")),
                "invalid" => Err(Error::terminal("spec.port is below 1024")),
                _ => Ok(Action::done()),
            }
        }
    }
}

#[tokio::test]
async fn reconcile_is_a_span_with_its_trigger_result_and_children() {
    let collector = Collector::start(&[]);
    let telemetry = telemetry(&[
        (ENDPOINT, &collector.endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc"),
        ("OTEL_SERVICE_NAME", "shop"),
    ]);
    assert!(!format!("{telemetry:?}").contains("abc"));
    let _guard = subscribe(&telemetry).await;
    let before = alive_tasks();
    let server = server();
    for name in ["good", "flaky", "invalid"] {
        server.put(CONFIG_MAPS, config_map(name, "1"));
    }
    let (ran, mut runs) = mpsc::unbounded_channel();
    // A request outside of a reconcile, such as a watch.
    drop(tracing::debug_span!(target: "kube_client::client::builder", "HTTP", http.method = "WATCH"));
    let manager = Manager::new(server.client())
        .controller(controller().reconcile(reconciler(ran)))
        .telemetry(telemetry);
    let running = Running::start(manager);
    let mut seen = Vec::new();
    while seen.iter().filter(|name| *name == "flaky").count() < 2
        || !["good", "invalid"]
            .iter()
            .all(|name| seen.iter().any(|seen| seen == name))
    {
        seen.push(runs.recv().await.expect("reconciles run"));
    }
    running.stop().await.expect("stops cleanly");
    assert_eq!(
        alive_tasks(),
        before,
        "no task of a connection outlives the manager"
    );

    check_reconciles(&collector.spans());
    for request in collector.received() {
        assert!(
            request.head.contains("\r\nauthorization: bearer abc\r\n"),
            "{}",
            request.head
        );
        assert!(
            request
                .head
                .contains("\r\ncontent-type: application/x-protobuf\r\n")
        );
        let text = String::from_utf8_lossy(&request.body);
        assert!(!text.contains(MARK), "a Secret in {}", request.path);
    }
}

type Exported = [(Vec<KeyValue>, Span)];

fn check_reconciles(spans: &Exported) {
    let reconciles: Vec<&Span> = spans
        .iter()
        .map(|(_, span)| span)
        .filter(|span| span.name == "reconcile")
        .collect();
    let of = |object: &str, trigger: &str| {
        let mut found = reconciles
            .iter()
            .filter(|span| field(span, "object") == object && field(span, "trigger") == trigger);
        *found
            .next()
            .unwrap_or_else(|| panic!("{object} by {trigger}: {reconciles:#?}"))
    };
    for (object, trigger, result, failure) in [
        ("n/good", "start", "done", None),
        ("n/flaky", "start", "failed", Some("broken")),
        ("n/flaky", "retry 1", "failed", Some("broken")),
        ("n/invalid", "start", "terminal", Some("spec.port is below 1024")),
    ] {
        let span = of(object, trigger);
        assert_eq!(field(span, "result"), result, "{object}");
        assert_eq!(field(span, "controller"), "test");
        assert!(!field(span, "id").is_empty());
        assert!(
            span.parent_span_id.is_empty(),
            "a reconcile is a trace of its own"
        );
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        let expected = match failure {
            None => (StatusCode::Unset, String::new()),
            Some(failure) => (StatusCode::Error, failure.to_owned()),
        };
        assert_eq!(status(span), expected, "{object}");
        let children: BTreeMap<_, _> = spans
            .iter()
            .filter(|(_, child)| child.parent_span_id == span.span_id)
            .map(|(_, child)| (child.name.as_str(), child))
            .collect();
        assert_eq!(children.keys().copied().collect::<Vec<_>>(), ["HTTP", "child"]);
        let child = children["child"];
        assert_eq!(child.trace_id, span.trace_id);
        assert_eq!(field(child, "replicas"), "3");
        assert_eq!(child.events.len(), 1);
        assert_eq!(child.events[0].name, "inside");
        assert_eq!(field(children["HTTP"], "http.method"), "GET");
    }
    let named = |name: &str| spans.iter().filter(|(_, span)| span.name == name).count();
    assert_eq!(named("HTTP"), reconciles.len(), "only those in a reconcile");
    assert_eq!(named("too detailed"), 0);
    assert_eq!(attribute(&spans[0].0, "service.name").as_deref(), Some("shop"));
    assert!(attribute(&spans[0].0, "service.instance.id").is_some());
}

fn field(span: &Span, key: &str) -> String {
    attribute(&span.attributes, key).unwrap_or_default()
}

fn status(span: &Span) -> (StatusCode, String) {
    let status = span.status.clone().expect("a status");
    (status.code(), status.message)
}
