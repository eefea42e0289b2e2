//! The file: read once, then written anew as a whole, and never overwritten if it is not ours. Readable by its owner alone, as
//! it names every object that a sink was told of.

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

use super::{Progress, Record, Version};

/// What this program writes and reads.
const FORMAT: u32 = 1;

/// The mode of every file here.
const OWNER_ONLY: u32 = 0o600;

/// The state file. While it lives no other process has it.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// What was in it when it was opened.
    read: Record,
    /// One write at a time, so that a later one has what is newer.
    writing: Mutex<()>,
    /// Held, not read: beside the file, since the file itself is replaced by each write.
    _lock: fs::File,
}

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("cannot use the state file {}: {cause}; its folder must exist and be writable", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        cause: io::Error,
    },
    /// Another process has it.
    #[error("the state file {} is in use by another process: give each its own with --state", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is not a state file, or not a whole one.
    #[error(
        "{} is not a state file, or is damaged ({what}); it was left as it is: name another one with --state, or move it away to begin anew",
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
        "the state file {} has format {found}, and this program knows {FORMAT}: run a newer one, or name another file with --state",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: u32,
    },
}

#[derive(Deserialize)]
struct Head {
    podwatch: Option<u32>,
}

/// The file as JSON. Objects are texts, `uid@version` by `namespace/name`.
#[derive(Deserialize, Serialize)]
struct Body {
    podwatch: u32,
    scopes: BTreeMap<String, BTreeMap<String, Written>>,
}

#[derive(Deserialize, Serialize)]
struct Written {
    complete: bool,
    objects: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    offered: BTreeMap<String, String>,
}

impl Journal {
    /// Reads the file, or begins one if there is none. Nothing is written yet.
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
            .open(beside(&path, ".lock"))
            .map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(JournalError::InUse { path }),
            Err(fs::TryLockError::Error(cause)) => return Err(io(cause)),
        }
        let read = match fs::read(&path) {
            Ok(bytes) => parse(&path, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Record::new(),
            Err(error) => return Err(io(error)),
        };
        Ok(Self {
            path,
            read,
            writing: Mutex::new(()),
            _lock: lock,
        })
    }

    /// What was in it when it was opened.
    pub fn record(&self) -> &Record {
        &self.read
    }

    /// Replaces the file by what `record` gives. Whatever happens meanwhile, it is the old one or the new one. It blocks.
    ///
    /// Writes come one after the other, each with what its `record` gives in its turn.
    pub fn write(&self, record: impl FnOnce() -> Record) -> Result<(), JournalError> {
        let _turn = self.writing.lock();
        let text = serde_json::to_vec(&Body::from(&record())).expect("texts and numbers");
        self.replace(&text).map_err(|cause| JournalError::Io {
            path: self.path.clone(),
            cause,
        })
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let new = beside(&self.path, ".new");
        // What is left there by a process that died, or put there by another one, is neither written through (a symbolic link)
        // nor taken over with its mode: the file is always a new one.
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
        // Dies before: the old file. A name must never point at what is not on the disk yet.
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let folder = match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        // Until the folder is on the disk, the machine may come back with the old file: then more is told again.
        fs::File::open(folder)?.sync_all()
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Record, JournalError> {
    let damaged = |what: String| JournalError::Damaged {
        path: path.to_owned(),
        what,
    };
    let head: Head = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    match head.podwatch {
        Some(FORMAT) => {}
        Some(found) if found > FORMAT => {
            return Err(JournalError::Newer {
                path: path.to_owned(),
                found,
            });
        }
        _ => return Err(damaged("it does not say that it is one".to_owned())),
    }
    let body: Body = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    let mut record = Record::new();
    for (scope, sinks) in body.scopes {
        for (sink, written) in sinks {
            let read = |(key, version): (String, String)| {
                let read = version_of(&key, &version)
                    .ok_or_else(|| damaged(format!("`{version}` of `{key}` is no version")))?;
                Ok((read.key.clone(), read))
            };
            let offered = |(key, uid): (String, String)| {
                let read = uid_of(&uid).ok_or_else(|| damaged(format!("`{uid}` of `{key}` is no uid")))?;
                Ok((key_of(&key), read))
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

fn version_of(key: &str, version: &str) -> Option<Version> {
    let (uid, resource_version) = version.split_once('@')?;
    Some(Version {
        key: key_of(key),
        uid: uid_of(uid)?,
        resource_version: resource_version.parse().ok()?,
    })
}

fn key_of(key: &str) -> ObjectKey {
    match key.split_once('/') {
        Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster(key),
    }
}

/// What is no UUID would be another one when it is written again.
fn uid_of(uid: &str) -> Option<Uid> {
    let read = Uid::from(uid);
    (read.to_string() == uid).then_some(read)
}

impl From<&Record> for Body {
    fn from(record: &Record) -> Self {
        let written = |progress: &Progress| Written {
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
            podwatch: FORMAT,
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

    fn version(namespace: Option<&str>, name: &str, uid: u128, resource_version: u64) -> Version {
        let digits = format!("{uid:032x}");
        let uid = format!(
            "{}-{}-{}-{}-{}",
            &digits[..8],
            &digits[8..12],
            &digits[12..16],
            &digits[16..20],
            &digits[20..]
        );
        Version {
            key: namespace.map_or_else(
                || ObjectKey::cluster(name),
                |space| ObjectKey::namespaced(space, name),
            ),
            uid: Uid::from(&*uid),
            resource_version,
        }
    }

    fn record(versions: Vec<Version>) -> Record {
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
        Record::from([(
            "v1/Pod".to_owned(),
            BTreeMap::from([("stdout".to_owned(), progress)]),
        )])
    }

    #[test]
    fn what_is_written_is_read_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let journal = Journal::open(&path).expect("a new one");
        assert_eq!(journal.record(), &Record::new());
        assert!(!path.exists(), "nothing is written by opening");
        let record = record(vec![version(Some("a"), "b", 1, 2), version(None, "n", 3, 4)]);
        journal.write(|| record.clone()).expect("written");
        journal.write(|| record.clone()).expect("written again");
        drop(journal);
        assert_eq!(Journal::open(&path).expect("there").record(), &record);
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
        // Written by an older version, and left behind by one that died.
        for (name, text) in [("state", "{\"podwatch\":1,\"scopes\":{}}"), ("state.new", "{")] {
            let file = folder.path().join(name);
            fs::write(&file, text).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("chmod");
        }
        let journal = Journal::open(&path).expect("there");
        journal.write(Record::new).expect("written");
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
        journal.write(Record::new).expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("text"), "precious");
        assert!(fs::symlink_metadata(&path).expect("a file").is_file());
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_an_error_and_stays_as_it_is() {
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
                error.contains("it was left as it is: name another one with --state"),
                "{error}"
            );
            assert_eq!(fs::read(&path).expect("bytes"), &whole[..cut]);
        }
    }

    #[test]
    fn what_died_while_writing_leaves_the_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let record = record(vec![version(Some("a"), "b", 1, 2)]);
        Journal::open(&path)
            .expect("new")
            .write(|| record.clone())
            .expect("written");
        fs::write(folder.path().join("state.new"), "{\"podwat").expect("half of the next one");
        assert_eq!(Journal::open(&path).expect("the old one").record(), &record);
    }

    #[test]
    fn foreign_and_newer_files_are_named_with_the_fix() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let shown = path.display();
        let cases = [
            ("[1]", "is not a state file, or is damaged"),
            ("{\"apiVersion\": \"v1\"}", "it does not say that it is one"),
            (
                "{\"podwatch\": 2, \"other\": []}",
                "has format 2, and this program knows 1: run a newer one, or name another file with --state",
            ),
            (
                "{\"podwatch\":1,\"scopes\":{\"p\":{\"s\":{\"complete\":true,\"objects\":{\"a/b\":\"x@1\"}}}}}",
                "`x@1` of `a/b` is no version",
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
    fn two_processes_do_not_share_a_file() {
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
        fn any_record_comes_back(objects in prop::collection::vec((prop::option::of("[a-z]{1,3}"), "[a-z.-]{1,5}", any::<u128>(), any::<u64>()), 0..20)) {
            let versions = objects.iter().map(|(namespace, name, uid, rv)| version(namespace.as_deref(), name, *uid, *rv));
            let record = record(versions.collect());
            let text = serde_json::to_vec(&Body::from(&record)).expect("JSON");
            prop_assert_eq!(parse(Path::new("x"), &text).expect("read"), record);
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(Path::new("x"), &bytes);
        }
    }
}
