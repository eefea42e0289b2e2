//! Kubernetes' quantities.

use std::{any::Any, cmp::Ordering};

use windlass_api::quantity::{Amount, FORMAT_MESSAGE};

use super::{Result, no_overload, semver::Semver};
use crate::{
    EvalError, Type, Value,
    function::{Args, FunctionSpec},
    value::Opaque,
};

/// A quantity, such as `quantity('1.5Gi')`.
#[derive(Clone, Copy, Debug)]
pub struct Quantity(pub Amount);

impl Opaque for Quantity {
    fn type_of(&self) -> Type {
        Type::parse("Quantity")
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref().is_some_and(|other: &Self| self.0 == other.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "quantity",
        overloads: &[("string_to_quantity", "(string) -> Quantity")],
        eval: |args| match &args.values[0] {
            Value::String(text) => parse(text)
                .map(|amount| Value::opaque(Quantity(amount)))
                .ok_or_else(|| EvalError::new(FORMAT_MESSAGE)),
            _ => no_overload("quantity", args.values),
        },
    },
    FunctionSpec {
        name: "isQuantity",
        overloads: &[("is_quantity_string", "(string) -> bool")],
        eval: |args| match &args.values[0] {
            Value::String(text) => Ok(Value::Bool(parse(text).is_some())),
            _ => no_overload("isQuantity", args.values),
        },
    },
    FunctionSpec {
        name: "isInteger",
        overloads: &[("quantity_is_integer", "Quantity.() -> bool")],
        eval: |args| {
            let amount = amount(&args, "isInteger", 0)?;
            Ok(Value::Bool(integer(amount).is_some()))
        },
    },
    FunctionSpec {
        name: "asInteger",
        overloads: &[("quantity_get_int", "Quantity.() -> int")],
        eval: |args| {
            integer(amount(&args, "asInteger", 0)?)
                .map(Value::Int)
                .ok_or_else(|| EvalError::new("cannot convert value to integer"))
        },
    },
    FunctionSpec {
        name: "asApproximateFloat",
        overloads: &[("quantity_get_float", "Quantity.() -> double")],
        eval: |args| {
            let amount = amount(&args, "asApproximateFloat", 0)?;
            #[allow(clippy::cast_precision_loss)]
            Ok(Value::Double(amount.nanos() as f64 / 1e9))
        },
    },
    FunctionSpec {
        name: "sign",
        overloads: &[("quantity_sign", "(Quantity) -> int")],
        eval: |args| {
            let sign = amount(&args, "sign", 0)?.nanos().signum();
            Ok(Value::Int(i64::try_from(sign).unwrap_or_default()))
        },
    },
    FunctionSpec {
        name: "add",
        overloads: &[
            ("quantity_add", "Quantity.(Quantity) -> Quantity"),
            ("quantity_add_int", "Quantity.(int) -> Quantity"),
        ],
        eval: |args| add(&args, "add", 1),
    },
    FunctionSpec {
        name: "sub",
        overloads: &[
            ("quantity_sub", "Quantity.(Quantity) -> Quantity"),
            ("quantity_sub_int", "Quantity.(int) -> Quantity"),
        ],
        eval: |args| add(&args, "sub", -1),
    },
    FunctionSpec {
        name: "isGreaterThan",
        overloads: &[
            ("quantity_is_greater_than", "Quantity.(Quantity) -> bool"),
            ("semver_is_greater_than", "Semver.(Semver) -> bool"),
        ],
        eval: |args| Ok(Value::Bool(compare(&args, "isGreaterThan")?.is_gt())),
    },
    FunctionSpec {
        name: "isLessThan",
        overloads: &[
            ("quantity_is_less_than", "Quantity.(Quantity) -> bool"),
            ("semver_is_less_than", "Semver.(Semver) -> bool"),
        ],
        eval: |args| Ok(Value::Bool(compare(&args, "isLessThan")?.is_lt())),
    },
    FunctionSpec {
        name: "compareTo",
        overloads: &[
            ("quantity_compare_to", "Quantity.(Quantity) -> int"),
            ("semver_compare_to", "Semver.(Semver) -> int"),
        ],
        eval: |args| Ok(Value::Int(compare(&args, "compareTo")? as i64)),
    },
];

/// Parses a quantity; one that is too large is capped, as in Kubernetes.
fn parse(text: &str) -> Option<Amount> {
    Amount::from_json(&serde_json::Value::String(text.to_owned()))
}

fn integer(amount: Amount) -> Option<i64> {
    (amount.nanos() % 1_000_000_000 == 0)
        .then(|| i64::try_from(amount.nanos() / 1_000_000_000).ok())
        .flatten()
}

fn amount(args: &Args<'_, '_>, name: &str, index: usize) -> std::result::Result<Amount, EvalError> {
    match args.values[index].downcast::<Quantity>() {
        Some(quantity) => Ok(quantity.0),
        None => no_overload(name, args.values).map(|_| Amount::ZERO),
    }
}

fn add<'a>(args: &Args<'_, 'a>, name: &str, sign: i128) -> Result<'a> {
    let left = amount(args, name, 0)?;
    let right = match args.values[1] {
        Value::Int(value) => i128::from(value) * 1_000_000_000,
        _ => amount(args, name, 1)?.nanos(),
    };
    // A sum keeps the format of the first amount, unless that is zero.
    let right = match &args.values[1] {
        Value::Opaque(_) if sign > 0 => amount(args, name, 1)?,
        _ => Amount::from_nanos(right.saturating_mul(sign)),
    };
    let sum = left.checked_add(right).unwrap_or(Amount::MAX);
    Ok(Value::opaque(Quantity(sum)))
}

fn compare(args: &Args<'_, '_>, name: &str) -> std::result::Result<Ordering, EvalError> {
    let (left, right) = (&args.values[0], &args.values[1]);
    if let (Some(left), Some(right)) = (left.downcast::<Quantity>(), right.downcast::<Quantity>()) {
        return Ok(left.0.cmp(&right.0));
    }
    if let (Some(left), Some(right)) = (left.downcast::<Semver>(), right.downcast::<Semver>()) {
        return Ok(left.compare(right));
    }
    no_overload(name, args.values).map(|_| Ordering::Equal)
}
