//! `AdmissionReview` on the wire.
//!
//! A review comes over a socket and counts as hostile. Its envelope is read in one pass, in which objects stay text: reading
//! them needs no stack, however deep they are. Decoding one into a type stops at 128 levels.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

use super::{Operation, ReviewRequest, Verdict};
use crate::patch::Patch;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The largest `options` and `userInfo`. A user has some KiB of groups and extra fields.
const MAX_PART_BYTES: usize = 256 * 1024;

/// The question of a review, with the objects as text.
#[derive(Debug)]
pub(crate) struct Review<'a> {
    pub(crate) request: ReviewRequest,
    pub(crate) object: Option<&'a RawValue>,
    pub(crate) old_object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(default, borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<WireRequest<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequest<'a> {
    uid: String,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    resource: Resource,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    request_kind: Option<Kind>,
    #[serde(default)]
    request_resource: Option<Resource>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    operation: Operation,
    #[serde(default, borrow)]
    user_info: Option<&'a RawValue>,
    #[serde(default, borrow)]
    object: Option<&'a RawValue>,
    #[serde(default, borrow)]
    old_object: Option<&'a RawValue>,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default, borrow)]
    options: Option<&'a RawValue>,
}

/// A kind with its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Kind {
    /// For example `apps`; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// For example `v1`.
    #[serde(default)]
    pub version: String,
    /// For example `Deployment`.
    #[serde(default)]
    pub kind: String,
}

/// A resource with its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Resource {
    /// For example `apps`; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// For example `v1`.
    #[serde(default)]
    pub version: String,
    /// For example `deployments`.
    #[serde(default)]
    pub resource: String,
}

impl<'a> Review<'a> {
    /// Reads a review. The error says what is wrong with it.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, String> {
        let review: Envelope<'a> =
            serde_json::from_slice(body).map_err(|error| format!("cannot read the review: {error}"))?;
        if review.kind != KIND || review.api_version != API_VERSION {
            return Err(format!(
                "expected a review of {API_VERSION}, Kind={KIND}, got {:.200}, Kind={:.200}",
                review.api_version, review.kind
            ));
        }
        let request = review.request.ok_or("the review has no request")?;
        Ok(Self {
            object: request.object,
            old_object: request.old_object,
            request: ReviewRequest {
                uid: request.uid,
                request_kind: request.request_kind.unwrap_or_else(|| request.kind.clone()),
                request_resource: request
                    .request_resource
                    .unwrap_or_else(|| request.resource.clone()),
                kind: request.kind,
                resource: request.resource,
                subresource: request.sub_resource.filter(|name| !name.is_empty()),
                name: request.name.unwrap_or_default(),
                namespace: request.namespace.filter(|namespace| !namespace.is_empty()),
                operation: request.operation,
                user: small(request.user_info, "userInfo")?.unwrap_or_default(),
                is_dry_run: request.dry_run.unwrap_or_default(),
                options: small(request.options, "options")?,
                ..ReviewRequest::default()
            },
        })
    }
}

/// Decodes a part of a review that is small in those of an API server, and would be a large tree in others.
fn small<T: DeserializeOwned>(part: Option<&RawValue>, name: &str) -> Result<Option<T>, String> {
    let Some(part) = part.map(RawValue::get) else {
        return Ok(None);
    };
    if part.len() > MAX_PART_BYTES {
        return Err(format!(
            "the {name} of the review have more than {MAX_PART_BYTES} bytes"
        ));
    }
    serde_json::from_str(part).map_err(|error| format!("cannot read the {name} of the review: {error}"))
}

/// What a handler has decided.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    pub(crate) patch: Patch,
}

impl From<Verdict> for Decision {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            patch: Patch::default(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnswerEnvelope<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Answer<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<String, String>,
}

impl Decision {
    /// The review with the response to a request.
    pub(crate) fn into_body(self, request: &ReviewRequest) -> Bytes {
        let verdict = self.verdict;
        let allowed = verdict.is_allowed();
        let patch = (allowed && !self.patch.is_empty()).then(|| STANDARD.encode(self.patch.to_json()));
        let answer = AnswerEnvelope {
            api_version: API_VERSION,
            kind: KIND,
            response: Answer {
                uid: &request.uid,
                allowed,
                status: verdict.refusal.map(|refusal| refusal.into_status(request)),
                patch_type: patch.is_some().then_some("JSONPatch"),
                patch,
                warnings: verdict.warnings,
                audit_annotations: verdict.audit,
            },
        };
        serde_json::to_vec(&answer)
            .expect("texts and JSON trees can be written as JSON")
            .into()
    }
}
