//! Reviews over HTTP/1.1 connections that stay open, as those of an API server.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use bytes::Bytes;
use futures::future::try_join_all;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    sync::Mutex,
    time::{Instant, sleep_until},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName},
    },
};
use windlass_bench::pods;

/// How many different reviews are sent, in turns.
const DIFFERENT: usize = 200;

/// Opens connections to servers with a certificate.
pub(crate) struct Client(TlsConnector);

impl Client {
    pub(crate) fn new(certificate: &CertificateDer<'static>) -> anyhow::Result<Self> {
        let mut trusted = RootCertStore::empty();
        trusted.add(certificate.clone())?;
        let config = ClientConfig::builder()
            .with_root_certificates(trusted)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    async fn connect(&self, address: SocketAddr) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let socket = self.0.connect(ServerName::from(address.ip()), socket).await?;
        let (sender, connection) = handshake(TokioIo::new(socket)).await?;
        // It ends with its sender.
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Reviews for one path of a server, and the connections that send them.
pub(crate) struct Load {
    address: SocketAddr,
    path: String,
    reviews: Vec<Bytes>,
    connections: Vec<Mutex<SendRequest<Full<Bytes>>>>,
}

/// What some reviews took.
pub(crate) struct Outcome {
    pub(crate) per_second: f64,
    /// Sorted, in microseconds.
    latencies: Vec<f64>,
}

impl Outcome {
    pub(crate) fn latency_micros(&self, quantile: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index of a short list"
        )]
        let index = (last as f64 * quantile).round() as usize;
        self.latencies.get(index).copied().unwrap_or(f64::NAN)
    }
}

impl Load {
    pub(crate) async fn open(
        client: &Client,
        address: SocketAddr,
        path: &str,
        connections: usize,
    ) -> anyhow::Result<Self> {
        let opened = (0..connections).map(|_| client.connect(address));
        let connections = try_join_all(opened).await?;
        Ok(Self {
            address,
            path: path.to_owned(),
            reviews: (0..DIFFERENT)
                .map(|number| review(number).to_string().into())
                .collect(),
            connections: connections.into_iter().map(Mutex::new).collect(),
        })
    }

    /// Sends this many reviews: as fast as the connections can, or `rate` a second. With a rate, the latency of a review counts
    /// from the time at which it should have been sent.
    pub(crate) async fn run(&self, count: usize, rate: Option<f64>) -> anyhow::Result<Outcome> {
        let (next, started) = (AtomicUsize::new(0), Instant::now());
        let workers = self.connections.iter().map(|connection| {
            let next = &next;
            async move {
                let mut connection = connection.lock().await;
                let mut latencies = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return anyhow::Ok(latencies);
                    }
                    let mut due = Instant::now();
                    if let Some(rate) = rate {
                        due = started + Duration::from_secs_f64(f64::from(u32::try_from(number)?) / rate);
                        sleep_until(due).await;
                    }
                    self.exchange(&mut connection, number).await?;
                    latencies.push(due.elapsed().as_secs_f64() * 1e6);
                }
            }
        });
        let mut latencies = try_join_all(workers).await?.concat();
        let seconds = started.elapsed().as_secs_f64();
        latencies.sort_by(f64::total_cmp);
        Ok(Outcome {
            per_second: f64::from(u32::try_from(count)?) / seconds,
            latencies,
        })
    }

    async fn exchange(&self, connection: &mut SendRequest<Full<Bytes>>, number: usize) -> anyhow::Result<()> {
        let review = self.reviews[number % self.reviews.len()].clone();
        let request = Request::post(format!("{}?timeout=10s", self.path))
            .header(header::HOST, self.address.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(review))?;
        connection.ready().await?;
        let response = connection.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(
            status == StatusCode::OK && contains(&body, br#""allowed":true"#),
            "{status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(())
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The review of the creation of a pod, as kube-apiserver sends it.
fn review(number: usize) -> Value {
    let name = format!("pod-{number:05}");
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": format!("705ab4f5-6393-11e8-b7cc-{number:012}"),
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": name, "namespace": "bench", "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": pods::pod(&name),
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "bench"},
        },
    })
}
