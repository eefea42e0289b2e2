//! Notices for tests.

use std::sync::Arc;

use serde_json::json;
use windlass::{
    cache::ObjectKey,
    kube::core::{ApiResource, GroupVersionKind},
};

use crate::notice::{EventType, Notice};

/// Builder for a notice of a pod.
pub(crate) struct Pod(Notice);

pub(crate) fn pods() -> Arc<ApiResource> {
    Arc::new(ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod")))
}

/// The UID that ends with the tag's hex digits.
pub(crate) fn uid(tag: &str) -> String {
    let digits: String = tag.chars().filter(char::is_ascii_hexdigit).collect();
    format!("00000000-0000-4000-8000-{digits:0>12}")
}

/// An `Added` notice of the pod of this name in `default`.
pub(crate) fn pod(name: &str, tag: &str, version: u64) -> Pod {
    Pod(Notice {
        event: EventType::Added,
        inferred: false,
        kind: pods(),
        key: ObjectKey::namespaced("default", name),
        uid: Some(uid(tag)),
        resource_version: Some(version.to_string()),
        time: "2026-01-02T03:04:05Z".parse().expect("a time"),
        object: Some(Arc::new(json!({ "metadata": { "name": name } }))),
        changes: Vec::new(),
        coalesced: 0,
    })
}

impl Pod {
    pub(crate) fn what(mut self, what: EventType) -> Self {
        self.0.event = what;
        self
    }

    pub(crate) fn build(self) -> Notice {
        self.0
    }
}
