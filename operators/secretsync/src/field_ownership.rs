//! Who wrote which fields of an object, from its metadata.
//!
//! The server records in `managedFields` which field manager last set each field. That shows whether we wrote an object
//! at all, which of its labels and annotations are ours, and which tool will apply its own data again. It proves nothing
//! about content: others can write under our name, and data that is applied as `stringData` changes no owner.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use windlass::{k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry, kube::api::ObjectMeta};

/// Our field manager.
pub(crate) const FIELD_MANAGER: &str = "secretsync";

/// Who owns the fields of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldOwnership {
    /// Whether we wrote the object; also true if it has no managed fields.
    pub(crate) is_ours: bool,
    /// A manager that applies a key of the data that we do not own, and will do so again.
    pub(crate) foreign_applier: Option<Arc<str>>,
    /// It has labels, annotations, finalizers or owner references that we do not own. They must be read before it is
    /// replaced, since they stay.
    pub(crate) has_foreign_metadata: bool,
}

impl FieldOwnership {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let entries = metadata.managed_fields.as_deref().unwrap_or_default();
        let (ours, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| is_ours(entry));
        let own: BTreeSet<_> = ours.into_iter().flat_map(fields_of).collect();
        let applies_data = |entry: &&&ManagedFieldsEntry| {
            entry.operation.as_deref() == Some("Apply")
                && fields_of(entry).any(|name| name.is_content() && !own.contains(&name))
        };
        Self {
            is_ours: entries.is_empty() || !own.is_empty(),
            foreign_applier: others
                .iter()
                .find(applies_data)
                .and_then(|entry| entry.manager.as_deref().map(Arc::from)),
            has_foreign_metadata: has_foreign_metadata(metadata),
        }
    }
}

fn has_foreign_metadata(metadata: &ObjectMeta) -> bool {
    let (labels, annotations) = owned_metadata(metadata);
    let has_other = |map: &Option<BTreeMap<String, String>>, own: &[String]| {
        map.iter().flatten().any(|(name, _)| !own.contains(name))
    };
    has_other(&metadata.labels, &labels)
        || has_other(&metadata.annotations, &annotations)
        || metadata.finalizers.iter().flatten().next().is_some()
        || metadata.owner_references.iter().flatten().next().is_some()
}

/// Returns whether this entry records our own writes.
pub(crate) fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER)
        && entry.operation.as_deref() == Some("Update")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// A field in `managedFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum OwnedField<'a> {
    Data(&'a str),
    BinaryData(&'a str),
    /// Write-only: only those who apply it own it.
    StringData(&'a str),
    Type,
    Immutable,
    Label(&'a str),
    Annotation(&'a str),
}

impl OwnedField<'_> {
    fn is_content(self) -> bool {
        matches!(self, Self::Data(_) | Self::BinaryData(_) | Self::StringData(_))
    }
}

/// Returns the relevant fields of an entry.
fn fields_of(entry: &ManagedFieldsEntry) -> impl Iterator<Item = OwnedField<'_>> {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    let at = move |path: &[&str]| path.iter().try_fold(fields?, |value, name| value.get(name));
    let named = move |path: &[&str]| {
        let names = at(path).and_then(Value::as_object);
        names
            .into_iter()
            .flat_map(|names| names.keys())
            .filter_map(|name| name.strip_prefix("f:"))
            .collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    found.extend(named(&["f:data"]).into_iter().map(OwnedField::Data));
    found.extend(named(&["f:binaryData"]).into_iter().map(OwnedField::BinaryData));
    found.extend(named(&["f:stringData"]).into_iter().map(OwnedField::StringData));
    found.extend(at(&["f:type"]).map(|_| OwnedField::Type));
    found.extend(at(&["f:immutable"]).map(|_| OwnedField::Immutable));
    found.extend(
        named(&["f:metadata", "f:labels"])
            .into_iter()
            .map(OwnedField::Label),
    );
    found.extend(
        named(&["f:metadata", "f:annotations"])
            .into_iter()
            .map(OwnedField::Annotation),
    );
    found.into_iter()
}

/// Returns the keys of the labels and annotations that we own.
pub(crate) fn owned_metadata(metadata: &ObjectMeta) -> (Vec<String>, Vec<String>) {
    let (mut labels, mut annotations) = (Vec::new(), Vec::new());
    let entries = metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| is_ours(entry));
    for name in entries.flat_map(fields_of) {
        match name {
            OwnedField::Label(name) => labels.push(name.to_owned()),
            OwnedField::Annotation(name) => annotations.push(name.to_owned()),
            _ => {}
        }
    }
    (labels, annotations)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ownership(entries: &Value) -> FieldOwnership {
        let metadata = json!({ "managedFields": entries });
        FieldOwnership::of(&serde_json::from_value(metadata).expect("valid metadata"))
    }

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({ "manager": manager, "operation": operation, "fieldsV1": fields })
    }

    /// What the server records for a Secret that we created.
    fn whole() -> Value {
        json!({
            "f:data": { ".": {}, "f:k": {}, "f:l": {} },
            "f:metadata": { "f:labels": { ".": {}, "f:u": {} }, "f:annotations": { ".": {}, "f:h": {} } },
            "f:type": {},
        })
    }

    #[test]
    fn object_that_we_wrote_is_ours() {
        let label = json!({ "f:metadata": { "f:labels": { "f:team": {} } } });
        let found = ownership(&json!([
            entry("kubectl", "Update", &label),
            entry(FIELD_MANAGER, "Update", &whole())
        ]));
        assert!(found.is_ours && found.foreign_applier.is_none());
    }

    #[test]
    fn applier_is_reported_unless_we_own_the_key_too() {
        let ours = entry(FIELD_MANAGER, "Update", &whole());
        for (manager, operation, fields, expected) in [
            ("argo", "Apply", json!({ "f:data": { "f:k": {} } }), None),
            (
                "argo",
                "Apply",
                json!({ "f:data": { "f:other": {} } }),
                Some("argo"),
            ),
            (
                "argo",
                "Apply",
                json!({ "f:binaryData": { "f:k": {} } }),
                Some("argo"),
            ),
            (
                "argo",
                "Apply",
                json!({ "f:stringData": { "f:k": {} } }),
                Some("argo"),
            ),
            // An applier may have our name.
            (
                FIELD_MANAGER,
                "Apply",
                json!({ "f:data": { "f:other": {} } }),
                Some(FIELD_MANAGER),
            ),
            // It will not do so again.
            ("kubectl", "Update", json!({ "f:data": { "f:other": {} } }), None),
        ] {
            let found = ownership(&json!([entry(manager, operation, &fields), ours]));
            assert_eq!(
                found.foreign_applier.as_deref(),
                expected,
                "{manager} {operation} {fields}"
            );
        }
    }

    #[test]
    fn metadata_of_others_is_detected() {
        let copy = |more: &Value| {
            let mut metadata = json!({
                "managedFields": [entry(FIELD_MANAGER, "Update", &whole())],
                "labels": { "u": "1" }, "annotations": { "h": "1" },
            });
            for (field, value) in more.as_object().expect("fields") {
                metadata[field] = value.clone();
            }
            FieldOwnership::of(&serde_json::from_value(metadata).expect("valid metadata"))
                .has_foreign_metadata
        };
        assert!(!copy(&json!({})));
        for theirs in [
            json!({ "labels": { "u": "1", "theirs": "1" } }),
            json!({ "annotations": { "h": "1", "theirs": "1" } }),
            json!({ "finalizers": ["example.com/hold"] }),
            json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1" }] }),
            // The server does not say who wrote what.
            json!({ "managedFields": [] }),
        ] {
            assert!(copy(&theirs), "{theirs}");
        }
    }

    #[test]
    fn foreign_object_is_not_ours_unless_it_has_no_managed_fields() {
        assert!(!ownership(&json!([entry("kubectl", "Update", &whole())])).is_ours);
        assert!(!ownership(&json!([entry(FIELD_MANAGER, "Apply", &whole())])).is_ours);
        assert!(ownership(&json!(null)).is_ours);
    }
}
