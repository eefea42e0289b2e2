//! Which objects a lister is asked for.

use std::{str::FromStr, sync::Arc};

use kube::core::{Selector, SelectorExt};

use crate::{
    entry::Entry,
    index::{Definition, Index},
    path::{FieldPath, InvalidPath, or_empty},
    snapshot::{Bucket, Snapshot},
};

/// What to list. Everything that is said must hold; the default is every object.
///
/// ```
/// use windlass_cache::{Fields, Query};
///
/// # fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let waiting = Query::all().namespace("shop").fields("spec.nodeName=,status.phase!=Failed".parse()?);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Query {
    namespace: Option<Box<str>>,
    labels: Option<Selector>,
    fields: Fields,
    indexes: Vec<(Arc<Definition>, Arc<str>)>,
    limit: Option<usize>,
}

impl Query {
    /// Every object.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only objects in this namespace.
    pub fn namespace(mut self, namespace: impl Into<Box<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only objects whose labels match. Decodes nothing.
    pub fn labels(mut self, selector: impl Into<Selector>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects whose fields match. A field that has an index is looked up there when it must equal something;
    /// any other is read from each object's JSON, which is slower.
    pub fn fields(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    /// Only objects that have this value in the index. More than one index: those that are in all.
    pub fn indexed<T>(mut self, index: &Index<T>, value: &str) -> Self {
        let value = index.definition.asked(value).into();
        self.indexes.push((Arc::clone(&index.definition), value));
        self
    }

    /// No more than so many, the first by key.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The entries that match, by key. `known` are the indexes that the snapshot may have.
    pub(crate) fn run<'a>(&self, snapshot: &'a Snapshot, known: &[Arc<Definition>]) -> Vec<&'a Arc<Entry>> {
        let limit = self.limit.unwrap_or(usize::MAX);
        let Some(mut plan) = self.plan(snapshot, known) else {
            return Vec::new();
        };
        // What is taken from a set need not be looked for in it.
        let narrowest = (0..plan.sets.len()).min_by_key(|place| plan.sets[*place].len());
        let narrowest = narrowest.map(|place| plan.sets.swap_remove(place));
        let matching = |entry: &&'a Arc<Entry>| self.matches(entry, &plan);
        match narrowest {
            Some(narrowest) => {
                let found = narrowest
                    .values()
                    .filter_map(|slot| snapshot.objects.in_slot(*slot));
                found.filter(matching).take(limit).collect()
            }
            None => {
                let all = snapshot.objects.within(self.namespace.as_deref());
                all.filter(matching).take(limit).collect()
            }
        }
    }

    /// How to find the objects; `None` if an index says that there are none.
    fn plan<'q, 'a>(&'q self, snapshot: &'a Snapshot, known: &[Arc<Definition>]) -> Option<Plan<'q, 'a>> {
        let mut plan = Plan::default();
        for (index, value) in &self.indexes {
            match snapshot.indexes.get(&index.id) {
                Some(buckets) => plan.sets.push(buckets.get(value)?),
                None => plan.unindexed.push((index, value)),
            }
        }
        for Requirement { path, values, wanted } in &self.fields.0 {
            // An absent field is in no bucket.
            if let ([value], true) = (&values[..], wanted)
                && !value.is_empty()
                && let Some(index) = known.iter().find(|index| index.is_for_field(path))
                && let Some(buckets) = snapshot.indexes.get(&index.id)
            {
                plan.sets.push(buckets.get(&**value)?);
            }
        }
        Some(plan)
    }

    fn matches(&self, entry: &Entry, plan: &Plan<'_, '_>) -> bool {
        let meta = &entry.meta;
        self.namespace
            .as_deref()
            .is_none_or(|namespace| *meta.key.namespace == *namespace)
            && plan.sets.iter().all(|set| set.contains_key(&meta.key))
            && self
                .labels
                .as_ref()
                .is_none_or(|selector| selector.selects_all() || selector.matches(&meta.label_map()))
            && plan
                .unindexed
                .iter()
                .all(|(index, value)| index.values(entry).contains(value))
            && (self.fields.0.is_empty() || entry.text().is_some_and(|text| self.fields.matches(&text)))
    }
}

/// What indexes say about a query.
#[derive(Default)]
struct Plan<'q, 'a> {
    /// Only objects that are in all of these.
    sets: Vec<&'a Bucket>,
    /// Indexes of another cache, which say nothing here: each object is asked.
    unindexed: Vec<(&'q Arc<Definition>, &'q Arc<str>)>,
}

/// Conditions on fields, as on the server: `spec.nodeName=n1,status.phase!=Running`. A field that is absent equals
/// the empty text. One that has several values matches if any of them does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Fields(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    path: FieldPath,
    /// One of these…
    values: Vec<Box<str>>,
    /// …must be, or must not be.
    wanted: bool,
}

impl Fields {
    /// No condition.
    pub fn any() -> Self {
        Self::default()
    }

    /// The field is this.
    pub fn equal(self, path: FieldPath, value: impl Into<Box<str>>) -> Self {
        self.and(path, vec![value.into()], true)
    }

    /// The field is not this.
    pub fn not_equal(self, path: FieldPath, value: impl Into<Box<str>>) -> Self {
        self.and(path, vec![value.into()], false)
    }

    /// The field is one of these.
    pub fn is_in(self, path: FieldPath, values: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.and(path, values.into_iter().map(Into::into).collect(), true)
    }

    /// The field is none of these.
    pub fn not_in(self, path: FieldPath, values: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.and(path, values.into_iter().map(Into::into).collect(), false)
    }

    fn and(mut self, path: FieldPath, values: Vec<Box<str>>, wanted: bool) -> Self {
        self.0.push(Requirement { path, values, wanted });
        self
    }

    /// Whether metadata alone is enough to tell.
    pub(crate) fn is_of_metadata(&self) -> bool {
        self.0.iter().all(|requirement| requirement.path.is_of_metadata())
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        self.0.iter().all(|requirement| {
            let values = or_empty(requirement.path.values(text));
            let found = values
                .iter()
                .any(|value| requirement.values.iter().any(|wanted| **wanted == **value));
            found == requirement.wanted
        })
    }
}

impl FromStr for Fields {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        let mut fields = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (path, value, wanted) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, value, true)
            } else {
                return Err(InvalidPath::from(part));
            };
            fields = fields.and(path.trim().parse()?, vec![value.trim().into()], wanted);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_compared_as_the_server_does() {
        let text =
            br#"{"spec":{"nodeName":"n1"},"status":{"phase":"Running","ips":[{"ip":"1"},{"ip":"2"}]}}"#;
        for (fields, expected) in [
            ("", true),
            ("spec.nodeName=n1", true),
            ("spec.nodeName==n1,status.phase=Running", true),
            ("spec.nodeName=n2", false),
            ("spec.nodeName!=n1", false),
            ("spec.absent=", true),
            ("spec.absent!=x", true),
            ("status.ips.ip=2", true),
            ("status.ips.ip!=2", false),
        ] {
            assert_eq!(
                fields.parse::<Fields>().expect("fields").matches(text),
                expected,
                "{fields}"
            );
        }
        let phase: FieldPath = "status.phase".parse().expect("a path");
        assert!(
            Fields::any()
                .is_in(phase.clone(), ["Pending", "Running"])
                .matches(text)
        );
        assert!(!Fields::any().not_in(phase, ["Pending", "Running"]).matches(text));
        assert!("spec.nodeName".parse::<Fields>().is_err());
    }
}
