//! Quantities in request bodies, which are stored in canonical form.

use serde_json::Value;
use windlass_api::quantity::{self, Amount};

/// Fast check for the canonical form that nearly all quantities have.
pub(crate) fn is_canonical(value: &Value) -> bool {
    value.as_str().is_some_and(quantity::is_usual_canonical)
}

/// The canonical form of a quantity given as string or number.
pub(crate) fn canonical(value: &Value) -> Result<String, String> {
    decode(value).map(|amount| amount.to_string())
}

/// Like [`canonical`], rounded up to thousandths: the precision of resource lists.
pub(crate) fn canonical_milli(value: &Value) -> Result<String, String> {
    decode(value).map(|amount| amount.rounded_to_milli().to_string())
}

/// A quantity in billionths. `None` if it is invalid.
pub(crate) fn nanos(value: &Value) -> Option<i128> {
    Amount::from_json(value).map(Amount::nanos)
}

fn decode(value: &Value) -> Result<Amount, String> {
    match value {
        // An empty string in a body is zero.
        Value::String(text) if text.is_empty() => Ok(Amount::ZERO),
        _ => Amount::from_json(value).ok_or_else(|| quantity::FORMAT_MESSAGE.to_owned()),
    }
}
