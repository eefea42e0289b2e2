//! The attributes of a request.

use http::Method;
use percent_encoding::percent_decode_str;

use super::{Access, AccessTarget, Query, query::has_valid_escapes};
use crate::fields;

/// Attributes of a request, parsed from its method, path and query as by kube-apiserver's `RequestInfo`.
///
/// The path is decoded before it is split, so that `%2F` separates segments. Servers must route by these attributes: a
/// second parser of the path could execute another request than the authorized one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The decoded path.
    pub path: String,
    /// The query's parameters.
    pub query: Query,
    /// The attributes to authorize.
    pub access: Access,
    /// The verb in the path itself: `watch` in `/api/v1/watch/pods`, or `proxy`. `access` has it too.
    pub path_verb: Option<PathVerb>,
    /// Whether the path contains a namespace: `/api/v1/namespaces/a/pods`. False for a namespace itself, although
    /// `access` puts it into its own namespace.
    pub in_namespace: bool,
    /// The number of segments from the resource on: resource, name, subresource, and the uninterpreted rest.
    pub depth: usize,
    /// Whether the path is well-formed: two hexadecimal digits after every `%`.
    pub is_well_formed: bool,
}

/// A verb in a path, a legacy of the first API versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathVerb {
    /// `/api/v1/watch/…`
    Watch,
    /// `/api/v1/proxy/…`, no longer served.
    Proxy,
}

/// Subresources of a namespace (kube-apiserver's `namespaceSubresources`).
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    /// Parses a request.
    pub fn of(method: &Method, path: &str, query: Option<&str>) -> Self {
        // Most paths have no escapes.
        let has_escapes = path.bytes().any(|byte| byte == b'%');
        let is_well_formed = !has_escapes || has_valid_escapes(path);
        let path = if has_escapes {
            percent_decode_str(path).decode_utf8_lossy().into_owned()
        } else {
            path.to_owned()
        };
        let query = Query::parse(query);
        let other = |path: String, query| Self {
            access: Access::path(method.as_str().to_ascii_lowercase(), path.clone()),
            path,
            query,
            path_verb: None,
            in_namespace: false,
            depth: 0,
            is_well_formed,
        };
        let segments = FirstSegments::of(&path);
        let (group, version, rest) = match *segments.as_slice() {
            ["api", version, ref rest @ ..] if !rest.is_empty() => ("", version, rest),
            ["apis", group, version, ref rest @ ..] if !rest.is_empty() => (group, version, rest),
            _ => return other(path, query),
        };
        let (path_verb, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (Some(PathVerb::Watch), rest),
            ["proxy", rest @ ..] if !rest.is_empty() => (Some(PathVerb::Proxy), rest),
            _ => (None, rest),
        };
        let mut verb = match (path_verb, method.as_str()) {
            (Some(PathVerb::Watch), _) => "watch",
            (Some(PathVerb::Proxy), _) => "proxy",
            (None, "POST") => "create",
            (None, "GET" | "HEAD") => "get",
            (None, "PUT") => "update",
            (None, "PATCH") => "patch",
            (None, "DELETE") => "delete",
            (None, _) => "",
        };
        let (namespace, in_namespace, parts) = match rest {
            ["namespaces", namespace, part, ..] if !NAMESPACE_SUBRESOURCES.contains(part) => {
                (*namespace, true, &rest[2..])
            }
            ["namespaces", namespace, ..] => (*namespace, false, rest),
            _ => ("", false, rest),
        };
        let part = |index: usize| parts.get(index).copied().unwrap_or_default();
        let subresource = match path_verb {
            Some(PathVerb::Proxy) => "",
            _ => part(2),
        };
        let mut name = part(1).to_owned();
        if name.is_empty() && verb == "get" {
            verb = if query.flag("watch") { "watch" } else { "list" };
            name = selected_name(&query).unwrap_or_default();
        }
        if name.is_empty() && verb == "delete" {
            verb = "deletecollection";
        }
        let access = Access {
            verb: verb.to_owned(),
            target: AccessTarget::Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: part(0).to_owned(),
                subresource: subresource.to_owned(),
                namespace: namespace.to_owned(),
                name,
            },
        };
        Self {
            access,
            path_verb,
            in_namespace,
            depth: parts.len() + segments.further(),
            is_well_formed,
            path,
            query,
        }
    }

    /// Returns the segments of the path; none for `/`.
    pub fn segments(&self) -> Vec<&str> {
        segments(&self.path)
    }

    /// Returns whether the name of `access` is in the path, rather than in a field selector.
    pub fn is_named(&self) -> bool {
        self.depth > 1 && !self.access.name().is_empty()
    }

    /// Returns whether the request asks not to store anything.
    pub fn is_dry_run(&self) -> bool {
        self.query.all("dryRun").iter().any(|value| !value.is_empty())
    }

    /// Returns whether the request is long-running: a watch, or a subresource that streams.
    pub fn is_long_running(&self) -> bool {
        let streams = match &self.access.target {
            AccessTarget::Resource { subresource, .. } => matches!(
                &**subresource,
                "attach" | "exec" | "log" | "portforward" | "proxy"
            ),
            AccessTarget::Path(_) => false,
        };
        streams || matches!(&*self.access.verb, "watch" | "proxy")
    }
}

/// `apis`, group, version, `watch`, `namespaces`, namespace, resource, name, subresource.
const MEANINGFUL_SEGMENTS: usize = 9;

/// The segments of a path that can have a meaning, without an allocation.
struct FirstSegments<'a> {
    first: [&'a str; MEANINGFUL_SEGMENTS],
    /// Of all segments.
    count: usize,
}

impl<'a> FirstSegments<'a> {
    fn of(path: &'a str) -> Self {
        let mut segments = Self {
            first: [""; MEANINGFUL_SEGMENTS],
            count: 0,
        };
        let path = path.trim_matches('/');
        if path.is_empty() {
            return segments;
        }
        let mut start = 0;
        let ends = path
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'/')
            .map(|(index, _)| index);
        for end in ends.chain([path.len()]) {
            if let Some(segment) = segments.first.get_mut(segments.count) {
                *segment = &path[start..end];
            }
            segments.count += 1;
            start = end + 1;
        }
        segments
    }

    fn as_slice(&self) -> &[&'a str] {
        &self.first[..self.count.min(MEANINGFUL_SEGMENTS)]
    }

    /// The number of segments that are not in the slice.
    fn further(&self) -> usize {
        self.count.saturating_sub(MEANINGFUL_SEGMENTS)
    }
}

fn segments(path: &str) -> Vec<&str> {
    match path.trim_matches('/') {
        "" => Vec::new(),
        path => path.split('/').collect(),
    }
}

/// Returns the single name that the field selector of a list or watch requires.
fn selected_name(query: &Query) -> Option<String> {
    // One invalid option makes the server ignore the rest of them.
    for number in ["limit", "timeoutSeconds"] {
        query.number(number).ok()?;
    }
    let selector: fields::Selector = query.text("fieldSelector")?.parse().ok()?;
    let name = selector.required_value("metadata.name")?;
    let is_segment = !matches!(name, "" | "." | "..") && !name.contains(['/', '%']);
    is_segment.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> RequestInfo {
        let (method, line) = line.split_once(' ').expect("a method and a path");
        let (path, query) = line
            .split_once('?')
            .map_or((line, None), |(path, query)| (path, Some(query)));
        RequestInfo::of(&method.parse().expect("a method"), path, query)
    }

    #[test]
    fn path_is_decoded_before_it_is_split() {
        for (line, expected) in [
            ("GET /api/v1/namespaces/a%2Fpods", "list pods in a"),
            ("GET /api/v1/namespaces/a/pods/x%2Flog", "get pods/log x in a"),
            ("GET /%61pi/v1/pods", "list pods"),
            ("GET //api/v1/pods//", "list pods"),
            ("GET /api/v1/namespaces/a//pods", "get  pods in a"),
            ("GET /api/v1/namespaces//pods", "list pods"),
            (
                "GET /api/v1/namespaces/a/pods/../secrets",
                "get pods/secrets .. in a",
            ),
            (
                "GET /api/v1/namespaces/a/pods/%2e%2e/secrets",
                "get pods/secrets .. in a",
            ),
            ("GET /api/v1/namespaces/a/pods/x%252Flog", "get pods x%2Flog in a"),
            ("GET /api/v1/namespaces/a/pods//log", "list pods/log in a"),
            (
                "GET /apis/apps/v1/namespaces/a/status",
                "get namespaces.apps/status a in a",
            ),
            (
                "GET /api/v1/namespaces/a/status/x",
                "get namespaces/status a in a",
            ),
            ("DELETE /api/v1/watch/namespaces/a/pods/x", "watch pods x in a"),
            ("POST /api/v1/watch/namespaces/a/pods", "watch pods in a"),
            ("GET /api/v1/proxy/namespaces/a/pods/x/y/z", "proxy pods x in a"),
            ("GET /api/v1/watch", "list watch"),
            ("GET /APIS/apps/v1/deployments", "get /APIS/apps/v1/deployments"),
        ] {
            assert_eq!(read(line).access.to_string(), expected, "{line}");
        }
    }

    #[test]
    fn verb_and_name_of_a_collection_come_from_the_query() {
        for (query, expected) in [
            ("watch=FALSE", "list pods"),
            ("watch=False&watch=true", "list pods"),
            ("watch=TRUE", "watch pods"),
            ("watch=t", "watch pods"),
            ("watch", "watch pods"),
            ("w%61tch=1", "watch pods"),
            ("fieldSelector=metadata.name%3Dx", "list pods x"),
            ("fieldSelector=metadata.name%3Dx&watch=1", "watch pods x"),
            ("fieldSelector=metadata.name!%3Dx", "list pods"),
            ("fieldSelector=metadata.name%3Dy,metadata.name%3Dx", "list pods x"),
            ("fieldSelector=metadata.name%3Dx%2F..", "list pods"),
            ("fieldSelector=metadata.name%3Dx&limit=no", "list pods"),
            ("fieldSelector=metadata.name%3Dx&limit=", "list pods"),
            (
                "fieldSelector=metadata.name%3Dx%5C,metadata.namespace%3Da",
                "list pods",
            ),
            (
                "fieldSelector=spec.nodeName%3Dn&fieldSelector=metadata.name%3Dx",
                "list pods",
            ),
        ] {
            let line = format!("GET /api/v1/pods?{query}");
            assert_eq!(read(&line).access.to_string(), expected, "{query}");
        }
        // Only a list or a watch is narrowed by a selector, and a named object is never watched.
        for (line, expected) in [
            ("GET /api/v1/namespaces/a/pods/x?watch=1", "get pods x in a"),
            (
                "DELETE /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx",
                "deletecollection pods in a",
            ),
        ] {
            assert_eq!(read(line).access.to_string(), expected, "{line}");
        }
    }

    #[test]
    fn remaining_attributes_are_parsed() {
        let info = read("GET /api/v1/namespaces/a/pods/x/log/more?follow=1");
        assert!(info.in_namespace && info.is_named() && info.is_long_running());
        assert_eq!((info.depth, info.path_verb), (4, None));
        let path = "/apis/g/v1/watch/namespaces/a/pods/x/log";
        for further in 0..5 {
            let info = read(&format!("GET {path}{}", "/more".repeat(further)));
            assert_eq!(info.depth, 3 + further);
            assert_eq!(info.access.to_string(), "watch pods.g/log x in a");
        }
        let info = read("GET /api/v1/namespaces/a");
        assert!(!info.in_namespace && info.is_named() && !info.is_long_running());
        let info = read("GET /api/v1/pods?fieldSelector=metadata.name%3Dx");
        assert!(!info.is_named(), "the name comes from the selector");
        let info = read("POST /api/v1/watch/namespaces/a/pods");
        assert_eq!(info.path_verb, Some(PathVerb::Watch));
        assert!(info.is_long_running());
        assert!(read("PATCH /api/v1/namespaces/a?dryRun=All").is_dry_run());
        assert!(!read("PATCH /api/v1/namespaces/a?dryRun=&force=true").is_dry_run());
        assert!(!read("GET /api/%zz").is_well_formed);
        assert_eq!(read("GET //api//v1/").segments(), ["api", "", "v1"]);
    }
}
