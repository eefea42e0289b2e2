//! What a Kubernetes Event says: the reason, the object it is about, and the message, in either of its two APIs.
//!
//! ```text
//!   v1:               reason   involvedObject   message
//!   events.k8s.io/v1: reason   regarding        note
//! ```

use windlass::serde_json::Value;

use super::is_event;
use crate::notice::{EventType, Notice};

/// The parts of an Event that a person reads. Empty texts are absent fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventObject {
    pub(super) reason: String,
    /// As in `Node n1` or `Pod shop/web`.
    pub(super) involved_object: String,
    pub(super) message: String,
}

impl EventObject {
    /// Returns the Event of a notice; `None` for other kinds, and for the deletion of an Event, which only says that the Event
    /// has expired.
    pub(super) fn of(notice: &Notice) -> Option<Self> {
        let is_shown = is_event(&notice.kind.group, &notice.kind.kind) && notice.event != EventType::Deleted;
        let event = notice.object.as_deref().filter(|_| is_shown)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let first = |one: &str, other: &str| {
            let value = event.get(one).or_else(|| event.get(other));
            value.cloned().unwrap_or_default()
        };
        let object = first("involvedObject", "regarding");
        let [kind, namespace, name] = ["kind", "namespace", "name"].map(|field| text(&object[field]));
        let key = if namespace.is_empty() {
            name
        } else {
            format!("{namespace}/{name}")
        };
        Some(Self {
            reason: text(&event["reason"]),
            involved_object: format!("{kind} {key}").trim().to_owned(),
            message: text(&first("message", "note")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use windlass::kube::core::{ApiResource, GroupVersionKind};

    use super::*;
    use crate::delivery::testing::pod;

    fn notice(group: &str, object: Value) -> Notice {
        let mut notice = pod("n1.x1", "1", 7).build();
        notice.kind = Arc::new(ApiResource::from_gvk(&GroupVersionKind::gvk(
            group, "v1", "Event",
        )));
        notice.object = Some(Arc::new(object));
        notice
    }

    #[test]
    fn both_apis_have_reason_object_and_message() {
        let node = json!({ "kind": "Node", "name": "n1" });
        let pod = json!({ "kind": "Pod", "namespace": "shop", "name": "web" });
        for (group, object, expected) in [
            (
                "",
                json!({ "reason": "A", "involvedObject": node, "message": "b" }),
                ["A", "Node n1", "b"],
            ),
            (
                "events.k8s.io",
                json!({ "reason": "A", "regarding": pod, "note": "b" }),
                ["A", "Pod shop/web", "b"],
            ),
            ("", json!({ "message": 1 }), ["", "", ""]),
            ("", json!("x"), ["", "", ""]),
        ] {
            let event = EventObject::of(&notice(group, object)).expect("an Event");
            assert_eq!([event.reason, event.involved_object, event.message], expected);
        }
    }

    #[test]
    fn other_kinds_and_deleted_events_say_nothing() {
        assert_eq!(EventObject::of(&pod("web", "1", 7).build()), None);
        assert_eq!(
            EventObject::of(&notice("example.com", json!({ "reason": "A" }))),
            None
        );
        let mut gone = notice("", json!({ "reason": "A" }));
        gone.event = EventType::Deleted;
        assert_eq!(EventObject::of(&gone), None);
    }
}
