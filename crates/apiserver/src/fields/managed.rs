//! `metadata.managedFields`: which manager wrote which fields, how, and when.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{HashMap, hash_map},
};

use serde::Deserialize;
use serde_json::Value;

use super::FieldSet;
use crate::{encode, json};

/// The parsed managed fields of an object, one entry per manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Managed<'a>(pub(super) Vec<Entry<'a>>);

/// What one manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(super) manager: Manager<'a>,
    /// The API version that the field names refer to.
    pub(super) version: Cow<'a, str>,
    pub(super) time: Option<Cow<'a, str>>,
    pub(super) fields: FieldSet<'a>,
}

/// The identity of an entry's manager. An applier is the same at every version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Manager<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) operation: Operation,
    /// Empty for an applier.
    pub(crate) version: Cow<'a, str>,
    /// Empty for the object itself.
    pub(crate) subresource: Cow<'a, str>,
}

/// How a manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// An entry in its JSON form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EntryJson<'a> {
    #[serde(borrow, default)]
    manager: Cow<'a, str>,
    #[serde(borrow, default)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    fields_type: Cow<'a, str>,
    #[serde(borrow, default)]
    fields_v1: Option<FieldSet<'a>>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
}

impl<'a> EntryJson<'a> {
    pub(super) fn into_entry(self) -> Option<Entry<'a>> {
        let operation = match &*self.operation {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if self.api_version.is_empty() || self.fields_type != "FieldsV1" {
            return None;
        }
        let version = match operation {
            Operation::Apply => Cow::Borrowed(""),
            Operation::Update => self.api_version.clone(),
        };
        Some(Entry {
            manager: Manager {
                name: self.manager,
                operation,
                version,
                subresource: self.subresource,
            },
            version: self.api_version,
            time: self.time,
            fields: self.fields_v1.unwrap_or_default(),
        })
    }
}

impl<'a> Managed<'a> {
    /// Parses stored managed fields; empty if they are invalid.
    pub(crate) fn parse(json: &'a str) -> Self {
        if json.is_empty() {
            return Self::default();
        }
        let written: Vec<EntryJson<'a>> = json::parse(json).unwrap_or_default();
        Self::understood(written).unwrap_or_default()
    }

    /// Parses managed fields that a client sent; none if they are invalid.
    pub(crate) fn from_client(submitted: &'a Value) -> Option<Self> {
        Self::understood(Vec::deserialize(submitted).ok()?)
    }

    /// The versions at which stored managed fields were written, without parsing the fields.
    pub(crate) fn versions_in(json: &str) -> impl Iterator<Item = &str> {
        // Quotes inside strings are escaped, so every match is a key, and names of fields begin with `f:`.
        const KEY: &str = "\"apiVersion\":\"";
        json.match_indices(KEY).map(move |(offset, _)| {
            let rest = &json[offset + KEY.len()..];
            rest.split_once('"').map_or(rest, |(version, _)| version)
        })
    }

    fn understood(written: Vec<EntryJson<'a>>) -> Option<Self> {
        let entries: Option<Vec<_>> = written.into_iter().map(EntryJson::into_entry).collect();
        Some(Self::from_entries(entries?))
    }

    /// The last of several entries of one manager wins, at the position of the first.
    pub(super) fn from_entries(entries: Vec<Entry<'a>>) -> Self {
        let mut managed = Self(Vec::with_capacity(entries.len()));
        if entries.len() <= MAX_UPDATE_MANAGERS {
            for entry in entries {
                match managed.find(&entry.manager) {
                    Some(position) => managed.0[position] = entry,
                    None => managed.0.push(entry),
                }
            }
            return managed;
        }
        let mut positions = HashMap::with_capacity(entries.len());
        for entry in entries {
            match positions.entry(entry.manager.clone()) {
                hash_map::Entry::Occupied(position) => managed.0[*position.get()] = entry,
                hash_map::Entry::Vacant(position) => {
                    position.insert(managed.0.len());
                    managed.0.push(entry);
                }
            }
        }
        managed
    }

    /// The position of each manager's entry.
    pub(super) fn positions(&self) -> HashMap<Manager<'a>, usize> {
        let managers = self.0.iter().map(|entry| entry.manager.clone());
        managers.zip(0..).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn find(&self, manager: &Manager<'_>) -> Option<usize> {
        self.0.iter().position(|entry| entry.manager == *manager)
    }

    /// Drops entries without fields.
    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|entry| !entry.fields.is_empty());
    }

    /// The stored JSON; empty if there are no entries.
    pub(crate) fn into_json(mut self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        self.0.sort_by(Entry::order);
        let mut json = Vec::with_capacity(512);
        for (index, entry) in self.0.iter().enumerate() {
            json.push(if index == 0 { b'[' } else { b',' });
            entry.write(&mut json);
        }
        json.push(b']');
        String::from_utf8(json).expect("JSON is text")
    }

    /// The fields of each manager.
    #[cfg(test)]
    pub(super) fn fields(self) -> impl Iterator<Item = (String, FieldSet<'a>)> {
        self.0
            .into_iter()
            .map(|entry| (entry.manager.name.into_owned(), entry.fields))
    }

    /// Whether two objects' managed fields are equal except for their times.
    pub(crate) fn equals_ignoring_times(&self, other: &Managed<'_>) -> bool {
        let same = |(a, b): (&Entry<'_>, &Entry<'_>)| {
            a.manager == b.manager && a.version == b.version && a.fields == b.fields
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}

impl Entry<'_> {
    /// Appliers first, then by time to the second, then by name.
    fn order(&self, other: &Self) -> Ordering {
        let key = |entry: &Self| (entry.manager.operation, entry.time.clone().unwrap_or_default());
        key(self)
            .cmp(&key(other))
            .then_with(|| self.manager.name.cmp(&other.manager.name))
            .then_with(|| self.version.cmp(&other.version))
            .then_with(|| self.manager.subresource.cmp(&other.manager.subresource))
    }

    fn write(&self, json: &mut Vec<u8>) {
        self.write_with(json, |json| self.fields.write(json));
    }

    /// Writes the entry with fields that `fields` writes.
    pub(super) fn write_with(&self, json: &mut Vec<u8>, fields: impl FnOnce(&mut Vec<u8>)) {
        let mut field = |name: &str, text: &str| {
            json.extend_from_slice(name.as_bytes());
            encode::write_text(json, text);
        };
        if self.manager.name.is_empty() {
            field("{\"operation\":", self.manager.operation.name());
        } else {
            field("{\"manager\":", &self.manager.name);
            field(",\"operation\":", self.manager.operation.name());
        }
        field(",\"apiVersion\":", &self.version);
        if let Some(time) = &self.time {
            field(",\"time\":", time);
        }
        json.extend_from_slice(b",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":");
        fields(json);
        if !self.manager.subresource.is_empty() {
            json.extend_from_slice(b",\"subresource\":");
            encode::write_text(json, &self.manager.subresource);
        }
        json.push(b'}');
    }
}

/// The maximum number of `Update` entries; older ones are merged into one.
const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager of the merged entry.
const MERGED_MANAGER: &str = "ancient-changes";

impl<'a> Managed<'a> {
    /// Merges the oldest `Update` entries of a version into one until at most [`MAX_UPDATE_MANAGERS`] are left.
    pub(super) fn merge_oldest_updates(&mut self) {
        let mut updaters: Vec<Manager<'a>> = self
            .0
            .iter()
            .filter(|entry| entry.manager.operation == Operation::Update)
            .map(|entry| entry.manager.clone())
            .collect();
        if updaters.len() <= MAX_UPDATE_MANAGERS {
            return;
        }
        let mut positions = self.positions();
        let key = |manager: &Manager<'a>| {
            let time = positions
                .get(manager)
                .and_then(|position| self.0[*position].time.clone());
            (time.unwrap_or_default(), manager.sort_key())
        };
        updaters.sort_by_cached_key(key);
        let mut left = updaters.len();
        let mut first: HashMap<Cow<'a, str>, Manager<'a>> = HashMap::new();
        let mut folded: HashMap<Manager<'a>, Vec<FieldSet<'a>>> = HashMap::new();
        for manager in updaters {
            if left <= MAX_UPDATE_MANAGERS {
                break;
            }
            let version = manager.version.clone();
            let earlier = match first.entry(version.clone()) {
                hash_map::Entry::Occupied(earlier) => earlier.into_mut(),
                hash_map::Entry::Vacant(position) => {
                    position.insert(manager);
                    continue;
                }
            };
            let bucket = Manager {
                name: Cow::Borrowed(MERGED_MANAGER),
                operation: Operation::Update,
                version,
                subresource: Cow::Borrowed(""),
            };
            if !positions.contains_key(&bucket)
                && let Some(position) = positions.remove(earlier)
            {
                self.0[position].manager = bucket.clone();
                positions.insert(bucket.clone(), position);
            }
            if let Some(position) = positions.remove(&manager) {
                let old = self.0.swap_remove(position);
                if let Some(moved) = self.0.get(position) {
                    positions.insert(moved.manager.clone(), position);
                }
                if let Some(position) = positions.get(&bucket) {
                    self.0[*position].time = old.time;
                    folded.entry(bucket).or_default().push(old.fields);
                }
                left -= 1;
            }
        }
        for (bucket, mut sets) in folded {
            if let Some(position) = positions.get(&bucket) {
                let into = &mut self.0[*position].fields;
                sets.push(std::mem::take(into));
                *into = FieldSet::union_all(sets);
            }
        }
    }
}

impl Manager<'_> {
    /// The manager's JSON, which breaks ties in sort orders.
    pub(super) fn sort_key(&self) -> String {
        let fields = [
            ("manager", &*self.name),
            ("operation", self.operation.name()),
            ("apiVersion", &self.version),
            ("subresource", &self.subresource),
        ];
        let set = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let set: Vec<_> = set
            .map(|(name, value)| format!("\"{name}\":{}", Value::from(value)))
            .collect();
        format!("{{{}}}", set.join(","))
    }

    /// For conflict messages.
    pub(super) fn display_name(&self) -> String {
        let part = match &*self.subresource {
            "" => String::new(),
            part => format!(" with subresource {part:?}"),
        };
        let version = match self.operation {
            Operation::Apply => String::new(),
            Operation::Update => format!(" using {}", self.version),
        };
        format!("{:?}{part}{version}", self.name)
    }
}
