//! A recorded request.

use std::fmt;

use http::{Method, request::Parts};
use serde_json::Value;
use tokio::time::Instant;
use windlass_api::request::{Access, AccessTarget, RequestInfo};

/// A request that a controller sent.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Verb and object. A create request has the name in its body, if there is one.
    pub access: Access,
    /// The body; null if it is empty or not JSON.
    pub body: Value,
    /// The `Accept` header; empty if there is none.
    pub accept: String,
    /// The `fieldManager` parameter.
    pub field_manager: Option<String>,
    /// When it was sent.
    pub at: Instant,
}

impl RecordedRequest {
    pub(crate) fn new(parts: &Parts, body: &[u8], at: Instant) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let RequestInfo {
            mut access, query, ..
        } = RequestInfo::of(&parts.method, parts.uri.path(), parts.uri.query());
        if parts.method == Method::POST && access.name().is_empty() {
            access = access.with_name(body["metadata"]["name"].as_str().unwrap_or_default());
        }
        let field_manager = query.text("fieldManager").map(str::to_owned);
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

    /// Whether it is a write.
    pub fn is_write(&self) -> bool {
        !matches!(&*self.access.verb, "get" | "list" | "watch" | "head" | "options")
    }

    /// Returns the plural name of the resource; empty for non-resource paths.
    pub fn resource(&self) -> &str {
        match &self.access.target {
            AccessTarget::Resource { resource, .. } => resource,
            AccessTarget::Path(_) => "",
        }
    }

    /// Returns the subresource, such as `status`; empty for the object itself.
    pub fn subresource(&self) -> &str {
        match &self.access.target {
            AccessTarget::Resource { subresource, .. } => subresource,
            AccessTarget::Path(_) => "",
        }
    }

    /// Returns the name of the object; empty if there is none.
    pub fn name(&self) -> &str {
        self.access.name()
    }

    /// Whether it is about this object or one of its subresources.
    pub fn is_about(&self, resource: &str, name: &str) -> bool {
        self.resource() == resource && self.name() == name
    }
}

/// Formats as `patch foos/example/status`.
impl fmt::Display for RecordedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = &self.access.verb;
        match &self.access.target {
            AccessTarget::Path(path) => write!(f, "{verb} {path}"),
            AccessTarget::Resource {
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
