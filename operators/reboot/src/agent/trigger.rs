//! Detects that the machine needs a reboot: by a file that package managers leave, or by a command.
//!
//! ```text
//!   every interval: check ──► needed, and not yet requested ──► P/reboot-needed on the own node
//! ```
//!
//! A cause that a reboot does not fix must not reboot a machine forever: a file from before this boot is ignored, and
//! a command first runs one interval after the start. Errors never request a reboot.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, sleep};
use windlass::{
    cache::is_connection_error,
    k8s_openapi::api::core::v1::Node,
    kube::{self, Api},
    prelude::{Error, Manager, ResourceExt, json},
    runtime::{TaskContext, WriteError, WriteErrorKind, Writer},
};

use super::{FIELD_MANAGER, command_line::CommandLine};
use crate::state::AnnotationKeys;

/// Timeout of a trigger command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// Delay before a failed write is retried.
const WRITE_RETRY_DELAY: Duration = Duration::from_secs(10);

/// How often a failed write that lasts is logged.
const REPEAT_INTERVAL: Duration = Duration::from_hours(1);

/// What indicates that the machine needs a reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The file exists and is newer than the boot.
    File(PathBuf),
    /// The command exits with 0. An exit status of 1 means that no reboot is needed; any other is a failure.
    Command(CommandLine),
}

impl Trigger {
    /// Returns why a reboot is needed, if it is.
    async fn reboot_reason(&self) -> Result<Option<String>, String> {
        match self {
            Self::File(path) => {
                let booted = boot_time(Path::new("/proc/stat"), SystemTime::now);
                Ok(is_newer(path, booted)?.then(|| format!("file {}", path.display())))
            }
            Self::Command(words) => {
                let (status, output) = words.run(COMMAND_TIMEOUT).await?;
                match status.code() {
                    Some(0) => Ok(Some(format!("command {words}"))),
                    Some(1) => Ok(None),
                    _ => Err(format!("`{words}` failed with {status}: {output}")),
                }
            }
        }
    }
}

/// Returns whether the file exists and is newer than this time.
fn is_newer(path: &Path, than: Option<SystemTime>) -> Result<bool, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let modified = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
        Ok(found) => found.modified().map_err(failed)?,
    };
    if than.is_some_and(|than| modified < than) {
        return Err(format!(
            "{} is older than this boot: the node has rebooted since, but the file was not removed",
            path.display()
        ));
    }
    Ok(true)
}

/// Returns when the kernel started, if it is known.
fn boot_time(stat: &Path, now: impl Fn() -> SystemTime) -> Option<SystemTime> {
    let text = std::fs::read_to_string(stat).ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    let booted = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.trim().parse().ok()?);
    // If the clock was set back since, the time is unknown.
    (booted <= now()).then_some(booted)
}

/// Adds a task that checks the trigger every `interval`.
pub(super) fn add_task(
    manager: Manager,
    node: &str,
    names: &AnnotationKeys,
    trigger: Trigger,
    interval: Duration,
) -> Manager {
    let (node, names) = (node.to_owned(), names.clone());
    manager.task("reboot-trigger", move |ctx| {
        let (node, names, trigger) = (node.clone(), names.clone(), trigger.clone());
        async move {
            tokio::select! {
                () = watch(&ctx, &node, &names, &trigger, interval) => {}
                () = ctx.stopping() => {}
            }
            Ok(())
        }
    })
}

async fn watch(ctx: &TaskContext, node: &str, names: &AnnotationKeys, trigger: &Trigger, interval: Duration) {
    if matches!(trigger, Trigger::Command(_)) {
        sleep(interval).await;
    }
    let mut complaint = None;
    loop {
        match trigger.reboot_reason().await {
            Ok(None) => complaint = None,
            Ok(Some(reason)) => {
                complaint = None;
                annotate(ctx, node, names, &reason).await;
            }
            Err(error) if complaint.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::warn!(node, error, "cannot determine whether a reboot is needed");
                complaint = Some(error);
            }
        }
        sleep(interval).await;
    }
}

/// Requests a reboot of the node, and retries until that succeeds.
async fn annotate(ctx: &TaskContext, node: &str, names: &AnnotationKeys, reason: &str) {
    let mut last = None;
    while let Err(error) = request_reboot(ctx, node, names, reason).await {
        if is_worth_a_warning(&error, &mut last) {
            tracing::warn!(node, %error, "a reboot is needed, but cannot annotate the node");
        } else {
            tracing::debug!(node, %error, "still cannot annotate the node");
        }
        sleep(WRITE_RETRY_DELAY).await;
    }
}

/// Returns whether a failed write is to be logged for people: not if the connection's log has it, nor the same again within
/// [`REPEAT_INTERVAL`]. `last` is what was logged last, and when.
fn is_worth_a_warning(error: &Error, last: &mut Option<(String, Instant)>) -> bool {
    if is_request_unanswered(error) {
        return false;
    }
    let text = error.to_string();
    let is_repeated = |(before, at): &(String, Instant)| *before == text && at.elapsed() < REPEAT_INTERVAL;
    if last.as_ref().is_some_and(is_repeated) {
        return false;
    }
    *last = Some((text, Instant::now()));
    true
}

/// Returns whether a request got no response because of its connection.
fn is_request_unanswered(error: &Error) -> bool {
    let cause = error.cause();
    let request = match cause.downcast_ref::<WriteError>().map(WriteError::kind) {
        Some(WriteErrorKind::Client(error)) => Some(&**error),
        _ => cause.downcast_ref::<kube::Error>(),
    };
    request.is_some_and(|error| is_connection_error(error))
}

/// Requests a reboot of the node, unless one is requested already.
async fn request_reboot(
    ctx: &TaskContext,
    node: &str,
    names: &AnnotationKeys,
    reason: &str,
) -> Result<(), Error> {
    let node = Api::<Node>::all(ctx.client().clone()).get(node).await?;
    if node.annotations().contains_key(&names.reboot_needed) {
        return Ok(());
    }
    let request = json!({"metadata": {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {&names.reboot_needed: reason},
    }});
    Writer::new(ctx.client().clone(), FIELD_MANAGER)
        .merge_patch(&node, &request)
        .await?;
    tracing::info!(node = node.name_any(), reason, "reboot requested");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_older_than_the_boot_requests_no_reboot() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join("reboot-required");
        assert_eq!(is_newer(&file, None), Ok(false), "it is not there");
        std::fs::write(&file, "").expect("the file is written");
        let (hour, now) = (Duration::from_hours(1), SystemTime::now());
        assert_eq!(is_newer(&file, Some(now - hour)), Ok(true));
        assert_eq!(is_newer(&file, None), Ok(true), "unknown boot time");
        let old = is_newer(&file, Some(now + hour)).expect_err("it is older");
        assert!(old.contains("older than this boot"), "{old}");
    }

    #[tokio::test(start_paused = true)]
    async fn write_that_keeps_failing_is_logged_once_an_hour() {
        let (mut last, mut logged) = (None, 0);
        for _ in 0..2 * 60 * 6 {
            logged += usize::from(is_worth_a_warning(&Error::from("forbidden"), &mut last));
            tokio::time::advance(WRITE_RETRY_DELAY).await;
        }
        assert_eq!(logged, 2);
        assert!(
            is_worth_a_warning(&Error::from("conflict"), &mut last),
            "another reason"
        );
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let unanswered = Error::from(kube::Error::Service(refused.into()));
        assert!(
            !is_worth_a_warning(&unanswered, &mut None),
            "the connection's log has it"
        );
    }

    #[test]
    fn boot_time_is_read_from_proc_stat() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join("stat");
        std::fs::write(&file, "cpu 1 2\nbtime 1700000000\nprocesses 1\n").expect("the file is written");
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(boot_time(&file, SystemTime::now), Some(at));
        assert_eq!(
            boot_time(&file, || SystemTime::UNIX_EPOCH),
            None,
            "the clock was set back"
        );
        assert_eq!(boot_time(folder.path(), SystemTime::now), None);
    }

    #[tokio::test]
    async fn trigger_command_requests_a_reboot_only_on_exit_status_zero() {
        let with = |code: &str| {
            let words = CommandLine::new("/bin/sh", ["-c", &format!("echo because >&2; exit {code}")]);
            async move { Trigger::Command(words).reboot_reason().await }
        };
        assert!(with("0").await.expect("an answer").is_some());
        assert_eq!(with("1").await, Ok(None));
        let broken = with("3").await.expect_err("no answer");
        assert!(broken.contains("because"), "{broken}");
        let missing = Trigger::Command(CommandLine::new("/nonexistent/needs-reboot", [""; 0]));
        let missing = missing.reboot_reason().await.expect_err("no answer");
        assert!(missing.contains("cannot start"), "{missing}");
    }
}
