//! Encodes a notice as JSON: as a line, or as a `CloudEvent`.

use serde::Serialize;
use windlass::{kube::Resource as _, kube::core::DynamicObject, serde_json::Value};

use crate::notice::{FieldChange, Notice};

/// A line of JSON, with its newline.
pub(super) fn line(notice: &Notice) -> Vec<u8> {
    let line = Line {
        id: notice.id(),
        time: notice.time.to_string(),
        data: NoticeData::from_notice(notice),
    };
    let mut bytes = serde_json::to_vec(&line).expect("string keys and JSON values encode");
    bytes.push(b'\n');
    bytes
}

/// A `CloudEvent` 1.0 in structured mode.
pub(super) fn cloud_event(notice: &Notice, source: &str) -> Vec<u8> {
    let event = CloudEvent {
        specversion: "1.0",
        id: notice.id(),
        source,
        kind: format!("dev.windlass.podwatch.{}", notice.event),
        subject: path(notice),
        time: notice.time.to_string(),
        datacontenttype: "application/json",
        data: NoticeData::from_notice(notice),
    };
    serde_json::to_vec(&event).expect("string keys and JSON values encode")
}

/// The object's API path.
fn path(notice: &Notice) -> String {
    let collection = DynamicObject::url_path(&notice.kind, notice.key.namespace());
    format!("{collection}/{}", notice.key.name())
}

#[derive(Serialize)]
struct Line<'a> {
    id: String,
    time: String,
    #[serde(flatten)]
    data: NoticeData<'a>,
}

#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: String,
    source: &'a str,
    #[serde(rename = "type")]
    kind: String,
    subject: String,
    time: String,
    datacontenttype: &'static str,
    data: NoticeData<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NoticeData<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    inferred: bool,
    api_version: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    coalesced: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<ChangeData<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'a Value>,
}

#[derive(Serialize)]
struct ChangeData<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<&'a Value>,
}

impl<'a> NoticeData<'a> {
    fn from_notice(notice: &'a Notice) -> Self {
        let changed = |change: &'a FieldChange| ChangeData {
            path: &change.path,
            old: change.old.as_ref(),
            new: change.new.as_ref(),
        };
        Self {
            event: notice.event.name(),
            inferred: notice.inferred,
            api_version: &notice.kind.api_version,
            kind: &notice.kind.kind,
            namespace: notice.key.namespace(),
            name: notice.key.name(),
            uid: notice.uid.as_deref(),
            resource_version: notice.resource_version.as_deref(),
            coalesced: notice.coalesced,
            changes: notice.changes.iter().map(changed).collect(),
            object: notice.object.as_deref(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{delivery::testing::pod, notice::EventType};

    #[test]
    fn line_has_all_fields_and_omits_unknown_ones() {
        let mut notice = pod("web", "u1", 7).what(EventType::Updated).build();
        notice.changes = vec![FieldChange {
            path: "spec.nodeName".to_owned(),
            old: None,
            new: Some(json!("n1")),
        }];
        let bytes = line(&notice);
        assert_eq!(
            bytes.iter().position(|byte| *byte == b'\n'),
            Some(bytes.len() - 1)
        );
        let read: Value = serde_json::from_slice(&bytes).expect("JSON");
        let expected = json!({
            "id": notice.id(), "time": "2026-01-02T03:04:05Z", "event": "updated", "apiVersion": "v1", "kind": "Pod",
            "namespace": "default", "name": "web", "uid": notice.uid, "resourceVersion": "7",
            "changes": [{ "path": "spec.nodeName", "new": "n1" }],
            "object": { "metadata": { "name": "web" } },
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn cloud_event_has_required_attributes_and_data() {
        let mut notice = pod("web", "u1", 7).what(EventType::Deleted).build();
        notice.inferred = true;
        notice.coalesced = 3;
        let read: Value = serde_json::from_slice(&cloud_event(&notice, "/podwatch/here")).expect("JSON");
        let expected = json!({
            "specversion": "1.0", "id": notice.id(), "source": "/podwatch/here",
            "type": "dev.windlass.podwatch.deleted", "subject": "/api/v1/namespaces/default/pods/web",
            "time": "2026-01-02T03:04:05Z", "datacontenttype": "application/json",
            "data": {
                "event": "deleted", "inferred": true, "apiVersion": "v1", "kind": "Pod", "namespace": "default",
                "name": "web", "uid": notice.uid, "resourceVersion": "7", "coalesced": 3, "object": { "metadata": { "name": "web" } },
            },
        });
        assert_eq!(read, expected);
    }
}
