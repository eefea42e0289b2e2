//! Conversion of custom resources between the storage version and the requested version.
//!
//! An object is stored in one version, pruned and defaulted by that version's schema of that time. A client may request
//! another version, and the schema may have changed since. So every stored object carries the hash of the schema it was
//! written with. A read with the same schema shares the stored bytes; any other read converts the object:
//!
//! ```text
//!   stored ─► pruned and defaulted by its version's current schema ─► apiVersion of the requested version
//!          ─► pruned by the requested version's schema
//! ```

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde_json::{Map, Value};

use super::{
    definition::selectable_fields,
    embedded::{OnMalformed, coerce_embedded},
    spec, text, versions,
};
use crate::{
    depth,
    kinds::SelectableField,
    object::Object,
    registry::{Resource, group_version},
    schema::{Patterns, Schema, SchemaView, drop_nulls, fill_defaults, prune_object},
    storage::Entry,
};

/// Converts the objects of a CRD.
#[derive(Debug)]
pub(crate) struct Conversion {
    group: Box<str>,
    storage_version: Box<str>,
    /// All versions, served or not.
    by_version: HashMap<Box<str>, VersionSchema>,
}

#[derive(Debug)]
struct VersionSchema {
    schema: Schema,
    selectable_fields: Vec<SelectableField>,
    schema_hash: u64,
}

impl Conversion {
    pub(super) fn from_crd(crd: &Object) -> Result<Self, String> {
        let mut patterns = Patterns::default();
        let mut form = |version: &Value| -> Result<VersionSchema, String> {
            let document = &version["schema"]["openAPIV3Schema"];
            let selectable_fields = selectable_fields(spec(crd), version);
            let mut hasher = DefaultHasher::new();
            (document.to_string(), &selectable_fields).hash(&mut hasher);
            Ok(VersionSchema {
                schema: Schema::from_crd_version(document, &mut patterns)?,
                selectable_fields,
                // Zero means that the schema is unknown.
                schema_hash: hasher.finish().max(1),
            })
        };
        Ok(Self {
            group: text(&spec(crd)["group"]).into(),
            storage_version: text(&super::storage_version(crd)).into(),
            by_version: versions(crd)
                .iter()
                .map(|version| Ok((text(&version["name"]).into(), form(version)?)))
                .collect::<Result<_, String>>()?,
        })
    }

    pub(super) fn stored_version(&self) -> &str {
        &self.storage_version
    }

    /// The schema of a version such as `example.com/v1`, served or not. `None` if the CRD has no such version.
    pub(crate) fn schema(&self, api_version: &str) -> Option<&Schema> {
        self.version_schema(api_version).map(|version| &version.schema)
    }

    /// The schema of a version such as `v1`.
    pub(super) fn schema_of(&self, version: &str) -> Option<&Schema> {
        self.by_version.get(version).map(|version| &version.schema)
    }

    fn version_schema(&self, api_version: &str) -> Option<&VersionSchema> {
        let (group, version) = api_version.rsplit_once('/')?;
        self.by_version.get(version).filter(|_| *group == *self.group)
    }
}

/// How to convert an entry to the resource's version; `None` if it needs no conversion.
fn needed_conversion<'a>(
    resource: &'a Resource,
    entry: &Entry,
) -> Option<(&'a Conversion, &'a VersionSchema)> {
    let forms = &resource.crd.as_ref()?.conversion;
    let wanted = forms.by_version.get(&resource.version)?;
    (entry.object.schema_hash() != wanted.schema_hash).then_some((forms, wanted))
}

/// Whether an entry differs from what the resource's version shows.
pub(crate) fn needs_conversion(resource: &Resource, entry: &Entry) -> bool {
    needed_conversion(resource, entry).is_some()
}

/// Converts an entry to the resource's version, if needed.
pub(crate) fn convert_for_read(resource: &Resource, entry: Arc<Entry>) -> Arc<Entry> {
    let Some((forms, wanted)) = needed_conversion(resource, &entry) else {
        return entry;
    };
    if entry.object.is_deep() {
        return depth::with_large_stack(|| convert_entry(resource, forms, wanted, entry));
    }
    convert_entry(resource, forms, wanted, entry)
}

fn convert_entry(
    resource: &Resource,
    forms: &Conversion,
    wanted: &VersionSchema,
    entry: Arc<Entry>,
) -> Arc<Entry> {
    let mut object = match entry.object.decode() {
        Ok(object) => object,
        Err(error) => {
            tracing::error!(
                error = error.message(),
                "cannot convert a stored object; returning it in its storage version"
            );
            return entry;
        }
    };
    if let Some(stored) = forms.version_schema(object.text_at("apiVersion").as_str()) {
        coerce(stored.schema.view(), &mut object);
        fill_defaults(stored.schema.view(), object.fields_mut());
    }
    set_version(&mut object, &resource.api_version());
    coerce(wanted.schema.view(), &mut object);
    let object = object.encode(entry.revision, &wanted.selectable_fields);
    Arc::new(Entry {
        key: entry.key.clone(),
        revision: entry.revision,
        object: object.with_schema_hash(wanted.schema_hash),
    })
}

/// Converts an object to the storage version. Returns that version's selectable fields and its schema hash; `None` for
/// built-in kinds.
pub(crate) fn convert_to_stored<'a>(
    resource: &'a Resource,
    object: &mut Object,
) -> Option<(&'a [SelectableField], u64)> {
    let forms = &resource.crd.as_ref()?.conversion;
    let form = forms.by_version.get(&forms.storage_version)?;
    set_version(object, &group_version(&forms.group, &forms.storage_version));
    // An object written in another version lacks this version's defaults; they are applied when it is read.
    let same = forms
        .by_version
        .get(&resource.version)
        .is_some_and(|own| own.schema_hash == form.schema_hash);
    if !same {
        coerce(form.schema.view(), object);
    }
    Some((&form.selectable_fields, if same { form.schema_hash } else { 0 }))
}

fn set_version(object: &mut Object, version: &str) {
    object.fields_mut().insert("apiVersion".into(), version.into());
}

/// Prunes an object and drops malformed parts of embedded resources.
fn coerce(schema: SchemaView<'_>, object: &mut Object) {
    let fields = object.fields_mut();
    prune_object(schema, fields);
    drop_nulls(schema, fields);
    // Dropping malformed parts never fails.
    let _ = coerce_embedded(schema, fields, OnMalformed::Drop);
}

/// Sets the default of the status of a new object whose status was dropped, because it is a subresource. The real server
/// applies defaults whenever it reads an object from its storage, with the schema of the storage version.
pub(crate) fn set_default_status(resource: &Resource, object: &mut Object) {
    let Some(defined) = &resource.crd else { return };
    if !resource.has_status() || object.fields().contains_key("status") {
        return;
    }
    let forms = &defined.conversion;
    if let Some(stored) = forms.by_version.get(&forms.storage_version) {
        let mut defaults = Map::new();
        fill_defaults(stored.schema.view(), &mut defaults);
        if let Some(status) = defaults.remove("status") {
            object.fields_mut().insert("status".into(), status);
        }
    }
}
