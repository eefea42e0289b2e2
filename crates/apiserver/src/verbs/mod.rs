//! The verbs, the same for every kind.
//!
//! ```text
//!   body ─► decode ─► prune, default ─► keep what the client may not set ─► validate ─► commit ─► after
//! ```
//!
//! No kind is mentioned by name here: what is specific to a kind is in its [`crate::kinds::Strategy`].

mod allocation;
mod apply;
mod commit;
mod create;
mod decoding;
mod delete;
mod managed_fields;
mod options;
mod paging;
mod prepare;
mod read;
mod review;
mod update;
mod watch;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use serde_json::Value;

pub(crate) use apply::Configuration;
pub(crate) use commit::Generation;
pub(crate) use decoding::{decode, decode_subresource, normalize, to_object};
pub(crate) use delete::delete_object;
pub(crate) use managed_fields::{
    apply_to_scale, managed_fields_after_scale, set_managed_fields_on_create, set_managed_fields_on_update,
};
pub(crate) use options::{DeleteOptions, FieldValidation, ListOptions, WriteOptions};
pub(crate) use read::{Page, get, list, required_revision};
pub(crate) use review::review;
pub(crate) use watch::WatchStream;

use crate::{
    admission::Admission, auth::AccessControl, conversion, crd::Definitions, kinds::ServiceAllocator,
    limitations::Limitations, logs::LogStore, object_store::ObjectStore, registry::Resource,
    schema::FieldError, status::Status, storage::Entry, warnings::Warnings,
};

/// How often a small write without a resource version is tried, if others change the object meanwhile.
const MAX_TRIES: usize = 100;

/// How many bytes all tries of a write may process together, and how often even the largest is tried: as often as the real
/// server tries a patch.
const MAX_TRIED_BYTES: usize = 4 * 1024 * 1024;
const MIN_TRIES: usize = 5;

/// How often to try a write, by the size of its body and of the stored object.
fn tries(body: &[u8], stored: Option<&Entry>) -> usize {
    let size = body.len() + stored.map_or(0, |entry| entry.object.json().len());
    (MAX_TRIED_BYTES / size.max(1)).clamp(MIN_TRIES, MAX_TRIES)
}

/// The verbs that write: create, update, patch, apply and delete, with everything that a write involves. The verbs that
/// read need only the [`ObjectStore`].
pub(crate) struct WriteVerbs {
    pub(crate) store: Arc<ObjectStore>,
    /// Checks what a caller may write into roles, bindings and signing requests.
    pub(crate) access: Arc<AccessControl>,
    pub(crate) admission: Admission,
    pub(crate) services: ServiceAllocator,
    /// Updated after every write of a CRD, and after the removal of an instance.
    pub(crate) definitions: Definitions,
    /// Output of pods' containers, removed with their pods.
    pub(crate) pod_logs: Arc<LogStore>,
    /// Warnings about objects that have no effect.
    pub(crate) limitations: Limitations,
    /// The service `default/kubernetes`, which is created again after a deletion; none without one.
    pub(crate) kubernetes_service: Option<Value>,
}

/// The answer of a verb.
pub(crate) enum Answer {
    /// One object, or a `Status` of success.
    Object {
        code: u16,
        json: Bytes,
        warnings: Warnings,
    },
    /// A list, or one page of it; with what webhooks said about its deletion.
    List { page: Page, warnings: Warnings },
    /// A stream of plain text.
    Text(BoxStream<'static, Bytes>),
    /// 204
    NoContent,
    /// Events, until the watch ends.
    Watch(Box<WatchStream>),
}

impl Answer {
    pub(crate) fn from_value(code: u16, value: &Value) -> Self {
        Self::Object {
            code,
            json: value.to_string().into(),
            warnings: Warnings::default(),
        }
    }

    /// The warnings for the client.
    fn into_warnings(self) -> Warnings {
        match self {
            Self::Object { warnings, .. } | Self::List { warnings, .. } => warnings,
            Self::Text(_) | Self::NoContent | Self::Watch(_) => Warnings::default(),
        }
    }

    /// Adds warnings for the client to an object.
    pub(crate) fn with_warnings(mut self, more: &[String]) -> Self {
        if let Self::Object { warnings, .. } = &mut self {
            warnings.extend(more);
        }
        self
    }
}

/// An object's bytes with the kind and version of the requested resource.
pub(crate) fn render_entry(entry: &Entry, resource: &Resource) -> Bytes {
    if conversion::needs_conversion(resource)
        && let Ok(mut object) = conversion::decode_for_read(entry, resource)
    {
        return object.encode(entry.revision, &[]).json().clone();
    }
    let json = entry.object.json();
    if has_type_prefix(json, resource) {
        return json.clone();
    }
    let head = type_prefix(resource);
    [head.as_bytes(), entry.object.without_type()].concat().into()
}

/// The bytes that every object of a resource begins with.
pub(crate) fn type_prefix(resource: &Resource) -> String {
    format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",",
        resource.kind,
        resource.api_version()
    )
}

/// Whether the bytes begin with [`type_prefix`]; every get asks this.
fn has_type_prefix(json: &[u8], resource: &Resource) -> bool {
    let Resource {
        kind, group, version, ..
    } = resource;
    let separator = if group.is_empty() { "" } else { "/" };
    let mut rest = json;
    [
        "{\"kind\":\"",
        kind,
        "\",\"apiVersion\":\"",
        group,
        separator,
        version,
        "\",",
    ]
    .into_iter()
    .all(|part| match rest.strip_prefix(part.as_bytes()) {
        Some(behind) => {
            rest = behind;
            true
        }
        None => false,
    })
}

fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Status {
    let group = resource.facts.stored_group.unwrap_or(&resource.group);
    Status::invalid(group, &resource.kind, name, errors)
}
