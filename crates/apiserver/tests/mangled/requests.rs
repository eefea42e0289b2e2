//! Requests: a path of the server, more or less, with a query, headers and a body.

use bytes::Bytes;
use http::Request;
use proptest::{prelude::*, sample::Index};
use serde_json::Value;
use windlass_apiserver::Server;

use crate::{ask, bodies};

/// Every path that the server's own discovery tells of, with names filled in.
#[derive(Clone, Debug)]
pub(crate) struct Paths(Vec<String>);

impl Paths {
    pub(crate) async fn of(server: &Server) -> Self {
        let document = |path: String| async move {
            let said = ask(server, Request::get(path).body(Bytes::new()).expect("a request")).await;
            serde_json::from_slice::<Value>(&said.bytes).expect("a document")
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
        // The kinds with the most behaviour come more often than by chance.
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

/// A request before it is checked whether HTTP can carry it.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    method: String,
    target: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
}

pub(crate) fn shown(draft: &Draft) -> String {
    let headers: Vec<_> = draft
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
        .collect();
    format!(
        "{} {} {headers:?} {}",
        draft.method,
        draft.target,
        String::from_utf8_lossy(&draft.body)
    )
}

/// The request; none where HTTP itself rules it out.
pub(crate) fn built(draft: &Draft) -> Option<Request<Bytes>> {
    let mut request = Request::builder()
        .method(draft.method.as_str())
        .uri(draft.target.as_str());
    for (name, value) in &draft.headers {
        request = request.header(*name, value.as_slice());
    }
    request.body(Bytes::from(draft.body.clone())).ok()
}

pub(crate) fn request(paths: Paths) -> impl Strategy<Value = Draft> {
    (method(), path(paths), query(), headers(), bodies::body()).prop_map(
        |(method, path, query, headers, body)| Draft {
            method,
            target: if query.is_empty() {
                path
            } else {
                format!("{path}?{query}")
            },
            headers,
            body,
        },
    )
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
            .prop_map(|bytes| bytes.iter().map(|byte| format!("%{byte:02X}")).collect()),
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
    prop::collection::vec(pair, 0..4).prop_map(|pairs| pairs.join("&"))
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
        "content-length",
        "x-junk",
    ];
    (
        prop::sample::select(names),
        prop::collection::vec(32..=255_u8, 0..40),
    )
}
