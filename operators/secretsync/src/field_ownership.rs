//! Determines from its metadata whether a copy is still as we wrote it.
//!
//! The server records in `managedFields` which field manager last set each field. We write with one field manager,
//! and always whole objects. So the content is what we last wrote as long as that manager owns every key of the data,
//! the type, and our label and annotations, and no other manager owns a key that we do not. The digest is in an
//! annotation that we own, too. Any change by another client, even one that is undone, takes a field away from our
//! manager.

use std::{
    collections::{BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::Arc,
};

use serde_json::Value;
use windlass::{k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry, kube::api::ObjectMeta};

use crate::content::DataField;

/// Our field manager.
pub(crate) const FIELD_MANAGER: &str = "secretsync";

/// Who owns the fields of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldOwnership {
    /// Whether we wrote the object; also true if it has no managed fields.
    pub(crate) is_ours: bool,
    /// A hash of the fields that we own; 0 if there are no managed fields.
    pub(crate) fields_hash: u64,
    /// Whether another manager owns a key of the data that we do not.
    pub(crate) has_foreign_data: bool,
    /// The manager that applies a key of the data that is not ours, and will do so again.
    pub(crate) foreign_applier: Option<Arc<str>>,
}

impl FieldOwnership {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let entries = metadata.managed_fields.as_deref().unwrap_or_default();
        let (ours, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| is_ours(entry));
        let own: BTreeSet<_> = ours.into_iter().flat_map(fields_of).collect();
        let mut ownership = Self {
            is_ours: entries.is_empty() || !own.is_empty(),
            fields_hash: if own.is_empty() {
                0
            } else {
                hash_fields(own.iter())
            },
            has_foreign_data: false,
            foreign_applier: None,
        };
        for other in others {
            let meddles = fields_of(other).any(|name| name.is_content() && !own.contains(&name));
            ownership.has_foreign_data |= meddles;
            if meddles && other.operation.as_deref() == Some("Apply") {
                ownership.foreign_applier = other.manager.as_deref().map(Arc::from);
            }
        }
        ownership
    }

    /// Returns the hash of the fields that we should own of a copy.
    pub(crate) fn expected_hash<'a>(names: impl IntoIterator<Item = OwnedField<'a>>) -> u64 {
        let names: BTreeSet<_> = names.into_iter().collect();
        hash_fields(names.iter())
    }
}

fn hash_fields<'a>(names: impl Iterator<Item = &'a OwnedField<'a>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    names.for_each(|name| name.hash(&mut hasher));
    // 0 means no fields.
    hasher.finish().max(1)
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
    Type,
    Immutable,
    Label(&'a str),
    Annotation(&'a str),
}

impl<'a> OwnedField<'a> {
    pub(crate) fn key(field: DataField, name: &'a str) -> Self {
        match field {
            DataField::Data => Self::Data(name),
            DataField::BinaryData => Self::BinaryData(name),
        }
    }

    fn is_content(self) -> bool {
        matches!(self, Self::Data(_) | Self::BinaryData(_))
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

    const WHOLE: [OwnedField<'static>; 5] = [
        OwnedField::Data("k"),
        OwnedField::Data("l"),
        OwnedField::Type,
        OwnedField::Label("u"),
        OwnedField::Annotation("h"),
    ];

    #[test]
    fn unchanged_copy_has_the_expected_fields() {
        let found = ownership(&json!([entry(FIELD_MANAGER, "Update", &whole())]));
        assert_eq!(
            found,
            FieldOwnership {
                is_ours: true,
                fields_hash: FieldOwnership::expected_hash(WHOLE),
                has_foreign_data: false,
                foreign_applier: None
            }
        );
    }

    #[test]
    fn labels_of_other_managers_are_ignored() {
        let label = json!({ "f:metadata": { "f:labels": { "f:team": {} } } });
        let found = ownership(&json!([
            entry("kubectl", "Update", &label),
            entry(FIELD_MANAGER, "Update", &whole())
        ]));
        assert!(!found.has_foreign_data && found.fields_hash == FieldOwnership::expected_hash(WHOLE));
    }

    #[test]
    fn changes_by_other_managers_are_detected() {
        let mut without = whole();
        without["f:data"] = json!({ ".": {}, "f:l": {} });
        let stolen = json!({ "f:data": { "f:k": {} } });
        let added = json!({ "f:data": { "f:new": {} } });
        for (name, entries) in [
            (
                "changed",
                json!([
                    entry("kubectl", "Update", &stolen),
                    entry(FIELD_MANAGER, "Update", &without)
                ]),
            ),
            ("removed", json!([entry(FIELD_MANAGER, "Update", &without)])),
            (
                "applied",
                json!([
                    entry("argo", "Apply", &stolen),
                    entry(FIELD_MANAGER, "Update", &without)
                ]),
            ),
        ] {
            assert_ne!(
                ownership(&entries).fields_hash,
                FieldOwnership::expected_hash(WHOLE),
                "{name}"
            );
        }
        let found = ownership(&json!([
            entry("kubectl", "Update", &added),
            entry(FIELD_MANAGER, "Update", &whole())
        ]));
        assert!(found.has_foreign_data && found.foreign_applier.is_none());
    }

    #[test]
    fn applier_is_reported_unless_we_own_the_key_too() {
        let shared = json!({ "f:data": { "f:k": {} } });
        let ours = entry(FIELD_MANAGER, "Update", &whole());
        let found = ownership(&json!([entry("argo", "Apply", &shared), ours]));
        assert_eq!((found.has_foreign_data, found.foreign_applier), (false, None));
        let theirs = json!({ "f:data": { "f:other": {} } });
        let found = ownership(&json!([entry("argo", "Apply", &theirs), ours]));
        assert_eq!(found.foreign_applier.as_deref(), Some("argo"));
    }

    #[test]
    fn foreign_object_is_not_ours_unless_it_has_no_managed_fields() {
        assert!(!ownership(&json!([entry("kubectl", "Update", &whole())])).is_ours);
        assert!(!ownership(&json!([entry(FIELD_MANAGER, "Apply", &whole())])).is_ours);
        let nothing = ownership(&json!(null));
        assert_eq!((nothing.is_ours, nothing.fields_hash), (true, 0));
    }
}
