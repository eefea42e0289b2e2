//! A file of JSON lines that is appended to.
//!
//! A line is one write. If the process dies within it, the file ends in half a line, which nobody has confirmed: it is cut
//! off when the file is opened again, and told again. A file that ends in anything else than JSON is left alone.
//!
//! A new file is readable by its owner alone, since notices show objects. One that exists keeps its mode, so that an
//! administrator can open it to a log shipper's group; a warning says so if everyone can read it.

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;

use super::{Sink, Trouble, form};
use crate::notice::Notice;

/// The mode of new files.
const OWNER_ONLY: u32 = 0o600;

/// How far back the beginning of an unfinished line is looked for: objects are at most 3 MiB, and told with their changes.
const LONGEST_LINE: u64 = 16 << 20;

/// Appends each notice as a line of JSON; rotates if asked to.
///
/// A file that was moved away or deleted is begun anew, so that other tools may rotate it.
pub struct File(Arc<Mutex<Open>>);

/// Why a file cannot be appended to.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be opened or read.
    #[error("cannot append to {}: {cause}; name a file that can be written to", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        cause: io::Error,
    },
    /// It is something else than lines of JSON.
    #[error("{} does not end as a file of JSON lines does, and is left alone: name another one, or end its last line", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
}

/// How large a file may become, and how many old ones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// In bytes. One line may be more.
    pub size: u64,
    /// Beside the file itself, as `FILE.1` (the newest), `FILE.2`, …
    pub keep: u32,
}

struct Open {
    path: PathBuf,
    rotation: Option<Rotation>,
    file: fs::File,
    /// The end of its last whole line.
    len: u64,
}

impl File {
    /// Opens or creates the file; its last line is mended if it was not finished.
    pub fn open(path: impl Into<PathBuf>, rotation: Option<Rotation>) -> Result<Self, FileError> {
        let path = path.into();
        let (file, len) = open(&path)?;
        Ok(Self(Arc::new(Mutex::new(Open {
            path,
            rotation,
            file,
            len,
        }))))
    }

    async fn blocking(
        &self,
        work: impl FnOnce(&mut Open) -> Result<(), FileError> + Send + 'static,
    ) -> Result<(), Trouble> {
        let open = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&mut open.lock())).await;
        let why = match done {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic.to_string(),
        };
        Err(Trouble::Down { why, after: None })
    }
}

impl Sink for File {
    fn deliver<'a>(&'a mut self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), Trouble>> {
        let line = form::line(notice);
        self.blocking(move |open| open.append(&line)).boxed()
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<(), Trouble>> {
        self.blocking(Open::sync).boxed()
    }
}

impl Open {
    fn append(&mut self, line: &[u8]) -> Result<(), FileError> {
        let size = line.len() as u64;
        self.follow()?;
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
                // Half a line, as on a full disk, must not become the beginning of the next one.
                let _ = self.file.set_len(self.len);
                Err(self.error(cause))
            }
        }
    }

    fn sync(&mut self) -> Result<(), FileError> {
        self.file.sync_data().map_err(|cause| self.error(cause))
    }

    /// If the path leads elsewhere than to the open file, goes there.
    fn follow(&mut self) -> Result<(), FileError> {
        let identity = |meta: &fs::Metadata| (meta.dev(), meta.ino());
        let here = self.file.metadata().map_err(|cause| self.error(cause))?;
        let is_same = fs::metadata(&self.path).is_ok_and(|there| identity(&there) == identity(&here));
        if is_same {
            // Somebody who empties the file (`> FILE`) makes it shorter, and an append goes to its end.
            self.len = here.len();
            return Ok(());
        }
        // What was delivered into the old one must stay as well.
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

/// The file, ready to be appended to, and its length.
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
            "every user of this machine can read the notices in this file; chmod it to 600 or 640",
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
    if tail.len() as u64 > LONGEST_LINE || !tail.starts_with(b"{\"id\":") {
        return Err(FileError::Foreign {
            path: path.to_owned(),
        });
    }
    let whole = len - tail.len() as u64;
    file.set_len(whole).map_err(error)?;
    tracing::warn!(file = %path.display(), bytes = tail.len(), "an unfinished last line was cut off; what it said is told again");
    Ok((file, whole))
}

/// What stands after the last end of a line; if that is too long, more than the longest line of it.
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
        if start == 0 || reach > LONGEST_LINE {
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

    async fn tell(sink: &mut File, name: &str) {
        sink.deliver(&Arc::new(pod(name, "u1", 1).build()))
            .await
            .expect("delivered");
    }

    #[tokio::test]
    async fn lines_are_appended_to_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        tell(&mut File::open(&path, None).expect("opens"), "a").await;
        let mut again = File::open(&path, None).expect("opens");
        tell(&mut again, "b").await;
        again.settle().await.expect("synced");
        assert_eq!(names(&path), ["a", "b"]);
    }

    #[tokio::test]
    async fn a_torn_last_line_is_cut_off_wherever_it_was_torn() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut sink = File::open(&path, None).expect("opens");
        tell(&mut sink, "a").await;
        let first = fs::metadata(&path).expect("a file").len();
        tell(&mut sink, "torn").await;
        let whole = fs::read(&path).expect("bytes");
        // From the seventh byte on it can be told from a file of somebody else.
        for cut in (usize::try_from(first).expect("small") + 6)..whole.len() - 1 {
            fs::write(&path, &whole[..cut]).expect("written");
            tell(&mut File::open(&path, None).expect("mended"), "b").await;
            let expected: &[&str] = if cut == whole.len() - 1 {
                &["a", "torn", "b"]
            } else {
                &["a", "b"]
            };
            assert_eq!(names(&path), expected, "cut at {cut}");
        }
        // Only the end of the line is missing: it is whole.
        fs::write(&path, &whole[..whole.len() - 1]).expect("written");
        tell(&mut File::open(&path, None).expect("mended"), "b").await;
        assert_eq!(names(&path), ["a", "torn", "b"]);
    }

    #[test]
    fn a_file_of_somebody_else_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes");
        fs::write(&path, "dear diary").expect("written");
        let error = File::open(&path, None).err().expect("foreign").to_string();
        assert!(error.contains("is left alone: name another one"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("text"), "dear diary");
        let error = File::open(folder.path(), None)
            .err()
            .expect("a folder")
            .to_string();
        assert!(error.contains("name a file that can be written to"), "{error}");
    }

    #[tokio::test]
    async fn a_file_that_was_moved_or_emptied_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, moved) = (folder.path().join("log"), folder.path().join("moved"));
        let mut sink = File::open(&path, None).expect("opens");
        tell(&mut sink, "a").await;
        fs::rename(&path, &moved).expect("moved");
        tell(&mut sink, "b").await;
        assert_eq!(
            (names(&moved), names(&path)),
            (vec!["a".to_owned()], vec!["b".to_owned()])
        );
        fs::write(&path, "").expect("emptied");
        tell(&mut sink, "c").await;
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
        let mut sink = File::open(&path, Some(rotation)).expect("opens");
        assert_eq!(mode(&path), 0o600, "created");
        tell(&mut sink, "a").await;
        tell(&mut sink, "b").await;
        assert_eq!(mode(&folder.path().join("log.1")), 0o600, "rotated away");
        assert_eq!(mode(&path), 0o600, "begun by rotation");
        fs::remove_file(&path).expect("removed");
        tell(&mut sink, "c").await;
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
    async fn rotation_keeps_as_many_as_it_was_told_and_no_line_is_in_two() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let size = form::line(&pod("a", "u1", 1).build()).len() as u64;
        let rotation = Rotation {
            size: 2 * size,
            keep: 2,
        };
        let mut sink = File::open(&path, Some(rotation)).expect("opens");
        for name in ["a", "b", "c", "d", "e", "f", "g"] {
            tell(&mut sink, name).await;
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
