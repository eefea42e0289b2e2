//! The selectors of a list or watch.

use std::{fmt::Display, sync::Arc};

use windlass_api::{fields, labels};

use crate::{crd, object::Encoded, registry::Resource, status::Status, storage::Entry};

/// Selects the objects of a list or watch, by labels and fields.
///
/// A watch compares every event with it, so its requirements are merged by label and by field: a comparison takes about
/// as long for a selector of 60 KB as for a short one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: labels::Matcher,
    /// One per field.
    fields: Vec<FieldRule>,
}

/// All requirements on one field.
#[derive(Clone, Debug)]
struct FieldRule {
    /// The index in the resource's list of selectable fields.
    place: usize,
    /// Whether the field has the same value in every version.
    is_of_all_versions: bool,
    required: Option<String>,
    /// Whether two different values are required, so that nothing matches.
    is_contradictory: bool,
    /// Sorted.
    excluded: Vec<String>,
}

impl FieldRule {
    fn new(place: usize, field: &str) -> Self {
        Self {
            place,
            is_of_all_versions: matches!(field, "metadata.name" | "metadata.namespace"),
            required: None,
            is_contradictory: false,
            excluded: Vec::new(),
        }
    }

    fn require(&mut self, value: String) {
        let other = self.required.as_ref().filter(|other| **other != value);
        self.is_contradictory |= other.is_some();
        self.required = Some(value);
    }

    fn matches(&self, value: &str) -> bool {
        let is_excluded = || self.excluded.binary_search_by(|known| (**known).cmp(value));
        !self.is_contradictory
            && self.required.as_ref().is_none_or(|required| required == value)
            && is_excluded().is_err()
    }
}

impl Selector {
    pub(crate) fn parse(
        labels: Option<&str>,
        fields: Option<&str>,
        resource: &Resource,
    ) -> Result<Self, Status> {
        Ok(Self {
            labels: parse_labels(labels.unwrap_or_default())?,
            fields: fields.map_or(Ok(Vec::new()), |text| parse_fields(text, resource))?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Also requires a name.
    pub(crate) fn with_name(mut self, name: &str) -> Self {
        // It is the first selectable field of every resource.
        rule_of(&mut self.fields, 0, "metadata.name").require(name.to_owned());
        self
    }

    /// Whether a stored entry matches, as the resource's version shows it. It is converted only for a field that differs
    /// between versions, and the copy is not kept.
    pub(crate) fn matches_entry(&self, resource: &Resource, entry: &Arc<Entry>) -> Result<bool, Status> {
        if self.is_empty() {
            return Ok(true);
        }
        // A webhook may change labels, too.
        if crd::has_webhook(resource) {
            return Ok(self.matches(&crd::convert_for_read(resource, entry.clone())?.object));
        }
        if self.fields.iter().all(|rule| rule.is_of_all_versions) {
            return Ok(self.matches(&entry.object));
        }
        // Labels are cheaper to compare.
        if !self.labels.matches(entry.object.labels()) {
            return Ok(false);
        }
        Ok(self.matches(&crd::convert_for_read(resource, entry.clone())?.object))
    }

    fn matches(&self, object: &Encoded) -> bool {
        self.labels.matches(object.labels())
            && self
                .fields
                .iter()
                .all(|rule| rule.matches(object.field(rule.place)))
    }
}

fn bad_request(error: impl Display) -> Status {
    Status::bad_request(error.to_string())
}

fn parse_labels(text: &str) -> Result<labels::Matcher, Status> {
    let selector: labels::Selector = text.parse().map_err(bad_request)?;
    Ok(selector.into())
}

/// The rule of a field, which is added if there is none.
fn rule_of<'a>(rules: &'a mut Vec<FieldRule>, place: usize, field: &str) -> &'a mut FieldRule {
    let index = rules.iter().position(|rule| rule.place == place);
    let index = index.unwrap_or_else(|| {
        rules.push(FieldRule::new(place, field));
        rules.len() - 1
    });
    &mut rules[index]
}

fn parse_fields(text: &str, resource: &Resource) -> Result<Vec<FieldRule>, Status> {
    let selector: fields::Selector = text.parse().map_err(bad_request)?;
    let mut rules = Vec::new();
    for requirement in selector {
        let stored = resource.strategy.stored_field(&requirement.field);
        let place = stored.and_then(|stored| {
            resource
                .selectable_fields
                .iter()
                .position(|known| known.name == stored)
        });
        let unknown = || resource.strategy.unknown_field(resource, &requirement.field);
        let place = place.ok_or_else(|| Status::bad_request(unknown()))?;
        let rule = rule_of(&mut rules, place, &requirement.field);
        if requirement.equal {
            rule.require(requirement.value);
        } else {
            rule.excluded.push(requirement.value);
        }
    }
    for rule in &mut rules {
        rule.excluded.sort_unstable();
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{object::Object, registry::Registry, storage::Revision};

    #[test]
    fn selector_matches_labels_and_fields_of_an_object() {
        let catalogue = Registry::new().catalogue();
        let pods = catalogue.find("", "v1", "pods").expect("served");
        let mut object = Object::new(
            json!({"kind": "Pod", "metadata": {"name": "a", "labels": {"app": "web", "tier": "b", "n": "2", "e": ""}}}),
        )
        .expect("an object");
        let object = object.encode(Revision(1), &pods.selectable_fields);
        for (labels, fields, expected) in [
            ("app=web,n>1", "", true),
            ("app=web", "metadata.name=a", true),
            ("app=web", "metadata.name=b", false),
            ("app!=web", "metadata.name=a", false),
            ("", "metadata.name!=b,spec.nodeName=", true),
            ("", "metadata.name=a,metadata.name=a,metadata.name!=b", true),
            ("", "metadata.name=a,metadata.name=b", false),
            ("", "metadata.name=b,metadata.name=a", false),
            ("", "metadata.name=a,metadata.name!=a", false),
            ("", "metadata.name!=z,metadata.name!=a,metadata.name!=b", false),
            ("", "metadata.name!=z,metadata.name!=b", true),
        ] {
            let selector = Selector::parse(Some(labels), Some(fields), pods).expect("valid");
            assert_eq!(selector.matches(&object), expected, "{labels} {fields}");
        }
        let named = |name| Selector::default().with_name(name);
        assert!(named("a").matches(&object) && !named("b").matches(&object));
    }

    #[test]
    fn field_selectors_accept_only_selectable_fields() {
        let catalogue = Registry::new().catalogue();
        let pods = catalogue.find("", "v1", "pods").expect("served");
        let maps = catalogue.find("", "v1", "configmaps").expect("served");
        assert_eq!(
            parse_fields("spec.nodeName=n1,status.phase!=Failed", pods)
                .expect("known")
                .len(),
            2
        );
        assert_eq!(
            parse_fields("data.a=1", maps).expect_err("unknown").to_value()["message"],
            r#""data.a" is not a known field selector: only "metadata.name", "metadata.namespace""#
        );
    }

    proptest! {
        #[test]
        fn parser_accepts_any_text(text in "[a-c0-9=!,()<> \\PC]{0,24}", any in ".{0,24}") {
            let catalogue = Registry::new().catalogue();
            let pods = catalogue.find("", "v1", "pods").expect("served");
            for text in [text, any] {
                let _ = parse_fields(&text, pods);
            }
        }
    }
}
