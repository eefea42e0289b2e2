//! The parameters of operations.

use serde_json::{Value, json};

/// One parameter, in the path or in the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) location: Location,
    pub(super) kind: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    Path,
    Query,
}

const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter {
        name,
        location: Location::Query,
        kind,
    }
}

pub(super) const PRETTY: Parameter = query("pretty", "string");
pub(super) const RESOURCE_VERSION: Parameter = query("resourceVersion", "string");

pub(super) const LIST: [Parameter; 11] = [
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    RESOURCE_VERSION,
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
    query("watch", "boolean"),
];
pub(super) const WRITE: [Parameter; 3] = [
    query("dryRun", "string"),
    query("fieldManager", "string"),
    query("fieldValidation", "string"),
];
pub(super) const PATCH: [Parameter; 4] = [
    query("dryRun", "string"),
    query("fieldManager", "string"),
    query("fieldValidation", "string"),
    query("force", "boolean"),
];
pub(super) const DELETE: [Parameter; 5] = [
    query("dryRun", "string"),
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
];
pub(super) const DELETE_COLLECTION: [Parameter; 14] = [
    query("continue", "string"),
    query("dryRun", "string"),
    query("fieldSelector", "string"),
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
    RESOURCE_VERSION,
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
];
const ATTACH: [Parameter; 5] = [
    query("container", "string"),
    query("stderr", "boolean"),
    query("stdin", "boolean"),
    query("stdout", "boolean"),
    query("tty", "boolean"),
];
const EXEC: [Parameter; 6] = [
    query("command", "string"),
    query("container", "string"),
    query("stderr", "boolean"),
    query("stdin", "boolean"),
    query("stdout", "boolean"),
    query("tty", "boolean"),
];
const LOG: [Parameter; 9] = [
    query("container", "string"),
    query("follow", "boolean"),
    query("insecureSkipTLSVerifyBackend", "boolean"),
    query("limitBytes", "integer"),
    query("previous", "boolean"),
    query("sinceSeconds", "integer"),
    query("stream", "string"),
    query("tailLines", "integer"),
    query("timestamps", "boolean"),
];

/// The query parameters of a subresource that is a connection.
pub(super) fn connection_parameters(subresource: &str) -> &'static [Parameter] {
    const PORTS: [Parameter; 1] = [query("ports", "integer")];
    const PATH: [Parameter; 1] = [query("path", "string")];
    match subresource {
        "attach" => &ATTACH,
        "exec" => &EXEC,
        "log" => &LOG,
        "portforward" => &PORTS,
        "proxy" => &PATH,
        _ => &[],
    }
}

/// The parameters in a path, and `pretty`, which every path has.
pub(super) fn path_parameters(path: &str) -> Vec<Parameter> {
    let named = ["name", "namespace", "path"]
        .into_iter()
        .filter(|name| path.contains(&format!("{{{name}}}")))
        .map(|name| Parameter {
            name,
            location: Location::Path,
            kind: "string",
        });
    named.chain([PRETTY]).collect()
}

impl Parameter {
    /// Its name, its location, and whether it is required.
    pub(super) fn location_fields(self) -> Value {
        match self.location {
            Location::Path => json!({"name": self.name, "in": "path", "required": true}),
            Location::Query => json!({"name": self.name, "in": "query"}),
        }
    }
}
