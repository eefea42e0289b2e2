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
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use serde_json::json;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    admission::{Decision, Declaration, FailurePolicy, HandlerError, Reply, Review},
    conversion::Converter,
    metrics::{EndpointMetrics, Panics},
    reads::{Listers, ReadCaches},
};

/// The timeout of a request that names none, which is the server's default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest timeout that a server may have.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);
/// The size from which a review is handled on another thread: it takes more than a millisecond.
const LARGE_BYTES: usize = 256 * 1024;
/// Such reviews together, in bytes. A tree takes up to 30 times as much as its text, and this bounds all trees.
const LARGE_BYTES_AT_A_TIME: usize = 16 * 1024 * 1024;
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
    pub(crate) permits: Arc<Semaphore>,
    /// Bounds the kibibytes of large reviews that are handled at a time.
    pub(crate) large: Arc<Semaphore>,
    pub(crate) panics: Panics,
}

/// When the head of a request arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedAt(pub(crate) Instant);

/// The permits of a large review, which its thread holds until it ends.
pub(crate) fn large_reviews() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LARGE_BYTES_AT_A_TIME / 1024))
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
            tracing::debug!(path, "there is no webhook at the path of a request");
            let message = format!("there is no webhook at {path:.200}");
            return Failure::new(StatusCode::NOT_FOUND, "NotFound", message).into_response();
        };
        if request.method() != Method::POST {
            let message = "reviews are sent with POST";
            return Failure::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).into_response();
        }
        let started = Instant::now();
        let received_at = request.extensions().get::<ReceivedAt>();
        let received_at = received_at.map_or(started, |received_at| received_at.0);
        let in_flight = endpoint.metrics.start();
        let deadline = deadline(received_at, request.uri());
        let answered = self.handle(path, endpoint, request.body(), deadline).await;
        if let Err(failure) = &answered {
            let (code, why) = (failure.code.as_u16(), &failure.message);
            tracing::debug!(webhook = path, code, why, "a review is not answered");
        }
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
        let too_many = || {
            let message = "the webhook has too many requests";
            Failure::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
        };
        let acquire = async |permits: &Arc<Semaphore>, count| {
            let permit = tokio::time::timeout_at(deadline, permits.clone().acquire_many_owned(count)).await;
            permit.ok().and_then(Result::ok).ok_or_else(too_many)
        };
        let permit = match self.0.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => acquire(&self.0.permits, 1).await?,
        };
        let is_large = body.len() >= LARGE_BYTES;
        let large = if is_large {
            let kibibytes = (body.len() / 1024).min(LARGE_BYTES_AT_A_TIME / 1024);
            Some(acquire(&self.0.large, u32::try_from(kibibytes).unwrap_or(u32::MAX)).await?)
        } else {
            None
        };
        let guards = (permit, large);
        let bad = |why: String| Failure::new(StatusCode::BAD_REQUEST, "BadRequest", why);
        let body = match &endpoint.kind {
            EndpointKind::Admission(declaration) => {
                let listers = self.listers(deadline).await;
                let begun = if is_large {
                    let body = body.clone();
                    self.aside(name, guards, deadline, move |kind| match kind {
                        EndpointKind::Admission(declaration) => begin(declaration, &body, listers, deadline),
                        EndpointKind::Conversion(_) => Err("not an admission webhook".to_owned()),
                    })
                    .await?
                } else {
                    begin(declaration, body, listers, deadline)
                };
                let (request, reply) = begun.map_err(bad)?;
                self.admit(name, declaration, &request, reply, deadline).await?
            }
            EndpointKind::Conversion(_) if is_large => {
                let body = body.clone();
                let converted = self.aside(name, guards, deadline, move |kind| match kind {
                    EndpointKind::Conversion(converter) => converter.answer(&body),
                    EndpointKind::Admission(_) => Err("not a conversion".to_owned()),
                });
                converted.await?.map_err(bad)?
            }
            EndpointKind::Conversion(converter) => converter.answer(body).map_err(bad)?,
        };
        Ok(respond(StatusCode::OK, body))
    }

    /// Handles a large review on another thread, so that other reviews and the controllers do not wait for it. The thread goes
    /// on after the deadline, and keeps the guards.
    async fn aside<R: Send + 'static>(
        &self,
        name: &str,
        guards: impl Send + 'static,
        deadline: Instant,
        work: impl FnOnce(&EndpointKind) -> R + Send + 'static,
    ) -> Result<R, Failure> {
        let (shared, name) = (self.0.clone(), name.to_owned());
        let working = tokio::task::spawn_blocking(move || {
            let done = work(&shared.endpoints[&name].kind);
            drop(guards);
            done
        });
        let failed = |message| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message);
        let done = tokio::time::timeout_at(deadline, working).await;
        let done = done.map_err(|_| failed("the review was not handled in time"))?;
        done.map_err(|_| failed("the webhook panicked"))
    }

    async fn admit(
        &self,
        name: &str,
        declaration: &Declaration,
        request: &crate::ReviewRequest,
        reply: Reply,
        deadline: Instant,
    ) -> Result<Bytes, Failure> {
        let decided = match reply {
            Reply::Ready(decided) => decided,
            Reply::Waiting(decision) => tokio::time::timeout_at(deadline, decision)
                .await
                .unwrap_or(Err(HandlerError::TimedOut)),
        };
        let decision = decided.map_err(|error| {
            if matches!(error, HandlerError::Panicked(_)) {
                self.0.panics.admission.inc();
            }
            let policy = declaration.failure_policy;
            tracing::warn!(
                webhook = name, uid = request.uid, namespace = request.namespace, object = request.name,
                user = request.username(), %error,
                "{}", match policy {
                    FailurePolicy::Fail => "a webhook failed, so the request is refused",
                    FailurePolicy::Ignore => "a webhook failed, so the request is not checked",
                }
            );
            let message = error.to_string();
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
        })?;
        log(name, request, &decision);
        Ok(decision.into_body(request))
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

/// Reads a review and calls its handler, which may go on. An error if the body is no review.
fn begin(
    declaration: &Declaration,
    body: &[u8],
    listers: Result<Arc<Listers>, HandlerError>,
    deadline: Instant,
) -> Result<(crate::ReviewRequest, Reply), String> {
    let mut review = Review::parse(body)?;
    let reply = match listers {
        Ok(listers) => {
            review.request.listers = listers;
            review.request.deadline = Some(deadline);
            declaration.handler.call(&review)
        }
        Err(error) => Reply::Ready(Err(error)),
    };
    Ok((review.request, reply))
}

fn log(webhook: &str, request: &crate::ReviewRequest, decision: &Decision) {
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

/// When a request must be answered that has arrived at this time.
pub(crate) fn deadline(received_at: Instant, uri: &Uri) -> Instant {
    received_at + time_to_answer(uri.query().unwrap_or_default())
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

impl WebhookService {
    /// Whether all caches that handlers read have synced.
    pub(crate) fn has_synced(&self) -> bool {
        matches!(self.0.reads.listers().now_or_never(), Some(Ok(_)))
    }
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
    use std::sync::mpsc;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{Webhooks, validate};

    fn review(size: usize) -> Request<Bytes> {
        let data = json!({"a": "x".repeat(size)});
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
        let request = json!({"uid": "u", "operation": "CREATE", "object": object});
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        Request::post("/validate.configmaps.hooks?timeout=1s")
            .body(review.to_string().into())
            .expect("a request")
    }

    #[tokio::test]
    async fn large_review_does_not_block_the_runtime_or_exceed_the_deadline() {
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = parking_lot::Mutex::new(blocked);
        let handler = validate::<ConfigMap, _>(move |_, _| {
            blocked.lock().recv().ok();
        });
        let service = Webhooks::new("hooks").with(handler).service();
        // On this thread the clock would stand still, and the test would hang.
        let response = service.answer(review(LARGE_BYTES)).await;
        assert_eq!(response.status(), 500);
        assert!(String::from_utf8_lossy(response.body()).contains("not handled in time"));
        drop(release);
        let response = service.answer(review(LARGE_BYTES)).await;
        assert_eq!(response.status(), 200);
    }

    #[tokio::test]
    async fn panics_are_counted() {
        let webhooks = Webhooks::new("hooks").with(validate::<ConfigMap, _>(|_, _| -> () { panic!("oops") }));
        let panics = webhooks.metrics.panics.clone();
        let service = webhooks.service();
        for size in [1, LARGE_BYTES] {
            assert_eq!(service.answer(review(size)).await.status(), 500);
        }
        assert_eq!(panics.admission.get(), 2);
    }

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
