//! No request makes the server panic or send an invalid response: random methods, paths, queries, headers and bodies,
//! most of them nearly valid, for every verb and every kind.
//!
//! The server catches panics, so a panic fails only its own request. Here a panic hook records it before it is caught,
//! and the test fails.

mod bodies;
mod junk;
mod requests;

use std::{cell::RefCell, sync::Once, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::Value;
use tower::ServiceExt;
use windlass_apiserver::{Body, Server};

use requests::Paths;

/// How many frames of a response are read, because a watch may never end.
const FRAMES: usize = 200;

thread_local! {
    /// The first panic since the last check, with its location.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records panics of the server on this thread instead of printing them.
fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let ours = info.location().is_some_and(|place| {
                place.file().contains("tests/mangled") || place.file().contains("proptest")
            });
            if ours {
                print(info);
            } else {
                PANIC.with_borrow_mut(|panic| panic.get_or_insert_with(|| info.to_string()).truncate(2_000));
            }
        }));
    });
    PANIC.take();
}

/// A response, as far as it was read.
struct PartialResponse {
    code: u16,
    content_type: String,
    bytes: Vec<u8>,
    is_complete: bool,
}

async fn call(server: &Server, request: Request<Bytes>) -> PartialResponse {
    let request = request.map(http_body_util::Full::new);
    let response: Response<Body> = match server.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (parts, mut body) = response.into_parts();
    let mut response = PartialResponse {
        code: parts.status.as_u16(),
        content_type: parts
            .headers
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned(),
        bytes: Vec::new(),
        is_complete: false,
    };
    for _ in 0..FRAMES {
        match tokio::time::timeout(Duration::from_hours(2), body.frame()).await {
            Ok(Some(Ok(frame))) => response
                .bytes
                .extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Ok(None) => {
                response.is_complete = true;
                break;
            }
            Ok(Some(Err(never))) => match never {},
            Err(_) => break,
        }
    }
    response
}

/// Returns why a response is invalid, if it is.
fn find_fault(response: &PartialResponse) -> Option<String> {
    let text = String::from_utf8_lossy(&response.bytes);
    if let Some(panic) = PANIC.take() {
        return Some(panic);
    }
    if !response.is_complete {
        return None;
    }
    let json = response.content_type.starts_with("application/json") && !response.bytes.is_empty();
    if !json {
        return (response.content_type.is_empty() && !response.bytes.is_empty())
            .then(|| format!("body without content type: {text}"));
    }
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(&response.bytes)
        .into_iter()
        .collect();
    let Ok(values) = values else {
        return Some(format!("body is not JSON: {text}"));
    };
    if response.code >= 400
        && (values.len() != 1 || values[0]["kind"] != "Status" || values[0]["code"] != response.code)
    {
        return Some(format!(
            "error without a matching Status: {} {text}",
            response.code
        ));
    }
    None
}

/// Creates a server with objects of many kinds.
async fn populated_server() -> Server {
    let server = Server::seeded(1).rbac().build();
    for (path, object) in bodies::initial_objects() {
        let request = Request::post(path)
            .body(Bytes::from(object.to_string()))
            .expect("a request");
        let response = call(&server, request).await;
        assert_eq!(
            response.code,
            201,
            "{path}: {}",
            String::from_utf8_lossy(&response.bytes)
        );
    }
    server
}

fn with_paused_clock<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(work)
}

#[test]
fn no_request_panics_the_server() {
    let paths = with_paused_clock(async { Paths::of(&populated_server().await).await });
    let sequence = prop::collection::vec(requests::request(paths), 1..12);
    let config = ProptestConfig {
        cases: std::env::var("PROPTEST_CASES")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(400),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(sequence in sequence)| {
        record_panics();
        let fault = with_paused_clock(async {
            let server = populated_server().await;
            for request in &sequence {
                let Some(built) = requests::build(request) else { continue };
                if let Some(why) = find_fault(&call(&server, built).await) {
                    return Some(format!("{request:?}\n  {why}"));
                }
                let Some(built) = requests::build(request) else { continue };
                if let Some(why) = find_fault(&call(&server.authenticated(), built).await) {
                    return Some(format!("unauthenticated: {request:?}\n  {why}"));
                }
            }
            None
        });
        prop_assert!(fault.is_none(), "{}", fault.unwrap_or_default());
    });
}

/// A YAML document of a few hundred bytes that expands to billions of values.
fn bomb(depth: usize) -> String {
    let mut yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..depth {
        let below = format!("*a{}", level - 1);
        let list = vec![below; 9].join(", ");
        yaml.push_str(
            &[
                "a",
                &level.to_string(),
                ": &a",
                &level.to_string(),
                " [",
                &list,
                "]\n",
            ]
            .concat(),
        );
    }
    yaml
}

#[test]
fn expansion_bombs_are_rejected_with_bounded_work() {
    record_panics();
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(200_000), close.repeat(200_000));
    let cases = [
        ("application/yaml", bomb(12)),
        (
            "application/yaml",
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: bomb}}\n{}",
                bomb(40)
            ),
        ),
        ("application/yaml", nested("[", "]")),
        ("application/yaml", nested("{a: ", "}")),
        ("application/yaml", "- ".repeat(200_000)),
        ("application/yaml", "a: &a [*a, *a]\n".to_owned()),
        ("application/json", nested("[", "]")),
        ("application/json", nested("{\"a\":", "}")),
        (
            "application/json",
            format!(
                "{{\"metadata\":{{\"name\":\"n\"}},\"data\":{}",
                nested("{\"a\":", "}")
            ),
        ),
        ("application/json", "1".repeat(1_000_000)),
        ("application/json", format!("{{\"a\":1e{}}}", "9".repeat(10_000))),
    ];
    with_paused_clock(async {
        let server = populated_server().await;
        for (content_type, body) in cases {
            let started = std::time::Instant::now();
            let head: String = body.chars().take(60).collect();
            let request = Request::post("/api/v1/namespaces/default/configmaps")
                .header("content-type", content_type)
                .body(Bytes::from(body))
                .expect("a request");
            let response = call(&server, request).await;
            assert_eq!(find_fault(&response), None, "{head}");
            assert_eq!(
                response.code,
                400,
                "{head}: {}",
                String::from_utf8_lossy(&response.bytes)
            );
            assert!(
                response.bytes.len() < 10_000,
                "{head}: a response of {} bytes",
                response.bytes.len()
            );
            // Generous for slow machines: without a bound, a bomb takes hours.
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{head}: {:?}",
                started.elapsed()
            );
        }
    });
}

#[test]
fn body_beyond_the_limit_is_rejected_before_it_is_parsed() {
    record_panics();
    with_paused_clock(async {
        let server = populated_server().await;
        let body = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(3 * 1024 * 1024));
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let path = match method {
                "POST" => "/api/v1/namespaces/default/configmaps",
                _ => "/api/v1/namespaces/default/configmaps/settings",
            };
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header(
                    "content-type",
                    if method == "PATCH" {
                        "application/merge-patch+json"
                    } else {
                        "application/json"
                    },
                )
                .body(Bytes::from(body.clone()))
                .expect("a request");
            let response = call(&server, request).await;
            assert_eq!(find_fault(&response), None);
            assert_eq!(
                response.code,
                413,
                "{method}: {}",
                String::from_utf8_lossy(&response.bytes)
            );
            let status: Value = serde_json::from_slice(&response.bytes).expect("a Status");
            assert_eq!(status["reason"], "RequestEntityTooLarge");
        }
    });
}
