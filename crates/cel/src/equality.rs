//! Equality and order of values.

use std::{
    cmp::Ordering,
    sync::{Arc, atomic},
};

use crate::{EvalError, Value, map::Map};

/// Counts steps that no cost is charged for, such as the comparison of nested lists, and asks now and then whether to
/// stop.
#[derive(Debug)]
pub(crate) struct Work {
    steps: u64,
    limit: u64,
    /// Cost of the current call beyond that of its arguments and result.
    extra: u64,
    cancel: Option<Arc<atomic::AtomicBool>>,
}

impl Work {
    /// How many steps are made between two looks at the flag.
    const INTERVAL: u64 = 1024;

    pub(crate) const fn new(limit: u64, cancel: Option<Arc<atomic::AtomicBool>>) -> Self {
        Self {
            steps: 0,
            limit,
            extra: 0,
            cancel,
        }
    }

    pub(crate) const fn unlimited() -> Self {
        Self::new(u64::MAX, None)
    }

    pub(crate) const fn steps(&self) -> u64 {
        self.steps
    }

    /// Adds to the cost of the current call.
    pub(crate) fn charge(&mut self, cost: u64) {
        self.extra = self.extra.saturating_add(cost);
    }

    /// Takes what was added to the cost of a call.
    pub(crate) fn take_extra(&mut self) -> u64 {
        std::mem::take(&mut self.extra)
    }

    pub(crate) fn spend(&mut self, steps: u64) -> Result<(), EvalError> {
        let before = self.steps / Self::INTERVAL;
        self.steps = self.steps.saturating_add(steps);
        if before != self.steps / Self::INTERVAL {
            return self.check();
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn check(&self) -> Result<(), EvalError> {
        match &self.cancel {
            _ if self.steps > self.limit => Err(EvalError::interrupted()),
            Some(cancel) if cancel.load(atomic::Ordering::Relaxed) => Err(EvalError::interrupted()),
            _ => Ok(()),
        }
    }
}

/// Whether values are equal. Numbers of different types are compared by value; other types are never equal.
pub(crate) fn equals(left: &Value<'_>, right: &Value<'_>, work: &mut Work) -> Result<bool, EvalError> {
    work.spend(1)?;
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::String(left), Value::String(right)) => **left == **right,
        (Value::Bytes(left), Value::Bytes(right)) => left == right,
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
        (Value::Opaque(left), Value::Opaque(right)) => left.equals(&**right),
        // Kubernetes' lists and maps refuse to be compared with anything else.
        (Value::List(list), _) if list.is_schema_data() => return Err(EvalError::no_such_overload()),
        (Value::Map(map), _) if Map::is_schema_data(map) => return Err(EvalError::no_such_overload()),
        _ => numeric(left, right) == Some(Ordering::Equal),
    })
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
