//! Checks an expression without an object: its syntax, its variables and functions, and that it can return a bool.

use std::sync::Arc;

use cel::{
    Context, Env, IdedExpr, Program,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};

/// Functions that do not return a bool, with what they return.
const NON_BOOLEAN_FUNCTIONS: [(&str, &str); 9] = [
    ("size", "a number"),
    ("int", "a number"),
    ("uint", "a number"),
    ("double", "a number"),
    ("string", "a string"),
    ("bytes", "bytes"),
    ("type", "a type"),
    ("lowerAscii", "a string"),
    ("split", "a list"),
];

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

/// Compiles an expression that may use these variables.
pub(super) fn compile(
    env: &Arc<Env>,
    source: &str,
    variables: &[(&str, &str)],
) -> Result<Program, FilterError> {
    if source.trim().is_empty() {
        return Err(FilterError::at(
            source,
            1,
            1,
            "empty expression: omit `--filter` to report everything",
        ));
    }
    let program = env.compile(source).map_err(|errors| {
        let Some(first) = errors.errors.first() else {
            return FilterError::at(source, 1, 1, "syntax error");
        };
        let place = |number: isize| usize::try_from(number).unwrap_or(1);
        // The lines after the first list the parser's internal token names.
        let reason = first.msg.lines().next().unwrap_or_default();
        FilterError::at(
            source,
            place(first.pos.0),
            place(first.pos.1),
            format!("syntax error: {reason}"),
        )
    })?;
    let checker = Checker {
        env,
        program: &program,
        source,
        variables,
    };
    checker.check_names(program.expression(), &mut Vec::new())?;
    if let Some(what) = non_boolean_result(program.expression()) {
        let id = program.expression().id;
        return Err(checker.error(
            id,
            format!("the expression returns {what}, not a bool: compare it with something, as in `… == …`"),
        ));
    }
    Ok(program)
}

struct Checker<'a> {
    env: &'a Arc<Env>,
    program: &'a Program,
    source: &'a str,
    variables: &'a [(&'a str, &'a str)],
}

impl Checker<'_> {
    fn error(&self, id: u64, reason: String) -> FilterError {
        let offset = self
            .program
            .source_info()
            .offset_for(id)
            .map_or(0, |(start, _)| start);
        let before: String = self.source.chars().take(offset as usize).collect();
        let line = before.matches('\n').count();
        let column = before
            .chars()
            .rev()
            .take_while(|character| *character != '\n')
            .count();
        FilterError::at(self.source, line + 1, column + 1, reason)
    }

    /// Checks that every variable and function exists; `bound` are the variables of the surrounding macros.
    fn check_names<'e>(&self, expression: &'e IdedExpr, bound: &mut Vec<&'e str>) -> Result<(), FilterError> {
        match &expression.expr {
            Expr::Ident(name) => self.check_variable(expression.id, name, bound),
            Expr::Select(select) => self.check_names(&select.operand, bound),
            Expr::Call(call) => {
                self.check_function(expression.id, call)?;
                // `optional` is a namespace, not a variable.
                let is_namespace =
                    |target: &IdedExpr| matches!(&target.expr, Expr::Ident(name) if name == "optional");
                let target = call.target.as_deref().filter(|target| !is_namespace(target));
                target
                    .into_iter()
                    .chain(&call.args)
                    .try_for_each(|inner| self.check_names(inner, bound))
            }
            Expr::List(list) => list
                .elements
                .iter()
                .try_for_each(|inner| self.check_names(inner, bound)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.check_names(&entry.key, bound)?;
                    self.check_names(&entry.value, bound)
                }
                EntryExpr::StructField(field) => self.check_names(&field.value, bound),
            }),
            Expr::Struct(_) => Err(self.error(
                expression.id,
                "message literals are not supported: use a map, as in `{'a': 1}`".to_owned(),
            )),
            Expr::Comprehension(comprehension) => self.check_comprehension(comprehension, bound),
            Expr::Literal(_) | Expr::Unspecified => Ok(()),
        }
    }

    fn check_comprehension<'e>(
        &self,
        inner: &'e ComprehensionExpr,
        bound: &mut Vec<&'e str>,
    ) -> Result<(), FilterError> {
        self.check_names(&inner.iter_range, bound)?;
        self.check_names(&inner.accu_init, bound)?;
        let outside = bound.len();
        bound.extend([inner.iter_var.as_str(), inner.accu_var.as_str()]);
        bound.extend(inner.iter_var2.as_deref());
        let checked = [&inner.loop_cond, &inner.loop_step, &inner.result]
            .into_iter()
            .try_for_each(|part| self.check_names(part, bound));
        bound.truncate(outside);
        checked
    }

    fn check_variable(&self, id: u64, name: &str, bound: &[&str]) -> Result<(), FilterError> {
        // CEL has types as values: `type(object) == map`.
        const TYPES: [&str; 10] = [
            "bool",
            "bytes",
            "double",
            "int",
            "list",
            "map",
            "null_type",
            "string",
            "type",
            "uint",
        ];
        let known = name.starts_with('@')
            || bound.contains(&name)
            || TYPES.contains(&name)
            || self.variables.iter().any(|(known, _)| *known == name);
        if known {
            return Ok(());
        }
        let there: Vec<_> = self
            .variables
            .iter()
            .map(|(name, what)| format!("`{name}` ({what})"))
            .collect();
        Err(self.error(
            id,
            format!("unknown variable `{name}`: use one of {}", there.join(", ")),
        ))
    }

    fn check_function(&self, id: u64, call: &CallExpr) -> Result<(), FilterError> {
        let name = call.func_name.as_str();
        let qualified = match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Ident(target)) if target == "optional" => format!("optional.{name}"),
            _ => name.to_owned(),
        };
        // The names of operators and expanded macros do not start with a letter.
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) || self.is_function(&qualified) {
            return Ok(());
        }
        let there = SUGGESTED_FUNCTIONS.map(|name| format!("`{name}`")).join(", ");
        Err(self.error(
            id,
            format!("unknown function `{name}`: use {there} or another CEL function"),
        ))
    }

    /// Adding a function fails if the environment already has it.
    fn is_function(&self, name: &str) -> bool {
        let mut context = Context::with_env(Arc::clone(self.env));
        context.add_function(name, || true).is_err()
    }
}

/// What the expression returns, if that is certainly not a bool.
fn non_boolean_result(expression: &IdedExpr) -> Option<&'static str> {
    match &expression.expr {
        Expr::Literal(literal) => match literal {
            LiteralValue::Boolean(_) => None,
            LiteralValue::String(_) => Some("a string"),
            LiteralValue::Bytes(_) => Some("bytes"),
            LiteralValue::Null => Some("null"),
            LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => Some("a number"),
        },
        Expr::List(_) => Some("a list"),
        Expr::Map(_) => Some("a map"),
        Expr::Ident(name) => match name.as_str() {
            "object" | "old" => Some("an object"),
            "changes" => Some("a list"),
            "event" | "kind" | "key" | "name" => Some("a string"),
            _ => None,
        },
        Expr::Call(call) => match call.func_name.as_str() {
            operators::ADD => Some("a sum"),
            operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE => Some("a number"),
            operators::CONDITIONAL => call.args.get(1..)?.iter().find_map(|arm| non_boolean_result(arm)),
            name => NON_BOOLEAN_FUNCTIONS
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, what)| *what),
        },
        // The macros `filter` and `map` return lists and accumulate into one; the others return a bool.
        Expr::Comprehension(comprehension) => non_boolean_result(&comprehension.accu_init)
            .filter(|_| matches!(comprehension.accu_init.expr, Expr::List(_))),
        Expr::Select(_) | Expr::Struct(_) | Expr::Unspecified => None,
    }
}
