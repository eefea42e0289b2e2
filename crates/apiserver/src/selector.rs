//! The selectors of a list or watch.

use std::{fmt::Display, sync::Arc};

use windlass_api::{fields, labels};

use crate::{crd, object::Encoded, registry::Resource, status::Status, storage::Entry};

/// Selects the objects of a list or watch, by labels and fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: labels::Selector,
    /// Each with the index in the resource's list of selectable fields.
    fields: Vec<(usize, fields::Requirement)>,
}

impl Selector {
    pub(crate) fn parse(
        labels: Option<&str>,
        fields: Option<&str>,
        resource: &Resource,
    ) -> Result<Self, Status> {
        Ok(Self {
            labels: labels.unwrap_or_default().parse().map_err(bad_request)?,
            fields: fields.map_or(Ok(Vec::new()), |text| parse_fields(text, resource))?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Also requires a name.
    pub(crate) fn with_name(mut self, name: &str) -> Self {
        let requirement = fields::Requirement {
            field: "metadata.name".to_owned(),
            value: name.to_owned(),
            equal: true,
        };
        // It is the first selectable field of every resource.
        self.fields.push((0, requirement));
        self
    }

    /// Whether a stored entry matches, as the resource's version shows it. It is converted only for a field that differs
    /// between versions, and the copy is not kept.
    pub(crate) fn matches_entry(&self, resource: &Resource, entry: &Arc<Entry>) -> bool {
        let is_of_all_versions = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        let fields = &self.fields;
        if fields.iter().all(|(_, field)| is_of_all_versions(&field.field)) {
            return self.matches(&entry.object);
        }
        // Labels are cheaper to compare.
        self.labels.matches(|key| entry.object.label(key))
            && self.matches(&crd::convert_for_read(resource, entry.clone()).object)
    }

    fn matches(&self, object: &Encoded) -> bool {
        self.labels.matches(|key| object.label(key))
            && self
                .fields
                .iter()
                .all(|(place, requirement)| requirement.matches(object.field(*place)))
    }
}

fn bad_request(error: impl Display) -> Status {
    Status::bad_request(error.to_string())
}

fn parse_fields(text: &str, resource: &Resource) -> Result<Vec<(usize, fields::Requirement)>, Status> {
    let selector: fields::Selector = text.parse().map_err(bad_request)?;
    let mut requirements = Vec::new();
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
        requirements.push((place, requirement));
    }
    Ok(requirements)
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
