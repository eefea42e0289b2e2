//! Answers as HTTP has them: the body in the encoding and the view that the client asked for, and the headers.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    body::Body,
    listing::{ListBody, Shown},
    media::Encoding,
    request::Target,
    status::{BUSY, Status},
    verbs::{Answer, Api},
    view::View,
    warnings,
};

impl Api {
    /// An answer in the encoding and the view that the client asked for.
    pub(super) fn respond(
        &self,
        answer: Answer,
        target: &Target,
        wanted: Encoding,
        view: View,
    ) -> Result<Response<Body>, Status> {
        let resource = &target.resource;
        let now = self.world.now();
        let mut response = match answer {
            Answer::Object { code, json, warnings } => {
                let json = view.of_json(resource, json, now)?;
                let mut response = json_response(code, wanted.encode(json)?);
                for warning in warnings::fitting(&warnings) {
                    warn(&mut response, warning);
                }
                response
            }
            Answer::List(page) => {
                let shown = Shown {
                    view,
                    encoding: wanted,
                    now,
                };
                with_body(200, "", Body::list(ListBody::new(resource, page, shown)))
            }
            Answer::Watch(stream) => with_body(200, "", Body::watch(*stream)),
            Answer::Text(text) => return Ok(with_body(200, "text/plain", Body::stream(text))),
            Answer::Nothing => return Ok(with_body(204, "", Body::whole(Bytes::new()))),
        };
        if let Some(deprecation) = resource.strategy.deprecation {
            warn(&mut response, deprecation);
        }
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(wanted.content_type()),
        );
        Ok(response)
    }
}

pub(super) fn warn(response: &mut Response<Body>, warning: &str) {
    // What cannot stand in a header is no warning that a client could read.
    if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
        response.headers_mut().append(header::WARNING, value);
    }
}

pub(super) fn refusal(status: &Status, encoding: Encoding) -> Response<Body> {
    if status.is_busy() {
        return too_many_requests();
    }
    let json = Bytes::from(status.to_value().to_string());
    let body = encoding.encode(json.clone()).unwrap_or(json);
    let mut response = with_body(status.code, encoding.content_type(), Body::whole(body));
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    for warning in warnings::fitting(&status.warnings) {
        warn(&mut response, warning);
    }
    response
}

/// As the real server's priority and fairness answers.
fn too_many_requests() -> Response<Body> {
    let text = Body::whole(format!("{BUSY}\n"));
    let mut response = with_body(429, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(header::RETRY_AFTER, 1.into());
    response
}

pub(super) fn json_response(code: u16, json: Bytes) -> Response<Body> {
    with_body(code, "application/json", Body::whole(json))
}

pub(super) fn text_response(code: u16, text: &'static str) -> Response<Body> {
    with_body(code, "text/plain; charset=utf-8", Body::whole(text))
}

pub(super) fn with_body(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("codes are written in this crate");
    let headers = response.headers_mut();
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    if !content_type.is_empty() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}
