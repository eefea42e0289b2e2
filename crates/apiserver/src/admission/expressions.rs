//! The expressions of policies: their environment, and their programs.
//!
//! Variables are slots in this order; those in parentheses exist only where the policy or the kind of the expression has
//! them. `request` and `namespaceObject` are typed, objects are `dyn`.
//!
//! ```text
//!   object  oldObject  namespaceObject  request  (params)  (variables)  (authorizer  authorizer.requestResource)
//! ```

use std::{cell::RefCell, collections::HashMap, sync::LazyLock};

use serde_json::Value;
use windlass_cel::{CompileBudget, Env, Program, Type};

use super::policies::PolicyKind;

/// The slot of `namespaceObject`.
pub(crate) const NAMESPACE_OBJECT: usize = 2;

/// The number of slots that all expressions have.
const COMMON_SLOTS: usize = 4;

/// The type of `variables`.
const VARIABLES_TYPE: &str = "kubernetes.variables";

/// The greatest number of variables of a policy. A real server has no such limit.
pub(crate) const MAX_VARIABLES: usize = 1_000;

/// The length of a chain of variables from which it is evaluated on a large stack.
const DEEP_CHAIN: usize = 16;

/// What an expression may use besides the objects and the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent parts of an environment"
)]
pub(crate) struct Features {
    pub(crate) params: bool,
    pub(crate) variables: bool,
    pub(crate) authorizer: bool,
    /// `Object{…}` and `JSONPatch{…}`
    pub(crate) mutations: bool,
}

impl Features {
    /// The slot of `variables`.
    pub(crate) fn variables_slot(self) -> usize {
        COMMON_SLOTS + usize::from(self.params)
    }
}

/// What an expression must evaluate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Any,
    Bool,
    Text,
    TextOrNull,
    /// `Object{…}`
    Object,
    /// A list of `JSONPatch{…}`
    Patches,
}

/// Why an expression does not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompileError {
    Invalid(String),
    /// It is well-typed, but a constant in it fails.
    Internal(String),
}

impl CompileError {
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Invalid(why) | Self::Internal(why) => why,
        }
    }
}

static BASE: LazyLock<Env> = LazyLock::new(|| {
    let mut env = Env::kubernetes();
    let texts = || Type::list(Type::String);
    let object = |name: &str| Type::object(format!("kubernetes.{name}"));
    let mut declare = |name: &str, fields: &[(&str, Type)]| {
        let fields = fields
            .iter()
            .map(|(name, type_)| ((*name).to_owned(), type_.clone()));
        env.declare_object(format!("kubernetes.{name}"), fields);
    };
    let group_version = |last| {
        [
            ("group", Type::String),
            ("version", Type::String),
            (last, Type::String),
        ]
    };
    declare("GroupVersionKind", &group_version("kind"));
    declare("GroupVersionResource", &group_version("resource"));
    declare(
        "UserInfo",
        &[
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", texts()),
            ("extra", Type::map(Type::String, texts())),
        ],
    );
    declare(
        "AdmissionRequest",
        &[
            ("kind", object("GroupVersionKind")),
            ("resource", object("GroupVersionResource")),
            ("subResource", Type::String),
            ("requestKind", object("GroupVersionKind")),
            ("requestResource", object("GroupVersionResource")),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", object("UserInfo")),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    );
    declare("NamespaceSpec", &[("finalizers", texts())]);
    declare(
        "NamespaceCondition",
        &[
            ("status", Type::String),
            ("type", Type::String),
            ("lastTransitionTime", Type::Timestamp),
            ("message", Type::String),
            ("reason", Type::String),
        ],
    );
    declare(
        "NamespaceStatus",
        &[
            ("conditions", Type::list(object("NamespaceCondition"))),
            ("phase", Type::String),
        ],
    );
    declare(
        "NamespaceMetadata",
        &[
            ("name", Type::String),
            ("generateName", Type::String),
            ("namespace", Type::String),
            ("labels", Type::map(Type::String, Type::String)),
            ("annotations", Type::map(Type::String, Type::String)),
            ("UID", Type::String),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", Type::String),
            ("finalizers", texts()),
        ],
    );
    declare(
        "Namespace",
        &[
            ("metadata", object("NamespaceMetadata")),
            ("spec", object("NamespaceSpec")),
            ("status", object("NamespaceStatus")),
        ],
    );
    env.declare("object", Type::Dyn);
    env.declare("oldObject", Type::Dyn);
    env.declare("namespaceObject", object("Namespace"));
    env.declare("request", object("AdmissionRequest"));
    env
});

/// The environment of expressions with these features.
pub(crate) fn environment(features: Features) -> Env {
    let mut env = BASE.clone();
    if features.params {
        env.declare("params", Type::Dyn);
    }
    if features.variables {
        env.declare_object(VARIABLES_TYPE, []);
        env.declare("variables", Type::object(VARIABLES_TYPE));
    }
    if features.authorizer {
        let type_ = |name: &str| Type::object(format!("kubernetes.authorization.{name}"));
        env.declare("authorizer", type_("Authorizer"));
        env.declare("authorizer.requestResource", type_("ResourceCheck"));
    }
    if features.mutations {
        env.enable_mutations();
    }
    env
}

/// Adds a variable of the policy to the environments of the expressions after it.
pub(crate) fn declare_variable(env: &mut Env, name: &str, program: Option<&Program>) {
    let type_ = program.map_or(Type::Dyn, |program| variable_type(program.result_type()));
    env.declare_field(VARIABLES_TYPE, name, type_);
}

/// The type of a variable, of which only the simple ones, lists and maps are known to later expressions.
fn variable_type(type_: &Type) -> Type {
    match type_ {
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => type_.clone(),
        Type::List(element) => Type::list(variable_type(element)),
        Type::Map(pair) => Type::map(variable_type(&pair.0), variable_type(&pair.1)),
        _ => Type::Dyn,
    }
}

/// Compiles an expression that must evaluate to something. The expressions of a policy share a budget.
pub(crate) fn compile(
    env: &Env,
    text: &str,
    expected: Expected,
    budget: &RefCell<CompileBudget>,
) -> Result<Program, CompileError> {
    let program = env
        .compile_within(text, &mut budget.borrow_mut())
        .map_err(|issues| {
            if issues.is_instantiation() {
                CompileError::Internal(format!("program instantiation failed: {issues}"))
            } else {
                CompileError::Invalid(format!("compilation failed: {issues}"))
            }
        })?;
    let found = program.result_type();
    let (fits, wanted) = match expected {
        Expected::Any => (true, ""),
        Expected::Bool => (*found == Type::Bool, "bool"),
        Expected::Text => (*found == Type::String, "string"),
        Expected::TextOrNull => (
            matches!(found, Type::String | Type::Null),
            "one of [string null_type]",
        ),
        Expected::Object => (*found == Type::object("Object"), "Object"),
        Expected::Patches => (*found == Type::list(Type::object("JSONPatch")), "list(JSONPatch)"),
    };
    if fits {
        return Ok(program);
    }
    Err(CompileError::Invalid(format!(
        "must evaluate to {wanted} but got {}",
        type_name(found)
    )))
}

/// A type as cel-go's `Type.String` writes it.
fn type_name(type_: &Type) -> String {
    match type_ {
        Type::List(element) => format!("list({})", type_name(element)),
        Type::Map(pair) => format!("map({}, {})", type_name(&pair.0), type_name(&pair.1)),
        Type::Type(Some(inner)) => format!("type({})", type_name(inner)),
        Type::Opaque(name, parameters) if !parameters.is_empty() => {
            let parameters: Vec<_> = parameters.iter().map(type_name).collect();
            format!("{name}({})", parameters.join(", "))
        }
        other => other.name().to_owned(),
    }
}

/// An expression with its text, which errors quote.
pub(crate) struct Expression {
    pub(crate) text: Box<str>,
    pub(crate) program: Result<Program, String>,
}

impl Expression {
    fn compile(env: &Env, text: &str, expected: Expected, budget: &RefCell<CompileBudget>) -> Self {
        Self {
            text: text.into(),
            program: compile(env, text, expected, budget).map_err(|error| error.message().to_owned()),
        }
    }
}

/// The variables of a policy.
#[derive(Default)]
pub(crate) struct Variables {
    pub(crate) names: Vec<Box<str>>,
    pub(crate) expressions: Vec<Expression>,
    /// The last variable of each name.
    pub(crate) by_name: HashMap<Box<str>, usize>,
}

/// The compiled expressions of a policy.
pub(crate) struct PolicyPrograms {
    pub(crate) features: Features,
    pub(crate) variables: Variables,
    pub(crate) match_conditions: Vec<Expression>,
    /// Of a validating policy.
    pub(crate) validations: Vec<Expression>,
    /// Those of the validations that have one.
    pub(crate) messages: Vec<Option<Expression>>,
    pub(crate) audit_annotations: Vec<Expression>,
    /// Of a mutating policy.
    pub(crate) mutations: Vec<Mutation>,
    /// Whether variables refer to each other in a long chain, so that an evaluation recurses deep.
    pub(crate) is_deep: bool,
}

/// A mutation of a policy.
pub(crate) enum Mutation {
    ApplyConfiguration(Expression),
    JsonPatch(Expression),
}

impl PolicyPrograms {
    /// Compiles the expressions of a stored policy. What does not compile is an error of each evaluation.
    pub(crate) fn compile(spec: &Value, kind: PolicyKind) -> Self {
        let features = Features {
            params: spec["paramKind"].is_object(),
            variables: true,
            authorizer: true,
            mutations: false,
        };
        let mut env = environment(features);
        let mut message_env = environment(Features {
            authorizer: false,
            ..features
        });
        let budget = &RefCell::default();
        let mut variables = Variables::default();
        let mut depths: Vec<usize> = Vec::new();
        for (index, variable) in items(spec, "variables").enumerate().take(MAX_VARIABLES) {
            let name = text(&variable["name"]);
            let expression = Expression::compile(&env, text(&variable["expression"]), Expected::Any, budget);
            let mut depth = 1;
            if let Ok(program) = &expression.program {
                program.visit_fields_of(features.variables_slot(), &mut |field| {
                    let known = match field {
                        Some(field) => variables.by_name.get(field).map(|index| depths[*index]),
                        None => depths.iter().copied().max(),
                    };
                    depth = depth.max(known.unwrap_or(0) + 1);
                });
            }
            depths.push(depth);
            let program = expression.program.as_ref().ok();
            declare_variable(&mut env, name, program);
            declare_variable(&mut message_env, name, program);
            variables.names.push(name.into());
            variables.by_name.insert(name.into(), index);
            variables.expressions.push(expression);
        }
        let has_duplicates = variables.by_name.len() < variables.names.len();
        let compile_all = |env: &Env, list: &str, key: &str, expected| -> Vec<Expression> {
            let all = items(spec, list);
            all.map(|one| Expression::compile(env, text(&one[key]), expected, budget))
                .collect()
        };
        let is_validating = kind == PolicyKind::Validating;
        let mut mutations = Vec::new();
        if !is_validating {
            env.enable_mutations();
            for mutation in items(spec, "mutations") {
                mutations.push(Mutation::compile(&env, mutation, budget));
            }
        }
        let messages = items(spec, "validations").map(|validation| {
            let message = text(&validation["messageExpression"]);
            (!message.is_empty()).then(|| Expression::compile(&message_env, message, Expected::Text, budget))
        });
        Self {
            features,
            match_conditions: compile_all(&env, "matchConditions", "expression", Expected::Bool),
            validations: compile_all(&env, "validations", "expression", Expected::Bool),
            messages: messages.collect(),
            audit_annotations: compile_all(&env, "auditAnnotations", "valueExpression", Expected::TextOrNull),
            mutations,
            is_deep: depths.iter().any(|depth| *depth > DEEP_CHAIN)
                || (has_duplicates && variables.names.len() > DEEP_CHAIN),
            variables,
        }
    }
}

impl Mutation {
    fn compile(env: &Env, mutation: &Value, budget: &RefCell<CompileBudget>) -> Self {
        let expression = |key: &str, expected| {
            Expression::compile(env, text(&mutation[key]["expression"]), expected, budget)
        };
        if mutation["patchType"] == "JSONPatch" {
            Self::JsonPatch(expression("jsonPatch", Expected::Patches))
        } else {
            Self::ApplyConfiguration(expression("applyConfiguration", Expected::Object))
        }
    }
}

pub(super) fn items<'a>(spec: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    spec[key].as_array().into_iter().flatten()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
