//! An event series: its identity, its state, and its object on the server.

use std::{fmt, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_api::naming::is_dns_subdomain;

use super::correlator::Naming;
use crate::text::truncate;

/// Namespace of events about cluster-scoped objects; the server accepts no other.
const DEFAULT_NAMESPACE: &str = "default";

/// The limits of `events.k8s.io/v1`, in bytes.
const MESSAGE_LIMIT: usize = 1024;
const REASON_LIMIT: usize = 128;

const COMBINED_PREFIX: &str = "(combined from similar events): ";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EventType {
    Normal,
    Warning,
}

/// Identity of the regarding object.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct RegardingObject {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: Option<String>,
}

/// Identity of an event without its message.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct AggregateKey {
    pub(super) source: Arc<str>,
    pub(super) object: Arc<RegardingObject>,
    /// The field path within the object.
    pub(super) field: Option<String>,
    pub(super) kind: EventType,
    pub(super) reason: String,
}

/// Identity of a series. `message` is `None` for an aggregate of several messages.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SeriesKey {
    pub(super) aggregate: Arc<AggregateKey>,
    pub(super) message: Option<String>,
}

/// State of one event object on the server.
#[derive(Debug)]
pub(super) struct Series {
    /// Name of the event object.
    pub(super) name: String,
    /// The newest message of an aggregate.
    pub(super) combined: Option<String>,
    pub(super) count: u32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    /// `last` on the monotonic clock.
    pub(super) last_instant: Instant,
    pub(super) naming: Naming,
    /// A create was sent; its result may be unknown.
    pub(super) attempted: bool,
    /// The event of an earlier process is that of this series, whatever its count is.
    pub(super) is_adopted: bool,
    /// The count on the server, and when it was written.
    pub(super) written: Option<(u32, Instant)>,
    pub(super) phase: Phase,
}

/// Phase of a series between the recorder and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The server has its current state, or has rejected it.
    Settled,
    /// Counted only; written when its delay in the queue has passed.
    Held,
    /// Queued, being written, or waiting for a retry. Another event only raises the count.
    Queued,
}

impl Series {
    /// Number of events that are not on the server.
    pub(super) fn unwritten(&self) -> u32 {
        self.count - self.written.map_or(0, |(count, _)| count)
    }

    pub(super) fn write(&mut self, key: &Arc<SeriesKey>) -> Write {
        let operation = match (self.written, self.attempted) {
            (Some(_), _) => WriteOperation::Patch,
            (None, _) if self.naming == Naming::Stable => WriteOperation::FindOrCreate,
            (None, true) => WriteOperation::CreateAgain,
            (None, false) => WriteOperation::Create,
        };
        self.attempted = true;
        Write {
            key: Arc::clone(key),
            operation,
            name: self.name.clone(),
            message: self.combined.clone(),
            count: self.count,
            is_adopted: self.is_adopted,
            first: self.first,
            last: self.last,
        }
    }
}

/// One request: a snapshot of a series.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) key: Arc<SeriesKey>,
    pub(super) operation: WriteOperation,
    pub(super) name: String,
    message: Option<String>,
    pub(super) count: u32,
    is_adopted: bool,
    first: Timestamp,
    last: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOperation {
    Create,
    /// An earlier create failed with an unknown result.
    CreateAgain,
    /// An earlier process may have created it.
    FindOrCreate,
    Patch,
}

impl fmt::Display for Write {
    /// Reason and object, for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AggregateKey { object, reason, .. } = &*self.key.aggregate;
        let kind = object.kind.as_deref().unwrap_or("object");
        write!(f, "{reason} about {kind} ")?;
        if let Some(namespace) = &object.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&object.name)
    }
}

impl Write {
    pub(super) fn namespace(&self) -> &str {
        let object = &self.key.aggregate.object;
        object.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }

    pub(super) fn event(&self) -> Event {
        let AggregateKey {
            source,
            object,
            field,
            kind,
            reason,
        } = &*self.key.aggregate;
        Event {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: object.api_version.clone(),
                kind: object.kind.clone(),
                namespace: object.namespace.clone(),
                name: Some(object.name.clone()),
                uid: object.uid.clone(),
                field_path: field.clone(),
                resource_version: None,
            },
            type_: Some(kind.as_str().to_owned()),
            reason: Some(reason.clone()),
            message: Some(self.message().to_owned()),
            count: Some(self.wire_count()),
            first_timestamp: Some(Time(self.first)),
            last_timestamp: Some(Time(self.last)),
            source: Some(EventSource {
                component: Some(source.to_string()),
                host: None,
            }),
            reporting_component: Some(source.to_string()),
            ..Event::default()
        }
    }

    /// A merge patch with the fields of a series that change.
    pub(super) fn patch(&self) -> Value {
        let mut patch = json!({"lastTimestamp": Time(self.last)});
        if !self.is_adopted {
            patch["count"] = self.wire_count().into();
        }
        if let Some(message) = &self.message {
            patch["message"] = message.as_str().into();
        }
        patch
    }

    fn message(&self) -> &str {
        let message = self.message.as_ref().or(self.key.message.as_ref());
        message.map_or("", String::as_str)
    }

    /// The API's count is an `i32`.
    fn wire_count(&self) -> i32 {
        i32::try_from(self.count).unwrap_or(i32::MAX)
    }
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl AggregateKey {
    pub(super) fn new(source: Arc<str>, about: ObjectReference, kind: EventType, reason: &str) -> Self {
        let is_set = |text: &String| !text.is_empty();
        Self {
            source,
            object: Arc::new(RegardingObject {
                api_version: about.api_version,
                kind: about.kind,
                namespace: about.namespace.filter(is_set),
                name: about.name.unwrap_or_default(),
                uid: about.uid,
            }),
            field: about.field_path.filter(is_set),
            kind,
            reason: truncate(reason.to_owned(), REASON_LIMIT),
        }
    }
}

/// Truncates the message of an event to its limit.
pub(super) fn message(text: String) -> String {
    truncate(text, MESSAGE_LIMIT)
}

pub(super) fn combined(message: &str) -> String {
    truncate(format!("{COMBINED_PREFIX}{message}"), MESSAGE_LIMIT)
}

impl SeriesKey {
    /// A number that is the same in each process, and different for each series: FNV-1a with 64 bits.
    pub(super) fn stable_stamp(&self) -> u64 {
        let AggregateKey {
            source,
            object,
            field,
            kind,
            reason,
        } = &*self.aggregate;
        let optional = |text: &'_ Option<String>| text.as_deref().unwrap_or_default().to_owned();
        let texts = [
            source.to_string(),
            optional(&object.uid),
            optional(field),
            kind.as_str().to_owned(),
            reason.clone(),
            optional(&self.message),
        ];
        let bytes = texts.iter().flat_map(|text| text.bytes().chain([0xff]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// A name for an event about `object`. `stamp` must be unique within this process, or [stable](SeriesKey::stable_stamp).
///
/// Leaves out object names that are invalid for events (roles have colons) or too long.
pub(super) fn name(object: &str, stamp: u64) -> String {
    let name = format!("{object}.{stamp:x}");
    if is_dns_subdomain(&name) {
        name
    } else {
        format!("event.{stamp:x}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn event_names_are_valid(object in "[a-zA-Z0-9:.-]{0,300}", stamp: u64) {
            prop_assert!(is_dns_subdomain(&name(&object, stamp)));
        }
    }

    #[test]
    fn event_is_named_after_its_object_if_that_is_valid() {
        assert_eq!(name("web-0", 0x1f), "web-0.1f");
        for object in ["system:node", "Web", "-web", "web.", "", &"x".repeat(253)] {
            assert!(
                !name(object, 1).starts_with(object) || object.is_empty(),
                "{object}"
            );
        }
    }
}
