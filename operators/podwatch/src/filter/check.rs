//! Checks an expression without an object: its syntax, its types, and that it can return a bool.

use windlass_cel::{Env, Issue, Program, Type};

/// The functions that an error suggests.
const SUGGESTED_FUNCTIONS: [&str; 8] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "has",
    "exists",
    "all",
];

/// Why an expression is invalid, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}\n  {line}\n  {:>column$}", '^', column = .column)]
pub struct FilterError {
    reason: String,
    line: String,
    /// From 1.
    column: usize,
}

impl FilterError {
    fn at(source: &str, line: usize, column: usize, reason: impl Into<String>) -> Self {
        let text = source.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        Self {
            reason: reason.into(),
            line: text.to_owned(),
            column: column.clamp(1, text.chars().count() + 1),
        }
    }
}

/// Compiles an expression that may use these variables; their indexes are those of the list.
pub(super) fn compile(source: &str, variables: &[(&str, &str)]) -> Result<Program, FilterError> {
    if source.trim().is_empty() {
        return Err(FilterError::at(
            source,
            1,
            1,
            "empty expression: omit `--filter` to report everything",
        ));
    }
    let mut env = Env::kubernetes();
    for (name, _) in variables {
        let type_ = match *name {
            "object" | "old" => Type::Dyn,
            "changes" => Type::list(Type::Dyn),
            _ => Type::String,
        };
        env.declare(*name, type_);
    }
    let program = env.compile(source).map_err(|issues| match issues.iter().next() {
        Some(issue) => explain(source, variables, issue),
        None => FilterError::at(source, 1, 1, "invalid expression"),
    })?;
    if let Some(what) = non_boolean_result(source, &program) {
        let (line, column) = program.location();
        return Err(FilterError::at(
            source,
            line as usize,
            column as usize + 1,
            format!("the expression returns {what}, not a bool: compare it with something, as in `… == …`"),
        ));
    }
    Ok(program)
}

/// The message for a mistake, with what is there instead of an unknown name.
fn explain(source: &str, variables: &[(&str, &str)], issue: &Issue) -> FilterError {
    let line = usize::try_from(issue.line).unwrap_or(1);
    let column = usize::try_from(issue.column).unwrap_or_default();
    let at = |reason: String| FilterError::at(source, line, column + 1, reason);
    let unknown = issue
        .message
        .strip_prefix("undeclared reference to '")
        .and_then(|rest| rest.split_once('\''));
    if let Some((name, _)) = unknown {
        // The place of a call is its parenthesis.
        let sign = source
            .lines()
            .nth(line.saturating_sub(1))
            .and_then(|text| text.chars().nth(column));
        if sign == Some('(') {
            let there = SUGGESTED_FUNCTIONS.map(|name| format!("`{name}`")).join(", ");
            return at(format!(
                "unknown function `{name}`: use {there} or another CEL function"
            ));
        }
        let there: Vec<_> = variables
            .iter()
            .map(|(name, what)| format!("`{name}` ({what})"))
            .collect();
        return at(format!(
            "unknown variable `{name}`: use one of {}",
            there.join(", ")
        ));
    }
    match issue.message.strip_prefix("Syntax error: ") {
        Some(reason) => at(format!("syntax error: {reason}")),
        None => at(issue.message.clone()),
    }
}

/// What the expression returns, if that is certainly not a bool.
fn non_boolean_result(source: &str, program: &Program) -> Option<&'static str> {
    let (line, column) = program.location();
    let sign = source
        .lines()
        .nth((line as usize).saturating_sub(1))
        .and_then(|text| text.chars().nth(column as usize));
    Some(match program.result_type() {
        Type::Dyn if matches!(source.trim(), "object" | "old") => "an object",
        Type::Bool | Type::Dyn => return None,
        _ if sign == Some('+') => "a sum",
        Type::Int | Type::Uint | Type::Double => "a number",
        Type::String => "a string",
        Type::Bytes => "bytes",
        Type::Null => "null",
        Type::List(_) => "a list",
        Type::Map(_) => "a map",
        Type::Duration => "a duration",
        Type::Timestamp => "a timestamp",
        Type::Type(_) => "a type",
        _ => "a value",
    })
}
