//! A sink that POSTs `CloudEvents` over HTTP or HTTPS.
//!
//! A 2xx response confirms the delivery; 408, 429 and 5xx are retried, honoring `Retry-After`; any other status rejects the notice.
//! The response body is read so that the connection can be reused, but with a limit on size and time.

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

use super::{DeliveryError, Sink, encoding};
use crate::notice::Notice;

/// How many bytes of a response body are read.
const MAX_BODY_BYTES: usize = 64 << 10;

/// How long the response body may take after the status.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// POSTs each notice to a URL, as a `CloudEvent` in structured mode.
pub struct Webhook {
    client: Box<dyn HttpClient>,
    url: Uri,
    settings: Settings,
    clock: Clock,
}

/// How a webhook is called.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The timeout until the response status. Default: 10 s.
    pub timeout: Duration,
    /// The events' `source`. Default: `/podwatch`.
    pub source: String,
    /// A file with a token, sent as `Authorization: Bearer …`. Read for each request, so that it can be rotated.
    pub token_file: Option<PathBuf>,
    /// Whether the token may be sent unencrypted to an `http://` URL. Default: no, not even on loopback, where another process may
    /// have taken the port.
    pub insecure_token: bool,
    /// A PEM file with the CA certificates to trust. Default: the system's.
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
    /// Fails if a request to this URL would send a token unencrypted, unless `insecure_token` allows it.
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
#[error("`token-file` would be sent unencrypted: use an https:// URL, or add `insecure-token=allow`")]
pub struct InsecureToken;

/// Why a webhook cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The certificates cannot be used.
    #[error("cannot use the certificates in {}: {cause}; pass a PEM file with `ca=FILE`", path.display())]
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
    /// Creates a webhook for this URL. Sends nothing yet.
    pub fn new(to: Uri, settings: Settings, clock: Clock) -> Result<Self, WebhookError> {
        settings.check_token(&to)?;
        let mut config = Config::new(to.clone());
        if let Some(path) = &settings.ca {
            config.root_cert = Some(certificates(path)?);
        }
        let connector = config
            .rustls_https_connector()
            .map_err(|error| WebhookError::Tls(error.to_string()))?;
        Ok(Self::with_connector(connector, to, settings, clock))
    }

    /// Creates a webhook that uses the given connector. Does not check whether it is safe for a token.
    pub fn with_connector(
        connector: impl Connect + Clone + Send + Sync + 'static,
        url: Uri,
        settings: Settings,
        clock: Clock,
    ) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(1)
            .build(connector);
        Self {
            client: Box::new(client),
            url,
            settings,
            clock,
        }
    }

    async fn post(&self, notice: &Notice) -> Result<(), DeliveryError> {
        let down = |reason: String| DeliveryError::Unavailable {
            reason,
            retry_after: None,
        };
        let body = Bytes::from(encoding::cloud_event(notice, &self.settings.source));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
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
                        "`token-file` {} is invalid: it must contain a token on one line",
                        path.display()
                    ))
                })?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        let timeout = self.settings.timeout;
        let sent = tokio::time::timeout(timeout, self.client.send(request)).await;
        let answer = sent
            .map_err(|_| {
                down(format!(
                    "did not answer within {timeout:?}; `timeout=` sets the limit"
                ))
            })?
            .map_err(|reason| {
                down(format!(
                    "cannot be reached: {reason}; check that the URL is right and the server runs"
                ))
            })?;
        let (head, body) = answer.into_parts();
        // The status decides, even if the body cannot be read.
        let read = Limited::new(body, MAX_BODY_BYTES).collect();
        let excerpt = match tokio::time::timeout(BODY_TIMEOUT, read).await {
            Ok(Ok(body)) => body_excerpt(&body.to_bytes()),
            Ok(Err(_)) | Err(_) => String::new(),
        };
        self.classify(head.status, &head.headers, &excerpt)
    }

    fn classify(&self, status: StatusCode, headers: &HeaderMap, excerpt: &str) -> Result<(), DeliveryError> {
        let reason = format!("answered {status}{excerpt}");
        let retry_after = self.retry_after(headers);
        match status.as_u16() {
            200..=299 => Ok(()),
            408 | 429 | 502..=504 => Err(DeliveryError::Unavailable { reason, retry_after }),
            500..=599 if retry_after.is_some() => Err(DeliveryError::Unavailable { reason, retry_after }),
            500..=599 => Err(DeliveryError::Failed { reason }),
            300..=399 => {
                let place = headers
                    .get(header::LOCATION)
                    .and_then(|place| place.to_str().ok());
                let place = place.map_or_else(String::new, |place| format!(" to {place}"));
                Err(DeliveryError::Rejected {
                    reason: format!("{reason}, a redirect{place}: use that URL"),
                })
            }
            401 | 403 => Err(DeliveryError::Rejected {
                reason: format!("{reason}: pass a valid token with `token-file=`"),
            }),
            404 | 405 | 410 => Err(DeliveryError::Rejected {
                reason: format!("{reason}: check the URL's path"),
            }),
            _ => Err(DeliveryError::Rejected { reason }),
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
        Some(wait.min(MAX_RETRY_AFTER))
    }
}

impl Sink for Webhook {
    fn deliver<'a>(&'a mut self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), DeliveryError>> {
        self.post(notice).boxed()
    }
}

/// The start of the first line of a response body, in parentheses; empty if there is none.
fn body_excerpt(body: &[u8]) -> String {
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
        Ok(_) => Err(unusable("no certificate found".to_owned())),
        Err(error) => Err(unusable(error.to_string())),
    }
}

/// An HTTP client with any connector.
trait HttpClient: Send + Sync {
    fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> BoxFuture<'_, Result<http::Response<hyper::body::Incoming>, String>>;
}

impl<C: Connect + Clone + Send + Sync + 'static> HttpClient for Client<C, Full<Bytes>> {
    fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> BoxFuture<'_, Result<http::Response<hyper::body::Incoming>, String>> {
        self.request(request)
            .map(|sent| sent.map_err(|error| error_chain(&error)))
            .boxed()
    }
}

/// An error and its sources, without repetitions.
fn error_chain(error: &dyn std::error::Error) -> String {
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
