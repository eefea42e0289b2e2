//! Records the requester in certificate signing requests; signers decide by it.

use serde_json::{Map, json};

use super::Caller;
use crate::{object::Object, registry::Resource};

/// Writes the caller into a new certificate signing request, replacing what the client sent.
pub(crate) fn record_requester(resource: &Resource, caller: Option<&Caller>, object: &mut Object) {
    if (&*resource.group, &*resource.kind) != ("certificates.k8s.io", "CertificateSigningRequest") {
        return;
    }
    let Some(caller) = caller else {
        return;
    };
    let user = &caller.user;
    let spec = object
        .fields_mut()
        .entry("spec")
        .or_insert_with(|| Map::new().into());
    let Some(spec) = spec.as_object_mut() else {
        return;
    };
    let known = [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ];
    for (key, value, is_empty) in known {
        spec.remove(key);
        if !is_empty {
            spec.insert(key.to_owned(), value);
        }
    }
}
