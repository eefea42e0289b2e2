//! Bytes to objects: list pages, watch frames, and what is left of an object that does not decode.

use bytes::{Buf, Bytes, BytesMut};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{key::ObjectKey, kind::Cacheable, protocol::Event};

/// No Kubernetes object comes near this; a longer line is not a watch.
const LONGEST_LINE: usize = 64 << 20;

/// A list response whose items are still text in the response's own bytes.
pub(crate) struct Page<'a> {
    pub(crate) resource_version: String,
    pub(crate) continue_token: Option<String>,
    pub(crate) items: Vec<&'a RawValue>,
}

impl<'a> Page<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct List<'a> {
            metadata: ListMeta,
            // Go writes an empty list as null.
            #[serde(borrow, default)]
            items: Option<Vec<&'a RawValue>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListMeta {
            #[serde(default)]
            resource_version: String,
            #[serde(default, rename = "continue")]
            continue_token: Option<String>,
        }
        let list: List<'a> = serde_json::from_slice(body)?;
        Ok(Self {
            resource_version: list.metadata.resource_version,
            continue_token: list.metadata.continue_token,
            items: list.items.unwrap_or_default(),
        })
    }
}

/// One line of a watch stream.
pub(crate) enum Frame<'a> {
    Event(Event, &'a RawValue),
    Bookmark {
        resource_version: String,
    },
    Error(Box<Status>),
    /// A type that this client does not know.
    Unknown,
}

impl<'a> Frame<'a> {
    pub(crate) fn parse(line: &'a [u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(rename = "type")]
            frame: Type,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "UPPERCASE")]
        enum Type {
            Added,
            Modified,
            Deleted,
            Bookmark,
            Error,
            #[serde(other)]
            Unknown,
        }
        let line: Line<'a> = serde_json::from_slice(line)?;
        Ok(match line.frame {
            Type::Added => Self::Event(Event::Added, line.object),
            Type::Modified => Self::Event(Event::Modified, line.object),
            Type::Deleted => Self::Event(Event::Deleted, line.object),
            Type::Bookmark => Self::Bookmark {
                resource_version: Remains::of(line.object).resource_version,
            },
            Type::Error => Self::Error(serde_json::from_str(line.object.get())?),
            Type::Unknown => Self::Unknown,
        })
    }
}

/// An object as it arrived.
pub(crate) enum Arrival<K> {
    Object(Box<K>),
    Broken(Broken),
}

/// An object that does not decode as its kind: something exists under this key, we cannot say what.
#[derive(Debug)]
pub(crate) struct Broken {
    /// `None` if not even that could be read.
    pub(crate) key: Option<ObjectKey>,
    pub(crate) resource_version: String,
    pub(crate) error: String,
}

impl<K: Cacheable> Arrival<K> {
    /// Decodes one object and drops its `managedFields`, which are a large part of it and of no use to readers.
    pub(crate) fn decode(raw: &RawValue) -> Self {
        let error = match serde_json::from_str::<K>(raw.get()) {
            Ok(mut object) if object.meta().name.as_ref().is_some_and(|name| !name.is_empty()) => {
                object.meta_mut().managed_fields = None;
                return Self::Object(Box::new(object));
            }
            Ok(_) => "it has no metadata.name".to_owned(),
            Err(error) => error.to_string(),
        };
        let remains = Remains::of(raw);
        let key = (!remains.name.is_empty()).then(|| match remains.namespace.as_str() {
            "" => ObjectKey::cluster(remains.name),
            namespace => ObjectKey::namespaced(namespace, remains.name),
        });
        Self::Broken(Broken {
            key,
            resource_version: remains.resource_version,
            error,
        })
    }

    pub(crate) fn resource_version(&self) -> &str {
        match self {
            Self::Object(object) => object.meta().resource_version.as_deref().unwrap_or_default(),
            Self::Broken(broken) => &broken.resource_version,
        }
    }
}

/// What can be read of any object.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Remains {
    name: String,
    namespace: String,
    resource_version: String,
}

impl Remains {
    fn of(raw: &RawValue) -> Self {
        #[derive(Deserialize)]
        struct Any {
            #[serde(default)]
            metadata: Remains,
        }
        serde_json::from_str::<Any>(raw.get())
            .map(|any| any.metadata)
            .unwrap_or_default()
    }
}

/// Cuts a stream of chunks into lines. Each byte is looked at once.
#[derive(Default)]
pub(crate) struct Lines {
    buffer: BytesMut,
    /// No newline before this.
    searched: usize,
}

/// A line grew beyond what can be an object.
#[derive(Debug)]
pub(crate) struct LineTooLong;

impl Lines {
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), LineTooLong> {
        if self.buffer.len() + chunk.len() > LONGEST_LINE {
            return Err(LineTooLong);
        }
        self.buffer.extend_from_slice(chunk);
        Ok(())
    }

    /// The next complete line that is not blank.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        loop {
            let Some(at) = self.buffer[self.searched..]
                .iter()
                .position(|byte| *byte == b'\n')
            else {
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.buffer.split_to(self.searched + at).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::prelude::*;

    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).expect("JSON")
    }

    #[test]
    fn managed_fields_do_not_get_in() {
        let json = r#"{"metadata":{"name":"a","managedFields":[{"manager":"m"}]}}"#;
        let Arrival::Object(object) = Arrival::<ConfigMap>::decode(&raw(json)) else {
            panic!("it decodes")
        };
        assert_eq!(object.metadata.managed_fields, None);
    }

    #[test]
    fn an_object_that_does_not_decode_keeps_its_key_and_version() {
        let cases = [
            (
                r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"},"data":5}"#,
                Some("n/a"),
                "7",
            ),
            (
                r#"{"metadata":{"name":"a","resourceVersion":"7"},"data":5}"#,
                Some("a"),
                "7",
            ),
            (
                r#"{"kind":"Table","metadata":{"resourceVersion":"7"}}"#,
                None,
                "7",
            ),
            (r#"{"metadata":{"resourceVersion":"8"}}"#, None, "8"),
            ("5", None, ""),
        ];
        for (json, key, version) in cases {
            let Arrival::Broken(broken) = Arrival::<ConfigMap>::decode(&raw(json)) else {
                panic!("{json} decoded")
            };
            assert_eq!(broken.key.map(|key| key.to_string()).as_deref(), key, "{json}");
            assert_eq!(broken.resource_version, version, "{json}");
        }
    }

    #[test]
    fn a_page_may_say_null_for_nothing() {
        let page = Page::parse(br#"{"metadata":{"resourceVersion":"3","continue":""},"items":null}"#)
            .expect("a page");
        assert_eq!((page.resource_version.as_str(), page.items.len()), ("3", 0));
        assert!(Page::parse(b"<html>").is_err());
        assert!(
            Page::parse(br#"{"kind":"Status"}"#).is_err(),
            "a body without list metadata is no list"
        );
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_were_cut(lines in prop::collection::vec("[a-z ]{0,9}", 0..8), cut in 1..7_usize) {
            let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
            let (mut cutter, mut found) = (Lines::default(), Vec::new());
            for chunk in text.as_bytes().chunks(cut) {
                cutter.push(chunk).expect("short");
                while let Some(line) = cutter.next() {
                    found.push(String::from_utf8(line.to_vec()).expect("text"));
                }
            }
            let expected: Vec<_> = lines.into_iter().filter(|line| !line.trim().is_empty()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
