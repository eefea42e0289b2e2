//! The request that is reviewed.

use std::sync::Arc;

use k8s_openapi::api::authentication::v1::UserInfo;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use windlass_cache::{Cacheable, Lister};
use windlass_runtime::Error;

use super::{Kind, Resource};
use crate::reads::Listers;

/// What a request does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// Creates an object; server-side apply and `eviction` too.
    #[default]
    Create,
    /// Changes an object, by PUT, a patch or server-side apply.
    Update,
    /// Deletes an object.
    Delete,
    /// Opens a connection: exec, attach, port-forward, proxy.
    Connect,
}

impl Operation {
    /// The name in rules: `CREATE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The request that is reviewed: who asks, and for what. Handlers get it beside the object.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReviewRequest {
    /// Identifies the review; a request that several webhooks see has one for each call.
    pub uid: String,
    /// What the request does.
    pub operation: Operation,
    /// The kind of the object, as the handler's rule has it.
    pub kind: Kind,
    /// The resource of the object, as the handler's rule has it.
    pub resource: Resource,
    /// The subresource, such as `scale`.
    pub subresource: Option<String>,
    /// The kind of the request, which is another one if the client used another version.
    pub request_kind: Kind,
    /// The resource of the request.
    pub request_resource: Resource,
    /// The name; empty if the server has not generated it yet, and for objects of a deletion by selector.
    pub name: String,
    /// The namespace; that of a Namespace is its own name. `None` for other cluster-scoped objects.
    pub namespace: Option<String>,
    /// The user who has sent the request.
    pub user: UserInfo,
    /// Whether nothing will be stored: a handler with side effects must not have any then.
    pub is_dry_run: bool,
    /// The options of the request: `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub options: Option<Value>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) listers: Arc<Listers>,
}

impl ReviewRequest {
    /// The name of the user who asks.
    pub fn username(&self) -> &str {
        self.user.username.as_deref().unwrap_or_default()
    }

    /// Whether the user is in this group.
    pub fn is_in_group(&self, group: &str) -> bool {
        self.user.groups.iter().flatten().any(|name| name == group)
    }

    /// When the answer must be ready. The server's timeout is a little later. `None` in tests that call a handler directly.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The cached objects of a kind that [`Webhooks::reads`](crate::Webhooks::reads) declares. A handler is called once its
    /// caches have synced.
    pub fn lister<K: Cacheable<DynamicType: Default>>(&self) -> Result<&Lister<K>, Error> {
        self.listers.get::<K>(&K::DynamicType::default())
    }

    /// Like [`lister`](Self::lister), for a type that gets its kind at run time.
    pub fn lister_of<K: Cacheable>(&self, dynamic: &K::DynamicType) -> Result<&Lister<K>, Error> {
        self.listers.get::<K>(dynamic)
    }
}
