//! Declarations of functions.

use std::sync::Arc;

use crate::{EvalError, Type, Value, budget::Work, re2::Pattern};

/// A function of a library, as a row of its table.
pub(crate) struct FunctionSpec {
    pub(crate) name: &'static str,
    /// The id and the signature of each overload: `(int, int) -> int`, or `string.(int) -> string` for a member.
    pub(crate) overloads: &'static [(&'static str, &'static str)],
    pub(crate) eval: Eval,
}

/// The implementation of a function, for all of its overloads.
///
/// It gets the arguments by value. It must return [`EvalError::no_such_overload`] for types that it does not take: the
/// checker rules them out, except for `dyn`.
pub(crate) type Eval = for<'a> fn(Args<'_, 'a>) -> Result<Value<'a>, EvalError>;

/// The arguments of a call.
pub(crate) struct Args<'r, 'a> {
    pub(crate) values: &'r mut [Value<'a>],
    pub(crate) work: &'r mut Work,
    /// The id of the overload; empty if several fit.
    pub(crate) overload: &'static str,
    /// The compiled pattern, if it is a constant.
    pub(crate) regex: Option<&'r Pattern>,
}

impl<'a> Args<'_, 'a> {
    /// Takes an argument; it is null afterwards.
    pub(crate) fn take(&mut self, index: usize) -> Value<'a> {
        std::mem::replace(&mut self.values[index], Value::Null)
    }
}

/// A function with its overloads.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
    pub(crate) eval: Eval,
}

/// A signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) is_member: bool,
    /// With the target of a member first.
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// Type parameters in the signature.
    pub(crate) parameters: Vec<Arc<str>>,
}

impl Function {
    pub(crate) const fn new(name: &'static str, eval: Eval) -> Self {
        Self {
            name,
            overloads: Vec::new(),
            eval,
        }
    }

    /// Adds the overloads of a row. Two libraries may add to the same function.
    pub(crate) fn extend(&mut self, spec: &FunctionSpec) {
        self.overloads.extend(
            spec.overloads
                .iter()
                .map(|(id, signature)| Overload::parse(id, signature)),
        );
    }

    /// Whether only mutations have it.
    pub(crate) fn is_mutation(&self) -> bool {
        self.name == "jsonpatch.escapeKey"
    }
}

impl Overload {
    fn parse(id: &'static str, signature: &str) -> Self {
        let (args, result) = signature.split_once(" -> ").expect("a result");
        let (target, args) = args.split_once('(').expect("arguments");
        let args = args.strip_suffix(')').expect("a closed parenthesis");
        // The target may have parentheses of its own, as in `list(T).(int)`.
        let (target, args) = match signature.split_once(".(") {
            Some((target, rest)) => {
                let (args, _) = rest.split_once(") -> ").expect("a result");
                (Some(target), args)
            }
            None => {
                debug_assert!(target.is_empty(), "{signature}");
                (None, args)
            }
        };
        let mut types: Vec<_> = target.into_iter().map(Type::parse).collect();
        types.extend(split_types(args).into_iter().map(Type::parse));
        let result = Type::parse(result);
        let mut parameters: Vec<Arc<str>> = Vec::new();
        for type_ in types.iter().chain([&result]) {
            type_.parameters(&mut |name| {
                if !parameters.contains(name) {
                    parameters.push(Arc::clone(name));
                }
            });
        }
        Self {
            id,
            is_member: target.is_some(),
            args: types,
            result,
            parameters,
        }
    }
}

/// Splits at the commas outside of parentheses.
fn split_types(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if !text.trim().is_empty() {
        parts.push(&text[start..]);
    }
    parts
}
