//! `etcd`: answers health checks, and stores nothing.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use anyhow::{Context, bail};
use http::{Method, Request, Response, StatusCode, Uri, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    flags::{Flag, Flags},
    stop_signal,
};

/// The flags that envtest passes, and those that its users are likely to add.
pub(super) const FLAGS: &[Flag] = &[
    Flag::value(
        "listen-client-urls",
        "where to answer /health (default http://localhost:2379)",
    ),
    Flag::value("advertise-client-urls", "no effect: there are no clients"),
    Flag::value("listen-peer-urls", "no effect: there are no peers"),
    Flag::value("data-dir", "no effect: objects live in kube-apiserver's memory"),
    Flag::switch("unsafe-no-fsync", "no effect: nothing is written"),
    Flag::switch("version", "print the version that this program stands in for"),
    Flag::switch("help", "print this text"),
    Flag::switch("h", "print this text"),
];

const DEFAULT_URL: &str = "http://localhost:2379";

/// How long a client may take to send a request's headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of open connections; further ones wait.
const MAX_CONNECTIONS: usize = 64;

pub(super) fn run(flags: &Flags) -> anyhow::Result<()> {
    let mut urls: Vec<_> = flags.list("listen-client-urls").collect();
    if urls.is_empty() {
        urls.push(DEFAULT_URL);
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let stop = stop_signal(flags.value("data-dir"))?;
            let mut listening = JoinSet::new();
            for url in urls {
                for listener in listeners(url).await? {
                    listening.spawn(serve(listener));
                }
            }
            // Dropping the set closes every connection.
            stop.await;
            Ok(())
        })
}

/// Binds a URL: one socket for each address of its host.
async fn listeners(url: &str) -> anyhow::Result<Vec<TcpListener>> {
    let parsed: Uri = url
        .parse()
        .with_context(|| format!("--listen-client-urls: invalid URL {url:?}"))?;
    let (Some("http"), Some(host)) = (parsed.scheme_str(), parsed.host()) else {
        bail!("--listen-client-urls: unsupported URL {url:?}: use http://HOST:PORT");
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = parsed.port_u16().unwrap_or(80);
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .with_context(|| format!("--listen-client-urls: cannot resolve {host:?}"))?
        .collect();
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address} (--listen-client-urls={url})"))?;
        listeners.push(listener);
    }
    Ok(listeners)
}

async fn serve(listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(
                        http1::Builder::new()
                            .timer(TokioTimer::new())
                            .header_read_timeout(HEADER_TIMEOUT)
                            .serve_connection(TokioIo::new(stream), service_fn(respond)),
                    );
                }
                // The client has disconnected, or there are no file descriptors left for now.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn respond(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/health") => (
            StatusCode::OK,
            "application/json",
            r#"{"health":"true","reason":""}"#,
        ),
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain",
            "this is windlass standing in for etcd: it only answers /health\n",
        ),
    };
    let response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .body(text.to_owned());
    Ok(response.expect("constants are valid"))
}
