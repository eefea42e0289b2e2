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
            Ok(Value::string(found.into_iter().next().unwrap_or_default()))
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
            let found = find(&mut args, limit)?;
            Ok(Value::list(found.into_iter().map(Value::string).collect()))
        },
    },
];

fn find(args: &mut Args<'_, '_>, limit: usize) -> std::result::Result<Vec<String>, EvalError> {
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
    Ok(regex
        .find_iter(text)
        .take(limit)
        .map(|found| found.as_str().to_owned())
        .collect())
}
