//! The lists extension, version 3, and Kubernetes' lists library.

use std::cmp::Ordering;

use super::{Result, no_overload, strings};
use crate::{
    EvalError, Value,
    budget::Work,
    equality,
    function::{Args, FunctionSpec},
    list::List,
    time::Duration,
};

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "slice",
        overloads: &[("list_slice", "list(T).(int, int) -> list(T)")],
        eval: slice,
    },
    FunctionSpec {
        name: "flatten",
        overloads: &[
            ("list_flatten", "list(list(T)).() -> list(T)"),
            ("list_flatten_int", "list(dyn).(int) -> list(dyn)"),
        ],
        eval: flatten,
    },
    FunctionSpec {
        name: "sort",
        overloads: &[
            ("list_int_sort", "list(int).() -> list(int)"),
            ("list_uint_sort", "list(uint).() -> list(uint)"),
            ("list_double_sort", "list(double).() -> list(double)"),
            ("list_bool_sort", "list(bool).() -> list(bool)"),
            (
                "list_google.protobuf.Duration_sort",
                "list(duration).() -> list(duration)",
            ),
            (
                "list_google.protobuf.Timestamp_sort",
                "list(timestamp).() -> list(timestamp)",
            ),
            ("list_string_sort", "list(string).() -> list(string)"),
            ("list_bytes_sort", "list(bytes).() -> list(bytes)"),
        ],
        eval: |args| match &args.values[0] {
            Value::List(list) => sort_by(list, list, args.work),
            _ => Err(EvalError::no_overload_for("sort")),
        },
    },
    FunctionSpec {
        name: "@sortByAssociatedKeys",
        overloads: &[
            ("list_int_sortByAssociatedKeys", "list(T).(list(int)) -> list(T)"),
            (
                "list_uint_sortByAssociatedKeys",
                "list(T).(list(uint)) -> list(T)",
            ),
            (
                "list_double_sortByAssociatedKeys",
                "list(T).(list(double)) -> list(T)",
            ),
            (
                "list_bool_sortByAssociatedKeys",
                "list(T).(list(bool)) -> list(T)",
            ),
            (
                "list_google.protobuf.Duration_sortByAssociatedKeys",
                "list(T).(list(duration)) -> list(T)",
            ),
            (
                "list_google.protobuf.Timestamp_sortByAssociatedKeys",
                "list(T).(list(timestamp)) -> list(T)",
            ),
            (
                "list_string_sortByAssociatedKeys",
                "list(T).(list(string)) -> list(T)",
            ),
            (
                "list_bytes_sortByAssociatedKeys",
                "list(T).(list(bytes)) -> list(T)",
            ),
        ],
        eval: |args| match (&args.values[0], &args.values[1]) {
            (Value::List(list), Value::List(keys)) => sort_by(list, keys, args.work),
            _ => no_overload("@sortByAssociatedKeys", args.values),
        },
    },
    FunctionSpec {
        name: "lists.range",
        overloads: &[("lists_range", "(int) -> list(int)")],
        eval: range,
    },
    FunctionSpec {
        name: "reverse",
        overloads: &[("list_reverse", "list(T).() -> list(T)")],
        eval: |mut args| {
            let mut values = elements(&mut args, "reverse")?;
            values.reverse();
            Ok(Value::list(values))
        },
    },
    FunctionSpec {
        name: "distinct",
        overloads: &[("list_distinct", "list(T).() -> list(T)")],
        eval: distinct,
    },
    FunctionSpec {
        name: "first",
        overloads: &[("list_first", "list(V).() -> optional(V)")],
        eval: |args| match &args.values[0] {
            Value::List(list) => at(list, 0),
            _ => no_overload("first", args.values),
        },
    },
    FunctionSpec {
        name: "last",
        overloads: &[("list_last", "list(V).() -> optional(V)")],
        eval: |args| match &args.values[0] {
            Value::List(list) => at(list, list.len().wrapping_sub(1)),
            _ => no_overload("last", args.values),
        },
    },
    FunctionSpec {
        name: "isSorted",
        overloads: &[
            ("list_int_is_sorted_bool", "list(int).() -> bool"),
            ("list_uint_is_sorted_bool", "list(uint).() -> bool"),
            ("list_double_is_sorted_bool", "list(double).() -> bool"),
            ("list_bool_is_sorted_bool", "list(bool).() -> bool"),
            ("list_duration_is_sorted_bool", "list(duration).() -> bool"),
            ("list_timestamp_is_sorted_bool", "list(timestamp).() -> bool"),
            ("list_string_is_sorted_bool", "list(string).() -> bool"),
            ("list_bytes_is_sorted_bool", "list(bytes).() -> bool"),
        ],
        eval: is_sorted,
    },
    FunctionSpec {
        name: "sum",
        overloads: &[
            ("list_int_sum_int", "list(int).() -> int"),
            ("list_uint_sum_uint", "list(uint).() -> uint"),
            ("list_double_sum_double", "list(double).() -> double"),
            ("list_duration_sum_duration", "list(duration).() -> duration"),
        ],
        eval: sum,
    },
    FunctionSpec {
        name: "max",
        overloads: &[
            ("list_int_max_int", "list(int).() -> int"),
            ("list_uint_max_uint", "list(uint).() -> uint"),
            ("list_double_max_double", "list(double).() -> double"),
            ("list_bool_max_bool", "list(bool).() -> bool"),
            ("list_duration_max_duration", "list(duration).() -> duration"),
            ("list_timestamp_max_timestamp", "list(timestamp).() -> timestamp"),
            ("list_string_max_string", "list(string).() -> string"),
            ("list_bytes_max_bytes", "list(bytes).() -> bytes"),
        ],
        eval: |mut args| extreme(&mut args, "max", Ordering::Less),
    },
    FunctionSpec {
        name: "min",
        overloads: &[
            ("list_int_min_int", "list(int).() -> int"),
            ("list_uint_min_uint", "list(uint).() -> uint"),
            ("list_double_min_double", "list(double).() -> double"),
            ("list_bool_min_bool", "list(bool).() -> bool"),
            ("list_duration_min_duration", "list(duration).() -> duration"),
            ("list_timestamp_min_timestamp", "list(timestamp).() -> timestamp"),
            ("list_string_min_string", "list(string).() -> string"),
            ("list_bytes_min_bytes", "list(bytes).() -> bytes"),
        ],
        eval: |mut args| extreme(&mut args, "min", Ordering::Greater),
    },
    FunctionSpec {
        name: "indexOf",
        overloads: &[
            ("list_a_index_of_int", "list(A).(A) -> int"),
            ("string_index_of_string", "string.(string) -> int"),
            ("string_index_of_string_int", "string.(string, int) -> int"),
        ],
        eval: index_of,
    },
    FunctionSpec {
        name: "lastIndexOf",
        overloads: &[
            ("list_a_last_index_of_int", "list(A).(A) -> int"),
            ("string_last_index_of_string", "string.(string) -> int"),
            ("string_last_index_of_string_int", "string.(string, int) -> int"),
        ],
        eval: last_index_of,
    },
];

fn elements<'a>(args: &mut Args<'_, 'a>, name: &str) -> std::result::Result<Vec<Value<'a>>, EvalError> {
    match &args.values[0] {
        Value::List(list) => {
            args.work.build_list(list.len())?;
            let mut values = Vec::with_capacity(list.len());
            for value in list {
                let value = value?;
                args.work.spend(1)?;
                args.work.decoded(&value)?;
                values.push(value);
            }
            Ok(values)
        }
        _ => no_overload(name, args.values).map(|_| Vec::new()),
    }
}

fn slice<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = &args.values[..] else {
        return no_overload("slice", args.values);
    };
    let refuse = |why: String| Err(EvalError::new(format!("cannot slice({start}, {end}), {why}")));
    if *start < 0 || *end < 0 {
        return refuse("negative indexes not supported".to_owned());
    }
    if start > end {
        return refuse("start index must be less than or equal to end index".to_owned());
    }
    let (from, to) = (usize::try_from(*start), usize::try_from(*end));
    let (Ok(from), Ok(to)) = (from, to) else {
        return refuse(format!("list is length {}", list.len()));
    };
    if to > list.len() {
        return refuse(format!("list is length {}", list.len()));
    }
    args.work.build_list(to - from)?;
    let mut values = Vec::with_capacity(to - from);
    for index in from..to {
        let value = list.get(index).unwrap_or(Ok(Value::Null))?;
        args.work.spend(1)?;
        args.work.decoded(&value)?;
        values.push(value);
    }
    Ok(Value::list(values))
}

fn flatten<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let (list, depth) = match &args.values[..] {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return no_overload("flatten", args.values),
    };
    if depth < 0 {
        return Err(EvalError::new("level must be non-negative"));
    }
    let mut values = Vec::new();
    flatten_into(list, depth, &mut values, args.work)?;
    Ok(Value::list(values))
}

/// Recurses as deep as the lists are nested, which is bounded by the depths of an expression and of JSON.
fn flatten_into<'a>(
    list: &List<'a>,
    depth: i64,
    values: &mut Vec<Value<'a>>,
    work: &mut Work,
) -> std::result::Result<(), EvalError> {
    for value in list {
        work.spend(1)?;
        match value? {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, values, work)?,
            value => {
                work.build_list(1)?;
                values.push(value);
            }
        }
    }
    Ok(())
}

fn sort_by<'a>(list: &List<'a>, keys: &List<'a>, work: &mut Work) -> Result<'a> {
    if list.len() != keys.len() {
        return Err(EvalError::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            list.len(),
            keys.len()
        )));
    }
    // The pairs, their copies while they are sorted, and the result.
    work.build_list(list.len().saturating_mul(5))?;
    let mut pairs = Vec::with_capacity(list.len());
    for (value, key) in list.iter().zip(keys) {
        work.spend(1)?;
        pairs.push((key?, value?));
    }
    let Some((first, _)) = pairs.first() else {
        return Ok(Value::List(list.clone()));
    };
    if !is_comparable(first) {
        return Err(EvalError::new("list elements must be comparable"));
    }
    let kind = std::mem::discriminant(first);
    if pairs.iter().any(|(key, _)| std::mem::discriminant(key) != kind) {
        return Err(EvalError::new("list elements must have the same type"));
    }
    let pairs = merge_sort(pairs, work)?;
    Ok(Value::list(pairs.into_iter().map(|(_, value)| value).collect()))
}

/// Sorts by key; equal ones keep their order. Ends with the evaluation, and has no order to rely on if there is NaN.
fn merge_sort<'a>(
    mut pairs: Vec<(Value<'a>, Value<'a>)>,
    work: &mut Work,
) -> std::result::Result<Vec<(Value<'a>, Value<'a>)>, EvalError> {
    if pairs.len() < 2 {
        return Ok(pairs);
    }
    let right = pairs.split_off(pairs.len() / 2);
    let left = merge_sort(pairs, work)?;
    let right = merge_sort(right, work)?;
    let mut sorted = Vec::with_capacity(left.len() + right.len());
    let mut left = left.into_iter().peekable();
    let mut right = right.into_iter().peekable();
    while let (Some((one, _)), Some((other, _))) = (left.peek(), right.peek()) {
        work.spend(1)?;
        if let (Value::String(one), Value::String(other)) = (one, other) {
            work.read(one.len().min(other.len()))?;
        }
        let from = match equality::order(one, other) {
            Some(Ordering::Greater) => &mut right,
            _ => &mut left,
        };
        sorted.extend(from.next());
    }
    sorted.extend(left);
    sorted.extend(right);
    Ok(sorted)
}

/// The order of two elements of a list. NaN has none, and counts as equal.
fn order(left: &Value<'_>, right: &Value<'_>) -> std::result::Result<Ordering, EvalError> {
    match equality::order(left, right) {
        Some(order) => Ok(order),
        None if matches!((left, right), (Value::Double(_), Value::Double(_))) => Ok(Ordering::Equal),
        None => Err(EvalError::no_such_overload()),
    }
}

const fn is_comparable(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
    )
}

/// The cost of a range is charged when it is there, so its length has a limit of its own.
fn range<'a>(args: Args<'_, 'a>) -> Result<'a> {
    const MAX_LENGTH: i64 = 10_000_000;
    match args.values[0] {
        Value::Int(length) if length > MAX_LENGTH => Err(EvalError::cost_limit()),
        Value::Int(length) => {
            args.work.build_list(usize::try_from(length).unwrap_or(0))?;
            Ok(Value::list((0..length).map(Value::Int).collect()))
        }
        _ => no_overload("lists.range", args.values),
    }
}

fn distinct<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    let values = elements(&mut args, "distinct")?;
    let mut unique: Vec<Value<'a>> = Vec::new();
    for value in values {
        let mut seen = false;
        for known in &unique {
            if equality::is_same(&value, known, args.work)? {
                seen = true;
                break;
            }
        }
        if !seen {
            args.work.build_list(1)?;
            unique.push(value);
        }
    }
    Ok(Value::list(unique))
}

fn at<'a>(list: &List<'a>, index: usize) -> Result<'a> {
    Ok(match list.get(index) {
        Some(value) => Value::some(value?),
        None => Value::Optional(None),
    })
}

fn is_sorted<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    let values = elements(&mut args, "isSorted")?;
    if values.first().is_some_and(|first| !is_comparable(first)) {
        return no_overload("isSorted", args.values);
    }
    for pair in values.windows(2) {
        if order(&pair[0], &pair[1])?.is_gt() {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    let values = elements(&mut args, "sum")?;
    let mut total: Option<Value<'a>> = None;
    for value in values {
        total = Some(match (total, value) {
            (None, value @ (Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_))) => value,
            (Some(Value::Int(total)), Value::Int(value)) => {
                Value::Int(total.checked_add(value).ok_or_else(EvalError::overflow)?)
            }
            (Some(Value::Uint(total)), Value::Uint(value)) => Value::Uint(
                total
                    .checked_add(value)
                    .ok_or_else(|| EvalError::new("unsigned integer overflow"))?,
            ),
            (Some(Value::Double(total)), Value::Double(value)) => Value::Double(total + value),
            (Some(Value::Duration(total)), Value::Duration(value)) => {
                let nanos = total.nanos().checked_add(value.nanos());
                Value::Duration(Duration::from_nanos(
                    nanos.ok_or_else(|| EvalError::new("duration overflow"))?,
                ))
            }
            (None, _) => return no_overload("sum", args.values),
            _ => return Err(EvalError::no_such_overload()),
        });
    }
    // Of a list of unknown type the first overload counts.
    Ok(total.unwrap_or(match args.overload {
        "list_uint_sum_uint" => Value::Uint(0),
        "list_double_sum_double" => Value::Double(0.0),
        "list_duration_sum_duration" => Value::Duration(Duration::from_nanos(0)),
        _ => Value::Int(0),
    }))
}

fn extreme<'a>(args: &mut Args<'_, 'a>, name: &str, worse: Ordering) -> Result<'a> {
    let mut best: Option<Value<'a>> = None;
    for value in elements(args, name)? {
        match &best {
            Some(known) if order(known, &value)? != worse => {}
            None if !is_comparable(&value) => return no_overload(name, args.values),
            _ => best = Some(value),
        }
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn index_of<'a>(args: Args<'_, 'a>) -> Result<'a> {
    match &args.values[..] {
        [Value::String(text), Value::String(part)] => strings::index_of(text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => strings::index_of(text, part, *from),
        [Value::List(list), value] => position(list.iter().enumerate(), value, args.work),
        _ => no_overload("indexOf", args.values),
    }
}

fn last_index_of<'a>(args: Args<'_, 'a>) -> Result<'a> {
    match &args.values[..] {
        [Value::String(text), Value::String(part)] => strings::last_index_of(text, part, None),
        [Value::String(text), Value::String(part), Value::Int(from)] => {
            strings::last_index_of(text, part, Some(*from))
        }
        [Value::List(list), value] => {
            let values = (0..list.len())
                .rev()
                .filter_map(|index| Some((index, list.get(index)?)));
            position(values, value, args.work)
        }
        _ => no_overload("lastIndexOf", args.values),
    }
}

fn position<'a>(
    values: impl Iterator<Item = (usize, std::result::Result<Value<'a>, EvalError>)>,
    wanted: &Value<'a>,
    work: &mut Work,
) -> Result<'a> {
    for (index, value) in values {
        if equality::is_same(&value?, wanted, work)? {
            return Ok(Value::Int(i64::try_from(index).unwrap_or(i64::MAX)));
        }
    }
    Ok(Value::Int(-1))
}
