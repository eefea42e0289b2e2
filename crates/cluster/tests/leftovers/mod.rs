//! A place for clusters' folders, which can tell whether anything was left in it.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

/// A folder for `temp_dir`.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(
            tempfile::Builder::new()
                .prefix("place-")
                .tempdir()
                .expect("the system has room for temporary files"),
        )
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Files in the place, and processes that were started in it or told about it.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let files = fs::read_dir(self.path()).expect("the place is ours");
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

/// Every process with its command line and, where it can be seen, the folder it runs in.
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
