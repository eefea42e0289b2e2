//! Encodes a list in pieces, one object at a time, in every view and encoding.
//!
//! ```text
//!   Page (shared entries) ─► head ─► item, item, … ─► tail
//!                                     │
//!                     the object's own bytes in the default view,
//!                     else one tree at a time: a table row, partial metadata, YAML
//! ```

use std::{collections::VecDeque, fmt::Write, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::{
    conversion, crd, depth, encode,
    media::Encoding,
    object::Object,
    registry::Resource,
    storage::Entry,
    verbs::{Page, type_prefix},
    view::View,
    yaml,
};

/// The minimum size of a piece, in bytes, unless its objects are large.
const PIECE_BYTES: usize = 64 * 1024;

/// A piece ends after this many bytes of objects that had to be decoded, however little of them it shows: a table's row is
/// a hundred bytes of an object of a megabyte.
const MAX_DECODED_BYTES: usize = 1024 * 1024;

/// The format of a list.
#[derive(Clone, Copy)]
pub(crate) struct ListFormat {
    pub(crate) view: View,
    pub(crate) encoding: Encoding,
    pub(crate) now: Timestamp,
}

/// The body of a list.
pub(crate) struct ListBody {
    resource: Arc<Resource>,
    format: ListFormat,
    head: String,
    /// The bytes before `"metadata"` of items that are copied.
    item_head: Option<String>,
    entries: VecDeque<Arc<Entry>>,
    tail: &'static str,
    position: Position,
}

enum Position {
    Head,
    Items { first: bool },
    Done,
}

impl ListBody {
    pub(crate) fn new(resource: &Arc<Resource>, page: Page, format: ListFormat) -> Self {
        let frame = format.view.list_envelope(resource, &page.metadata(resource));
        let (head, tail) = match format.encoding {
            Encoding::Yaml => yaml_envelope(
                &frame.fields,
                frame.items_field,
                page.entries.is_empty(),
                &frame.empty,
            ),
            _ => json_envelope(
                &frame.fields,
                frame.items_field,
                page.entries.is_empty(),
                &frame.empty,
            ),
        };
        Self {
            head,
            tail,
            // Only items of custom resources have kind and version.
            item_head: resource.is_custom.then(|| self::type_prefix(resource)),
            entries: page.entries.into(),
            resource: resource.clone(),
            format,
            position: Position::Head,
        }
    }

    /// Whether the last piece was returned.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.position, Position::Done)
    }

    /// The work of the next piece: how many bytes of objects it decodes. Counts no further than `enough`.
    pub(crate) fn next_cost(&self, enough: usize) -> usize {
        let (mut decoded, mut copied) = (0, 0);
        for entry in &self.entries {
            if decoded > enough || copied >= PIECE_BYTES {
                break;
            }
            match self.decoded_bytes(entry) {
                0 => copied += entry.object.json().len(),
                bytes => decoded += bytes,
            }
        }
        decoded
    }

    /// The size of an object, or 0 if its bytes are copied.
    fn decoded_bytes(&self, entry: &Entry) -> usize {
        let ListFormat { view, encoding, .. } = self.format;
        let is_copied = (encoding, view) == (Encoding::Json, View::Object)
            && !conversion::needs_conversion(&self.resource)
            && !crd::needs_conversion(&self.resource, entry);
        if is_copied { 0 } else { entry.object.json().len() }
    }

    /// The next piece; `None` after the last.
    pub(crate) fn next_piece(&mut self) -> Option<Bytes> {
        let mut piece = Vec::new();
        let mut decoded = 0;
        while piece.len() < PIECE_BYTES && decoded < MAX_DECODED_BYTES {
            match self.position {
                Position::Head => {
                    piece.extend_from_slice(self.head.as_bytes());
                    self.position = Position::Items { first: true };
                }
                Position::Items { first } => match self.entries.pop_front() {
                    Some(entry) => {
                        decoded += self.decoded_bytes(&entry);
                        // Objects are converted only when they are sent.
                        // Those that a webhook converts were converted before.
                        let entry = crd::convert_for_read(&self.resource, entry.clone()).unwrap_or(entry);
                        let entry = conversion::convert_entry_for_read(&entry, &self.resource);
                        if entry.object.is_deep() {
                            depth::with_large_stack(|| self.write_item(&entry, first, &mut piece));
                        } else {
                            self.write_item(&entry, first, &mut piece);
                        }
                        self.position = Position::Items { first: false };
                    }
                    None => {
                        piece.extend_from_slice(self.tail.as_bytes());
                        self.position = Position::Done;
                    }
                },
                Position::Done => break,
            }
        }
        (!piece.is_empty()).then(|| piece.into())
    }

    fn write_item(&self, entry: &Entry, first: bool, piece: &mut Vec<u8>) {
        let ListFormat { view, encoding, now } = self.format;
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
            && !self.resource.is_custom
            && let Some(fields) = object.as_object_mut()
        {
            fields.retain(|key, _| !matches!(&**key, "kind" | "apiVersion"));
        }
        let item = view.render_item(&self.resource, object, now);
        match encoding {
            Encoding::Yaml => {
                let mut text = String::new();
                yaml::append_item(&item, &mut text);
                piece.extend_from_slice(text.as_bytes());
            }
            _ => encode::write(piece, &item),
        }
    }
}

fn json_envelope(
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

fn yaml_envelope(
    fields: &Map<String, Value>,
    list: &str,
    is_empty: bool,
    empty: &Value,
) -> (String, &'static str) {
    let mut text = yaml::to_yaml(&Value::Object(fields.clone()));
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
    fn head_items_and_tail_form_the_list() {
        let fields = json!({"kind": "FooList", "metadata": {"resourceVersion": "7"}});
        let fields = fields.as_object().expect("an object");
        let (head, tail) = json_envelope(fields, "items", false, &json!([]));
        assert_eq!(
            serde_json::from_str::<Value>(&format!("{head}1,2{tail}")).ok(),
            Some(json!({"kind": "FooList", "metadata": {"resourceVersion": "7"}, "items": [1, 2]}))
        );
        let (head, _) = yaml_envelope(fields, "rows", true, &Value::Null);
        let (value, _) = yaml::read(head.as_bytes()).expect("YAML");
        assert_eq!(value["rows"], Value::Null);
        let (mut head, _) = yaml_envelope(fields, "items", false, &Value::Null);
        yaml::append_item(&json!({"a": {"b": "c"}}), &mut head);
        let (value, _) = yaml::read(head.as_bytes()).expect("YAML");
        assert_eq!(value["items"], json!([{"a": {"b": "c"}}]));
    }
}
