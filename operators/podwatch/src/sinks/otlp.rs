//! A notice as a log record of OpenTelemetry, in the JSON encoding of OTLP/HTTP.
//!
//! The attributes of the object have the names that the OpenTelemetry Collector's `k8s_events` receiver uses. The record has the
//! event, the object's identity and the changed fields, not the whole object: a log line should stay small.

use http::{Uri, uri::PathAndQuery};
use serde::Deserialize;
use windlass::serde_json::{self, Value, json};

use super::{DeliveryError, text};
use crate::notice::Notice;

/// The path of logs, if the URL has none.
const LOGS_PATH: &str = "/v1/logs";

/// The address of logs at a collector: a URL without a path gets the standard one.
pub(super) fn logs_url(base: Uri) -> Uri {
    if !matches!(base.path(), "" | "/") || base.query().is_some() {
        return base;
    }
    let mut parts = base.into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static(LOGS_PATH));
    Uri::from_parts(parts).expect("it had a scheme and a host")
}

/// An export request with one log record.
pub(super) fn export_request(notice: &Notice, service: &str) -> Vec<u8> {
    let string = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let mut attributes = vec![
        string("k8s.object.api_version", &notice.kind.api_version),
        string("k8s.object.kind", &notice.kind.kind),
        string("k8s.object.name", notice.key.name()),
        string("podwatch.event", notice.event.name()),
        string("podwatch.id", &notice.id()),
    ];
    let optional = [
        ("k8s.namespace.name", notice.key.namespace()),
        ("k8s.object.uid", notice.uid.as_deref()),
        ("k8s.object.resource_version", notice.resource_version.as_deref()),
    ];
    attributes.extend(
        optional
            .into_iter()
            .filter_map(|(key, value)| Some(string(key, value?))),
    );
    if !notice.changes.is_empty() {
        attributes.push(string("podwatch.changes", &text::changes(notice)));
    }
    if notice.inferred {
        attributes.push(json!({ "key": "podwatch.inferred", "value": { "boolValue": true } }));
    }
    if notice.coalesced > 0 {
        // The encoding has 64-bit integers as strings.
        let value = json!({ "intValue": notice.coalesced.to_string() });
        attributes.push(json!({ "key": "podwatch.coalesced", "value": value }));
    }
    let time = notice.time.as_nanosecond().max(0).to_string();
    let request = json!({
        "resourceLogs": [{
            "resource": { "attributes": [string("service.name", service)] },
            "scopeLogs": [{
                "scope": { "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") },
                "logRecords": [{
                    "timeUnixNano": time,
                    "observedTimeUnixNano": time,
                    "severityNumber": 9,
                    "severityText": "INFO",
                    "eventName": format!("dev.windlass.podwatch.{}", notice.event),
                    "body": { "stringValue": text::message(notice) },
                    "attributes": attributes,
                }],
            }],
        }],
    });
    serde_json::to_vec(&request).expect("string keys and JSON values encode")
}

/// Checks a successful response: the collector may have rejected the record all the same.
pub(super) fn check_response(body: &[u8]) -> Result<(), DeliveryError> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct PartialSuccess {
        rejected_log_records: Value,
        error_message: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct ExportResponse {
        partial_success: Option<PartialSuccess>,
    }
    let response: ExportResponse = serde_json::from_slice(body).unwrap_or_default();
    let Some(partial) = response.partial_success else {
        return Ok(());
    };
    let is_rejected = match &partial.rejected_log_records {
        Value::String(number) => number != "0",
        Value::Number(number) => number.as_u64() != Some(0),
        _ => false,
    };
    if !is_rejected {
        return Ok(());
    }
    let message: String = partial.error_message.chars().take(200).collect();
    Err(DeliveryError::Rejected {
        reason: format!("rejected the log record ({})", message.escape_debug()),
    })
}

/// Whether a request with this status may be sent again; the specification allows no other.
pub(super) fn is_retryable(status: u16) -> bool {
    matches!(status, 429 | 502..=504)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::testing::pod,
        notice::{EventType, FieldChange},
    };

    #[test]
    fn record_has_event_identity_and_changes() {
        let mut notice = pod("web", "1", 7).what(EventType::Updated).build();
        notice.changes = vec![FieldChange {
            path: "spec.nodeName".to_owned(),
            old: None,
            new: Some(json!("n1")),
        }];
        notice.coalesced = 2;
        let request: Value = serde_json::from_slice(&export_request(&notice, "audit")).expect("JSON");
        let logs = &request["resourceLogs"][0];
        assert_eq!(
            logs["resource"],
            json!({ "attributes": [{ "key": "service.name", "value": { "stringValue": "audit" } }] })
        );
        let record = &logs["scopeLogs"][0]["logRecords"][0];
        assert_eq!(record["timeUnixNano"], "1767323045000000000");
        assert_eq!(record["severityNumber"], 9);
        assert_eq!(record["eventName"], "dev.windlass.podwatch.updated");
        assert_eq!(
            record["body"]["stringValue"],
            "updated Pod default/web (2 coalesced): spec.nodeName: - → \"n1\""
        );
        let attribute = |key: &str| {
            let attributes = record["attributes"].as_array().expect("a list");
            let found = attributes.iter().find(|attribute| attribute["key"] == key);
            found.map(|attribute| attribute["value"].clone())
        };
        for (key, expected) in [
            ("k8s.namespace.name", json!({ "stringValue": "default" })),
            ("k8s.object.kind", json!({ "stringValue": "Pod" })),
            ("k8s.object.name", json!({ "stringValue": "web" })),
            ("k8s.object.resource_version", json!({ "stringValue": "7" })),
            ("podwatch.event", json!({ "stringValue": "updated" })),
            ("podwatch.id", json!({ "stringValue": notice.id() })),
            ("podwatch.coalesced", json!({ "intValue": "2" })),
        ] {
            assert_eq!(attribute(key), Some(expected), "{key}");
        }
        assert_eq!(attribute("podwatch.inferred"), None);
    }

    #[test]
    fn url_without_path_gets_the_standard_one() {
        for (base, expected) in [
            ("http://c:4318", "http://c:4318/v1/logs"),
            ("https://c/", "https://c/v1/logs"),
            ("https://c/otlp/v1/logs", "https://c/otlp/v1/logs"),
            ("https://c/?key=1", "https://c/?key=1"),
        ] {
            let url = logs_url(base.parse().expect("a URL"));
            assert_eq!(url.to_string(), expected);
        }
    }

    #[test]
    fn partial_success_is_a_rejection() {
        for accepted in [
            "",
            "{}",
            "not JSON",
            r#"{"partialSuccess":{}}"#,
            r#"{"partialSuccess":{"rejectedLogRecords":"0","errorMessage":"hint"}}"#,
        ] {
            assert_eq!(check_response(accepted.as_bytes()), Ok(()), "{accepted}");
        }
        for rejected in ["\"1\"", "1"] {
            let body = format!(
                r#"{{"partialSuccess":{{"rejectedLogRecords":{rejected},"errorMessage":"too\nold"}}}}"#
            );
            let error = check_response(body.as_bytes()).expect_err("rejected");
            assert_eq!(error.reason(), "rejected the log record (too\\nold)");
        }
    }
}
