//! A proxy to a server for programs without its certificates and credentials. It counts the requests.
//!
//! ```text
//!   contender ── HTTP, no credentials ──► Proxy ── the administrator's client ──► server
//! ```

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use kube::{Client, client::Body};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A running proxy, stopped on drop.
pub struct Proxy {
    address: SocketAddr,
    counts: Counts,
    task: JoinHandle<()>,
}

/// Number of requests by method and resource: `PATCH deployments`, `PATCH foos/status`. A watch counts as its own
/// method.
type Counts = Arc<Mutex<BTreeMap<String, usize>>>;

impl Proxy {
    /// Starts the proxy on a local port.
    pub async fn open(client: Client) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("cannot open a port")?;
        let address = listener.local_addr()?;
        let counts = Counts::default();
        let task = tokio::spawn(accept(listener, client, Arc::clone(&counts)));
        Ok(Self {
            address,
            counts,
            task,
        })
    }

    /// Returns the proxy's URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the counts since the last call.
    pub fn take_counts(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Owns the connections, which end with this task.
async fn accept(listener: TcpListener, client: Client, counts: Counts) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, client.clone(), Arc::clone(&counts)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, client: Client, counts: Counts) {
    stream.set_nodelay(true).ok();
    let service = service_fn(move |request: Request<Incoming>| {
        let (client, counts) = (client.clone(), Arc::clone(&counts));
        async move { Ok::<_, Infallible>(forward(request, &client, &counts).await) }
    });
    // Ignore contenders that disconnect in the middle of a request.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn forward(request: Request<Incoming>, client: &Client, counts: &Counts) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default();
    let watches = query.contains("watch=true") || query.contains("watch=1");
    let method = if watches {
        "WATCH"
    } else {
        request.method().as_str()
    };
    *counts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(format!("{method} {}", resource_of(request.uri().path())))
        .or_default() += 1;
    send(request, client).await.unwrap_or_else(|error| {
        let mut response = Response::new(Body::from(format!("{error:#}").into_bytes()));
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    })
}

/// Returns the resource and subresource of a path, without names. Other paths are returned unchanged.
fn resource_of(path: &str) -> String {
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    let (["api", _, ref of_group @ ..] | ["apis", _, _, ref of_group @ ..]) = parts[..] else {
        return path.to_owned();
    };
    match *of_group {
        ["namespaces", _, kind, _, part] | [kind, _, part] if kind != "namespaces" => {
            format!("{kind}/{part}")
        }
        ["namespaces", _, kind, ..] | [kind, ..] => kind.to_owned(),
        [] => path.to_owned(),
    }
}

async fn send(request: Request<Incoming>, client: &Client) -> anyhow::Result<Response<Body>> {
    let (mut head, body) = request.into_parts();
    // A hop-by-hop header.
    head.headers.remove(http::header::HOST);
    let body = body.collect().await?.to_bytes();
    let request = Request::from_parts(head, Body::from(body.to_vec()));
    Ok(client.send(request).await?)
}

#[cfg(test)]
mod tests {
    use super::resource_of;

    #[test]
    fn path_is_reduced_to_resource_and_subresource() {
        for (path, expected) in [
            ("/api/v1/namespaces/default/events", "events"),
            ("/apis/apps/v1/namespaces/default/deployments/web", "deployments"),
            (
                "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos/a/status",
                "foos/status",
            ),
            ("/apis/apps/v1/deployments", "deployments"),
            ("/api/v1/nodes/a/status", "nodes/status"),
            ("/api/v1/namespaces/default", "namespaces"),
            ("/api/v1/namespaces", "namespaces"),
            ("/version", "/version"),
            ("/api/v1", "/api/v1"),
        ] {
            assert_eq!(resource_of(path), expected, "{path}");
        }
    }
}
