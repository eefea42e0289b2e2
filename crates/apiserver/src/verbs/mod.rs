//! The verbs, the same for every kind.
//!
//! ```text
//!   body ─► decode ─► prune, default ─► keep what the client may not set ─► validate ─► commit ─► after
//! ```
//!
//! Nothing here knows a kind by name; what is particular stands in [`crate::registry::Strategy`] and
//! [`crate::particular`].

mod accounts;
mod apply;
mod commit;
mod conform;
mod create;
mod delete;
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
pub(crate) use conform::{decode, decode_part, normalize};
pub(crate) use options::{DeleteOptions, FieldValidation, ListOptions, WriteOptions};
pub(crate) use read::Page;
pub(crate) use watch::WatchStream;

use crate::{
    admission::Accounts,
    auth::Guard,
    crd,
    depth::DeepTables,
    limits::Limits,
    logs::Printed,
    registry::{Registry, Resource},
    request::Target,
    schema::FieldError,
    server::Load,
    status::Status,
    storage::{Entry, Storage},
    versions,
    world::World,
};

/// How often a write that names no revision is tried again after losing a race.
const RACES: usize = 100;

/// The state of one server, and the verbs on it.
pub(crate) struct Api {
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) registry: Registry,
    pub(crate) world: World,
    pub(crate) limits: Limits,
    /// What of the limits on work is left.
    pub(crate) load: Load,
    /// One permit for each watch that may be open.
    pub(crate) watchers: Arc<tokio::sync::Semaphore>,
    /// Decides about access.
    pub(crate) guard: Guard,
    /// Held while what is served is brought in line with a stored definition.
    pub(crate) definitions: parking_lot::Mutex<()>,
    /// Held while a service is given addresses and ports, and until it is written.
    pub(crate) allotting: parking_lot::Mutex<()>,
    pub(crate) accounts: Accounts,
    /// What pods have printed.
    pub(crate) printed: Printed,
    /// Which requests are known to need a large stack.
    pub(crate) deep: DeepTables,
}

/// What a verb answers with.
pub(crate) enum Answer {
    /// One object, or a `Status` of success.
    Object {
        code: u16,
        json: Bytes,
        warnings: Vec<String>,
    },
    /// A list, or a part of one.
    List(Page),
    /// Plain text, as it comes.
    Text(BoxStream<'static, Bytes>),
    /// 204
    Nothing,
    /// Events, until the watch ends.
    Watch(Box<WatchStream>),
}

impl Answer {
    pub(crate) fn value(code: u16, value: &Value) -> Self {
        Self::Object {
            code,
            json: value.to_string().into(),
            warnings: Vec::new(),
        }
    }

    /// With what the client may want to know; only objects can say it.
    pub(crate) fn with_warnings(mut self, more: &[String]) -> Self {
        if let Self::Object { warnings, .. } = &mut self {
            warnings.extend_from_slice(more);
        }
        self
    }
}

impl Api {
    /// The object under a target's name, or the refusal that says there is none.
    pub(crate) fn current(&self, target: &Target) -> Result<Arc<Entry>, Status> {
        let resource = &target.resource;
        let entry = self.storage.get(&resource.table, &target.key());
        entry
            .map(|entry| crd::seen(resource, entry))
            .ok_or_else(|| Status::not_found(resource, &target.name))
    }
}

/// An object's bytes with the kind and version of the resource that was asked for.
pub(crate) fn rendered(entry: &Entry, resource: &Resource) -> Bytes {
    if versions::is_view(resource)
        && let Ok(mut object) = versions::shown(entry, resource)
    {
        return object.encode(entry.revision, &[]).json().clone();
    }
    let head = head(resource);
    let json = entry.object.json();
    if json.starts_with(head.as_bytes()) {
        return json.clone();
    }
    [head.as_bytes(), entry.object.without_type()].concat().into()
}

/// How every object of a resource begins.
pub(crate) fn head(resource: &Resource) -> String {
    format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",",
        resource.kind,
        resource.api_version()
    )
}

fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Status {
    // The newer group of events is a view of the older one.
    let group = if &*resource.group == "events.k8s.io" {
        ""
    } else {
        &*resource.group
    };
    Status::invalid(group, &resource.kind, name, errors)
}
