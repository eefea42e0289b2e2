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
