//! Requests whose bodies are zeroed: the few that read and write content.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::time::timeout;
use windlass::{
    kube::{
        self,
        api::ObjectMeta,
        client::{Body, Client},
        core::{Status, response::reason},
    },
    prelude::json,
};

use crate::{
    api::SourceKind,
    content::{Content, Wiped},
    grip::FIELD_MANAGER,
};

/// Asks for metadata alone, so that a write's answer does not bring its content back.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// How long an answer is waited for, with all tries that the client makes.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the server says before the words of a webhook, and of a policy.
const DENIALS: [&str; 2] = ["denied the request", "denied request"];

/// Why a request did not do what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server said no.
    #[error("{}", told(.0))]
    Server(Box<Status>),
    /// The content of a source does not fit into what its namespace may have held.
    #[error("the sources of its namespace hold more than {most} bytes together (`--max-content`)")]
    OverBudget {
        /// How much may be held.
        most: usize,
    },
    /// It did not get there, or nobody understood the answer.
    #[error("{0}")]
    Other(String),
}

fn told(status: &Status) -> String {
    format!("the server answers {}: {}", status.code, status.message)
}

impl Failure {
    fn is(&self, code: StatusCode) -> bool {
        matches!(self, Self::Server(status) if status.code == code.as_u16())
    }

    /// Something of that name is there already.
    pub(crate) fn is_already_there(&self) -> bool {
        matches!(self, Self::Server(status) if status.reason == reason::ALREADY_EXISTS)
    }

    /// Somebody else was faster.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is(StatusCode::CONFLICT) && !self.is_already_there()
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.is(StatusCode::NOT_FOUND)
    }

    /// The namespace is on its way out.
    pub(crate) fn is_terminating(&self) -> bool {
        let Self::Server(status) = self else {
            return false;
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        self.is(StatusCode::FORBIDDEN)
            && causes
                .into_iter()
                .any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// Says nothing that this content holds: who refuses a write may quote it.
    pub(crate) fn without(mut self, content: &Content) -> Self {
        if let Some(message) = self.message()
            && content.appears_in(message)
        {
            "the rest is not shown, because it repeats a value".clone_into(message);
        }
        self
    }

    /// Says nothing that an admission says of the object, where nobody knows what that holds.
    pub(crate) fn without_grounds(mut self) -> Self {
        let Some(message) = self.message() else {
            return self;
        };
        let ends = DENIALS
            .iter()
            .filter_map(|denial| Some(message.find(denial)? + denial.len()));
        if let Some(end) = ends.min() {
            message.truncate(end);
            message.push_str("; why is not shown, because it may repeat a value");
        }
        self
    }

    /// What another client said.
    fn message(&mut self) -> Option<&mut String> {
        match self {
            Self::Server(status) => Some(&mut status.message),
            Self::Other(message) => Some(message),
            Self::OverBudget { .. } => None,
        }
    }

    /// In one word.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Server(status) if !status.reason.is_empty() => &status.reason,
            Self::Server(_) => "ServerError",
            Self::OverBudget { .. } => "BudgetExceeded",
            Self::Other(_) => "RequestFailed",
        }
    }
}

fn path(kind: SourceKind, namespace: &str, name: Option<&str>) -> String {
    let collection = format!("/api/v1/namespaces/{namespace}/{}", kind.plural());
    name.map_or(collection.clone(), |name| format!("{collection}/{name}"))
}

/// The whole object; `None` if it is not there.
pub(crate) async fn get(
    client: &Client,
    kind: SourceKind,
    namespace: &str,
    name: &str,
) -> Result<Option<Content>, Failure> {
    let request = Request::get(path(kind, namespace, Some(name)))
        .header(header::ACCEPT, "application/json")
        .body(Body::empty());
    match answer(client, request).await {
        Ok(answer) => Content::read(&answer).map(Some).map_err(Failure::Other),
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The metadata of an object; `None` if it is not there.
pub(crate) async fn look(
    client: &Client,
    kind: SourceKind,
    namespace: &str,
    name: &str,
) -> Result<Option<ObjectMeta>, Failure> {
    #[derive(Deserialize)]
    struct Partial {
        metadata: ObjectMeta,
    }
    let request = Request::get(path(kind, namespace, Some(name)))
        .header(header::ACCEPT, METADATA)
        .body(Body::empty());
    match answer(client, request).await {
        Ok(answer) => serde_json::from_slice::<Partial>(answer.as_slice())
            .map(|found| Some(found.metadata))
            .map_err(|_| Failure::Other("the server's answer cannot be read".to_owned())),
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Creates an object; one that is there already is an error.
pub(crate) async fn create(
    client: &Client,
    kind: SourceKind,
    namespace: &str,
    body: Bytes,
) -> Result<(), Failure> {
    let path = path(kind, namespace, None);
    write(client, Method::POST, &path, body).await
}

/// Replaces an object, if it is still the version that the body names.
pub(crate) async fn replace(
    client: &Client,
    kind: SourceKind,
    namespace: &str,
    name: &str,
    body: Bytes,
) -> Result<(), Failure> {
    let path = path(kind, namespace, Some(name));
    write(client, Method::PUT, &path, body).await
}

async fn write(client: &Client, method: Method, path: &str, body: Bytes) -> Result<(), Failure> {
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?fieldManager={FIELD_MANAGER}"))
        .header(header::ACCEPT, METADATA)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body));
    answer(client, request).await.map(drop)
}

/// Deletes this very object in this very version. One that is gone, or has changed, is no error: its watch tells of that, and
/// whether it is still a copy is decided again.
pub(crate) async fn delete(
    client: &Client,
    kind: SourceKind,
    namespace: &str,
    name: &str,
    uid: &str,
    version: u64,
) -> Result<(), Failure> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid, "resourceVersion": version.to_string() },
    });
    let request = Request::delete(path(kind, namespace, Some(name)))
        .header(header::ACCEPT, METADATA)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(options.to_string().into_bytes()));
    match answer(client, request).await {
        Err(failure) if !failure.is_not_found() && !failure.is_outdated() => Err(failure),
        _ => Ok(()),
    }
}

/// Sends a request, and takes the answer into a buffer that is zeroed. It is not waited for without end: a worker that does is
/// missing elsewhere.
async fn answer(client: &Client, request: Result<Request<Body>, http::Error>) -> Result<Wiped, Failure> {
    let late = |_| Failure::Other(format!("the server did not answer within {PATIENCE:?}"));
    timeout(PATIENCE, exchange(client, request)).await.map_err(late)?
}

async fn exchange(client: &Client, request: Result<Request<Body>, http::Error>) -> Result<Wiped, Failure> {
    let failed = |error: kube::Error| Failure::Other(error.to_string());
    let request = request.map_err(|error| Failure::Other(error.to_string()))?;
    let response = client.send(request).await.map_err(failed)?;
    let (parts, mut body) = response.into_parts();
    let length = parts.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    // No more is taken on trust than an object can have.
    let mut answer = Wiped::with_capacity(length.unwrap_or(4096).min(4 << 20));
    while let Some(frame) = body.frame().await {
        if let Ok(part) = frame.map_err(failed)?.into_data() {
            answer.absorb(part);
        }
    }
    if parts.status.is_success() {
        return Ok(answer);
    }
    let status = serde_json::from_slice::<Status>(answer.as_slice()).unwrap_or_else(|_| {
        let reason = parts.status.canonical_reason().unwrap_or("unknown");
        // What it says instead is not repeated: nobody knows what it is.
        Status::failure("an answer that is no Status", reason).with_code(parts.status.as_u16())
    });
    Err(Failure::Server(Box::new(status)))
}
