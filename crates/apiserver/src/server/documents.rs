//! What the server tells of itself: discovery, the schemas' documents, its version and its health.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use jiff::Timestamp;
use serde_json::Value;
use windlass_rights::RequestInfo;

use super::respond::{json_response, text_response, with_body};
use crate::{
    accept,
    body::Body,
    discovery,
    media::Encoding,
    openapi::{self, Document},
    registry::{Catalogue, Group},
    status::Status,
};

/// Where the OpenAPI documents are.
pub(super) const OPENAPI: &str = "/openapi/v3/";

/// What is said of discovery that comes all at once, in `Accept` and in `Content-Type`.
const AGGREGATED: &str = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api` or `/apis`, as a list of groups or with everything in them.
pub(super) fn groups(catalogue: &Catalogue, core: bool, parts: &Parts) -> Result<Response<Body>, Status> {
    let door = if core { Door::Core } else { Door::Groups };
    match Form::of(parts, door)? {
        Form::Plain(encoding) if core => encoded(&discovery::core_versions(), encoding),
        Form::Plain(encoding) => encoded(&discovery::groups(catalogue), encoding),
        Form::Aggregated(encoding) => {
            let mut document = Document::new(&discovery::aggregated(catalogue, core));
            document.bytes = encoding.encode(document.bytes)?;
            let content_type = format!("{}{AGGREGATED}", encoding.content_type());
            let mut response = tagged(&document, parts);
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
    plain(&discovery::group(group), parts, Door::Group)
}

/// `/api/v1`, `/apis/apps/v1`
pub(super) fn version(
    catalogue: &Catalogue,
    group: &str,
    version: &str,
    parts: &Parts,
) -> Result<Response<Body>, Status> {
    plain(
        &discovery::resources(catalogue, group, version),
        parts,
        Door::Version,
    )
}

fn plain(value: &Value, parts: &Parts, door: Door) -> Result<Response<Body>, Status> {
    match Form::of(parts, door)? {
        Form::Plain(encoding) | Form::Aggregated(encoding) => encoded(value, encoding),
    }
}

fn encoded(value: &Value, encoding: Encoding) -> Result<Response<Body>, Status> {
    let body = encoding.encode(value.to_string().into())?;
    Ok(with_body(200, encoding.content_type(), Body::whole(body)))
}

/// The documents of discovery, which take and refuse differently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    /// `/api`
    Core,
    /// `/apis`
    Groups,
    Group,
    Version,
}

/// The forms of discovery.
enum Form {
    Plain(Encoding),
    /// Everything at once.
    Aggregated(Encoding),
}

impl Form {
    /// The dearest form that the client takes, of those that there are.
    fn of(parts: &Parts, door: Door) -> Result<Self, Status> {
        // Named as the real server names them, whose answers come in protobuf too.
        const TYPES: [&str; 3] = [
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ];
        let offers = accept::offers(&parts.headers);
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
                ] if matches!(door, Door::Core | Door::Groups) => {
                    return Ok(Self::Aggregated(encoding));
                }
                _ => {}
            }
        }
        // Some documents are behind a router that refuses before they are asked.
        let routed = matches!(door, Door::Core | Door::Version);
        if !routed || offers.iter().any(|offer| TYPES.contains(&offer.media)) {
            let accepted = TYPES.join(", ");
            let message = format!("only the following media types are accepted: {accepted}");
            return Err(Status::wrong_shape(&message));
        }
        Err(Status::not_acceptable(&TYPES))
    }
}

/// A document of `/openapi/v3`: for ever the same under its hash, and found by its path alone too.
pub(super) fn openapi_document(catalogue: &Catalogue, parts: &Parts, info: &RequestInfo) -> Response<Body> {
    let path = info.path.strip_prefix(OPENAPI).unwrap_or_default();
    let offers = accept::offers(&parts.headers);
    let taken =
        |offer: &accept::Offer<'_>| matches!(offer.media, "application/json" | "application/*" | "*/*");
    if !offers.is_empty() && !offers.iter().any(taken) {
        let mut response = with_body(406, "", Body::whole(Bytes::new()));
        let vary = HeaderValue::from_static("Accept");
        response.headers_mut().insert(header::VARY, vary);
        return response;
    }
    let Some(document) = openapi::find(catalogue, path) else {
        return with_body(404, "", Body::whole(Bytes::new()));
    };
    match info.query.text("hash") {
        Some(hash) if hash != document.hash => {
            let mut response = tagged(&document, parts);
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            *response.body_mut() = Body::whole(Bytes::new());
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

/// `/openapi/v2`
pub(super) fn whole_openapi(catalogue: &Catalogue, parts: &Parts) -> Response<Body> {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    /// As client-go asks for it.
    const EARLIER: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let offers = accept::offers(&parts.headers);
    let mut forms = offers.iter().filter_map(|offer| match offer.media {
        "application/json" | "application/*" | "*/*" => Some(openapi::Form::Json),
        PROTOBUF | EARLIER => Some(openapi::Form::Protobuf),
        _ => None,
    });
    let form = if offers.is_empty() {
        Some(openapi::Form::Json)
    } else {
        forms.next()
    };
    let mut response = match form {
        Some(form) => tagged(&openapi::whole(catalogue, form), parts),
        None => with_body(406, "", Body::whole(Bytes::new())),
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
    if form == Some(openapi::Form::Protobuf) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    }
    response
}

/// A document with its tag, or the word that the client has it already.
fn tagged(document: &Document, parts: &Parts) -> Response<Body> {
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

/// This server has one check, and answering is it.
pub(super) fn health(path: &str, verbose: bool) -> Response<Body> {
    if !verbose {
        return text_response(200, "ok");
    }
    let text = format!("[+]ping ok\n{} check passed\n", path.trim_start_matches('/'));
    with_body(200, "text/plain; charset=utf-8", Body::whole(text))
}
