//! A sink that POSTs each notice over HTTP or HTTPS: as a `CloudEvent`, by a template, or as a log record in OTLP.
//!
//! A 2xx response confirms the delivery. 408, 429, 5xx, timeouts and connection errors are retried, for this notice alone; only
//! 429 and `Retry-After` hold the other notices too, because the server asks for it. Any other status rejects the notice.
//! The response body is read so that the connection can be reused, but with a limit on size and time.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use hyper_util::client::legacy::connect::Connect;
use windlass::{
    k8s_openapi::jiff::fmt::rfc2822,
    runtime::{
        Clock,
        http_client::{HttpClient, HttpClientError, TokenError, bearer_token, read_body},
    },
};

use super::{DeliveryError, Sink, Template, TemplateError, TemplateSource, encoding, otlp};
use crate::notice::Notice;

/// How many bytes of a response body are read.
const MAX_BODY_BYTES: usize = 64 << 10;

/// How long the response body may take after the status.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// POSTs each notice to a URL; by default as a `CloudEvent` in structured mode.
pub struct Webhook {
    client: HttpClient,
    url: Uri,
    payload: Payload,
    settings: Settings,
    clock: Clock,
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) enum Payload {
    CloudEvent,
    Template(Template),
    OtlpLog,
}

impl Payload {
    fn content_type(&self) -> &'static str {
        match self {
            Self::CloudEvent => "application/cloudevents+json; charset=utf-8",
            Self::Template(_) | Self::OtlpLog => "application/json",
        }
    }

    fn encode(&self, notice: &Notice, source: &str) -> Vec<u8> {
        match self {
            Self::CloudEvent => encoding::cloud_event(notice, source),
            Self::Template(template) => template.render(notice),
            Self::OtlpLog => otlp::export_request(notice, source),
        }
    }
}

/// How a webhook is called.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The timeout until the response status. Default: 10 s.
    pub timeout: Duration,
    /// The events' `source`, or the service name of log records. Default: `/podwatch`.
    pub source: String,
    /// The template of the messages. Default: none, `CloudEvents`.
    pub template: Option<TemplateSource>,
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
            template: None,
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
    /// The client cannot be created.
    #[error("{0}; pass a PEM file with `ca=FILE`")]
    Client(#[from] HttpClientError),
    /// The token would be sent unencrypted.
    #[error(transparent)]
    InsecureToken(#[from] InsecureToken),
    /// The template cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl Webhook {
    /// Creates a webhook for this URL, and reads its template. Sends nothing yet.
    pub fn new(to: Uri, settings: Settings, clock: Clock) -> Result<Self, WebhookError> {
        settings.check_token(&to)?;
        let client = HttpClient::new(&to, settings.ca.as_deref())?;
        let payload = match &settings.template {
            None => Payload::CloudEvent,
            Some(template) => Payload::Template(template.load()?),
        };
        Ok(Self::with_client(client, to, settings, clock).with_payload(payload))
    }

    /// Creates a sink for the logs of an OTLP receiver.
    pub fn otlp_logs(to: Uri, settings: Settings, clock: Clock) -> Result<Self, WebhookError> {
        Ok(Self::new(otlp::logs_url(to), settings, clock)?.with_payload(Payload::OtlpLog))
    }

    pub(super) fn with_payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    /// Creates a webhook that uses the given connector. Does not check whether it is safe for a token.
    pub fn with_connector(
        connector: impl Connect + Clone + Send + Sync + 'static,
        url: Uri,
        settings: Settings,
        clock: Clock,
    ) -> Self {
        Self::with_client(HttpClient::with_connector(connector), url, settings, clock)
    }

    fn with_client(client: HttpClient, url: Uri, settings: Settings, clock: Clock) -> Self {
        Self {
            client,
            url,
            payload: Payload::CloudEvent,
            settings,
            clock,
        }
    }

    async fn post(&self, notice: &Notice) -> Result<(), DeliveryError> {
        let unusable = |reason: String| DeliveryError::Unavailable {
            reason,
            retry_after: None,
        };
        let failed = |reason: String| DeliveryError::Failed { reason };
        let body = Bytes::from(self.payload.encode(notice, &self.settings.source));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static(self.payload.content_type()),
        );
        headers.insert(
            header::USER_AGENT,
            header::HeaderValue::from_static(concat!("windlass-podwatch/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(path) = &self.settings.token_file {
            let value = bearer_token(path).map_err(|error| {
                unusable(match error {
                    TokenError::Read { path, source } => {
                        format!("cannot read `token-file` {}: {source}", path.display())
                    }
                    _ => format!(
                        "`token-file` {} is invalid: it must contain a token on one line",
                        path.display()
                    ),
                })
            })?;
            headers.insert(header::AUTHORIZATION, value);
        }
        let timeout = self.settings.timeout;
        let sent = tokio::time::timeout(timeout, self.client.send(request)).await;
        let answer = sent
            .map_err(|_| {
                failed(format!(
                    "did not answer within {timeout:?}; `timeout=` sets the limit"
                ))
            })?
            .map_err(|reason| {
                failed(format!(
                    "cannot be reached: {reason}; check that the URL is right and the server runs"
                ))
            })?;
        let (head, body) = answer.into_parts();
        // The status decides, even if the body cannot be read.
        let read = tokio::time::timeout(BODY_TIMEOUT, read_body(body, MAX_BODY_BYTES)).await;
        let body = read.ok().and_then(Result::ok).unwrap_or_default();
        self.classify(head.status, &head.headers, &body)
    }

    fn classify(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<(), DeliveryError> {
        let reason = format!("answered {status}{}", self.body_excerpt(body));
        let retry_after = self.retry_after(headers);
        let is_otlp = matches!(self.payload, Payload::OtlpLog);
        match status.as_u16() {
            200..=299 if is_otlp => otlp::check_response(body),
            200..=299 => Ok(()),
            408 | 500..=599 if is_otlp && !otlp::is_retryable(status.as_u16()) => {
                Err(DeliveryError::Rejected { reason })
            }
            429 => Err(DeliveryError::Unavailable { reason, retry_after }),
            408 | 500..=599 if retry_after.is_some() => {
                Err(DeliveryError::Unavailable { reason, retry_after })
            }
            408 | 500..=599 => Err(DeliveryError::Failed { reason }),
            // Without the body, which often repeats the address.
            300..=399 => Err(DeliveryError::Rejected {
                reason: format!("answered {status}, a redirect to {}", redirect_target(headers)),
            }),
            401 | 403 => Err(DeliveryError::Rejected {
                reason: format!("{reason}: pass a valid token with `token-file=`"),
            }),
            404 | 405 | 410 => Err(DeliveryError::Rejected {
                reason: format!("{reason}: check the URL's path"),
            }),
            _ => Err(DeliveryError::Rejected { reason }),
        }
    }

    /// The start of the first line of a response body, in parentheses; empty if there is none. Without the URL's path, which is
    /// often a password and which servers repeat in their errors.
    fn body_excerpt(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        let mut line = text.lines().next().unwrap_or_default().to_owned();
        let whole = self.url.path_and_query().map_or("/", |path| path.as_str());
        for path in [whole, self.url.path()] {
            if path != "/" {
                line = line.replace(path, "…");
            }
        }
        let line: String = line.chars().take(200).collect();
        match line.trim() {
            "" => String::new(),
            line => format!(" ({})", line.escape_debug()),
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
    fn deliver<'a>(&'a self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), DeliveryError>> {
        self.post(notice).boxed()
    }
}

/// Where a redirect leads, and what to do. Of a URL it has the scheme, the host and the port only.
fn redirect_target(headers: &HeaderMap) -> String {
    let place = headers
        .get(header::LOCATION)
        .and_then(|place| place.to_str().ok())
        .and_then(|place| place.parse::<Uri>().ok());
    let Some(place) = place else {
        return "an unknown place: check the URL".to_owned();
    };
    let (Some(scheme), Some(host)) = (place.scheme_str(), place.host()) else {
        return "another path of this server: check the URL".to_owned();
    };
    let port = place
        .port_u16()
        .map_or_else(String::new, |port| format!(":{port}"));
    format!("{scheme}://{host}{port} (its path is not shown: it may be a secret): use that URL")
}

#[cfg(test)]
mod tests;
