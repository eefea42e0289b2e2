//! A webhook that gets `CloudEvents` over HTTP or HTTPS.
//!
//! What the answer says: 2xx has it; 408, 429 and 5xx later, honouring `Retry-After`; anything else not at all. The
//! answer's body is read, so that the connection can be used again, but never more than a little of it, nor for long.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::Connect},
    rt::{TokioExecutor, TokioTimer},
};
use windlass::{
    k8s_openapi::jiff::fmt::rfc2822,
    kube::{Config, client::ConfigExt},
    runtime::Clock,
};

use super::{Sink, Trouble, form};
use crate::notice::Notice;

/// The most that is read of an answer.
const LONGEST_ANSWER: usize = 64 << 10;

/// How long the rest of an answer may take after its status.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a server may ask to be left alone.
const LONGEST_REST: Duration = Duration::from_mins(10);

/// POSTs each notice to an address, as a `CloudEvent` in structured mode.
pub struct Webhook {
    send: Box<dyn Exchange>,
    to: Uri,
    settings: Settings,
    clock: Clock,
}

/// How a webhook is called.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Until the answer's status. Default: 10 s.
    pub timeout: Duration,
    /// The events' `source`. Default: `/podwatch`.
    pub source: String,
    /// A file with a token, sent as `Authorization: Bearer …`. It is read for each call, so that it may change.
    pub token_file: Option<PathBuf>,
    /// Whether the token may go to an `http://` address, where everyone on the way can read it. Default: no, not even on
    /// loopback, where another process may have taken the port.
    pub insecure_token: bool,
    /// A file with the certificates (PEM) that the server's is checked against. Default: the system's.
    pub ca: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            source: "/podwatch".to_owned(),
            token_file: None,
            insecure_token: false,
            ca: None,
        }
    }
}

impl Settings {
    /// Fails if a call to this address would send a token unencrypted, and that is not allowed explicitly.
    pub fn check_token(&self, to: &Uri) -> Result<(), InsecureToken> {
        let is_encrypted = to.scheme_str() == Some("https");
        if self.token_file.is_none() || self.insecure_token || is_encrypted {
            return Ok(());
        }
        Err(InsecureToken)
    }
}

/// A token would be sent unencrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`token-file` would be sent over plain HTTP, where everyone on the way can read it: use an address with https://, or add \
     `insecure-token=allow`"
)]
pub struct InsecureToken;

/// Why a webhook cannot be called at all.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The certificates cannot be used.
    #[error("cannot use the certificates in {}: {cause}; name a PEM file with `ca=FILE`", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// The token would be sent unencrypted.
    #[error(transparent)]
    InsecureToken(#[from] InsecureToken),
}

impl Webhook {
    /// A webhook at this address. Nothing is sent yet.
    pub fn new(to: Uri, settings: Settings, clock: Clock) -> Result<Self, WebhookError> {
        settings.check_token(&to)?;
        let mut config = Config::new(to.clone());
        if let Some(path) = &settings.ca {
            config.root_cert = Some(certificates(path)?);
        }
        let connector = config
            .rustls_https_connector()
            .map_err(|error| WebhookError::Tls(error.to_string()))?;
        Ok(Self::over(connector, to, settings, clock))
    }

    /// The same over other connections than the system's. Whether they are fit for a token is for the caller to know.
    pub fn over(
        connector: impl Connect + Clone + Send + Sync + 'static,
        to: Uri,
        settings: Settings,
        clock: Clock,
    ) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(1)
            .build(connector);
        Self {
            send: Box::new(client),
            to,
            settings,
            clock,
        }
    }

    async fn post(&self, notice: &Notice) -> Result<(), Trouble> {
        let down = |why: String| Trouble::Down { why, after: None };
        let body = Bytes::from(form::cloud_event(notice, &self.settings.source));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.to.clone();
        let headers = request.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static("application/cloudevents+json; charset=utf-8"),
        );
        headers.insert(
            header::USER_AGENT,
            header::HeaderValue::from_static(concat!("windlass-podwatch/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(path) = &self.settings.token_file {
            let token = std::fs::read_to_string(path)
                .map_err(|error| down(format!("cannot read `token-file` {}: {error}", path.display())))?;
            let mut value =
                header::HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| {
                    down(format!(
                        "`token-file` {} is no token: it is to be one line",
                        path.display()
                    ))
                })?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        let timeout = self.settings.timeout;
        let sent = tokio::time::timeout(timeout, self.send.send(request)).await;
        let answer = sent
            .map_err(|_| down(format!("no answer within {timeout:?}; `timeout=` allows more")))?
            .map_err(|why| {
                down(format!(
                    "cannot be reached: {why}; is the address right, and does it listen?"
                ))
            })?;
        let (head, body) = answer.into_parts();
        // Whatever becomes of the body, the status has decided.
        let read = Limited::new(body, LONGEST_ANSWER).collect();
        let said = match tokio::time::timeout(ANSWER_TIMEOUT, read).await {
            Ok(Ok(body)) => said(&body.to_bytes()),
            Ok(Err(_)) | Err(_) => String::new(),
        };
        self.judge(head.status, &head.headers, &said)
    }

    fn judge(&self, status: StatusCode, headers: &HeaderMap, said: &str) -> Result<(), Trouble> {
        let why = format!("answered {status}{said}");
        let after = self.retry_after(headers);
        match status.as_u16() {
            200..=299 => Ok(()),
            408 | 429 | 502..=504 => Err(Trouble::Down { why, after }),
            500..=599 if after.is_some() => Err(Trouble::Down { why, after }),
            500..=599 => Err(Trouble::Failed { why }),
            300..=399 => {
                let place = headers
                    .get(header::LOCATION)
                    .and_then(|place| place.to_str().ok());
                let place = place.map_or_else(String::new, |place| format!(" to {place}"));
                Err(Trouble::Refused {
                    why: format!("{why}, which leads elsewhere{place}: name that address"),
                })
            }
            401 | 403 => Err(Trouble::Refused {
                why: format!("{why}: give it a token that it accepts with `token-file=`"),
            }),
            404 | 405 | 410 => Err(Trouble::Refused {
                why: format!("{why}: is the path right?"),
            }),
            _ => Err(Trouble::Refused { why }),
        }
    }

    fn retry_after(&self, headers: &HeaderMap) -> Option<Duration> {
        let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
        let wait = match text.parse::<u64>() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => {
                let at = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
                let seconds = at.as_second().saturating_sub(self.clock.now().as_second());
                Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
            }
        };
        Some(wait.min(LONGEST_REST))
    }
}

impl Sink for Webhook {
    fn deliver<'a>(&'a mut self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), Trouble>> {
        self.post(notice).boxed()
    }
}

/// The beginning of what a server said, if it is a line of text.
fn said(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line: String = text
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect();
    match line.trim() {
        "" => String::new(),
        line => format!(" ({})", line.escape_debug()),
    }
}

fn certificates(path: &std::path::Path) -> Result<Vec<Vec<u8>>, WebhookError> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let unusable = |cause: String| WebhookError::Certificates {
        path: path.to_owned(),
        cause,
    };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|error| unusable(error.to_string()))?
        .map(|found| found.map(|certificate| certificate.to_vec()))
        .collect();
    match certificates {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(unusable("there is none in it".to_owned())),
        Err(error) => Err(unusable(error.to_string())),
    }
}

/// A client whatever its connections are.
trait Exchange: Send + Sync {
    fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> BoxFuture<'_, Result<http::Response<hyper::body::Incoming>, String>>;
}

impl<C: Connect + Clone + Send + Sync + 'static> Exchange for Client<C, Full<Bytes>> {
    fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> BoxFuture<'_, Result<http::Response<hyper::body::Incoming>, String>> {
        self.request(request)
            .map(|sent| sent.map_err(|error| chain(&error)))
            .boxed()
    }
}

/// An error and its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
