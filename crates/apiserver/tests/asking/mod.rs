//! Requests to a server in the same process, for the tests that speak HTTP to it.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt;
use windlass_apiserver::{Body, Server};

/// The answer to a request, of which the body has not been read. `kind` is the content type; without one, patches are
/// merge patches and the rest is JSON.
pub(crate) async fn send(
    server: &Server,
    method: &str,
    path: &str,
    kind: Option<&str>,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let kind = kind.unwrap_or(match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    });
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .header("accept", "application/json")
        .body(Full::new(body.into()))
        .expect("a request");
    match server.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// An answer's code and JSON; null where it has none.
pub(crate) async fn read(response: Response<Body>) -> (u16, Value) {
    let code = response.status().as_u16();
    let bytes = response
        .into_body()
        .collect()
        .await
        .expect("never fails")
        .to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}
