//! What a request asks for, as an authoriser sees it.

use std::fmt;

use http::Method;

use crate::request_info::RequestInfo;

/// What a request needs the right to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// `get`, `list`, `watch`, `create`, … for resources; the method in lower case for paths. Some rights, such as
    /// `impersonate`, are no request's but checked on the way.
    pub verb: String,
    /// What it is done to.
    pub object: Object,
}

/// What something is done to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// Objects of the API.
    Resource {
        /// Empty for the core group.
        group: String,
        /// As the path says; rules do not look at it.
        version: String,
        /// The plural.
        resource: String,
        /// Empty for the object itself.
        subresource: String,
        /// Empty for cluster-scoped objects, and across all namespaces.
        namespace: String,
        /// Empty for requests on the collection, unless they select one by name.
        name: String,
    },
    /// Anything else, such as `/healthz`.
    Path(String),
}

impl Access {
    /// Reads a request's line; [`RequestInfo`] has the rest of what it says.
    pub fn of(method: &Method, path: &str, query: Option<&str>) -> Self {
        RequestInfo::of(method, path, query).access
    }

    /// Something done to a path that is no resource.
    pub fn path(verb: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            verb: verb.into(),
            object: Object::Path(path.into()),
        }
    }

    /// Something done to objects of the cluster; [`Access::named`] and [`Access::within`] say which.
    pub fn resource(verb: &str, group: &str, resource: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            object: Object::Resource {
                group: group.to_owned(),
                version: String::new(),
                resource: resource.to_owned(),
                subresource: String::new(),
                namespace: String::new(),
                name: String::new(),
            },
        }
    }

    /// The same in a namespace. Paths have none.
    #[must_use]
    pub fn within(mut self, within: &str) -> Self {
        if let Object::Resource { namespace, .. } = &mut self.object {
            within.clone_into(namespace);
        }
        self
    }

    /// The same on one object. Paths have none.
    #[must_use]
    pub fn named(mut self, one: &str) -> Self {
        if let Object::Resource { name, .. } = &mut self.object {
            one.clone_into(name);
        }
        self
    }

    /// The same on a part of objects. Paths have none.
    #[must_use]
    pub fn part(mut self, part: &str) -> Self {
        if let Object::Resource { subresource, .. } = &mut self.object {
            part.clone_into(subresource);
        }
        self
    }

    /// The namespace that it is limited to; empty for the whole cluster and for paths.
    pub fn namespace(&self) -> &str {
        match &self.object {
            Object::Resource { namespace, .. } => namespace,
            Object::Path(_) => "",
        }
    }

    /// The object's name; empty where none is named.
    pub fn name(&self) -> &str {
        match &self.object {
            Object::Resource { name, .. } => name,
            Object::Path(_) => "",
        }
    }
}

/// `get pods/log.apps in a`, for logs and test failures.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = &self.verb;
        match &self.object {
            Object::Path(path) => write!(f, "{verb} {path}"),
            Object::Resource {
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
    fn requests_are_read_as_the_authoriser_reads_them() {
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
            // A namespace is in itself.
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
