//! The sets extension.

use super::{Result, no_overload};
use crate::{
    EvalError, Value,
    budget::Work,
    function::{Args, FunctionSpec},
    list::List,
};

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "sets.contains",
        overloads: &[("list_sets_contains_list", "(list(T), list(T)) -> bool")],
        eval: |args| compare("sets.contains", args, contains),
    },
    FunctionSpec {
        name: "sets.equivalent",
        overloads: &[("list_sets_equivalent_list", "(list(T), list(T)) -> bool")],
        eval: |args| {
            compare("sets.equivalent", args, |left, right, work| {
                Ok(contains(left, right, work)? && contains(right, left, work)?)
            })
        },
    },
    FunctionSpec {
        name: "sets.intersects",
        overloads: &[("list_sets_intersects_list", "(list(T), list(T)) -> bool")],
        eval: |args| {
            compare("sets.intersects", args, |left, right, work| {
                for value in left {
                    match right.contains(&value?, work) {
                        Ok(true) => return Ok(true),
                        Err(error) if error.is_final() => return Err(error),
                        _ => {}
                    }
                }
                Ok(false)
            })
        },
    },
];

type Test = for<'a> fn(&List<'a>, &List<'a>, &mut Work) -> std::result::Result<bool, EvalError>;

fn compare<'a>(name: &str, args: Args<'_, 'a>, test: Test) -> Result<'a> {
    match (&args.values[0], &args.values[1]) {
        (Value::List(left), Value::List(right)) => test(left, right, args.work).map(Value::Bool),
        _ => no_overload(name, args.values),
    }
}

fn contains<'a>(list: &List<'a>, part: &List<'a>, work: &mut Work) -> std::result::Result<bool, EvalError> {
    for value in part {
        if !list.contains(&value?, work)? {
            return Ok(false);
        }
    }
    Ok(true)
}
