//! One request, as a test remembers it.

use std::fmt;

use http::{Method, request::Parts};
use serde_json::Value;
use tokio::time::Instant;
use windlass_rights::{Access, Object};

/// A request that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// What it asks for. A creation has the name that its body says, if it says one.
    pub access: Access,
    /// What it has with it: null if nothing, or no JSON.
    pub body: Value,
    /// In which form it wants the answer, as its `Accept` says; empty if it does not say.
    pub accept: String,
    /// Who says to write.
    pub field_manager: Option<String>,
    /// When.
    pub at: Instant,
}

impl Sent {
    pub(crate) fn new(parts: &Parts, body: &[u8], at: Instant) -> Self {
        let query = parts.uri.query();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut access = Access::of(&parts.method, parts.uri.path(), query);
        if parts.method == Method::POST && access.name().is_empty() {
            access = access.named(body["metadata"]["name"].as_str().unwrap_or_default());
        }
        let mut parameters = query.unwrap_or_default().split('&');
        let field_manager = parameters
            .find_map(|parameter| parameter.strip_prefix("fieldManager="))
            .map(str::to_owned);
        let accept = parts.headers.get(http::header::ACCEPT);
        Self {
            access,
            body,
            accept: accept
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            field_manager,
            at,
        }
    }

    /// Whether it was meant to change something.
    pub fn is_write(&self) -> bool {
        !matches!(&*self.access.verb, "get" | "list" | "watch" | "head" | "options")
    }

    /// The plural of the kind that it is about; empty for what is no resource.
    pub fn resource(&self) -> &str {
        match &self.access.object {
            Object::Resource { resource, .. } => resource,
            Object::Path(_) => "",
        }
    }

    /// The part of the object that it is about, such as `status`; empty for the object itself.
    pub fn part(&self) -> &str {
        match &self.access.object {
            Object::Resource { subresource, .. } => subresource,
            Object::Path(_) => "",
        }
    }

    /// The name of the object that it is about; empty where none is named.
    pub fn name(&self) -> &str {
        self.access.name()
    }

    /// Whether it is about this object, or a part of it.
    pub fn is_about(&self, resource: &str, name: &str) -> bool {
        self.resource() == resource && self.name() == name
    }
}

/// `patch foos/example/status`.
impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = &self.access.verb;
        match &self.access.object {
            Object::Path(path) => write!(f, "{verb} {path}"),
            Object::Resource {
                resource,
                subresource,
                name,
                ..
            } => {
                let parts = [resource, name, subresource];
                let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                let parts: Vec<_> = parts.into_iter().map(String::as_str).collect();
                write!(f, "{verb} {}", parts.join("/"))
            }
        }
    }
}
