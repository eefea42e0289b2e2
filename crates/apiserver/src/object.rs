//! An object: a JSON tree while a request changes it ([`Object`]), shared bytes while it is stored ([`Encoded`]).

use std::ops::Range;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use windlass_api::conditions;

use crate::{
    depth, encode, json, kinds::SelectableField, permits::Permit, scratch, status::Status, storage::Revision,
};

/// The text before the list of managed fields in an encoded object.
const MANAGED_FIELDS_KEY: &str = ",\"managedFields\":";

/// A JSON object with a `metadata` object. Its `metadata.managedFields` are kept outside the tree: few writes need them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    tree: Value,
    managed_fields: ManagedFields,
}

/// An object's `metadata.managedFields`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum ManagedFields {
    /// The object has none.
    #[default]
    None,
    /// As a client sent them; the server may not accept them.
    Submitted(Value),
    /// As they are stored, the JSON of a list.
    Stored(Box<str>),
}

/// Sets a condition in a status, which replaces the one of its type. `lastTransitionTime` changes only with its status.
pub(crate) fn set_condition(status: &mut Value, condition: Value) {
    let mut list = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions::set(&mut list, condition);
    status["conditions"] = list.into();
}

impl ManagedFields {
    /// From their stored JSON; empty means none.
    pub(crate) fn from_stored(json: String) -> Self {
        if json.is_empty() {
            Self::None
        } else {
            Self::Stored(json.into())
        }
    }

    /// The stored JSON; empty if there is none.
    pub(crate) fn stored_json(&self) -> &str {
        match self {
            Self::Stored(json) => json,
            _ => "",
        }
    }
}

impl Object {
    /// Creates an object from a JSON object. An absent or null `metadata` becomes an empty one. None for other values.
    pub(crate) fn new(mut value: Value) -> Option<Self> {
        let fields = value.as_object_mut()?;
        match fields.get("metadata") {
            None | Some(Value::Null) => {
                fields.insert("metadata".to_owned(), Value::Object(Map::new()));
            }
            Some(Value::Object(_)) => {}
            Some(_) => return None,
        }
        let submitted = value["metadata"]
            .as_object_mut()
            .and_then(|metadata| metadata.remove("managedFields"));
        let managed_fields = submitted.map_or(ManagedFields::None, ManagedFields::Submitted);
        Some(Self {
            tree: value,
            managed_fields,
        })
    }

    pub(crate) fn managed_fields(&self) -> &ManagedFields {
        &self.managed_fields
    }

    pub(crate) fn set_managed_fields(&mut self, account: ManagedFields) {
        self.managed_fields = account;
    }

    pub(crate) fn take_managed_fields(&mut self) -> ManagedFields {
        std::mem::take(&mut self.managed_fields)
    }

    pub(crate) fn fields(&self) -> &Map<String, Value> {
        self.tree.as_object().expect("checked by every constructor")
    }

    pub(crate) fn fields_mut(&mut self) -> &mut Map<String, Value> {
        self.tree.as_object_mut().expect("checked by every constructor")
    }

    /// The tree, without `managedFields`.
    pub(crate) fn tree(&self) -> &Value {
        &self.tree
    }

    /// The tree, to change its fields. It stays an object with `metadata`.
    pub(crate) fn tree_mut(&mut self) -> &mut Value {
        &mut self.tree
    }

    /// The tree, without `managedFields`.
    pub(crate) fn into_tree(self) -> Value {
        self.tree
    }

    /// The tree with `managedFields`.
    pub(crate) fn into_value(self) -> Value {
        let mut value = self.tree;
        let account = match self.managed_fields {
            ManagedFields::None => return value,
            ManagedFields::Submitted(submitted) => submitted,
            ManagedFields::Stored(json) => json::read_stored(&json).unwrap_or_else(|error| {
                tracing::error!(%error, "stored managed fields cannot be read");
                Value::Null
            }),
        };
        value["metadata"]["managedFields"] = account;
        value
    }

    pub(crate) fn metadata(&self) -> &Map<String, Value> {
        self.tree["metadata"]
            .as_object()
            .expect("checked by every constructor")
    }

    pub(crate) fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        self.tree["metadata"]
            .as_object_mut()
            .expect("checked by every constructor")
    }

    /// A string of the metadata; empty if absent, as in Go.
    pub(crate) fn meta(&self, key: &str) -> &str {
        self.metadata()
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(crate) fn set_meta(&mut self, key: &str, value: impl Into<Value>) {
        self.metadata_mut().insert(key.to_owned(), value.into());
    }

    /// Sets a metadata field to its value in another state of the object, or removes it if absent there.
    pub(crate) fn keep_meta(&mut self, key: &str, from: &Object) {
        match from.metadata().get(key) {
            Some(value) => self.set_meta(key, value.clone()),
            None => {
                self.metadata_mut().remove(key);
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.meta("name")
    }

    pub(crate) fn namespace(&self) -> &str {
        self.meta("namespace")
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata()
            .get("deletionTimestamp")
            .is_some_and(|t| !t.is_null())
    }

    pub(crate) fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.metadata()
            .get("finalizers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }

    /// Whether a controller owns it.
    pub(crate) fn has_controller(&self) -> bool {
        let owners = self.metadata().get("ownerReferences").and_then(Value::as_array);
        owners
            .into_iter()
            .flatten()
            .any(|owner| owner["controller"] == true)
    }

    /// [Sets](set_condition) a condition of the status.
    pub(crate) fn set_condition(&mut self, condition: Value) {
        let status = self.fields_mut().entry("status").or_insert_with(|| json!({}));
        set_condition(status, condition);
    }

    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self
            .metadata()
            .get("labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    /// The text at a dotted path (`spec.nodeName`): strings, numbers and booleans; empty for anything else.
    pub(crate) fn text_at(&self, path: &str) -> String {
        let mut parts = path.split('.');
        let first = parts.next().and_then(|part| self.fields().get(part));
        match parts.fold(first, |value, part| value?.get(part)) {
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            _ => String::new(),
        }
    }

    /// Encodes the object at a revision, with the values that selectors need.
    pub(crate) fn encode(&mut self, revision: Revision, selectable: &[SelectableField]) -> Encoded {
        let draft = self.draft(revision, selectable);
        self.set_meta("resourceVersion", revision.to_string());
        draft.at_revision(revision)
    }

    /// Encodes the object before its revision is known, with a guessed one. [`Draft::at_revision`] then only overwrites
    /// the digits.
    pub(crate) fn draft(&mut self, guess: Revision, selectable: &[SelectableField]) -> Draft {
        let digits = guess.to_string();
        let length = digits.len();
        self.set_meta("resourceVersion", digits);
        let mut places = Places::default();
        let mut labels: Box<[_]> = self.labels().map(|(k, v)| (k.into(), v.into())).collect();
        labels.sort_unstable();
        let json = scratch::write_to_vec(|json| {
            places = self.write(json, length);
        });
        Draft {
            deep: depth::has_large_stack() && depth::of_json(&json) > depth::SHALLOW,
            json,
            places,
            deleting: self.is_deleting(),
            labels,
            fields: selectable.iter().map(|field| field.value(self).into()).collect(),
        }
    }

    /// Writes the object's JSON, with its managed fields.
    pub(crate) fn write_json(&self, json: &mut Vec<u8>) {
        self.write(json, 0);
    }

    /// Writes the object's JSON.
    fn write(&self, json: &mut Vec<u8>, digits: usize) -> Places {
        json.push(b'{');
        for key in ["kind", "apiVersion"] {
            encode::write_field(json, key, self.tree.get(key).unwrap_or(&Value::Null));
            json.push(b',');
        }
        let metadata_start = json.len();
        let mut places = Places {
            metadata_start,
            revision: metadata_start..metadata_start,
            ..Places::default()
        };
        json.extend_from_slice(b"\"metadata\":{");
        for (index, (key, value)) in self.metadata().iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            encode::write_field(json, key, value);
            // Before the closing quote.
            let end = json.len() - 1;
            let text = || {
                let start = end - value.as_str().map_or(0, str::len);
                // A value with escapes is not the text itself.
                let is_plain = value
                    .as_str()
                    .is_some_and(|text| json[start..end] == *text.as_bytes());
                if is_plain { start..end } else { 0..0 }
            };
            match &**key {
                "resourceVersion" => places.revision = end - digits..end,
                "uid" => places.uid = text(),
                "deletionTimestamp" => places.deletion = text(),
                _ => {}
            }
        }
        let managed_fields = json.len();
        if let ManagedFields::Stored(list) = &self.managed_fields {
            // Only a request that is not stored has no other metadata.
            let skipped = usize::from(self.metadata().is_empty());
            json.extend_from_slice(&MANAGED_FIELDS_KEY.as_bytes()[skipped..]);
            json.extend_from_slice(list.as_bytes());
        }
        places.managed_fields = managed_fields..json.len();
        json.push(b'}');
        for (key, value) in self
            .fields()
            .iter()
            .filter(|(key, _)| !matches!(&***key, "kind" | "apiVersion" | "metadata"))
        {
            json.push(b',');
            encode::write_field(json, key, value);
        }
        json.push(b'}');
        places
    }
}

/// Where parts of an object are in its JSON.
#[derive(Debug, Default)]
struct Places {
    /// Where `"metadata"` begins. Only kind and version come before.
    metadata_start: usize,
    /// The digits of the revision.
    revision: Range<usize>,
    /// `managedFields` with the comma before it; last in the metadata.
    managed_fields: Range<usize>,
    /// The text of the uid; empty without one.
    uid: Range<usize>,
    /// The text of the deletion timestamp; empty without one.
    deletion: Range<usize>,
}

impl Places {
    /// The same places, if the revision gets this many digits.
    fn with_digits(self, count: usize) -> Self {
        let Range { start, end } = self.revision;
        let moved = |place: usize| {
            if place < end {
                place
            } else {
                start + count + (place - end)
            }
        };
        let range = |range: Range<usize>| moved(range.start)..moved(range.end);
        Self {
            metadata_start: self.metadata_start,
            revision: start..start + count,
            managed_fields: range(self.managed_fields),
            uid: range(self.uid),
            deletion: range(self.deletion),
        }
    }
}

/// An object that is encoded with a guessed revision.
pub(crate) struct Draft {
    json: Vec<u8>,
    deep: bool,
    places: Places,
    deleting: bool,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[Box<str>]>,
}

impl Draft {
    /// Completes the encoding with the actual revision.
    pub(crate) fn at_revision(mut self, revision: Revision) -> Encoded {
        let digits = revision.to_string();
        let revision = self.places.revision.clone();
        if digits.len() == revision.len() {
            self.json[revision].copy_from_slice(digits.as_bytes());
        } else {
            let (before, after) = (&self.json[..revision.start], &self.json[revision.end..]);
            self.json = [before, digits.as_bytes(), after].concat();
        }
        Encoded {
            schema_hash: 0,
            deep: self.deep,
            json: self.json.into(),
            places: self.places.with_digits(digits.len()),
            deleting: self.deleting,
            labels: self.labels,
            fields: self.fields,
        }
    }
}

/// An object as it is stored and sent: its JSON, with `kind` and `apiVersion` first, and the values that selectors need.
#[derive(Debug, Default)]
pub struct Encoded {
    json: Bytes,
    places: Places,
    deleting: bool,
    /// Sorted by key.
    labels: Box<[(Box<str>, Box<str>)]>,
    /// The values of the resource's selectable fields, in the resource's order.
    fields: Box<[Box<str>]>,
    /// The hash of a custom resource's schema when it was encoded; 0 if unknown.
    schema_hash: u64,
    deep: bool,
}

impl Encoded {
    /// The JSON of the whole object. Cloning it copies nothing.
    pub(crate) fn json(&self) -> &Bytes {
        &self.json
    }

    /// The JSON from `"metadata"` on, without the opening brace, `kind` and `apiVersion`.
    pub(crate) fn without_type(&self) -> &[u8] {
        &self.json[self.places.metadata_start..]
    }

    /// Whether it has a deletion timestamp.
    pub(crate) fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Sorted by key.
    pub(crate) fn labels(&self) -> &[(Box<str>, Box<str>)] {
        &self.labels
    }

    pub(crate) fn field(&self, index: usize) -> &str {
        &self.fields[index]
    }

    /// The hash of the schema that it was encoded with, see [`crate::crd`].
    pub(crate) fn schema_hash(&self) -> u64 {
        self.schema_hash
    }

    pub(crate) fn with_schema_hash(mut self, shape: u64) -> Self {
        self.schema_hash = shape;
        self
    }

    /// Holds a permit as long as the bytes of the object exist, in any copy.
    pub(crate) fn with_permit(mut self, permit: Option<Permit>) -> Self {
        struct Counted(
            Bytes,
            #[expect(dead_code, reason = "dropped with the bytes")] Permit,
        );
        impl AsRef<[u8]> for Counted {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        if let Some(permit) = permit {
            self.json = Bytes::from_owner(Counted(self.json, permit));
        }
        self
    }

    /// Whether it nests so deep that it needs a [large stack](crate::depth).
    pub(crate) fn is_deep(&self) -> bool {
        self.deep
    }

    /// The uid; empty without one.
    pub(crate) fn uid(&self) -> &str {
        self.text(&self.places.uid)
    }

    /// The deletion timestamp; empty without one.
    pub(crate) fn deletion_timestamp(&self) -> &str {
        self.text(&self.places.deletion)
    }

    fn text(&self, place: &Range<usize>) -> &str {
        let text = self.json.get(place.clone()).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }

    /// Decodes the object, to change it.
    pub(crate) fn decode(&self) -> Result<Object, Status> {
        let Range { start, end } = self.places.managed_fields;
        let unreadable = |why: String| Status::internal(format!("a stored object cannot be read: {why}"));
        let text = std::str::from_utf8(&self.json).map_err(|error| unreadable(error.to_string()))?;
        let tree = if start == end {
            json::read_stored(text)
        } else {
            json::read_stored(&[&text[..start], &text[end..]].concat())
        };
        let tree = tree.map_err(|error| unreadable(error.to_string()))?;
        let mut object = Object::new(tree).ok_or_else(|| unreadable("it is not an object".to_owned()))?;
        object.managed_fields = ManagedFields::from_stored(self.managed_fields().to_owned());
        Ok(object)
    }

    /// The JSON of `managedFields`; empty if there are none.
    pub(crate) fn managed_fields(&self) -> &str {
        let list = self
            .json
            .get(self.places.managed_fields.start + MANAGED_FIELDS_KEY.len()..self.places.managed_fields.end);
        std::str::from_utf8(list.unwrap_or_default()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn uid_and_deletion_timestamp_are_known_without_decoding() {
        for (uid, deletion) in [("1-2", "2026-01-01T00:00:00Z"), ("", ""), ("a\"b\u{1}", "")] {
            for revision in [7, 999, 1_000, 123_456] {
                let mut object = Object::new(json!({
                    "kind": "Pod", "metadata": {"name": "a", "zone": "uid", "uid": uid, "deletionTimestamp": deletion},
                }))
                .expect("an object");
                object.set_managed_fields(ManagedFields::Stored("[{}]".into()));
                let encoded = object.draft(Revision(999), &[]).at_revision(Revision(revision));
                let plain = if uid.contains('"') { "" } else { uid };
                assert_eq!((encoded.uid(), encoded.deletion_timestamp()), (plain, deletion));
                assert_eq!(encoded.managed_fields(), "[{}]");
                assert_eq!(
                    encoded.decode().expect("JSON").meta("resourceVersion"),
                    revision.to_string()
                );
            }
        }
    }

    #[test]
    fn encoded_object_round_trips_and_has_selectable_values() {
        let mut object = Object::new(json!({
            "apiVersion": "v1", "kind": "Pod", "data": 1, "metadata": {"name": "a", "labels": {"app": "x"}},
            "spec": {"nodeName": "n1"},
        }))
        .expect("an object");
        let encoded = object.encode(
            Revision(7),
            &["metadata.name", "spec.nodeName"].map(SelectableField::text),
        );
        assert_eq!(encoded.decode().ok(), Some(object.clone()));
        assert_eq!(object.meta("resourceVersion"), "7");
        assert!(
            encoded
                .json()
                .starts_with(br#"{"kind":"Pod","apiVersion":"v1","metadata":{"#)
        );
        assert!(encoded.without_type().starts_with(br#""metadata":{"#));
        assert_eq!(encoded.labels(), [("app".into(), "x".into())]);
        assert_eq!((encoded.field(0), encoded.field(1)), ("a", "n1"));
    }

    #[test]
    fn wrong_revision_guess_does_not_change_the_encoding() {
        let mut object = Object::new(json!({"metadata": {"name": "a", "uid": "u"}, "data": {"x": "y"}}))
            .expect("an object");
        object.set_managed_fields(ManagedFields::from_stored("[{}]".to_owned()));
        let right = object.encode(Revision(1000), &[]);
        for guess in [1, 999, 1000, 1001, 123_456] {
            let encoded = object.draft(Revision(guess), &[]).at_revision(Revision(1000));
            assert_eq!(encoded.json(), right.json(), "{guess}");
            assert_eq!(encoded.managed_fields(), right.managed_fields(), "{guess}");
        }
    }
}
