//! `etcd`.

use std::{
    net::{Ipv4Addr, TcpListener},
    time::Instant,
};

use super::{PATIENCE, PAUSE, Program, free_port, get, temp, text};

/// As envtest passes them.
fn flags(port: u16, folder: &str) -> Vec<String> {
    vec![
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        format!("--data-dir={folder}"),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        "--listen-peer-urls=http://127.0.0.1:1".to_owned(),
        "--unsafe-no-fsync=true".to_owned(),
    ]
}

#[test]
fn it_is_healthy_keeps_nothing_and_ends_when_told() {
    for signal in ["TERM", "INT"] {
        let (folder, data, port) = (temp(), temp(), free_port());
        let etcd = Program::start(folder.path(), "etcd", &flags(port, data.path().to_str().unwrap()));
        let deadline = Instant::now() + PATIENCE;
        let healthy = loop {
            match get(port, "/health") {
                Some(answer) => break answer,
                None => assert!(Instant::now() < deadline, "nobody listens"),
            }
            std::thread::sleep(PAUSE);
        };
        assert!(healthy.starts_with("HTTP/1.1 200 "), "{healthy}");
        assert!(healthy.ends_with(r#"{"health":"true","reason":""}"#), "{healthy}");
        let other = get(port, "/v3/kv/range").unwrap();
        assert!(other.starts_with("HTTP/1.1 404 "), "{other}");

        etcd.signal(signal);
        let output = etcd.end();
        assert_eq!(output.status.code(), Some(0), "{signal}");
        assert_eq!(
            text(&output.stderr),
            "",
            "envtest's own flags are no reason to warn"
        );
        assert_eq!(data.path().read_dir().unwrap().count(), 0);
    }
}

#[test]
fn it_says_what_is_wrong_and_with_which_flag() {
    let folder = temp();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = format!("http://{}", listener.local_addr().unwrap());
    for (url, problem) in [
        (&*taken, "cannot listen on 127.0.0.1:"),
        ("https://127.0.0.1:1", "is not of the form http://HOST:PORT"),
        ("unix://etcd.sock", "is not of the form http://HOST:PORT"),
        ("http://a b", "is no URL"),
    ] {
        let etcd = Program::start(folder.path(), "etcd", &[format!("--listen-client-urls={url}")]);
        let output = etcd.end();
        assert_eq!(output.status.code(), Some(1), "{url}");
        let told = text(&output.stderr);
        assert!(
            told.contains("--listen-client-urls") && told.contains(problem),
            "{told}"
        );
    }
}
