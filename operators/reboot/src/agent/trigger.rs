//! What on the machine says that it needs a reboot: a file that package managers leave, or a command.
//!
//! ```text
//!   every interval: look ──► needed, and nobody asked yet ──► P/reboot-needed on the own node
//! ```
//!
//! What a reboot does not cure must not reboot a machine for ever: a file from before this boot is not counted, and a command
//! is first asked an interval after it. Whatever goes wrong with looking is not taken for an answer.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio::time::sleep;
use windlass::{
    k8s_openapi::api::core::v1::Node,
    kube::Api,
    prelude::{Error, Manager, ResourceExt, json},
    runtime::{TaskContext, Writer},
};

use super::{FIELD_MANAGER, words::Words};
use crate::state::Names;

/// How long a command may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long the node may not be written before that is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// What says that the machine needs a reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// That this file is there, and newer than the boot.
    File(PathBuf),
    /// That this command ends with 0. With 1 it says that no reboot is needed; all else is a failure of the command.
    Command(Words),
}

impl Trigger {
    /// Why a reboot is needed, if it is.
    async fn asks(&self) -> Result<Option<String>, String> {
        match self {
            Self::File(path) => {
                let booted = booted(Path::new("/proc/stat"), SystemTime::now);
                Ok(is_newer(path, booted)?.then(|| format!("file {}", path.display())))
            }
            Self::Command(words) => {
                let (status, said) = words.run(PATIENCE).await?;
                match status.code() {
                    Some(0) => Ok(Some(format!("command {words}"))),
                    Some(1) => Ok(None),
                    _ => Err(format!("`{words}` ended with {status}: {said}")),
                }
            }
        }
    }
}

/// Whether there is a file, from after this time.
fn is_newer(path: &Path, than: Option<SystemTime>) -> Result<bool, String> {
    let failed = |error: std::io::Error| format!("cannot look at {}: {error}", path.display());
    let modified = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
        Ok(found) => found.modified().map_err(failed)?,
    };
    if than.is_some_and(|than| modified < than) {
        return Err(format!(
            "{} is older than this boot: the reboot that it asks for has been, and did not take it away",
            path.display()
        ));
    }
    Ok(true)
}

/// When the kernel started, as far as it says so.
fn booted(stat: &Path, now: impl Fn() -> SystemTime) -> Option<SystemTime> {
    let text = std::fs::read_to_string(stat).ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    let booted = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.trim().parse().ok()?);
    // One whose clock was set since says nothing.
    (booted <= now()).then_some(booted)
}

/// Adds a task that looks every `interval`.
pub(super) fn add(
    manager: Manager,
    node: &str,
    names: &Names,
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

async fn watch(ctx: &TaskContext, node: &str, names: &Names, trigger: &Trigger, interval: Duration) {
    if matches!(trigger, Trigger::Command(_)) {
        sleep(interval).await;
    }
    let mut complaint = None;
    loop {
        match trigger.asks().await {
            Ok(None) => complaint = None,
            Ok(Some(reason)) => {
                complaint = None;
                while let Err(error) = ask(ctx, node, names, &reason).await {
                    tracing::warn!(node, %error, "a reboot is needed, and the node cannot be told");
                    sleep(AGAIN).await;
                }
            }
            Err(error) if complaint.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::warn!(node, error, "whether a reboot is needed cannot be told");
                complaint = Some(error);
            }
        }
        sleep(interval).await;
    }
}

/// Puts the request on the node, unless there is one.
async fn ask(ctx: &TaskContext, node: &str, names: &Names, reason: &str) -> Result<(), Error> {
    let node = Api::<Node>::all(ctx.client().clone()).get(node).await?;
    if node.annotations().contains_key(&names.needed) {
        return Ok(());
    }
    let request = json!({"metadata": {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {&names.needed: reason},
    }});
    Writer::new(ctx.client().clone(), FIELD_MANAGER)
        .merge(&node, &request)
        .await?;
    tracing::info!(node = node.name_any(), reason, "a reboot is needed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_from_before_the_boot_asks_for_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("reboot-required");
        assert_eq!(is_newer(&file, None), Ok(false), "it is not there");
        std::fs::write(&file, "").expect("written");
        let (hour, now) = (Duration::from_hours(1), SystemTime::now());
        assert_eq!(is_newer(&file, Some(now - hour)), Ok(true));
        assert_eq!(
            is_newer(&file, None),
            Ok(true),
            "a kernel that does not tell its boot"
        );
        let old = is_newer(&file, Some(now + hour)).expect_err("it is older");
        assert!(old.contains("older than this boot"), "{old}");
    }

    #[test]
    fn the_kernel_tells_when_it_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("stat");
        std::fs::write(&file, "cpu 1 2\nbtime 1700000000\nprocesses 1\n").expect("written");
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(booted(&file, SystemTime::now), Some(at));
        assert_eq!(
            booted(&file, || SystemTime::UNIX_EPOCH),
            None,
            "a clock that was set"
        );
        assert_eq!(booted(folder.path(), SystemTime::now), None);
    }

    #[tokio::test]
    async fn only_zero_means_that_a_reboot_is_needed() {
        let with = |code: &str| {
            let words = Words::new("/bin/sh", ["-c", &format!("echo because >&2; exit {code}")]);
            async move { Trigger::Command(words).asks().await }
        };
        assert!(with("0").await.expect("an answer").is_some());
        assert_eq!(with("1").await, Ok(None));
        let broken = with("3").await.expect_err("no answer");
        assert!(broken.contains("because"), "{broken}");
        let missing = Trigger::Command(Words::new("/nonexistent/needs-reboot", [""; 0]));
        let missing = missing.asks().await.expect_err("no answer");
        assert!(missing.contains("cannot be started"), "{missing}");
    }
}
