//! Makes the calls of webhooks, and describes failures like a real server: in the words of Go's HTTP client, and of
//! client-go for responses that are no success.

use std::{
    collections::{HashMap, HashSet},
    io::Read,
    net::SocketAddr,
    sync::Arc,
};

use bytes::Bytes;
use flate2::read::GzDecoder;
use futures::{StreamExt, stream};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use tokio::time::{Instant, timeout_at};

use super::{
    Answer, Answers, Call, CallFailure, Endpoint,
    budget::{Share, WebhookBudget},
    connection::{MAX_RESPONSE_BYTES, Pool, Route, joined},
    in_process::InProcessWebhook,
    media_type,
    review::read_document,
    url::Url,
};
use crate::{auth::User, golang, large_work::LargeWork, object_store::ObjectStore, storage::Key};

/// How many calls of one request are made at a time.
const MAX_CONCURRENT: usize = 64;

/// How many requests a call makes when it is redirected.
const MAX_REQUESTS: usize = 10;

/// How much of a body is shown in a message.
const MAX_SHOWN_BYTES: usize = 2048;

/// The largest body of an error that is read as a `Status`. Its message is kept as long as the request, beside the budget.
const MAX_STATUS_BYTES: usize = 64 * 1024;

/// What a real server calls itself.
const USER_AGENT: HeaderValue = HeaderValue::from_static("kube-apiserver-admission");

/// Makes calls to webhooks.
pub(crate) struct WebhookClient {
    store: Arc<ObjectStore>,
    /// Webhooks in the process, by host: `name.namespace.svc` for a service.
    in_process: HashMap<Box<str>, InProcessWebhook>,
    /// Where to connect to for a host.
    addresses: HashMap<Box<str>, SocketAddr>,
    pool: Pool,
    budget: WebhookBudget,
}

impl WebhookClient {
    pub(crate) fn new(
        store: Arc<ObjectStore>,
        in_process: HashMap<Box<str>, InProcessWebhook>,
        addresses: HashMap<Box<str>, SocketAddr>,
        budget: WebhookBudget,
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
    /// `deadline`. The reviews count as held by the user until they are answered.
    pub(crate) async fn answer(
        &self,
        calls: Vec<Call>,
        deadline: Instant,
        answers: &Answers,
        large_work: &LargeWork,
    ) {
        let mut waiting = self.share(large_work.user());
        if !waiting.grow(size_of_reviews(&calls)) {
            for call in calls {
                answers.add(call.id, self.without_room());
            }
            return;
        }
        let mut responses = stream::iter(calls)
            .map(|call| async move {
                let id = call.id;
                (id, self.ask(call, deadline, large_work).await)
            })
            .buffer_unordered(MAX_CONCURRENT);
        while let Some((id, answer)) = responses.next().await {
            answers.add(id, answer);
        }
    }

    /// Makes one call, which takes no longer than `deadline`.
    pub(crate) async fn ask(&self, call: Call, deadline: Instant, large_work: &LargeWork) -> Answer {
        let uid = self.store.environment.review_uid();
        let mut share = self.share(large_work.user());
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

    /// A user's share of the memory for reviews, responses, and what is made of them.
    pub(crate) fn share(&self, user: &Arc<User>) -> Share {
        self.budget.share(user)
    }

    /// The answer to a call that is not made, since the server holds too much.
    fn without_room(&self) -> Answer {
        Answer {
            uid: self.store.environment.review_uid(),
            response: Err(CallFailure::NoRoom),
            arrival: 0,
        }
    }

    async fn call(
        &self,
        call: Call,
        uid: &str,
        deadline: Instant,
        large_work: &LargeWork,
        share: &mut Share,
    ) -> Result<Bytes, CallFailure> {
        let body = call.body(uid);
        let mut sent = share.another();
        if !sent.grow(body.len()) {
            return Err(CallFailure::NoRoom);
        }
        let Call {
            endpoint,
            timeout,
            shows_whole_timeout,
            ..
        } = call;
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = left.min(timeout);
        let shown = if shows_whole_timeout { timeout } else { limit };
        // Rounded up, as the real server does.
        let seconds = shown.as_secs() + u64::from(shown.subsec_nanos() > 0);
        let mut url = endpoint.url.clone();
        url.query = format!("timeout={seconds}s");
        let deadline = Instant::now() + limit;
        let response = self.follow(&endpoint, url, body, deadline, share).await?;
        drop(sent);
        let is_compressed = response.headers().contains_key(header::CONTENT_ENCODING);
        let size = if is_compressed {
            MAX_RESPONSE_BYTES
        } else {
            response.body().len()
        };
        let read = || body_of(decompress(response, share)?).map_err(CallFailure::Failed);
        large_work.run(size, read).await
    }

    /// Sends a request, and follows redirects like Go: most of them without the body.
    async fn follow(
        &self,
        endpoint: &Endpoint,
        mut url: Url,
        body: Bytes,
        deadline: Instant,
        share: &mut Share,
    ) -> Result<Response<Bytes>, CallFailure> {
        let failed =
            |url: &str, why: String| CallFailure::Failed(format!("Post {}: {why}", golang::quoted(url)));
        let mut body = Some(body);
        let mut referer = None;
        for requests in 1.. {
            let request = request_of(&url, body.clone(), referer.as_deref())?;
            let response = self.send(endpoint, &url, request, deadline, share).await;
            let response = response.map_err(|failure| match failure {
                CallFailure::Failed(why) => failed(&url.to_string(), why),
                other => other,
            })?;
            let Some(redirect) = Redirect::of(&response) else {
                return Ok(response);
            };
            let next = url.join(&redirect.location).map_err(|error| {
                let location = golang::quoted(&redirect.location);
                failed(
                    &url.to_string(),
                    format!("failed to parse Location header {location}: {error}"),
                )
            })?;
            if requests == MAX_REQUESTS {
                let why = format!("stopped after {MAX_REQUESTS} redirects");
                return Err(failed(&redirect.location, why));
            }
            if !redirect.keeps_body {
                body = None;
            }
            let leaves_tls = url.scheme == "https" && next.scheme == "http";
            referer = (!leaves_tls).then(|| url.to_string());
            url = next;
        }
        unreachable!("the loop ends with a response or an error")
    }

    async fn send(
        &self,
        endpoint: &Endpoint,
        url: &Url,
        request: Request<Bytes>,
        deadline: Instant,
        share: &mut Share,
    ) -> Result<Response<Bytes>, CallFailure> {
        let too_late = |_| CallFailure::Failed("context deadline exceeded".to_owned());
        if let Some(webhook) = self.in_process.get(url.hostname()) {
            let answer = timeout_at(deadline, webhook.call(request))
                .await
                .map_err(too_late)?;
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
        let route = self.route(endpoint, url).map_err(CallFailure::Failed)?;
        // A paused clock does not know that the webhook works.
        let exchange = windlass_clock::outside(self.pool.send(route, request, share));
        let response = timeout_at(deadline, exchange).await.map_err(too_late)?;
        response.map_err(CallFailure::Failed)
    }

    /// Where to connect to for a URL, and how.
    fn route(&self, endpoint: &Endpoint, url: &Url) -> Result<Route, String> {
        let default_port = match &*url.scheme {
            "https" => 443,
            "http" => 80,
            other => return Err(format!("unsupported protocol scheme {}", golang::quoted(other))),
        };
        let host = url.hostname();
        if url.host.is_empty() {
            return Err("http: no Host in request URL".to_owned());
        }
        let port = match url.port() {
            "" => default_port,
            port => port
                .parse()
                .map_err(|_| format!("dial tcp: address {port}: invalid port"))?,
        };
        let is_own = url.host == endpoint.url.host;
        let address = match (&endpoint.service, self.addresses.get(host)) {
            (_, Some(address)) => (address.ip().to_string(), address.port()),
            (Some((namespace, name)), None) if is_own => (self.host_of_service(namespace, name, port)?, port),
            _ => (host.to_owned(), port),
        };
        let tls = (url.scheme == "https").then(|| {
            // A service has one name, wherever it redirects to.
            let name = if endpoint.service.is_some() {
                &endpoint.host
            } else {
                host
            };
            (
                Box::from(name),
                endpoint.tls_config(self.store.environment.clock()),
            )
        });
        Ok(Route { address, tls })
    }

    /// The host at which a service listens.
    fn host_of_service(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
        let entry = self
            .store
            .builtin_entry(("", "services"), &Key::new(namespace, name));
        let service = entry.and_then(|entry| entry.object.decode().ok());
        let Some(service) = service else {
            return Err(format!("service \"{name}\" not found"));
        };
        if service.text_at("spec.type") == "ExternalName" {
            return Ok(service.text_at("spec.externalName"));
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
            joined(&address, port)
        ))
    }
}

/// The size of reviews. Those about the same object share its bytes.
fn size_of_reviews(calls: &[Call]) -> usize {
    let mut counted = HashSet::new();
    let distinct = calls.iter().filter(|call| counted.insert(call.rest.as_ptr()));
    distinct.map(|call| call.rest.len()).sum()
}

/// The request for a URL: with a review, or after most redirects without one.
fn request_of(url: &Url, body: Option<Bytes>, referer: Option<&str>) -> Result<Request<Bytes>, CallFailure> {
    let mut request = Request::builder()
        .method(if body.is_some() { Method::POST } else { Method::GET })
        .uri(url.request_target())
        .header(header::HOST, url.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "application/json, */*")
        .header(header::ACCEPT_ENCODING, "gzip");
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    if let Some(referer) = referer {
        request = request.header(header::REFERER, referer);
    }
    let request = request.body(body.unwrap_or_default());
    request.map_err(|error| CallFailure::NotSent(error.to_string()))
}

/// Where a response says that the webhook is.
struct Redirect {
    location: String,
    /// Whether the same request is sent there, and not one without a body.
    keeps_body: bool,
}

impl Redirect {
    fn of(response: &Response<Bytes>) -> Option<Self> {
        let keeps_body = match response.status().as_u16() {
            301..=303 => false,
            307 | 308 => true,
            _ => return None,
        };
        let location = response.headers().get(header::LOCATION)?;
        let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
        (!location.is_empty()).then_some(Self { location, keeps_body })
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
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    if let Some(problem) = kind.and_then(|kind| media_type::problem(&kind)) {
        return Err(format!("Internal error occurred: {problem}"));
    }
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
    let status = read_document(body).ok()?;
    if status["kind"] != "Status" || status["status"] != "Failure" {
        return None;
    }
    Some(status["message"].as_str().unwrap_or_default().to_owned())
}
