//! A temporary folder and the processes that run in it. Both are removed, even if this process is killed.
//!
//! ```text
//!  this process ──owns──► Child handles (kill, reap)              normal end: drop
//!       │
//!       └─pipe─► janitor (/bin/sh, leader of the process group)   hard end: SIGKILL, abort, exit
//!                   └─ on end of file: kill the group, remove the folder
//! ```
//!
//! The kernel closes this process's end of the pipe however it ends, so the janitor needs no polling. `PR_SET_PDEATHSIG`
//! would need `unsafe`, exists only on Linux, and fires when the spawning *thread* ends. While the janitor lives, its
//! process group ID cannot be reused, so it never kills unrelated processes. The separate group also keeps a terminal's
//! Ctrl-C away from the servers.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::{
        fs::{OpenOptionsExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    Error,
    assets::{ARCH, OS},
};

/// SIGTERM comes first, so that etcd stops writing while the folder is removed; the janitor ignores it. The servers' data
/// is deleted anyway, so SIGKILL follows without waiting for a graceful shutdown; it also ends the janitor.
const JANITOR: &str = r#"
trap '' TERM
read -r _
kill -TERM 0
tries=0
until rm -rf -- "$1" 2>/dev/null || [ "$tries" -ge 50 ]; do tries=$((tries + 1)); sleep 0.1; done
kill -KILL 0
"#;

/// How many lines of a log an error shows.
const LOG_LINES: usize = 20;
/// How many bytes at the end of a log are searched for those lines.
const LOG_BYTES: u64 = 32 * 1024;
/// The time between two readiness probes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The folder, the janitor, and the servers in start order.
pub(crate) struct Sandbox {
    /// `None` only while dropping.
    folder: Option<TempDir>,
    /// Leads the process group of all servers, and waits for its stdin pipe to close.
    janitor: Child,
    servers: Vec<Server>,
}

struct Server {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Sandbox {
    /// Creates a folder in `parent` and starts the janitor.
    pub(crate) fn new(parent: &Path) -> Result<Self, Error> {
        let folder = private_folder(parent)?;
        let janitor = Command::new("/bin/sh")
            .args(["-c", JANITOR, "windlass-janitor"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map_err(|source| Error::Spawn {
                program: "/bin/sh".into(),
                source,
            })?;
        Ok(Self {
            folder: Some(folder),
            janitor,
            servers: Vec::new(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder
            .as_ref()
            .expect("the folder is taken only by drop")
            .path()
    }

    /// Writes a file that only the owner may read.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<PathBuf, Error> {
        let path = self.path().join(name);
        write_private(&path, content)?;
        Ok(path)
    }

    /// Starts `program` in the folder, with its output in `<name>.log`.
    ///
    /// It inherits no environment, because variables such as `ETCD_NAME` or `HTTPS_PROXY` would change what is tested.
    pub(crate) fn spawn(&mut self, name: &'static str, program: &Path, args: &[String]) -> Result<(), Error> {
        let log = self.path().join(format!("{name}.log"));
        let folder = |source| Error::WriteFile {
            path: log.clone(),
            source,
        };
        let stdout = File::create(&log).map_err(folder)?;
        let stderr = stdout.try_clone().map_err(folder)?;
        let group = i32::try_from(self.janitor.id()).expect("process ids are positive pid_t");
        tracing::debug!(server = name, program = %program.display(), ?args, "starting");
        let child = Command::new(program)
            .args(args)
            .env_clear()
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(group)
            .spawn()
            .map_err(|source| cannot_run(program, source))?;
        self.servers.push(Server { name, child, log });
        Ok(())
    }

    /// Waits until `probe` returns true. Fails if a server exits, or at `deadline` with the log of `waiting_for`.
    pub(crate) async fn wait_until(
        &mut self,
        waiting_for: &'static str,
        deadline: Deadline,
        mut probe: impl AsyncFnMut() -> bool,
    ) -> Result<(), Error> {
        loop {
            if probe().await {
                return Ok(());
            }
            self.check_alive()?;
            if deadline.has_passed() {
                let log = self.server(waiting_for).map(Server::log_tail).unwrap_or_default();
                return Err(Error::NotReady {
                    server: waiting_for,
                    waited: deadline.allowed,
                    log,
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn check_alive(&mut self) -> Result<(), Error> {
        for server in &mut self.servers {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(Error::Exited {
                    server: server.name,
                    status,
                    log: server.log_tail(),
                });
            }
        }
        Ok(())
    }

    fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // An error means that it has exited already.
            let _ = server.child.kill();
        }
        for server in &mut self.servers {
            let _ = server.child.wait();
        }
        if let Some(folder) = self.folder.take() {
            let path = folder.path().to_owned();
            if let Err(error) = folder.close() {
                tracing::warn!(path = %path.display(), %error, "cannot remove the cluster's folder");
            }
        }
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

impl Server {
    fn log_tail(&self) -> String {
        tail(&self.log).unwrap_or_else(|error| format!("(cannot read {}: {error})", self.log.display()))
    }
}

/// A deadline in real time, also under a paused tokio clock, which does not affect other processes.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    allowed: Duration,
}

impl Deadline {
    pub(crate) fn within(allowed: Duration) -> Self {
        Self {
            at: Instant::now() + allowed,
            allowed,
        }
    }

    fn has_passed(self) -> bool {
        Instant::now() >= self.at
    }
}

/// Creates a folder in `parent` that only its owner may enter, because it contains etcd's socket and keys.
fn private_folder(parent: &Path) -> Result<TempDir, Error> {
    private_folder_named(parent, "windlass-")
}

/// Like [`private_folder`], with another prefix of its name.
pub(crate) fn private_folder_named(parent: &Path, prefix: &str) -> Result<TempDir, Error> {
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent)
        .map_err(|source| Error::WriteFile {
            path: parent.to_owned(),
            source,
        })
}

/// Writes a file that only the owner may read, from the moment it is created.
pub(crate) fn write_private(path: &Path, content: &str) -> Result<(), Error> {
    write_private_bytes(path, content.as_bytes())
}

/// Like [`write_private`], for a file that is not text.
pub(crate) fn write_private_bytes(path: &Path, content: &[u8]) -> Result<(), Error> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(content))
        .map_err(|source| Error::WriteFile {
            path: path.to_owned(),
            source,
        })
}

fn cannot_run(program: &Path, source: io::Error) -> Error {
    /// The same number on Linux and macOS.
    const ENOEXEC: i32 = 8;
    /// macOS: "bad CPU type in executable".
    const EBADARCH: i32 = 86;
    match source.raw_os_error() {
        Some(ENOEXEC | EBADARCH) => Error::WrongArchitecture {
            program: program.to_owned(),
            os: OS,
            arch: ARCH,
        },
        _ => Error::Spawn {
            program: program.to_owned(),
            source,
        },
    }
}

fn tail(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    if lines.is_empty() {
        return Ok("(the log is empty)".to_owned());
    }
    Ok(lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_returns_the_last_lines_of_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let lines: Vec<_> = (0..5000).map(|n| format!("line {n}")).collect();
        fs::write(&log, lines.join("\n")).unwrap();
        assert_eq!(tail(&log).unwrap(), lines[5000 - LOG_LINES..].join("\n"));
        fs::write(&log, "only\n").unwrap();
        assert_eq!(tail(&log).unwrap(), "only");
        fs::write(&log, "").unwrap();
        assert_eq!(tail(&log).unwrap(), "(the log is empty)");
    }

    #[test]
    fn folders_and_files_are_private_to_their_owner() {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let folder = private_folder(&std::env::temp_dir()).unwrap();
        assert_eq!(mode(folder.path()), 0o700);
        let file = folder.path().join("secret");
        write_private(&file, "s").unwrap();
        assert_eq!(mode(&file), 0o600);
    }
}
