//! Makes the calls of webhooks, and describes failures like a real server: in the words of Go's HTTP client, and of
//! client-go for responses that are no success.

use std::{collections::HashMap, io::Read, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use flate2::read::GzDecoder;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode, header};
use serde_json::Value;
use tokio::time::{Duration, Instant, timeout};

use super::{
    Answer, Answers, Call, CallFailure, Endpoint,
    budget::{ResponseBudget, Share},
    connection::{MAX_RESPONSE_BYTES, Pool},
    in_process::InProcessWebhook,
    redirect::{Hop, post_failed},
};
use crate::{large_work::LargeWork, object_store::ObjectStore, storage::Key};

/// How many calls of one request are made at a time.
const MAX_CONCURRENT: usize = 64;

/// How much of a body is shown in a message.
const MAX_SHOWN_BYTES: usize = 2048;

/// The largest body of an error that is read as a `Status`. Its message is kept as long as the request, beside the budget.
const MAX_STATUS_BYTES: usize = 64 * 1024;

/// Makes calls to webhooks.
pub(crate) struct WebhookClient {
    store: Arc<ObjectStore>,
    /// Webhooks in the process, by host: `name.namespace.svc` for a service.
    in_process: HashMap<Box<str>, InProcessWebhook>,
    /// Where to connect to for a host.
    addresses: HashMap<Box<str>, SocketAddr>,
    pool: Pool,
    budget: ResponseBudget,
}

impl WebhookClient {
    pub(crate) fn new(
        store: Arc<ObjectStore>,
        in_process: HashMap<Box<str>, InProcessWebhook>,
        addresses: HashMap<Box<str>, SocketAddr>,
        budget: ResponseBudget,
    ) -> Self {
        Self {
            store,
            in_process,
            addresses,
            pool: Pool::default(),
            budget,
        }
    }

    /// Makes calls, several at a time, and adds the answers in the order in which they arrive. None takes longer than
    /// `deadline`.
    pub(crate) async fn answer(
        &self,
        calls: Vec<Call>,
        deadline: Instant,
        answers: &Answers,
        large_work: &LargeWork,
    ) {
        let mut responses = stream::iter(calls)
            .map(|call| async move {
                let answer = self.ask(&call, deadline, large_work).await;
                (call.id, answer)
            })
            .buffer_unordered(MAX_CONCURRENT);
        while let Some((id, answer)) = responses.next().await {
            answers.add(id, answer);
        }
    }

    /// Makes one call, which takes no longer than `deadline`.
    pub(crate) async fn ask(&self, call: &Call, deadline: Instant, large_work: &LargeWork) -> Answer {
        let uid = self.store.environment.review_uid();
        let mut share = self.share();
        let response = self.call(call, &uid, deadline, large_work, &mut share).await;
        let response = match response {
            Ok(body) => Ok(share.hold(body)),
            Err(_) if share.is_exhausted() => Err(CallFailure::NoRoom),
            Err(failure) => Err(failure),
        };
        Answer {
            uid,
            response,
            arrival: 0,
        }
    }

    /// A share of the memory for responses, and for what is made of them.
    pub(crate) fn share(&self) -> Share {
        self.budget.share()
    }

    async fn call(
        &self,
        call: &Call,
        uid: &str,
        deadline: Instant,
        large_work: &LargeWork,
        share: &mut Share,
    ) -> Result<Bytes, CallFailure> {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = left.min(call.timeout);
        // Rounded up, as the real server does.
        let seconds = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
        let until = Instant::now() + limit;
        let mut endpoint = call.endpoint.clone();
        let mut hop = Hop::first(endpoint.url.with_query(&format!("timeout={seconds}s")));
        let response = loop {
            let request = hop.request(|| call.body(uid));
            let request = request.map_err(|error| CallFailure::NotSent(error.to_string()))?;
            let left = until.saturating_duration_since(Instant::now());
            let response = self.send(&endpoint, request, left, share).await;
            let response = response.map_err(|failure| match failure {
                CallFailure::Failed(why) => post_failed(&hop.url, &why),
                other => other,
            })?;
            let Some(next) = hop.next(&response)? else {
                break response;
            };
            endpoint = Arc::new(endpoint.redirected(&next.url));
            hop = next;
        };
        let is_compressed = response.headers().contains_key(header::CONTENT_ENCODING);
        let size = if is_compressed {
            MAX_RESPONSE_BYTES
        } else {
            response.body().len()
        };
        let read = || body_of(decompress(response, share)?).map_err(CallFailure::Failed);
        large_work.run(size, read).await
    }

    async fn send(
        &self,
        endpoint: &Endpoint,
        request: Request<Bytes>,
        limit: Duration,
        share: &mut Share,
    ) -> Result<Response<Bytes>, CallFailure> {
        let too_late = |_| CallFailure::Failed("context deadline exceeded".to_owned());
        if let Some(webhook) = self.in_process.get(&endpoint.host) {
            let answer = timeout(limit, webhook.call(request)).await.map_err(too_late)?;
            let answer = answer.map_err(CallFailure::Failed)?;
            if answer.body().len() > MAX_RESPONSE_BYTES {
                return Err(CallFailure::Failed("length limit exceeded".to_owned()));
            }
            return if share.grow(answer.body().len()) {
                Ok(answer)
            } else {
                Err(CallFailure::NoRoom)
            };
        }
        if let Some(problem) = endpoint.ca_bundle_problem() {
            return Err(CallFailure::NotSent(format!(
                "could not get REST client: {problem}"
            )));
        }
        let address = self.address_of(endpoint).map_err(CallFailure::Failed)?;
        // A paused clock does not know that the webhook works.
        let exchange = windlass_clock::outside(self.pool.send(endpoint, &address, request, share));
        let response = timeout(limit, exchange).await.map_err(too_late)?;
        response.map_err(CallFailure::Failed)
    }

    /// Where to connect to.
    fn address_of(&self, endpoint: &Endpoint) -> Result<String, String> {
        if let Some(address) = self.addresses.get(&endpoint.host) {
            return Ok(address.to_string());
        }
        let port = endpoint.port;
        let join = |host: &str| {
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        };
        let Some((namespace, name)) = &endpoint.service else {
            return Ok(join(&endpoint.host));
        };
        let entry = self
            .store
            .builtin_entry(("", "services"), &Key::new(namespace, name));
        let service = entry.and_then(|entry| entry.object.decode().ok());
        let Some(service) = service else {
            return Err(format!("service \"{name}\" not found"));
        };
        if service.text_at("spec.type") == "ExternalName" {
            return Ok(join(&service.text_at("spec.externalName")));
        }
        let ports = service.tree()["spec"]["ports"].as_array();
        if !ports.into_iter().flatten().any(|known| known["port"] == port) {
            return Err(format!("no service port {port} found for service \"{name}\""));
        }
        let address = service.text_at("spec.clusterIP");
        if address == "None" {
            return Err("cannot route to service with ClusterIP \"None\"".to_owned());
        }
        // The addresses of services are virtual: nothing listens there.
        Err(format!(
            "dial tcp {}: connect: connection refused",
            join(&address)
        ))
    }
}

/// Decompresses the body of a response, up to the size of the largest.
fn decompress(response: Response<Bytes>, share: &mut Share) -> Result<Response<Bytes>, CallFailure> {
    if response
        .headers()
        .get(header::CONTENT_ENCODING)
        .is_none_or(|encoding| encoding != "gzip")
    {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let mut whole = Vec::new();
    let limit = MAX_RESPONSE_BYTES as u64 + 1;
    match GzDecoder::new(&body[..]).take(limit).read_to_end(&mut whole) {
        Ok(_) if whole.len() > MAX_RESPONSE_BYTES => {
            Err(CallFailure::Failed("length limit exceeded".to_owned()))
        }
        Ok(_) if share.grow(whole.len()) => Ok(Response::from_parts(parts, whole.into())),
        Ok(_) => Err(CallFailure::NoRoom),
        Err(error) => Err(CallFailure::Failed(error.to_string())),
    }
}

/// The body of a successful response, or client-go's message about another one.
fn body_of(response: Response<Bytes>) -> Result<Bytes, String> {
    let code = response.status();
    if code.is_success() {
        if response.body().is_empty() {
            let kind = response.headers().get(header::CONTENT_TYPE);
            let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            return Err(format!(
                "0-length response with status code: {} and content type: {kind}",
                code.as_u16()
            ));
        }
        return Ok(response.into_body());
    }
    if let Some(message) = status_message(response.body()) {
        return Err(message);
    }
    // Texts are shown, documents are not.
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_text = kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/"));
    let unknown = || {
        let shown = &response.body()[..response.body().len().min(MAX_SHOWN_BYTES)];
        let body = String::from_utf8_lossy(shown);
        match body.trim() {
            text if is_text && !text.is_empty() => text.to_owned(),
            _ => "unknown".to_owned(),
        }
    };
    Err(match code {
        StatusCode::CONFLICT => "the server reported a conflict".to_owned(),
        StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
        StatusCode::BAD_REQUEST => "the server rejected our request for an unknown reason".to_owned(),
        StatusCode::UNAUTHORIZED => {
            "the server has asked for the client to provide credentials".to_owned()
        }
        StatusCode::FORBIDDEN | StatusCode::NOT_ACCEPTABLE | StatusCode::UNSUPPORTED_MEDIA_TYPE => unknown(),
        StatusCode::METHOD_NOT_ALLOWED => {
            "the server does not allow this method on the requested resource".to_owned()
        }
        StatusCode::UNPROCESSABLE_ENTITY => {
            "the server rejected our request due to an error in our request".to_owned()
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            "the server is currently unable to handle the request".to_owned()
        }
        StatusCode::GATEWAY_TIMEOUT => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        StatusCode::TOO_MANY_REQUESTS => {
            "the server has received too many requests and has asked us to try again later".to_owned()
        }
        code if code.as_u16() >= 500 => format!(
            "an error on the server ({:?}) has prevented the request from succeeding",
            unknown()
        ),
        code => format!(
            "the server responded with the status code {} but did not return more information",
            code.as_u16()
        ),
    })
}

/// The message of a `Status`.
fn status_message(body: &[u8]) -> Option<String> {
    if body.len() > MAX_STATUS_BYTES {
        return None;
    }
    let status: Value = serde_json::from_slice(body).ok()?;
    if status["kind"] != "Status" {
        return None;
    }
    Some(status["message"].as_str().unwrap_or_default().to_owned())
}
