//! Parses list responses as they stream in, and watch events.

use bytes::{Buf, Bytes, BytesMut};
use kube::core::Status;
use memchr::memchr;

use crate::{
    protocol::EventType,
    scan::{Cursor, ScanError, ScannedObject},
};

/// Upper bound for one object. No Kubernetes object comes near this.
const MAX_OBJECT_BYTES: usize = 64 << 20;

/// A list response, split into items while it arrives. It is never in memory as a whole.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) resource_version: String,
    pub(crate) continue_token: Option<String>,
    /// Received bytes that are not parsed yet.
    buffer: BytesMut,
    position: PagePosition,
    /// Parsing continues when the buffer has this size: an item was incomplete.
    min_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PagePosition {
    #[default]
    Start,
    /// Before a member's name, or before the end.
    Members,
    Items,
    End,
}

/// A body is not a valid list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidList(pub(crate) &'static str);

impl Page {
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), InvalidList> {
        if self.buffer.len() + chunk.len() > MAX_OBJECT_BYTES {
            return Err(InvalidList("an item is too large"));
        }
        self.buffer.extend_from_slice(chunk);
        Ok(())
    }

    /// Calls `act` with each complete item and its scanned metadata.
    pub(crate) fn items(
        &mut self,
        mut act: impl FnMut(&[u8], &ScannedObject<'_>),
    ) -> Result<(), InvalidList> {
        if self.buffer.len() < self.min_bytes {
            return Ok(());
        }
        loop {
            let mut cursor = Cursor::new(&self.buffer);
            let place = self.position;
            let mut head = ListMeta::default();
            let outcome = step(place, &mut cursor, &mut head, &mut act);
            let taken = cursor.at;
            match outcome {
                Ok(next) => {
                    self.position = next;
                    self.min_bytes = 0;
                    if let Some(version) = head.resource_version {
                        self.resource_version = version;
                        self.continue_token = head.continue_token.filter(|token| !token.is_empty());
                    }
                    self.buffer.advance(taken);
                    if next == PagePosition::End {
                        return Ok(());
                    }
                }
                Err(ScanError::Incomplete) => {
                    // Do not scan a large item again for each small chunk.
                    self.min_bytes = self.buffer.len() + self.buffer.len() / 2;
                    return Ok(());
                }
                Err(ScanError::Malformed(what)) => return Err(InvalidList(what)),
            }
        }
    }

    /// Parses the rest after the end of the body, and fails if the list is incomplete.
    pub(crate) fn finish(&mut self, act: impl FnMut(&[u8], &ScannedObject<'_>)) -> Result<(), InvalidList> {
        self.min_bytes = 0;
        self.items(act)?;
        if self.position != PagePosition::End {
            return Err(InvalidList("it is truncated"));
        }
        if self.resource_version.is_empty() {
            return Err(InvalidList("it has no list metadata"));
        }
        Ok(())
    }
}

#[derive(Default)]
struct ListMeta {
    resource_version: Option<String>,
    continue_token: Option<String>,
}

/// Parses one member of the list or one item, completely or not at all.
fn step(
    place: PagePosition,
    cursor: &mut Cursor<'_>,
    head: &mut ListMeta,
    act: &mut impl FnMut(&[u8], &ScannedObject<'_>),
) -> Result<PagePosition, ScanError> {
    match place {
        PagePosition::Start => {
            cursor.expect(b'{')?;
            Ok(PagePosition::Members)
        }
        PagePosition::Members => match cursor.peek()? {
            b'}' => {
                cursor.at += 1;
                Ok(PagePosition::End)
            }
            b',' => {
                cursor.at += 1;
                Ok(PagePosition::Members)
            }
            _ => {
                let name = cursor.string()?;
                cursor.expect(b':')?;
                match (name, cursor.peek()?) {
                    (b"items", b'[') => {
                        cursor.at += 1;
                        return Ok(PagePosition::Items);
                    }
                    (b"metadata", b'{') => cursor.members(|cursor, name| {
                        match name {
                            b"resourceVersion" => {
                                head.resource_version = Some(cursor.text_value()?.into_owned());
                            }
                            b"continue" => head.continue_token = Some(cursor.text_value()?.into_owned()),
                            _ => cursor.skip()?,
                        }
                        Ok(())
                    })?,
                    // Go serializes an empty list as null.
                    _ => cursor.skip()?,
                }
                Ok(PagePosition::Members)
            }
        },
        PagePosition::Items => match cursor.peek()? {
            b']' => {
                cursor.at += 1;
                Ok(PagePosition::Members)
            }
            b',' => {
                cursor.at += 1;
                Ok(PagePosition::Items)
            }
            _ => {
                let start = cursor.at;
                let found = cursor.object()?;
                act(&cursor.text[start..cursor.at], &found);
                Ok(PagePosition::Items)
            }
        },
        PagePosition::End => Ok(PagePosition::End),
    }
}

/// One line of a watch stream.
pub(crate) enum Frame<'a> {
    Event(EventType, &'a [u8], ScannedObject<'a>),
    Bookmark {
        resource_version: String,
        /// It marks the end of the initial events.
        initial_events_end: bool,
    },
    Error(Box<Status>),
    /// An unknown event type.
    Unknown,
}

impl<'a> Frame<'a> {
    /// Parses only as much of a line as needed. Servers write the type first and the object last, so the object ends
    /// before the line's last bracket. In such a line, the part after the object's metadata is not scanned.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Self, String> {
        let line = line.trim_ascii_end();
        let end = line.ends_with(b"}}").then(|| line.len() - 1);
        let mut cursor = Cursor::new(line);
        let (mut event_type, mut object) = (None, None);
        let scanned = cursor.members(|cursor, name| {
            match name {
                b"type" => event_type = Some(cursor.text_value()?),
                b"object" if cursor.peek()? == b'{' => {
                    let start = cursor.at;
                    let found = match end {
                        Some(end) if event_type.is_some() => cursor.object_until(end)?,
                        _ => cursor.object()?,
                    };
                    object = Some((&cursor.text[start..cursor.at], found));
                }
                _ => cursor.skip()?,
            }
            Ok(())
        });
        match scanned {
            Ok(()) => {}
            Err(ScanError::Incomplete) => return Err("it is truncated".to_owned()),
            Err(ScanError::Malformed(what)) => return Err(what.to_owned()),
        }
        let Some(sort) = event_type else {
            return Err("it has no type".to_owned());
        };
        // An event without an object cannot be stored.
        let Some((raw, found)) = object else {
            return Ok(Self::Unknown);
        };
        Ok(match &*sort {
            "ADDED" => Self::Event(EventType::Added, raw, found),
            "MODIFIED" => Self::Event(EventType::Modified, raw, found),
            "DELETED" => Self::Event(EventType::Deleted, raw, found),
            "BOOKMARK" => Self::Bookmark {
                resource_version: found.resource_version.into_owned(),
                initial_events_end: found.initial_events_end,
            },
            "ERROR" => Self::Error(serde_json::from_slice(raw).map_err(|error| error.to_string())?),
            _ => Self::Unknown,
        })
    }
}

/// Splits a stream of chunks into lines. Each byte is scanned once, and a line within one chunk is not copied.
#[derive(Default)]
pub(crate) struct Lines {
    /// The start of an incomplete line.
    partial_line: BytesMut,
    /// The unread rest of the last chunk.
    chunk: Bytes,
}

/// A line is larger than any object.
#[derive(Debug)]
pub(crate) struct LineTooLong;

impl Lines {
    /// Adds the next chunk. All lines of the previous one must have been read with [`next`](Self::next).
    pub(crate) fn push(&mut self, chunk: Bytes) -> Result<(), LineTooLong> {
        debug_assert!(self.chunk.is_empty(), "lines would be lost");
        if self.partial_line.len() + chunk.len() > MAX_OBJECT_BYTES {
            return Err(LineTooLong);
        }
        self.chunk = chunk;
        Ok(())
    }

    /// Returns the next complete line that is not blank.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        loop {
            let Some(at) = memchr(b'\n', &self.chunk) else {
                self.partial_line.extend_from_slice(&self.chunk);
                self.chunk.clear();
                return None;
            };
            let mut line = self.chunk.split_to(at);
            self.chunk.advance(1);
            if !self.partial_line.is_empty() {
                self.partial_line.extend_from_slice(&line);
                line = self.partial_line.split().freeze();
            }
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(text: &str, cut: usize) -> Result<(String, Option<String>, Vec<String>), InvalidList> {
        let (mut page, mut names) = (Page::default(), Vec::new());
        for chunk in text.as_bytes().chunks(cut) {
            page.push(chunk)?;
            page.items(|raw, found| {
                assert!(raw.starts_with(b"{") && raw.ends_with(b"}"));
                names.push(found.name.to_string());
            })?;
        }
        page.finish(|_, found| names.push(found.name.to_string()))?;
        Ok((page.resource_version, page.continue_token, names))
    }

    #[test]
    fn page_is_parsed_item_by_item_in_any_chunks() {
        let text = r#"{"kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"x":"]}"}} , {"metadata":{"name":"b"}}],"metadata":{"resourceVersion":"3","continue":"t"}}"#;
        for cut in 1..=text.len() {
            let (version, token, names) = page(text, cut).expect("a list");
            assert_eq!((version.as_str(), token.as_deref()), ("3", Some("t")));
            assert_eq!(names, ["a", "b"], "cut at {cut}");
        }
    }

    #[test]
    fn page_items_may_be_null() {
        let empty = r#"{"metadata":{"resourceVersion":"3","continue":""},"items":null}"#;
        assert_eq!(page(empty, 9), Ok(("3".to_owned(), None, Vec::new())));
        for wrong in [
            "<html>",
            r#"{"kind":"Status"}"#,
            r#"{"metadata":{"resourceVersion":"3"},"items":["#,
            "",
        ] {
            assert!(page(wrong, 4).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bookmark_marks_the_end_of_initial_events() {
        for (value, expected) in [("true", true), ("false", false)] {
            let line = format!(
                r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"7","annotations":{{"k8s.io/initial-events-end":"{value}"}}}}}}}}"#
            );
            let Ok(Frame::Bookmark {
                resource_version,
                initial_events_end,
            }) = Frame::parse(line.as_bytes())
            else {
                panic!("a bookmark")
            };
            assert_eq!((resource_version.as_str(), initial_events_end), ("7", expected));
        }
    }

    #[test]
    fn watch_event_is_parsed_in_any_member_order() {
        let (sort, metadata) = (
            r#""type":"MODIFIED""#,
            r#""metadata":{"name":"a","managedFields":[{}]}"#,
        );
        let rest = r#""spec":{"metadata":{"name":"b"},"text":"}}\\\"{"}"#;
        let head = r#""kind":"K","apiVersion":"v1""#;
        let objects = [
            format!("{{{head},{metadata},{rest}}}"),
            format!("{{{rest},{head},{metadata}}}"),
            format!("{{{metadata},{rest},{head}}}"),
            format!("{{{head},{metadata}}}"),
            format!("{{{metadata}}}"),
        ];
        for object in objects {
            for line in [
                format!(r#"{{{sort},"object":{object}}}"#),
                format!(r#"{{{sort},"object":{object} }} "#),
                format!(r#"{{"object":{object},{sort}}}"#),
            ] {
                let Ok(Frame::Event(EventType::Modified, raw, found)) = Frame::parse(line.as_bytes()) else {
                    panic!("an event: {line}")
                };
                assert_eq!(raw, object.as_bytes(), "{line}");
                assert_eq!(found.name, "a", "{line}");
                let cut = found.managed_fields.expect("they are there");
                assert_eq!(&raw[cut], br#","managedFields":[{}]"#, "{line}");
            }
        }
        for wrong in [
            r#"{"type":"MODIFIED","object":{"kind":"K","apiVersion":"v1","metadata":{"name":"a"#,
            r#"{"type":"MODIFIED","object":{"kind":"K","apiVersion":"v1","metadata":{"name":"a"}}"#,
            r#"{"type":"MODIFIED","object":{"kind":"K","apiVersion":"v1","metadata":{"name":"a"},"spec":{"#,
        ] {
            assert!(Frame::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn lines_are_split_in_any_chunks(lines in prop::collection::vec("[a-z ]{0,9}", 0..8), cut in 1..7_usize) {
            let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
            let (mut cutter, mut found) = (Lines::default(), Vec::new());
            for chunk in text.as_bytes().chunks(cut) {
                cutter.push(Bytes::copy_from_slice(chunk)).expect("short");
                while let Some(line) = cutter.next() {
                    found.push(String::from_utf8(line.to_vec()).expect("text"));
                }
            }
            let expected: Vec<_> = lines.into_iter().filter(|line| !line.trim().is_empty()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
