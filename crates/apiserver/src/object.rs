//! An object as the server handles it: a JSON tree while a request changes it, shared bytes while it is kept.

use std::ops::Range;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{depth, encode, json, scratch, status::Status, storage::Revision};

/// What stands before the list of an object's managed fields.
const ACCOUNT: &str = ",\"managedFields\":";

/// A JSON object that has a `metadata` object. Its `metadata.managedFields` are not in the tree: few writes ask for them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    tree: Value,
    account: Account,
}

/// An object's `metadata.managedFields`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Account {
    /// There are none.
    #[default]
    None,
    /// As a client sent them, which does not mean that they will be so.
    Said(Value),
    /// As they are stored: the JSON of a list.
    Kept(Box<str>),
}

impl Account {
    /// As it is written; nothing where nobody owns anything.
    pub(crate) fn kept(json: String) -> Self {
        if json.is_empty() {
            Self::None
        } else {
            Self::Kept(json.into())
        }
    }

    /// The text of what is kept.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Kept(json) => json,
            _ => "",
        }
    }
}

impl Object {
    /// Takes any JSON object; an absent or null `metadata` becomes an empty one.
    pub(crate) fn new(mut value: Value) -> Option<Self> {
        let fields = value.as_object_mut()?;
        match fields.get("metadata") {
            None | Some(Value::Null) => {
                fields.insert("metadata".to_owned(), Value::Object(Map::new()));
            }
            Some(Value::Object(_)) => {}
            Some(_) => return None,
        }
        let said = value["metadata"]
            .as_object_mut()
            .and_then(|metadata| metadata.remove("managedFields"));
        let account = said.map_or(Account::None, Account::Said);
        Some(Self { tree: value, account })
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    pub(crate) fn set_account(&mut self, account: Account) {
        self.account = account;
    }

    pub(crate) fn take_account(&mut self) -> Account {
        std::mem::take(&mut self.account)
    }

    pub(crate) fn fields(&self) -> &Map<String, Value> {
        self.tree
            .as_object()
            .expect("kept by every constructor and method")
    }

    pub(crate) fn fields_mut(&mut self) -> &mut Map<String, Value> {
        self.tree
            .as_object_mut()
            .expect("kept by every constructor and method")
    }

    /// The tree, without `managedFields`.
    pub(crate) fn tree(&self) -> &Value {
        &self.tree
    }

    /// The tree, without `managedFields`.
    pub(crate) fn into_tree(self) -> Value {
        self.tree
    }

    /// The whole object.
    pub(crate) fn into_value(self) -> Value {
        let mut value = self.tree;
        let account = match self.account {
            Account::None => return value,
            Account::Said(said) => said,
            Account::Kept(json) => json::read_own(&json).unwrap_or_else(|error| {
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
            .expect("kept by every constructor and method")
    }

    pub(crate) fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        self.tree["metadata"]
            .as_object_mut()
            .expect("kept by every constructor and method")
    }

    /// A string of the metadata; an absent one reads as empty, as it does in Go.
    pub(crate) fn meta(&self, key: &str) -> &str {
        self.metadata()
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(crate) fn set_meta(&mut self, key: &str, value: impl Into<Value>) {
        self.metadata_mut().insert(key.to_owned(), value.into());
    }

    /// Makes a metadata field what it was in another state of the object, absence included.
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

    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self
            .metadata()
            .get("labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    /// The string at a dotted path (`spec.nodeName`); numbers and booleans as text, anything else empty.
    pub(crate) fn text_at(&self, path: &str) -> String {
        let mut parts = path.split('.');
        let first = parts.next().and_then(|part| self.fields().get(part));
        match parts.fold(first, |value, part| value?.get(part)) {
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            _ => String::new(),
        }
    }

    /// Encodes the object as of a revision, and notes what selectors will ask for.
    pub(crate) fn encode(&mut self, revision: Revision, selectable: &[Box<str>]) -> Encoded {
        let draft = self.draft(revision, selectable);
        self.set_meta("resourceVersion", revision.to_string());
        draft.at(revision)
    }

    /// Encodes the object before its revision is known. All that is left to do then is to write its digits over those
    /// of a good guess.
    pub(crate) fn draft(&mut self, guess: Revision, selectable: &[Box<str>]) -> Draft {
        let digits = guess.to_string();
        let length = digits.len();
        self.set_meta("resourceVersion", digits);
        let (mut head, mut revision, mut account) = (0, 0..0, 0..0);
        let mut labels: Box<[_]> = self.labels().map(|(k, v)| (k.into(), v.into())).collect();
        labels.sort_unstable();
        let json = scratch::written(|json| {
            (head, revision, account) = self.write(json, length);
        });
        Draft {
            deep: depth::has_room() && depth::of_json(&json) > depth::SHALLOW,
            json,
            head,
            revision,
            account,
            deleting: self.is_deleting(),
            labels,
            fields: selectable.iter().map(|path| self.text_at(path).into()).collect(),
        }
    }

    /// Writes the object as it is kept. Returns where the metadata begin, and where the revision's digits and the account
    /// are.
    fn write(&self, json: &mut Vec<u8>, digits: usize) -> (usize, Range<usize>, Range<usize>) {
        json.push(b'{');
        for key in ["kind", "apiVersion"] {
            encode::write_field(json, key, self.tree.get(key).unwrap_or(&Value::Null));
            json.push(b',');
        }
        let head = json.len();
        let mut revision = head..head;
        json.extend_from_slice(b"\"metadata\":{");
        for (index, (key, value)) in self.metadata().iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            encode::write_field(json, key, value);
            if key == "resourceVersion" {
                // Before the closing quote.
                revision = json.len() - 1 - digits..json.len() - 1;
            }
        }
        let account = json.len();
        if let Account::Kept(list) = &self.account {
            json.extend_from_slice(ACCOUNT.as_bytes());
            json.extend_from_slice(list.as_bytes());
        }
        let account = account..json.len();
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
        (head, revision, account)
    }
}

/// An object that is encoded as of a revision that was guessed.
pub(crate) struct Draft {
    json: Vec<u8>,
    deep: bool,
    head: usize,
    /// Where the revision's digits are: before the account.
    revision: Range<usize>,
    account: Range<usize>,
    deleting: bool,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[Box<str>]>,
}

impl Draft {
    /// See [`Encoded::is_deep`].
    pub(crate) fn is_deep(&self) -> bool {
        self.deep
    }

    /// The object as of a revision.
    pub(crate) fn at(mut self, revision: Revision) -> Encoded {
        let digits = revision.to_string();
        let guessed = self.revision.len();
        if digits.len() == guessed {
            self.json[self.revision].copy_from_slice(digits.as_bytes());
        } else {
            let (before, after) = (&self.json[..self.revision.start], &self.json[self.revision.end..]);
            self.json = [before, digits.as_bytes(), after].concat();
        }
        // The account stands behind the digits.
        let moved = |place: usize| place + digits.len() - guessed;
        Encoded {
            shape: 0,
            deep: self.deep,
            json: self.json.into(),
            head: self.head,
            account: moved(self.account.start)..moved(self.account.end),
            deleting: self.deleting,
            labels: self.labels,
            fields: self.fields,
        }
    }
}

/// An object as it is kept and sent: its JSON, with `kind` and `apiVersion` in front, and what selectors ask for.
#[derive(Debug, Default)]
pub struct Encoded {
    json: Bytes,
    /// Where `"metadata"` begins: what is before says kind and version and nothing else.
    head: usize,
    /// Where `managedFields` are, from the comma before them; last in the metadata.
    account: Range<usize>,
    deleting: bool,
    /// In the order of their names.
    labels: Box<[(Box<str>, Box<str>)]>,
    /// The values of the resource's selectable fields, in the resource's order.
    fields: Box<[Box<str>]>,
    /// What a custom resource's schema was when it was encoded; 0 where that is not known.
    shape: u64,
    deep: bool,
}

impl Encoded {
    /// The whole object. Sharing it costs no copy.
    pub(crate) fn json(&self) -> &Bytes {
        &self.json
    }

    /// The object as an item of a list that says kind and version once for all.
    pub(crate) fn without_type(&self) -> &[u8] {
        &self.json[self.head..]
    }

    /// Whether its deletion has begun.
    pub(crate) fn is_deleting(&self) -> bool {
        self.deleting
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let place = self.labels.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
        Some(&self.labels[place].1)
    }

    pub(crate) fn field(&self, index: usize) -> &str {
        &self.fields[index]
    }

    /// See [`crate::crd`].
    pub(crate) fn shape(&self) -> u64 {
        self.shape
    }

    pub(crate) fn with_shape(mut self, shape: u64) -> Self {
        self.shape = shape;
        self
    }

    /// Whether it nests so deep that it can be handled only with [room](crate::depth).
    pub(crate) fn is_deep(&self) -> bool {
        self.deep
    }

    /// The uid; empty where the object cannot be read.
    pub(crate) fn uid(&self) -> String {
        self.decode()
            .map(|object| object.meta("uid").to_owned())
            .unwrap_or_default()
    }

    /// The tree again, to change it.
    pub(crate) fn decode(&self) -> Result<Object, Status> {
        let Range { start, end } = self.account;
        let unreadable = |why: String| Status::internal(format!("a stored object cannot be read: {why}"));
        let text = std::str::from_utf8(&self.json).map_err(|error| unreadable(error.to_string()))?;
        let tree = if start == end {
            json::read_own(text)
        } else {
            json::read_own(&[&text[..start], &text[end..]].concat())
        };
        let tree = tree.map_err(|error| unreadable(error.to_string()))?;
        let mut object = Object::new(tree).ok_or_else(|| unreadable("it is not an object".to_owned()))?;
        object.account = Account::kept(self.account().to_owned());
        Ok(object)
    }

    /// The text of `managedFields`; empty where there are none.
    pub(crate) fn account(&self) -> &str {
        let list = self
            .json
            .get(self.account.start + ACCOUNT.len()..self.account.end);
        std::str::from_utf8(list.unwrap_or_default()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_encoded_object_decodes_to_itself_and_shows_what_selectors_need() {
        let mut object = Object::new(json!({
            "apiVersion": "v1", "kind": "Pod", "data": 1, "metadata": {"name": "a", "labels": {"app": "x"}},
            "spec": {"nodeName": "n1"},
        }))
        .expect("an object");
        let encoded = object.encode(Revision(7), &["metadata.name".into(), "spec.nodeName".into()]);
        assert_eq!(encoded.decode().ok(), Some(object.clone()));
        assert_eq!(object.meta("resourceVersion"), "7");
        assert!(
            encoded
                .json()
                .starts_with(br#"{"kind":"Pod","apiVersion":"v1","metadata":{"#)
        );
        assert!(encoded.without_type().starts_with(br#""metadata":{"#));
        assert_eq!((encoded.label("app"), encoded.label("b")), (Some("x"), None));
        assert_eq!((encoded.field(0), encoded.field(1)), ("a", "n1"));
    }

    #[test]
    fn a_wrong_guess_of_the_revision_changes_nothing() {
        let mut object = Object::new(json!({"metadata": {"name": "a", "uid": "u"}, "data": {"x": "y"}}))
            .expect("an object");
        object.set_account(Account::kept("[{}]".to_owned()));
        let right = object.encode(Revision(1000), &[]);
        for guess in [1, 999, 1000, 1001, 123_456] {
            let encoded = object.draft(Revision(guess), &[]).at(Revision(1000));
            assert_eq!(encoded.json(), right.json(), "{guess}");
            assert_eq!(encoded.account, right.account, "{guess}");
        }
    }
}
