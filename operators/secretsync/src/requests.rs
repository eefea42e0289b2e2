//! The requests that read and write content; their bodies are zeroed.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::time::timeout;
use windlass::{
    api::status::StatusClass,
    cache::{Uid, is_connection_error},
    kube::{
        self,
        api::ObjectMeta,
        client::{Body, Client},
        core::Status,
    },
    prelude::json,
};

use crate::{
    api::{SOURCE_UID_LABEL, SourceKind},
    content::{Content, ZeroizedBuffer},
    field_ownership::FIELD_MANAGER,
};

/// Requests only metadata, so that a write's response does not contain the content.
const ACCEPT_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Timeout of a request, including the client's retries.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// How many bytes of a page are aimed at, and how many are read: copies may have grown since they were written.
const PAGE_BYTES: usize = 1 << 20;
const MAX_PAGE_BYTES: usize = 8 << 20;

/// The most objects in a page, and the bytes of an object besides its values, roughly.
const MAX_PAGE_OBJECTS: usize = 500;
const METADATA_BYTES: usize = 1 << 10;

/// Precedes the message of a webhook or an admission policy in the server's message.
const DENIALS: [&str; 2] = ["denied the request", "denied request"];

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The server refused it.
    #[error("{}", status_message(.0))]
    Server(Box<Status>),
    /// The content of a source exceeds the limit of its namespace.
    #[error("the sources of its namespace exceed the limit of {limit} bytes (`--max-content-mib`)")]
    ContentLimitExceeded {
        /// The limit.
        limit: usize,
    },
    /// The client could not send it, or got no response.
    #[error("{0}")]
    Client(
        // Not boxed: callers look for its type among the sources of an error.
        #[source] kube::Error,
    ),
    /// It could not be built, took too long, or its response could not be parsed.
    #[error("{0}")]
    Other(String),
}

fn status_message(status: &Status) -> String {
    format!("the server returned {}: {}", status.code, status.message)
}

impl RequestError {
    fn is(&self, class: StatusClass) -> bool {
        self.class() == Some(class)
    }

    fn class(&self) -> Option<StatusClass> {
        match self {
            Self::Server(status) => Some(StatusClass::of(status)),
            _ => None,
        }
    }

    /// An object of that name exists.
    pub(crate) fn is_already_exists(&self) -> bool {
        self.is(StatusClass::AlreadyExists)
    }

    /// The resource version or UID has changed.
    pub(crate) fn is_conflict(&self) -> bool {
        self.is(StatusClass::Conflict) || self.is(StatusClass::UidMismatch)
    }

    /// The request itself was rejected: an outdated version, a field that cannot be changed, an admission webhook.
    pub(crate) fn is_rejected(&self) -> bool {
        self.class().is_some_and(|class| !class.is_transient())
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.is(StatusClass::NotFound)
    }

    /// The namespace is terminating.
    pub(crate) fn is_terminating(&self) -> bool {
        self.is(StatusClass::NamespaceTerminating)
    }

    /// It got no response because of its connection: the connection's log says so, once for all requests.
    pub(crate) fn is_connection_error(&self) -> bool {
        matches!(self, Self::Client(error) if is_connection_error(error))
    }

    /// A write that failed so may have had its effect.
    pub(crate) fn is_unanswered(&self) -> bool {
        match self {
            Self::Server(status) => StatusClass::of(status) == StatusClass::ServerError,
            Self::Client(_) | Self::Other(_) => true,
            Self::ContentLimitExceeded { .. } => false,
        }
    }

    /// Removes the message if it quotes this content, as an admission webhook may do.
    pub(crate) fn redact(mut self, content: &Content) -> Self {
        // An error of the connection contains an address, and nothing of the request.
        if let Self::Client(error) = &self
            && !is_connection_error(error)
        {
            self = Self::Other(with_sources(error));
        }
        if let Some(message) = self.message()
            && content.is_quoted_in(message)
        {
            "message hidden: it contains a value of the object".clone_into(message);
        }
        self
    }

    /// Removes the reason of an admission denial, if the object's content is not known and might be quoted.
    pub(crate) fn redact_denial(mut self) -> Self {
        let Some(message) = self.message() else {
            return self;
        };
        let ends = DENIALS
            .iter()
            .filter_map(|denial| Some(message.find(denial)? + denial.len()));
        if let Some(end) = ends.min() {
            message.truncate(end);
            message.push_str("; reason hidden: it may contain a value of the object");
        }
        self
    }

    /// The message of the server or the client.
    fn message(&mut self) -> Option<&mut String> {
        match self {
            Self::Server(status) => Some(&mut status.message),
            Self::Other(message) => Some(message),
            Self::Client(_) | Self::ContentLimitExceeded { .. } => None,
        }
    }

    /// Returns the reason, in CamelCase.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Server(status) if !status.reason.is_empty() => &status.reason,
            Self::Server(_) => "ServerError",
            Self::ContentLimitExceeded { .. } => "LimitExceeded",
            Self::Client(_) | Self::Other(_) => "RequestFailed",
        }
    }
}

/// An error and its sources in one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = error.source();
    }
    text
}

fn path(kind: SourceKind, namespace: &str, name: Option<&str>) -> String {
    let collection = format!("/api/v1/namespaces/{namespace}/{}", kind.plural());
    name.map_or(collection.clone(), |name| format!("{collection}/{name}"))
}

/// Gets the whole object; `None` if it does not exist.
pub(crate) async fn get(
    client: &Client,
    kind: SourceKind,
    namespace: &str,
    name: &str,
) -> Result<Option<Content>, RequestError> {
    let request = Request::get(path(kind, namespace, Some(name)))
        .header(header::ACCEPT, "application/json")
        .body(Body::empty());
    match send(client, request).await {
        Ok(answer) => Content::parse(&answer).map(Some).map_err(RequestError::Other),
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Gets a page of all copies of a source, whole, and the token of the next page; empty if there is none. `size` is the size
/// of the source.
pub(crate) async fn list_copies(
    client: &Client,
    kind: SourceKind,
    source_uid: &str,
    size: usize,
    token: &str,
) -> Result<(Vec<Content>, String), RequestError> {
    let objects = (PAGE_BYTES / (size + METADATA_BYTES)).clamp(1, MAX_PAGE_OBJECTS);
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("labelSelector", &format!("{SOURCE_UID_LABEL}={source_uid}"))
        .append_pair("limit", &objects.to_string())
        .append_pair("continue", token)
        .finish();
    let request = Request::get(format!("/api/v1/{}?{query}", kind.plural()))
        .header(header::ACCEPT, "application/json")
        .body(Body::empty());
    let answer = send_limited(client, request, MAX_PAGE_BYTES).await?;
    Content::parse_page(&answer).map_err(RequestError::Other)
}

/// Gets the metadata of an object; `None` if it does not exist.
pub(crate) async fn get_metadata(
    client: &Client,
    kind: SourceKind,
    namespace: &str,
    name: &str,
) -> Result<Option<ObjectMeta>, RequestError> {
    let request = Request::get(path(kind, namespace, Some(name)))
        .header(header::ACCEPT, ACCEPT_METADATA)
        .body(Body::empty());
    match send(client, request).await {
        Ok(answer) => parse_metadata(&answer).map(Some),
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The version of an object that a write has produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenVersion {
    pub(crate) uid: Uid,
    pub(crate) version: u64,
}

/// Creates an object; fails if it exists.
pub(crate) async fn create(
    client: &Client,
    kind: SourceKind,
    namespace: &str,
    body: Bytes,
) -> Result<WrittenVersion, RequestError> {
    let path = path(kind, namespace, None);
    write(client, Method::POST, &path, body).await
}

/// Replaces an object, conditional on the resource version in the body.
pub(crate) async fn replace(
    client: &Client,
    kind: SourceKind,
    namespace: &str,
    name: &str,
    body: Bytes,
) -> Result<WrittenVersion, RequestError> {
    let path = path(kind, namespace, Some(name));
    write(client, Method::PUT, &path, body).await
}

async fn write(
    client: &Client,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<WrittenVersion, RequestError> {
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?fieldManager={FIELD_MANAGER}"))
        .header(header::ACCEPT, ACCEPT_METADATA)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body));
    let answer = send(client, request).await?;
    let metadata = parse_metadata(&answer)?;
    let version = metadata.resource_version.as_deref();
    Ok(WrittenVersion {
        uid: Uid::from(metadata.uid.as_deref().unwrap_or_default()),
        version: version.and_then(|text| text.parse().ok()).unwrap_or_default(),
    })
}

fn parse_metadata(answer: &ZeroizedBuffer) -> Result<ObjectMeta, RequestError> {
    #[derive(Deserialize)]
    struct Partial {
        metadata: ObjectMeta,
    }
    serde_json::from_slice::<Partial>(answer.as_slice())
        .map(|found| found.metadata)
        .map_err(|_| RequestError::Other("cannot parse the server's response".to_owned()))
}

/// Deletes an object, conditional on its UID and resource version. Returns whether it did: a deleted or changed object is
/// no error, since the watch triggers another reconcile, which decides again.
pub(crate) async fn delete(
    client: &Client,
    kind: SourceKind,
    namespace: &str,
    name: &str,
    uid: &str,
    version: u64,
) -> Result<bool, RequestError> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid, "resourceVersion": version.to_string() },
    });
    let request = Request::delete(path(kind, namespace, Some(name)))
        .header(header::ACCEPT, ACCEPT_METADATA)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(options.to_string().into_bytes()));
    match send(client, request).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.is_not_found() || failure.is_conflict() => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Sends a request, and reads the response into a buffer that is zeroed. Has a timeout: a hanging request would block
/// a worker.
async fn send(
    client: &Client,
    request: Result<Request<Body>, http::Error>,
) -> Result<ZeroizedBuffer, RequestError> {
    send_limited(client, request, usize::MAX).await
}

/// The same, with a limit of the response's bytes.
async fn send_limited(
    client: &Client,
    request: Result<Request<Body>, http::Error>,
    max_bytes: usize,
) -> Result<ZeroizedBuffer, RequestError> {
    let late = |_| RequestError::Other(format!("the server did not answer within {REQUEST_TIMEOUT:?}"));
    timeout(REQUEST_TIMEOUT, exchange(client, request, max_bytes))
        .await
        .map_err(late)?
}

async fn exchange(
    client: &Client,
    request: Result<Request<Body>, http::Error>,
    max_bytes: usize,
) -> Result<ZeroizedBuffer, RequestError> {
    let request = request.map_err(|error| RequestError::Other(error.to_string()))?;
    let response = client.send(request).await.map_err(RequestError::Client)?;
    let (parts, mut body) = response.into_parts();
    let length = parts.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    // Limited to the size of an object, whatever the header says.
    let mut answer = ZeroizedBuffer::with_capacity(length.unwrap_or(4096).min(4 << 20));
    while let Some(frame) = body.frame().await {
        if let Ok(part) = frame.map_err(RequestError::Client)?.into_data() {
            answer.append_and_zero(part);
        }
        if answer.as_slice().len() > max_bytes {
            return Err(RequestError::Other(format!(
                "the response has more than {max_bytes} bytes"
            )));
        }
    }
    if parts.status.is_success() {
        return Ok(answer);
    }
    let status = serde_json::from_slice::<Status>(answer.as_slice()).unwrap_or_else(|_| {
        let reason = parts.status.canonical_reason().unwrap_or("unknown");
        // The body is not included: its content is unknown.
        Status::failure("the response is not a Status", reason).with_code(parts.status.as_u16())
    });
    Err(RequestError::Server(Box::new(status)))
}
