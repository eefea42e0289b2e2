//! The attributes of a request that an authorizer decides about.

use std::fmt;

use http::Method;

use super::RequestInfo;

/// The verb and target of a request (kube-apiserver's `authorizer.Attributes`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// `get`, `list`, `watch`, `create`, … for resources; the method in lower case for paths. Some verbs, such as
    /// `impersonate`, belong to no request but are checked in addition.
    pub verb: String,
    /// The resource or path.
    pub target: AccessTarget,
}

/// The resource or path of an access.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessTarget {
    /// API objects.
    Resource {
        /// Empty for the core group.
        group: String,
        /// The version in the path; rules ignore it.
        version: String,
        /// The plural name.
        resource: String,
        /// Empty for the object itself.
        subresource: String,
        /// Empty for cluster-scoped objects, and across all namespaces.
        namespace: String,
        /// Empty for requests on a collection, unless a field selector selects one name.
        name: String,
    },
    /// A non-resource path, such as `/healthz`.
    Path(String),
}

impl Access {
    /// Parses a request; [`RequestInfo`] has its other attributes.
    pub fn of(method: &Method, path: &str, query: Option<&str>) -> Self {
        RequestInfo::of(method, path, query).access
    }

    /// Creates an access to a non-resource path.
    pub fn path(verb: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            verb: verb.into(),
            target: AccessTarget::Path(path.into()),
        }
    }

    /// Creates an access to a resource; [`Access::with_name`] and [`Access::in_namespace`] narrow it.
    pub fn resource(verb: &str, group: &str, resource: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            target: AccessTarget::Resource {
                group: group.to_owned(),
                version: String::new(),
                resource: resource.to_owned(),
                subresource: String::new(),
                namespace: String::new(),
                name: String::new(),
            },
        }
    }

    /// Sets the namespace. Has no effect on paths.
    #[must_use]
    pub fn in_namespace(mut self, within: &str) -> Self {
        if let AccessTarget::Resource { namespace, .. } = &mut self.target {
            within.clone_into(namespace);
        }
        self
    }

    /// Sets the object's name. Has no effect on paths.
    #[must_use]
    pub fn with_name(mut self, one: &str) -> Self {
        if let AccessTarget::Resource { name, .. } = &mut self.target {
            one.clone_into(name);
        }
        self
    }

    /// Sets the subresource. Has no effect on paths.
    #[must_use]
    pub fn with_subresource(mut self, part: &str) -> Self {
        if let AccessTarget::Resource { subresource, .. } = &mut self.target {
            part.clone_into(subresource);
        }
        self
    }

    /// Returns the namespace; empty for the whole cluster and for paths.
    pub fn namespace(&self) -> &str {
        match &self.target {
            AccessTarget::Resource { namespace, .. } => namespace,
            AccessTarget::Path(_) => "",
        }
    }

    /// Returns the object's name; empty if there is none.
    pub fn name(&self) -> &str {
        match &self.target {
            AccessTarget::Resource { name, .. } => name,
            AccessTarget::Path(_) => "",
        }
    }
}

/// Writes `get pods/log.apps in a`, for logs and test failures.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = &self.verb;
        match &self.target {
            AccessTarget::Path(path) => write!(f, "{verb} {path}"),
            AccessTarget::Resource {
                group,
                resource,
                subresource,
                namespace,
                name,
                ..
            } => {
                let mark = |text: &str, mark: &str| match text {
                    "" => String::new(),
                    text => format!("{mark}{text}"),
                };
                let (group, part) = (mark(group, "."), mark(subresource, "/"));
                let (name, place) = (mark(name, " "), mark(namespace, " in "));
                write!(f, "{verb} {resource}{group}{part}{name}{place}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_parsed_from_method_path_and_query() {
        let cases = [
            ("GET", "/api/v1/pods", "list pods"),
            ("GET", "/api/v1/pods?watch=1", "watch pods"),
            ("GET", "/api/v1/pods?watch=false", "list pods"),
            ("GET", "/api/v1/watch/namespaces/a/pods", "watch pods in a"),
            ("GET", "/api/v1/watch/namespaces/a/pods/x", "watch pods x in a"),
            ("HEAD", "/api/v1/namespaces/a/pods/x", "get pods x in a"),
            ("POST", "/api/v1/namespaces/a/pods", "create pods in a"),
            (
                "POST",
                "/api/v1/namespaces/a/pods/x/eviction",
                "create pods/eviction x in a",
            ),
            (
                "PUT",
                "/apis/apps/v1/namespaces/a/deployments/x/scale",
                "update deployments.apps/scale x in a",
            ),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/a/deployments/x",
                "patch deployments.apps x in a",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/a/pods",
                "deletecollection pods in a",
            ),
            ("DELETE", "/api/v1/namespaces/a/pods/x", "delete pods x in a"),
            ("GET", "/api/v1/namespaces", "list namespaces"),
            // A namespace is its own namespace.
            ("GET", "/api/v1/namespaces/a", "get namespaces a in a"),
            (
                "PUT",
                "/api/v1/namespaces/a/finalize",
                "update namespaces/finalize a in a",
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx",
                "list pods x in a",
            ),
            (
                "GET",
                "/api/v1/pods?fieldSelector=spec.nodeName%3Dn,metadata.name%3D%3Dx&watch=true",
                "watch pods x",
            ),
            (
                "GET",
                "/api/v1/pods?fieldSelector=metadata.name!%3Dx",
                "list pods",
            ),
            (
                "GET",
                "/api/v1/pods?fieldSelector=metadata.name%3Dx&limit=no",
                "list pods",
            ),
            ("OPTIONS", "/api/v1/pods", " pods"),
            (
                "GET",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "get clusterroles.rbac.authorization.k8s.io system:node",
            ),
            ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
            ("GET", "/api/v1", "get /api/v1"),
            ("POST", "/healthz", "post /healthz"),
            ("GET", "/", "get /"),
        ];
        for (method, line, expected) in cases {
            let (path, query) = line
                .split_once('?')
                .map_or((line, None), |(path, query)| (path, Some(query)));
            let method = method.parse().expect("a method");
            assert_eq!(
                Access::of(&method, path, query).to_string(),
                expected,
                "{method} {line}"
            );
        }
    }
}
