//! A sink that creates a Kubernetes Event about the object of each notice.
//!
//! The name of an Event follows from the notice's id, so a repeated notice does not create a second one. Events about events would
//! have no end: they are rejected. `synced` notices have no Event, since nothing happened.

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt};
use windlass::{
    api::status::{StatusClass, retry_after},
    k8s_openapi::{
        api::core::v1::{Event, EventSource, ObjectReference},
        apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    },
    kube::{self, Api, Client, api::PostParams},
};

use super::{DeliveryError, Sink, text};
use crate::notice::{EventType, Notice};

/// The namespace of Events about cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most characters of a message: kube-apiserver's limit for the note of an Event.
const MAX_MESSAGE_CHARS: usize = 1000;

/// The most characters of an object's name in an Event's name, which has at most 253 with its suffix.
const MAX_NAME_CHARS: usize = 200;

/// Creates Events in the namespaces of the objects, and in `default` for cluster-scoped ones.
pub struct KubernetesEvents {
    client: Client,
}

impl KubernetesEvents {
    /// Creates Events with this client, which needs `create` on `events`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    async fn create(&self, notice: &Notice) -> Result<(), DeliveryError> {
        if is_event(&notice.kind.group, &notice.kind.kind) {
            return Err(DeliveryError::Rejected {
                reason: "reports no Events about Events".to_owned(),
            });
        }
        if notice.event == EventType::Synced {
            return Ok(());
        }
        let event = event(notice);
        let namespace = event.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let events = Api::<Event>::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        match tokio::time::timeout(TIMEOUT, events.create(&params, &event)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => classify(&error),
            Err(_) => Err(DeliveryError::Failed {
                reason: format!("did not answer within {TIMEOUT:?}"),
            }),
        }
    }
}

impl Sink for KubernetesEvents {
    fn deliver<'a>(&'a self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), DeliveryError>> {
        self.create(notice).boxed()
    }
}

/// Whether this is the kind of Events.
pub(crate) fn is_event(group: &str, kind: &str) -> bool {
    kind == "Event" && matches!(group, "" | "events.k8s.io")
}

fn classify(error: &kube::Error) -> Result<(), DeliveryError> {
    let kube::Error::Api(status) = error else {
        return Err(DeliveryError::Failed {
            reason: format!("cannot be written: {error}"),
        });
    };
    let reason = format!("answered {} ({})", status.code, status.message);
    match StatusClass::of(status) {
        // An earlier attempt succeeded.
        StatusClass::AlreadyExists | StatusClass::Conflict => Ok(()),
        StatusClass::Unauthorized | StatusClass::Forbidden => Err(DeliveryError::Unavailable {
            reason: format!("{reason}: grant `create` on `events` in the namespaces of the objects"),
            retry_after: None,
        }),
        StatusClass::TooManyRequests => Err(DeliveryError::Unavailable {
            reason,
            retry_after: retry_after(status),
        }),
        class if class.is_transient() => Err(DeliveryError::Failed { reason }),
        _ => Err(DeliveryError::Rejected { reason }),
    }
}

fn event(notice: &Notice) -> Event {
    let namespace = notice.key.namespace();
    let time = Time(notice.time);
    Event {
        metadata: ObjectMeta {
            name: Some(name(notice)),
            namespace: Some(namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(notice.kind.api_version.clone()),
            kind: Some(notice.kind.kind.clone()),
            namespace: namespace.map(str::to_owned),
            name: Some(notice.key.name().to_owned()),
            uid: notice.uid.clone(),
            resource_version: notice.resource_version.clone(),
            field_path: None,
        },
        type_: Some("Normal".to_owned()),
        reason: Some(
            match notice.event {
                EventType::Synced => "Synced",
                EventType::Added => "Added",
                EventType::Updated => "Updated",
                EventType::Deleted => "Deleted",
            }
            .to_owned(),
        ),
        message: Some(text::message(notice).chars().take(MAX_MESSAGE_CHARS).collect()),
        source: Some(EventSource {
            component: Some("podwatch".to_owned()),
            host: None,
        }),
        first_timestamp: Some(time.clone()),
        last_timestamp: Some(time),
        count: Some(1),
        ..Event::default()
    }
}

/// A name that is the same for each repetition of a notice. Some kinds have names that an Event cannot have, as `system:node`.
fn name(notice: &Notice) -> String {
    let object: String = notice
        .key
        .name()
        .chars()
        .map(|c| {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                c
            } else {
                '-'
            }
        })
        .take(MAX_NAME_CHARS)
        .collect();
    let object = match object.trim_matches('-') {
        "" => "object",
        object => object,
    };
    format!("{object}.{:016x}", stable_hash(notice.id().as_bytes()))
}

/// FNV-1a, which is the same in every process and version.
fn stable_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use windlass::cache::ObjectKey;

    use super::*;
    use crate::delivery::testing::pod;

    #[test]
    fn name_is_valid_and_the_same_for_each_repetition() {
        let mut notice = pod("web", "1", 7).build();
        assert_eq!(name(&notice), name(&notice));
        assert!(name(&notice).starts_with("web."));
        let first = name(&notice);
        notice.resource_version = Some("8".to_owned());
        assert_ne!(name(&notice), first, "another change");
        for object in [
            "system:node-proxier",
            "a.b.c",
            &"x".repeat(253),
            ":::",
            &format!("{}.y", "x".repeat(199)),
        ] {
            notice.key = ObjectKey::cluster_scoped(object);
            let name = name(&notice);
            let is_valid = name.len() <= 253
                && name.split('.').all(|part| {
                    !part.is_empty()
                        && !part.starts_with('-')
                        && !part.ends_with('-')
                        && part
                            .chars()
                            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
                });
            assert!(is_valid, "{name}");
        }
    }

    #[test]
    fn message_is_bounded() {
        let mut notice = pod("web", "1", 7).build();
        notice.changes = (0..6)
            .map(|_| crate::notice::FieldChange {
                path: "p".repeat(500),
                old: None,
                new: None,
            })
            .collect();
        let message = event(&notice).message.expect("a message");
        assert_eq!(message.chars().count(), MAX_MESSAGE_CHARS);
    }
}
