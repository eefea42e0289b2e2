//! The parameters of operations.

use serde_json::{Value, json};

/// One parameter, in the path or in the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) kind: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Path,
    Query,
}

const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter {
        name,
        place: Place::Query,
        kind,
    }
}

pub(super) const PRETTY: Parameter = query("pretty", "string");
pub(super) const REVISION: Parameter = query("resourceVersion", "string");

pub(super) const LIST: [Parameter; 11] = [
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    REVISION,
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
    REVISION,
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

/// What a subresource that is no object can be asked for.
pub(super) fn of_connection(subresource: &str) -> &'static [Parameter] {
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

/// Those in a path, and that which every path has.
pub(super) fn of_path(path: &str) -> Vec<Parameter> {
    let named = ["name", "namespace", "path"]
        .into_iter()
        .filter(|name| path.contains(&format!("{{{name}}}")))
        .map(|name| Parameter {
            name,
            place: Place::Path,
            kind: "string",
        });
    named.chain([PRETTY]).collect()
}

impl Parameter {
    /// Where it stands, and whether it must.
    pub(super) fn head(self) -> Value {
        match self.place {
            Place::Path => json!({"name": self.name, "in": "path", "required": true}),
            Place::Query => json!({"name": self.name, "in": "query"}),
        }
    }
}
