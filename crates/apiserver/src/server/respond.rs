//! HTTP responses: the body in the requested encoding and view, and the headers.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    auth::User,
    body::Body,
    environment::Environment,
    large_work::LargeWork,
    listing::{ListBody, ListFormat},
    media::Encoding,
    request::Target,
    status::{BUSY_MESSAGE, Status, TIMEOUT_MESSAGE},
    verbs::Answer,
    view::View,
    warnings,
};

/// Converts an answer into a response in the requested encoding and view.
pub(super) fn respond(
    answer: Answer,
    target: &Target,
    wanted: Encoding,
    view: View,
    environment: &Environment,
    (large_work, user): (&LargeWork, &Arc<User>),
) -> Result<Response<Body>, Status> {
    let resource = &target.resource;
    let mut response = match answer {
        Answer::Object { code, json, warnings } => {
            let json = match view {
                View::Object => json,
                view => view.render_json(resource, json, environment.now())?,
            };
            let mut response = body_response(code, "", Body::whole(wanted.encode(json)?));
            add_warnings(&mut response, &warnings);
            response
        }
        Answer::List { page, warnings } => {
            let format = ListFormat {
                view,
                encoding: wanted,
                now: environment.now(),
            };
            let list = ListBody::new(resource, page, format);
            let mut response = body_response(200, "", Body::list(list, large_work.of(user)));
            add_warnings(&mut response, &warnings);
            response
        }
        Answer::Watch(stream) => body_response(200, "", Body::watch(*stream)),
        Answer::Text(text) => return Ok(body_response(200, "text/plain", Body::stream(text))),
        Answer::NoContent => return Ok(body_response(204, "", Body::whole(Bytes::new()))),
    };
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, wanted.header_value());
    Ok(response)
}

fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings::truncate_warnings(warnings) {
        add_warning(response, warning);
    }
}

pub(super) fn add_warning(response: &mut Response<Body>, warning: &str) {
    // A warning that is not a valid header value is dropped.
    if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
        response.headers_mut().append(header::WARNING, value);
    }
}

pub(super) fn error_response(status: &Status, encoding: Encoding) -> Response<Body> {
    if status.is_busy() {
        return too_many_requests();
    }
    if status.is_timeout() {
        return timed_out();
    }
    let json = Bytes::from(status.to_value().to_string());
    let body = encoding.encode(json.clone()).unwrap_or(json);
    let mut response = body_response(status.code, encoding.content_type(), Body::whole(body));
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    add_warnings(&mut response, &status.warnings);
    response
}

/// The answer of the real server's priority and fairness.
pub(super) fn too_many_requests() -> Response<Body> {
    let text = Body::whole(format!("{BUSY_MESSAGE}\n"));
    let mut response = body_response(429, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(header::RETRY_AFTER, 1.into());
    response
}

/// The answer of the real server's filter for timeouts, which does not know the request's media types.
fn timed_out() -> Response<Body> {
    text_response(
        504,
        format!(
            r#"{{"metadata":{{}},"status":"Failure","message":"{TIMEOUT_MESSAGE}","reason":"Timeout","details":{{}},"code":504}}"#
        ) + "\n",
    )
}

pub(super) fn json_response(code: u16, json: Bytes) -> Response<Body> {
    body_response(code, "application/json", Body::whole(json))
}

pub(super) fn text_response(code: u16, text: impl Into<Bytes>) -> Response<Body> {
    body_response(code, "text/plain; charset=utf-8", Body::whole(text.into()))
}

pub(super) fn body_response(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("codes are written in this crate");
    let headers = response.headers_mut();
    // For the usual ones, so that the map does not grow.
    headers.reserve(4);
    headers.insert(
        header::CACHE_CONTROL,
        const { HeaderValue::from_static("no-cache, private") },
    );
    if !content_type.is_empty() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}
