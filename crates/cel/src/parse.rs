//! From text to the syntax tree: the one place that knows the crate `cel`, of which only the parser is used.
//!
//! It has cel-go's grammar, so syntax errors have its messages. Macros are expanded here, by [`crate::macros`]: the
//! parser's own lack the two-variable ones, `sortBy` and `optMap`.
//!
//! The parser recurses several functions deep for each level of nesting, so the nesting is measured first, and a deeply
//! nested expression is compiled on a thread with a large stack.

use std::sync::Arc;

use cel::common::ast::{self as foreign, EntryExpr, LiteralValue, SourceInfo};

use crate::{
    ast::{
        Call, Comprehension, Entry, Expr, Field, Id, Kind, List, Literal, MAX_CODE_POINTS, MAX_DEPTH,
        MAX_NESTING, Select, Source, Struct,
    },
    issue::Issues,
    macros,
    nesting::{Nesting, nesting},
};

/// The greatest nesting for which the caller's stack is large enough, also in a debug build, where a list in a list takes
/// the parser more than 150 KiB.
const SMALL_NESTING: usize = 6;

/// The same for operators and selections in a row, which take less.
const SMALL_CHAIN: usize = 20;

/// The greatest number of nodes of a tree. `optMap` copies its target, so a chain of them doubles with each one.
const MAX_NODES: usize = 200_000;

/// cel-go's limit of the parser's attempts to continue after a syntax error.
const MAX_RECOVERIES: u32 = 30;

/// Checks the size of an expression before anything recurses over it. Returns whether it is deep.
pub(crate) fn measure(text: &str) -> Result<bool, Issues> {
    let refuse = |message: String| Err(Issues::without_place(text, message));
    let size = text.chars().count();
    if size > MAX_CODE_POINTS {
        return refuse(format!(
            "expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}"
        ));
    }
    let Nesting {
        expressions,
        operators,
    } = nesting(text);
    if expressions > MAX_NESTING {
        return refuse(format!("expression recursion limit exceeded: {MAX_NESTING}"));
    }
    if operators > MAX_NESTING + 1 {
        return refuse(TOO_DEEP.to_owned());
    }
    Ok(expressions > SMALL_NESTING || operators > SMALL_CHAIN)
}

/// cel-go's message about operators, selections and calls that are nested too deep.
const TOO_DEEP: &str = "max recursion depth exceeded";

/// Parses an expression that [`measure`] accepted, and expands its macros.
pub(crate) fn parse(text: &str) -> Result<(Expr, Source), Issues> {
    let source = Source::new(text);
    let parser = cel::Env::default()
        .parser()
        // The nesting is checked above, with cel-go's message.
        .max_recursion_depth(u16::MAX - 1)
        .error_recovery_limit(MAX_RECOVERIES)
        .enable_optional_syntax(true);
    match parser.parse_with_source_info(text) {
        Ok((expr, info)) => {
            let issues = Issues::new(&source);
            let mut adapter = Adapter {
                offsets: Offsets::new(text),
                info,
                source,
                issues,
                too_large: false,
            };
            let expr = adapter.expr(expr, 1);
            adapter.finish(expr)
        }
        Err(errors) => {
            let mut issues = Issues::new(&source);
            // After a syntax error, the parser also reports the nodes that it could not make.
            let is_own = |message: &str| message.starts_with("Incomplete `") || message.starts_with("No `");
            let all_own = errors.errors.iter().all(|error| is_own(&error.msg));
            for error in errors.errors {
                if is_own(&error.msg) && !all_own {
                    continue;
                }
                let number = |number| i32::try_from(number).unwrap_or(i32::MAX);
                let (message, shift) = go_message(error.msg);
                issues.push(number(error.pos.0), number(error.pos.1 - 1 + shift), message);
            }
            issues.sort();
            Err(issues)
        }
    }
}

/// cel-go's message for one of the parser's own, and how far to the right its place is.
fn go_message(message: String) -> (String, isize) {
    if message.contains("literal: InvalidUnicode") {
        return ("invalid unicode code point".to_owned(), 0);
    }
    if message.contains("literal: Invalid") {
        return ("unable to unescape string".to_owned(), 0);
    }
    let shift = isize::from(message.starts_with("unsupported syntax: '`'"));
    (message, shift)
}

/// Converts the parser's tree.
pub(crate) struct Adapter {
    info: SourceInfo,
    offsets: Offsets,
    source: Source,
    issues: Issues,
    too_large: bool,
}

impl Adapter {
    fn finish(mut self, expr: Expr) -> Result<(Expr, Source), Issues> {
        if self.too_large {
            self.issues.push(-1, -1, TOO_DEEP.to_owned());
        }
        if self.issues.is_empty() {
            Ok((expr, self.source))
        } else {
            self.issues.sort();
            Err(self.issues)
        }
    }

    fn id(&mut self, foreign: u64) -> Id {
        let (start, _) = self.info.offset_for(foreign).unwrap_or_default();
        self.source.add(self.offsets.code_points(start))
    }

    /// Moves the place of a number to the sign before it, where cel-go has it.
    fn move_to_sign(&mut self, id: Id, foreign: u64) {
        let (start, _) = self.info.offset_for(foreign).unwrap_or_default();
        let before = self
            .source
            .text
            .get(..start as usize)
            .map(str::trim_end)
            .unwrap_or_default();
        if before.ends_with('-') {
            let sign = u32::try_from(before.len() - 1).unwrap_or(start);
            let position = self.offsets.code_points(sign);
            self.source.move_to(id, position);
        }
    }

    /// Adds a node that a macro generates, with the place of the macro's call.
    pub(crate) fn derived(&mut self, call: Id) -> Id {
        let position = self.source.position(call);
        self.source.add(position)
    }

    pub(crate) fn report(&mut self, id: Id, message: impl Into<String>) {
        let position = self.source.position(id);
        self.issues.push_at(&self.source, position, message.into());
    }

    /// Converts a subtree. After a limit is exceeded, the rest becomes null.
    fn expr(&mut self, expr: foreign::IdedExpr, depth: usize) -> Expr {
        let id = self.id(expr.id);
        if depth > MAX_DEPTH || self.source.len() > MAX_NODES {
            self.too_large = true;
        }
        if self.too_large {
            return Expr {
                id,
                kind: Kind::Literal(Literal::Null),
            };
        }
        let depth = depth + 1;
        let kind = match expr.expr {
            foreign::Expr::Unspecified => Kind::Literal(Literal::Null),
            foreign::Expr::Ident(name) => Kind::Ident(name.into()),
            foreign::Expr::Literal(literal) => {
                let literal = convert_literal(literal);
                if literal.is_negative() {
                    self.move_to_sign(id, expr.id);
                }
                Kind::Literal(literal)
            }
            foreign::Expr::Select(select) => Kind::Select(Select {
                operand: Box::new(self.expr(*select.operand, depth)),
                field: select.field.into(),
                test: select.test,
            }),
            foreign::Expr::Call(call) => {
                let target = call.target.map(|target| self.expr(*target, depth));
                let args: Vec<_> = call.args.into_iter().map(|arg| self.expr(arg, depth)).collect();
                return macros::expand(self, id, call.func_name.into(), target, args);
            }
            foreign::Expr::List(list) => Kind::List(List {
                elements: list
                    .elements
                    .into_iter()
                    .map(|element| self.expr(element, depth))
                    .collect(),
                optional: list.optional_indices,
            }),
            foreign::Expr::Map(map) => Kind::Map(
                map.entries
                    .into_iter()
                    .filter_map(|entry| match entry.expr {
                        EntryExpr::MapEntry(entry) => Some(Entry {
                            key: self.expr(entry.key, depth),
                            value: self.expr(entry.value, depth),
                            optional: entry.optional,
                        }),
                        EntryExpr::StructField(_) => None,
                    })
                    .collect(),
            ),
            foreign::Expr::Struct(object) => Kind::Struct(Struct {
                name: object.type_name.into(),
                fields: object
                    .entries
                    .into_iter()
                    .filter_map(|entry| match entry.expr {
                        EntryExpr::StructField(field) => Some(Field {
                            id: self.id(entry.id),
                            name: field.field.into(),
                            value: self.expr(field.value, depth),
                            optional: field.optional,
                        }),
                        EntryExpr::MapEntry(_) => None,
                    })
                    .collect(),
            }),
            // The parser has no macros, so it makes no comprehensions.
            foreign::Expr::Comprehension(_) => unreachable!("a comprehension without a macro"),
        };
        Expr { id, kind }
    }

    /// Copies a subtree, with ids of its own.
    pub(crate) fn copy(&mut self, expr: &Expr) -> Expr {
        let position = self.source.position(expr.id);
        let id = self.source.add(position);
        if self.source.len() > MAX_NODES {
            self.too_large = true;
            return Expr {
                id,
                kind: Kind::Literal(Literal::Null),
            };
        }
        let kind = match &expr.kind {
            Kind::Literal(literal) => Kind::Literal(literal.clone()),
            Kind::Ident(name) => Kind::Ident(Arc::clone(name)),
            Kind::Select(select) => Kind::Select(Select {
                operand: Box::new(self.copy(&select.operand)),
                ..select.clone_without_operand()
            }),
            Kind::Call(call) => Kind::Call(Call {
                function: Arc::clone(&call.function),
                target: call.target.as_ref().map(|target| Box::new(self.copy(target))),
                args: call.args.iter().map(|arg| self.copy(arg)).collect(),
            }),
            Kind::List(list) => Kind::List(List {
                elements: list.elements.iter().map(|element| self.copy(element)).collect(),
                optional: list.optional.clone(),
            }),
            Kind::Map(entries) => Kind::Map(
                entries
                    .iter()
                    .map(|entry| Entry {
                        key: self.copy(&entry.key),
                        value: self.copy(&entry.value),
                        optional: entry.optional,
                    })
                    .collect(),
            ),
            Kind::Struct(object) => Kind::Struct(Struct {
                name: Arc::clone(&object.name),
                fields: object
                    .fields
                    .iter()
                    .map(|field| Field {
                        id: self.derived(field.id),
                        name: Arc::clone(&field.name),
                        value: self.copy(&field.value),
                        optional: field.optional,
                    })
                    .collect(),
            }),
            Kind::Comprehension(fold) => Kind::Comprehension(Box::new(Comprehension {
                range: self.copy(&fold.range),
                var: Arc::clone(&fold.var),
                var2: fold.var2.clone(),
                accumulator: Arc::clone(&fold.accumulator),
                init: self.copy(&fold.init),
                condition: self.copy(&fold.condition),
                step: self.copy(&fold.step),
                result: self.copy(&fold.result),
            })),
        };
        Expr { id, kind }
    }
}

impl Select {
    /// A selection of the same field, of nothing yet.
    fn clone_without_operand(&self) -> Self {
        Self {
            operand: Box::new(Expr {
                id: 0,
                kind: Kind::Literal(Literal::Null),
            }),
            field: Arc::clone(&self.field),
            test: self.test,
        }
    }
}

fn convert_literal(literal: LiteralValue) -> Literal {
    match literal {
        LiteralValue::Null => Literal::Null,
        LiteralValue::Boolean(value) => Literal::Bool(value.into_inner()),
        LiteralValue::Int(value) => Literal::Int(value.into_inner()),
        LiteralValue::UInt(value) => Literal::Uint(value.into_inner()),
        LiteralValue::Double(value) => Literal::Double(value.into_inner()),
        LiteralValue::String(value) => Literal::String(value.inner().into()),
        LiteralValue::Bytes(value) => Literal::Bytes(value.inner().into()),
    }
}

/// Converts the parser's offsets, in bytes, to code points.
struct Offsets(Option<Vec<u32>>);

impl Offsets {
    fn new(text: &str) -> Self {
        Self((!text.is_ascii()).then(|| {
            let mut count = 0;
            (0..=text.len())
                .map(|index| {
                    if index > 0 && text.is_char_boundary(index) {
                        count += 1;
                    }
                    count
                })
                .collect()
        }))
    }

    fn code_points(&self, bytes: u32) -> u32 {
        match &self.0 {
            Some(table) => table.get(bytes as usize).copied().unwrap_or_default(),
            None => bytes,
        }
    }
}
