//! The webhook server of a scenario: endpoints that an API server calls, and the requests that they received.
//!
//! ```text
//!  API server ──HTTPS, certificate of an own CA──► /NAME ──► Script of NAME ──► response
//!                                                    └─────► received requests of NAME, for `received: NAME`
//!             ──HTTPS──► a second port, which speaks plain HTTP
//!             ──HTTPS──► a port for each certificate that clients may refuse: the same endpoints
//! ```
//!
//! It runs while its scenario runs. The CA and the ports are different in each run; [`WebhookServer::hide`] replaces them in
//! the outcomes.

mod behaviour;
mod certificates;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use self::behaviour::Answer;
pub use self::behaviour::Script;
use crate::template::Variables;

/// Limit for the body of one request; reviews contain up to two objects of 3 MiB.
const MAX_BODY: usize = 16 << 20;

/// Name of the endpoint at `/`.
const ROOT: &str = "root";

/// Headers that are not recorded: they contain the port and the length of UIDs.
const UNRECORDED_HEADERS: [&str; 2] = ["host", "content-length"];

/// A running webhook server. Dropping it stops it.
pub struct WebhookServer {
    state: Arc<Mutex<State>>,
    port: u16,
    plain_port: u16,
    /// Ports with other certificates, by the name of the certificate.
    odd_ports: Vec<(&'static str, u16)>,
    /// CA bundles, as the `caBundle` of a configuration contains them, by the name that stands for them in outcomes.
    bundles: Vec<(String, String)>,
    /// User name of the scenario's administrator.
    administrator: String,
    /// Aborted on drop.
    listeners: JoinSet<()>,
}

struct State {
    endpoints: BTreeMap<String, Endpoint>,
    variables: Variables,
}

struct Endpoint {
    script: Script,
    received: Vec<Value>,
}

impl WebhookServer {
    /// Starts the server, and sets the variables `webhook.*`.
    pub async fn start(
        scripts: &BTreeMap<String, Script>,
        namespace: &str,
        administrator: String,
        variables: &mut Variables,
    ) -> Result<Self> {
        let authority = certificates::authority("webhook CA")?;
        let valid = certificates::valid(&authority, namespace)?;
        let tls = TlsAcceptor::from(Arc::new(valid.tls_config()?));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let plain = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let bundle = |pem: String| STANDARD.encode(pem);
        let mut server = Self {
            state: Arc::new(Mutex::new(State {
                endpoints: BTreeMap::new(),
                variables: Variables::default(),
            })),
            port: listener.local_addr()?.port(),
            plain_port: plain.local_addr()?.port(),
            odd_ports: Vec::new(),
            bundles: vec![
                ("CA".to_owned(), bundle(authority.pem())),
                (
                    "OTHER_CA".to_owned(),
                    bundle(certificates::authority("another CA")?.pem()),
                ),
            ],
            administrator,
            listeners: JoinSet::new(),
        };
        variables.set("webhook.url", format!("https://127.0.0.1:{}", server.port));
        variables.set("webhook.port", server.port.to_string());
        variables.set(
            "webhook.plain_url",
            format!("https://127.0.0.1:{}", server.plain_port),
        );
        for (name, certificate) in certificates::odd(&authority)? {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let port = listener.local_addr()?.port();
            variables.set(&format!("webhook.{name}_port"), port.to_string());
            server.odd_ports.push((name, port));
            let label = format!("{}_CA", name.to_uppercase());
            server.bundles.push((label, bundle(certificate.pem())));
            let tls = TlsAcceptor::from(Arc::new(certificate.tls_config()?));
            server.listeners.spawn(serve(listener, tls, server.state.clone()));
        }
        for (label, bundle) in &server.bundles {
            variables.set(&format!("webhook.{}", label.to_lowercase()), bundle);
        }
        server.set(scripts, variables);
        server.listeners.spawn(serve(listener, tls, server.state.clone()));
        server.listeners.spawn(serve_plain(plain));
        Ok(server)
    }

    /// Changes the behaviour of endpoints. The others stay.
    pub fn set(&self, scripts: &BTreeMap<String, Script>, variables: &Variables) {
        let mut state = lock(&self.state);
        state.variables = variables.clone();
        for (name, script) in scripts {
            let endpoint = state.endpoints.entry(name.clone()).or_insert_with(|| Endpoint {
                script: script.clone(),
                received: Vec::new(),
            });
            endpoint.script = script.clone();
        }
    }

    /// Whether any endpoint converts objects.
    pub fn converts(&self) -> bool {
        lock(&self.state)
            .endpoints
            .values()
            .any(|endpoint| endpoint.script.converts())
    }

    /// Returns the requests that an endpoint has received since the last call.
    pub fn take_received(&self, name: &str) -> Result<Vec<Value>> {
        let mut state = lock(&self.state);
        let endpoint = state
            .endpoints
            .get_mut(name)
            .with_context(|| format!("unknown webhook `{name}`"))?;
        Ok(std::mem::take(&mut endpoint.received))
    }

    /// Forgets the requests that all endpoints have received.
    pub fn forget_received(&self) {
        for endpoint in lock(&self.state).endpoints.values_mut() {
            endpoint.received.clear();
        }
    }

    /// Replaces what differs between two runs: CA bundles, ports, and the administrator.
    pub fn hide(&self, value: Value) -> Value {
        match value {
            Value::String(text) => {
                let bundles = self.bundles.iter();
                let text = bundles.fold(text, |text, (label, bundle)| text.replace(bundle, label));
                let text = text
                    .replace(&format!(":{}", self.port), ":PORT")
                    .replace(&format!(":{}", self.plain_port), ":PLAIN_PORT");
                let ports = self.odd_ports.iter();
                Value::String(ports.fold(text, |text, (name, port)| {
                    text.replace(&format!(":{port}"), &format!(":{}_PORT", name.to_uppercase()))
                }))
            }
            Value::Array(items) => items.into_iter().map(|item| self.hide(item)).collect(),
            Value::Object(fields) => {
                if fields.get("username").and_then(Value::as_str) == Some(&self.administrator) {
                    return "ADMINISTRATOR".into();
                }
                let hidden = fields.into_iter().map(|(key, value)| {
                    let is_port = key == "port" && value == self.port;
                    let value = if is_port { "PORT".into() } else { self.hide(value) };
                    (key, value)
                });
                Value::Object(hidden.collect())
            }
            other => other,
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("not poisoned")
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let (tls, state) = (tls.clone(), state.clone());
        connections.spawn(async move {
            // The API server reports connection errors itself.
            let Ok(socket) = tls.accept(socket).await else {
                return;
            };
            let respond = service_fn(move |request| respond(state.clone(), request));
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), respond)
                .await;
        });
    }
}

/// Responds in plain HTTP to whatever a client sends.
async fn serve_plain(listener: TcpListener) {
    while let Ok((mut socket, _)) = listener.accept().await {
        let _ = socket.read(&mut [0; 1024]).await;
        let _ = socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            .await;
    }
}

async fn respond(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let answer = match receive(&state, request).await {
        Ok(answer) => answer,
        // The API server reports this status and text, and they end up in the outcomes.
        Err(error) => Answer::Response {
            delay: 0,
            status: 599,
            content_type: "text/plain".to_owned(),
            location: None,
            body: format!("{error:#}").into(),
        },
    };
    let Answer::Response {
        delay,
        status,
        content_type,
        location,
        body,
    } = answer
    else {
        return std::future::pending().await;
    };
    if delay > 0 {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    let mut response = Response::builder()
        .status(status)
        .header("content-type", content_type);
    if let Some(location) = location {
        response = response.header("location", location);
    }
    let response = response.body(Full::new(body));
    Ok(response.unwrap_or_else(|error| Response::new(Full::new(error.to_string().into()))))
}

async fn receive(state: &Mutex<State>, request: Request<Incoming>) -> Result<Answer> {
    let (parts, body) = request.into_parts();
    let bytes = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => anyhow::bail!("cannot read the request: {error}"),
    };
    let body: Value =
        serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
    let record = json!({
        "method": parts.method.as_str(),
        "path": parts.uri.to_string(),
        "headers": headers(&parts.headers),
        "body": body,
    });
    let first = parts.uri.path().split('/').nth(1).unwrap_or_default();
    let name = if first.is_empty() { ROOT } else { first };
    let mut state = lock(state);
    let variables = state.variables.clone();
    let endpoint = state
        .endpoints
        .get_mut(name)
        .with_context(|| format!("unknown webhook `{name}`"))?;
    endpoint.received.push(record);
    endpoint.script.next(&body, &variables)
}

fn headers(all: &HeaderMap) -> Value {
    let kept = all
        .iter()
        .filter(|(name, _)| !UNRECORDED_HEADERS.contains(&name.as_str()))
        .map(|(name, value)| {
            (
                name.to_string(),
                String::from_utf8_lossy(value.as_bytes()).into_owned().into(),
            )
        });
    Value::Object(kept.collect())
}
