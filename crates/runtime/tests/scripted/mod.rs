//! A scripted server that records its requests.

use std::{collections::VecDeque, io, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{
    Method, Request, Response,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::service_fn;

/// A scripted response.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// This status; the body repeats it.
    Status(u16),
    /// This status with `Retry-After`.
    After(u16, &'static str),
    /// A connection error.
    Broken(io::ErrorKind),
    /// 200, and a body that starts with `first` and never ends.
    Endless,
    /// 503 with `Retry-After: 1`, and a body that never ends.
    EndlessRefusal,
}

impl Reply {
    pub(crate) fn after(status: u16, seconds: &'static str) -> Self {
        Self::After(status, seconds)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) uri: String,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Bytes,
}

/// Responds from the script, then with 200.
#[derive(Clone)]
pub(crate) struct Scripted {
    script: Arc<Mutex<VecDeque<Reply>>>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Scripted {
    pub(crate) fn new(script: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            script: Arc::new(Mutex::new(script.into_iter().collect())),
            requests: Arc::default(),
        }
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().clone()
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let at = Instant::now();
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                server.requests.lock().push(RecordedRequest {
                    at,
                    method: parts.method,
                    uri: parts.uri.to_string(),
                    content_type: parts
                        .headers
                        .get(CONTENT_TYPE)
                        .and_then(|value| value.to_str().ok().map(str::to_owned)),
                    body,
                });
                let reply = server.script.lock().pop_front();
                respond(&reply.unwrap_or(Reply::Status(200)))
            }
        });
        Client::new(service, "default")
    }
}

type ResponseBody = UnsyncBoxBody<Bytes, io::Error>;

fn respond(reply: &Reply) -> kube::Result<Response<ResponseBody>> {
    let response = match *reply {
        Reply::Status(status) => Response::builder().status(status).body(text(status)),
        Reply::After(status, seconds) => Response::builder()
            .status(status)
            .header(RETRY_AFTER, seconds)
            .body(text(status)),
        Reply::Broken(kind) => return Err(kube::Error::Service(io::Error::from(kind).into())),
        Reply::Endless => Response::builder().body(endless()),
        Reply::EndlessRefusal => Response::builder()
            .status(503)
            .header(RETRY_AFTER, "1")
            .body(endless()),
    };
    Ok(response.expect("a response"))
}

fn text(status: u16) -> ResponseBody {
    Full::new(Bytes::from(status.to_string()))
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn endless() -> ResponseBody {
    let first = stream::once(async { Ok(Frame::data(Bytes::from_static(b"first"))) });
    StreamBody::new(first.chain(stream::pending())).boxed_unsync()
}

pub(crate) fn get(uri: &str) -> Request<Body> {
    Request::get(uri).body(Body::empty()).expect("valid request")
}

pub(crate) fn request(method: Method, uri: &str, body: &str) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(uri)
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(body.as_bytes().to_vec()))
        .expect("valid request")
}
