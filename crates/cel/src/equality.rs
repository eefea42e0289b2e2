//! Equality and order of values.

use std::cmp::Ordering;

use crate::{EvalError, Value, budget::Work, map::Map};

/// Whether values are equal. Numbers of different types are compared by value; other types are never equal.
pub(crate) fn equals(left: &Value<'_>, right: &Value<'_>, work: &mut Work) -> Result<bool, EvalError> {
    work.spend(1)?;
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::String(left), Value::String(right)) => {
            work.read(left.len().min(right.len()))?;
            **left == **right
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            work.read(left.len().min(right.len()))?;
            left == right
        }
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        (Value::Type(left), Value::Type(right)) => left.name() == right.name(),
        (Value::List(left), Value::List(right)) => return left.equals(right, work),
        (Value::Map(left), Value::Map(right)) => return left.equals(right, work),
        (Value::Optional(left), Value::Optional(right)) => match (left, right) {
            (None, None) => true,
            (Some(left), Some(right)) => return equals(left, right, work),
            _ => false,
        },
        (Value::Opaque(left), Value::Opaque(right)) => {
            return left.equals(&**right).ok_or_else(EvalError::no_such_overload);
        }
        // Nor may a value with functions of its own be, if it is on the left.
        (Value::Opaque(_), _) => return Err(EvalError::no_such_overload()),
        // Kubernetes' lists and maps refuse to be compared with anything else.
        (Value::List(list), _) if list.is_schema_data() => return Err(EvalError::no_such_overload()),
        (Value::Map(map), _) if Map::is_schema_data(map) => return Err(EvalError::no_such_overload()),
        _ => numeric(left, right) == Some(Ordering::Equal),
    })
}

/// Like [`equals`], but values that cannot be compared are not equal. Fails only if the evaluation ends.
pub(crate) fn is_same(left: &Value<'_>, right: &Value<'_>, work: &mut Work) -> Result<bool, EvalError> {
    match equals(left, right, work) {
        Err(error) if !error.is_final() => Ok(false),
        other => other,
    }
}

/// Whether two items of a `list-type: map` have the same keys.
pub(crate) fn same_keys(
    left: Option<&Vec<Option<Value<'_>>>>,
    right: Option<&Vec<Option<Value<'_>>>>,
    work: &mut Work,
) -> Result<bool, EvalError> {
    let (Some(left), Some(right)) = (left, right) else {
        return Ok(false);
    };
    for pair in left.iter().zip(right) {
        let same = match pair {
            (None, None) => true,
            (Some(left), Some(right)) => equals(left, right, work)?,
            _ => false,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The order of two values, if they have one.
pub(crate) fn order(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::String(left), Value::String(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (Value::Duration(left), Value::Duration(right)) => Some(left.cmp(right)),
        (Value::Timestamp(left), Value::Timestamp(right)) => Some(left.cmp(right)),
        _ => numeric(left, right),
    }
}

/// The order of two numbers, also of different types; `None` for others and for NaN.
pub(crate) fn numeric(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    Some(match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::Uint(left), Value::Uint(right)) => left.cmp(right),
        (Value::Int(left), Value::Uint(right)) => {
            u64::try_from(*left).map_or(Ordering::Less, |left| left.cmp(right))
        }
        (Value::Uint(left), Value::Int(right)) => {
            u64::try_from(*right).map_or(Ordering::Greater, |right| left.cmp(&right))
        }
        (Value::Double(left), Value::Double(right)) => return left.partial_cmp(right),
        (Value::Double(left), Value::Int(right)) => return float_with(*left, i128::from(*right)),
        (Value::Double(left), Value::Uint(right)) => return float_with(*left, i128::from(*right)),
        (Value::Int(left), Value::Double(right)) => {
            return float_with(*right, i128::from(*left)).map(Ordering::reverse);
        }
        (Value::Uint(left), Value::Double(right)) => {
            return float_with(*right, i128::from(*left)).map(Ordering::reverse);
        }
        _ => return None,
    })
}

/// Compares a float with an integer, which is rounded to a float, as in cel-go.
#[allow(clippy::cast_precision_loss)]
fn float_with(float: f64, integer: i128) -> Option<Ordering> {
    float.partial_cmp(&(integer as f64))
}
