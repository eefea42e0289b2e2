//! Queries of a lister.

use std::{str::FromStr, sync::Arc};

use windlass_api::{fields, labels};

use crate::{
    entry::Entry,
    field_path::{FieldPath, InvalidFieldPath, or_empty},
    index::{Index, IndexDefinition},
    snapshot::{Bucket, Snapshot},
};

/// Selects objects to list. All conditions must hold; the default is every object.
///
/// ```
/// use windlass_cache::Query;
///
/// # fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let waiting = Query::all().namespace("shop").fields("spec.nodeName=,status.phase!=Failed".parse()?);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Query {
    namespace: Option<Box<str>>,
    labels: labels::Selector,
    fields: FieldSelector,
    indexes: Vec<(Arc<IndexDefinition>, Arc<str>)>,
    limit: Option<usize>,
}

impl Query {
    /// Selects every object.
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects only objects in this namespace.
    pub fn namespace(mut self, namespace: impl Into<Box<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Selects only objects whose labels match: a `Selector` or `Expression` of kube, or a [`labels::Selector`], which can
    /// also be parsed. Decodes nothing.
    pub fn labels(mut self, selector: impl Into<labels::Selector>) -> Self {
        self.labels = selector.into();
        self
    }

    /// Selects only objects whose fields match. An equality on an indexed field uses the index; any other field is read
    /// from each object's JSON, which is slower.
    pub fn fields(mut self, fields: FieldSelector) -> Self {
        self.fields = fields;
        self
    }

    /// Selects only objects with this value in the index. Several indexes are intersected.
    pub fn indexed<T>(mut self, index: &Index<T>, value: &str) -> Self {
        let value = index.definition.lookup_value(value).into();
        self.indexes.push((Arc::clone(&index.definition), value));
        self
    }

    /// Returns at most this many objects, the first by key.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Returns the matching entries, ordered by key. `known` are the indexes that the snapshot may have.
    pub(crate) fn run<'a>(
        &self,
        snapshot: &'a Snapshot,
        known: &[Arc<IndexDefinition>],
    ) -> Vec<&'a Arc<Entry>> {
        let limit = self.limit.unwrap_or(usize::MAX);
        let Some(mut plan) = self.plan(snapshot, known) else {
            return Vec::new();
        };
        // Iterate over the smallest set; it needs no membership test then.
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
                let all = snapshot.objects.in_namespace(self.namespace.as_deref());
                all.filter(matching).take(limit).collect()
            }
        }
    }

    /// Plans the query; `None` if an index shows that nothing matches.
    fn plan<'q, 'a>(
        &'q self,
        snapshot: &'a Snapshot,
        known: &[Arc<IndexDefinition>],
    ) -> Option<Plan<'q, 'a>> {
        let mut plan = Plan::default();
        for (index, value) in &self.indexes {
            match snapshot.indexes.get(&index.id) {
                Some(buckets) => plan.sets.push(buckets.get(value)?),
                None => plan.unindexed.push((index, value)),
            }
        }
        for Requirement {
            path,
            values,
            must_match,
        } in &self.fields.0
        {
            // An absent field is in no bucket.
            if let ([value], true) = (&values[..], must_match)
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
            && self.labels.matches(|name| meta.label(name))
            && plan
                .unindexed
                .iter()
                .all(|(index, value)| index.values(entry).contains(value))
            && (self.fields.0.is_empty() || entry.text().is_some_and(|text| self.fields.matches(&text)))
    }
}

/// How indexes help with a query.
#[derive(Default)]
struct Plan<'q, 'a> {
    /// The objects must be in all of these.
    sets: Vec<&'a Bucket>,
    /// Indexes of another cache: their values are computed for each object.
    unindexed: Vec<(&'q Arc<IndexDefinition>, &'q Arc<str>)>,
}

/// Conditions on fields in the server's syntax: `spec.nodeName=n1,status.phase!=Running`. An absent field equals the
/// empty string. A field with several values matches if any of them does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct FieldSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    path: FieldPath,
    values: Vec<Box<str>>,
    /// Whether the field must have one of the values, or none of them.
    must_match: bool,
}

impl FieldSelector {
    /// Creates a selector without conditions.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requires the field to equal this value.
    pub fn equal(self, path: FieldPath, value: impl Into<Box<str>>) -> Self {
        self.and(path, vec![value.into()], true)
    }

    /// Requires the field to equal one of these values.
    pub fn is_in(self, path: FieldPath, values: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.and(path, values.into_iter().map(Into::into).collect(), true)
    }

    fn and(mut self, path: FieldPath, values: Vec<Box<str>>, must_match: bool) -> Self {
        self.0.push(Requirement {
            path,
            values,
            must_match,
        });
        self
    }

    /// Returns whether all fields are in the metadata.
    pub(crate) fn is_metadata_only(&self) -> bool {
        self.0.iter().all(|requirement| requirement.path.is_in_metadata())
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        self.0.iter().all(|requirement| {
            let values = or_empty(requirement.path.values(text));
            let found = values
                .iter()
                .any(|value| requirement.values.iter().any(|expected| **expected == **value));
            found == requirement.must_match
        })
    }
}

impl FromStr for FieldSelector {
    type Err = InvalidFieldPath;

    fn from_str(text: &str) -> Result<Self, InvalidFieldPath> {
        let selector: fields::Selector = text.parse().map_err(|_| InvalidFieldPath::from(text))?;
        let mut fields = Self::default();
        for requirement in selector {
            let path = requirement.field.trim().parse()?;
            fields = fields.and(path, vec![requirement.value.trim().into()], requirement.equal);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selector_matches_like_the_server() {
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
                fields.parse::<FieldSelector>().expect("fields").matches(text),
                expected,
                "{fields}"
            );
        }
        let phase: FieldPath = "status.phase".parse().expect("a path");
        assert!(
            FieldSelector::any()
                .is_in(phase, ["Pending", "Running"])
                .matches(text)
        );
        assert!("spec.nodeName".parse::<FieldSelector>().is_err());
        assert!("spec.nodeName=a=b".parse::<FieldSelector>().is_err());
    }
}
