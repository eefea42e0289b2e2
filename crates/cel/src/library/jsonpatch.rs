//! `jsonpatch.escapeKey`, which only mutations have.

use super::no_overload;
use crate::{Value, function::FunctionSpec};

pub(super) const FUNCTIONS: &[FunctionSpec] = &[FunctionSpec {
    name: "jsonpatch.escapeKey",
    overloads: &[("string_jsonpatch_escapeKey_string", "(string) -> string")],
    eval: |args| match &args.values[0] {
        Value::String(text) => {
            args.work.build(text.len().saturating_mul(2))?;
            Ok(Value::string(text.replace('~', "~0").replace('/', "~1")))
        }
        _ => no_overload("jsonpatch.escapeKey", args.values),
    },
}];
