//! A temporary folder for clusters that detects files and processes that they left behind.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

/// A folder for `temp_dir`.
pub(crate) struct ClusterFolder(TempDir);

impl ClusterFolder {
    pub(crate) fn new() -> Self {
        Self(
            tempfile::Builder::new()
                .prefix("place-")
                .tempdir()
                .expect("a temporary folder"),
        )
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the files in the folder, and the processes that run in it or have it in their command line.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let files = fs::read_dir(self.path()).expect("the folder is readable");
        let mut found: Vec<_> = files
            .map(|file| file.expect("readable").path().display().to_string())
            .collect();
        found.extend(
            processes()
                .into_iter()
                .filter(|line| line.contains(self.path().to_str().expect("UTF-8"))),
        );
        found
    }
}

/// Returns every process with its command line and, where visible, its working directory.
fn processes() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc") else {
        let output = Command::new("ps")
            .args(["-axww", "-o", "pid=,args="])
            .output()
            .expect("ps lists processes");
        return String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(ToOwned::to_owned)
            .collect();
    };
    let pids = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    pids.map(|entry| {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let folder = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        format!(
            "{} {} in {}",
            entry.file_name().display(),
            String::from_utf8_lossy(&command).replace('\0', " "),
            folder.display()
        )
    })
    .collect()
}
