//! Runs a controller's program.

use std::process::{Output, Stdio};

use tokio::{process::Command, time::timeout};

use crate::STEP_TIMEOUT;

/// Returns a command for the program at `path`, without environment variables and with a nonexistent home, so that it finds
/// no cluster. Its output is piped, and it is killed on drop.
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

/// Runs a program to its end. Returns its exit code, standard output and standard error.
pub async fn output(mut program: Command) -> (Option<i32>, String, String) {
    let output = timeout(STEP_TIMEOUT, program.output()).await;
    let Output {
        status,
        stdout,
        stderr,
    } = output.expect("it ends").expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}
