//! The recorded form of a response.

use std::{io::Read, time::Duration};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Map, Value, json};

use crate::key_order;

/// Limit for one response. A write takes up to 34 seconds while webhooks hang.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

/// Response headers that are recorded unchanged.
const HEADERS: [&str; 6] = [
    "content-type",
    "content-encoding",
    "retry-after",
    "location",
    "allow",
    "vary",
];

/// The usual `Cache-Control`; only other values are recorded.
const CACHE_CONTROL: &str = "no-cache, private";

/// The length of a UUID.
const UUID_LENGTH: usize = 36;

/// Reads a response and returns its recorded form.
pub(crate) async fn read_response(response: Response<Body>, ordered: bool) -> Result<Map<String, Value>> {
    let (parts, body) = response.into_parts();
    let whole = tokio::time::timeout(RESPONSE_TIMEOUT, body.collect()).await;
    let bytes = whole
        .context("the response body does not end: a watch needs `watch: NAME` in its step")?
        .context("the response body was cut off")?
        .to_bytes();
    let mut outcome = recorded_response(parts.status.as_u16(), &parts.headers, &bytes);
    if ordered && let Some(body) = outcome.get_mut("body") {
        *body = key_order::parse(&bytes).context("not JSON, or compressed")?;
    }
    Ok(outcome)
}

/// Converts a response to its recorded form.
pub(crate) fn recorded_response(status: u16, all: &HeaderMap, bytes: &[u8]) -> Map<String, Value> {
    let mut outcome = fields(json!({"status": status, "headers": headers(all)}));
    let decompressed = match all.get("content-encoding").map(http::HeaderValue::as_bytes) {
        Some(b"gzip") => decompress(bytes),
        _ => None,
    };
    let bytes = decompressed.as_deref().unwrap_or(bytes);
    let content_type = all
        .get("content-type")
        .and_then(|content_type| content_type.to_str().ok())
        .unwrap_or_default();
    if let Some((key, value)) = decode_body(content_type, bytes) {
        outcome.insert(key.to_owned(), value);
    }
    outcome
}

/// Decompresses gzip; `None` if the bytes are not compressed.
fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut decompressed = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut decompressed).ok()?;
    Some(decompressed)
}

/// Decodes a body. Returns the key under which it is recorded, and its value.
pub(crate) fn decode_body(content_type: &str, bytes: &[u8]) -> Option<(&'static str, Value)> {
    if bytes.is_empty() {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok();
    let json = || serde_json::from_slice(bytes).ok();
    let yaml = || serde_yaml_ng::from_slice(bytes).ok();
    let parsed = match content_type {
        content_type if content_type.contains("protobuf") => None,
        content_type if content_type.contains("yaml") => yaml().map(|value| ("yaml", value)),
        content_type if content_type.contains("json") => json().map(|value| ("body", value)),
        _ => None,
    };
    let as_text = || Some(("text", text?.into()));
    Some(
        parsed
            .or_else(as_text)
            .unwrap_or_else(|| ("base64", STANDARD.encode(bytes).into())),
    )
}

/// Returns the headers that are recorded.
pub(crate) fn headers(all: &HeaderMap) -> Map<String, Value> {
    let text = |name: &str| -> Vec<String> {
        all.get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    };
    let mut kept = Map::new();
    for name in HEADERS {
        let values = text(name);
        if !values.is_empty() {
            kept.insert(name.to_owned(), values.join(", ").into());
        }
    }
    // An audit id that the client chose comes back; every other one is random.
    let audit_id = text("audit-id").join(", ");
    if audit_id.len() < UUID_LENGTH {
        kept.insert("audit-id".to_owned(), audit_id.into());
    }
    let warnings = text("warning");
    if !warnings.is_empty() {
        kept.insert("warning".to_owned(), warnings.into());
    }
    if all.contains_key("etag") {
        kept.insert("etag".to_owned(), "present".into());
    }
    let cache = text("cache-control").join(", ");
    if cache != CACHE_CONTROL {
        kept.insert("cache-control".to_owned(), cache.into());
    }
    kept
}

/// Returns the fields of a JSON object.
pub(crate) fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
