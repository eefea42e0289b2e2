//! A sink that appends JSON lines to a file.
//!
//! Each line is one write. After a crash during it, the file ends with a partial line, which was not confirmed: it is cut off when
//! the file is opened again, and its notice is sent again. A file that ends in anything but JSON is not changed.
//!
//! A new file is readable by its owner only, since notices contain objects. An existing one keeps its mode, so that an
//! administrator can share it with a log shipper's group; if every user can read it, a warning is logged.

use std::{
    collections::VecDeque,
    fs,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{DeliveryError, Sink, encoding};
use crate::notice::Notice;

/// The mode of new files.
const OWNER_ONLY: u32 = 0o600;

/// How far back to look for the start of a partial line: objects are at most 3 MiB, and a line has their changes too.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Appends each notice as a line of JSON; can rotate the file.
///
/// If the file was moved or deleted, it creates a new one, so that other tools can rotate it. Concurrent deliveries are written
/// together: handing each line to another thread would cost more than to write it.
pub struct File {
    open: Arc<Mutex<OpenFile>>,
    waiting: Arc<Mutex<WaitingLines>>,
}

/// Receives the outcome of a line.
type Written = oneshot::Sender<Result<(), String>>;

/// Lines that wait to be written. As many as there are concurrent deliveries.
#[derive(Default)]
struct WaitingLines {
    lines: VecDeque<(Vec<u8>, Written)>,
    /// Whether a thread writes them.
    is_writing: bool,
}

/// Why a file cannot be appended to.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be opened or read.
    #[error("cannot append to {}: {cause}; choose a writable file", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        cause: io::Error,
    },
    /// The file does not contain JSON lines.
    #[error("{} does not end with a JSON line and was not changed: choose another file, or complete its last line", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
}

/// When to rotate a file, and how many old ones to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The maximum size in bytes. A single line may exceed it.
    pub size: u64,
    /// How many old files to keep, as `FILE.1` (the newest), `FILE.2`, …
    pub keep: u32,
}

struct OpenFile {
    path: PathBuf,
    rotation: Option<Rotation>,
    file: fs::File,
    /// The offset after its last complete line.
    len: u64,
}

impl File {
    /// Opens or creates the file; repairs its last line if that is incomplete.
    pub fn open(path: impl Into<PathBuf>, rotation: Option<Rotation>) -> Result<Self, FileError> {
        let path = path.into();
        let (file, len) = open(&path)?;
        Ok(Self {
            open: Arc::new(Mutex::new(OpenFile {
                path,
                rotation,
                file,
                len,
            })),
            waiting: Arc::default(),
        })
    }

    /// Appends a line, together with others that wait.
    async fn append(&self, line: Vec<u8>) -> Result<(), DeliveryError> {
        let (done, written) = oneshot::channel();
        let is_writing = {
            let mut waiting = self.waiting.lock();
            waiting.lines.push_back((line, done));
            std::mem::replace(&mut waiting.is_writing, true)
        };
        if !is_writing {
            let (open, waiting) = (Arc::clone(&self.open), Arc::clone(&self.waiting));
            tokio::task::spawn_blocking(move || write_waiting(&open, &waiting));
        }
        let reason = match written.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(reason)) => reason,
            Err(_) => "the writer stopped".to_owned(),
        };
        Err(DeliveryError::Unavailable {
            reason,
            retry_after: None,
        })
    }

    async fn run_blocking(
        &self,
        work: impl FnOnce(&mut OpenFile) -> Result<(), FileError> + Send + 'static,
    ) -> Result<(), DeliveryError> {
        let open = Arc::clone(&self.open);
        let done = tokio::task::spawn_blocking(move || work(&mut open.lock())).await;
        let reason = match done {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic.to_string(),
        };
        Err(DeliveryError::Unavailable {
            reason,
            retry_after: None,
        })
    }
}

impl Sink for File {
    fn deliver<'a>(&'a self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), DeliveryError>> {
        self.append(encoding::line(notice)).boxed()
    }

    fn commit(&self) -> BoxFuture<'_, Result<(), DeliveryError>> {
        self.run_blocking(OpenFile::sync).boxed()
    }
}

/// Writes the waiting lines, and those that come meanwhile.
fn write_waiting(open: &Mutex<OpenFile>, waiting: &Mutex<WaitingLines>) {
    /// Lets another thread write after a panic.
    struct Unlock<'a>(&'a Mutex<WaitingLines>);
    impl Drop for Unlock<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let mut waiting = self.0.lock();
                waiting.is_writing = false;
                waiting.lines.clear();
            }
        }
    }
    let _unlock = Unlock(waiting);
    loop {
        let lines = {
            let mut waiting = waiting.lock();
            if waiting.lines.is_empty() {
                waiting.is_writing = false;
                return;
            }
            std::mem::take(&mut waiting.lines)
        };
        let mut open = open.lock();
        for (line, done) in lines {
            // The receiver is gone if the delivery was cancelled.
            let _ = done.send(open.append(&line).map_err(|error| error.to_string()));
        }
    }
}

impl OpenFile {
    fn append(&mut self, line: &[u8]) -> Result<(), FileError> {
        let size = line.len() as u64;
        self.reopen_if_moved()?;
        if let Some(rotation) = self.rotation
            && self.len > 0
            && self.len + size > rotation.size
        {
            self.rotate(rotation.keep)?;
        }
        let written = match self.file.write(line) {
            Ok(written) if written == line.len() => Ok(()),
            Ok(_) => Err(io::Error::from(io::ErrorKind::StorageFull)),
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => {
                self.len += size;
                Ok(())
            }
            Err(cause) => {
                // A partial line, as on a full disk, must not become the start of the next one.
                let _ = self.file.set_len(self.len);
                Err(self.error(cause))
            }
        }
    }

    fn sync(&mut self) -> Result<(), FileError> {
        self.file.sync_data().map_err(|cause| self.error(cause))
    }

    /// Reopens the path if it no longer leads to the open file.
    fn reopen_if_moved(&mut self) -> Result<(), FileError> {
        let identity = |meta: &fs::Metadata| (meta.dev(), meta.ino());
        let here = self.file.metadata().map_err(|cause| self.error(cause))?;
        let is_same = fs::metadata(&self.path).is_ok_and(|there| identity(&there) == identity(&here));
        if is_same {
            // The file may have been truncated (`> FILE`).
            self.len = here.len();
            return Ok(());
        }
        // Deliveries to the old file must be durable too.
        self.sync()?;
        (self.file, self.len) = open(&self.path)?;
        Ok(())
    }

    fn rotate(&mut self, keep: u32) -> Result<(), FileError> {
        self.sync()?;
        let old = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        let moved = (1..keep)
            .rev()
            .map(|number| (old(number), old(number + 1)))
            .filter(|(from, _)| from.exists())
            .try_for_each(|(from, to)| fs::rename(from, to))
            .and_then(|()| match keep {
                0 => fs::remove_file(&self.path),
                _ => fs::rename(&self.path, old(1)),
            });
        moved.map_err(|cause| self.error(cause))?;
        (self.file, self.len) = open(&self.path)?;
        Ok(())
    }

    fn error(&self, cause: io::Error) -> FileError {
        FileError::Io {
            path: self.path.clone(),
            cause,
        }
    }
}

/// Opens the file for appending, and returns its length.
fn open(path: &Path) -> Result<(fs::File, u64), FileError> {
    let error = |cause| FileError::Io {
        path: path.to_owned(),
        cause,
    };
    let mut file = fs::OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(OWNER_ONLY)
        .open(path)
        .map_err(error)?;
    let metadata = file.metadata().map_err(error)?;
    if metadata.is_file() && metadata.mode() & 0o007 != 0 {
        tracing::warn!(
            file = %path.display(),
            mode = format!("{:o}", metadata.mode() & 0o777),
            "every user of this machine can read this file; chmod it to 600 or 640",
        );
    }
    let len = metadata.len();
    let tail = tail(&mut file, len).map_err(error)?;
    if tail.is_empty() {
        return Ok((file, len));
    }
    let is_whole = serde_json::from_slice::<serde::de::IgnoredAny>(&tail).is_ok();
    if is_whole {
        file.write_all(b"\n").map_err(error)?;
        return Ok((file, len + 1));
    }
    if tail.len() as u64 > MAX_LINE_BYTES || !tail.starts_with(b"{\"id\":") {
        return Err(FileError::Foreign {
            path: path.to_owned(),
        });
    }
    let whole = len - tail.len() as u64;
    file.set_len(whole).map_err(error)?;
    tracing::warn!(file = %path.display(), bytes = tail.len(), "removed a partial last line; its notice is sent again");
    Ok((file, whole))
}

/// The bytes after the last newline; if they exceed [`MAX_LINE_BYTES`], only as many as prove that.
fn tail(file: &mut fs::File, len: u64) -> io::Result<Vec<u8>> {
    let mut reach = 4096;
    loop {
        let start = len.saturating_sub(reach);
        file.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        file.take(len - start).read_to_end(&mut end)?;
        if let Some(newline) = end.iter().rposition(|byte| *byte == b'\n') {
            return Ok(end.split_off(newline + 1));
        }
        if start == 0 || reach > MAX_LINE_BYTES {
            return Ok(end);
        }
        reach *= 8;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::delivery::testing::pod;

    fn names(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).expect("text");
        assert!(text.is_empty() || text.ends_with('\n'), "half a line: {text:?}");
        text.lines()
            .map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
                line["name"].as_str().expect("a name").to_owned()
            })
            .collect()
    }

    async fn deliver(sink: &File, name: &str) {
        sink.deliver(&Arc::new(pod(name, "u1", 1).build()))
            .await
            .expect("delivered");
    }

    #[tokio::test]
    async fn lines_are_appended_to_existing_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        deliver(&File::open(&path, None).expect("opens"), "a").await;
        let again = File::open(&path, None).expect("opens");
        deliver(&again, "b").await;
        again.commit().await.expect("synced");
        assert_eq!(names(&path), ["a", "b"]);
    }

    #[tokio::test]
    async fn partial_last_line_is_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let sink = File::open(&path, None).expect("opens");
        deliver(&sink, "a").await;
        let first = fs::metadata(&path).expect("a file").len();
        deliver(&sink, "torn").await;
        let whole = fs::read(&path).expect("bytes");
        // A shorter partial line cannot be distinguished from a foreign file.
        for cut in (usize::try_from(first).expect("small") + 6)..whole.len() - 1 {
            fs::write(&path, &whole[..cut]).expect("written");
            deliver(&File::open(&path, None).expect("mended"), "b").await;
            let expected: &[&str] = if cut == whole.len() - 1 {
                &["a", "torn", "b"]
            } else {
                &["a", "b"]
            };
            assert_eq!(names(&path), expected, "cut at {cut}");
        }
        // Only the newline is missing: the line is complete.
        fs::write(&path, &whole[..whole.len() - 1]).expect("written");
        deliver(&File::open(&path, None).expect("mended"), "b").await;
        assert_eq!(names(&path), ["a", "torn", "b"]);
    }

    #[test]
    fn foreign_file_is_rejected_and_not_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes");
        fs::write(&path, "dear diary").expect("written");
        let error = File::open(&path, None).err().expect("foreign").to_string();
        assert!(error.contains("was not changed: choose another file"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("text"), "dear diary");
        let error = File::open(folder.path(), None)
            .err()
            .expect("a folder")
            .to_string();
        assert!(error.contains("choose a writable file"), "{error}");
    }

    #[tokio::test]
    async fn appending_continues_after_move_or_truncation() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, moved) = (folder.path().join("log"), folder.path().join("moved"));
        let sink = File::open(&path, None).expect("opens");
        deliver(&sink, "a").await;
        fs::rename(&path, &moved).expect("moved");
        deliver(&sink, "b").await;
        assert_eq!(
            (names(&moved), names(&path)),
            (vec!["a".to_owned()], vec!["b".to_owned()])
        );
        fs::write(&path, "").expect("emptied");
        deliver(&sink, "c").await;
        assert_eq!(names(&path), ["c"]);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("a file").mode() & 0o777
    }

    #[tokio::test]
    async fn new_files_are_readable_by_their_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let rotation = Rotation { size: 1, keep: 1 };
        let sink = File::open(&path, Some(rotation)).expect("opens");
        assert_eq!(mode(&path), 0o600, "created");
        deliver(&sink, "a").await;
        deliver(&sink, "b").await;
        assert_eq!(mode(&folder.path().join("log.1")), 0o600, "rotated away");
        assert_eq!(mode(&path), 0o600, "begun by rotation");
        fs::remove_file(&path).expect("removed");
        deliver(&sink, "c").await;
        assert_eq!(mode(&path), 0o600, "begun again");
    }

    #[test]
    fn existing_file_keeps_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        fs::write(&path, "").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
        File::open(&path, None).expect("opens");
        assert_eq!(mode(&path), 0o640);
    }

    #[tokio::test]
    async fn rotation_keeps_the_configured_number_of_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let size = encoding::line(&pod("a", "u1", 1).build()).len() as u64;
        let rotation = Rotation {
            size: 2 * size,
            keep: 2,
        };
        let sink = File::open(&path, Some(rotation)).expect("opens");
        for name in ["a", "b", "c", "d", "e", "f", "g"] {
            deliver(&sink, name).await;
        }
        let old = |number: u32| names(&folder.path().join(format!("log.{number}")));
        assert_eq!(names(&path), ["g"]);
        assert_eq!(
            (old(1), old(2)),
            (vec!["e".into(), "f".into()], vec!["c".into(), "d".to_owned()])
        );
        assert!(!folder.path().join("log.3").exists());
    }
}
