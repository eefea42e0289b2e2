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
pub struct Quantity {
    /// The amount.
    pub amount: Amount,
    /// The power of ten that Kubernetes keeps the amount with. `isInteger` depends on it: `1000m` is no integer.
    /// `None` if Kubernetes keeps it as a decimal.
    scale: Option<i32>,
    /// A sum or difference: Kubernetes compares nothing with it, but it with others.
    is_computed: bool,
}

impl Quantity {
    /// Parses a quantity; one that is too large is capped, as in Kubernetes.
    fn parse(text: &str) -> Option<Self> {
        let amount = Amount::from_json(&serde_json::Value::String(text.to_owned()))?;
        Some(Self {
            amount,
            scale: scale(text),
            is_computed: false,
        })
    }
}

/// The scale of a quantity of few digits.
fn scale(text: &str) -> Option<i32> {
    /// Decimal digits that an `i64` holds.
    const DIGITS: i32 = 18;
    let text = text.trim_start_matches(['+', '-']);
    let end = text
        .find(|sign: char| !sign.is_ascii_digit() && sign != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let length = |text: &str| i32::try_from(text.len()).unwrap_or(i32::MAX);
    let digits = length(whole.trim_start_matches('0')).saturating_add(length(fraction));
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
        .iter()
        .position(|known| *known == suffix);
    if let Some(power) = binary {
        let exponent = (i32::try_from(power).unwrap_or_default() + 1) * 10;
        let precision = 15 - digits - exponent * 3 / 10 - 1;
        return (fraction.is_empty() && precision >= 0).then_some(0);
    }
    let exponent = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        other => other.strip_prefix(['e', 'E'])?.parse().ok()?,
    };
    let scale = i32::checked_sub(exponent, length(fraction))?;
    (digits <= DIGITS && scale >= -9).then_some(scale)
}

impl Opaque for Quantity {
    fn type_of(&self) -> Type {
        Type::parse("Quantity")
    }

    fn equals(&self, other: &dyn Opaque) -> Option<bool> {
        other
            .as_any()
            .downcast_ref()
            .filter(|other: &&Self| !other.is_computed)
            .map(|other| self.amount == other.amount)
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
            Value::String(text) => Quantity::parse(text)
                .map(Value::opaque)
                .ok_or_else(|| EvalError::new(FORMAT_MESSAGE)),
            _ => no_overload("quantity", args.values),
        },
    },
    FunctionSpec {
        name: "isQuantity",
        overloads: &[("is_quantity_string", "(string) -> bool")],
        eval: |args| match &args.values[0] {
            Value::String(text) => Ok(Value::Bool(Quantity::parse(text).is_some())),
            _ => no_overload("isQuantity", args.values),
        },
    },
    FunctionSpec {
        name: "isInteger",
        overloads: &[("quantity_is_integer", "Quantity.() -> bool")],
        eval: |args| {
            let quantity = quantity(&args, "isInteger", 0)?;
            Ok(Value::Bool(integer(quantity).is_some()))
        },
    },
    FunctionSpec {
        name: "asInteger",
        overloads: &[("quantity_get_int", "Quantity.() -> int")],
        eval: |args| {
            integer(quantity(&args, "asInteger", 0)?)
                .map(Value::Int)
                .ok_or_else(|| EvalError::new("cannot convert value to integer"))
        },
    },
    FunctionSpec {
        name: "asApproximateFloat",
        overloads: &[("quantity_get_float", "Quantity.() -> double")],
        eval: |args| {
            let amount = quantity(&args, "asApproximateFloat", 0)?.amount;
            #[allow(clippy::cast_precision_loss)]
            Ok(Value::Double(amount.nanos() as f64 / 1e9))
        },
    },
    FunctionSpec {
        name: "sign",
        overloads: &[("quantity_sign", "(Quantity) -> int")],
        eval: |args| {
            let sign = quantity(&args, "sign", 0)?.amount.nanos().signum();
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

fn integer(quantity: Quantity) -> Option<i64> {
    let nanos = quantity.amount.nanos();
    // Only a decimal is as large as the cap.
    let is_integer = quantity.amount != Amount::MAX
        && quantity.scale.is_some_and(|scale| scale >= 0)
        && nanos % 1_000_000_000 == 0;
    is_integer
        .then(|| i64::try_from(nanos / 1_000_000_000).ok())
        .flatten()
}

fn quantity(args: &Args<'_, '_>, name: &str, index: usize) -> std::result::Result<Quantity, EvalError> {
    match args.values[index].downcast::<Quantity>() {
        Some(quantity) => Ok(*quantity),
        None => no_overload(name, args.values).map(|_| Quantity {
            amount: Amount::ZERO,
            scale: None,
            is_computed: false,
        }),
    }
}

fn add<'a>(args: &Args<'_, 'a>, name: &str, sign: i128) -> Result<'a> {
    let left = quantity(args, name, 0)?;
    let right = match args.values[1] {
        Value::Int(value) => Quantity {
            amount: Amount::from_nanos(i128::from(value) * 1_000_000_000),
            scale: Some(0),
            is_computed: false,
        },
        _ => quantity(args, name, 1)?,
    };
    // A sum keeps the format of the first amount, unless that is zero.
    let other = if sign > 0 {
        right.amount
    } else {
        Amount::from_nanos(right.amount.nanos().saturating_neg())
    };
    let scale = match (left.scale, right.scale) {
        (Some(_), Some(scale)) if left.amount.nanos() == 0 => Some(scale),
        (Some(scale), Some(_)) if right.amount.nanos() == 0 => Some(scale),
        (Some(left), Some(right)) => Some(left.min(right)),
        _ => None,
    };
    Ok(Value::opaque(Quantity {
        amount: left.amount.checked_add(other).unwrap_or(Amount::MAX),
        scale,
        is_computed: true,
    }))
}

fn compare(args: &Args<'_, '_>, name: &str) -> std::result::Result<Ordering, EvalError> {
    let (left, right) = (&args.values[0], &args.values[1]);
    if let (Some(left), Some(right)) = (left.downcast::<Quantity>(), right.downcast::<Quantity>()) {
        return Ok(left.amount.cmp(&right.amount));
    }
    if let (Some(left), Some(right)) = (left.downcast::<Semver>(), right.downcast::<Semver>()) {
        return Ok(left.compare(right));
    }
    no_overload(name, args.values).map(|_| Ordering::Equal)
}
