//! A list as it is sent: put together piece by piece, an object at a time, whatever it is shown as.
//!
//! ```text
//!   Page (shared entries) ─► head ─► item, item, … ─► tail
//!                                     │
//!                     the object's own bytes where it is shown as it is,
//!                     else one tree at a time: a row, bare metadata, YAML
//! ```

use std::{collections::VecDeque, fmt::Write, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::{
    depth, encode,
    media::Encoding,
    object::Object,
    registry::Resource,
    storage::Entry,
    verbs::{Page, head},
    versions,
    view::View,
    yaml,
};

/// How many bytes of a list are put together at a time.
const PIECE: usize = 64 * 1024;

/// What a list is shown as.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    pub(crate) view: View,
    pub(crate) encoding: Encoding,
    pub(crate) now: Timestamp,
}

/// The body of a list.
pub(crate) struct ListBody {
    resource: Arc<Resource>,
    shown: Shown,
    head: String,
    /// What every item begins with where its own bytes follow.
    item_head: Option<String>,
    entries: VecDeque<Arc<Entry>>,
    tail: &'static str,
    state: Part,
}

enum Part {
    Head,
    Items { first: bool },
    Done,
}

impl ListBody {
    pub(crate) fn new(resource: &Arc<Resource>, page: Page, shown: Shown) -> Self {
        let frame = shown.view.frame(resource, &page.metadata(resource));
        let (head, tail) = match shown.encoding {
            Encoding::Yaml => around_yaml(&frame.fields, frame.list, page.entries.is_empty(), &frame.empty),
            _ => around_json(&frame.fields, frame.list, page.entries.is_empty(), &frame.empty),
        };
        Self {
            head,
            tail,
            // Custom items say what they are; built-in ones leave it to the list.
            item_head: resource.custom.then(|| self::head(resource)),
            entries: page.entries.into(),
            resource: resource.clone(),
            shown,
            state: Part::Head,
        }
    }

    /// Whether every piece was taken.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, Part::Done)
    }

    /// The next piece; `None` after the last.
    pub(crate) fn next_piece(&mut self) -> Option<Bytes> {
        let mut piece = Vec::new();
        while piece.len() < PIECE {
            match self.state {
                Part::Head => {
                    piece.extend_from_slice(self.head.as_bytes());
                    self.state = Part::Items { first: true };
                }
                Part::Items { first } => match self.entries.pop_front() {
                    Some(entry) => {
                        // Only what is being sent is turned into another shape.
                        let entry = versions::shown_entry(&entry, &self.resource);
                        if entry.object.is_deep() {
                            depth::with_room(|| self.add(&entry, first, &mut piece));
                        } else {
                            self.add(&entry, first, &mut piece);
                        }
                        self.state = Part::Items { first: false };
                    }
                    None => {
                        piece.extend_from_slice(self.tail.as_bytes());
                        self.state = Part::Done;
                    }
                },
                Part::Done => break,
            }
        }
        (!piece.is_empty()).then(|| piece.into())
    }

    fn add(&self, entry: &Entry, first: bool, piece: &mut Vec<u8>) {
        let Shown { view, encoding, now } = self.shown;
        if encoding != Encoding::Yaml && !first {
            piece.push(b',');
        }
        if (encoding, view) == (Encoding::Json, View::Object) {
            piece.extend_from_slice(self.item_head.as_deref().unwrap_or("{").as_bytes());
            piece.extend_from_slice(entry.object.without_type());
            return;
        }
        let object = entry.object.decode();
        let mut object = object.map_or_else(|error| error.to_value(), Object::into_value);
        if view == View::Object
            && !self.resource.custom
            && let Some(fields) = object.as_object_mut()
        {
            fields.retain(|key, _| !matches!(&**key, "kind" | "apiVersion"));
        }
        let item = view.item(&self.resource, object, now);
        match encoding {
            Encoding::Yaml => {
                let mut text = String::new();
                yaml::item(&item, &mut text);
                piece.extend_from_slice(text.as_bytes());
            }
            _ => encode::write(piece, &item),
        }
    }
}

fn around_json(
    fields: &Map<String, Value>,
    list: &str,
    is_empty: bool,
    empty: &Value,
) -> (String, &'static str) {
    let mut text = String::from("{");
    for (key, value) in fields {
        let _ = write!(text, "\"{key}\":{value},");
    }
    if is_empty {
        let _ = write!(text, "\"{list}\":{empty}");
        return (text, "}\n");
    }
    let _ = write!(text, "\"{list}\":[");
    (text, "]}\n")
}

fn around_yaml(
    fields: &Map<String, Value>,
    list: &str,
    is_empty: bool,
    empty: &Value,
) -> (String, &'static str) {
    let mut text = yaml::to_text(&Value::Object(fields.clone()));
    let _ = if is_empty {
        writeln!(text, "{list}: {empty}")
    } else {
        writeln!(text, "{list}:")
    };
    (text, "")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_in_pieces_is_the_list() {
        let fields = json!({"kind": "FooList", "metadata": {"resourceVersion": "7"}});
        let fields = fields.as_object().expect("an object");
        let (head, tail) = around_json(fields, "items", false, &json!([]));
        assert_eq!(
            serde_json::from_str::<Value>(&format!("{head}1,2{tail}")).ok(),
            Some(json!({"kind": "FooList", "metadata": {"resourceVersion": "7"}, "items": [1, 2]}))
        );
        let (head, _) = around_yaml(fields, "rows", true, &Value::Null);
        let (value, _) = yaml::read(head.as_bytes()).expect("YAML");
        assert_eq!(value["rows"], Value::Null);
        let (mut head, _) = around_yaml(fields, "items", false, &Value::Null);
        yaml::item(&json!({"a": {"b": "c"}}), &mut head);
        let (value, _) = yaml::read(head.as_bytes()).expect("YAML");
        assert_eq!(value["items"], json!([{"a": {"b": "c"}}]));
    }
}
