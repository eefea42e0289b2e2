//! The syntax tree of an expression, with macros expanded.
//!
//! Every node has an id: an index into the tables that the checker fills, and into the positions of [`Source`].

use std::sync::Arc;

/// The greatest depth of a tree before macros are expanded, each of which adds a few levels.
///
/// cel-go limits the depth per rule of its grammar to [`MAX_NESTING`]; this is the limit of their sum.
pub(crate) const MAX_DEPTH: usize = 400;

/// cel-go's limit of nesting per rule of its grammar.
pub(crate) const MAX_NESTING: usize = 250;

/// cel-go's limit of an expression's length, in code points.
pub(crate) const MAX_CODE_POINTS: usize = 100_000;

pub(crate) type Id = u32;

/// A node of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) id: Id,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(Arc<str>),
    Select(Select),
    Call(Call),
    List(List),
    Map(Vec<Entry>),
    Struct(Struct),
    Comprehension(Box<Comprehension>),
}

/// A constant in an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

impl Literal {
    /// Whether it is a number with a sign.
    pub(crate) const fn is_negative(&self) -> bool {
        match self {
            Self::Int(value) => *value < 0,
            Self::Double(value) => value.is_sign_negative(),
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub(crate) operand: Box<Expr>,
    pub(crate) field: Arc<str>,
    /// From `has()`: whether the field is there.
    pub(crate) test: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) function: Arc<str>,
    pub(crate) target: Option<Box<Expr>>,
    pub(crate) args: Vec<Expr>,
}

#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) elements: Vec<Expr>,
    /// Indexes of the elements written `?x`, ascending.
    pub(crate) optional: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Struct {
    pub(crate) name: Arc<str>,
    pub(crate) fields: Vec<Field>,
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) id: Id,
    pub(crate) name: Arc<str>,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A loop, from a macro.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    pub(crate) var: Arc<str>,
    pub(crate) var2: Option<Arc<str>>,
    pub(crate) accumulator: Arc<str>,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

/// The accumulator of the standard macros.
pub(crate) const ACCUMULATOR: &str = "@result";

impl Expr {
    /// The dotted name that the expression spells, as in `a.b.c`.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        let mut segments: Vec<&str> = Vec::new();
        let mut expr = self;
        loop {
            match &expr.kind {
                Kind::Ident(name) => {
                    segments.push(name);
                    segments.reverse();
                    return Some(segments.join("."));
                }
                Kind::Select(select) if !select.test => {
                    segments.push(&select.field);
                    expr = &select.operand;
                }
                _ => return None,
            }
        }
    }

    pub(crate) fn as_call(&self) -> Option<&Call> {
        match &self.kind {
            Kind::Call(call) => Some(call),
            _ => None,
        }
    }

    pub(crate) fn as_literal(&self) -> Option<&Literal> {
        match &self.kind {
            Kind::Literal(literal) => Some(literal),
            _ => None,
        }
    }

    /// Calls `visit` with each direct child, in the order of evaluation.
    pub(crate) fn children<'a>(&'a self, visit: &mut impl FnMut(&'a Self)) {
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select(select) => visit(&select.operand),
            Kind::Call(call) => {
                call.target.iter().for_each(|target| visit(target));
                call.args.iter().for_each(visit);
            }
            Kind::List(list) => list.elements.iter().for_each(visit),
            Kind::Map(entries) => entries.iter().for_each(|entry| {
                visit(&entry.key);
                visit(&entry.value);
            }),
            Kind::Struct(object) => object.fields.iter().for_each(|field| visit(&field.value)),
            Kind::Comprehension(fold) => {
                visit(&fold.range);
                visit(&fold.init);
                visit(&fold.condition);
                visit(&fold.step);
                visit(&fold.result);
            }
        }
    }
}

/// An expression's text, and where each node of the tree comes from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) text: Arc<str>,
    /// By id: the offset in code points.
    positions: Vec<u32>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.into(),
            positions: vec![0],
        }
    }

    /// Adds a node at an offset, and returns its id.
    pub(crate) fn add(&mut self, position: u32) -> Id {
        self.positions.push(position);
        Id::try_from(self.positions.len() - 1).expect("ids are bounded by the length of the expression")
    }

    /// Corrects the place of a node.
    pub(crate) fn move_to(&mut self, id: Id, position: u32) {
        if let Some(known) = self.positions.get_mut(id as usize) {
            *known = position;
        }
    }

    pub(crate) fn position(&self, id: Id) -> u32 {
        self.positions.get(id as usize).copied().unwrap_or_default()
    }

    /// The number of ids, one more than the greatest.
    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    /// The line, from 1, and the column, from 0, of an offset in code points.
    pub(crate) fn location(&self, position: u32) -> (u32, u32) {
        let (mut line, mut column) = (1, 0);
        for sign in self.text.chars().take(position as usize) {
            if sign == '\n' {
                line += 1;
                column = 0;
            } else {
                column += 1;
            }
        }
        (line, column)
    }
}
