//! Logging of a whole process.

use std::process::Command;

use serde_json::Value;
use windlass_runtime::{LogFormat, LoggingError, Options};

/// Set in the child process.
const WITHIN: &str = "WINDLASS_TEST_OF_LOGGING";

#[test]
fn process_logs_json_lines_to_standard_error() {
    if std::env::var_os(WITHIN).is_some() {
        return log();
    }
    let itself = std::env::current_exe().expect("a program");
    let output = Command::new(itself)
        .args([
            "--exact",
            "process_logs_json_lines_to_standard_error",
            "--nocapture",
        ])
        .env(WITHIN, "1")
        .env("RUST_LOG", "warn")
        .output()
        .expect("running");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr).expect("text");
    let lines: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let [line] = &lines[..] else { panic!("{text}") };
    assert_eq!(
        (&line["message"], &line["replicas"]),
        (&"scaled".into(), &3.into())
    );
    assert_eq!(line["object"], "n/a", "the fields of the span");
}

fn log() {
    let mut options = Options::default();
    options.logging.format = LogFormat::Json;
    options.init_logging().expect("the only subscriber");
    let reconcile = tracing::error_span!("reconcile", object = "n/a");
    reconcile.in_scope(|| tracing::warn!(replicas = 3, "scaled"));
    tracing::info!("less than RUST_LOG asks for");
    assert!(matches!(options.init_logging(), Err(LoggingError::AlreadySet)));
}

/// A program with a subscriber of its own, which has the layer of the options and another one.
#[test]
#[cfg(feature = "clap")]
fn launch_keeps_the_subscriber_of_the_program() {
    if std::env::var_os(WITHIN).is_some() {
        return launch_with_subscriber();
    }
    let itself = std::env::current_exe().expect("a program");
    let output = Command::new(itself)
        .args([
            "--exact",
            "launch_keeps_the_subscriber_of_the_program",
            "--nocapture",
        ])
        .env(WITHIN, "1")
        .env("KUBECONFIG", "/does/not/exist")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .expect("running");
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("test: ") && text.contains("/does/not/exist"),
        "{text}"
    );
    assert!(!text.contains("logging is already set up"), "{text}");
    let logged = |line: &str| line.contains("\"message\":\"own line\"");
    assert_eq!(text.lines().filter(|line| logged(line)).count(), 1, "{text}");
}

#[cfg(feature = "clap")]
fn launch_with_subscriber() {
    use std::{
        process::ExitCode,
        sync::atomic::{AtomicUsize, Ordering},
    };
    use tracing_subscriber::{Layer, layer::SubscriberExt as _};

    /// Counts events, as another layer could export them.
    static EVENTS: AtomicUsize = AtomicUsize::new(0);
    struct Counting;
    impl<S: tracing::Subscriber> Layer<S> for Counting {
        fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            EVENTS.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut options = Options::default();
    options.logging.format = LogFormat::Json;
    let layer = options.logging.layer().expect("a valid level");
    let subscriber = tracing_subscriber::registry().with(layer).with(Counting);
    tracing::subscriber::set_global_default(subscriber).expect("the only subscriber");
    tracing::info!("own line");
    let code = windlass_runtime::launch_with("test", &options, [], async |manager, _| Ok(manager));
    assert_eq!(code, ExitCode::FAILURE, "there is no cluster");
    assert!(EVENTS.load(Ordering::Relaxed) > 0);
}
