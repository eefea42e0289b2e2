//! Endpoints on a socket, with a client that shares no library with the server.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};
use windlass_runtime::serving::{Endpoints, Listener};

/// Endpoints on a port of their own, until stopped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(endpoints: Endpoints) -> Self {
        let listener = Listener::bind("127.0.0.1:0", "--listen")
            .await
            .expect("free port");
        let address = listener.local_addr().expect("local address");
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(listener.serve(endpoints, async { drop(stopped.await) }));
        Self {
            address,
            stop,
            serving,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let answer = self.request("GET", path, "").await;
        (answer.status, answer.body)
    }

    pub(crate) async fn request(&self, method: &str, path: &str, headers: &str) -> HttpResponse {
        let stream = TcpStream::connect(self.address).await.expect("listening");
        exchange(stream, method, path, &format!("Host: localhost\r\n{headers}")).await
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.serving.await.expect("no panic");
    }
}

/// Requests a path on loopback with this `Host` header, from a manager that starts. Returns status and body.
pub(crate) async fn get(port: u16, host: &str, path: &str) -> (u16, String) {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let stream = loop {
        // The manager binds when it starts.
        match TcpStream::connect(address).await {
            Ok(stream) => break stream,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let answer = exchange(stream, "GET", path, &format!("Host: {host}\r\n")).await;
    (answer.status, answer.body)
}

async fn exchange(mut stream: TcpStream, method: &str, path: &str, headers: &str) -> HttpResponse {
    let request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("request sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("response received");
    HttpResponse::parse(&answer)
}

pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("headers");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Self {
            status: status.expect("status"),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }
}
