//! The embedded server behind a layer that records every request.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::{
    convert::Infallible,
    future::{Future, ready},
    sync::Arc,
};

use bytes::Bytes;
use http::{Method, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;
use tower::{BoxError, ServiceExt, service_fn};
use windlass_apiserver::Server;

#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

impl RecordedRequest {
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// The recorded requests, in order.
#[derive(Clone, Default)]
pub(crate) struct RequestLog(Arc<Mutex<Vec<RecordedRequest>>>);

impl RequestLog {
    /// The requests since the last call.
    pub(crate) fn take(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.0.lock())
    }

    /// The only request since the last call.
    pub(crate) fn one(&self) -> RecordedRequest {
        let mut sent = self.take();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }
}

/// A client of a new server, and its recorded requests.
pub(crate) fn recorded() -> (Client, RequestLog) {
    recorded_on(Server::builder().without_service_accounts().build())
}

pub(crate) fn recorded_on(server: Server) -> (Client, RequestLog) {
    recorded_with(server, |_| ready(None))
}

/// Like [`recorded_on`]; a response of `instead` replaces the server's.
pub(crate) fn recorded_with<Fut>(
    server: Server,
    instead: impl Fn(RecordedRequest) -> Fut + Clone + Send + Sync + 'static,
) -> (Client, RequestLog)
where
    Fut: Future<Output = Option<(u16, Value)>> + Send + 'static,
{
    let log = RequestLog::default();
    let noted = log.clone();
    let service = service_fn(move |request: Request<Body>| {
        let (server, noted, instead) = (server.clone(), noted.clone(), instead.clone());
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.expect("it is in memory").to_bytes();
            let sent = RecordedRequest {
                method: parts.method.clone(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                content_type: parts
                    .headers
                    .get(CONTENT_TYPE)
                    .map(|value| value.to_str().expect("text").to_owned())
                    .unwrap_or_default(),
                body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            };
            // A manager asks about its rights some time after its start. That stores nothing.
            if !sent.path.starts_with("/apis/authorization.k8s.io/") {
                noted.0.lock().push(sent.clone());
            }
            let answer = instead(sent).await;
            if let Some((code, body)) = answer {
                let response = Response::builder()
                    .status(code)
                    .body(Full::from(body.to_string()).map_err(Into::into).boxed_unsync());
                return Ok::<Response<UnsyncBoxBody<Bytes, BoxError>>, Infallible>(
                    response.expect("a response"),
                );
            }
            let request = Request::from_parts(parts, Full::new(bytes));
            let response = server.oneshot(request).await?;
            Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        }
    });
    (Client::new(service, "default"), log)
}
