//! Optional values. `or` and `orValue` are steps of a plan.

use super::{Result, no_overload};
use crate::{
    EvalError, Value,
    function::{Args, FunctionSpec},
};

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "optional.of",
        overloads: &[("optional_of", "(V) -> optional(V)")],
        eval: |mut args| Ok(Value::some(args.take(0))),
    },
    FunctionSpec {
        name: "optional.ofNonZeroValue",
        overloads: &[("optional_ofNonZeroValue", "(V) -> optional(V)")],
        eval: |mut args| {
            let value = args.take(0);
            Ok(if value.is_zero() {
                Value::Optional(None)
            } else {
                Value::some(value)
            })
        },
    },
    FunctionSpec {
        name: "optional.none",
        overloads: &[("optional_none", "() -> optional(V)")],
        eval: |_| Ok(Value::Optional(None)),
    },
    FunctionSpec {
        name: "optional.unwrap",
        overloads: &[("optional_unwrap", "(list(optional(V))) -> list(V)")],
        eval: unwrap,
    },
    FunctionSpec {
        name: "unwrapOpt",
        overloads: &[("optional_unwrapOpt", "list(optional(V)).() -> list(V)")],
        eval: unwrap,
    },
    FunctionSpec {
        name: "value",
        overloads: &[("optional_value", "optional(V).() -> V")],
        eval: |args| match &args.values[0] {
            Value::Optional(Some(value)) => Ok((**value).clone()),
            Value::Optional(None) => Err(EvalError::new("optional.none() dereference")),
            _ => no_overload("value", args.values),
        },
    },
    FunctionSpec {
        name: "hasValue",
        overloads: &[("optional_hasValue", "optional(V).() -> bool")],
        eval: |args| match &args.values[0] {
            Value::Optional(value) => Ok(Value::Bool(value.is_some())),
            _ => no_overload("hasValue", args.values),
        },
    },
    FunctionSpec {
        name: "or",
        overloads: &[("optional_or_optional", "optional(V).(optional(V)) -> optional(V)")],
        eval: |args| no_overload("or", args.values),
    },
    FunctionSpec {
        name: "orValue",
        overloads: &[("optional_orValue_value", "optional(V).(V) -> V")],
        eval: |args| no_overload("orValue", args.values),
    },
    FunctionSpec {
        name: "_?._",
        overloads: &[("select_optional_field", "(dyn, string) -> optional(V)")],
        eval: |args| no_overload("_?._", args.values),
    },
    FunctionSpec {
        name: "_[?_]",
        overloads: &[
            ("list_optindex_optional_int", "(list(V), int) -> optional(V)"),
            (
                "optional_list_optindex_optional_int",
                "(optional(list(V)), int) -> optional(V)",
            ),
            ("map_optindex_optional_value", "(map(K, V), K) -> optional(V)"),
            (
                "optional_map_optindex_optional_value",
                "(optional(map(K, V)), K) -> optional(V)",
            ),
        ],
        eval: |args| no_overload("_[?_]", args.values),
    },
];

fn unwrap<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let Value::List(list) = &args.values[0] else {
        return no_overload("optional.unwrap", args.values);
    };
    args.work.build_list(list.len())?;
    let mut values = Vec::new();
    for value in list {
        args.work.spend(1)?;
        match value? {
            Value::Optional(value) => values.extend(value.map(|value| (*value).clone())),
            _ => return no_overload("optional.unwrap", args.values),
        }
    }
    Ok(Value::list(values))
}
