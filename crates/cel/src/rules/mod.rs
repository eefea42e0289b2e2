//! Validation rules of a schema: `x-kubernetes-validations` of a CustomResourceDefinition.
//!
//! ```text
//!   OpenAPI schema ─compile─► Rules ─validate(object, old)─► Outcome: violations, warnings, what is left of the budget
//!                               │
//!                               └ root(): the parts of the schema, with the errors and estimated costs of their rules
//! ```
//!
//! [`Rules`] is a tree of those parts of the schema that have rules in or below them, so an object is walked only there.
//! Rules are compiled once; an object is never copied. Upstream's rules of evaluation hold: parents first, transition
//! rules only with a correlated old value, ratcheting of unchanged values, and a budget of the cost for each object.
//! Where kube-apiserver's order is random (properties, entries of a map), it is by name here.
//!
//! What kube-apiserver leaves to a request's deadline is limited too: steps that cost nothing, and the size of the
//! messages.

mod compile;
mod correlation;
mod field_path;
mod violation;
mod walk;

use std::sync::{Arc, atomic::AtomicBool};

use serde_json::Value as Json;

pub use violation::{Reason, Violation};

use crate::{Budget, PER_CALL_LIMIT, Program, Schema};
use correlation::Shape;

/// kube-apiserver's limit of the cost of all rules for one object.
pub const PER_OBJECT_LIMIT: u64 = 10_000_000;

/// The compiled rules of a schema.
///
/// ```
/// use serde_json::json;
/// use windlass_cel::rules::{Rules, Validation};
///
/// let rules = Rules::compile(&json!({"type": "object", "properties": {"spec": {
///     "type": "object",
///     "properties": {"replicas": {"type": "integer"}, "max": {"type": "integer"}},
///     "x-kubernetes-validations": [{"rule": "self.replicas <= self.max", "message": "too many replicas"}],
/// }}}))
/// .expect("the schema has rules");
///
/// let object = json!({"spec": {"replicas": 6, "max": 5}});
/// let outcome = rules.root().validate(&Validation::create(&object));
/// assert_eq!(outcome.violations[0].to_string(), "spec: Invalid value: too many replicas");
/// ```
#[derive(Debug)]
pub struct Rules {
    root: Node,
    shape: Shape,
}

impl Rules {
    /// Compiles the rules of the OpenAPI schema of a whole object. `None` if it has none.
    ///
    /// A rule that cannot be compiled is kept with its error ([`Rule::error`]); the code that accepts the schema looks at those.
    /// Parts of the schema that are nested more than 100 levels deep have no rules.
    pub fn compile(schema: &Json) -> Option<Self> {
        Self::new(schema, true)
    }

    /// Like [`Rules::compile`], for the schema of a part of an object, which has no implied metadata.
    pub fn compile_part(schema: &Json) -> Option<Self> {
        Self::new(schema, false)
    }

    fn new(schema: &Json, is_root: bool) -> Option<Self> {
        let root = compile::compile(schema, is_root)?;
        Some(Self {
            root,
            shape: Shape::from_openapi(schema),
        })
    }

    /// Returns the root of the schema.
    pub const fn root(&self) -> Part<'_> {
        Part {
            node: &self.root,
            shape: Some(&self.shape),
        }
    }
}

/// A part of a schema that has rules in or below it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    node: &'a Node,
    shape: Option<&'a Shape>,
}

impl<'a> Part<'a> {
    /// Returns a property, if it has rules in or below it.
    pub fn property(&self, name: &str) -> Option<Self> {
        let found = self
            .node
            .properties
            .binary_search_by(|(known, _)| (**known).cmp(name));
        Some(Self {
            node: &self.node.properties[found.ok()?].1,
            shape: self.shape.and_then(|shape| shape.property(name)),
        })
    }

    /// Returns the items of a list, if they have rules in or below them.
    pub fn items(&self) -> Option<Self> {
        Some(Self {
            node: self.node.items.as_deref()?,
            shape: self.shape.and_then(Shape::items),
        })
    }

    /// Returns the values of a map, if they have rules in or below them.
    pub fn values(&self) -> Option<Self> {
        Some(Self {
            node: self.node.values.as_deref()?,
            shape: self.shape.and_then(Shape::values),
        })
    }

    /// Returns the rules of this part, in their order.
    pub fn rules(&self) -> &'a [Rule] {
        &self.node.rules
    }

    /// Why expressions cannot see this part, so that its rules do not run.
    pub const fn type_error(&self) -> Option<&'static str> {
        self.node.type_error
    }

    /// Returns how often data of this part can be in a request at most. Kubernetes multiplies the estimated cost of a rule
    /// with it if the lists and maps around have no bounds.
    pub const fn max_cardinality(&self) -> u64 {
        self.node.max_cardinality
    }

    /// Evaluates the rules of this part and below it.
    pub fn validate(&self, validation: &Validation<'_>) -> Outcome {
        walk::validate(self.node, self.shape, validation)
    }
}

/// What is validated, and within which limits.
#[derive(Clone, Debug)]
pub struct Validation<'a> {
    /// The value.
    pub value: &'a Json,
    /// Its old state: `oldSelf`. By default there is none.
    pub old: Option<&'a Json>,
    /// Whether a rule that fails for an unchanged value is only a warning. Without an old value it has no effect.
    pub ratchet: bool,
    /// The path of the value, before those of the violations. Empty by default.
    pub path: &'a str,
    /// What all rules together may cost. By default [`PER_OBJECT_LIMIT`].
    pub budget: u64,
    /// What one evaluation may cost. By default [`PER_CALL_LIMIT`].
    pub call_limit: u64,
    /// Ends the validation soon after it becomes true. By default there is none.
    pub cancel: Option<Arc<AtomicBool>>,
    /// What all rules may use of a budget that they share with other evaluations, such as those of the same request. By
    /// default there is none; the rules have [`DEFAULT_STEPS`](crate::DEFAULT_STEPS) together, and each has
    /// [`DEFAULT_BYTES`](crate::DEFAULT_BYTES).
    pub shared: Option<Budget>,
}

impl<'a> Validation<'a> {
    /// Validates a new value.
    pub const fn create(value: &'a Json) -> Self {
        Self {
            value,
            old: None,
            ratchet: false,
            path: "",
            budget: PER_OBJECT_LIMIT,
            call_limit: PER_CALL_LIMIT,
            cancel: None,
            shared: None,
        }
    }

    /// Validates a changed value, with ratcheting.
    pub fn update(value: &'a Json, old: &'a Json) -> Self {
        Self {
            old: Some(old),
            ratchet: true,
            ..Self::create(value)
        }
    }
}

/// The outcome of a validation.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The violated rules, and those that could not be evaluated.
    pub violations: Vec<Violation>,
    /// The violated rules of unchanged values.
    pub warnings: Vec<Violation>,
    /// What is left of the budget; `None` if it, or another limit, ended the validation.
    pub remaining_budget: Option<u64>,
}

/// A part of the schema.
#[derive(Debug)]
struct Node {
    /// `type`, as messages show it; empty for an int-or-string.
    type_name: Box<str>,
    /// How its data is read. `None` if expressions cannot see it.
    schema: Option<Schema>,
    type_error: Option<&'static str>,
    /// The part is not visible from its parent, whose walk leaves it out.
    hidden: bool,
    max_cardinality: u64,
    /// Whether any rule in or below the part needs a large stack.
    is_deep: bool,
    /// Whether any of the rules uses `oldSelf`, so that messages may, too.
    uses_old_self: bool,
    rules: Vec<Rule>,
    /// Sorted by name.
    properties: Vec<(Box<str>, Node)>,
    items: Option<Box<Node>>,
    values: Option<Box<Node>>,
}

/// A rule of `x-kubernetes-validations`.
#[derive(Debug)]
pub struct Rule {
    expression: Box<str>,
    message: Box<str>,
    message_expression: Box<str>,
    reason: Reason,
    optional_old_self: bool,
    /// Relative to the value; empty if there is none.
    field_path: Box<str>,
    /// `None` if the expression is blank.
    program: Option<Result<Program, Box<str>>>,
    message_program: Option<Result<Program, Box<str>>>,
    uses_old_self: bool,
}

impl Rule {
    /// Why the expression cannot be compiled, with kube-apiserver's message.
    pub fn error(&self) -> Option<&str> {
        self.program.as_ref()?.as_ref().err().map(|error| &**error)
    }

    /// Why the message expression cannot be compiled, with kube-apiserver's message.
    pub fn message_error(&self) -> Option<&str> {
        self.message_program
            .as_ref()?
            .as_ref()
            .err()
            .map(|error| &**error)
    }

    /// Returns the greatest estimated cost of the expression for one value; 0 if it cannot be compiled.
    pub fn max_cost(&self) -> u64 {
        cost_of(self.program.as_ref())
    }

    /// Returns the greatest estimated cost of the message expression, if there is one that can be compiled.
    pub fn message_max_cost(&self) -> Option<u64> {
        let program = self.message_program.as_ref()?;
        program.as_ref().ok()?;
        Some(cost_of(Some(program)))
    }

    /// Whether the expression uses `oldSelf`.
    pub const fn uses_old_self(&self) -> bool {
        self.uses_old_self
    }

    /// Whether an evaluation needs a large stack.
    fn is_deep(&self) -> bool {
        let programs = [&self.program, &self.message_program];
        let mut programs = programs.into_iter().flatten().flatten();
        programs.any(Program::is_deep)
    }

    /// The compiled expression.
    fn program(&self) -> Option<Result<&Program, &str>> {
        let program = self.program.as_ref()?;
        Some(program.as_ref().map_err(|error| &**error))
    }

    /// What messages call the rule.
    fn title(&self) -> &str {
        if self.message.is_empty() {
            self.expression.trim()
        } else {
            self.message.trim()
        }
    }

    /// The message of a violation without a message expression.
    fn default_message(&self) -> String {
        if self.message.is_empty() {
            format!("failed rule: {}", self.expression.trim())
        } else {
            self.message.trim().to_owned()
        }
    }
}

fn cost_of(program: Option<&Result<Program, Box<str>>>) -> u64 {
    match program {
        Some(Ok(program)) => program.estimated_cost().max,
        _ => 0,
    }
}

/// Whether the path of a rule's `fieldPath` leads to a field of the schema.
pub fn is_valid_field_path(path: &str, schema: &Json) -> bool {
    field_path::resolve(path, schema).is_some()
}
