//! Bodies that expand, nest or are too long are rejected with bounded work. Random requests are a target of `fuzz`.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::Value;
use windlass_apiserver::Server;

use crate::client;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends a request that must be rejected with this status code, and returns the Status.
async fn assert_rejected(
    server: &Server,
    method: &str,
    path: &str,
    body: (&str, String),
    code: u16,
) -> Value {
    let (content_type, body) = body;
    let head: String = body.chars().take(60).collect();
    let started = std::time::Instant::now();
    let response = client::send(server, method, path, Some(content_type), body).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("never fails").to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    assert_eq!(parts.status, code, "{method} {head}: {text}");
    assert!(
        bytes.len() < 10_000,
        "{head}: a response of {} bytes",
        bytes.len()
    );
    // Generous for slow machines: without a bound, a bomb takes hours.
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(20), "{head}: {elapsed:?}");
    let status: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(
        (&status["kind"], &status["code"]),
        (&"Status".into(), &code.into()),
        "{text}"
    );
    status
}

/// A YAML document of a few hundred bytes that expands to billions of values.
fn bomb(depth: usize) -> String {
    let levels = (1..depth).map(|level| {
        let list = vec![format!("*a{}", level - 1); 9].join(", ");
        format!("a{level}: &a{level} [{list}]\n")
    });
    let leaf = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    std::iter::once(leaf).chain(levels).collect()
}

#[tokio::test(start_paused = true)]
async fn expansion_bombs_are_rejected_with_bounded_work() {
    const JSON: &str = "application/json";
    const YAML: &str = "application/yaml";
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(200_000), close.repeat(200_000));
    let objects = nested("{\"a\":", "}");
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\n";
    let server = Server::new();
    for body in [
        (YAML, bomb(12)),
        (YAML, format!("{head}{}", bomb(40))),
        (YAML, nested("[", "]")),
        (YAML, nested("{a: ", "}")),
        (YAML, "- ".repeat(200_000)),
        (YAML, "a: &a [*a, *a]\n".to_owned()),
        (JSON, nested("[", "]")),
        (JSON, objects.clone()),
        (
            JSON,
            format!("{{\"metadata\":{{\"name\":\"n\"}},\"data\":{objects}"),
        ),
        (JSON, "1".repeat(1_000_000)),
        (JSON, format!("{{\"a\":1e{}}}", "9".repeat(10_000))),
    ] {
        assert_rejected(&server, "POST", CONFIG_MAPS, body, 400).await;
    }
}

#[tokio::test(start_paused = true)]
async fn body_beyond_the_limit_is_rejected_before_it_is_parsed() {
    let server = Server::new();
    let settings = r#"{"metadata":{"name":"settings"},"data":{"a":"1"}}"#;
    let created = client::read(client::send(&server, "POST", CONFIG_MAPS, None, settings).await).await;
    assert_eq!(created.0, 201, "{}", created.1);
    let body = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(3 * 1024 * 1024));
    let object = format!("{CONFIG_MAPS}/settings");
    for (method, path, content_type) in [
        ("POST", CONFIG_MAPS, "application/json"),
        ("PUT", &object, "application/json"),
        ("PATCH", &object, "application/merge-patch+json"),
        ("DELETE", &object, "application/json"),
    ] {
        let status = assert_rejected(&server, method, path, (content_type, body.clone()), 413).await;
        assert_eq!(status["reason"], "RequestEntityTooLarge", "{method}");
    }
}
