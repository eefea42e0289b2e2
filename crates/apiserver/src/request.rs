//! Resolves a request to a served resource or document.
//!
//! The request line itself is parsed once, by [`RequestInfo`], for the authorizer and for routing.

use std::sync::Arc;

use http::Method;
pub(crate) use windlass_api::request::Query;
use windlass_api::request::{AccessTarget, InvalidNumber, PathVerb, RequestInfo};

use crate::{
    registry::{Catalogue, Resource},
    status::Status,
    storage::Key,
};

/// A request for a resource.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    /// Empty for cluster-scoped resources and for requests across all namespaces.
    pub(crate) namespace: Box<str>,
    /// Empty for requests on the collection.
    pub(crate) name: Box<str>,
    /// Empty for the object itself.
    pub(crate) subresource: Box<str>,
}

impl Target {
    /// Whether the path has no such method: namespaced custom resources can only be read across all namespaces.
    pub(crate) fn has_no_method(&self, method: &Method) -> bool {
        let resource = &self.resource;
        resource.is_custom && resource.namespaced && self.namespace.is_empty() && method != Method::GET
    }

    /// Whether it is the object, or a subresource that is a part of it.
    pub(crate) fn is_object(&self) -> bool {
        self.subresource.is_empty() || self.resource.is_part(&self.subresource)
    }

    /// Whether responses can be tables. Those of what cannot be read, such as reviews, bindings and tokens, cannot.
    pub(crate) fn has_table(&self) -> bool {
        match &*self.subresource {
            "" => self.resource.supports("get"),
            part => {
                let part = self.resource.subresource(part);
                part.is_some_and(|part| part.verbs.iter().any(|verb| **verb == *"get"))
            }
        }
    }

    /// The storage key of the object.
    pub(crate) fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}

/// The destination of a path.
#[derive(Debug)]
pub(crate) enum Route {
    /// Objects.
    Resource(Target),
    /// `/api`, `/apis`
    Groups { core: bool },
    /// `/apis/apps`
    Group(Box<str>),
    /// `/api/v1`, `/apis/apps/v1`
    Version(Box<str>, Box<str>),
    /// A resource that a known group and version does not have.
    NoSuchResource,
    /// A resource that a CRD defines, but that cannot be served.
    Unusable,
    /// None of these.
    Other,
}

impl Route {
    pub(crate) fn resolve(info: &RequestInfo, catalogue: &Catalogue) -> Self {
        let AccessTarget::Resource {
            group,
            version,
            resource,
            subresource,
            namespace,
            ..
        } = &info.access.target
        else {
            return Self::non_resource(&info.segments(), catalogue);
        };
        if catalogue.is_unusable(group, version, resource) {
            return Self::Unusable;
        }
        if let Some(unknown) = Self::unknown_version(group, version, catalogue) {
            return unknown;
        }
        let path = ResourcePath {
            plural: resource,
            namespace: if info.in_namespace { namespace } else { "" },
            name: if info.is_named() { info.access.name() } else { "" },
            subresource,
        };
        let found = match info.path_verb {
            Some(PathVerb::Proxy) => None,
            // A subresource has no children.
            _ if info.depth > 3 => None,
            _ => path.target(group, version, catalogue),
        };
        let built_in = || {
            catalogue
                .in_group_version(group, version)
                .any(|resource| !resource.is_custom)
        };
        match found {
            Some(target) => Self::Resource(target),
            None if built_in() => Self::NoSuchResource,
            None => Self::Other,
        }
    }

    /// Resolves a path that is not a resource's.
    fn non_resource(segments: &[&str], catalogue: &Catalogue) -> Self {
        match *segments {
            ["api"] => Self::Groups { core: true },
            ["apis"] => Self::Groups { core: false },
            ["apis", group] if catalogue.group(group).is_some() => Self::Group(group.into()),
            ["api", version] => Self::unknown_version("", version, catalogue)
                .unwrap_or_else(|| Self::Version("".into(), version.into())),
            ["apis", group, version] if !group.is_empty() => Self::unknown_version(group, version, catalogue)
                .unwrap_or_else(|| Self::Version(group.into(), version.into())),
            _ => Self::Other,
        }
    }

    /// The route of a group and version that are not served; none if they are.
    fn unknown_version(group: &str, version: &str, catalogue: &Catalogue) -> Option<Self> {
        let known = catalogue
            .group(group)
            .is_some_and(|g| g.versions.iter().any(|v| **v == *version));
        if known {
            return None;
        }
        // For an unknown version of a built-in group the real server has another 404.
        let built_in = catalogue
            .resources
            .iter()
            .any(|r| *r.group == *group && !r.is_custom);
        Some(if built_in {
            Self::NoSuchResource
        } else {
            Self::Other
        })
    }
}

/// The parts of a resource path; empty if absent.
struct ResourcePath<'a> {
    plural: &'a str,
    namespace: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl ResourcePath<'_> {
    fn target(&self, group: &str, version: &str, catalogue: &Catalogue) -> Option<Target> {
        let resource = catalogue.find(group, version, self.plural)?.clone();
        if !self.namespace.is_empty() && !resource.namespaced {
            return None;
        }
        if resource.namespaced && self.namespace.is_empty() && !self.name.is_empty() {
            return None;
        }
        // Objects of a create-only resource have no names.
        if !self.name.is_empty()
            && self.subresource.is_empty()
            && matches!(&resource.verbs[..], [only] if **only == *"create")
        {
            return None;
        }
        // An unknown subresource of a custom resource is rejected later, with the object's name.
        if !self.subresource.is_empty() && !resource.is_custom {
            resource.subresource(self.subresource)?;
        }
        Some(Target {
            resource,
            namespace: self.namespace.into(),
            name: self.name.into(),
            subresource: self.subresource.into(),
        })
    }
}

/// The verb of a request, as in RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The verb that the request was authorized for, if the target supports it.
    pub(crate) fn from_request(method: &Method, target: &Target, info: &RequestInfo) -> Result<Self, Status> {
        let on_object = !target.name.is_empty();
        let verb = match (method.as_str(), &*info.access.verb, on_object) {
            ("GET", "watch", _) => Self::Watch,
            ("GET", "get", true) => Self::Get,
            ("GET", "list", false) => Self::List,
            ("POST", "create", false) => Self::Create,
            ("POST", "create", true) if !target.subresource.is_empty() => Self::Create,
            ("PUT", "update", true) => Self::Update,
            ("PATCH", "patch", true) => Self::Patch,
            ("DELETE", "delete", true) => Self::Delete,
            ("DELETE", "deletecollection", false) => Self::DeleteCollection,
            _ => return Err(Status::method_not_allowed()),
        };
        let resource = &target.resource;
        if !target.subresource.is_empty() && resource.is_custom {
            let Some(subresource) = resource.subresource(&target.subresource) else {
                return Err(Status::not_found(resource, &target.name));
            };
            if !subresource.verbs.iter().any(|v| **v == *verb.name()) {
                return Err(Status::not_supported(resource, verb.name()));
            }
        }
        let allowed = match resource.subresource(&target.subresource) {
            Some(subresource) => subresource.verbs.iter().any(|v| **v == *verb.name()),
            // A watch on one object is a watch on the collection.
            None => resource.supports(verb.name()),
        };
        let across = resource.namespaced && target.namespace.is_empty();
        if !allowed || across && !matches!(verb, Self::List | Self::Watch) {
            return Err(Status::method_not_allowed());
        }
        check_name(&target.name)?;
        Ok(verb)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// Rejects names that are not valid path segments.
fn check_name(name: &str) -> Result<(), Status> {
    let why = match name {
        "." => "may not be '.'",
        ".." => "may not be '..'",
        // A slash cannot occur: the path was split at slashes.
        _ if name.contains('%') => "may not contain '%'",
        _ => return Ok(()),
    };
    Err(Status::bad_request(format!(
        "Name parameter invalid: {name:?}: {why}"
    )))
}

impl From<InvalidNumber> for Status {
    fn from(error: InvalidNumber) -> Self {
        Self::bad_request(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn paths_resolve_to_routes() {
        let catalogue = Registry::new().catalogue();
        let read = |path: &str| match Route::resolve(&RequestInfo::of(&Method::GET, path, None), &catalogue) {
            Route::Resource(t) => {
                format!(
                    "{} ns={} name={} sub={}",
                    t.resource.plural, t.namespace, t.name, t.subresource
                )
            }
            other => format!("{other:?}"),
        };
        let cases = [
            ("/api/v1/namespaces", "namespaces ns= name= sub="),
            ("/api/v1/namespaces/a", "namespaces ns= name=a sub="),
            ("/api/v1/namespaces/a/status", "namespaces ns= name=a sub=status"),
            (
                "/api/v1/namespaces/a/finalize",
                "namespaces ns= name=a sub=finalize",
            ),
            ("/api/v1/namespaces/a/pods", "pods ns=a name= sub="),
            ("/api/v1/namespaces/a/pods/x/log", "pods ns=a name=x sub=log"),
            ("/api/v1/pods", "pods ns= name= sub="),
            ("/api/v1/pods/x", "NoSuchResource"),
            ("/api/v1/namespaces/a/nodes", "NoSuchResource"),
            (
                "/apis/apps/v1/namespaces/a/deployments/x/scale",
                "deployments ns=a name=x sub=scale",
            ),
            ("/apis/apps/v1/namespaces/a/deployments/x/nope", "NoSuchResource"),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "clusterroles ns= name=system:node sub=",
            ),
            ("/apis/apps/v1", "Version(\"apps\", \"v1\")"),
            ("/apis/apps", "Group(\"apps\")"),
            ("/apis/nope", "Other"),
            ("/apis/apps/v9/deployments", "NoSuchResource"),
            ("/apis/nope/v1/things", "Other"),
            ("/api", "Groups { core: true }"),
            ("/api/v1/namespaces/a/pods/x%2Flog", "pods ns=a name=x sub=log"),
            ("/api/v1/namespaces/a%2Fpods", "pods ns=a name= sub="),
            ("/api/v1/namespaces/a/status/x", "NoSuchResource"),
            ("/api/v1/namespaces/a/pods/x/log/y", "NoSuchResource"),
            ("/api/v1/proxy/namespaces/a/pods/x", "NoSuchResource"),
            ("/api/v1/watch/namespaces/a/pods/x", "pods ns=a name=x sub="),
            ("/healthz", "Other"),
        ];
        for (path, expected) in cases {
            assert_eq!(read(path), expected, "{path}");
        }
    }
}
