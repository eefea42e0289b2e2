//! Reads the reviews that webhooks answer with, as Go's decoder does, and with its messages.

use serde_json::Value;

use crate::{golang, json, yaml};

/// The largest review in YAML, whose aliases make it many times larger.
const MAX_YAML_BYTES: usize = 256 * 1024;

/// The type of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReviewType {
    group: &'static str,
    /// `v1` or `v1beta1`
    version: &'static str,
    kind: &'static str,
}

impl ReviewType {
    /// The admission review of the first of these versions that the server knows.
    pub(crate) fn admission(versions: &Value) -> Self {
        Self {
            group: "admission.k8s.io",
            version: preferred_version(versions),
            kind: "AdmissionReview",
        }
    }

    /// The conversion review of the first of these versions that the server knows.
    pub(crate) fn conversion(versions: &Value) -> Self {
        Self {
            group: "apiextensions.k8s.io",
            version: preferred_version(versions),
            kind: "ConversionReview",
        }
    }

    /// Whether it is of `v1beta1`, whose answers may omit the uid and their type.
    pub(crate) fn is_beta(self) -> bool {
        self.version == "v1beta1"
    }

    /// The beginning of a question, until the value of `request.uid`.
    pub(crate) fn head(self) -> String {
        let (kind, api_version) = (self.kind, self.api_version());
        format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","request":{{"uid":""#)
    }

    /// `admission.k8s.io/v1`
    fn api_version(self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// `admission.k8s.io/v1, Kind=AdmissionReview`
    fn shown(self) -> String {
        format!("{}, Kind={}", self.api_version(), self.kind)
    }

    /// Reads a document of this type; `null` becomes an empty one.
    pub(crate) fn read(self, body: &[u8]) -> Result<Value, String> {
        let undecodable = |why| format!("couldn't get version/kind; json parse error: {why}");
        let review = read_document(body).map_err(undecodable)?;
        if review.is_null() {
            return Ok(Value::Object(serde_json::Map::new()));
        }
        if !review.is_object() {
            return Err(not_an_object(&review));
        }
        let (api_version, kind) = type_of(&review);
        if api_version.is_empty() || kind.is_empty() {
            return Ok(review);
        }
        let version = api_version
            .strip_prefix(self.group)
            .and_then(|rest| rest.strip_prefix('/'));
        let known = match (api_version, kind) {
            ("v1", "Status") => "v1.Status".to_owned(),
            (_, kind) if kind == self.kind && matches!(version, Some("v1" | "v1beta1")) => {
                format!("{}.{kind}", version.unwrap_or_default())
            }
            _ => {
                return Err(format!(
                    "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
                ));
            }
        };
        let wanted = format!("{}.{}", self.version, self.kind);
        if known != wanted {
            return Err(format!("converting ({known}) to ({wanted}): unknown conversion"));
        }
        Ok(review)
    }

    /// Checks that a document states this type.
    pub(crate) fn check(self, review: &Value) -> Result<(), String> {
        let (api_version, kind) = type_of(review);
        if kind == self.kind && api_version == self.api_version() {
            return Ok(());
        }
        let separator = if api_version.contains('/') { "" } else { "/" };
        Err(format!(
            "expected webhook response of {}, got {separator}{api_version}, Kind={kind}",
            self.shown()
        ))
    }
}

fn preferred_version(versions: &Value) -> &'static str {
    let versions = versions.as_array().into_iter().flatten();
    let mut known = versions.filter_map(|version| match version.as_str() {
        Some("v1") => Some("v1"),
        Some("v1beta1") => Some("v1beta1"),
        _ => None,
    });
    known.next().unwrap_or("v1")
}

/// Reads JSON or YAML, whatever its content type says: what begins with a brace is JSON.
pub(super) fn read_document(body: &[u8]) -> Result<Value, String> {
    let is_json = body.trim_ascii_start().starts_with(b"{");
    let read = json::read(body).or_else(|why| match body.len() {
        ..=MAX_YAML_BYTES if !is_json => yaml::read(body).map_err(|_| why),
        _ => Err(why),
    });
    read.map(|(document, _)| document)
}

/// Go's message about a document that is no object.
pub(crate) fn not_an_object(document: &Value) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion \
         string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        golang::json_type(document)
    )
}

fn type_of(review: &Value) -> (&str, &str) {
    let text = |key: &str| review[key].as_str().unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// Go's message about a field of another type.
pub(crate) fn type_mismatch(value: &Value, field: &str, wanted: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go struct field {field} of type {wanted}",
        golang::json_type(value)
    )
}
