//! No request can panic the server, or make it say something that is no answer: random methods, paths, queries,
//! headers and bodies, most of them nearly right, for every verb and every kind.
//!
//! The server itself catches panics, so that one costs its client an answer and nobody else anything. Here a panic is
//! seen by the process's hook, before it is caught, and fails the test.

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

/// How much of an answer is read: a watch may go on for ever.
const FRAMES: usize = 200;

thread_local! {
    /// The first panic since somebody looked, with its place.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics of this thread are written down instead of printed.
fn note_panics() {
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

/// What the server said, as far as it was read.
struct Said {
    code: u16,
    content_type: String,
    bytes: Vec<u8>,
    whole: bool,
}

async fn ask(server: &Server, request: Request<Bytes>) -> Said {
    let request = request.map(http_body_util::Full::new);
    let response: Response<Body> = match server.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (parts, mut body) = response.into_parts();
    let mut said = Said {
        code: parts.status.as_u16(),
        content_type: parts
            .headers
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned(),
        bytes: Vec::new(),
        whole: false,
    };
    for _ in 0..FRAMES {
        match tokio::time::timeout(Duration::from_hours(2), body.frame()).await {
            Ok(Some(Ok(frame))) => said
                .bytes
                .extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Ok(None) => {
                said.whole = true;
                break;
            }
            Ok(Some(Err(never))) => match never {},
            Err(_) => break,
        }
    }
    said
}

/// Why an answer is none, if it is none.
fn fault(said: &Said) -> Option<String> {
    let text = String::from_utf8_lossy(&said.bytes);
    if let Some(panic) = PANIC.take() {
        return Some(panic);
    }
    if !said.whole {
        return None;
    }
    let json = said.content_type.starts_with("application/json") && !said.bytes.is_empty();
    if !json {
        return (said.content_type.is_empty() && !said.bytes.is_empty())
            .then(|| format!("a body of no type: {text}"));
    }
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(&said.bytes)
        .into_iter()
        .collect();
    let Ok(values) = values else {
        return Some(format!("a body that is no JSON: {text}"));
    };
    if said.code >= 400
        && (values.len() != 1 || values[0]["kind"] != "Status" || values[0]["code"] != said.code)
    {
        return Some(format!(
            "a refusal without a matching Status: {} {text}",
            said.code
        ));
    }
    None
}

/// A server with something of each sort in it.
async fn populated() -> Server {
    let server = Server::seeded(1).rbac().build();
    for (path, object) in bodies::population() {
        let request = Request::post(path)
            .body(Bytes::from(object.to_string()))
            .expect("a request");
        let said = ask(&server, request).await;
        assert_eq!(said.code, 201, "{path}: {}", String::from_utf8_lossy(&said.bytes));
    }
    server
}

fn on_a_paused_clock<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(work)
}

#[test]
fn no_request_panics_the_server() {
    let paths = on_a_paused_clock(async { Paths::of(&populated().await).await });
    let story = prop::collection::vec(requests::request(paths), 1..12);
    let config = ProptestConfig {
        cases: std::env::var("PROPTEST_CASES")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(400),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(story in story)| {
        note_panics();
        let fault = on_a_paused_clock(async {
            let server = populated().await;
            for request in &story {
                let Some(built) = requests::built(request) else { continue };
                if let Some(why) = fault(&ask(&server, built).await) {
                    return Some(format!("{request:?}\n  {why}"));
                }
                let Some(built) = requests::built(request) else { continue };
                if let Some(why) = fault(&ask(&server.guarded(), built).await) {
                    return Some(format!("from outside: {request:?}\n  {why}"));
                }
            }
            None
        });
        prop_assert!(fault.is_none(), "{}", fault.unwrap_or_default());
    });
}

/// A document of a few hundred bytes that stands for billions of values.
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
fn bombs_are_refused_with_bounded_work() {
    note_panics();
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
    on_a_paused_clock(async {
        let server = populated().await;
        for (content_type, body) in cases {
            let started = std::time::Instant::now();
            let head: String = body.chars().take(60).collect();
            let request = Request::post("/api/v1/namespaces/default/configmaps")
                .header("content-type", content_type)
                .body(Bytes::from(body))
                .expect("a request");
            let said = ask(&server, request).await;
            assert_eq!(fault(&said), None, "{head}");
            assert_eq!(said.code, 400, "{head}: {}", String::from_utf8_lossy(&said.bytes));
            assert!(
                said.bytes.len() < 10_000,
                "{head}: an answer of {} bytes",
                said.bytes.len()
            );
            // Generous, for a slow machine: without a bound a bomb takes hours.
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{head}: {:?}",
                started.elapsed()
            );
        }
    });
}

#[test]
fn a_body_beyond_the_limit_is_refused_before_it_is_read() {
    note_panics();
    on_a_paused_clock(async {
        let server = populated().await;
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
            let said = ask(&server, request).await;
            assert_eq!(fault(&said), None);
            assert_eq!(
                said.code,
                413,
                "{method}: {}",
                String::from_utf8_lossy(&said.bytes)
            );
            let status: Value = serde_json::from_slice(&said.bytes).expect("a Status");
            assert_eq!(status["reason"], "RequestEntityTooLarge");
        }
    });
}
