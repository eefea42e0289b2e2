//! HTTP responses in the format of Go's servers.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

pub(super) type TextBody = Full<Bytes>;

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<TextBody> {
    with_content_type(status, "text/plain; charset=utf-8", body)
}

pub(super) fn with_content_type(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<TextBody> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // Health responses must not be cached.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(super) fn not_found() -> Response<TextBody> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}
