//! A client for servers other than the API server: collectors, webhooks, Prometheus.
//!
//! It has what all of them need and what is easily done wrong: TLS with the system's or own certificates, errors with their cause and
//! without the URL, which may contain a password, tokens that are read from a file and never logged, limited bodies, and connections that end
//! with the client. What a response means, and how long it may take, is up to the caller.
//!
//! ```no_run
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use windlass_runtime::http_client::{HttpClient, bearer_token, read_body};
//!
//! # async fn post(url: http::Uri, token: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! let client = HttpClient::new(&url, None)?;
//! let mut request = http::Request::post(url).body(Full::new(Bytes::from("hello")))?;
//! request.headers_mut().insert("authorization", bearer_token(token)?);
//! let response = client.send(request).await?;
//! println!("{}: {:?}", response.status(), read_body(response.into_body(), 1024).await?);
//! # Ok(())
//! # }
//! ```

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, connect::Connect},
    rt::TokioTimer,
};
use kube::{Config, client::ConfigExt as _};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::task::JoinSet;

/// How long an unused connection is kept: longer than the usual interval of a periodic request, a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A client for one server. Dropping it closes its connections.
pub struct HttpClient {
    send: Box<dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, SendResult> + Send + Sync>,
    connections: Connections,
}

type SendResult = Result<Response<Incoming>, legacy::Error>;

/// Why no client can be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpClientError {
    /// The certificates cannot be used.
    #[error("cannot use the certificates in {}: {cause}", path.display())]
    Certificates {
        /// The PEM file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

/// Why a request got no response. The text names the causes, and contains neither the URL nor headers nor the body.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SendError(String);

/// Why a token cannot be used. The text does not contain it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The file is not a token.
    #[error("{} has to contain a token on one line", .0.display())]
    Invalid(PathBuf),
}

impl HttpClient {
    /// Creates a client for the server of this URL. `ca` is a PEM file with the certificates to trust; default: the system's. Sends
    /// nothing yet.
    pub fn new(url: &Uri, ca: Option<&Path>) -> Result<Self, HttpClientError> {
        let mut config = Config::new(url.clone());
        if let Some(path) = ca {
            config.root_cert = Some(certificates(path)?);
        }
        let connector = config
            .rustls_https_connector()
            .map_err(|error| HttpClientError::Tls(error.to_string()))?;
        Ok(Self::with_connector(connector))
    }

    /// Creates a client with another connector, for tests.
    pub fn with_connector(connector: impl Connect + Clone + Send + Sync + 'static) -> Self {
        let connections = Connections::default();
        let client = legacy::Client::builder(connections.clone())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Self {
            send: Box::new(move |request| Box::pin(client.request(request))),
            connections,
        }
    }

    /// Sends a request once. It has no timeout, and redirects are not followed.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        (self.send)(request)
            .await
            .map_err(|error| SendError(with_causes(&error)))
    }

    /// Closes the connections, and waits for their tasks.
    pub async fn close(&self) {
        let mut tasks = std::mem::take(&mut *self.connections.0.lock());
        tasks.shutdown().await;
    }
}

impl Drop for HttpClient {
    fn drop(&mut self) {
        self.connections.0.lock().abort_all();
    }
}

/// Reads the body of a response; an error if it is larger than `max_bytes`, or ends early.
pub async fn read_body(body: Incoming, max_bytes: usize) -> Result<Bytes, SendError> {
    match Limited::new(body, max_bytes).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(SendError(with_causes(&*error))),
    }
}

/// Returns the value of `Authorization` for the token in this file. Read it for each request: tokens are rotated.
pub fn bearer_token(path: &Path) -> Result<HeaderValue, TokenError> {
    let token = std::fs::read_to_string(path).map_err(|source| TokenError::Read {
        path: path.to_owned(),
        source,
    })?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| TokenError::Invalid(path.to_owned()))?;
    // Debug output hides it, and HTTP/2 does not index it.
    value.set_sensitive(true);
    Ok(value)
}

/// Reads the certificates of a PEM file. There must be one.
fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, HttpClientError> {
    let unusable = |cause: String| HttpClientError::Certificates {
        path: path.to_owned(),
        cause,
    };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem)
        .map(|one| one.map(|certificate| certificate.to_vec()))
        .collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(unusable("no certificate found".to_owned())),
        Err(error) => Err(unusable(error.to_string())),
    }
}

/// An error and its sources in one line, without repetitions.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&error| error.source()) {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
    }
    text
}

/// The tasks of the connections, so that none of them outlives the client.
#[derive(Clone, Default)]
struct Connections(Arc<Mutex<JoinSet<()>>>);

impl hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> for Connections {
    fn execute(&self, connection: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_each_time_and_never_shown() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("token");
        let error = bearer_token(&path).expect_err("no such file").to_string();
        assert!(
            error.starts_with(&format!("cannot read {}: ", path.display())),
            "{error}"
        );
        std::fs::write(&path, "s3cret\n").expect("the file is written");
        let value = bearer_token(&path).expect("a token");
        assert_eq!(value, "Bearer s3cret");
        assert!(!format!("{value:?}").contains("s3cret"), "{value:?}");
        std::fs::write(&path, "s3cret\nsecond line").expect("the file is written");
        let error = bearer_token(&path).expect_err("two lines").to_string();
        assert!(
            error.contains("on one line") && !error.contains("s3cret"),
            "{error}"
        );
    }

    #[test]
    fn certificates_need_a_pem_file_with_one() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("ca.pem");
        let url = Uri::from_static("https://example.com");
        let error = |path: &Path| {
            HttpClient::new(&url, Some(path))
                .err()
                .map(|error| error.to_string())
        };
        let unreadable = error(&path).expect("no such file");
        assert!(unreadable.contains("No such file"), "{unreadable}");
        std::fs::write(&path, "no certificate").expect("the file is written");
        let empty = error(&path).expect("no certificate");
        assert_eq!(
            empty,
            format!(
                "cannot use the certificates in {}: no certificate found",
                path.display()
            )
        );
    }

    #[tokio::test]
    async fn connections_end_with_the_client() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url: Uri = format!(
            "http://{}/hook/s3cret",
            listener.local_addr().expect("an address")
        )
        .parse()
        .expect("a URL");
        let client = HttpClient::new(&url, None).expect("a client");
        let request = Request::post(&url)
            .body(Full::new(Bytes::new()))
            .expect("a request");
        let (sent, mut stream) = tokio::join!(
            tokio::time::timeout(Duration::from_millis(100), client.send(request)),
            async { listener.accept().await.expect("a connection").0 },
        );
        assert!(sent.is_err(), "there is no response");
        drop(client);
        let mut rest = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest)
            .await
            .expect("it is closed");

        drop(listener);
        let client = HttpClient::new(&url, None).expect("a client");
        let request = Request::post(&url)
            .body(Full::new(Bytes::new()))
            .expect("a request");
        let error = client.send(request).await.expect_err("refused").to_string();
        assert!(error.contains("refused") && !error.contains("s3cret"), "{error}");
    }
}
