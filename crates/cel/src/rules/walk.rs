//! Evaluates the rules of a schema for an object.

use std::{fmt, ops::ControlFlow};

use serde_json::Value as Json;

use super::{
    Node, Outcome, Reason, Rule, Validation, Violation,
    correlation::{Comparison, OldItems, Pair, Shape},
};
use crate::{
    DEFAULT_BYTES, DEFAULT_STEPS, EvalError, EvalErrorKind, Program, Value, deep, go_format,
    program::{Evaluation, Limits},
};

/// The indexes of the variables, in the order in which [`super::compile`] declares them.
const SELF: usize = 0;
pub(super) const OLD_SELF: usize = 1;

/// kube-apiserver's limit of a computed message.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// What an evaluation counts for, even if it costs nothing.
const EVALUATION_STEPS: u64 = 10;

/// The greatest size of all violations and warnings. A rule of a list may fail for each item, and quote a long text.
const MAX_VIOLATION_BYTES: usize = 4 << 20;

/// Validates a value with the rules of a part of a schema.
pub(super) fn validate(node: &Node, shape: Option<&Shape>, validation: &Validation<'_>) -> Outcome {
    // Once for all values that have the rules.
    let validate = || validate_here(node, shape, validation);
    let validated = if node.is_deep {
        deep::with_large_stack(validate)
    } else {
        Ok(validate())
    };
    validated.unwrap_or_else(|error| {
        let why = format!("cannot start a thread to evaluate the rules: {error}");
        Outcome {
            violations: vec![Violation::of_type(node, &Path::Root(validation.path), why)],
            ..Outcome::default()
        }
    })
}

fn validate_here(node: &Node, shape: Option<&Shape>, validation: &Validation<'_>) -> Outcome {
    let mut walk = Walk {
        budget: validation.budget,
        limits: Limits {
            cost: validation.call_limit,
            steps: DEFAULT_STEPS,
            bytes: DEFAULT_BYTES,
            cancel: validation.cancel.clone(),
            shared: validation.shared.clone(),
        },
        comparison: Comparison::default(),
        violation_bytes: 0,
        outcome: Outcome::default(),
    };
    let pair = match (validation.old, shape) {
        (Some(old), Some(shape)) if validation.ratchet => Some(Pair {
            value: validation.value,
            old,
            shape,
        }),
        _ => None,
    };
    let place = Place {
        value: validation.value,
        old: validation.old,
        shape,
        pair,
        nearest: None,
    };
    let flow = walk.node(node, &place, &Path::Root(validation.path));
    if flow.is_continue() {
        walk.outcome.remaining_budget = Some(walk.budget);
    }
    walk.outcome
}

/// The path of a value. It lives on the stack, and is formatted for violations only.
enum Path<'a> {
    Root(&'a str),
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

impl Path<'_> {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Root(""))
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(path) => f.write_str(path),
            Self::Field(outer, name) if outer.is_empty() => f.write_str(name),
            Self::Field(outer, name) => write!(f, "{outer}.{name}"),
            Self::Index(outer, index) => write!(f, "{outer}[{index}]"),
            Self::Key(outer, key) => write!(f, "{outer}[{key}]"),
        }
    }
}

/// A value on the walk.
struct Place<'a> {
    value: &'a Json,
    /// The old value, which transition rules see.
    old: Option<&'a Json>,
    shape: Option<&'a Shape>,
    /// The value with its old state, if unchanged values are ratcheted and it has one.
    pair: Option<Pair<'a>>,
    /// The same of the nearest value above that has one.
    nearest: Option<Pair<'a>>,
}

impl<'a> Place<'a> {
    fn field(&self, name: &str, value: &'a Json) -> Self {
        let (pair, nearest) = match self.pair {
            None => (None, self.nearest),
            // They may have changed by conversion.
            Some(_) if self.nearest.is_none() && matches!(name, "apiVersion" | "kind") => (None, None),
            Some(pair) => (pair.field(name), Some(pair)),
        };
        Self {
            value,
            old: self.old.and_then(|old| old.as_object()?.get(name)),
            shape: self.shape.and_then(|shape| shape.field(name)),
            pair,
            nearest,
        }
    }

    fn item(&self, item: &'a Json, old_items: &OldItems<'a>) -> Self {
        let (pair, nearest) = match self.pair {
            None => (None, self.nearest),
            Some(pair) => (pair.item(item, old_items), Some(pair)),
        };
        Self {
            value: item,
            old: old_items.get(item),
            shape: self.shape.and_then(Shape::items),
            pair,
            nearest,
        }
    }
}

struct Walk {
    budget: u64,
    limits: Limits,
    comparison: Comparison,
    violation_bytes: usize,
    outcome: Outcome,
}

/// The result of a rule.
enum Verdict {
    Good,
    Bad,
    Failed(EvalError),
}

impl Walk {
    /// Breaks if no further rule may run.
    fn node(&mut self, node: &Node, place: &Place<'_>, path: &Path<'_>) -> ControlFlow<()> {
        // Rules about an absent value are those of the schema around it.
        if place.value.is_null() {
            return ControlFlow::Continue(());
        }
        self.rules(node, place, path)?;
        match place.value {
            Json::Array(items) => {
                let Some(inner) = &node.items else {
                    return ControlFlow::Continue(());
                };
                let old_items = OldItems::new(place.shape, place.old);
                for (index, item) in items.iter().enumerate() {
                    self.spend(1, node, path)?;
                    self.node(inner, &place.item(item, &old_items), &Path::Index(path, index))?;
                }
            }
            Json::Object(fields) => {
                if let Some(inner) = &node.values {
                    for (name, value) in fields {
                        self.spend(1, node, path)?;
                        self.node(inner, &place.field(name, value), &Path::Key(path, name))?;
                    }
                }
                for (name, inner) in node.properties.iter().filter(|(_, inner)| !inner.hidden) {
                    if let Some(value) = fields.get(&**name) {
                        self.node(inner, &place.field(name, value), &Path::Field(path, name))?;
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Counts steps of the walk itself.
    fn spend(&mut self, steps: u64, node: &Node, path: &Path<'_>) -> ControlFlow<()> {
        let shared = self.limits.shared.as_ref();
        let is_left = shared.is_none_or(|shared| shared.take_steps(steps));
        match self.limits.steps.checked_sub(steps) {
            Some(left) if is_left => {
                self.limits.steps = left;
                ControlFlow::Continue(())
            }
            _ => self.stop(
                node,
                path,
                "validation took too long, no further validation rules will be run",
            ),
        }
    }

    fn rules(&mut self, node: &Node, place: &Place<'_>, path: &Path<'_>) -> ControlFlow<()> {
        if node.type_error.is_some() {
            let why =
                "rule compiler initialization error: failed to convert to declType for CEL validation rules";
            return self.report(Violation::of_type(node, path, why.to_owned()));
        }
        let Some(schema) = node.schema.as_ref().filter(|_| !node.rules.is_empty()) else {
            return ControlFlow::Continue(());
        };
        if self.budget == 0 {
            return self.out_of_budget(node, path);
        }
        let old = place.old.filter(|old| !old.is_null() && node.uses_old_self);
        let values = Values::new(schema.value(place.value), old.map(|old| schema.value(old)));
        for rule in &node.rules {
            self.rule(rule, node, place, &values, path)?;
        }
        ControlFlow::Continue(())
    }

    fn rule(
        &mut self,
        rule: &Rule,
        node: &Node,
        place: &Place<'_>,
        values: &Values<'_>,
        path: &Path<'_>,
    ) -> ControlFlow<()> {
        let program = match rule.program() {
            Some(Ok(program)) => program,
            Some(Err(error)) => {
                let violation = Violation::of_type(node, path, format!("rule compile error: {error}"));
                return self.report(violation);
            }
            None => return ControlFlow::Continue(()),
        };
        // A transition rule needs something to compare with.
        if rule.uses_old_self && !values.has_old && !rule.optional_old_self {
            return ControlFlow::Continue(());
        }
        let variables = values.of_rule(rule.optional_old_self && node.uses_old_self);
        let evaluation = values.evaluate(program, variables, &self.limits);
        let (verdict, cost, steps) = (verdict(evaluation.value), evaluation.cost, evaluation.steps);
        // A shared budget has paid for these already.
        self.limits.steps = self.limits.steps.saturating_sub(steps);
        self.spend(EVALUATION_STEPS, node, path)?;
        match self.budget.checked_sub(cost) {
            Some(left) => self.budget = left,
            None => return self.out_of_budget(node, path),
        }
        match verdict {
            Verdict::Good => ControlFlow::Continue(()),
            Verdict::Bad => self.failed(rule, node, place, values, path),
            Verdict::Failed(error) => self.error(&error, rule, node, path),
        }
    }

    /// Reports a rule that could not be evaluated.
    fn error(&mut self, error: &EvalError, rule: &Rule, node: &Node, path: &Path<'_>) -> ControlFlow<()> {
        let title = rule.title();
        let text = error.to_string();
        let (message, is_last) = match error.kind() {
            EvalErrorKind::CostLimit => (
                format!(
                    "'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {title}"
                ),
                true,
            ),
            EvalErrorKind::Interrupted => (format!("{text} evaluating rule: {title}"), true),
            _ if text.starts_with("no such overload") => (
                format!(
                    "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {title}"
                ),
                false,
            ),
            _ => (format!("{text} evaluating rule: {title}"), false),
        };
        self.report(Violation::of_type(node, path, message))?;
        if is_last {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Reports a rule that is false.
    fn failed(
        &mut self,
        rule: &Rule,
        node: &Node,
        place: &Place<'_>,
        values: &Values<'_>,
        path: &Path<'_>,
    ) -> ControlFlow<()> {
        let mut field = path.to_string();
        if !rule.field_path.is_empty() {
            if !field.is_empty() {
                field.push('.');
            }
            field.push_str(&rule.field_path);
        }
        let is_ratcheted = !rule.uses_old_self && self.is_unchanged(place);
        let message = match self.message(rule, values) {
            Ok(message) => message.unwrap_or_else(|| rule.default_message()),
            Err(why) => {
                let violation = Violation {
                    field,
                    ..Violation::of_type(node, path, why)
                };
                self.report_as(violation, is_ratcheted)?;
                return ControlFlow::Break(());
            }
        };
        let violation = Violation {
            field,
            reason: rule.reason,
            value: (!matches!(&*node.type_name, "object" | "array")).then(|| place.value.clone()),
            message,
        };
        self.report_as(violation, is_ratcheted)
    }

    /// Whether the value, or the nearest one above it that corresponds to an old one, is the same as before.
    fn is_unchanged(&mut self, place: &Place<'_>) -> bool {
        place
            .pair
            .or(place.nearest)
            .is_some_and(|pair| self.comparison.is_unchanged(pair))
    }

    /// The computed message; `None` if there is none or it cannot be used. Fails if no further rule may run.
    fn message(&mut self, rule: &Rule, values: &Values<'_>) -> Result<Option<String>, String> {
        let Some(Ok(program)) = &rule.message_program else {
            return Ok(None);
        };
        let evaluation = values.evaluate(program, values.of_message(), &self.limits);
        let Some(left) = self.budget.checked_sub(evaluation.cost) else {
            return Err(
                "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned(),
            );
        };
        self.limits.steps = self.limits.steps.saturating_sub(evaluation.steps);
        match evaluation.value {
            Err(error)
                if matches!(
                    error.kind(),
                    EvalErrorKind::CostLimit | EvalErrorKind::Interrupted
                ) =>
            {
                Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                    go_format::quote(&rule.message_expression)
                ))
            }
            Ok(Value::String(text)) => {
                self.budget = left;
                let text = text.trim();
                let is_good = !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
                Ok(is_good.then(|| text.to_owned()))
            }
            _ => {
                self.budget = left;
                Ok(None)
            }
        }
    }

    fn out_of_budget(&mut self, node: &Node, path: &Path<'_>) -> ControlFlow<()> {
        let why =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        self.stop(node, path, why)
    }

    fn stop(&mut self, node: &Node, path: &Path<'_>, why: &str) -> ControlFlow<()> {
        self.report(Violation::of_type(node, path, why.to_owned()))?;
        ControlFlow::Break(())
    }

    fn report(&mut self, violation: Violation) -> ControlFlow<()> {
        self.report_as(violation, false)
    }

    fn report_as(&mut self, violation: Violation, is_warning: bool) -> ControlFlow<()> {
        let value_bytes = match &violation.value {
            Some(Json::String(text)) => text.len(),
            _ => 0,
        };
        let bytes = violation.field.len() + violation.message.len() + value_bytes;
        self.violation_bytes = self.violation_bytes.saturating_add(bytes);
        let is_too_much = self.violation_bytes > MAX_VIOLATION_BYTES;
        let field = is_too_much.then(|| violation.field.clone());
        if is_warning {
            self.outcome.warnings.push(violation);
        } else {
            self.outcome.violations.push(violation);
        }
        let Some(field) = field else {
            return ControlFlow::Continue(());
        };
        self.outcome.violations.push(Violation {
            field,
            reason: Reason::Invalid,
            value: None,
            message: "too many violated rules, no further validation rules will be run".to_owned(),
        });
        ControlFlow::Break(())
    }
}

impl Violation {
    /// A violation that quotes the type instead of the value.
    fn of_type(node: &Node, path: &Path<'_>, message: String) -> Self {
        Self {
            field: path.to_string(),
            reason: Reason::Invalid,
            value: Some(Json::from(&*node.type_name)),
            message,
        }
    }
}

fn verdict(value: Result<Value<'_>, EvalError>) -> Verdict {
    match value {
        Ok(Value::Bool(true)) => Verdict::Good,
        Ok(_) => Verdict::Bad,
        Err(error) => Verdict::Failed(error),
    }
}

/// The variables of the rules of a value.
struct Values<'a> {
    /// `self` and, if there is an old value, `oldSelf`.
    plain: Vec<Value<'a>>,
    /// The same for rules with `optionalOldSelf`.
    optional: [Value<'a>; 2],
    has_old: bool,
    /// Why a variable has no value: the data does not match the schema, which was not validated.
    errors: [Option<EvalError>; 2],
}

impl<'a> Values<'a> {
    fn new(value: Result<Value<'a>, EvalError>, old: Option<Result<Value<'a>, EvalError>>) -> Self {
        let has_old = old.is_some();
        let mut errors = [None, None];
        let mut known = |index: usize, value: Result<Value<'a>, EvalError>| {
            value.unwrap_or_else(|error| {
                errors[index] = Some(error);
                Value::Null
            })
        };
        let value = known(SELF, value);
        let old = old.map(|old| known(OLD_SELF, old));
        let optional = [
            value.clone(),
            old.clone().map_or(Value::Optional(None), Value::some),
        ];
        Self {
            plain: std::iter::once(value).chain(old).collect(),
            optional,
            has_old,
            errors,
        }
    }

    fn of_rule(&self, is_optional: bool) -> &[Value<'a>] {
        if is_optional { &self.optional } else { &self.plain }
    }

    /// A message never has the optional one.
    fn of_message(&self) -> &[Value<'a>] {
        &self.plain
    }

    fn evaluate<'v>(
        &self,
        program: &'v Program,
        variables: &'v [Value<'v>],
        limits: &Limits,
    ) -> Evaluation<'v> {
        for (index, error) in self.errors.iter().enumerate() {
            if let Some(error) = error.as_ref().filter(|_| program.uses_variable(index)) {
                return Evaluation {
                    value: Err(error.clone()),
                    cost: 0,
                    steps: 0,
                    bytes: 0,
                };
            }
        }
        program.evaluate_with(variables, limits)
    }
}
