//! Which old value a value corresponds to, and whether it is equal to it.
//!
//! Fields and entries correspond by name, items of a list of type map by their keys, and others not at all. Only what the
//! schema describes is compared: an object with a field without a schema never equals its old state.

use std::collections::HashMap;

use serde_json::{Map as JsonMap, Value as Json};

use crate::schema::MAX_SCHEMA_DEPTH;

/// How the values of a schema correspond to their old states.
#[derive(Debug, Default)]
pub(super) struct Shape {
    properties: HashMap<Box<str>, Shape, foldhash::fast::FixedState>,
    values: Option<Box<Shape>>,
    items: Option<Box<Shape>>,
    /// The keys of a list of type map.
    keys: Option<Box<[Box<str>]>>,
}

impl Shape {
    pub(super) fn from_openapi(schema: &Json) -> Self {
        Self::read(schema, 0)
    }

    fn read(schema: &Json, depth: usize) -> Self {
        if depth > MAX_SCHEMA_DEPTH {
            return Self::default();
        }
        let part = |name: &str| {
            let inner = schema.get(name).filter(|inner| inner.is_object())?;
            Some(Box::new(Self::read(inner, depth + 1)))
        };
        let text = |name: &str| schema.get(name).and_then(Json::as_str).unwrap_or_default();
        let properties = schema
            .get("properties")
            .and_then(Json::as_object)
            .into_iter()
            .flatten();
        let keys = schema.get("x-kubernetes-list-map-keys").and_then(Json::as_array);
        let keys = keys
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .map(Into::into);
        Self {
            properties: properties
                .map(|(name, property)| (name.as_str().into(), Self::read(property, depth + 1)))
                .collect(),
            values: part("additionalProperties"),
            items: part("items"),
            keys: (text("type") == "array" && text("x-kubernetes-list-type") == "map")
                .then(|| keys.collect()),
        }
    }

    pub(super) fn property(&self, name: &str) -> Option<&Self> {
        self.properties.get(name)
    }

    pub(super) fn values(&self) -> Option<&Self> {
        self.values.as_deref()
    }

    pub(super) fn items(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    /// The shape of a field or an entry.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        self.property(name).or(self.values())
    }
}

/// A value with its old state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    pub(super) value: &'a Json,
    pub(super) old: &'a Json,
    pub(super) shape: &'a Shape,
}

impl<'a> Pair<'a> {
    pub(super) fn field(&self, name: &str) -> Option<Self> {
        Some(Self {
            value: self.value.as_object()?.get(name)?,
            old: self.old.as_object()?.get(name)?,
            shape: self.shape.field(name)?,
        })
    }

    /// The pair of an item; `items` has those of the old list.
    pub(super) fn item(&self, item: &'a Json, items: &OldItems<'a>) -> Option<Self> {
        Some(Self {
            value: item,
            old: items.get(item).filter(|_| self.old.is_array())?,
            shape: self.shape.items()?,
        })
    }
}

/// The items of an old list of type map, by their keys.
#[derive(Debug, Default)]
pub(super) struct OldItems<'a> {
    keys: &'a [Box<str>],
    items: HashMap<Key<'a>, &'a Json, foldhash::fast::RandomState>,
}

/// The values of an item's keys.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key<'a> {
    Bool(bool),
    Int(i64),
    /// The bits of a float.
    Float(u64),
    Text(&'a str),
    /// Several, as text.
    Several(String),
}

impl<'a> OldItems<'a> {
    /// Empty if the list is not one of type map.
    pub(super) fn new(shape: Option<&'a Shape>, old: Option<&'a Json>) -> Self {
        let keys = shape.and_then(|shape| shape.keys.as_deref()).unwrap_or_default();
        let old = old.and_then(Json::as_array);
        let (false, Some(old)) = (keys.is_empty(), old) else {
            return Self::default();
        };
        let mut items = HashMap::with_capacity_and_hasher(old.len(), foldhash::fast::RandomState::default());
        for item in old {
            if let Some(key) = item.as_object().and_then(|item| key_of(item, keys)) {
                // Of items with the same keys the first counts.
                items.entry(key).or_insert(item);
            }
        }
        Self { keys, items }
    }

    pub(super) fn get(&self, item: &Json) -> Option<&'a Json> {
        if self.items.is_empty() {
            return None;
        }
        let key = key_of(item.as_object()?, self.keys)?;
        self.items.get(&key).copied()
    }
}

fn key_of<'a>(item: &'a JsonMap<String, Json>, keys: &[Box<str>]) -> Option<Key<'a>> {
    use std::fmt::Write;

    if let [key] = keys {
        return Some(match item.get(&**key)? {
            Json::Bool(value) => Key::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(number) => Key::Int(number),
                None => Key::Float(number.as_f64()?.to_bits()),
            },
            Json::String(text) => Key::Text(text),
            _ => return None,
        });
    }
    let mut several = String::new();
    for key in keys {
        let value = item.get(&**key)?;
        let _ = match value {
            Json::Number(number) if number.as_i64().is_none() => {
                // kube-apiserver writes six digits.
                write!(several, "\0{:.6}", number.as_f64()?)
            }
            Json::Bool(_) | Json::Number(_) | Json::String(_) => write!(several, "\0{value}"),
            _ => return None,
        };
    }
    Some(Key::Several(several))
}

/// Compares values with their old states. Each list and object is compared once.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// By the address of the new value, which has one old state only.
    known: HashMap<*const Json, bool, foldhash::fast::RandomState>,
}

impl Comparison {
    pub(super) fn is_unchanged(&mut self, pair: Pair<'_>) -> bool {
        if !pair.value.is_array() && !pair.value.is_object() {
            return pair.value == pair.old;
        }
        let address = std::ptr::from_ref(pair.value);
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let is_unchanged = self.compare(pair);
        self.known.insert(address, is_unchanged);
        is_unchanged
    }

    fn compare(&mut self, pair: Pair<'_>) -> bool {
        match (pair.value, pair.old) {
            (Json::Array(items), Json::Array(old)) if items.len() == old.len() => {
                if pair.shape.keys.is_none() {
                    return items == old;
                }
                let old_items = OldItems::new(Some(pair.shape), Some(pair.old));
                items.iter().all(|item| {
                    pair.item(item, &old_items)
                        .is_some_and(|item| self.is_unchanged(item))
                })
            }
            (Json::Object(fields), Json::Object(old)) if fields.len() == old.len() => fields
                .keys()
                .all(|name| pair.field(name).is_some_and(|field| self.is_unchanged(field))),
            _ => false,
        }
    }
}
