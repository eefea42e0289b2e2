//! `metadata.managedFields`: who wrote which fields, how, and when.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{HashMap, hash_map},
};

use serde::Deserialize;
use serde_json::Value;

use super::Set;
use crate::{encode, json};

/// The account of an object, one entry a manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Managed<'a>(pub(super) Vec<Entry<'a>>);

/// What one manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(super) manager: Manager<'a>,
    /// The version that the fields are named at.
    pub(super) version: Cow<'a, str>,
    pub(super) time: Option<Cow<'a, str>>,
    pub(super) fields: Set<'a>,
}

/// Whom an entry belongs to. An applier is the same at whatever version it applies.
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

/// An entry as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Written<'a> {
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
    fields_v1: Option<Set<'a>>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
}

impl<'a> Written<'a> {
    pub(super) fn understood(self) -> Option<Entry<'a>> {
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
    /// Reads an account as it is stored; an empty one where it cannot be understood.
    pub(crate) fn read(json: &'a str) -> Self {
        if json.is_empty() {
            return Self::default();
        }
        let written: Vec<Written<'a>> = json::parse(json).unwrap_or_default();
        Self::understood(written).unwrap_or_default()
    }

    /// Reads an account that a client sent; none where it cannot be understood.
    pub(crate) fn of_client(said: &'a Value) -> Option<Self> {
        Self::understood(Vec::deserialize(said).ok()?)
    }

    fn understood(written: Vec<Written<'a>>) -> Option<Self> {
        let entries: Option<Vec<_>> = written.into_iter().map(Written::understood).collect();
        Some(Self::of_entries(entries?))
    }

    /// Of two entries of one manager the later counts, at the place of the first.
    pub(super) fn of_entries(entries: Vec<Entry<'a>>) -> Self {
        let mut managed = Self(Vec::with_capacity(entries.len()));
        if entries.len() <= UPDATERS {
            for entry in entries {
                match managed.find(&entry.manager) {
                    Some(place) => managed.0[place] = entry,
                    None => managed.0.push(entry),
                }
            }
            return managed;
        }
        let mut places = HashMap::with_capacity(entries.len());
        for entry in entries {
            match places.entry(entry.manager.clone()) {
                hash_map::Entry::Occupied(place) => managed.0[*place.get()] = entry,
                hash_map::Entry::Vacant(place) => {
                    place.insert(managed.0.len());
                    managed.0.push(entry);
                }
            }
        }
        managed
    }

    /// Where the entry of each manager is.
    pub(super) fn places(&self) -> HashMap<Manager<'a>, usize> {
        let managers = self.0.iter().map(|entry| entry.manager.clone());
        managers.zip(0..).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn find(&self, manager: &Manager<'_>) -> Option<usize> {
        self.0.iter().position(|entry| entry.manager == *manager)
    }

    /// Drops those who own nothing.
    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|entry| !entry.fields.is_empty());
    }

    /// The account as it is stored; empty where nobody owns anything.
    pub(crate) fn write(mut self) -> String {
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

    /// What each manager owns.
    #[cfg(test)]
    pub(super) fn fields(self) -> impl Iterator<Item = (String, Set<'a>)> {
        self.0
            .into_iter()
            .map(|entry| (entry.manager.name.into_owned(), entry.fields))
    }

    /// Whether two accounts differ in nothing but times.
    pub(crate) fn is_same_but_for_times(&self, other: &Managed<'_>) -> bool {
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

    /// Writes the entry with fields that are written already.
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

/// How many entries of those who do not apply are kept; older ones are folded into one.
const UPDATERS: usize = 10;

/// What the entries that were folded into one are called.
const FOLDED: &str = "ancient-changes";

impl<'a> Managed<'a> {
    /// Folds the oldest entries of a version into one until there are few enough.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<Manager<'a>> = self
            .0
            .iter()
            .filter(|entry| entry.manager.operation == Operation::Update)
            .map(|entry| entry.manager.clone())
            .collect();
        if updaters.len() <= UPDATERS {
            return;
        }
        let mut places = self.places();
        let key = |manager: &Manager<'a>| {
            let time = places.get(manager).and_then(|place| self.0[*place].time.clone());
            (time.unwrap_or_default(), manager.text())
        };
        updaters.sort_by_cached_key(key);
        let mut left = updaters.len();
        let mut first: HashMap<Cow<'a, str>, Manager<'a>> = HashMap::new();
        let mut folded: HashMap<Manager<'a>, Vec<Set<'a>>> = HashMap::new();
        for manager in updaters {
            if left <= UPDATERS {
                break;
            }
            let version = manager.version.clone();
            let earlier = match first.entry(version.clone()) {
                hash_map::Entry::Occupied(earlier) => earlier.into_mut(),
                hash_map::Entry::Vacant(place) => {
                    place.insert(manager);
                    continue;
                }
            };
            let bucket = Manager {
                name: Cow::Borrowed(FOLDED),
                operation: Operation::Update,
                version,
                subresource: Cow::Borrowed(""),
            };
            if !places.contains_key(&bucket)
                && let Some(place) = places.remove(earlier)
            {
                self.0[place].manager = bucket.clone();
                places.insert(bucket.clone(), place);
            }
            if let Some(place) = places.remove(&manager) {
                let old = self.0.swap_remove(place);
                if let Some(moved) = self.0.get(place) {
                    places.insert(moved.manager.clone(), place);
                }
                if let Some(place) = places.get(&bucket) {
                    self.0[*place].time = old.time;
                    folded.entry(bucket).or_default().push(old.fields);
                }
                left -= 1;
            }
        }
        for (bucket, mut sets) in folded {
            if let Some(place) = places.get(&bucket) {
                let into = &mut self.0[*place].fields;
                sets.push(std::mem::take(into));
                *into = Set::union_all(sets);
            }
        }
    }
}

impl Manager<'_> {
    /// What managers are sorted by where nothing else tells them apart: their JSON.
    pub(super) fn text(&self) -> String {
        let fields = [
            ("manager", &*self.name),
            ("operation", self.operation.name()),
            ("apiVersion", &self.version),
            ("subresource", &self.subresource),
        ];
        let said = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let said: Vec<_> = said
            .map(|(name, value)| format!("\"{name}\":{}", Value::from(value)))
            .collect();
        format!("{{{}}}", said.join(","))
    }

    /// As messages name it.
    pub(super) fn shown(&self) -> String {
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
