//! What can be said of an expression before there is an object: does it parse, does it know what it names, can it be true.

use std::sync::Arc;

use cel::{
    Context, Env, IdedExpr, Program,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};

/// Functions that give something else than true or false.
const NOT_BOOLEAN: [(&str, &str); 9] = [
    ("size", "a number"),
    ("int", "a number"),
    ("uint", "a number"),
    ("double", "a number"),
    ("string", "a text"),
    ("bytes", "bytes"),
    ("type", "a type"),
    ("lowerAscii", "a text"),
    ("split", "a list"),
];

/// The functions that people look for most.
const FUNCTIONS: [&str; 8] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "has",
    "exists",
    "all",
];

/// Why an expression cannot be used, with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}\n  {line}\n  {:>column$}", '^', column = .column)]
pub struct FilterError {
    why: String,
    line: String,
    /// From 1.
    column: usize,
}

impl FilterError {
    fn at(source: &str, line: usize, column: usize, why: impl Into<String>) -> Self {
        let text = source.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        Self {
            why: why.into(),
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
            "it is empty: leave `--filter` out to be told everything",
        ));
    }
    let program = env.compile(source).map_err(|errors| {
        let Some(first) = errors.errors.first() else {
            return FilterError::at(source, 1, 1, "it does not parse");
        };
        let place = |number: isize| usize::try_from(number).unwrap_or(1);
        // It speaks of its own tokens, in capitals, after the first sentence.
        let why = first.msg.lines().next().unwrap_or_default();
        FilterError::at(
            source,
            place(first.pos.0),
            place(first.pos.1),
            format!("it does not parse: {why}"),
        )
    })?;
    let checker = Checker {
        env,
        program: &program,
        source,
        variables,
    };
    checker.names(program.expression(), &mut Vec::new())?;
    if let Some(what) = other_than_boolean(program.expression()) {
        let id = program.expression().id;
        return Err(checker.error(
            id,
            format!("it gives {what}, not true or false: compare it with something, as in `… == …`"),
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
    fn error(&self, id: u64, why: String) -> FilterError {
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
        FilterError::at(self.source, line + 1, column + 1, why)
    }

    /// Every variable and function must be one that there is; `bound` are the variables of macros around it.
    fn names<'e>(&self, expression: &'e IdedExpr, bound: &mut Vec<&'e str>) -> Result<(), FilterError> {
        match &expression.expr {
            Expr::Ident(name) => self.variable(expression.id, name, bound),
            Expr::Select(select) => self.names(&select.operand, bound),
            Expr::Call(call) => {
                self.function(expression.id, call)?;
                // `optional` is a namespace, not a variable.
                let is_namespace =
                    |target: &IdedExpr| matches!(&target.expr, Expr::Ident(name) if name == "optional");
                let target = call.target.as_deref().filter(|target| !is_namespace(target));
                target
                    .into_iter()
                    .chain(&call.args)
                    .try_for_each(|inner| self.names(inner, bound))
            }
            Expr::List(list) => list
                .elements
                .iter()
                .try_for_each(|inner| self.names(inner, bound)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.names(&entry.key, bound)?;
                    self.names(&entry.value, bound)
                }
                EntryExpr::StructField(field) => self.names(&field.value, bound),
            }),
            Expr::Struct(_) => Err(self.error(expression.id, "there are no messages to make".to_owned())),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, bound),
            Expr::Literal(_) | Expr::Unspecified => Ok(()),
        }
    }

    fn comprehension<'e>(
        &self,
        inner: &'e ComprehensionExpr,
        bound: &mut Vec<&'e str>,
    ) -> Result<(), FilterError> {
        self.names(&inner.iter_range, bound)?;
        self.names(&inner.accu_init, bound)?;
        let outside = bound.len();
        bound.extend([inner.iter_var.as_str(), inner.accu_var.as_str()]);
        bound.extend(inner.iter_var2.as_deref());
        let checked = [&inner.loop_cond, &inner.loop_step, &inner.result]
            .into_iter()
            .try_for_each(|part| self.names(part, bound));
        bound.truncate(outside);
        checked
    }

    fn variable(&self, id: u64, name: &str, bound: &[&str]) -> Result<(), FilterError> {
        // The language has types as values: `type(object) == map`.
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
            format!("`{name}` is not known here: there are {}", there.join(", ")),
        ))
    }

    fn function(&self, id: u64, call: &CallExpr) -> Result<(), FilterError> {
        let name = call.func_name.as_str();
        let qualified = match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Ident(target)) if target == "optional" => format!("optional.{name}"),
            _ => name.to_owned(),
        };
        // What a macro becomes, and operators, have no letters to begin with.
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) || self.is_function(&qualified) {
            return Ok(());
        }
        let there = FUNCTIONS.map(|name| format!("`{name}`")).join(", ");
        Err(self.error(
            id,
            format!("there is no function `{name}`: there are {there} and CEL's other ones"),
        ))
    }

    /// An environment does not take a function that it has.
    fn is_function(&self, name: &str) -> bool {
        let mut context = Context::with_env(Arc::clone(self.env));
        context.add_function(name, || true).is_err()
    }
}

/// What it gives, if that surely is neither true nor false.
fn other_than_boolean(expression: &IdedExpr) -> Option<&'static str> {
    match &expression.expr {
        Expr::Literal(literal) => match literal {
            LiteralValue::Boolean(_) => None,
            LiteralValue::String(_) => Some("a text"),
            LiteralValue::Bytes(_) => Some("bytes"),
            LiteralValue::Null => Some("null"),
            LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => Some("a number"),
        },
        Expr::List(_) => Some("a list"),
        Expr::Map(_) => Some("a map"),
        Expr::Ident(name) => match name.as_str() {
            "object" | "old" => Some("an object"),
            "changes" => Some("a list"),
            "what" | "kind" | "key" | "name" => Some("a text"),
            _ => None,
        },
        Expr::Call(call) => match call.func_name.as_str() {
            operators::ADD => Some("a sum"),
            operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE => Some("a number"),
            operators::CONDITIONAL => call.args.get(1..)?.iter().find_map(|arm| other_than_boolean(arm)),
            name => NOT_BOOLEAN
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, what)| *what),
        },
        // `filter` and `map` give lists, the others true or false: it shows in what they begin with.
        Expr::Comprehension(comprehension) => other_than_boolean(&comprehension.accu_init)
            .filter(|_| matches!(comprehension.accu_init.expr, Expr::List(_))),
        Expr::Select(_) | Expr::Struct(_) | Expr::Unspecified => None,
    }
}
