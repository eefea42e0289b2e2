//! A request as text, and its mutations.

use ::bytes::Bytes;
use fastrand::Rng;
use http::Request;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::mutate::{bytes, dictionary, protobuf, tree};

/// A request that may not be valid HTTP.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) method: String,
    /// Path and optional query.
    pub(super) target: String,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

/// Stands between two of an input's requests or responses.
const SEPARATOR: &[u8] = b"\n\0\n";

const ACCEPTS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf,application/json",
    "*/*",
    "text/html",
    "application/json;as=Nope;v=v9;g=x",
];

pub(super) const PARAMETERS: &[(&str, &[&str])] = &[
    ("dryRun", &["All", "", "x"]),
    ("fieldValidation", &["Strict", "Warn", "Ignore", "x"]),
    ("fieldManager", &["fuzz", "other", "", "a b"]),
    ("force", &["true", "false", "FALSE", "1", "x"]),
    ("pretty", &["true", "1", ""]),
    ("timeout", &["1s", "0", "x", "-5m"]),
    ("includeObject", &["None", "Metadata", "Object", "x"]),
    ("watch", &["true", "1", "FALSE"]),
    ("gracePeriodSeconds", &["0", "-1", "x"]),
    ("propagationPolicy", &["Orphan", "Foreground", "Background", "x"]),
];

/// Parses the parts of an input: at least one.
pub(super) fn parse_all(input: &[u8]) -> Vec<Draft> {
    let mut rest = input;
    let mut drafts = Vec::new();
    while let Some(end) = rest
        .windows(SEPARATOR.len())
        .position(|window| window == SEPARATOR)
    {
        drafts.push(Draft::parse(&rest[..end]));
        rest = &rest[end + SEPARATOR.len()..];
    }
    drafts.push(Draft::parse(rest));
    drafts
}

/// Writes the parts of an input.
pub(super) fn join(drafts: &[Draft]) -> Vec<u8> {
    let drafts: Vec<_> = drafts.iter().map(Draft::to_bytes).collect();
    drafts.join(SEPARATOR)
}

impl Draft {
    pub(super) fn new(method: &str, target: &str, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: vec![("content-type".to_owned(), content_type.as_bytes().to_vec())],
            body: body.into(),
        }
    }

    /// Parses the text; missing parts are empty.
    pub(super) fn parse(input: &[u8]) -> Self {
        let mut draft = Self::default();
        let mut rest = input;
        let line = |rest: &mut &[u8]| {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let line = rest[..end.unwrap_or(rest.len())].to_vec();
            *rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
            line
        };
        let first = line(&mut rest);
        let first = String::from_utf8_lossy(&first).into_owned();
        let (method, target) = first.split_once(' ').unwrap_or((&first, ""));
        (draft.method, draft.target) = (method.to_owned(), target.to_owned());
        while !rest.is_empty() {
            let header = line(&mut rest);
            if header.is_empty() {
                break;
            }
            let colon = header
                .iter()
                .position(|byte| *byte == b':')
                .unwrap_or(header.len());
            let name = String::from_utf8_lossy(&header[..colon]).into_owned();
            let value = header[(colon + 1).min(header.len())..].trim_ascii().to_vec();
            draft.headers.push((name, value));
        }
        draft.body = rest.to_vec();
        draft
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {}\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend([name.as_bytes(), b": ", value, b"\n"].concat());
        }
        bytes.push(b'\n');
        bytes.extend(&self.body);
        bytes
    }

    /// Builds the request; `None` if it is not valid HTTP.
    pub(super) fn build(&self) -> Option<Request<Bytes>> {
        let mut request = Request::builder()
            .method(self.method.as_str())
            .uri(self.target.as_str());
        for (name, value) in &self.headers {
            request = request.header(name.as_str(), value.as_slice());
        }
        request.body(Bytes::from(self.body.clone())).ok()
    }

    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    pub(super) fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    pub(super) fn header(&self, name: &str) -> &[u8] {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or(&[], |(_, value)| value)
    }

    pub(super) fn is_json_patch(&self) -> bool {
        self.header("content-type").starts_with(b"application/json-patch")
    }

    pub(super) fn set_header(&mut self, name: &str, value: Vec<u8>) {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value));
    }

    /// Adds or replaces a query parameter.
    pub(super) fn set_parameter(&mut self, name: &str, value: &str) {
        let kept = self.query().split('&').filter(|pair| !pair.is_empty());
        let kept = kept.filter(|pair| pair.split('=').next() != Some(name));
        let mut pairs: Vec<String> = kept.map(str::to_owned).collect();
        pairs.push(format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
        self.target = format!("{}?{}", self.path(), pairs.join("&"));
    }

    /// Applies one mutation, usually to the body.
    pub(super) fn mutate(&mut self, donor: &Self, rng: &mut Rng) {
        match rng.u8(..16) {
            0 => {
                if let Some((name, values)) = rng.choice(PARAMETERS) {
                    let value = rng.choice(*values).copied().unwrap_or_default();
                    self.set_parameter(name, value);
                }
            }
            1 => {
                let accept = rng.choice(ACCEPTS).copied().unwrap_or_default();
                self.set_header("accept", accept.as_bytes().to_vec());
            }
            2 if rng.bool() => self.body = bytes::mutate(&self.body, &donor.body, rng),
            _ => self.mutate_body(donor, rng),
        }
    }

    /// Mutates the body: as a tree, as a protobuf message, or as bytes if it is neither.
    pub(super) fn mutate_body(&mut self, donor: &Self, rng: &mut Rng) {
        let content_type = String::from_utf8_lossy(self.header("content-type")).into_owned();
        if content_type.contains("protobuf") {
            self.body = protobuf::mutate(&self.body, &donor.body, rng);
            return;
        }
        let is_yaml = content_type.contains("yaml");
        let read = |body: &[u8]| -> Option<Value> {
            if is_yaml {
                serde_yaml_ng::from_slice(body).ok()
            } else {
                serde_json::from_slice(body).ok()
            }
        };
        let Some(mut object) = read(&self.body) else {
            self.body = bytes::mutate(&self.body, &donor.body, rng);
            return;
        };
        tree::mutate(
            &mut object,
            &read(&donor.body).unwrap_or_else(|| dictionary::value(rng)),
            rng,
        );
        self.body = if is_yaml && rng.u8(..4) > 0 {
            serde_yaml_ng::to_string(&object).unwrap_or_default().into_bytes()
        } else {
            tree::text(&object, rng).into_bytes()
        };
    }
}
