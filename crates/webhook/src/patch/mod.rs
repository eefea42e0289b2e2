//! The patch of a mutating webhook: what a function has changed, laid on the object as the client sent it.
//!
//! ```text
//!   raw object ─► decode ─► T ─► encode ─► before ─┐
//!       │                   │                      ├─ differ ─► operations on the raw object
//!       │                   └─ change ─► encode ─► after
//!       └─────────────────────────────────────────────┘
//! ```
//!
//! - A field that is the same before and after is not touched, whatever it looks like in the raw object: neither defaults that
//!   decoding filled in, nor fields that the type does not know, become changes.
//! - An entry that becomes `null` is removed, because that is how an absent value is written.
//! - Items of a list keep their unknown fields when others are added, removed or moved: see [`align`]. A list that the type
//!   reorders, such as a set, is replaced: its items are not at the places where the client has sent them.
//! - Operations are in the order of paths, so the same change always is the same patch.
//!
//! The raw object is read only along changed paths, one level at a time.

mod align;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use self::align::{align, is_in_order};

/// Operations of a JSON patch (RFC 6902).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Patch {
    operations: Vec<Operation>,
    /// Whether lists are changed item by item.
    #[serde(skip)]
    edits_lists: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum Operation {
    Add { path: String, value: Value },
    Replace { path: String, value: Value },
    Remove { path: String },
}

impl Patch {
    /// What changes `raw`, which was decoded to `before`, like `before` was changed to `after`. Empty if these are equal.
    pub(crate) fn between(
        raw: &RawValue,
        before: &Value,
        after: &Value,
        lists: Lists,
    ) -> Result<Self, serde_json::Error> {
        let mut patch = Self::default();
        patch.edit(raw, before, after, &mut String::new(), lists)?;
        Ok(patch)
    }

    /// Whether it depends on how the type keeps the items of lists.
    pub(crate) fn edits_lists(&self) -> bool {
        self.edits_lists
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and JSON trees can be written as JSON")
    }
}

/// How changed lists are patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    /// Item by item, so that unknown fields stay.
    Edited,
    /// As a whole: for a type that does not keep the items as they are sent.
    Replaced,
}

/// Whether `raw`, changed like `before` was changed to `after`, is what the author wants, in the eyes of the type. `read` decodes
/// and encodes a value.
pub(crate) fn is_reached(
    raw: &RawValue,
    before: &Value,
    after: &Value,
    read: impl Fn(Value) -> Option<Value>,
) -> bool {
    // What is too deep for a tree is no content that the type knows.
    let Ok(result) = overlay(raw, before, after) else {
        return true;
    };
    // An author may want what the type does not keep.
    read(after.clone())
        .is_none_or(|wanted| read(result).is_some_and(|result| in_any_order(result) == in_any_order(wanted)))
}

/// Sorts lists of scalars: each `HashSet` writes them in another order.
fn in_any_order(value: Value) -> Value {
    match value {
        Value::Array(mut items) => {
            if !items.iter().any(|item| item.is_object() || item.is_array()) {
                items.sort_by_key(Value::to_string);
            }
            items.into_iter().map(in_any_order).collect()
        }
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (key, in_any_order(value)))
            .collect(),
        other => other,
    }
}

impl Patch {
    /// Adds the operations that change `raw` at `path`. Bounded in depth by `before` and `after`, which a type has written.
    fn edit(
        &mut self,
        raw: &RawValue,
        before: &Value,
        after: &Value,
        path: &mut String,
        lists: Lists,
    ) -> Result<(), serde_json::Error> {
        if before == after {
            return Ok(());
        }
        match (before, after) {
            (Value::Object(before), Value::Object(after)) if raw.get().starts_with('{') => {
                self.edit_object(raw, before, after, path, lists)
            }
            (Value::Array(before), Value::Array(after)) if raw.get().starts_with('[') => {
                self.edit_list(raw, before, after, path, lists)
            }
            _ => {
                self.operations.push(Operation::Replace {
                    path: path.clone(),
                    value: after.clone(),
                });
                Ok(())
            }
        }
    }

    fn edit_object(
        &mut self,
        raw: &RawValue,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
        path: &mut String,
        lists: Lists,
    ) -> Result<(), serde_json::Error> {
        // Keys with an escape do not borrow from the text.
        #[derive(Deserialize)]
        #[serde(transparent)]
        struct Fields<'a>(#[serde(borrow)] BTreeMap<Key<'a>, &'a RawValue>);
        #[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
        #[serde(transparent)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

        let fields: Fields<'_> = serde_json::from_str(raw.get())?;
        let empty = Value::Object(Map::new());
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for key in keys {
            let (old, new) = (present(before.get(key)), present(after.get(key)));
            if old == new {
                continue;
            }
            let raw = fields.0.get(&Key(Cow::Borrowed(key))).copied();
            let length = path.len();
            path.push('/');
            path.push_str(&key.replace('~', "~0").replace('/', "~1"));
            match (raw, old, new) {
                // Decoding had filled it in, and nothing is there to remove.
                (None, _, None) => {}
                (Some(_), _, None) => self.operations.push(Operation::Remove { path: path.clone() }),
                (None, _, Some(new)) => self.operations.push(Operation::Add {
                    path: path.clone(),
                    value: new.clone(),
                }),
                (Some(raw), Some(old), Some(new)) => self.edit(raw, old, new, path, lists)?,
                // The type left it out when it had no known content; unknown content stays.
                (Some(raw), None, Some(new)) if new.is_object() => {
                    self.edit(raw, &empty, new, path, lists)?;
                }
                (Some(_), None, Some(new)) => self.operations.push(Operation::Replace {
                    path: path.clone(),
                    value: new.clone(),
                }),
            }
            path.truncate(length);
        }
        Ok(())
    }
}

/// A value that is there: `null` is how types write one that is not.
fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

impl Patch {
    fn edit_list(
        &mut self,
        raw: &RawValue,
        before: &[Value],
        after: &[Value],
        path: &mut String,
        lists: Lists,
    ) -> Result<(), serde_json::Error> {
        let items: Vec<&RawValue> = serde_json::from_str(raw.get())?;
        if lists == Lists::Replaced || !is_in_order(&items, before) {
            // The type does not keep items one by one, or at their places.
            self.operations.push(Operation::Replace {
                path: path.clone(),
                value: Value::from(after),
            });
            return Ok(());
        }
        self.edits_lists = true;
        let origins = align(before, after);
        let kept: Vec<usize> = origins.iter().copied().flatten().collect();
        if !kept.is_sorted() {
            // Items have moved: the whole list is replaced, each item with what is unknown in it.
            let moved = after.iter().zip(&origins).map(|(item, origin)| {
                origin.map_or_else(
                    || Ok(item.clone()),
                    |index| overlay(items[index], &before[index], item),
                )
            });
            self.operations.push(Operation::Replace {
                path: path.clone(),
                value: moved.collect::<Result<_, _>>()?,
            });
            return Ok(());
        }
        for index in (0..before.len()).rev() {
            if kept.binary_search(&index).is_err() {
                self.operations.push(Operation::Remove {
                    path: format!("{path}/{index}"),
                });
            }
        }
        for (index, (item, origin)) in after.iter().zip(&origins).enumerate() {
            let length = path.len();
            path.push('/');
            path.push_str(&index.to_string());
            match origin {
                Some(origin) => self.edit(items[*origin], &before[*origin], item, path, lists)?,
                None => self.operations.push(Operation::Add {
                    path: path.clone(),
                    value: item.clone(),
                }),
            }
            path.truncate(length);
        }
        Ok(())
    }
}

/// The raw value, changed like `before` was changed to `after`.
fn overlay(raw: &RawValue, before: &Value, after: &Value) -> Result<Value, serde_json::Error> {
    Ok(overlay_value(serde_json::from_str(raw.get())?, before, after))
}

fn overlay_value(raw: Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return raw;
    }
    match (raw, before, after) {
        (Value::Object(mut raw), Value::Object(before), Value::Object(after)) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                let (old, new) = (present(before.get(key)), present(after.get(key)));
                if old == new {
                    continue;
                }
                let Some(new) = new else {
                    raw.remove(key);
                    continue;
                };
                let value = match (raw.remove(key), old) {
                    (Some(raw), Some(old)) => overlay_value(raw, old, new),
                    (Some(raw), None) if new.is_object() => {
                        overlay_value(raw, &Value::Object(Map::new()), new)
                    }
                    _ => new.clone(),
                };
                raw.insert(key.clone(), value);
            }
            Value::Object(raw)
        }
        (Value::Array(raw), Value::Array(before), Value::Array(after)) if is_in_order(&raw, before) => {
            let origins = align(before, after);
            let items = after.iter().zip(origins).map(|(item, origin)| match origin {
                Some(index) => overlay_value(raw[index].clone(), &before[index], item),
                None => item.clone(),
            });
            items.collect()
        }
        _ => after.clone(),
    }
}

#[cfg(test)]
mod tests;
