//! The CA bundle of a CRD's conversion webhook.
//!
//! A new CRD may have an invalid one, but is not established then. That of an established CRD cannot become invalid.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::spec;
use crate::{object::Object, webhook::ca_bundle_problem};

/// The CA bundle in a CRD, encoded; empty if it has none.
pub(super) fn of(crd: &Object) -> &str {
    let bundle = spec(crd).pointer("/conversion/webhook/clientConfig/caBundle");
    bundle.and_then(Value::as_str).unwrap_or_default()
}

/// Why an encoded CA bundle is invalid, with the real server's message. `None` if it is valid or empty.
pub(super) fn problem(bundle: &str) -> Option<String> {
    // Decoding the CRD has checked the encoding.
    ca_bundle_problem(&STANDARD.decode(bundle).unwrap_or_default())
}
