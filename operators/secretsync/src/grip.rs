//! Whether a copy is still as we wrote it, told from its metadata alone.
//!
//! The server notes in `managedFields` who last set each field. We write under one name and only ever whole objects, so
//! as long as that name owns every key of the data, the type, and our label and annotations, and nobody else owns a key that we
//! do not, the content is what we wrote last; its digest is in an annotation that we own too. A change by anybody else,
//! also one that is undone, takes a field out of our hands and shows.

use std::{
    collections::{BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::Arc,
};

use serde_json::Value;
use windlass::{k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry, kube::api::ObjectMeta};

use crate::content::Field;

/// Who we are to the server.
pub(crate) const FIELD_MANAGER: &str = "secretsync";

/// What we have in hand of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grip {
    /// Whether it was written by us at all; also where nothing is noted of anybody.
    pub(crate) is_ours: bool,
    /// Of the fields that we own; 0 where nothing is noted.
    pub(crate) fields: u64,
    /// Whether somebody else owns a key of the data that we do not.
    pub(crate) is_meddled: bool,
    /// Who applies a key of the data that is not ours, and will do it again.
    pub(crate) applier: Option<Arc<str>>,
}

impl Grip {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let entries = metadata.managed_fields.as_deref().unwrap_or_default();
        let (ours, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| is_ours(entry));
        let own: BTreeSet<_> = ours.into_iter().flat_map(owned).collect();
        let mut grip = Self {
            is_ours: entries.is_empty() || !own.is_empty(),
            fields: if own.is_empty() { 0 } else { digest(own.iter()) },
            is_meddled: false,
            applier: None,
        };
        for other in others {
            let meddles = owned(other).any(|name| name.is_content() && !own.contains(&name));
            grip.is_meddled |= meddles;
            if meddles && other.operation.as_deref() == Some("Apply") {
                grip.applier = other.manager.as_deref().map(Arc::from);
            }
        }
        grip
    }

    /// The fields that we should own of a copy with these.
    pub(crate) fn wanted<'a>(names: impl IntoIterator<Item = Owned<'a>>) -> u64 {
        let names: BTreeSet<_> = names.into_iter().collect();
        digest(names.iter())
    }
}

fn digest<'a>(names: impl Iterator<Item = &'a Owned<'a>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    names.for_each(|name| name.hash(&mut hasher));
    // 0 is for nothing at all.
    hasher.finish().max(1)
}

/// Whether this is what the server notes of our own writes.
pub(crate) fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER)
        && entry.operation.as_deref() == Some("Update")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// A field that somebody owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owned<'a> {
    Data(&'a str),
    BinaryData(&'a str),
    Type,
    Immutable,
    Label(&'a str),
    Annotation(&'a str),
}

impl<'a> Owned<'a> {
    pub(crate) fn key(field: Field, name: &'a str) -> Self {
        match field {
            Field::Data => Self::Data(name),
            Field::BinaryData => Self::BinaryData(name),
        }
    }

    fn is_content(self) -> bool {
        matches!(self, Self::Data(_) | Self::BinaryData(_))
    }
}

/// The fields of an entry that matter here.
fn owned(entry: &ManagedFieldsEntry) -> impl Iterator<Item = Owned<'_>> {
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
    found.extend(named(&["f:data"]).into_iter().map(Owned::Data));
    found.extend(named(&["f:binaryData"]).into_iter().map(Owned::BinaryData));
    found.extend(at(&["f:type"]).map(|_| Owned::Type));
    found.extend(at(&["f:immutable"]).map(|_| Owned::Immutable));
    found.extend(named(&["f:metadata", "f:labels"]).into_iter().map(Owned::Label));
    found.extend(
        named(&["f:metadata", "f:annotations"])
            .into_iter()
            .map(Owned::Annotation),
    );
    found.into_iter()
}

/// The labels and annotations that we own of an object.
pub(crate) fn own_metadata(metadata: &ObjectMeta) -> (Vec<String>, Vec<String>) {
    let (mut labels, mut annotations) = (Vec::new(), Vec::new());
    let entries = metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| is_ours(entry));
    for name in entries.flat_map(owned) {
        match name {
            Owned::Label(name) => labels.push(name.to_owned()),
            Owned::Annotation(name) => annotations.push(name.to_owned()),
            _ => {}
        }
    }
    (labels, annotations)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn grip(entries: &Value) -> Grip {
        let metadata = json!({ "managedFields": entries });
        Grip::of(&serde_json::from_value(metadata).expect("it is metadata"))
    }

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({ "manager": manager, "operation": operation, "fieldsV1": fields })
    }

    /// As the server writes it for a Secret that we created.
    fn whole() -> Value {
        json!({
            "f:data": { ".": {}, "f:k": {}, "f:l": {} },
            "f:metadata": { "f:labels": { ".": {}, "f:u": {} }, "f:annotations": { ".": {}, "f:h": {} } },
            "f:type": {},
        })
    }

    const WHOLE: [Owned<'static>; 5] = [
        Owned::Data("k"),
        Owned::Data("l"),
        Owned::Type,
        Owned::Label("u"),
        Owned::Annotation("h"),
    ];

    #[test]
    fn what_nobody_touched_is_as_we_wrote_it() {
        let found = grip(&json!([entry(FIELD_MANAGER, "Update", &whole())]));
        assert_eq!(
            found,
            Grip {
                is_ours: true,
                fields: Grip::wanted(WHOLE),
                is_meddled: false,
                applier: None
            }
        );
    }

    #[test]
    fn what_others_add_beside_our_fields_is_theirs() {
        let label = json!({ "f:metadata": { "f:labels": { "f:team": {} } } });
        let found = grip(&json!([
            entry("kubectl", "Update", &label),
            entry(FIELD_MANAGER, "Update", &whole())
        ]));
        assert!(!found.is_meddled && found.fields == Grip::wanted(WHOLE));
    }

    #[test]
    fn a_change_by_somebody_else_shows() {
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
            assert_ne!(grip(&entries).fields, Grip::wanted(WHOLE), "{name}");
        }
        let found = grip(&json!([
            entry("kubectl", "Update", &added),
            entry(FIELD_MANAGER, "Update", &whole())
        ]));
        assert!(found.is_meddled && found.applier.is_none());
    }

    #[test]
    fn who_applies_a_key_is_named_unless_the_key_is_ours_too() {
        let shared = json!({ "f:data": { "f:k": {} } });
        let ours = entry(FIELD_MANAGER, "Update", &whole());
        let found = grip(&json!([entry("argo", "Apply", &shared), ours]));
        assert_eq!((found.is_meddled, found.applier), (false, None));
        let theirs = json!({ "f:data": { "f:other": {} } });
        let found = grip(&json!([entry("argo", "Apply", &theirs), ours]));
        assert_eq!(found.applier.as_deref(), Some("argo"));
    }

    #[test]
    fn what_somebody_else_made_is_not_ours_and_what_nothing_is_known_of_may_be() {
        assert!(!grip(&json!([entry("kubectl", "Update", &whole())])).is_ours);
        assert!(!grip(&json!([entry(FIELD_MANAGER, "Apply", &whole())])).is_ours);
        let nothing = grip(&json!(null));
        assert_eq!((nothing.is_ours, nothing.fields), (true, 0));
    }
}
