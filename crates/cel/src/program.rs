//! A compiled expression, and its evaluation from outside.

use std::sync::{Arc, atomic::AtomicBool};

use crate::{
    Budget, CostEstimate, Env, EvalError, Type, Value,
    ast::{Expr, Kind},
    budget::{DEFAULT_BYTES, DEFAULT_STEPS},
    check::{Checked, Reference},
    deep, estimate,
    eval::Evaluator,
    plan::{self, Node},
};

/// kube-apiserver's limit of the cost of one evaluation.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// A compiled expression. It can be evaluated often, and from several threads at once.
#[derive(Debug)]
pub struct Program {
    node: Node,
    slots: usize,
    /// A bound of its memory.
    memory: usize,
    result: Type,
    estimate: CostEstimate,
    /// The indexes of the variables that the expression uses.
    variables: Vec<usize>,
    /// The fields that it selects of variables; `None` is a variable as a whole.
    selections: Vec<(usize, Option<Arc<str>>)>,
    location: (u32, u32),
    /// Whether an evaluation recurses deeper than the caller's stack may allow.
    is_deep: bool,
}

/// The greatest depth of a tree for which the caller's stack is large enough, also in a debug build.
const SMALL_DEPTH: usize = 48;

/// When an evaluation ends early.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The greatest cost. By default [`PER_CALL_LIMIT`].
    pub cost: u64,
    /// The greatest number of steps, such as the comparison of two items of a list, for most of which nothing is charged:
    /// an evaluation ends soon after it, as if it were cancelled. By default [`DEFAULT_STEPS`].
    pub steps: u64,
    /// The greatest number of bytes that all values take that the evaluation makes, also those that it drops again. More
    /// of them end it like a cost that is too high. By default [`DEFAULT_BYTES`].
    pub bytes: u64,
    /// Ends the evaluation soon after it becomes true. By default there is none.
    pub cancel: Option<Arc<AtomicBool>>,
    /// What the evaluation may use of a budget that it shares with others, such as those of the same request. By default
    /// there is none.
    pub shared: Option<Budget>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cost: PER_CALL_LIMIT,
            steps: DEFAULT_STEPS,
            bytes: DEFAULT_BYTES,
            cancel: None,
            shared: None,
        }
    }
}

/// The fields of a variable that are computed when an expression reads them first, such as the `variables` of an admission
/// policy.
///
/// Unlike [`HostObject`](crate::HostObject), it may keep what it computed: the values do not borrow from it.
pub trait LazyFields<'a>: Sync {
    /// Returns a field, or `None` if there is none of this name.
    fn field(&self, name: &str) -> Option<Result<Value<'a>, EvalError>>;
    /// The names of the fields.
    fn names(&self) -> Vec<&str>;
}

/// The outcome of an evaluation.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The value, or why there is none.
    pub value: Result<Value<'a>, EvalError>,
    /// What it cost, in cel-go's units, also if it failed.
    pub cost: u64,
    /// The number of steps; see [`Limits::steps`].
    pub steps: u64,
    /// The bytes of the values that it made; see [`Limits::bytes`].
    pub bytes: u64,
}

impl Program {
    pub(crate) fn new(env: &Env, node: Node, slots: usize, memory: usize, checked: &Checked) -> Self {
        let mut variables: Vec<usize> = checked
            .references
            .iter()
            .filter_map(|reference| match reference {
                Reference::Variable(index) => Some(*index),
                _ => None,
            })
            .collect();
        variables.sort_unstable();
        variables.dedup();
        Self {
            node,
            slots,
            memory,
            result: plan::result_type(checked),
            estimate: estimate::estimate(env, checked),
            is_deep: depth(&checked.expr) > SMALL_DEPTH,
            selections: selections(checked),
            location: checked.source.location(checked.source.position(checked.expr.id)),
            variables,
        }
    }

    /// Returns the line, from 1, and the column, from 0 and in code points, of the outermost operation, for a message about
    /// the result.
    pub const fn location(&self) -> (u32, u32) {
        self.location
    }

    /// Returns a bound of the memory of the program, in bytes: its nodes, its text and its compiled patterns.
    pub const fn memory(&self) -> usize {
        self.memory
    }

    /// Whether an evaluation needs a large stack.
    pub(crate) const fn is_deep(&self) -> bool {
        self.is_deep
    }

    /// Returns the type of the result.
    pub const fn result_type(&self) -> &Type {
        &self.result
    }

    /// Returns the estimated cost, from the bounds of the schemas of the variables.
    pub const fn estimated_cost(&self) -> CostEstimate {
        self.estimate
    }

    /// Calls `visit` with the name of each field that the expression selects of the variable with this index, and with
    /// `None` where it uses the variable as a whole.
    pub fn visit_fields_of(&self, index: usize, visit: &mut dyn FnMut(Option<&str>)) {
        for (variable, field) in &self.selections {
            if *variable == index {
                visit(field.as_deref());
            }
        }
    }

    /// Whether the expression uses the variable with this index.
    pub fn uses_variable(&self, index: usize) -> bool {
        self.variables.contains(&index)
    }

    /// Evaluates the expression with the default limits. `variables` has a value for each declared variable, by the
    /// index that the declaration returned; a missing one is an error if it is used.
    pub fn evaluate<'a>(&'a self, variables: &[Value<'a>]) -> Evaluation<'a> {
        self.evaluate_with(variables, &Limits::default())
    }

    /// Evaluates the expression within limits.
    pub fn evaluate_with<'a>(&'a self, variables: &[Value<'a>], limits: &Limits) -> Evaluation<'a> {
        self.run(variables, None, limits)
    }

    /// Like [`Self::evaluate_with`], with a variable, by its index, whose fields are computed on demand.
    ///
    /// The expression pays for reading a field, but not for its computation.
    pub fn evaluate_lazily<'a>(
        &'a self,
        variables: &[Value<'a>],
        lazy: (usize, &dyn LazyFields<'a>),
        limits: &Limits,
    ) -> Evaluation<'a> {
        self.run(variables, Some(lazy), limits)
    }

    fn run<'a>(
        &'a self,
        variables: &[Value<'a>],
        lazy: Option<(usize, &dyn LazyFields<'a>)>,
        limits: &Limits,
    ) -> Evaluation<'a> {
        let evaluated = deep::run(self.is_deep, || {
            let mut evaluator = Evaluator::new(variables, lazy, self.slots, limits);
            let value = evaluator.start(&self.node);
            Evaluation {
                value,
                cost: evaluator.cost(),
                steps: evaluator.work().steps(),
                bytes: evaluator.work().bytes(),
            }
        });
        evaluated.unwrap_or_else(|error| Evaluation {
            value: Err(EvalError::new(format!(
                "cannot start a thread to evaluate the expression: {error}"
            ))),
            cost: 0,
            steps: 0,
            bytes: 0,
        })
    }
}

/// Which fields of which variables an expression selects.
fn selections(checked: &Checked) -> Vec<(usize, Option<Arc<str>>)> {
    let mut found = Vec::new();
    collect_selections(checked, &checked.expr, &mut found);
    found.sort_unstable();
    found.dedup();
    found
}

fn collect_selections(checked: &Checked, expr: &Expr, found: &mut Vec<(usize, Option<Arc<str>>)>) {
    if let Reference::Variable(index) = checked.reference(expr.id) {
        found.push((*index, None));
        return;
    }
    if let Kind::Select(select) = &expr.kind
        && let Reference::Variable(index) = checked.reference(select.operand.id)
    {
        found.push((*index, Some(Arc::clone(&select.field))));
        return;
    }
    expr.children(&mut |child| collect_selections(checked, child, found));
}

/// The depth of a tree, with macros expanded.
fn depth(expr: &Expr) -> usize {
    let mut deepest = 0;
    expr.children(&mut |child| deepest = deepest.max(depth(child)));
    deepest + 1
}
