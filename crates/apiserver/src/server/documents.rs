//! Discovery, OpenAPI documents and health checks.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use jiff::Timestamp;
use serde::Serialize;
use windlass_api::request::RequestInfo;

use super::respond::{body_response, json_response, text_response};
use crate::{
    accept,
    body::Body,
    discovery,
    media::Encoding,
    openapi::{self, Document},
    registry::{Catalogue, Group},
    status::Status,
};

/// The path prefix of the OpenAPI v3 documents.
pub(super) const OPENAPI_V3_PREFIX: &str = "/openapi/v3/";

/// The parameters of aggregated discovery's media type.
const AGGREGATED_PARAMETERS: &str = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api` or `/apis`, as a list of groups or aggregated.
pub(super) fn groups(catalogue: &Catalogue, core: bool, parts: &Parts) -> Result<Response<Body>, Status> {
    let kind = if core {
        DiscoveryDocument::Core
    } else {
        DiscoveryDocument::Groups
    };
    match DiscoveryFormat::negotiate(parts, kind)? {
        DiscoveryFormat::Plain(encoding) if core => encoded_response(&discovery::core_versions(), encoding),
        DiscoveryFormat::Plain(encoding) => encoded_response(&discovery::groups(catalogue), encoding),
        DiscoveryFormat::Aggregated(encoding) => {
            let mut document = Document::new(&discovery::aggregated(catalogue, core));
            document.bytes = encoding.encode(document.bytes)?;
            let content_type = format!("{}{AGGREGATED_PARAMETERS}", encoding.content_type());
            let mut response = with_etag(&document, parts);
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
            let content_type = HeaderValue::from_str(&content_type).expect("made of constants");
            headers.insert(header::CONTENT_TYPE, content_type);
            Ok(response)
        }
    }
}

/// `/apis/apps`
pub(super) fn group(group: &Group, parts: &Parts) -> Result<Response<Body>, Status> {
    discovery_response(&discovery::group(group), parts, DiscoveryDocument::Group)
}

/// `/api/v1`, `/apis/apps/v1`
pub(super) fn version(
    catalogue: &Catalogue,
    group: &str,
    version: &str,
    parts: &Parts,
) -> Result<Response<Body>, Status> {
    discovery_response(
        &discovery::resources(catalogue, group, version),
        parts,
        DiscoveryDocument::Version,
    )
}

fn discovery_response(
    document: &impl Serialize,
    parts: &Parts,
    kind: DiscoveryDocument,
) -> Result<Response<Body>, Status> {
    match DiscoveryFormat::negotiate(parts, kind)? {
        DiscoveryFormat::Plain(encoding) | DiscoveryFormat::Aggregated(encoding) => {
            encoded_response(document, encoding)
        }
    }
}

fn encoded_response(document: &impl Serialize, encoding: Encoding) -> Result<Response<Body>, Status> {
    let json = serde_json::to_vec(document).expect("keys are strings");
    let body = encoding.encode(json.into())?;
    Ok(body_response(200, encoding.content_type(), Body::whole(body)))
}

/// The discovery documents, which differ in the media types they accept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DiscoveryDocument {
    /// `/api`
    Core,
    /// `/apis`
    Groups,
    Group,
    Version,
}

/// The format of a discovery document.
enum DiscoveryFormat {
    Plain(Encoding),
    /// With the resources of all groups.
    Aggregated(Encoding),
}

impl DiscoveryFormat {
    /// The format that the client prefers of the supported ones.
    fn negotiate(parts: &Parts, kind: DiscoveryDocument) -> Result<Self, Status> {
        // As in the real server's message, which supports protobuf too.
        const TYPES: [&str; 3] = [
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ];
        let offers = accept::media_ranges(&parts.headers);
        if offers.is_empty() {
            return Ok(Self::Plain(Encoding::Json));
        }
        for offer in &offers {
            let encoding = match offer.media {
                "application/json" | "*/*" => Encoding::Json,
                "application/yaml" => Encoding::Yaml,
                _ => continue,
            };
            match ["as", "g", "v"].map(|name| offer.parameter(name)) {
                [None, None, None] => return Ok(Self::Plain(encoding)),
                [
                    Some("APIGroupDiscoveryList"),
                    Some("apidiscovery.k8s.io"),
                    Some("v2"),
                ] if matches!(kind, DiscoveryDocument::Core | DiscoveryDocument::Groups) => {
                    return Ok(Self::Aggregated(encoding));
                }
                _ => {}
            }
        }
        // Some documents are behind a router that checks the media type first.
        let routed = matches!(kind, DiscoveryDocument::Core | DiscoveryDocument::Version);
        if !routed || offers.iter().any(|offer| TYPES.contains(&offer.media)) {
            let accepted = TYPES.join(", ");
            let message = format!("only the following media types are accepted: {accepted}");
            return Err(Status::unsupported_representation(&message));
        }
        Err(Status::not_acceptable(&TYPES))
    }
}

/// A document of `/openapi/v3`, immutable if requested with its hash.
pub(super) fn openapi_document(
    catalogue: &Catalogue,
    parts: &Parts,
    info: &RequestInfo,
    now: Timestamp,
) -> Response<Body> {
    let path = info.path.strip_prefix(OPENAPI_V3_PREFIX).unwrap_or_default();
    let offers = accept::media_ranges(&parts.headers);
    let accepts =
        |offer: &accept::MediaRange<'_>| matches!(offer.media, "application/json" | "application/*" | "*/*");
    if !offers.is_empty() && !offers.iter().any(accepts) {
        let mut response = body_response(406, "", Body::whole(Bytes::new()));
        let vary = HeaderValue::from_static("Accept");
        response.headers_mut().insert(header::VARY, vary);
        return response;
    }
    let Some(document) = openapi::find(catalogue, path) else {
        return body_response(404, "", Body::whole(Bytes::new()));
    };
    match info.query.text("hash") {
        Some(hash) if hash != document.hash => {
            let mut response = with_etag(&document, parts);
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            *response.body_mut() = Body::whole(Bytes::new());
            let location = format!("{OPENAPI_V3_PREFIX}{path}?hash={}", document.hash);
            let location = HeaderValue::from_str(&location).expect("the path was found in the catalogue");
            response.headers_mut().insert(header::LOCATION, location);
            response
        }
        hash => {
            let mut response = with_etag(&document, parts);
            if hash.is_some() {
                let headers = response.headers_mut();
                headers.insert(
                    header::CACHE_CONTROL,
                    HeaderValue::from_static("public, immutable"),
                );
                // For clients that do not support `immutable`: a year.
                let year = jiff::Span::new().hours(365 * 24);
                let expires = (now + year).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
                headers.insert(
                    header::EXPIRES,
                    HeaderValue::from_str(&expires).expect("a date is ASCII"),
                );
            }
            response
        }
    }
}

/// `/openapi/v2`
pub(super) fn openapi_v2(catalogue: &Catalogue, parts: &Parts) -> Response<Body> {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    /// client-go's name.
    const CLIENT_GO_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let offers = accept::media_ranges(&parts.headers);
    let mut forms = offers.iter().filter_map(|offer| match offer.media {
        "application/json" | "application/*" | "*/*" => Some(openapi::DocumentFormat::Json),
        PROTOBUF | CLIENT_GO_PROTOBUF => Some(openapi::DocumentFormat::Protobuf),
        _ => None,
    });
    let form = if offers.is_empty() {
        Some(openapi::DocumentFormat::Json)
    } else {
        forms.next()
    };
    let mut response = match form {
        Some(form) => with_etag(&openapi::v2_document(catalogue, form), parts),
        None => body_response(406, "", Body::whole(Bytes::new())),
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
    if form == Some(openapi::DocumentFormat::Protobuf) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    }
    response
}

/// A document with its `ETag`, or 304 if the client has it already.
fn with_etag(document: &Document, parts: &Parts) -> Response<Body> {
    let tag = format!("\"{}\"", document.hash);
    let known = parts
        .headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = if known {
        json_response(304, Bytes::new())
    } else {
        json_response(200, document.bytes.clone())
    };
    let headers = response.headers_mut();
    headers.insert(
        header::ETAG,
        HeaderValue::from_str(&tag).expect("a tag is hexadecimal"),
    );
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// The answer to a health check. The only check is that the server answers.
pub(super) fn health(path: &str, verbose: bool) -> Response<Body> {
    if !verbose {
        return text_response(200, "ok");
    }
    let text = format!("[+]ping ok\n{} check passed\n", path.trim_start_matches('/'));
    body_response(200, "text/plain; charset=utf-8", Body::whole(text))
}
