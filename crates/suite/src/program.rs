//! A controller's own program, as a stranger starts it.

use std::process::{Output, Stdio};

use tokio::{process::Command, time::timeout};

use crate::DEADLINE;

/// The program at `path`, in a world without a cluster: no environment, and nobody's home. Its output is piped, and it ends
/// with whoever started it.
///
/// ```no_run
/// # async fn help() {
/// let (code, help, _) = windlass_suite::output(windlass_suite::program("/bin/foo", &["--help"])).await;
/// # }
/// ```
pub fn program(path: &str, arguments: &[&str]) -> Command {
    let mut program = Command::new(path);
    program
        .args(arguments)
        .env_clear()
        .env("HOME", "/nonexistent")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    program
}

/// Waits until a program has ended: its exit code, and what it said on standard output and standard error.
pub async fn output(mut program: Command) -> (Option<i32>, String, String) {
    let output = timeout(DEADLINE, program.output()).await;
    let Output {
        status,
        stdout,
        stderr,
    } = output.expect("it ends").expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}
