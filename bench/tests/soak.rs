//! Runs the soak test for a few seconds, so that the program keeps working.

use std::process::{Command, Output};

use serde_json::Value;

fn soak(arguments: &[&str]) -> (Output, Value) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("outcomes.json");
    let output = Command::new(env!("CARGO_BIN_EXE_windlass-soak"))
        .args([
            "--minutes",
            "0.1",
            "--clients",
            "16",
            "--rate",
            "40",
            "--seed",
            "1",
        ])
        .arg("--json")
        .arg(&file)
        .args(arguments)
        .output()
        .expect("it starts");
    let outcomes = std::fs::read(&file).unwrap_or_default();
    (output, serde_json::from_slice(&outcomes).unwrap_or_default())
}

#[test]
fn short_soak_with_hostile_client_loses_no_watch_event() {
    let (output, outcomes) = soak(&["--hostile"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("verdict: good"), "{text}");
    assert!(outcomes[0]["watch_events"].as_u64() > Some(10), "{outcomes}");
    assert!(
        outcomes[0]["latency"]["requests"].as_u64() > Some(50),
        "{outcomes}"
    );
    assert!(outcomes[0]["memory_end_mb"].as_f64() > Some(1.0), "{outcomes}");
}

#[test]
fn soak_fails_with_a_message_when_its_server_dies() {
    let (output, outcomes) = soak(&["--no-hostile", "--kill-after", "2"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("FAULT calm: the server died: signal: 9"), "{text}");
    assert!(outcomes[0]["died"].is_string(), "{outcomes}");
}
