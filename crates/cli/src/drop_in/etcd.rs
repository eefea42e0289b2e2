//! `etcd`: answers whoever asks whether it is healthy, and keeps nothing.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use anyhow::{Context, bail};
use http::{Method, Request, Response, StatusCode, Uri, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    flags::{Flag, Flags},
    told_to_stop,
};

/// What envtest passes, and what its users are likely to add.
pub(super) const FLAGS: &[Flag] = &[
    Flag::value(
        "listen-client-urls",
        "where to answer /health (default http://localhost:2379)",
    ),
    Flag::value("advertise-client-urls", "taken, without effect: nobody dials it"),
    Flag::value("listen-peer-urls", "taken, without effect: there are no peers"),
    Flag::value(
        "data-dir",
        "taken, without effect: objects live in kube-apiserver's memory",
    ),
    Flag::switch("unsafe-no-fsync", "taken, without effect: nothing is written"),
    Flag::switch("version", "say which version this stands in for"),
    Flag::switch("help", "this text"),
    Flag::switch("h", "this text"),
];

const LISTEN: &str = "http://localhost:2379";

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many connections may be open at once; further ones wait.
const CONNECTIONS: usize = 64;

pub(super) fn run(flags: &Flags) -> anyhow::Result<()> {
    let mut urls: Vec<_> = flags.list("listen-client-urls").collect();
    if urls.is_empty() {
        urls.push(LISTEN);
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let stop = told_to_stop()?;
            let mut listening = JoinSet::new();
            for url in urls {
                for listener in listeners(url).await? {
                    listening.spawn(answer(listener));
                }
            }
            // Dropping the set ends every connection.
            stop.await;
            Ok(())
        })
}

/// The sockets of a URL: one for each address of its host.
async fn listeners(url: &str) -> anyhow::Result<Vec<TcpListener>> {
    let stated: Uri = url
        .parse()
        .with_context(|| format!("--listen-client-urls: {url:?} is no URL"))?;
    let (Some("http"), Some(host)) = (stated.scheme_str(), stated.host()) else {
        bail!("--listen-client-urls: {url:?} is not of the form http://HOST:PORT");
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = stated.port_u16().unwrap_or(80);
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .with_context(|| format!("--listen-client-urls: {host:?} has no address"))?
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

async fn answer(listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(
                        http1::Builder::new()
                            .timer(TokioTimer::new())
                            .header_read_timeout(PATIENCE)
                            .serve_connection(TokioIo::new(stream), service_fn(respond)),
                    );
                }
                // A client that is gone already, or no file descriptor left for now.
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
            "this is windlass in the place of etcd: it answers /health and keeps nothing\n",
        ),
    };
    let response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .body(text.to_owned());
    Ok(response.expect("constants are valid"))
}
