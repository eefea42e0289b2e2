//! `etcd`.

use std::{
    net::{Ipv4Addr, TcpListener},
    time::Instant,
};

use super::{POLL_INTERVAL, Program, TIMEOUT, free_port, get, temp, text};

/// The flags that envtest passes.
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
fn etcd_answers_health_checks_and_stops_on_signals() {
    for signal in ["TERM", "INT"] {
        let (folder, data, port) = (temp(), temp(), free_port());
        let etcd = Program::start(folder.path(), "etcd", &flags(port, data.path().to_str().unwrap()));
        let deadline = Instant::now() + TIMEOUT;
        let healthy = loop {
            match get(port, "/health") {
                Some(answer) => break answer,
                None => assert!(Instant::now() < deadline, "it does not listen"),
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        assert!(healthy.starts_with("HTTP/1.1 200 "), "{healthy}");
        assert!(healthy.ends_with(r#"{"health":"true","reason":""}"#), "{healthy}");
        let other = get(port, "/v3/kv/range").unwrap();
        assert!(other.starts_with("HTTP/1.1 404 "), "{other}");

        etcd.signal(signal);
        let output = etcd.wait();
        assert_eq!(output.status.code(), Some(0), "{signal}");
        assert_eq!(text(&output.stderr), "", "no warnings about envtest's flags");
        assert_eq!(data.path().read_dir().unwrap().count(), 0);
    }
}

#[test]
fn etcd_errors_name_the_flag() {
    let folder = temp();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = format!("http://{}", listener.local_addr().unwrap());
    for (url, problem) in [
        (&*taken, "cannot listen on 127.0.0.1:"),
        ("https://127.0.0.1:1", "use http://HOST:PORT"),
        ("unix://etcd.sock", "use http://HOST:PORT"),
        ("http://a b", "invalid URL"),
    ] {
        let etcd = Program::start(folder.path(), "etcd", &[format!("--listen-client-urls={url}")]);
        let output = etcd.wait();
        assert_eq!(output.status.code(), Some(1), "{url}");
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains("--listen-client-urls") && stderr.contains(problem),
            "{stderr}"
        );
    }
}
