//! The forms of a definition's objects: the version that they are stored at, and the ones that they are shown at.
//!
//! An object is stored at one version, pruned and defaulted by that version's schema of that time. Whoever reads it
//! may ask for another version, and the schema may have changed since. So every stored object carries the *shape* it was
//! written in, a hash of its schema; a reader who wants that very shape shares its bytes, anyone else gets it translated:
//!
//! ```text
//!   stored ─► pruned and defaulted by the schema it was stored with, as it is now ─► the name of the version asked for
//!          ─► pruned by that version's schema
//! ```

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde_json::Value;

use super::{
    definition::selectable,
    embedded::{Malformed, coerce_embedded},
    spec, text, versions,
};
use crate::{
    depth,
    object::Object,
    registry::{Resource, group_version},
    schema::{Schema, View, drop_nulls, fill_defaults, prune_object},
    storage::Entry,
};

/// The forms that a definition's objects have.
#[derive(Debug)]
pub(crate) struct Forms {
    group: Box<str>,
    stored: Box<str>,
    /// Of every version, served or not.
    by_version: HashMap<Box<str>, Form>,
}

#[derive(Debug)]
struct Form {
    schema: Schema,
    selectable: Vec<Box<str>>,
    shape: u64,
}

impl Forms {
    pub(super) fn of(crd: &Object) -> Result<Self, String> {
        let form = |version: &Value| -> Result<Form, String> {
            let document = &version["schema"]["openAPIV3Schema"];
            let selectable = selectable(spec(crd), version);
            let mut hasher = DefaultHasher::new();
            (document.to_string(), &selectable).hash(&mut hasher);
            Ok(Form {
                schema: Schema::of_crd(document)?,
                selectable,
                // Zero is the shape of what is not known to have any.
                shape: hasher.finish().max(1),
            })
        };
        Ok(Self {
            group: text(&spec(crd)["group"]).into(),
            stored: text(&super::storage_version(crd)).into(),
            by_version: versions(crd)
                .iter()
                .map(|version| Ok((text(&version["name"]).into(), form(version)?)))
                .collect::<Result<_, String>>()?,
        })
    }

    pub(super) fn stored_version(&self) -> &str {
        &self.stored
    }

    fn of_version(&self, api_version: &str) -> Option<&Form> {
        let (group, version) = api_version.rsplit_once('/')?;
        self.by_version.get(version).filter(|_| *group == *self.group)
    }
}

/// An entry as the resource shows it.
pub(crate) fn seen(resource: &Resource, entry: Arc<Entry>) -> Arc<Entry> {
    let Some(defined) = &resource.defined else {
        return entry;
    };
    let forms = &defined.forms;
    let Some(wanted) = forms.by_version.get(&resource.version) else {
        return entry;
    };
    if entry.object.shape() == wanted.shape {
        return entry;
    }
    if entry.object.is_deep() {
        return depth::with_room(|| translated(resource, forms, wanted, entry));
    }
    translated(resource, forms, wanted, entry)
}

fn translated(resource: &Resource, forms: &Forms, wanted: &Form, entry: Arc<Entry>) -> Arc<Entry> {
    let mut object = match entry.object.decode() {
        Ok(object) => object,
        Err(error) => {
            tracing::error!(error = error.message(), "an object is shown as it is stored");
            return entry;
        }
    };
    if let Some(stored) = forms.of_version(object.text_at("apiVersion").as_str()) {
        coerce(stored.schema.view(), &mut object);
        fill_defaults(stored.schema.view(), object.fields_mut());
    }
    set_version(&mut object, &resource.api_version());
    coerce(wanted.schema.view(), &mut object);
    let object = object.encode(entry.revision, &wanted.selectable);
    Arc::new(Entry {
        key: entry.key.clone(),
        revision: entry.revision,
        object: object.with_shape(wanted.shape),
    })
}

/// Brings an object into the form in which it is stored. Returns that form's selectable fields and its shape; none for
/// built-in kinds.
pub(crate) fn to_stored<'a>(resource: &'a Resource, object: &mut Object) -> Option<(&'a [Box<str>], u64)> {
    let forms = &resource.defined.as_ref()?.forms;
    let form = forms.by_version.get(&forms.stored)?;
    set_version(object, &group_version(&forms.group, &forms.stored));
    // What was written at another version lacks this one's defaults, and is given them when it is read.
    let same = forms
        .by_version
        .get(&resource.version)
        .is_some_and(|own| own.shape == form.shape);
    if !same {
        coerce(form.schema.view(), object);
    }
    Some((&form.selectable, if same { form.shape } else { 0 }))
}

fn set_version(object: &mut Object, version: &str) {
    object.fields_mut().insert("apiVersion".into(), version.into());
}

/// Drops what a schema does not know, and what in an embedded resource cannot be read.
fn coerce(schema: View<'_>, object: &mut Object) {
    let fields = object.fields_mut();
    prune_object(schema, fields);
    drop_nulls(schema, fields);
    // Dropping what is malformed never fails.
    let _ = coerce_embedded(schema, fields, Malformed::Dropped);
}
