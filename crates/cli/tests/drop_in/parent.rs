//! What happens to both programs when the process that started them is killed.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use super::{POLL_INTERVAL, TIMEOUT, free_port, temp};

/// Starts a program from a process that is then killed. Returns the program's process number; it listens.
fn orphan(at: &Path, name: &str, port: u16, flags: &[String]) -> String {
    let program = at.join(name);
    if !program.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_windlass"), &program).expect("a link");
    }
    let mut parent = Command::new("sh")
        .args(["-c", "\"$0\" \"$@\" >/dev/null 2>&1 & echo $!; wait"])
        .arg(program)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut id = String::new();
    let output = parent.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut id).expect("a number");
    let deadline = Instant::now() + TIMEOUT;
    while !listens(port) {
        assert!(Instant::now() < deadline, "{name} did not start");
        std::thread::sleep(POLL_INTERVAL);
    }
    parent.kill().expect("it runs");
    parent.wait().expect("it ran");
    id.trim().to_owned()
}

fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[test]
fn only_programs_of_envtest_end_with_a_killed_test_process() {
    let folder = temp();
    let at = folder.path();
    let started = |name: &str, place: &str| {
        let port = free_port();
        let place = at.join(place);
        fs::create_dir_all(&place).expect("a folder");
        let place = place.display();
        let flags = if name == "etcd" {
            vec![
                format!("--listen-client-urls=http://127.0.0.1:{port}"),
                format!("--data-dir={place}"),
            ]
        } else {
            vec![format!("--secure-port={port}"), format!("--cert-dir={place}")]
        };
        (orphan(at, name, port, &flags), port)
    };
    let other = started("etcd", "data");
    for (name, place) in [
        ("etcd", "k8s_test_framework_1"),
        ("kube-apiserver", "k8s_test_framework_2"),
    ] {
        let (_, port) = started(name, place);
        let deadline = Instant::now() + TIMEOUT;
        while listens(port) {
            assert!(Instant::now() < deadline, "{name} did not end");
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    let (id, port) = other;
    assert!(listens(port), "this one was not started by envtest");
    assert!(
        Command::new("kill")
            .arg(id)
            .status()
            .expect("there is a kill")
            .success()
    );
}
