//! Spans and metrics over OTLP. In a process of its own, because a test starts it again.

mod collector;
mod exported_metrics;
mod exported_spans;
mod exposition;
mod harness;
mod lines;
#[path = "../../cache/tests/model/mod.rs"]
mod model;

use std::{
    future::{Ready, ready},
    process::{Command, Output},
    time::Duration,
};

use collector::{Collector, attribute};
use harness::{Running, controller, server};
use lines::Lines;
use model::{CONFIG_MAPS, config_map};
use tokio::{
    sync::{Mutex, MutexGuard, mpsc},
    time::Instant,
};
use tracing::{Subscriber, level_filters::LevelFilter, subscriber::DefaultGuard};
use tracing_subscriber::{Layer as _, layer::SubscriberExt as _};
use windlass_runtime::{
    Action, Context, Error, Manager, Options, Request, Telemetry, launch_with,
    metrics::{Format, Metrics},
};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

fn telemetry(variables: &[(&str, &str)]) -> Telemetry {
    let get = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| (*value).to_owned())
    };
    Telemetry::from_variables("test", get).expect("valid variables")
}

/// One test at a time: what tracing remembers of a span is one value for all threads, and wrong if a test without a subscriber
/// meets the span for the first time while another test adds one.
async fn turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    ONE_AT_A_TIME.lock().await
}

/// Exports the spans of this thread, where all tasks of a test run.
async fn subscribe(telemetry: &Telemetry) -> Subscribed {
    subscribe_with(tracing_subscriber::registry().with(telemetry.layer())).await
}

/// The same with more layers.
async fn subscribe_with(subscriber: impl Subscriber + Send + Sync + 'static) -> Subscribed {
    Subscribed {
        _turn: turn().await,
        _default: tracing::subscriber::set_default(subscriber),
    }
}

/// While it exists, the spans of this thread are exported. The subscriber ends before the turn.
struct Subscribed {
    _default: DefaultGuard,
    _turn: MutexGuard<'static, ()>,
}

/// A loopback address where nothing listens.
fn closed_endpoint() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("free port");
    format!("http://{}", free.local_addr().expect("local address"))
}

/// A metric with these labels in the order of `/metrics`; 0 if there is none.
fn counted(metrics: &Metrics, series: &str) -> u64 {
    let text = metrics.scrape(Format::Prometheus);
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.map_or(0, |value| value.trim().parse().expect("a number"))
}

fn dropped(metrics: &Metrics, reason: &str) -> u64 {
    let series = format!("windlass_telemetry_dropped_spans_total{{reason=\"{reason}\"}}");
    counted(metrics, &series)
}

/// Creates this many spans in each reconcile, which is done then.
fn steps(
    count: usize,
    ran: mpsc::UnboundedSender<()>,
) -> impl Fn(Request, Context) -> Ready<Result<Action, Error>> + Send + Sync + 'static {
    move |_, _| {
        for _ in 0..count {
            drop(tracing::info_span!("step"));
        }
        let _ = ran.send(());
        ready(Ok(Action::done()))
    }
}

#[tokio::test]
async fn spans_are_dropped_and_counted_while_the_collector_is_down() {
    let telemetry = telemetry(&[
        (ENDPOINT, &closed_endpoint()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc"),
    ]);
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .with_filter(LevelFilter::INFO);
    let _guard = subscribe_with(tracing_subscriber::registry().with(log).with(telemetry.layer())).await;
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let (ran, mut runs) = mpsc::unbounded_channel();
    let controller = controller().reconcile(steps(3000, ran));
    let outcomes = controller.outcomes();
    let manager = Manager::new(server.client())
        .controller(controller)
        .telemetry(telemetry);
    let metrics = manager.metrics();
    let running = Running::start(manager);
    runs.recv().await.expect("a reconcile runs");
    running.stop().await.expect("stops cleanly");
    assert_eq!(outcomes.done(), 1);
    // The reconcile itself is a span too. Nothing is sent while it runs, because the test has one thread.
    assert_eq!(dropped(&metrics, "queue_full"), 3001 - 2048);
    assert_eq!(dropped(&metrics, "stopped"), 2048);
    for signal in ["traces", "metrics"] {
        let series = format!("windlass_telemetry_failed_exports_total{{signal=\"{signal}\"}}");
        assert!(counted(&metrics, &series) > 0, "{signal}");
        let problems = lines.with("cannot export telemetry");
        let of_signal = problems
            .iter()
            .filter(|line| line.contains(&format!("signal=\"{signal}\"")));
        let [line] = &of_signal.collect::<Vec<_>>()[..] else {
            panic!("one line for {signal}: {problems:#?}")
        };
        assert!(
            line.contains("Connection refused") && line.contains(&format!("/v1/{signal}")),
            "{line}"
        );
    }
    assert!(lines.with("spans were not exported before the stop")[0].contains("spans=2048"));
    assert_eq!(lines.with("abc"), Vec::<String>::new(), "no credentials");
}

/// The time passes on the paused clock only.
#[tokio::test(start_paused = true)]
async fn stop_does_not_wait_for_a_collector_that_hangs() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("free port");
    let endpoint = format!("http://{}", silent.local_addr().expect("local address"));
    let telemetry = telemetry(&[(ENDPOINT, &endpoint)]);
    let _guard = subscribe(&telemetry).await;
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let (ran, mut runs) = mpsc::unbounded_channel();
    let manager = Manager::new(server.client())
        .controller(controller().reconcile(steps(1, ran)))
        .grace_period(Duration::from_secs(1))
        .telemetry(telemetry);
    let metrics = manager.metrics();
    let running = Running::start(manager);
    runs.recv().await.expect("a reconcile runs");
    let stopping = Instant::now();
    running
        .stop()
        .await
        .expect("the collector is no reason for an error");
    assert_eq!(stopping.elapsed().as_secs(), 5);
    assert_eq!(dropped(&metrics, "stopped"), 2);
}

#[tokio::test]
async fn batch_is_sent_again_if_the_collector_asks_for_it_and_dropped_if_it_rejects_it() {
    let answers = [
        "503 Busy\r\nretry-after: 0\r\n",
        "200 OK\r\n",
        "400 Bad Request\r\n",
    ];
    let mut collector = Collector::start(&answers);
    let traces = format!("{}/v1/traces", collector.endpoint);
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &traces)]);
    let _guard = subscribe(&telemetry).await;
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    // Two full batches with the reconcile itself, so they are sent at once.
    let (ran, mut runs) = mpsc::unbounded_channel();
    let manager = Manager::new(server.client())
        .controller(controller().reconcile(steps(1023, ran)))
        .telemetry(telemetry);
    let metrics = manager.metrics();
    let running = Running::start(manager);
    runs.recv().await.expect("a reconcile runs");
    for _ in answers {
        collector.next().await;
    }
    // A batch whose answer was not read before the stop would be sent once more.
    while dropped(&metrics, "rejected") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    running.stop().await.expect("stops cleanly");
    let received = collector.received();
    assert_eq!(received.len(), 3, "and no metrics");
    assert!(received.iter().all(|request| request.path == "/v1/traces"));
    assert_eq!(received[0].body, received[1].body, "the same batch again");
    assert_eq!(dropped(&metrics, "rejected"), 512);
    assert_eq!(dropped(&metrics, "queue_full") + dropped(&metrics, "stopped"), 0);
    let failed = "windlass_telemetry_failed_exports_total{signal=\"traces\"}";
    assert_eq!(counted(&metrics, failed), 2);
}

#[test]
fn nothing_is_exported_without_an_endpoint() {
    let telemetry = telemetry(&[("OTEL_SERVICE_NAME", "shop")]);
    assert!(!telemetry.is_enabled());
    assert!(telemetry.layer::<tracing_subscriber::Registry>().is_none());
}

/// Set in the child process.
const WITHIN: &str = "WINDLASS_TEST_OF_TELEMETRY";

/// Runs the test again in a process with these variables.
fn run_again(test: &str, kubeconfig: &std::path::Path, endpoint: &str) -> Output {
    Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", test, "--nocapture"])
        .env(WITHIN, "1")
        .env("KUBECONFIG", kubeconfig)
        .env(ENDPOINT, endpoint)
        .output()
        .expect("running")
}

/// A program whose only service ends it.
fn launch_once() {
    let mut options = Options::default();
    options.no_listen = true;
    launch_with("shop", &options, [], async |manager, _| {
        Ok(manager.service("work", |_| async {
            drop(tracing::info_span!("startup"));
            Err("that is all".into())
        }))
    });
}

#[test]
fn launch_exports_spans_and_metrics_of_the_program() {
    if std::env::var_os(WITHIN).is_some() {
        return launch_once();
    }
    let kubeconfig = tempfile::NamedTempFile::new().expect("temporary file");
    let content = serde_json::json!({
        "current-context": "x",
        "contexts": [{ "name": "x", "context": { "cluster": "x" } }],
        "clusters": [{ "name": "x", "cluster": { "server": closed_endpoint() } }],
    });
    std::fs::write(kubeconfig.path(), content.to_string()).expect("temporary file");
    let test = "launch_exports_spans_and_metrics_of_the_program";
    let collector = Collector::start(&[]);
    let output = run_again(test, kubeconfig.path(), &collector.endpoint);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("that is all"), "{log}");
    let spans = collector.spans();
    let (resource, _) = spans
        .iter()
        .find(|(_, span)| span.name == "startup")
        .expect("a span");
    assert_eq!(attribute(resource, "service.name").as_deref(), Some("shop"));
    let (resource, metrics) = collector.metrics();
    assert_eq!(attribute(&resource, "service.name").as_deref(), Some("shop"));
    assert!(
        metrics
            .iter()
            .any(|metric| metric.name == "windlass_telemetry_dropped_spans_total")
    );

    let output = run_again(test, kubeconfig.path(), "collector:4317");
    let log = String::from_utf8_lossy(&output.stderr);
    let expected = "shop: invalid OTEL_EXPORTER_OTLP_ENDPOINT: \"collector:4317\" is not an http:// or https:// URL: write it \
                    as in `http://collector:4318`\n";
    assert!(log.contains(expected), "{log}");
}
