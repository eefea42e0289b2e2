//! A series: what tells one event from another, and how it looks on the server.

use std::{fmt, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Where events about objects outside namespaces go: the server takes them nowhere else.
const DEFAULT_NAMESPACE: &str = "default";

/// The limits of `events.k8s.io/v1`, in bytes.
const MESSAGE_LIMIT: usize = 1024;
const REASON_LIMIT: usize = 128;

const COMBINED: &str = "(combined from similar events): ";

/// Whether an event is bad news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Type {
    Normal,
    Warning,
}

/// The object that an event is about, in its part that does not change.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Object {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: Option<String>,
}

/// What similar events have in common: all but the message.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Similar {
    pub(super) source: Arc<str>,
    pub(super) object: Arc<Object>,
    /// The part of the object.
    pub(super) field: Option<String>,
    pub(super) kind: Type,
    pub(super) reason: String,
}

/// One series. Its message; none if it combines several.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) similar: Arc<Similar>,
    pub(super) message: Option<String>,
}

/// What is known of one event object on the server.
#[derive(Debug)]
pub(super) struct Series {
    /// What the object is called.
    pub(super) name: String,
    /// The newest message, if it is not the key's.
    pub(super) combined: Option<String>,
    pub(super) count: u32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    /// `last` by the clock that waits are measured with.
    pub(super) seen: Instant,
    /// A create was sent, whatever became of it.
    pub(super) attempted: bool,
    /// The count that the server has, and since when.
    pub(super) written: Option<(u32, Instant)>,
    pub(super) phase: Phase,
}

/// Where a series stands between the recorder and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The server has all of it, or has said that it does not want it.
    Settled,
    /// Counted only: the queue has a delay for it, after which it may be written.
    Held,
    /// In the queue, in a worker's hand, or waiting for its next try. Another call changes the count and nothing else.
    Queued,
}

impl Series {
    /// How many calls the server has not heard of.
    pub(super) fn unwritten(&self) -> u32 {
        self.count - self.written.map_or(0, |(count, _)| count)
    }

    pub(super) fn write(&mut self, key: &Arc<Key>) -> Write {
        let how = match (self.written, self.attempted) {
            (Some(_), _) => How::Patch,
            (None, true) => How::CreateAgain,
            (None, false) => How::Create,
        };
        self.attempted = true;
        Write {
            key: Arc::clone(key),
            how,
            name: self.name.clone(),
            message: self.combined.clone(),
            count: self.count,
            first: self.first,
            last: self.last,
        }
    }
}

/// One request: a series as it was when the request was made.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) key: Arc<Key>,
    pub(super) how: How,
    pub(super) name: String,
    message: Option<String>,
    pub(super) count: u32,
    first: Timestamp,
    last: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Create,
    /// An earlier create failed in a way that leaves open whether it worked.
    CreateAgain,
    Patch,
}

impl fmt::Display for Write {
    /// For logs: what it says about what.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Similar { object, reason, .. } = &*self.key.similar;
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
        let object = &self.key.similar.object;
        object.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }

    pub(super) fn event(&self) -> Event {
        let Similar {
            source,
            object,
            field,
            kind,
            reason,
        } = &*self.key.similar;
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

    /// A merge patch with what changes in a series.
    pub(super) fn patch(&self) -> Value {
        let mut patch = json!({"count": self.wire_count(), "lastTimestamp": Time(self.last)});
        if let Some(message) = &self.message {
            patch["message"] = message.as_str().into();
        }
        patch
    }

    fn message(&self) -> &str {
        let message = self.message.as_ref().or(self.key.message.as_ref());
        message.map_or("", String::as_str)
    }

    /// The API counts to 2³¹ − 1.
    fn wire_count(&self) -> i32 {
        i32::try_from(self.count).unwrap_or(i32::MAX)
    }
}

impl Type {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl Similar {
    pub(super) fn new(source: Arc<str>, about: ObjectReference, kind: Type, reason: &str) -> Self {
        let said = |text: &String| !text.is_empty();
        Self {
            source,
            object: Arc::new(Object {
                api_version: about.api_version,
                kind: about.kind,
                namespace: about.namespace.filter(said),
                name: about.name.unwrap_or_default(),
                uid: about.uid,
            }),
            field: about.field_path.filter(said),
            kind,
            reason: cut(reason.to_owned(), REASON_LIMIT),
        }
    }
}

/// The message of an event, within its limit.
pub(super) fn message(text: String) -> String {
    cut(text, MESSAGE_LIMIT)
}

pub(super) fn combined(message: &str) -> String {
    cut(format!("{COMBINED}{message}"), MESSAGE_LIMIT)
}

/// At most so many bytes, whole characters, with a sign that something is missing.
fn cut(mut text: String, limit: usize) -> String {
    const MISSING: &str = "…";
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - MISSING.len()));
        text.push_str(MISSING);
    }
    text
}

/// A name for an event about `object`. `stamp` must be another one for each event of this process.
///
/// Objects may have names that events may not (roles have colons), or that leave no room.
pub(super) fn name(object: &str, stamp: u64) -> String {
    let name = format!("{object}.{stamp:x}");
    if is_subdomain(&name) {
        name
    } else {
        uuid::Uuid::new_v4().to_string()
    }
}

/// RFC 1123, as the API server checks names.
fn is_subdomain(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        let label = label.as_bytes();
        label.iter().all(|c| inner(*c) || *c == b'-')
            && label.first().copied().is_some_and(inner)
            && label.last().copied().is_some_and(inner)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cut_text_is_whole_characters_within_the_limit(text in ".{0,80}", limit in 3usize..100) {
            let short = cut(text.clone(), limit);
            prop_assert!(short.len() <= limit);
            if text.len() <= limit {
                prop_assert_eq!(short, text);
            } else {
                let kept = short.strip_suffix('…').expect("it says that something is missing");
                prop_assert!(text.starts_with(kept));
                // Not a character less than fits.
                let next = text[kept.len()..].chars().next().expect("something is missing");
                prop_assert!(short.len() + next.len_utf8() > limit);
            }
        }

        #[test]
        fn a_name_is_one_that_the_server_takes(object in "[a-zA-Z0-9:.-]{0,300}", stamp: u64) {
            prop_assert!(is_subdomain(&name(&object, stamp)));
        }
    }

    #[test]
    fn an_event_is_called_after_its_object_if_it_can_be() {
        assert_eq!(name("web-0", 0x1f), "web-0.1f");
        for object in ["system:node", "Web", "-web", "web.", "", &"x".repeat(253)] {
            assert!(
                !name(object, 1).starts_with(object) || object.is_empty(),
                "{object}"
            );
        }
    }
}
