//! Sends HTTP requests to a server in the same process.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt;
use windlass_apiserver::{Body, Server};

/// Sends a request and returns the response with its body unread. `content_type` defaults to merge patch for `PATCH`
/// and to JSON otherwise.
pub(crate) async fn send(
    server: &Server,
    method: &str,
    path: &str,
    content_type: Option<&str>,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let content_type = content_type.unwrap_or(match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    });
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("accept", "application/json")
        .body(Full::new(body.into()))
        .expect("a request");
    match server.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Reads a response's status code and JSON body, which is null if there is none.
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
