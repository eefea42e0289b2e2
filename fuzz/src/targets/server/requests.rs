//! Whole requests, up to twelve in a row: method, path, query, headers and body. Each is sent by a trusted caller, and
//! again by one that must authenticate itself.

use fastrand::Rng;
use percent_encoding::percent_encode_byte;

use super::{
    parameters::{LISTS, SELECTORS},
    request::{self, Draft, PARAMETERS},
    seeds::{self, BaseObjects},
    test_server::TestServer,
    writes::ResourcePath,
};
use crate::{
    engine::{Outcome, Target},
    invariants::Violation,
    mutate::{bytes, dictionary},
};

const MAX_REQUESTS: usize = 12;

const METHODS: &[&str] = &[
    "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "WATCH", "X",
];

/// Documents and probes, which are no resources.
const DOCUMENTS: &[&str] = &[
    "/",
    "/api",
    "/apis",
    "/apis/apps",
    "/version",
    "/healthz",
    "/readyz",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/apis/apps/v1",
];

const SEGMENTS: &[&str] = &[
    "",
    ".",
    "..",
    "%2F",
    "%00",
    "%",
    "%zz",
    "%ff%fe",
    "%E2%82%AC",
    "watch",
    "namespaces",
    "status",
    "scale",
    "pods",
    "v1",
    "apps",
    "*",
    "{name}",
    "a%20b",
    "default",
    "other",
    "+",
    "log",
    "finalize",
    "eviction",
    "binding",
    "token",
];

/// Parameters that neither writes nor lists have.
const OTHER_PARAMETERS: &[(&str, &[&str])] = &[
    ("orphanDependents", &["true", "false", "x"]),
    ("hash", &["A", ""]),
    ("verbose", &["", "1"]),
    ("container", &["c", "x", ""]),
    ("tailLines", &["1", "-1", "18446744073709551616"]),
    ("sinceSeconds", &["1", "0", "9223372036854775807"]),
    ("follow", &["true", "x"]),
    ("limitBytes", &["1", "-9223372036854775808"]),
];

const CONTENT_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/json; charset=utf-8",
    "application/cbor",
    "text/plain",
    "",
    ";",
    "application/json;;;=",
];

/// Values of `Accept` that only some paths serve, or none.
const ACCEPTS: &[&str] = &[
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    ",,,",
    ";q=9",
    "*/*;q=0",
];

const HEADERS: &[&str] = &[
    "if-none-match",
    "user-agent",
    "authorization",
    "impersonate-user",
    "impersonate-group",
    "impersonate-uid",
    "impersonate-extra-a%2fb",
    "impersonate-extra-%ff",
    "accept-encoding",
    "content-length",
    "x-junk",
];

const HEADER_VALUES: &[&str] = &[
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
    "gzip",
];

pub(super) struct Requests {
    server: TestServer,
    base_objects: BaseObjects,
}

impl Requests {
    pub(super) fn new() -> Self {
        Self {
            server: TestServer::new(),
            base_objects: seeds::base_objects(),
        }
    }
}

impl Target for Requests {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let (server, base_objects) = (&self.server, &self.base_objects);
        let mut drafts: Vec<Draft> = [
            seeds::json,
            seeds::protobuf,
            seeds::json_patch,
            seeds::strategic_merge_patch,
            seeds::apply,
        ]
        .iter()
        .flat_map(|make_seeds| make_seeds(server, base_objects))
        .collect();
        let get = |target: &str| Draft::new("GET", target, "", "");
        let mut reads: Vec<Draft> = DOCUMENTS.iter().map(|path| get(path)).collect();
        for path in seeds::kinds(server).keys() {
            match path.rsplit_once('/') {
                // A subresource, `PLURAL/PART`, is below an object.
                Some((collection, part)) if base_objects.contains_key(collection) => {
                    reads.push(get(&format!("{collection}/{}/{part}", seeds::NAME)));
                }
                Some((root, plural)) if !path.contains("/namespaces/") => {
                    reads.extend([get(path), get(&format!("{root}/watch/{plural}"))]);
                }
                _ => reads.push(get(path)),
            }
        }
        for collection in base_objects.keys() {
            let object = format!("{collection}/{}", seeds::NAME);
            for target in [&object, collection] {
                reads.push(get(target));
                reads.push(Draft::new("DELETE", target, "", ""));
            }
        }
        // There are more recorded writes than paths.
        for _ in 0..=drafts.len() / (2 * reads.len()) {
            drafts.extend(reads.clone());
        }
        drafts.iter().map(Draft::to_bytes).collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let (mut drafts, donors) = (request::parse_all(input), request::parse_all(donor));
        let position = rng.usize(..drafts.len());
        match rng.u8(..8) {
            0 | 1 => drafts.splice(position..position, donors).for_each(drop),
            2 if drafts.len() > 1 => drop(drafts.remove(position)),
            3 => {
                let again = drafts[position].clone();
                drafts.push(again);
            }
            _ => mutate_one(&mut drafts[position], &donors[0], rng),
        }
        drafts.truncate(MAX_REQUESTS);
        request::join(&drafts)
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        self.server.reset();
        let drafts = request::parse_all(input);
        for collection in drafts.iter().filter_map(|draft| {
            let path = ResourcePath::of(draft.path())?;
            (path.name == seeds::NAME).then_some(path.collection)
        }) {
            if let Some(base) = self.base_objects.get(collection) {
                let body = base.to_string().into();
                self.server.send("POST", collection, &[], body).check()?;
            }
        }
        let mut outcome = Outcome::default();
        for draft in drafts.iter().take(MAX_REQUESTS) {
            let (Some(request), Some(again)) = (draft.build(), draft.build()) else {
                continue;
            };
            let response = self.server.call(request);
            response.check()?;
            let authenticated = self.server.call_guarded(again);
            authenticated.check()?;
            outcome.accepted |= response.is_success();
            outcome.fingerprint = format!("{} {} {}", draft.method, response.digest(), authenticated.code);
        }
        Ok(outcome)
    }
}

/// Applies one mutation to a request, to its body in half of the cases.
fn mutate_one(draft: &mut Draft, donor: &Draft, rng: &mut Rng) {
    let choose = |values: &[&'static str], rng: &mut Rng| rng.choice(values).copied().unwrap_or_default();
    match rng.u8(..16) {
        0 => draft.method = choose(METHODS, rng).to_owned(),
        1 | 2 => mutate_path(draft, rng),
        3 => {
            let target = bytes::mutate(draft.target.as_bytes(), donor.target.as_bytes(), rng);
            draft.target = String::from_utf8_lossy(&target).into_owned();
        }
        4 | 5 => {
            let parameters = [PARAMETERS, SELECTORS, LISTS, OTHER_PARAMETERS][rng.usize(..4)];
            let (name, values) = parameters[rng.usize(..parameters.len())];
            let value = if rng.u8(..4) == 0 {
                dictionary::text(rng)
            } else {
                choose(values, rng).to_owned()
            };
            draft.set_parameter(name, &value);
        }
        6 => {
            let known = choose(HEADER_VALUES, rng).as_bytes();
            let value = if rng.bool() {
                known.to_vec()
            } else {
                bytes::mutate(known, &donor.body, rng)
            };
            draft.set_header(choose(HEADERS, rng), value);
        }
        7 => {
            let (name, values) = [("accept", ACCEPTS), ("content-type", CONTENT_TYPES)][rng.usize(..2)];
            let value = choose(values, rng).as_bytes().to_vec();
            draft.set_header(
                name,
                if rng.u8(..8) == 0 {
                    bytes::mutate(&value, &donor.body, rng)
                } else {
                    value
                },
            );
        }
        _ => draft.mutate(donor, rng),
    }
}

/// Inserts or replaces a segment of the path.
fn mutate_path(draft: &mut Draft, rng: &mut Rng) {
    let segment = match rng.u8(..5) {
        0 => (0..rng.usize(..12))
            .map(|_| percent_encode_byte(rng.u8(..)))
            .collect(),
        1 => "x".repeat(rng.usize(1..5_000)),
        _ => rng.choice(SEGMENTS).copied().unwrap_or_default().to_owned(),
    };
    let mut parts: Vec<&str> = draft.path().split('/').collect();
    let position = rng.usize(1..=parts.len());
    if rng.bool() && position < parts.len() {
        parts[position] = &segment;
    } else {
        parts.insert(position, &segment);
    }
    let path = parts.join("/");
    draft.target = match draft.query() {
        "" => path,
        query => format!("{path}?{query}"),
    };
}
