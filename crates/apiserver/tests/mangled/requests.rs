//! Generates requests: a path that the server serves or nearly serves, with a query, headers and a body.

use std::fmt;

use bytes::Bytes;
use http::Request;
use proptest::{prelude::*, sample::Index};
use serde_json::Value;
use windlass_apiserver::Server;

use crate::{bodies, call, junk};

/// Every path in the server's own discovery documents, with names filled in.
#[derive(Clone, Debug)]
pub(crate) struct Paths(Vec<String>);

impl Paths {
    pub(crate) async fn of(server: &Server) -> Self {
        let document = |path: String| async move {
            let response = call(server, Request::get(path).body(Bytes::new()).expect("a request")).await;
            serde_json::from_slice::<Value>(&response.bytes).expect("a document")
        };
        let mut versions = vec!["/api/v1".to_owned()];
        let groups = document("/apis".to_owned()).await;
        for group in groups["groups"].as_array().expect("groups") {
            for version in group["versions"].as_array().expect("versions") {
                versions.push(format!(
                    "/apis/{}",
                    version["groupVersion"].as_str().expect("a version")
                ));
            }
        }
        let mut paths: Vec<String> = [
            "/",
            "/api",
            "/apis",
            "/apis/apps",
            "/version",
            "/healthz",
            "/readyz",
            "/openapi/v3",
            "/openapi/v2",
            "/openapi/v3/apis/apps/v1",
        ]
        .map(str::to_owned)
        .into();
        for version in versions {
            paths.push(version.clone());
            for resource in document(version.clone()).await["resources"]
                .as_array()
                .expect("resources")
            {
                let mut name = resource["name"].as_str().expect("a name").splitn(2, '/');
                let plural = name.next().unwrap_or_default();
                let root = if resource["namespaced"] == true {
                    format!("{version}/namespaces/default/{plural}")
                } else {
                    format!("{version}/{plural}")
                };
                if let Some(subresource) = name.next() {
                    for object in ["one", "web", "node", "default"] {
                        paths.push(format!("{root}/{object}/{subresource}"));
                    }
                    continue;
                }
                paths.extend([
                    root.clone(),
                    format!("{version}/{plural}"),
                    format!("{version}/watch/{plural}"),
                ]);
                paths.extend(
                    [
                        "one",
                        "web",
                        "settings",
                        "node",
                        "other",
                        "default",
                        "widgets.example.com",
                    ]
                    .map(|object| format!("{root}/{object}")),
                );
            }
        }
        // Repeat the kinds with the most behaviour, so that they are drawn more often.
        let favourites: Vec<_> = bodies::objects()
            .iter()
            .map(|(path, _)| (*path).to_owned())
            .collect();
        for path in favourites {
            for _ in 0..4 {
                paths.push(path.clone());
                paths.extend(
                    ["one", "web", "settings", "default", "widgets.example.com"]
                        .map(|object| format!("{path}/{object}")),
                );
                paths.extend(["status", "scale"].map(|part| format!("{path}/web/{part}")));
                paths.extend(
                    ["status", "scale", "eviction", "binding", "log"]
                        .map(|part| format!("{path}/one/{part}")),
                );
            }
        }
        Self(paths)
    }
}

/// A request that may not be valid HTTP.
#[derive(Clone)]
pub(crate) struct Draft {
    method: String,
    target: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
}

/// Prints the request as one would type it.
impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.method, self.target)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {}", value.escape_ascii())?;
        }
        write!(f, "{}", self.body.escape_ascii())
    }
}

/// Builds the request; `None` if it is not valid HTTP.
pub(crate) fn build(draft: &Draft) -> Option<Request<Bytes>> {
    let mut request = Request::builder()
        .method(draft.method.as_str())
        .uri(draft.target.as_str());
    for (name, value) in &draft.headers {
        request = request.header(*name, value.as_slice());
    }
    request.body(Bytes::from(draft.body.clone())).ok()
}

/// Generates requests: some nearly valid, some almost random.
pub(crate) fn request(paths: Paths) -> impl Strategy<Value = Draft> {
    prop_oneof![3 => on_existing_object(), 1 => random_parts(paths)]
}

/// Draws every part independently.
fn random_parts(paths: Paths) -> impl Strategy<Value = Draft> {
    (method(), path(paths), query(), headers(), bodies::body()).prop_map(
        |(method, path, query, headers, body)| {
            let target = if query.is_empty() {
                path
            } else {
                format!("{path}?{query}")
            };
            Draft {
                method,
                target,
                headers,
                body,
            }
        },
    )
}

/// Uses the right method, path and content type for an existing object, with a slightly wrong body and query.
fn on_existing_object() -> impl Strategy<Value = Draft> {
    let object = prop::sample::select(bodies::objects());
    let changes = prop::collection::vec(junk::mutation(), 0..4);
    let off = |odds| prop_oneof![odds => Just(None), 1 => junk::byte_mutation().prop_map(Some)];
    let query = prop_oneof![2 => Just(String::new()), 1 => query()];
    let accept = prop_oneof![2 => Just(Vec::new()), 1 => headers()];
    (object, operation(), changes, off(6), query, accept).prop_map(
        |((path, object), operation, changes, off, query, extra)| {
            let name = object["metadata"]["name"]
                .as_str()
                .expect("every one has a name")
                .to_owned();
            let (method, tail, content_type, mut tree) = match operation {
                Operation::Create(as_name) => {
                    let mut object = object;
                    object["metadata"]["name"] = as_name.into();
                    ("POST", String::new(), "application/json", object)
                }
                Operation::Update(part) => ("PUT", format!("/{name}{part}"), "application/json", object),
                Operation::Merge(part, None) => (
                    "PATCH",
                    format!("/{name}{part}"),
                    "application/merge-patch+json",
                    object,
                ),
                Operation::Merge(part, Some((kind, patch))) => {
                    ("PATCH", format!("/{name}{part}"), kind, patch)
                }
                Operation::Subresource(part, body) => {
                    ("POST", format!("/{name}/{part}"), "application/json", body)
                }
                Operation::Delete(options) => ("DELETE", format!("/{name}"), "application/json", options),
                Operation::DeleteAll => ("DELETE", String::new(), "application/json", Value::Null),
                Operation::Read(part) => (
                    "GET",
                    part.replace("NAME", &name),
                    "application/json",
                    Value::Null,
                ),
            };
            for change in &changes {
                change.apply(&mut tree);
            }
            let mut body = if tree.is_null() {
                Vec::new()
            } else {
                tree.to_string().into_bytes()
            };
            if let Some(byte_mutation) = off {
                byte_mutation.apply(&mut body);
            }
            let mut headers = vec![("content-type", content_type.as_bytes().to_vec())];
            headers.extend(extra.into_iter().filter(|(name, _)| *name != "content-type"));
            Draft {
                method: method.to_owned(),
                target: format!("{path}{tail}?{query}"),
                headers,
                body,
            }
        },
    )
}

/// The operation on the object.
#[derive(Clone, Debug)]
enum Operation {
    Create(String),
    Update(&'static str),
    /// Patches with the object itself or with a patch of the given type.
    Merge(&'static str, Option<(&'static str, Value)>),
    Subresource(&'static str, Value),
    Delete(Value),
    DeleteAll,
    Read(&'static str),
}

fn operation() -> impl Strategy<Value = Operation> {
    let part = || prop::sample::select(vec!["", "", "", "/status", "/scale", "/finalize"]);
    let types = vec![
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ];
    let other = || prop::sample::select(bodies::others());
    let patch = (prop::sample::select(types), other());
    prop_oneof![
        3 => "[a-c]{1,2}".prop_map(Operation::Create),
        3 => part().prop_map(Operation::Update),
        2 => part().prop_map(|part| Operation::Merge(part, None)),
        4 => (part(), patch).prop_map(|(part, patch)| Operation::Merge(part, Some(patch))),
        1 => (prop::sample::select(vec!["eviction", "binding", "token", "log"]), other())
            .prop_map(|(part, body)| Operation::Subresource(part, body)),
        1 => other().prop_map(Operation::Delete),
        1 => Just(Operation::DeleteAll),
        2 => prop::sample::select(vec!["", "/NAME", "/NAME/status", "/NAME/scale", "?watch=1", "?limit=1"]).prop_map(Operation::Read),
    ]
}

fn method() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => prop::sample::select(vec!["GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE"]).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["HEAD", "OPTIONS", "TRACE", "CONNECT", "WATCH"]).prop_map(str::to_owned),
        1 => "[A-Z]{1,6}",
    ]
}

fn path(paths: Paths) -> impl Strategy<Value = String> {
    let twist = prop_oneof![
        12 => Just(None),
        6 => (any::<Index>(), segment()).prop_map(Some),
    ];
    (prop::sample::select(paths.0), twist, any::<bool>()).prop_map(|(path, twist, replace)| {
        let Some((place, segment)) = twist else {
            return path;
        };
        let mut parts: Vec<&str> = path.split('/').collect();
        let place = 1 + place.index(parts.len());
        if replace && place < parts.len() {
            parts[place] = &segment;
        } else {
            parts.insert(place, &segment);
        }
        parts.join("/")
    })
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec![
            "", ".", "..", "%2F", "%00", "%", "%zz", "%ff%fe", "%E2%82%AC", "watch", "namespaces", "status", "scale",
            "pods", "v1", "apps", "*", "{name}", "a%20b", "default", "other", "+", "log", "finalize",
        ]).prop_map(str::to_owned),
        1 => prop::collection::vec(any::<u8>(), 0..12)
            .prop_map(|bytes| bytes.iter().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"))),
        1 => (1..5_000_usize).prop_map(|length| "x".repeat(length)),
    ]
}

fn query() -> impl Strategy<Value = String> {
    let keys = vec![
        "watch",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "timeoutSeconds",
        "timeout",
        "allowWatchBookmarks",
        "sendInitialEvents",
        "dryRun",
        "fieldValidation",
        "fieldManager",
        "force",
        "pretty",
        "includeObject",
        "gracePeriodSeconds",
        "propagationPolicy",
        "orphanDependents",
        "hash",
        "verbose",
        "container",
        "tailLines",
        "sinceSeconds",
        "follow",
        "limitBytes",
    ];
    let values = prop_oneof![
        8 => prop::sample::select(vec![
            "", "0", "1", "-1", "true", "false", "2", "500", "9223372036854775807", "-9223372036854775808",
            "18446744073709551615", "18446744073709551616", "1e3", "All", "Strict", "Warn", "Ignore", "Exact",
            "NotOlderThan", "Background", "Foreground", "Orphan", "None", "Metadata", "Object", "a=b", "a in (b,c),!d",
            "a in (", "metadata.name=one", "metadata.name!=", "status.phase=Running,spec.nodeName=", "=", ",", "!",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiIn0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "bm9wZQ", "1s", "10000h",
        ]).prop_map(str::to_owned),
        1 => ".{0,12}",
        1 => "[a-z=!,()<> ]{0,16}",
    ];
    let encoded = values.prop_map(|value| {
        value
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' => char::from(byte).to_string(),
                other => format!("%{other:02X}"),
            })
            .collect::<String>()
    });
    let pair = prop_oneof![
        12 => (prop::sample::select(keys), encoded).prop_map(|(key, value)| format!("{key}={value}")),
        1 => "[%a-z=&+0-9]{0,9}",
    ];
    let watch = prop_oneof![
        4 => Just(String::new()),
        1 => prop::sample::select(vec![
            "watch=true", "watch=1&timeoutSeconds=5", "watch=true&resourceVersion=3", "watch=true&timeoutSeconds=9223372036854775807",
            "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "limit=1", "limit=2&labelSelector=app",
        ])
        .prop_map(|text| format!("{text}&")),
    ];
    (watch, prop::collection::vec(pair, 0..4)).prop_map(|(watch, pairs)| {
        format!("{watch}{}", pairs.join("&"))
            .trim_end_matches('&')
            .to_owned()
    })
}

fn headers() -> impl Strategy<Value = Vec<(&'static str, Vec<u8>)>> {
    let content = prop_oneof![
        10 => prop::sample::select(vec![
            "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/json-patch+json",
            "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml",
            "application/json; charset=utf-8", "application/cbor", "text/plain", "", ";", "application/json;;;=",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(32..=255_u8, 0..20),
    ];
    let accept = prop_oneof![
        10 => prop::sample::select(vec![
            "application/json", "*/*", "application/yaml", "application/vnd.kubernetes.protobuf,application/json",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/yaml;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=Nope;v=v9;g=x",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "text/html", ",,,", ";q=9", "*/*;q=0",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(32..=255_u8, 0..20),
    ];
    (
        prop::option::of(content),
        prop::option::of(accept),
        prop::option::of(junk_header()),
    )
        .prop_map(|(content, accept, other)| {
            let content = content.map(|value| ("content-type", value));
            let accept = accept.map(|value| ("accept", value));
            content.into_iter().chain(accept).chain(other).collect()
        })
}

fn junk_header() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let names = vec![
        "if-none-match",
        "user-agent",
        "authorization",
        "impersonate-user",
        "impersonate-group",
        "impersonate-uid",
        "impersonate-extra-a%2fb",
        "impersonate-extra-%ff",
        "content-length",
        "x-junk",
    ];
    let credentials = prop::sample::select(vec![
        "alice",
        "system:anonymous",
        "system:masters",
        "system:node:n",
        "system:serviceaccount:default:default",
        "system:serviceaccount:::",
        "Bearer a.b.c",
        "Bearer eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCJ9.AAAA",
        "Bearer  spaced",
        "Basic YTpi",
    ]);
    let value = prop_oneof![
        prop::collection::vec(32..=255_u8, 0..40),
        credentials.prop_map(|text| text.as_bytes().to_vec()),
    ];
    (prop::sample::select(names), value)
}
