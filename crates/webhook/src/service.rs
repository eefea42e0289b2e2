//! Answers reviews: finds the webhook by its path, and calls its handler within the server's timeout.
//!
//! It is a `tower` service of whole requests and knows nothing about sockets: in tests an embedded API server calls it in the
//! process, and [`server`](crate::server) puts it behind TLS.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::json;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    admission::{Decision, Declaration, FailurePolicy, HandlerError, Reply, Review},
    conversion::Converter,
    metrics::EndpointMetrics,
    reads::{Listers, ReadCaches},
};

/// The timeout of a request that names none, which is the server's default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest timeout that a server may have.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);
/// The size from which a conversion is handled aside: it takes more than a millisecond.
const LARGE_BYTES: usize = 256 * 1024;
/// How much of the timeout is left for the way back: a tenth of it, but no more than this.
const MAX_MARGIN: Duration = Duration::from_secs(1);

/// Answers the reviews of all webhooks of a [`Webhooks`](crate::Webhooks). Clones share their state.
///
/// In a test, an embedded API server calls it without a socket and without certificates:
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_apiserver::{InProcessWebhook, Server};
/// use windlass_webhook::{Verdict, Webhooks, validate};
///
/// let webhooks = Webhooks::new("quota").with(validate::<ConfigMap, _>(|_, _| Verdict::deny("no")));
/// let service = InProcessWebhook::new(webhooks.service());
/// let server = Server::builder().webhook("quota.default.svc", service).build();
/// # let _ = server;
/// ```
#[derive(Clone)]
pub struct WebhookService(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    /// By path, without the slash.
    pub(crate) endpoints: HashMap<String, Endpoint>,
    /// What handlers read.
    pub(crate) reads: ReadCaches,
    /// Bounds the reviews that are handled at a time.
    pub(crate) permits: Semaphore,
}

/// One webhook.
pub(crate) struct Endpoint {
    pub(crate) kind: EndpointKind,
    pub(crate) metrics: EndpointMetrics,
}

pub(crate) enum EndpointKind {
    Admission(Box<Declaration>),
    Conversion(Converter),
}

/// A failure that is no answer: the API server acts by the failure policy, and shows the message.
struct Failure {
    code: StatusCode,
    reason: &'static str,
    message: String,
}

impl Failure {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
        }
    }

    fn into_response(self) -> Response<Bytes> {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        respond(self.code, status.to_string().into())
    }
}

fn respond(code: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl WebhookService {
    /// Answers a request. Does not panic, and does not fail.
    pub async fn answer(&self, request: Request<Bytes>) -> Response<Bytes> {
        let path = request.uri().path();
        let Some((path, endpoint)) = path
            .strip_prefix('/')
            .and_then(|path| self.0.endpoints.get_key_value(path))
        else {
            let message = format!("there is no webhook at {path:.200}");
            return Failure::new(StatusCode::NOT_FOUND, "NotFound", message).into_response();
        };
        if request.method() != Method::POST {
            let message = "reviews are sent with POST";
            return Failure::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).into_response();
        }
        let started = Instant::now();
        let in_flight = endpoint.metrics.start();
        let deadline = started + time_to_answer(request.uri().query().unwrap_or_default());
        let answered = self.handle(path, endpoint, request.body(), deadline).await;
        let response = answered.unwrap_or_else(Failure::into_response);
        drop(in_flight);
        endpoint
            .metrics
            .finish(response.status().as_u16(), started.elapsed());
        response
    }

    async fn handle(
        &self,
        name: &str,
        endpoint: &Endpoint,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<Response<Bytes>, Failure> {
        let permit = match self.0.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => tokio::time::timeout_at(deadline, self.0.permits.acquire())
                .await
                .ok()
                .and_then(Result::ok)
                .ok_or_else(|| {
                    let message = "the webhook has too many requests";
                    Failure::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
                })?,
        };
        let bad = |why: String| Failure::new(StatusCode::BAD_REQUEST, "BadRequest", why);
        let body = match &endpoint.kind {
            EndpointKind::Admission(declaration) => {
                let review = Review::parse(body).map_err(bad)?;
                self.admit(name, declaration, review, deadline).await?
            }
            EndpointKind::Conversion(converter) if body.len() < LARGE_BYTES => {
                converter.answer(body).map_err(bad)?
            }
            EndpointKind::Conversion(_) => self.convert_aside(name, body).await.map_err(bad)?,
        };
        drop(permit);
        Ok(respond(StatusCode::OK, body))
    }

    /// Converts a long list on another thread, so that other reviews do not wait for it.
    async fn convert_aside(&self, name: &str, body: &Bytes) -> Result<Bytes, String> {
        let (shared, name, body) = (self.0.clone(), name.to_owned(), body.clone());
        let converted = tokio::task::spawn_blocking(move || match &shared.endpoints[&name].kind {
            EndpointKind::Conversion(converter) => converter.answer(&body),
            EndpointKind::Admission(_) => Err("not a conversion".to_owned()),
        });
        converted
            .await
            .unwrap_or_else(|_| Err("the conversion panicked".to_owned()))
    }

    async fn admit(
        &self,
        name: &str,
        declaration: &Declaration,
        mut review: Review<'_>,
        deadline: Instant,
    ) -> Result<Bytes, Failure> {
        let failed = |request: &crate::ReviewRequest, error: HandlerError| {
            let policy = declaration.failure_policy;
            tracing::warn!(
                webhook = name, uid = request.uid, namespace = request.namespace, object = request.name,
                user = request.username(), %error,
                "{}", match policy {
                    FailurePolicy::Fail => "a webhook failed, so the request is refused",
                    FailurePolicy::Ignore => "a webhook failed, so the request is not checked",
                }
            );
            Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                error.to_string(),
            )
        };
        let listers = self.listers(deadline).await;
        let listers = listers.map_err(|error| failed(&review.request, error))?;
        review.request.listers = listers;
        review.request.deadline = Some(deadline);
        let decided = match declaration.handler.call(&review) {
            Reply::Ready(decided) => decided,
            Reply::Waiting(decision) => tokio::time::timeout_at(deadline, decision)
                .await
                .unwrap_or(Err(HandlerError::TimedOut)),
        };
        let decision = decided.map_err(|error| failed(&review.request, error))?;
        log(name, &review, &decision);
        Ok(decision.into_body(&review.request))
    }

    /// The listers of the handlers, once there are all.
    async fn listers(&self, deadline: Instant) -> Result<Arc<Listers>, HandlerError> {
        let synced = tokio::time::timeout_at(deadline, self.0.reads.listers()).await;
        match synced {
            Ok(Ok(listers)) => Ok(listers),
            _ => Err(HandlerError::NotSynced),
        }
    }
}

fn log(webhook: &str, review: &Review<'_>, decision: &Decision) {
    let request = &review.request;
    if let Some(message) = decision.verdict.message(request) {
        tracing::info!(
            webhook,
            uid = request.uid,
            operation = request.operation.name(),
            namespace = request.namespace,
            object = request.name,
            user = request.username(),
            message,
            "a request is refused"
        );
    } else {
        tracing::debug!(
            webhook,
            uid = request.uid,
            operation = request.operation.name(),
            namespace = request.namespace,
            object = request.name,
            user = request.username(),
            is_patched = !decision.patch.is_empty(),
            "a request is allowed"
        );
    }
}

/// How long a handler may take: the `timeout` of the query, minus the margin.
fn time_to_answer(query: &str) -> Duration {
    let timeout = query
        .split('&')
        .find_map(|part| part.strip_prefix("timeout="))
        .and_then(parse_seconds)
        .unwrap_or(DEFAULT_TIMEOUT)
        .min(MAX_TIMEOUT);
    timeout.saturating_sub((timeout / 10).min(MAX_MARGIN))
}

/// A duration as the API server writes it: `10s`, `1m30s`, `500ms`.
fn parse_seconds(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    if text.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail
            .find(|character: char| character.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let factor = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

impl tower::Service<Request<Bytes>> for WebhookService {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let service = self.clone();
        async move { Ok(service.answer(request).await) }.boxed()
    }
}

impl std::fmt::Debug for WebhookService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.endpoints.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handler_gets_the_timeout_of_the_query_without_a_margin() {
        for (query, millis) in [
            ("timeout=10s", 9_000),
            ("a=b&timeout=1s", 900),
            ("timeout=500ms", 450),
            ("timeout=1m30s", 29_000),
            ("timeout=", 9_000),
            ("timeout=-1s", 9_000),
            ("timeout=99999999999999999999999999h", 9_000),
            ("timeout=1e9s", 9_000),
            ("timeout=NaNs", 9_000),
            ("", 9_000),
        ] {
            assert_eq!(time_to_answer(query), Duration::from_millis(millis), "{query}");
        }
    }
}
