//! The verbs, the same for every kind.
//!
//! ```text
//!   body ─► decode ─► prune, default ─► keep what the client may not set ─► validate ─► commit ─► after
//! ```
//!
//! No kind is mentioned by name here. Per-kind behaviour is in [`crate::registry::Strategy`] and
//! [`crate::strategy`].

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
mod update;
mod watch;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use serde_json::Value;

pub(crate) use apply::Configuration;
pub(crate) use commit::Generation;
pub(crate) use decoding::{decode, decode_subresource, normalize};
pub(crate) use options::{DeleteOptions, FieldValidation, ListOptions, WriteOptions};
pub(crate) use read::Page;
pub(crate) use watch::WatchStream;

use crate::{
    admission::ServiceAccountAdmission,
    auth::AccessControl,
    conversion, crd,
    depth::DeepTables,
    environment::Environment,
    limits::Limits,
    logs::LogStore,
    registry::{Registry, Resource},
    request::Target,
    schema::FieldError,
    server::InFlight,
    status::Status,
    storage::{Entry, Storage},
};

/// How often a write without a resource version is retried after a conflict.
const MAX_CONFLICT_RETRIES: usize = 100;

/// The state of one server, and the verbs on it.
pub(crate) struct Api {
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) registry: Registry,
    pub(crate) environment: Environment,
    pub(crate) limits: Limits,
    /// How much more work the limits allow now.
    pub(crate) in_flight: InFlight,
    /// One permit for each watch that may be open.
    pub(crate) watch_permits: Arc<tokio::sync::Semaphore>,
    /// Decides whether a request is allowed.
    pub(crate) access_control: AccessControl,
    /// Held while the served resources are updated from a stored definition.
    pub(crate) definition_refresh: parking_lot::Mutex<()>,
    /// Held from the allocation of a service's addresses and ports until the service is written.
    pub(crate) allocation: parking_lot::Mutex<()>,
    pub(crate) service_accounts: ServiceAccountAdmission,
    /// Output of pods' containers.
    pub(crate) pod_logs: LogStore,
    /// The tables whose requests need a large stack.
    pub(crate) deep_tables: DeepTables,
}

/// The answer of a verb.
pub(crate) enum Answer {
    /// One object, or a `Status` of success.
    Object {
        code: u16,
        json: Bytes,
        warnings: Vec<String>,
    },
    /// A list, or one page of it.
    List(Page),
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
            warnings: Vec::new(),
        }
    }

    /// Adds warnings for the client. Only objects carry them.
    pub(crate) fn with_warnings(mut self, more: &[String]) -> Self {
        if let Self::Object { warnings, .. } = &mut self {
            warnings.extend_from_slice(more);
        }
        self
    }
}

impl Api {
    /// Returns the target's object, or the `NotFound` status.
    pub(crate) fn current(&self, target: &Target) -> Result<Arc<Entry>, Status> {
        let resource = &target.resource;
        let entry = self.storage.get(&resource.table, &target.key());
        entry
            .map(|entry| crd::convert_for_read(resource, entry))
            .ok_or_else(|| Status::not_found(resource, &target.name))
    }
}

/// An object's bytes with the kind and version of the requested resource.
pub(crate) fn render_entry(entry: &Entry, resource: &Resource) -> Bytes {
    if conversion::needs_conversion(resource)
        && let Ok(mut object) = conversion::decode_for_read(entry, resource)
    {
        return object.encode(entry.revision, &[]).json().clone();
    }
    let head = type_prefix(resource);
    let json = entry.object.json();
    if json.starts_with(head.as_bytes()) {
        return json.clone();
    }
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

fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Status {
    // Events of `events.k8s.io` are stored in the core group, which errors name.
    let group = if &*resource.group == "events.k8s.io" {
        ""
    } else {
        &*resource.group
    };
    Status::invalid(group, &resource.kind, name, errors)
}
