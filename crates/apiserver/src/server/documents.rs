//! What the server tells of itself: discovery, the schemas' documents, its version and its health.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header, request::Parts};
use jiff::Timestamp;

use super::respond::{json_response, text_response, with_body};
use crate::{
    body::Body,
    openapi::{self, Document},
    registry::Catalogue,
    request::Query,
};

/// Where the OpenAPI documents are.
pub(super) const OPENAPI: &str = "/openapi/v3/";

/// What aggregated discovery is called in `Content-Type`.
pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(super) fn wants_aggregated(parts: &Parts) -> bool {
    let accept = parts
        .headers
        .get(header::ACCEPT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    parts.method == Method::GET
        && accept.contains("g=apidiscovery.k8s.io")
        && accept.contains("v=v2;as=APIGroupDiscoveryList")
}

/// A document of `/openapi/v3`: for ever the same under its hash, and found by its path alone too.
pub(super) fn openapi_document(catalogue: &Catalogue, parts: &Parts) -> Response<Body> {
    let path = parts.uri.path().trim_start_matches(OPENAPI);
    let Some(document) = openapi::find(catalogue, path) else {
        return text_response(404, "404 page not found\n");
    };
    match Query::parse(parts.uri.query()).text("hash") {
        Some(hash) if hash != document.hash => {
            let mut response = json_response(301, Bytes::new());
            let location = format!("{OPENAPI}{path}?hash={}", document.hash);
            let location = HeaderValue::from_str(&location).expect("the path was found in the catalogue");
            response.headers_mut().insert(header::LOCATION, location);
            response
        }
        hash => {
            let mut response = tagged(&document, parts);
            if hash.is_some() {
                let headers = response.headers_mut();
                headers.insert(
                    header::CACHE_CONTROL,
                    HeaderValue::from_static("public, immutable"),
                );
                // Clients that do not know `immutable` keep it for a year.
                let year = jiff::Span::new().hours(365 * 24);
                let expires = (Timestamp::now() + year)
                    .strftime("%a, %d %b %Y %H:%M:%S GMT")
                    .to_string();
                headers.insert(
                    header::EXPIRES,
                    HeaderValue::from_str(&expires).expect("a date is ASCII"),
                );
            }
            response
        }
    }
}

/// A document with its tag, or the word that the client has it already.
pub(super) fn tagged(document: &Document, parts: &Parts) -> Response<Body> {
    let tag = format!("\"{}\"", document.hash);
    let known = parts
        .headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = if known {
        json_response(304, Bytes::new())
    } else {
        json_response(200, document.json.clone())
    };
    let headers = response.headers_mut();
    headers.insert(
        header::ETAG,
        HeaderValue::from_str(&tag).expect("a tag is hexadecimal"),
    );
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// This server has one check, and answering is it.
pub(super) fn health(path: &str, verbose: bool) -> Response<Body> {
    if !verbose {
        return text_response(200, "ok");
    }
    let text = format!("[+]ping ok\n{} check passed\n", path.trim_start_matches('/'));
    with_body(200, "text/plain; charset=utf-8", Body::whole(text))
}
