//! Bytes to objects: list pages as they stream in, and watch frames.

use bytes::{Buf, Bytes, BytesMut};
use kube::core::Status;
use memchr::memchr;

use crate::{
    protocol::Event,
    scan::{Cursor, Scanned, Trouble},
};

/// No Kubernetes object comes near this; a longer one is not what was asked for.
const LONGEST: usize = 64 << 20;

/// A list response, cut into its items while it arrives: the whole of it is never held.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) resource_version: String,
    pub(crate) continue_token: Option<String>,
    /// What has arrived and was not taken.
    buffer: BytesMut,
    place: Place,
    /// Not worth looking before there is more than this: an item was incomplete.
    wanted: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Start,
    /// Before the name of a member, or the end.
    Members,
    Items,
    End,
}

/// A body that is no list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotAList(pub(crate) &'static str);

impl Page {
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), NotAList> {
        if self.buffer.len() + chunk.len() > LONGEST {
            return Err(NotAList("an item is too long to be an object"));
        }
        self.buffer.extend_from_slice(chunk);
        Ok(())
    }

    /// Calls `act` with each complete item and what was found in it.
    pub(crate) fn items(&mut self, mut act: impl FnMut(&[u8], &Scanned<'_>)) -> Result<(), NotAList> {
        if self.buffer.len() < self.wanted {
            return Ok(());
        }
        loop {
            let mut cursor = Cursor::new(&self.buffer);
            let place = self.place;
            let mut head = Head::default();
            let outcome = step(place, &mut cursor, &mut head, &mut act);
            let taken = cursor.at;
            match outcome {
                Ok(next) => {
                    self.place = next;
                    self.wanted = 0;
                    if let Some(version) = head.resource_version {
                        self.resource_version = version;
                        self.continue_token = head.continue_token.filter(|token| !token.is_empty());
                    }
                    self.buffer.advance(taken);
                    if next == Place::End {
                        return Ok(());
                    }
                }
                Err(Trouble::Incomplete) => {
                    // A large item that comes in small chunks is not scanned again for each of them.
                    self.wanted = self.buffer.len() + self.buffer.len() / 2;
                    return Ok(());
                }
                Err(Trouble::Malformed(what)) => return Err(NotAList(what)),
            }
        }
    }

    /// The body has ended: whatever is complete is taken, and it must have been all.
    pub(crate) fn finish(&mut self, act: impl FnMut(&[u8], &Scanned<'_>)) -> Result<(), NotAList> {
        self.wanted = 0;
        self.items(act)?;
        if self.place != Place::End {
            return Err(NotAList("it ends too early"));
        }
        if self.resource_version.is_empty() {
            return Err(NotAList("it has no list metadata"));
        }
        Ok(())
    }
}

#[derive(Default)]
struct Head {
    resource_version: Option<String>,
    continue_token: Option<String>,
}

/// Takes one member of the list or one item, completely or not at all.
fn step(
    place: Place,
    cursor: &mut Cursor<'_>,
    head: &mut Head,
    act: &mut impl FnMut(&[u8], &Scanned<'_>),
) -> Result<Place, Trouble> {
    match place {
        Place::Start => {
            cursor.expect(b'{')?;
            Ok(Place::Members)
        }
        Place::Members => match cursor.peek()? {
            b'}' => {
                cursor.at += 1;
                Ok(Place::End)
            }
            b',' => {
                cursor.at += 1;
                Ok(Place::Members)
            }
            _ => {
                let name = cursor.string()?;
                cursor.expect(b':')?;
                match (name, cursor.peek()?) {
                    (b"items", b'[') => {
                        cursor.at += 1;
                        return Ok(Place::Items);
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
                    // Go writes an empty list as null.
                    _ => cursor.skip()?,
                }
                Ok(Place::Members)
            }
        },
        Place::Items => match cursor.peek()? {
            b']' => {
                cursor.at += 1;
                Ok(Place::Members)
            }
            b',' => {
                cursor.at += 1;
                Ok(Place::Items)
            }
            _ => {
                let start = cursor.at;
                let found = cursor.object()?;
                act(&cursor.text[start..cursor.at], &found);
                Ok(Place::Items)
            }
        },
        Place::End => Ok(Place::End),
    }
}

/// One line of a watch stream.
pub(crate) enum Frame<'a> {
    Event(Event, &'a [u8], Scanned<'a>),
    Bookmark {
        resource_version: String,
        /// It ends the initial events of the watch.
        initial_end: bool,
    },
    Error(Box<Status>),
    /// A type that this client does not know.
    Unknown,
}

impl<'a> Frame<'a> {
    /// Reads a line as far as it is needed. A server writes the type first and nothing after the object, so that the
    /// object ends before the line's last bracket; of one that is written so, what comes after its metadata is not
    /// looked at.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Self, String> {
        let line = line.trim_ascii_end();
        let end = line.ends_with(b"}}").then(|| line.len() - 1);
        let mut cursor = Cursor::new(line);
        let (mut sort, mut object) = (None, None);
        let scanned = cursor.members(|cursor, name| {
            match name {
                b"type" => sort = Some(cursor.text_value()?),
                b"object" if cursor.peek()? == b'{' => {
                    let start = cursor.at;
                    let found = match end {
                        Some(end) if sort.is_some() => cursor.object_until(end)?,
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
            Err(Trouble::Incomplete) => return Err("it ends too early".to_owned()),
            Err(Trouble::Malformed(what)) => return Err(what.to_owned()),
        }
        let Some(sort) = sort else {
            return Err("it has no type".to_owned());
        };
        // An event about something that is no object says nothing that could be kept.
        let Some((raw, found)) = object else {
            return Ok(Self::Unknown);
        };
        Ok(match &*sort {
            "ADDED" => Self::Event(Event::Added, raw, found),
            "MODIFIED" => Self::Event(Event::Modified, raw, found),
            "DELETED" => Self::Event(Event::Deleted, raw, found),
            "BOOKMARK" => Self::Bookmark {
                resource_version: found.resource_version.into_owned(),
                initial_end: found.initial_events_end,
            },
            "ERROR" => Self::Error(serde_json::from_slice(raw).map_err(|error| error.to_string())?),
            _ => Self::Unknown,
        })
    }
}

/// Cuts a stream of chunks into lines. Each byte is looked at once, and a line that comes in one chunk is not copied.
#[derive(Default)]
pub(crate) struct Lines {
    /// The beginning of a line whose end has not come.
    begun: BytesMut,
    /// What came last, as far as it was not taken.
    chunk: Bytes,
}

/// A line grew beyond what can be an object.
#[derive(Debug)]
pub(crate) struct LineTooLong;

impl Lines {
    /// Takes the next chunk, after [`next`](Self::next) has given all lines of the one before.
    pub(crate) fn push(&mut self, chunk: Bytes) -> Result<(), LineTooLong> {
        debug_assert!(self.chunk.is_empty(), "lines would be lost");
        if self.begun.len() + chunk.len() > LONGEST {
            return Err(LineTooLong);
        }
        self.chunk = chunk;
        Ok(())
    }

    /// The next complete line that is not blank.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        loop {
            let Some(at) = memchr(b'\n', &self.chunk) else {
                self.begun.extend_from_slice(&self.chunk);
                self.chunk.clear();
                return None;
            };
            let mut line = self.chunk.split_to(at);
            self.chunk.advance(1);
            if !self.begun.is_empty() {
                self.begun.extend_from_slice(&line);
                line = self.begun.split().freeze();
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

    fn page(text: &str, cut: usize) -> Result<(String, Option<String>, Vec<String>), NotAList> {
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

    /// 65: however it is cut, items come one by one.
    #[test]
    fn a_page_is_taken_item_by_item_however_it_is_cut() {
        let text = r#"{"kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"x":"]}"}} , {"metadata":{"name":"b"}}],"metadata":{"resourceVersion":"3","continue":"t"}}"#;
        for cut in 1..=text.len() {
            let (version, token, names) = page(text, cut).expect("a list");
            assert_eq!((version.as_str(), token.as_deref()), ("3", Some("t")));
            assert_eq!(names, ["a", "b"], "cut at {cut}");
        }
    }

    #[test]
    fn a_page_may_say_null_for_nothing() {
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
    fn a_bookmark_says_whether_it_ends_the_initial_events() {
        for (value, expected) in [("true", true), ("false", false)] {
            let line = format!(
                r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"7","annotations":{{"k8s.io/initial-events-end":"{value}"}}}}}}}}"#
            );
            let Ok(Frame::Bookmark {
                resource_version,
                initial_end,
            }) = Frame::parse(line.as_bytes())
            else {
                panic!("a bookmark")
            };
            assert_eq!((resource_version.as_str(), initial_end), ("7", expected));
        }
    }

    #[test]
    fn a_frame_is_the_same_in_whatever_order_it_is_written() {
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
                let Ok(Frame::Event(Event::Modified, raw, found)) = Frame::parse(line.as_bytes()) else {
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
        fn lines_do_not_depend_on_how_they_were_cut(lines in prop::collection::vec("[a-z ]{0,9}", 0..8), cut in 1..7_usize) {
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
