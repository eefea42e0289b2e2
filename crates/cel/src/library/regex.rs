//! Kubernetes' `find` and `findAll`.

use super::no_overload;
use crate::{
    EvalError, Value,
    function::{Args, FunctionSpec},
    re2,
};

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "find",
        overloads: &[("string_find_string", "string.(string) -> string")],
        eval: |mut args| {
            let found = find(&mut args, 1)?;
            Ok(found.into_iter().next().unwrap_or(Value::text("")))
        },
    },
    FunctionSpec {
        name: "findAll",
        overloads: &[
            ("string_find_all_string", "string.(string) -> list(string)"),
            (
                "string_find_all_string_int",
                "string.(string, int) -> list(string)",
            ),
        ],
        eval: |mut args| {
            let limit = match args.values.get(2) {
                Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
                None => usize::MAX,
                Some(_) => return no_overload("findAll", args.values),
            };
            find(&mut args, limit).map(Value::list)
        },
    },
];

fn find<'a>(args: &mut Args<'_, 'a>, limit: usize) -> std::result::Result<Vec<Value<'a>>, EvalError> {
    let (Value::String(text), Value::String(pattern)) = (&args.values[0], &args.values[1]) else {
        return Err(EvalError::no_such_overload());
    };
    let compiled;
    let regex = match args.regex {
        Some(regex) => regex,
        None => {
            compiled = re2::compile_charged(pattern, args.work).map_err(|error| {
                if error.is_final() {
                    return error;
                }
                EvalError::new(format!("Illegal regex: {error}"))
            })?;
            &compiled
        }
    };
    regex.find_all(text, limit, args.work)
}
