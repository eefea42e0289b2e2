//! The functions of Kubernetes 1.36, one file per library. Each is a table: the names and signatures of the overloads as
//! cel-go prints them, and the implementation.

// The table wants functions that take their arguments by value and can fail, also where one does neither.
#![allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps)]

mod authorizer;
mod conversions;
mod format;
mod ip;
mod jsonpatch;
mod lists;
mod optional;
mod quantity;
mod regex;
mod semver;
mod sets;
mod standard;
mod string_format;
mod strings;
mod times;
mod url;

pub use self::{
    authorizer::{Authorizer, Check, Decision, authorizer},
    ip::{Cidr, Ip},
    quantity::Quantity,
    semver::Semver,
    url::Url,
};

pub(crate) use self::{format::NamedFormat, string_format::check as check_format};

use crate::{EvalError, Value, function::FunctionSpec};

/// All functions of all libraries.
pub(crate) fn all() -> impl Iterator<Item = &'static FunctionSpec> {
    [
        standard::FUNCTIONS,
        conversions::FUNCTIONS,
        times::FUNCTIONS,
        strings::FUNCTIONS,
        string_format::FUNCTIONS,
        lists::FUNCTIONS,
        sets::FUNCTIONS,
        optional::FUNCTIONS,
        regex::FUNCTIONS,
        url::FUNCTIONS,
        quantity::FUNCTIONS,
        ip::FUNCTIONS,
        format::FUNCTIONS,
        semver::FUNCTIONS,
        authorizer::FUNCTIONS,
        jsonpatch::FUNCTIONS,
    ]
    .into_iter()
    .flatten()
}

/// The result of a call of a function.
pub(crate) type Result<'a> = std::result::Result<Value<'a>, EvalError>;

/// The error of a call with types that no overload takes.
pub(crate) fn no_overload<'a>(function: &str, args: &[Value<'a>]) -> Result<'a> {
    let types: Vec<_> = args.iter().map(Value::type_name).collect();
    Err(EvalError::no_overload_for(&format!(
        "{function}({})",
        types.join(", ")
    )))
}
