//! Operators, `size`, `type` and the other functions that CEL itself defines.

use std::{cmp::Ordering, sync::Arc};

use super::Result;
use crate::{
    EvalError, Type, Value,
    budget::Work,
    equality,
    function::{Args, FunctionSpec},
    re2,
    time::Duration,
    value::code_points,
};

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "_?_:_",
        overloads: &[("conditional", "(bool, A, A) -> A")],
        eval: planned,
    },
    FunctionSpec {
        name: "_&&_",
        overloads: &[("logical_and", "(bool, bool) -> bool")],
        eval: planned,
    },
    FunctionSpec {
        name: "_||_",
        overloads: &[("logical_or", "(bool, bool) -> bool")],
        eval: planned,
    },
    FunctionSpec {
        name: "_==_",
        overloads: &[("equals", "(A, A) -> bool")],
        eval: planned,
    },
    FunctionSpec {
        name: "_!=_",
        overloads: &[("not_equals", "(A, A) -> bool")],
        eval: planned,
    },
    FunctionSpec {
        name: "_[_]",
        overloads: &[
            ("index_list", "(list(A), int) -> A"),
            ("index_map", "(map(A, B), A) -> B"),
            (
                "optional_list_index_int",
                "(optional(list(V)), int) -> optional(V)",
            ),
            (
                "optional_map_index_value",
                "(optional(map(K, V)), K) -> optional(V)",
            ),
        ],
        eval: planned,
    },
    FunctionSpec {
        name: "!_",
        overloads: &[("logical_not", "(bool) -> bool")],
        eval: not,
    },
    FunctionSpec {
        name: "@not_strictly_false",
        overloads: &[("not_strictly_false", "(bool) -> bool")],
        eval: not_strictly_false,
    },
    FunctionSpec {
        name: "-_",
        overloads: &[
            ("negate_double", "(double) -> double"),
            ("negate_int64", "(int) -> int"),
        ],
        eval: negate,
    },
    FunctionSpec {
        name: "_+_",
        overloads: &[
            ("add_bytes", "(bytes, bytes) -> bytes"),
            ("add_double", "(double, double) -> double"),
            ("add_duration_duration", "(duration, duration) -> duration"),
            ("add_duration_timestamp", "(duration, timestamp) -> timestamp"),
            ("add_timestamp_duration", "(timestamp, duration) -> timestamp"),
            ("add_int64", "(int, int) -> int"),
            ("add_list", "(list(A), list(A)) -> list(A)"),
            ("add_string", "(string, string) -> string"),
            ("add_uint64", "(uint, uint) -> uint"),
        ],
        eval: add,
    },
    FunctionSpec {
        name: "_-_",
        overloads: &[
            ("subtract_double", "(double, double) -> double"),
            ("subtract_duration_duration", "(duration, duration) -> duration"),
            ("subtract_int64", "(int, int) -> int"),
            (
                "subtract_timestamp_duration",
                "(timestamp, duration) -> timestamp",
            ),
            (
                "subtract_timestamp_timestamp",
                "(timestamp, timestamp) -> duration",
            ),
            ("subtract_uint64", "(uint, uint) -> uint"),
        ],
        eval: subtract,
    },
    FunctionSpec {
        name: "_*_",
        overloads: &[
            ("multiply_double", "(double, double) -> double"),
            ("multiply_int64", "(int, int) -> int"),
            ("multiply_uint64", "(uint, uint) -> uint"),
        ],
        eval: multiply,
    },
    FunctionSpec {
        name: "_/_",
        overloads: &[
            ("divide_double", "(double, double) -> double"),
            ("divide_int64", "(int, int) -> int"),
            ("divide_uint64", "(uint, uint) -> uint"),
        ],
        eval: divide,
    },
    FunctionSpec {
        name: "_%_",
        overloads: &[
            ("modulo_int64", "(int, int) -> int"),
            ("modulo_uint64", "(uint, uint) -> uint"),
        ],
        eval: modulo,
    },
    FunctionSpec {
        name: "_<_",
        overloads: &[
            ("less_bool", "(bool, bool) -> bool"),
            ("less_int64", "(int, int) -> bool"),
            ("less_int64_double", "(int, double) -> bool"),
            ("less_int64_uint64", "(int, uint) -> bool"),
            ("less_uint64", "(uint, uint) -> bool"),
            ("less_uint64_double", "(uint, double) -> bool"),
            ("less_uint64_int64", "(uint, int) -> bool"),
            ("less_double", "(double, double) -> bool"),
            ("less_double_int64", "(double, int) -> bool"),
            ("less_double_uint64", "(double, uint) -> bool"),
            ("less_string", "(string, string) -> bool"),
            ("less_bytes", "(bytes, bytes) -> bool"),
            ("less_timestamp", "(timestamp, timestamp) -> bool"),
            ("less_duration", "(duration, duration) -> bool"),
        ],
        eval: less,
    },
    FunctionSpec {
        name: "_<=_",
        overloads: &[
            ("less_equals_bool", "(bool, bool) -> bool"),
            ("less_equals_int64", "(int, int) -> bool"),
            ("less_equals_int64_double", "(int, double) -> bool"),
            ("less_equals_int64_uint64", "(int, uint) -> bool"),
            ("less_equals_uint64", "(uint, uint) -> bool"),
            ("less_equals_uint64_double", "(uint, double) -> bool"),
            ("less_equals_uint64_int64", "(uint, int) -> bool"),
            ("less_equals_double", "(double, double) -> bool"),
            ("less_equals_double_int64", "(double, int) -> bool"),
            ("less_equals_double_uint64", "(double, uint) -> bool"),
            ("less_equals_string", "(string, string) -> bool"),
            ("less_equals_bytes", "(bytes, bytes) -> bool"),
            ("less_equals_timestamp", "(timestamp, timestamp) -> bool"),
            ("less_equals_duration", "(duration, duration) -> bool"),
        ],
        eval: less_equals,
    },
    FunctionSpec {
        name: "_>_",
        overloads: &[
            ("greater_bool", "(bool, bool) -> bool"),
            ("greater_int64", "(int, int) -> bool"),
            ("greater_int64_double", "(int, double) -> bool"),
            ("greater_int64_uint64", "(int, uint) -> bool"),
            ("greater_uint64", "(uint, uint) -> bool"),
            ("greater_uint64_double", "(uint, double) -> bool"),
            ("greater_uint64_int64", "(uint, int) -> bool"),
            ("greater_double", "(double, double) -> bool"),
            ("greater_double_int64", "(double, int) -> bool"),
            ("greater_double_uint64", "(double, uint) -> bool"),
            ("greater_string", "(string, string) -> bool"),
            ("greater_bytes", "(bytes, bytes) -> bool"),
            ("greater_timestamp", "(timestamp, timestamp) -> bool"),
            ("greater_duration", "(duration, duration) -> bool"),
        ],
        eval: greater,
    },
    FunctionSpec {
        name: "_>=_",
        overloads: &[
            ("greater_equals_bool", "(bool, bool) -> bool"),
            ("greater_equals_int64", "(int, int) -> bool"),
            ("greater_equals_int64_double", "(int, double) -> bool"),
            ("greater_equals_int64_uint64", "(int, uint) -> bool"),
            ("greater_equals_uint64", "(uint, uint) -> bool"),
            ("greater_equals_uint64_double", "(uint, double) -> bool"),
            ("greater_equals_uint64_int64", "(uint, int) -> bool"),
            ("greater_equals_double", "(double, double) -> bool"),
            ("greater_equals_double_int64", "(double, int) -> bool"),
            ("greater_equals_double_uint64", "(double, uint) -> bool"),
            ("greater_equals_string", "(string, string) -> bool"),
            ("greater_equals_bytes", "(bytes, bytes) -> bool"),
            ("greater_equals_timestamp", "(timestamp, timestamp) -> bool"),
            ("greater_equals_duration", "(duration, duration) -> bool"),
        ],
        eval: greater_equals,
    },
    FunctionSpec {
        name: "@in",
        overloads: &[
            ("in_list", "(A, list(A)) -> bool"),
            ("in_map", "(A, map(A, B)) -> bool"),
        ],
        eval: contained,
    },
    // Other names of the operator.
    FunctionSpec {
        name: "_in_",
        overloads: &[
            ("in_list", "(A, list(A)) -> bool"),
            ("in_map", "(A, map(A, B)) -> bool"),
        ],
        eval: contained,
    },
    FunctionSpec {
        name: "in",
        overloads: &[
            ("in_list", "(A, list(A)) -> bool"),
            ("in_map", "(A, map(A, B)) -> bool"),
        ],
        eval: contained,
    },
    FunctionSpec {
        name: "size",
        overloads: &[
            ("size_bytes", "(bytes) -> int"),
            ("bytes_size", "bytes.() -> int"),
            ("size_list", "(list(A)) -> int"),
            ("list_size", "list(A).() -> int"),
            ("size_map", "(map(A, B)) -> int"),
            ("map_size", "map(A, B).() -> int"),
            ("size_string", "(string) -> int"),
            ("string_size", "string.() -> int"),
        ],
        eval: size,
    },
    FunctionSpec {
        name: "type",
        overloads: &[("type", "(A) -> type(A)")],
        eval: |args| Ok(Value::Type(Arc::new(runtime_type(&args.values[0])))),
    },
    FunctionSpec {
        name: "dyn",
        overloads: &[("to_dyn", "(A) -> dyn")],
        eval: |mut args| Ok(args.take(0)),
    },
    FunctionSpec {
        name: "contains",
        overloads: &[("contains_string", "string.(string) -> bool")],
        eval: |args| text_test(&args, |text, part| text.contains(part)),
    },
    FunctionSpec {
        name: "startsWith",
        overloads: &[("starts_with_string", "string.(string) -> bool")],
        eval: |args| text_test(&args, |text, part| text.starts_with(part)),
    },
    FunctionSpec {
        name: "endsWith",
        overloads: &[("ends_with_string", "string.(string) -> bool")],
        eval: |args| text_test(&args, |text, part| text.ends_with(part)),
    },
    FunctionSpec {
        name: "matches",
        overloads: &[
            ("matches", "(string, string) -> bool"),
            ("matches_string", "string.(string) -> bool"),
        ],
        eval: matches,
    },
    FunctionSpec {
        name: "cel.@mapInsert",
        overloads: &[
            ("@mapInsert_map_key_value", "(map(K, V), K, V) -> map(K, V)"),
            ("@mapInsert_map_map", "(map(K, V), map(K, V)) -> map(K, V)"),
        ],
        eval: map_insert,
    },
];

/// Operators that have steps of their own in a plan.
fn planned<'a>(_: Args<'_, 'a>) -> Result<'a> {
    Err(EvalError::no_such_overload())
}

fn not<'a>(args: Args<'_, 'a>) -> Result<'a> {
    match args.values[0] {
        Value::Bool(value) => Ok(Value::Bool(!value)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn not_strictly_false<'a>(args: Args<'_, 'a>) -> Result<'a> {
    Ok(Value::Bool(!matches!(args.values[0], Value::Bool(false))))
}

fn negate<'a>(args: Args<'_, 'a>) -> Result<'a> {
    match args.values[0] {
        Value::Int(value) => value
            .checked_neg()
            .map(Value::Int)
            .ok_or_else(EvalError::overflow),
        Value::Double(value) => Ok(Value::Double(-value)),
        Value::Duration(value) => duration(value.nanos().checked_neg()),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn duration<'a>(nanos: Option<i64>) -> Result<'a> {
    let nanos = nanos.ok_or_else(|| EvalError::new("duration overflow"))?;
    Ok(Value::Duration(Duration::from_nanos(nanos)))
}

/// A sum of durations; cel-go reports its overflow as that of an integer.
fn sum<'a>(nanos: Option<i64>) -> Result<'a> {
    let nanos = nanos.ok_or_else(EvalError::overflow)?;
    Ok(Value::Duration(Duration::from_nanos(nanos)))
}

fn int<'a>(value: Option<i64>) -> Result<'a> {
    value.map(Value::Int).ok_or_else(EvalError::overflow)
}

fn uint<'a>(value: Option<u64>) -> Result<'a> {
    value
        .map(Value::Uint)
        .ok_or_else(|| EvalError::new("unsigned integer overflow"))
}

fn add<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    let (left, right) = (args.take(0), args.take(1));
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => int(left.checked_add(right)),
        (Value::Uint(left), Value::Uint(right)) => uint(left.checked_add(right)),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left + right)),
        (Value::String(left), Value::String(right)) => {
            args.work.build(left.len().saturating_add(right.len()))?;
            let mut text = String::with_capacity(left.len() + right.len());
            text.push_str(&left);
            text.push_str(&right);
            Ok(Value::string(text))
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            args.work.build(left.len().saturating_add(right.len()))?;
            Ok(Value::Bytes([&left[..], &right[..]].concat().into()))
        }
        (Value::List(left), Value::List(right)) => left.concat(right, args.work).map(Value::List),
        (Value::Duration(left), Value::Duration(right)) => sum(left.nanos().checked_add(right.nanos())),
        (Value::Timestamp(left), Value::Duration(right)) => left.add(right).map(Value::Timestamp),
        (Value::Duration(left), Value::Timestamp(right)) => right.add(left).map(Value::Timestamp),
        (left, _) => Err(unsupported("_+_", &left)),
    }
}

fn subtract<'a>(args: Args<'_, 'a>) -> Result<'a> {
    match (&args.values[0], &args.values[1]) {
        (Value::Int(left), Value::Int(right)) => int(left.checked_sub(*right)),
        (Value::Uint(left), Value::Uint(right)) => uint(left.checked_sub(*right)),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left - right)),
        (Value::Duration(left), Value::Duration(right)) => sum(left.nanos().checked_sub(right.nanos())),
        (Value::Timestamp(left), Value::Duration(right)) => left.subtract(*right).map(Value::Timestamp),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.since(*right).map(Value::Duration),
        (left, _) => Err(unsupported("_-_", left)),
    }
}

fn multiply<'a>(args: Args<'_, 'a>) -> Result<'a> {
    match (&args.values[0], &args.values[1]) {
        (Value::Int(left), Value::Int(right)) => int(left.checked_mul(*right)),
        (Value::Uint(left), Value::Uint(right)) => uint(left.checked_mul(*right)),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left * right)),
        (left, _) => Err(unsupported("_*_", left)),
    }
}

fn divide<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let by_zero = || EvalError::new("division by zero");
    match (&args.values[0], &args.values[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(by_zero()),
        (Value::Int(left), Value::Int(right)) => int(left.checked_div(*right)),
        (Value::Uint(left), Value::Uint(right)) => uint(left.checked_div(*right)),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left / right)),
        (left, _) => Err(unsupported("_/_", left)),
    }
}

fn modulo<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let by_zero = || EvalError::new("modulus by zero");
    match (&args.values[0], &args.values[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(by_zero()),
        (Value::Int(left), Value::Int(right)) => int(left.checked_rem(*right)),
        (Value::Uint(left), Value::Uint(right)) => uint(left.checked_rem(*right)),
        (left, _) => Err(unsupported("_%_", left)),
    }
}

/// The error of an operator whose first operand has no such operator at all, or only not with the second one.
fn unsupported(operator: &str, left: &Value<'_>) -> EvalError {
    let is_known = match left {
        Value::Int(_) | Value::Uint(_) => true,
        Value::Double(_) => operator != "_%_",
        Value::Duration(_) | Value::Timestamp(_) => !matches!(operator, "_*_" | "_/_" | "_%_"),
        Value::String(_) | Value::Bytes(_) => matches!(operator, "_+_" | "_<_" | "_<=_" | "_>_" | "_>=_"),
        Value::List(_) => operator == "_+_",
        Value::Bool(_) => matches!(operator, "_<_" | "_<=_" | "_>_" | "_>=_"),
        _ => false,
    };
    if is_known {
        EvalError::no_such_overload()
    } else {
        EvalError::no_overload_for(operator)
    }
}

fn compare<'a>(operator: &str, args: &Args<'_, 'a>, test: impl Fn(Ordering) -> bool) -> Result<'a> {
    let (left, right) = (&args.values[0], &args.values[1]);
    match equality::order(left, right) {
        Some(order) => Ok(Value::Bool(test(order))),
        None if is_nan(left) && is_number(right) || is_nan(right) && is_number(left) => {
            Err(EvalError::new("NaN values cannot be ordered"))
        }
        None => Err(unsupported(operator, left)),
    }
}

fn is_nan(value: &Value<'_>) -> bool {
    matches!(value, Value::Double(value) if value.is_nan())
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

fn less<'a>(args: Args<'_, 'a>) -> Result<'a> {
    compare("_<_", &args, Ordering::is_lt)
}

fn less_equals<'a>(args: Args<'_, 'a>) -> Result<'a> {
    compare("_<=_", &args, Ordering::is_le)
}

fn greater<'a>(args: Args<'_, 'a>) -> Result<'a> {
    compare("_>_", &args, Ordering::is_gt)
}

fn greater_equals<'a>(args: Args<'_, 'a>) -> Result<'a> {
    compare("_>=_", &args, Ordering::is_ge)
}

fn contained<'a>(args: Args<'_, 'a>) -> Result<'a> {
    match &args.values[1] {
        Value::List(list) => list.contains(&args.values[0], args.work).map(Value::Bool),
        Value::Map(map) => match map.look_up(&args.values[0], args.work) {
            Some(Err(error)) => Err(error),
            found => Ok(Value::Bool(found.is_some())),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn size<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let size = match &args.values[0] {
        Value::String(text) => {
            args.work.read(text.len())?;
            code_points(text)
        }
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::List(list) => list.len() as u64,
        Value::Map(map) => map.len() as u64,
        _ => return Err(EvalError::no_overload_for("size")),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

/// The value of `type(x)`. Types of elements are not known.
fn runtime_type(value: &Value<'_>) -> Type {
    value.type_of()
}

fn text_test<'a>(args: &Args<'_, 'a>, holds: impl Fn(&str, &str) -> bool) -> Result<'a> {
    match (&args.values[0], &args.values[1]) {
        (Value::String(text), Value::String(part)) => Ok(Value::Bool(holds(text, part))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn matches<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let (Value::String(text), Value::String(pattern)) = (&args.values[0], &args.values[1]) else {
        return Err(EvalError::no_such_overload());
    };
    let found = match args.regex {
        Some(regex) => regex.is_match(text, args.work)?,
        None => re2::compile_charged(pattern, args.work)?.is_match(text, args.work)?,
    };
    Ok(Value::Bool(found))
}

fn map_insert<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    if args.values.len() == 2 && !matches!(args.values[1], Value::Map(_)) {
        return super::no_overload("cel.@mapInsert", args.values);
    }
    let Value::Map(mut map) = args.take(0) else {
        return Err(EvalError::no_such_overload());
    };
    let work = &mut *args.work;
    let entries = map.entries_mut(work)?;
    let mut insert = |key: Value<'a>, value, work: &mut Work| {
        work.spend(1)?;
        if entries.contains(&key, work)? {
            return Err(EvalError::new(format!(
                "insert failed: key {} already exists",
                crate::display::plain(&key)
            )));
        }
        entries.insert(key, value, work)
    };
    if args.values.len() == 3 {
        let (key, value) = (args.take(1), args.take(2));
        insert(key, value, args.work)?;
    } else {
        let Value::Map(other) = args.take(1) else {
            return Err(EvalError::no_such_overload());
        };
        for key in other.keys() {
            if let Some(value) = other.look_up(&key, args.work) {
                insert(key, value?, args.work)?;
            }
        }
    }
    Ok(Value::Map(map))
}
