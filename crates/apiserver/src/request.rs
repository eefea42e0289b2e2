//! What a request asks for: its path and its query, read before anything is done.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use http::Method;

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
    /// The path had the old `/watch/` in it.
    pub(crate) legacy_watch: bool,
}

impl Target {
    /// Whether nothing is there for a method: custom resources with namespaces can only be read across all of them.
    pub(crate) fn is_nowhere(&self, method: &Method) -> bool {
        let resource = &self.resource;
        resource.custom && resource.namespaced && self.namespace.is_empty() && method != Method::GET
    }

    /// Where the object is stored.
    pub(crate) fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}

/// Where a path leads.
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
    /// None of these.
    Other,
}

impl Route {
    pub(crate) fn of(path: &str, catalogue: &Catalogue) -> Self {
        let decoded: Vec<Cow<'_, str>> = path
            .trim_matches('/')
            .split('/')
            .map(|part| percent_encoding::percent_decode_str(part).decode_utf8_lossy())
            .collect();
        let parts: Vec<&str> = decoded.iter().map(|part| &**part).collect();
        let (group, version, rest) = match parts[..] {
            ["api"] => return Self::Groups { core: true },
            ["apis"] => return Self::Groups { core: false },
            ["apis", group] if catalogue.group(group).is_some() => return Self::Group(group.into()),
            ["api", version, ref rest @ ..] => ("", version, rest),
            ["apis", group, version, ref rest @ ..] if !group.is_empty() => (group, version, rest),
            _ => return Self::Other,
        };
        let known = catalogue
            .group(group)
            .is_some_and(|g| g.versions.iter().any(|v| **v == *version));
        if !known {
            // An unknown version of a built-in group is a resource that is not there; of any other group it is nothing.
            let built_in = catalogue
                .resources
                .iter()
                .any(|r| *r.group == *group && !r.custom);
            return if built_in {
                Self::NoSuchResource
            } else {
                Self::Other
            };
        }
        if rest.is_empty() {
            return Self::Version(group.into(), version.into());
        }
        let built_in = || {
            catalogue
                .of_version(group, version)
                .any(|resource| !resource.custom)
        };
        match Self::resource(group, version, rest, catalogue) {
            Some(target) => Self::Resource(target),
            None if built_in() => Self::NoSuchResource,
            None => Self::Other,
        }
    }

    fn resource(group: &str, version: &str, rest: &[&str], catalogue: &Catalogue) -> Option<Target> {
        let (legacy_watch, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            _ => (false, rest),
        };
        let find = |plural: &str| catalogue.find(group, version, plural).cloned();
        // `namespaces/x/status` is about the namespace; `namespaces/x/pods` is about what is in it.
        let (namespace, rest) = match rest {
            ["namespaces", name, inner, more @ ..]
                if !matches!(*inner, "status" | "finalize") || !more.is_empty() || !group.is_empty() =>
            {
                (*name, &rest[2..])
            }
            _ => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return None,
        };
        let resource = find(plural)?;
        if !namespace.is_empty() && !resource.namespaced {
            return None;
        }
        if resource.namespaced && namespace.is_empty() && !name.is_empty() {
            return None;
        }
        // What can only be created has no names.
        if !name.is_empty()
            && subresource.is_empty()
            && matches!(&resource.verbs[..], [only] if **only == *"create")
        {
            return None;
        }
        // A part that a custom resource does not have is refused with the object's name.
        if !subresource.is_empty() && !resource.custom {
            resource.subresource(subresource)?;
        }
        Some(Target {
            resource,
            namespace: namespace.into(),
            name: name.into(),
            subresource: subresource.into(),
            legacy_watch,
        })
    }
}

/// What is to be done, in the words that RBAC uses.
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
    pub(crate) fn of(method: &Method, target: &Target, query: &Query) -> Result<Self, Status> {
        let on_object = !target.name.is_empty();
        let verb = match (method.as_str(), on_object) {
            // On one object `watch` means nothing, but for the old path that says it.
            ("GET", _) if target.legacy_watch || (!on_object && query.flag("watch")) => Self::Watch,
            ("GET", true) => Self::Get,
            ("GET", false) => Self::List,
            ("POST", false) => Self::Create,
            ("POST", true) if !target.subresource.is_empty() => Self::Create,
            ("PUT", true) => Self::Update,
            ("PATCH", true) => Self::Patch,
            ("DELETE", true) => Self::Delete,
            ("DELETE", false) => Self::DeleteCollection,
            _ => return Err(Status::method_not_allowed()),
        };
        let resource = &target.resource;
        if !target.subresource.is_empty() && resource.custom {
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
            None => resource.allows(verb.name()),
        };
        let across = resource.namespaced && target.namespace.is_empty();
        if !allowed || across && !matches!(verb, Self::List | Self::Watch) {
            return Err(Status::method_not_allowed());
        }
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

/// The query's parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(HashMap<String, Vec<String>>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let mut parameters: HashMap<String, Vec<String>> = HashMap::new();
        for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            parameters
                .entry(key.into_owned())
                .or_default()
                .push(value.into_owned());
        }
        Self(parameters)
    }

    /// A parameter that counts as absent when it is empty.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.0
            .get(key)?
            .first()
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Every value of a parameter that may stand several times.
    pub(crate) fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// True for anything but absent, `0` and `false`, as the real server reads it.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0
            .get(key)
            .and_then(|values| values.first())
            .is_some_and(|v| v != "0" && v != "false")
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn paths_lead_to_resources() {
        let catalogue = Registry::new().catalogue();
        let read = |path: &str| match Route::of(path, &catalogue) {
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
            ("/healthz", "Other"),
        ];
        for (path, expected) in cases {
            assert_eq!(read(path), expected, "{path}");
        }
    }
}
