//! Finds a kubectl.
//!
//! Interactive use works with any kubectl. Tests that compare its requests or output need the release that they were
//! recorded with.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    Error,
    assets::{Assets, KUBERNETES_VERSION},
};

const NAME: &str = "kubectl";

/// How long `kubectl version` may take. A broken kubectl must not hang the tests.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the kubectl next to the binaries of [`Cluster::real`](crate::Cluster::real), else the first on the `PATH`,
/// whatever its version.
pub fn kubectl() -> Result<PathBuf, Error> {
    match from_assets() {
        Ok(own) => Ok(own),
        Err(missing) => on_path().next().ok_or(missing),
    }
}

/// Returns the first kubectl of exactly [`KUBERNETES_VERSION`]: the one next to the control-plane binaries, or one on the
/// `PATH`. Each candidate is run once per process to get its version.
///
/// For tests that compare what kubectl sends or prints. Without such a kubectl, report them as ignored, with this error
/// as the reason.
pub fn matching_kubectl() -> Result<PathBuf, Error> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| first_matching(from_assets().ok().into_iter().chain(on_path())));
    found.clone().map_err(|found| Error::NoMatchingKubectl {
        wanted: KUBERNETES_VERSION,
        found,
    })
}

fn from_assets() -> Result<PathBuf, Error> {
    Assets::find(None).and_then(|assets| assets.binary(NAME))
}

fn on_path() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    folders
        .into_iter()
        .map(|folder| folder.join(NAME))
        .filter(|file| file.is_file())
}

/// Returns the first candidate of the right version, or a description of the others.
fn first_matching(candidates: impl Iterator<Item = PathBuf>) -> Result<PathBuf, String> {
    let wanted = format!("v{KUBERNETES_VERSION}");
    let mut others = Vec::new();
    for program in candidates {
        match client_version(&program) {
            Ok(version) if version == wanted => return Ok(program),
            Ok(version) => others.push(format!("{} is {version}", program.display())),
            Err(problem) => others.push(format!("{} {problem}", program.display())),
        }
    }
    Err(match &others[..] {
        [] => String::new(),
        others => format!(" ({})", others.join("; ")),
    })
}

/// Returns the version that `kubectl version --client` prints, or why it failed.
fn client_version(program: &Path) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(["version", "--client", "--output=json"])
        // Ignore the user's kubeconfig and plugins.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("does not start: {error}"))?;
    let mut output = child.stdout.take().expect("piped above");
    // A version is a few hundred bytes. The limit protects against a program with endless output.
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.by_ref().take(64 * 1024).read_to_string(&mut text).ok();
        text
    });
    let deadline = Instant::now() + VERSION_TIMEOUT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) | Err(_) => {
                child.kill().ok();
                child.wait().ok();
                return Err(format!("did not print its version within {VERSION_TIMEOUT:?}"));
            }
        }
    };
    if !status.success() {
        return Err(format!("does not print its version ({status})"));
    }
    let text = reader.join().unwrap_or_default();
    let version = serde_json::from_str::<Value>(&text).ok();
    let version =
        version.and_then(|version| Some(version["clientVersion"]["gitVersion"].as_str()?.to_owned()));
    version.ok_or_else(|| "prints no clientVersion.gitVersion".to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// Writes an executable shell script.
    fn script(folder: &Path, name: &str, lines: &str) -> PathBuf {
        let program = folder.join(name);
        fs::write(&program, format!("#!/bin/sh\n{lines}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    fn prints(version: &str) -> String {
        format!(r#"echo '{{"clientVersion": {{"gitVersion": "{version}"}}}}'"#)
    }

    #[test]
    fn matching_kubectl_is_the_first_of_the_right_version() {
        let folder = tempfile::tempdir().unwrap();
        let candidates = [
            script(folder.path(), "dispatcher", &prints("v1.32.4-dispatcher")),
            script(folder.path(), "broken", "exit 3"),
            script(folder.path(), "garbled", "echo Client Version: v1.36.4"),
            script(folder.path(), "right", &prints(&format!("v{KUBERNETES_VERSION}"))),
        ];
        assert_eq!(
            first_matching(candidates.iter().cloned()).as_ref(),
            Ok(&candidates[3])
        );
    }

    #[test]
    fn error_without_matching_kubectl_names_all_candidates() {
        let folder = tempfile::tempdir().unwrap();
        let candidates = [
            script(folder.path(), "dispatcher", &prints("v1.32.4-dispatcher")),
            script(folder.path(), "broken", "exit 3"),
            folder.path().join("gone"),
        ];
        let reason = first_matching(candidates.into_iter()).unwrap_err();
        for part in [
            "dispatcher is v1.32.4-dispatcher",
            "broken does not print its version (exit status: 3)",
            "gone does not start: ",
        ] {
            assert!(reason.contains(part), "`{part}` is not in: {reason}");
        }
        assert_eq!(first_matching(std::iter::empty()), Err(String::new()));
    }
}
