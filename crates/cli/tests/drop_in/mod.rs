//! This binary as etcd and kube-apiserver, started and stopped as envtest does it.

mod api_server;
mod credentials;
mod etcd;
mod parent;

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// The time limit of any wait.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

fn temp() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// A running program; killed on drop.
struct Program(Option<Child>);

impl Program {
    /// Starts this binary under another name.
    fn start(folder: &Path, name: &str, arguments: &[String]) -> Self {
        let program = folder.join(name);
        if !program.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_windlass"), &program).expect("a link");
        }
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built for this test");
        Self(Some(child))
    }

    fn signal(&self, name: &str) {
        let id = self.0.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.expect("there is a kill").success());
    }

    /// Waits for its exit, and returns its output.
    fn wait(mut self) -> Output {
        let mut child = self.0.take().expect("it runs");
        let status = wait_for_exit(&mut child);
        if status.is_none() {
            child.kill().expect("it runs");
        }
        let output = child.wait_with_output().expect("it ran");
        assert!(status.is_some(), "it did not end: {}", text(&output.stderr));
        output
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait_for_exit(child: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return Some(status);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    None
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Sends a request over plain HTTP; `None` if the connection fails.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn write(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, content).expect("a temporary file");
    path.to_str()
        .expect("temporary folders have plain names")
        .to_owned()
}
