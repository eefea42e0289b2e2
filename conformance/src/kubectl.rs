//! Runs kubectl through a proxy that records its HTTP exchanges.
//!
//! ```text
//!  kubectl ──plain HTTP──► proxy ──kube::Client──► embedded or real server
//!                            └──► log of exchanges, in order of their requests
//! ```

use std::{
    path::{Path, PathBuf},
    pin::Pin,
    process::Stdio,
    sync::{Arc, Mutex},
    task::{Context as Polling, Poll},
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Response, header, request::Parts};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    process::Command,
    task::JoinSet,
};

use crate::response;

/// Limit for one command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// kubectl for one server and one namespace.
pub struct Kubectl {
    program: PathBuf,
    address: String,
    namespace: String,
    /// kubectl's home and caches, separate from those of the user.
    home: TempDir,
    log: Log,
    /// The proxy, aborted on drop.
    _proxy: JoinSet<()>,
}

/// Each exchange is shared with its response body, which may end long after the next request.
type Log = Arc<Mutex<Vec<Arc<Mutex<Exchange>>>>>;

#[derive(Clone, Default)]
struct Exchange {
    method: String,
    target: String,
    content_type: String,
    request_body: Bytes,
    status: u16,
    headers: HeaderMap,
    response_body: Vec<u8>,
}

impl Kubectl {
    /// Starts the proxy.
    pub async fn start(program: &Path, client: Client, namespace: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}", listener.local_addr()?);
        let log = Log::default();
        let mut proxy = JoinSet::new();
        proxy.spawn(serve(listener, client, log.clone()));
        Ok(Self {
            program: program.to_owned(),
            address,
            namespace: namespace.to_owned(),
            home: tempfile::tempdir()?,
            log,
            _proxy: proxy,
        })
    }

    /// Runs one command line and returns its output and its HTTP exchanges.
    pub async fn run(
        &self,
        arguments: &[String],
        stdin: Option<String>,
        lines: Option<usize>,
    ) -> Result<Value> {
        self.log.lock().expect("not poisoned").clear();
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .args(["--server", &self.address, "--namespace", &self.namespace])
            .arg("--cache-dir")
            .arg(self.home.path().join("cache"))
            .env_clear()
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("none"))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().context("cannot start kubectl")?;
        let mut input = child.stdin.take().expect("piped");
        input.write_all(stdin.unwrap_or_default().as_bytes()).await.ok();
        drop(input);
        let mut output = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut errors = child.stderr.take().expect("piped");

        let mut stdout_lines = Vec::new();
        let mut stderr_text = String::new();
        let work = async {
            while let Some(line) = output.next_line().await? {
                stdout_lines.push(line);
                if lines.is_some_and(|wanted| stdout_lines.len() >= wanted) {
                    child.kill().await?;
                    return Ok(None);
                }
            }
            errors.read_to_string(&mut stderr_text).await?;
            anyhow::Ok(Some(child.wait().await?.code()))
        };
        let exit = match tokio::time::timeout(COMMAND_TIMEOUT, work).await {
            Ok(exit) => exit?,
            Err(_) => {
                return Ok(
                    json!({"kubectl": arguments, "problem": "kubectl timed out", "stdout": stdout_lines}),
                );
            }
        };
        let log = std::mem::take(&mut *self.log.lock().expect("not poisoned"));
        let log: Vec<_> = log
            .iter()
            .map(|exchange| exchange.lock().expect("not poisoned").clone())
            .collect();
        let (discovery, exchanges): (Vec<_>, Vec<_>) =
            log.iter().partition(|exchange| exchange.is_discovery());
        let mut discovery: Vec<_> = discovery.iter().map(|exchange| exchange.summary()).collect();
        discovery.sort_unstable();
        let mut outcome = json!({
            "kubectl": arguments,
            "stdout": stdout_lines,
            "stderr": stderr_text.lines().collect::<Vec<_>>(),
            "discovery": discovery,
            "exchanges": exchanges.iter().map(|exchange| exchange.outcome()).collect::<Vec<_>>(),
        });
        if let Some(code) = exit {
            outcome["exit"] = code.into();
        }
        Ok(outcome)
    }
}

impl Exchange {
    /// Whether this is a request for discovery or schemas. They are large, the same for every command, and requested in
    /// parallel without a fixed order. Separate scenarios compare their content; here only the set of requests counts.
    fn is_discovery(&self) -> bool {
        let path = self.target.split('?').next().unwrap_or_default();
        let parts = path.split('/').filter(|part| !part.is_empty()).count();
        self.method == "GET"
            && match path.split('/').nth(1) {
                Some("openapi") => true,
                Some("api") => parts <= 2,
                Some("apis") => parts <= 3,
                _ => false,
            }
    }

    fn summary(&self) -> String {
        // The hash of a schema document differs between servers.
        let target = self.target.split("?hash=").next().unwrap_or_default();
        format!("{} {target} {}", self.method, self.status)
    }

    fn outcome(&self) -> Value {
        let mut outcome = response::recorded_response(self.status, &self.headers, &self.response_body);
        if self.target.contains("watch=") {
            outcome.retain(|key, _| !matches!(key.as_str(), "body" | "text"));
            let events: Vec<Value> = serde_json::Deserializer::from_slice(&self.response_body)
                .into_iter()
                .map_while(Result::ok)
                .collect();
            outcome.insert("events".to_owned(), events.into());
        }
        let target = self.target.split_once('?').map_or_else(
            || json!(self.target),
            |(path, query)| {
                let pairs: serde_json::Map<_, _> = form_urlencoded::parse(query.as_bytes())
                    .map(|(key, value)| (key.into_owned(), value.into_owned().into()))
                    .collect();
                json!({"path": path, "query": pairs})
            },
        );
        let mut request = json!({"method": self.method, "target": target});
        if let Some((key, value)) = response::decode_body(&self.content_type, &self.request_body) {
            request["content-type"] = self.content_type.clone().into();
            request[key] = value;
        }
        outcome.insert("request".to_owned(), request);
        Value::Object(outcome)
    }
}

async fn serve(listener: TcpListener, client: Client, log: Log) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let (client, log) = (client.clone(), log.clone());
        connections.spawn(async move {
            let forward = service_fn(move |request| forward(client.clone(), log.clone(), request));
            // kubectl reports connection errors itself.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), forward)
                .await;
        });
    }
}

async fn forward(client: Client, log: Log, request: http::Request<Incoming>) -> Result<Response<Tee>> {
    let (parts, body) = request.into_parts();
    let request_body = body.collect().await?.to_bytes();
    let exchange = Arc::new(Mutex::new(new_exchange(&parts, request_body.clone())));
    log.lock().expect("not poisoned").push(exchange.clone());
    let mut onward = http::Request::builder().method(parts.method).uri(
        parts
            .uri
            .path_and_query()
            .context("the request has no path")?
            .as_str(),
    );
    if let Some(accept) = parts.headers.get(header::ACCEPT) {
        let accept = accept.to_str()?;
        // Schema documents also exist in a binary format, which is not recorded.
        let is_schema = parts.uri.path().starts_with("/openapi");
        let wanted = if is_schema {
            accept.to_owned()
        } else {
            without_protobuf(accept)
        };
        onward = onward.header(header::ACCEPT, wanted);
    }
    for (name, value) in &parts.headers {
        let passed = [header::CONTENT_TYPE, header::USER_AGENT, header::IF_NONE_MATCH].contains(name);
        if passed || name.as_str().starts_with("impersonate-") {
            onward = onward.header(name, value);
        }
    }
    let response = client.send(onward.body(Body::from(request_body))?).await?;
    let (mut parts, body) = response.into_parts();
    {
        let mut exchange = exchange.lock().expect("not poisoned");
        exchange.status = parts.status.as_u16();
        exchange.headers = parts.headers.clone();
    }
    // The proxy's connection to kubectl sets its own framing.
    parts.headers.remove(header::TRANSFER_ENCODING);
    parts.headers.remove(header::CONNECTION);
    Ok(Response::from_parts(parts, Tee { body, exchange }))
}

/// Removes protobuf from an `Accept` header. kubectl accepts JSON too, which is readable in a recording.
fn without_protobuf(accept: &str) -> String {
    let kept: Vec<_> = accept
        .split(',')
        .filter(|content_type| !content_type.contains("protobuf"))
        .collect();
    if kept.is_empty() {
        return "application/json".to_owned();
    }
    kept.join(",")
}

fn new_exchange(parts: &Parts, request_body: Bytes) -> Exchange {
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    Exchange {
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        content_type: content_type
            .and_then(|content_type| content_type.to_str().ok())
            .unwrap_or_default()
            .to_owned(),
        request_body,
        ..Exchange::default()
    }
}

/// A body that is recorded while it is forwarded.
struct Tee {
    body: Body,
    exchange: Arc<Mutex<Exchange>>,
}

impl http_body::Body for Tee {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Polling<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            let mut exchange = this.exchange.lock().expect("not poisoned");
            exchange.response_body.extend_from_slice(bytes);
        }
        polled
    }
}
