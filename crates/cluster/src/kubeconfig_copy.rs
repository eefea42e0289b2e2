//! A copy of the administrator's kubeconfig at a path that the user chose.
//!
//! ```text
//!  /home/me/dev.kubeconfig                     the copy; renamed into place, so that it is never half written
//!  /home/me/.dev.kubeconfig.windlass-lock      held while the copy is in use; contains the process number of the owner
//!  /home/me/.dev.kubeconfig.windlass-new       exists only while the copy is written
//! ```

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use kube::config::Kubeconfig;
use serde_json::Value;

use crate::{Error, access_folder::is_same_file, kubeconfig};

/// How often the lock file may be replaced while it is locked. More has another cause.
const ATTEMPTS: usize = 10;
/// Longer than any process number.
const MAX_NUMBER_BYTES: u64 = 32;
/// Larger files are not ours.
const MAX_BYTES: u64 = 1024 * 1024;

/// A copy of an administrator's kubeconfig, from [`Cluster::copy_kubeconfig`](crate::Cluster::copy_kubeconfig). Dropping
/// it deletes the file, unless it was replaced by another one.
#[derive(Debug)]
#[must_use = "the file is deleted on drop"]
pub struct KubeconfigCopy {
    path: PathBuf,
    key: String,
    _lock: PathLock,
}

impl KubeconfigCopy {
    /// Returns the absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `kubeconfig` to `path`, after `record` was called with its absolute path.
    pub(crate) fn write(
        path: &Path,
        kubeconfig: &str,
        record: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let cannot = |source| Error::WriteKubeconfig {
            path: path.to_owned(),
            source,
        };
        let path = std::path::absolute(path).map_err(cannot)?;
        let lock = match PathLock::acquire(&path).map_err(cannot)? {
            Acquired::Lock(lock) => lock,
            Acquired::HeldBy(owner) => return Err(Error::KubeconfigInUse { path, owner }),
        };
        let replaces = match fs::symlink_metadata(&path) {
            Ok(_) if !is_ours(&path) => return Err(Error::ForeignKubeconfig { path }),
            Ok(_) => true,
            Err(_) => false,
        };
        // A process that is killed from here on leaves a record of what to remove.
        record(&path)?;
        let new = sibling(&path, "new");
        // Left by a process that was killed while it wrote; the lock proves that none is writing.
        let _ = fs::remove_file(&new);
        let written = write_new(&new, kubeconfig).and_then(|()| {
            if replaces {
                fs::rename(&new, &path)
            } else {
                // Fails if another program has created the file meanwhile.
                fs::hard_link(&new, &path)
            }
        });
        let _ = fs::remove_file(&new);
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::ForeignKubeconfig { path });
            }
            Err(error) => return Err(cannot(error)),
        }
        let key = client_key(kubeconfig).unwrap_or_default();
        Ok(Self {
            path,
            key,
            _lock: lock,
        })
    }
}

impl Drop for KubeconfigCopy {
    fn drop(&mut self) {
        remove_if_it_has_key(&self.path, &self.key);
    }
}

/// Removes the copy of a killed process whose administrator's kubeconfig was `admin`, and the files beside it, unless
/// another process has taken over the path.
pub(crate) fn remove_stale(path: &Path, admin: &str) {
    if let Ok(Acquired::Lock(_lock)) = PathLock::acquire(path) {
        let _ = fs::remove_file(sibling(path, "new"));
        if let Some(key) = client_key(admin) {
            remove_if_it_has_key(path, &key);
        }
    }
}

fn remove_if_it_has_key(path: &Path, key: &str) {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    if read.is_ok() && !key.is_empty() && text.contains(key) && is_ours(path) {
        let _ = fs::remove_file(path);
    } else if path.exists() {
        tracing::warn!(path = %path.display(), "the kubeconfig was replaced by another one, which is kept");
    }
}

fn is_ours(path: &Path) -> bool {
    Kubeconfig::read_from(path).is_ok_and(|found| kubeconfig::is_ours(&found))
}

/// The client key of a kubeconfig as we write it.
fn client_key(kubeconfig: &str) -> Option<String> {
    let kubeconfig: Value = serde_json::from_str(kubeconfig).ok()?;
    let key = kubeconfig.pointer("/users/0/user/client-key-data")?;
    Some(key.as_str()?.to_owned())
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// A hidden file beside this one.
fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".windlass-");
    name.push(suffix);
    path.with_file_name(name)
}

/// Reserves a path for this process. The lock file is removed on drop.
#[derive(Debug)]
struct PathLock {
    path: PathBuf,
    _file: File,
}

enum Acquired {
    Lock(PathLock),
    /// The process number of the owner, if it can be read.
    HeldBy(Option<u32>),
}

impl PathLock {
    fn acquire(locked: &Path) -> io::Result<Acquired> {
        let path = sibling(locked, "lock");
        for _ in 0..ATTEMPTS {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut number = String::new();
                    let _ = file.take(MAX_NUMBER_BYTES).read_to_string(&mut number);
                    return Ok(Acquired::HeldBy(number.trim().parse().ok()));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // The previous owner removes the file while it holds the lock: this one may be gone already.
            if !is_same_file(&file, &path) {
                continue;
            }
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())?;
            return Ok(Acquired::Lock(Self { path, _file: file }));
        }
        Err(io::Error::other(
            "its lock was removed again and again by another process",
        ))
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn admin(key: &str) -> String {
        let kubeconfig = kubeconfig::with_single_context(
            &json!({"server": "https://127.0.0.1:1"}),
            "admin",
            &json!({"client-key-data": key}),
        );
        kubeconfig::to_json(&kubeconfig)
    }

    fn write(path: &Path, key: &str) -> Result<KubeconfigCopy, Error> {
        KubeconfigCopy::write(path, &admin(key), |_| Ok(()))
    }

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn second_copy_to_the_same_path_is_refused_with_the_process_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let first = write(&path, "first").unwrap();
        let error = write(&path, "second").unwrap_err();
        let Error::KubeconfigInUse { owner, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*owner, Some(std::process::id()));
        assert!(fs::read_to_string(&path).unwrap().contains("first"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(first);
        assert_eq!(names(folder.path()), [] as [&str; 0]);
        drop(write(&path, "second").unwrap());
    }

    #[test]
    fn file_of_a_killed_process_is_replaced_and_its_remains_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        for (remains, text) in [
            (path.clone(), admin("killed")),
            (sibling(&path, "new"), "half".to_owned()),
            (sibling(&path, "lock"), "1\n".to_owned()),
        ] {
            fs::write(remains, text).unwrap();
        }
        let copy = write(&path, "next").unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("next"));
        assert_eq!(names(folder.path()), [".config.windlass-lock", "config"]);
        // The next cluster may clean up after the killed one while another process has its path.
        remove_stale(&path, &admin("killed"));
        assert!(path.exists());
        drop(copy);
        fs::write(&path, admin("killed")).unwrap();
        remove_stale(&path, &admin("killed"));
        assert_eq!(names(folder.path()), [] as [&str; 0]);
    }

    #[test]
    fn file_that_replaced_the_copy_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let copy = write(&path, "ours").unwrap();
        fs::write(&path, admin("another")).unwrap();
        drop(copy);
        assert!(fs::read_to_string(&path).unwrap().contains("another"));
        remove_stale(&path, &admin("ours"));
        assert_eq!(names(folder.path()), ["config"]);
    }

    #[test]
    fn foreign_file_is_neither_replaced_nor_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        // A kubeconfig that someone wrote for a context of the same name.
        let mut same_name: Value = serde_json::from_str(&admin("precious")).unwrap();
        same_name.as_object_mut().unwrap().remove("extensions");
        // One of ours, with another context of its owner.
        let mut extended: Value = serde_json::from_str(&admin("precious")).unwrap();
        let context = extended["contexts"][0].clone();
        extended["contexts"].as_array_mut().unwrap().push(context);
        for text in ["precious".to_owned(), same_name.to_string(), extended.to_string()] {
            fs::write(&path, &text).unwrap();
            let refused =
                KubeconfigCopy::write(&path, &admin("ours"), |_| unreachable!("nothing is written"));
            assert!(matches!(refused, Err(Error::ForeignKubeconfig { .. })), "{text}");
            remove_stale(&path, &admin("precious"));
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(names(folder.path()), ["config"]);
        }
    }
}
