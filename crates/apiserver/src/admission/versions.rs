//! The versions of an admitted object: a policy sees it at the version that its rule names.

use std::{borrow::Cow, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;

use super::request::Attributes;
use crate::{
    conversion, crd,
    object::{ManagedFields, Object},
    registry::Resource,
    status::Status,
    webhook::Answers,
};

/// Converts an object of the request to the version as which it matched.
pub(super) fn at_version<'a>(
    attributes: &Attributes<'_>,
    matched: &Resource,
    object: &'a Object,
) -> Result<Version<'a>, Status> {
    // A Scale, a Binding and such have one version.
    if !attributes.is_object() || is_same(attributes.resource, matched) {
        return Ok(Version(Cow::Borrowed(object)));
    }
    let converted = convert(
        attributes.resource,
        matched,
        object.clone(),
        &attributes.caller.answers,
    )?;
    Ok(Version(Cow::Owned(converted)))
}

/// The objects of a request as expressions see them: whole, with their managed fields. Made once for each version.
pub(super) struct WholeObjects<'a> {
    objects: [Option<&'a Object>; 2],
    versions: Mutex<Vec<(Arc<Resource>, Whole)>>,
}

/// The object and the one that it replaces, at a version.
pub(super) type Whole = Arc<[Option<Value>; 2]>;

impl<'a> WholeObjects<'a> {
    pub(super) fn new(objects: [Option<&'a Object>; 2]) -> Self {
        Self {
            objects,
            versions: Mutex::default(),
        }
    }

    /// The objects at the version as which a request matched.
    pub(super) fn at(&self, attributes: &Attributes<'_>, matched: &Arc<Resource>) -> Result<Whole, Status> {
        let mut versions = self.versions.lock();
        if let Some((_, whole)) = versions.iter().find(|(known, _)| Arc::ptr_eq(known, matched)) {
            return Ok(whole.clone());
        }
        let [object, old] = self.objects.map(|object| {
            let convert = |object| Ok::<_, Status>(at_version(attributes, matched, object)?.into_value());
            object.map(convert).transpose()
        });
        let whole: Whole = Arc::new([object?, old?]);
        versions.push((matched.clone(), whole.clone()));
        Ok(whole)
    }
}

/// An object at a version.
pub(super) struct Version<'a>(pub(super) Cow<'a, Object>);

impl Version<'_> {
    /// The whole object, with its managed fields.
    pub(super) fn into_value(self) -> Value {
        self.0.into_owned().into_value()
    }

    /// Writes the whole object.
    pub(super) fn write_json(&self, json: &mut Vec<u8>) {
        if let ManagedFields::Submitted(_) = self.0.managed_fields() {
            let value = self.0.clone().into_owned().into_value();
            json.extend_from_slice(value.to_string().as_bytes());
        } else {
            self.0.write_json(json);
        }
    }
}

/// Whether both are the same version.
pub(super) fn is_same(a: &Resource, b: &Resource) -> bool {
    (&a.group, &a.version) == (&b.group, &b.version)
}

/// Converts an object between versions of a resource.
pub(super) fn convert(
    from: &Resource,
    to: &Resource,
    mut object: Object,
    answers: &Answers,
) -> Result<Object, Status> {
    if from.is_custom {
        return crd::convert_between(from, to, object, answers).map_err(|status| {
            if status.is_unfinished() || status.is_without_room() {
                return status;
            }
            Status::internal(format!("Internal error occurred: {}", status.message()))
        });
    }
    conversion::convert_to_stored(from, &mut object);
    Ok(conversion::convert_for_read(object, to))
}
