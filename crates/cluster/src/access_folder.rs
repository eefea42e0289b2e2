//! The folder with a cluster's kubeconfigs, and the files copied from it.
//!
//! A kubeconfig holds an administrator's key, so a folder is removed with its cluster, or by the next cluster on this
//! machine if the process was killed. Whether its process lives is decided by a lock on the folder, not by a process ID:
//! the kernel releases the lock however the process ends, also in another container, and IDs are reused.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata, TryLockError},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    Error,
    kubeconfig::ADMIN_KUBECONFIG,
    kubeconfig_copy,
    sandbox::{private_folder_named, write_private_bytes},
};

/// Only folders with this prefix are removed. Those of real clusters have another one, and are removed by their janitor.
const PREFIX: &str = "windlass-access-";
/// Files with this prefix contain the path of a copy.
const COPY_PREFIX: &str = "copy-";
/// How often a new folder may be removed by another process before it is locked. More has another cause.
const ATTEMPTS: usize = 10;

/// A locked folder that only its owner may enter. Removed on drop.
pub(crate) struct AccessFolder {
    // Dropped before the lock, so that no other process sees the folder without it.
    folder: TempDir,
    _lock: File,
}

impl AccessFolder {
    /// Creates a folder in the system's folder for temporary files, and removes those of killed processes.
    pub(crate) fn new() -> Result<Self, Error> {
        Self::new_in(&std::env::temp_dir())
    }

    fn new_in(parent: &Path) -> Result<Self, Error> {
        let folder = Self::create(parent)?;
        folder.remove_stale(parent);
        Ok(folder)
    }

    fn create(parent: &Path) -> Result<Self, Error> {
        for _ in 0..ATTEMPTS {
            let folder = private_folder_named(parent, PREFIX)?;
            // Until it is locked, another process takes it for a stale one. It has no content to lose yet.
            let Ok(lock) = File::open(folder.path()) else {
                continue;
            };
            match lock.try_lock() {
                Err(TryLockError::WouldBlock) => continue,
                // Where folders cannot be locked, no process can lock and remove this one either.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            if is_same_file(&lock, folder.path()) {
                return Ok(Self { folder, _lock: lock });
            }
        }
        let source = std::io::Error::other("it was removed again and again by another process");
        Err(Error::WriteFile {
            path: parent.join(PREFIX),
            source,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Remembers a copy of the administrator's kubeconfig, so that it is removed too if this process is killed.
    pub(crate) fn record_copy(&self, copy: &Path) -> Result<(), Error> {
        let count = fs::read_dir(self.path()).map_or(0, Iterator::count);
        let record = self.path().join(format!("{COPY_PREFIX}{count}"));
        write_private_bytes(&record, copy.as_os_str().as_bytes())
    }

    /// Removes the folders in `parent` whose process has ended. Errors leave a folder to the next cluster.
    fn remove_stale(&self, parent: &Path) {
        let Ok(own) = fs::metadata(self.path()) else {
            return;
        };
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if !entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
                continue;
            }
            let path = entry.path();
            if let Some(stale) = StaleFolder::lock(&path, own.uid()) {
                match stale.remove() {
                    Ok(()) => {
                        tracing::debug!(path = %path.display(), "removed the folder of a killed process");
                    }
                    Err(error) => {
                        tracing::debug!(path = %path.display(), %error, "cannot remove the folder of a killed process");
                    }
                }
            }
        }
    }
}

/// A folder that no process holds; locked, so that no other process removes it at the same time.
struct StaleFolder<'a> {
    path: &'a Path,
    files: Vec<PathBuf>,
    _lock: File,
}

impl<'a> StaleFolder<'a> {
    /// Returns the folder if it is private to `owner`, has only files that this module writes, and no process holds it.
    fn lock(path: &'a Path, owner: u32) -> Option<Self> {
        let is_private =
            |meta: &Metadata| meta.is_dir() && meta.uid() == owner && (meta.mode() & 0o777) == 0o700;
        // Not through a symbolic link, which another user could have put there.
        fs::symlink_metadata(path).ok().filter(is_private)?;
        let lock = File::open(path).ok()?;
        lock.metadata().ok().filter(is_private)?;
        lock.try_lock().ok()?;
        let mut files = Vec::new();
        for entry in fs::read_dir(path).ok()? {
            let entry = entry.ok()?;
            let is_ours = entry.file_type().is_ok_and(|kind| kind.is_file()) && is_known(&entry.file_name());
            if !is_ours {
                return None;
            }
            files.push(entry.path());
        }
        Some(Self {
            path,
            files,
            _lock: lock,
        })
    }

    fn remove(self) -> std::io::Result<()> {
        // First the copies: they are known only from files in here.
        let admin = fs::read_to_string(self.path.join(ADMIN_KUBECONFIG)).unwrap_or_default();
        for record in &self.files {
            let is_record = record
                .file_name()
                .is_some_and(|name| name.as_bytes().starts_with(COPY_PREFIX.as_bytes()));
            if is_record {
                let copy = fs::read(record)?;
                kubeconfig_copy::remove_stale(Path::new(OsStr::from_bytes(&copy)), &admin);
            }
        }
        for file in &self.files {
            fs::remove_file(file)?;
        }
        fs::remove_dir(self.path)
    }
}

/// Whether the files of a folder can have this name.
fn is_known(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b".kubeconfig") || name.starts_with(COPY_PREFIX.as_bytes())
}

/// Whether an open file is still the one at this path.
pub(crate) fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(named)) => (file.dev(), file.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    /// Leaves a folder as a killed process does, and returns its path.
    fn killed(folder: AccessFolder) -> PathBuf {
        folder.folder.keep()
    }

    #[test]
    fn folder_of_a_killed_process_is_removed_by_the_next_one() {
        let parent = tempfile::tempdir().unwrap();
        let stale = AccessFolder::create(parent.path()).unwrap();
        write_private_bytes(&stale.path().join(ADMIN_KUBECONFIG), b"{}").unwrap();
        let stale = killed(stale);
        let next = AccessFolder::new_in(parent.path()).unwrap();
        assert!(!stale.exists());
        assert!(next.path().exists());
    }

    #[test]
    fn folder_of_a_living_process_stays() {
        let parent = tempfile::tempdir().unwrap();
        let first = AccessFolder::new_in(parent.path()).unwrap();
        let second = AccessFolder::new_in(parent.path()).unwrap();
        assert!(first.path().exists() && second.path().exists());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn folders_that_this_program_did_not_make_stay() {
        let parent = tempfile::tempdir().unwrap();
        let foreign_file = killed(AccessFolder::create(parent.path()).unwrap());
        fs::write(foreign_file.join("notes.txt"), "precious").unwrap();
        let open_to_others = killed(AccessFolder::create(parent.path()).unwrap());
        fs::set_permissions(&open_to_others, Permissions::from_mode(0o755)).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join(ADMIN_KUBECONFIG), "precious").unwrap();
        fs::set_permissions(elsewhere.path(), Permissions::from_mode(0o700)).unwrap();
        let link = parent.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        let real = parent.path().join("windlass-x");
        fs::create_dir(&real).unwrap();
        let _next = AccessFolder::new_in(parent.path()).unwrap();
        for kept in [&foreign_file, &open_to_others, &link, &real] {
            assert!(kept.exists(), "{}", kept.display());
        }
        assert!(elsewhere.path().join(ADMIN_KUBECONFIG).exists());
    }
}
