//! The state file: read once, then replaced as a whole, and never overwritten if podwatch did not write it. Readable by its
//! owner only, since it names every object that a sink received.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use windlass::cache::{ObjectKey, Uid};

use super::{JournalContents, ObjectVersion, Progress};

/// The format version that this program reads and writes.
const FORMAT_VERSION: u32 = 1;

/// The mode of the state and lock files.
const OWNER_ONLY: u32 = 0o600;

/// The state file, locked against other processes while this lives.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// The contents when it was opened.
    initial: JournalContents,
    /// Serializes writes, so that the last one has the newest contents.
    writing: Mutex<()>,
    /// Held, not read. A separate file, since each write replaces the state file.
    _lock: fs::File,
}

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("cannot use the state file {}: {cause}; its folder must exist and be writable", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        cause: io::Error,
    },
    /// Another process has locked it.
    #[error("the state file {} is in use by another process: give each its own with --state", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is not a state file, or is truncated.
    #[error(
        "{} is not a state file, or is damaged ({what}); it was not changed: choose another file with --state, or move it away to start over",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A newer version of this program wrote it.
    #[error(
        "the state file {} has format {found}, and this version supports {FORMAT_VERSION}: use a newer podwatch, or another file with --state",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's format version.
        found: u32,
    },
}

#[derive(Deserialize)]
struct FileHeader {
    podwatch: Option<u32>,
}

/// The file as JSON. Objects map `namespace/name` to `uid@version`.
#[derive(Deserialize, Serialize)]
struct FileContents {
    podwatch: u32,
    scopes: BTreeMap<String, BTreeMap<String, WrittenProgress>>,
}

#[derive(Deserialize, Serialize)]
struct WrittenProgress {
    complete: bool,
    objects: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    offered: BTreeMap<String, String>,
}

impl Journal {
    /// Locks and reads the file; a missing one counts as empty. Does not write it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        let io = |cause| JournalError::Io {
            path: path.clone(),
            cause,
        };
        let lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(OWNER_ONLY)
            .open(with_suffix(&path, ".lock"))
            .map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(JournalError::InUse { path }),
            Err(fs::TryLockError::Error(cause)) => return Err(io(cause)),
        }
        let initial = match fs::read(&path) {
            Ok(bytes) => parse(&path, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => JournalContents::new(),
            Err(error) => return Err(io(error)),
        };
        Ok(Self {
            path,
            initial,
            writing: Mutex::new(()),
            _lock: lock,
        })
    }

    /// The contents when it was opened.
    pub fn initial_contents(&self) -> &JournalContents {
        &self.initial
    }

    /// Atomically replaces the file with what `record` returns. Blocks.
    ///
    /// Writes are serialized; each calls its `record` when it holds the lock.
    pub fn write(&self, record: impl FnOnce() -> JournalContents) -> Result<(), JournalError> {
        let _turn = self.writing.lock();
        let text = serde_json::to_vec(&FileContents::from(&record())).expect("strings and numbers encode");
        self.replace(&text).map_err(|cause| JournalError::Io {
            path: self.path.clone(),
            cause,
        })
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let new = with_suffix(&self.path, ".new");
        // Always a new file: one left by a crash or planted by another user may be a symbolic link or have a wrong mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(OWNER_ONLY)
            .open(&new)?;
        file.write_all(text)?;
        // Before the rename, so that the name never points at data that is not on disk.
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let folder = match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        // Until the folder is synced, a power loss may bring back the old file; then more notices are repeated.
        fs::File::open(folder)?.sync_all()
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn parse(path: &Path, bytes: &[u8]) -> Result<JournalContents, JournalError> {
    let damaged = |what: String| JournalError::Damaged {
        path: path.to_owned(),
        what,
    };
    let head: FileHeader = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    match head.podwatch {
        Some(FORMAT_VERSION) => {}
        Some(found) if found > FORMAT_VERSION => {
            return Err(JournalError::Newer {
                path: path.to_owned(),
                found,
            });
        }
        _ => return Err(damaged("the field `podwatch` is missing".to_owned())),
    }
    let body: FileContents = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    let mut record = JournalContents::new();
    for (scope, sinks) in body.scopes {
        for (sink, written) in sinks {
            let read = |(key, version): (String, String)| {
                let read = parse_version(&key, &version)
                    .ok_or_else(|| damaged(format!("invalid version `{version}` of `{key}`")))?;
                Ok((read.key.clone(), read))
            };
            let offered = |(key, uid): (String, String)| {
                let read =
                    parse_uid(&uid).ok_or_else(|| damaged(format!("invalid uid `{uid}` of `{key}`")))?;
                Ok((parse_key(&key), read))
            };
            let progress = Progress {
                complete: written.complete,
                objects: written.objects.into_iter().map(read).collect::<Result<_, _>>()?,
                offered: written
                    .offered
                    .into_iter()
                    .map(offered)
                    .collect::<Result<_, _>>()?,
            };
            record.entry(scope.clone()).or_default().insert(sink, progress);
        }
    }
    Ok(record)
}

fn parse_version(key: &str, version: &str) -> Option<ObjectVersion> {
    let (uid, resource_version) = version.split_once('@')?;
    Some(ObjectVersion {
        key: parse_key(key),
        uid: parse_uid(uid)?,
        resource_version: resource_version.parse().ok()?,
    })
}

fn parse_key(key: &str) -> ObjectKey {
    match key.split_once('/') {
        Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster_scoped(key),
    }
}

/// Rejects text that is not a UUID: it would not round-trip.
fn parse_uid(uid: &str) -> Option<Uid> {
    let read = Uid::from(uid);
    (read.to_string() == uid).then_some(read)
}

impl From<&JournalContents> for FileContents {
    fn from(record: &JournalContents) -> Self {
        let written = |progress: &Progress| WrittenProgress {
            complete: progress.complete,
            objects: progress
                .objects
                .values()
                .map(|version| {
                    (
                        version.key.to_string(),
                        format!("{}@{}", version.uid, version.resource_version),
                    )
                })
                .collect(),
            offered: progress
                .offered
                .iter()
                .map(|(key, uid)| (key.to_string(), uid.to_string()))
                .collect(),
        };
        let sinks = |sinks: &BTreeMap<String, Progress>| {
            let sinks = sinks
                .iter()
                .map(|(sink, progress)| (sink.clone(), written(progress)));
            sinks.collect()
        };
        Self {
            podwatch: FORMAT_VERSION,
            scopes: record
                .iter()
                .map(|(scope, of)| (scope.clone(), sinks(of)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    fn version(namespace: Option<&str>, name: &str, uid: u128, resource_version: u64) -> ObjectVersion {
        let digits = format!("{uid:032x}");
        let uid = format!(
            "{}-{}-{}-{}-{}",
            &digits[..8],
            &digits[8..12],
            &digits[12..16],
            &digits[16..20],
            &digits[20..]
        );
        ObjectVersion {
            key: namespace.map_or_else(
                || ObjectKey::cluster_scoped(name),
                |space| ObjectKey::namespaced(space, name),
            ),
            uid: Uid::from(&*uid),
            resource_version,
        }
    }

    fn record(versions: Vec<ObjectVersion>) -> JournalContents {
        let offered = versions
            .iter()
            .take(1)
            .map(|version| (version.key.clone(), version.uid))
            .collect();
        let objects = versions
            .into_iter()
            .map(|version| (version.key.clone(), version))
            .collect();
        let progress = Progress {
            complete: true,
            objects,
            offered,
        };
        JournalContents::from([(
            "v1/Pod".to_owned(),
            BTreeMap::from([("stdout".to_owned(), progress)]),
        )])
    }

    #[test]
    fn journal_round_trips_and_leaves_only_the_lock_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let journal = Journal::open(&path).expect("a new one");
        assert_eq!(journal.initial_contents(), &JournalContents::new());
        assert!(!path.exists(), "nothing is written by opening");
        let record = record(vec![version(Some("a"), "b", 1, 2), version(None, "n", 3, 4)]);
        journal.write(|| record.clone()).expect("written");
        journal.write(|| record.clone()).expect("written again");
        drop(journal);
        assert_eq!(Journal::open(&path).expect("there").initial_contents(), &record);
        let mut names: Vec<_> = fs::read_dir(&folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["state", "state.lock"]);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("a file").permissions().mode() & 0o777
    }

    #[test]
    fn state_files_are_readable_by_their_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        // One from an older version, and one left by a crash.
        for (name, text) in [("state", "{\"podwatch\":1,\"scopes\":{}}"), ("state.new", "{")] {
            let file = folder.path().join(name);
            fs::write(&file, text).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("chmod");
        }
        let journal = Journal::open(&path).expect("there");
        journal.write(JournalContents::new).expect("written");
        for file in ["state", "state.lock"] {
            assert_eq!(mode(&folder.path().join(file)), 0o600, "{file}");
        }
    }

    #[test]
    fn write_does_not_follow_a_planted_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, victim) = (folder.path().join("state"), folder.path().join("victim"));
        fs::write(&victim, "precious").expect("written");
        std::os::unix::fs::symlink(&victim, folder.path().join("state.new")).expect("linked");
        let journal = Journal::open(&path).expect("new");
        journal.write(JournalContents::new).expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("text"), "precious");
        assert!(fs::symlink_metadata(&path).expect("a file").is_file());
    }

    #[test]
    fn truncated_file_is_rejected_and_not_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let journal = Journal::open(&path).expect("a new one");
        journal
            .write(|| record(vec![version(Some("a"), "b", 1, 2)]))
            .expect("written");
        drop(journal);
        let whole = fs::read(&path).expect("bytes");
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).expect("written");
            let error = Journal::open(&path).expect_err("torn").to_string();
            assert!(
                error.contains("it was not changed: choose another file with --state"),
                "{error}"
            );
            assert_eq!(fs::read(&path).expect("bytes"), &whole[..cut]);
        }
    }

    #[test]
    fn crash_during_write_keeps_the_old_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let record = record(vec![version(Some("a"), "b", 1, 2)]);
        Journal::open(&path)
            .expect("new")
            .write(|| record.clone())
            .expect("written");
        fs::write(folder.path().join("state.new"), "{\"podwat").expect("half of the next one");
        assert_eq!(
            Journal::open(&path).expect("the old one").initial_contents(),
            &record
        );
    }

    #[test]
    fn foreign_and_newer_files_are_rejected_with_path_and_fix() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let shown = path.display();
        let cases = [
            ("[1]", "is not a state file, or is damaged"),
            ("{\"apiVersion\": \"v1\"}", "the field `podwatch` is missing"),
            (
                "{\"podwatch\": 2, \"other\": []}",
                "has format 2, and this version supports 1: use a newer podwatch, or another file with --state",
            ),
            (
                "{\"podwatch\":1,\"scopes\":{\"p\":{\"s\":{\"complete\":true,\"objects\":{\"a/b\":\"x@1\"}}}}}",
                "invalid version `x@1` of `a/b`",
            ),
        ];
        for (text, expected) in cases {
            fs::write(&path, text).expect("written");
            let error = Journal::open(&path).expect_err(text).to_string();
            assert!(
                error.contains(expected) && error.contains(&shown.to_string()),
                "{error}"
            );
            assert_eq!(fs::read_to_string(&path).expect("text"), text);
        }
        let nowhere = folder.path().join("no/such");
        let error = Journal::open(nowhere).expect_err("no folder").to_string();
        assert!(error.contains("its folder must exist and be writable"), "{error}");
    }

    #[test]
    fn second_open_of_a_locked_file_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let first = Journal::open(&path).expect("free");
        let error = Journal::open(&path).expect_err("taken").to_string();
        assert!(
            error.contains("is in use by another process: give each its own with --state"),
            "{error}"
        );
        drop(first);
        Journal::open(&path).expect("free again");
    }

    proptest! {
        #[test]
        fn any_record_round_trips(objects in prop::collection::vec((prop::option::of("[a-z]{1,3}"), "[a-z.-]{1,5}", any::<u128>(), any::<u64>()), 0..20)) {
            let versions = objects.iter().map(|(namespace, name, uid, rv)| version(namespace.as_deref(), name, *uid, *rv));
            let record = record(versions.collect());
            let text = serde_json::to_vec(&FileContents::from(&record)).expect("JSON");
            prop_assert_eq!(parse(Path::new("x"), &text).expect("read"), record);
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(Path::new("x"), &bytes);
        }
    }
}
