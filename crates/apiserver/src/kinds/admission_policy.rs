//! Admission policies and their bindings: defaults, and validation, which compiles the expressions.

use std::{cell::RefCell, collections::HashSet};

use serde_json::Value;
use windlass_api::naming;
use windlass_cel::{CompileBudget, Env};

use super::{
    admission_policy_cells,
    defaulting::{
        DefaultRule,
        DefaultValue::{Empty, Text},
    },
    error_list::{ErrorList, list, text},
    row::Row,
    strategy::{Facts, METADATA, SPEC, Strategy, Write},
};
use crate::{
    admission::{
        PolicyKind,
        expressions::{
            CompileError, Expected, Features, MAX_VARIABLES, compile, declare_variable, environment,
        },
    },
    field_path::FieldPath,
    schema::Problem,
    storage::Entry,
    verbs::WriteVerbs,
};

const FACTS: Facts = Facts {
    has_generation: true,
    unconditional_update: false,
    compiles: true,
    exempt_from_policies: true,
    exempt_from_webhooks: true,
    subresource_reset_fields: &[("status", &[METADATA, SPEC])],
    ..Facts::DEFAULT
};

const POLICY_DEFAULTS: &[DefaultRule] = &[
    ("spec.failurePolicy", Text("Fail")),
    ("spec.matchConstraints.matchPolicy", Text("Equivalent")),
    ("spec.matchConstraints.namespaceSelector", Empty),
    ("spec.matchConstraints.objectSelector", Empty),
    ("spec.matchConstraints.resourceRules[].scope", Text("*")),
    ("spec.matchConstraints.excludeResourceRules[].scope", Text("*")),
];

const BINDING_DEFAULTS: &[DefaultRule] = &[
    ("spec.matchResources.matchPolicy", Text("Equivalent")),
    ("spec.matchResources.namespaceSelector", Empty),
    ("spec.matchResources.objectSelector", Empty),
    ("spec.matchResources.resourceRules[].scope", Text("*")),
    ("spec.matchResources.excludeResourceRules[].scope", Text("*")),
];

/// The greatest number of match conditions, and of audit annotations.
const MAX_MATCH_CONDITIONS: usize = 64;
const MAX_AUDIT_ANNOTATIONS: usize = 20;

/// The greatest length of the expression of an audit annotation, in bytes.
const MAX_AUDIT_EXPRESSION_BYTES: usize = 5 * 1024;

/// The operations of rules, and those that a mutating policy can match.
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MUTATING_OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];

/// The error of a reference to parameters by name and by selector.
const EXCLUSIVE: &str = "name and selector are mutually exclusive";

/// A ValidatingAdmissionPolicy or a MutatingAdmissionPolicy.
pub(super) struct Policy(pub(super) PolicyKind);

impl Strategy for Policy {
    fn after_write(&self, writes: &WriteVerbs, _entry: &Entry) {
        writes.admission.catch_up();
    }

    fn facts(&self) -> Facts {
        Facts {
            defaults: POLICY_DEFAULTS,
            columns: Some(match self.0 {
                PolicyKind::Validating => "Name Validations:integer ParamKind Age",
                PolicyKind::Mutating => "Name Mutations:integer ParamKind Age",
            }),
            ..FACTS
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        admission_policy_cells::of_policy(
            row,
            match self.0 {
                PolicyKind::Validating => "/spec/validations",
                PolicyKind::Mutating => "/spec/mutations",
            },
        )
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check_policy(self.0, write.object.name(), write.spec(), errors);
    }
}

/// A binding of a policy.
pub(super) struct Binding(pub(super) PolicyKind);

impl Strategy for Binding {
    fn after_write(&self, writes: &WriteVerbs, _entry: &Entry) {
        writes.admission.catch_up();
    }

    fn facts(&self) -> Facts {
        Facts {
            defaults: BINDING_DEFAULTS,
            columns: Some("Name PolicyName ParamRef Age"),
            ..FACTS
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        admission_policy_cells::of_binding(row)
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        let path = FieldPath::from_root("spec");
        let spec = write.spec();
        let name = text(&spec["policyName"]);
        if errors.require(path.child("policyName"), &spec["policyName"]) {
            errors.invalid_each(path.child("policyName"), name, naming::subdomain(name));
        }
        check_param_ref(&spec["paramRef"], &path.child("paramRef"), errors);
        let resources = &spec["matchResources"];
        if resources.is_object() {
            let path = path.child("matchResources");
            check_match_resources(resources, &path, errors);
            if self.0 == PolicyKind::Mutating {
                check_mutating_operations(resources, &path, errors);
            }
        }
        if self.0 == PolicyKind::Validating {
            check_actions(
                &spec["validationActions"],
                &path.child("validationActions"),
                errors,
            );
        }
    }
}

fn check_actions(actions: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let actions = list(actions);
    let mut seen = HashSet::new();
    for (index, action) in actions.iter().enumerate() {
        let place = path.index(index);
        errors.one_of(place, action, &["Audit", "Deny", "Warn"]);
        if !seen.insert(text(action)) {
            errors.duplicate(place, action.clone());
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        errors.invalid_list(path, actions, why);
    }
    if seen.is_empty() {
        errors.required(path, "at least one validation action is required");
    }
}

fn check_param_ref(reference: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if !reference.is_object() {
        return;
    }
    let name = text(&reference["name"]);
    let has_selector = reference["selector"].is_object();
    if !name.is_empty() {
        errors.invalid_each(path.child("name"), name, naming::path_segment(name));
        if has_selector {
            errors.forbidden(path.child("name"), EXCLUSIVE);
        }
    }
    if has_selector {
        errors.selector(&path.child("selector"), &reference["selector"]);
        if !name.is_empty() {
            errors.forbidden(path.child("selector"), EXCLUSIVE);
        }
    } else if name.is_empty() {
        errors.required(path, "one of name or selector must be specified");
    }
    let action = &reference["parameterNotFoundAction"];
    errors.one_of_required(path.child("parameterNotFoundAction"), action, &["Deny", "Allow"]);
}

fn check_match_resources(resources: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    errors.one_of(
        path.child("matchPolicy"),
        &resources["matchPolicy"],
        &["Equivalent", "Exact"],
    );
    for key in ["namespaceSelector", "objectSelector"] {
        errors.selector(&path.child(key), &resources[key]);
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        let rules = path.child(key);
        for (index, rule) in list(&resources[key]).iter().enumerate() {
            check_rule(rule, &rules.index(index), errors);
        }
    }
}

pub(super) fn check_rule(rule: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let names = path.child("resourceNames");
    let mut seen = HashSet::new();
    for (index, name) in list(&rule["resourceNames"]).iter().enumerate() {
        let name = text(name);
        errors.invalid_each(names.index(index), name, naming::path_segment(name));
        if !seen.insert(name) {
            errors.duplicate(names.index(index), name);
        }
    }
    let place = path.child("operations");
    check_wildcard(rule, "operations", "operations", path, errors);
    for (index, operation) in list(&rule["operations"]).iter().enumerate() {
        errors.one_of(place.index(index), operation, OPERATIONS);
    }
    check_wildcard(rule, "apiGroups", "API groups", path, errors);
    check_wildcard(rule, "apiVersions", "API versions", path, errors);
    for (index, version) in list(&rule["apiVersions"]).iter().enumerate() {
        errors.require(path.child("apiVersions").index(index), version);
    }
    check_resources(list(&rule["resources"]), &path.child("resources"), errors);
    errors.one_of_if_given(
        path.child("scope"),
        &rule["scope"],
        &["*", "Cluster", "Namespaced"],
    );
}

/// A list that is not empty, and has nothing beside `*`.
fn check_wildcard(rule: &Value, key: &str, what: &str, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let items = list(&rule[key]);
    if items.is_empty() {
        errors.required(path.child(key), "");
    }
    if items.len() > 1 && items.iter().any(|item| item == "*") {
        let why = format!("if '*' is present, must not specify other {what}");
        errors.invalid_list(path.child(key), items, &why);
    }
}

fn check_resources(resources: &[Value], path: &FieldPath<'_>, errors: &mut ErrorList) {
    if resources.is_empty() {
        errors.required(path, "");
    }
    let (mut whole, mut parts) = (HashSet::new(), HashSet::new());
    let mut has_plain = false;
    for (index, resource) in resources.iter().enumerate() {
        let resource = text(resource);
        if resource.is_empty() {
            errors.required(path.index(index), "");
            continue;
        }
        let Some((plural, part)) = resource.split_once('/') else {
            has_plain = resource != "*";
            continue;
        };
        if whole.contains(plural) {
            let why = format!("if '{plural}/*' is present, must not specify {resource}");
            errors.invalid(path.index(index), resource, &why);
        }
        if parts.contains(part) {
            let why = format!("if '*/{part}' is present, must not specify {resource}");
            errors.invalid(path.index(index), resource, &why);
        }
        if part == "*" {
            whole.insert(plural);
        }
        if plural == "*" {
            parts.insert(part);
        }
    }
    let has = |wanted: &str| resources.iter().any(|resource| resource == wanted);
    if resources.len() > 1 && has("*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.invalid_list(path, resources, why);
    }
    if has_plain && has("*") {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.invalid_list(path, resources, why);
    }
}

/// A mutating policy matches only what has an object that it can change.
fn check_mutating_operations(resources: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let rules = path.child("resourceRules");
    let place = rules.child("operations");
    for rule in list(&resources["resourceRules"]) {
        for operation in list(&rule["operations"]) {
            errors.one_of(place, operation, MUTATING_OPERATIONS);
        }
    }
}

/// The environments of a policy's expressions.
struct Compilers {
    has_params: bool,
    /// Of most expressions.
    env: Env,
    /// Of messages, which cannot ask the authorizer.
    messages: Env,
    /// Of match conditions, which have no variables.
    conditions: Env,
    /// Of all expressions together.
    budget: RefCell<CompileBudget>,
}

impl Compilers {
    fn new(spec: &Value, kind: PolicyKind) -> Self {
        let has_params = spec["paramKind"].is_object();
        let features = Features {
            params: has_params,
            variables: kind == PolicyKind::Mutating || !list(&spec["variables"]).is_empty(),
            authorizer: true,
            mutations: false,
        };
        Self {
            has_params,
            env: environment(features),
            messages: environment(Features {
                authorizer: false,
                ..features
            }),
            conditions: environment(Features {
                variables: false,
                ..features
            }),
            budget: RefCell::default(),
        }
    }
}

/// Compiles an expression, and adds an error if it does not compile.
fn check_expression(
    (env, budget): (&Env, &RefCell<CompileBudget>),
    expression: &str,
    expected: Expected,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    match compile(env, expression, expected, budget) {
        Ok(_) => {}
        Err(error) => add_compile_error(error, expression, path, errors),
    }
}

fn add_compile_error(error: CompileError, expression: &str, path: &FieldPath<'_>, errors: &mut ErrorList) {
    match error {
        CompileError::Invalid(why) => errors.invalid(path, expression, &why),
        CompileError::Internal(why) => errors.add(path, Problem::Internal(why)),
    }
}

fn check_policy(kind: PolicyKind, name: &str, spec: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec");
    errors.one_of(
        path.child("failurePolicy"),
        &spec["failurePolicy"],
        &["Fail", "Ignore"],
    );
    let mut compilers = Compilers::new(spec, kind);
    if compilers.has_params {
        check_param_kind(&spec["paramKind"], &path.child("paramKind"), errors);
    }
    let constraints = path.child("matchConstraints");
    if spec["matchConstraints"].is_object() {
        let resources = &spec["matchConstraints"];
        check_match_resources(resources, &constraints, errors);
        if list(&resources["resourceRules"]).is_empty() {
            errors.required(constraints.child("resourceRules"), "");
        }
        if kind == PolicyKind::Mutating {
            check_mutating_operations(resources, &constraints, errors);
        }
    } else {
        errors.required(constraints, "");
    }
    check_match_conditions(
        &spec["matchConditions"],
        &compilers.conditions,
        &path.child("matchConditions"),
        errors,
    );
    check_variables(
        list(&spec["variables"]),
        &mut compilers,
        &path.child("variables"),
        errors,
    );
    match kind {
        PolicyKind::Validating => check_validating(name, spec, &compilers, &path, errors),
        PolicyKind::Mutating => {
            compilers.env.enable_mutations();
            check_mutations(
                list(&spec["mutations"]),
                &compilers,
                &path.child("mutations"),
                errors,
            );
            let reinvocation = &spec["reinvocationPolicy"];
            errors.one_of_required(
                path.child("reinvocationPolicy"),
                reinvocation,
                &["IfNeeded", "Never"],
            );
        }
    }
}

fn check_param_kind(kind: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let version = text(&kind["apiVersion"]);
    let place = path.child("apiVersion");
    if version.is_empty() {
        errors.required(place, "");
    } else if version.matches('/').count() > 1 {
        errors.invalid(
            place,
            version,
            &format!("unexpected GroupVersion string: {version}"),
        );
    } else {
        let (group, short) = version.split_once('/').unwrap_or(("", version));
        if !group.is_empty() {
            let problems = naming::subdomain(group);
            if !problems.is_empty() {
                errors.invalid(place, group, &problems.join(","));
            }
        }
        let problems = naming::label_1035(short);
        if short.is_empty() {
            errors.invalid(place, version, "version must be specified");
        } else if !problems.is_empty() {
            errors.invalid(place, short, &problems.join(","));
        }
    }
    let name = text(&kind["kind"]);
    if errors.require(path.child("kind"), &kind["kind"]) {
        let problems = naming::label_1035(&name.to_lowercase());
        if !problems.is_empty() {
            let why = format!(
                "may have mixed case, but should otherwise match: {}",
                problems.join(",")
            );
            errors.invalid(path.child("kind"), name, &why);
        }
    }
}

/// Match conditions of a policy or a webhook.
pub(super) fn check_match_conditions(
    conditions: &Value,
    env: &Env,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    let conditions = list(conditions);
    if conditions.len() > MAX_MATCH_CONDITIONS {
        errors.add(
            path,
            Problem::TooMany(conditions.len(), MAX_MATCH_CONDITIONS as u64),
        );
    }
    let budget = &RefCell::default();
    let mut names = HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let expression = text(&condition["expression"]).trim();
        if expression.is_empty() {
            errors.required(path.child("expression"), "");
        } else {
            let place = path.child("expression");
            check_expression((env, budget), expression, Expected::Bool, &place, errors);
        }
        let name = text(&condition["name"]);
        if errors.require(path.child("name"), &condition["name"]) {
            errors.invalid_each(path.child("name"), name, naming::qualified(name));
            if !names.insert(name) {
                errors.duplicate(path.child("name"), name);
            }
        }
    }
}

fn check_variables(
    variables: &[Value],
    compilers: &mut Compilers,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    if variables.len() > MAX_VARIABLES {
        errors.add(path, Problem::TooMany(variables.len(), MAX_VARIABLES as u64));
    }
    for (index, variable) in variables.iter().enumerate().take(MAX_VARIABLES) {
        let path = path.index(index);
        let name = text(&variable["name"]);
        if name.trim().is_empty() {
            errors.required(path.child("name"), "name is not specified");
        } else if !windlass_cel::is_identifier(name) {
            errors.invalid(path.child("name"), name, "must be a valid CEL identifier");
        }
        let expression = text(&variable["expression"]);
        let place = path.child("expression");
        if expression.trim().is_empty() {
            errors.required(place, "expression is not specified");
            continue;
        }
        let program = match compile(&compilers.env, expression, Expected::Any, &compilers.budget) {
            Ok(program) => Some(program),
            Err(error) => {
                add_compile_error(error, expression, &place, errors);
                None
            }
        };
        declare_variable(&mut compilers.env, name, program.as_ref());
        declare_variable(&mut compilers.messages, name, program.as_ref());
    }
}

fn check_validating(
    name: &str,
    spec: &Value,
    compilers: &Compilers,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    let (validations, annotations) = (list(&spec["validations"]), list(&spec["auditAnnotations"]));
    if validations.is_empty() && annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.required(path.child("validations"), why);
        errors.required(path.child("auditAnnotations"), why);
        return;
    }
    for (index, validation) in validations.iter().enumerate() {
        check_validation(
            validation,
            compilers,
            &path.child("validations").index(index),
            errors,
        );
    }
    let path = path.child("auditAnnotations");
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let why = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.invalid_list(path, annotations, &why);
    }
    let mut keys = HashSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let path = path.index(index);
        let key = text(&annotation["key"]);
        if name.is_empty() {
            errors.invalid(path.child("key"), key, "requires metadata.name be non-empty");
        } else {
            let whole = format!("{name}/{key}");
            errors.invalid_each(path.child("key"), &whole, naming::qualified(&whole));
        }
        check_audit_expression(
            text(&annotation["valueExpression"]),
            compilers,
            &path.child("valueExpression"),
            errors,
        );
        if !keys.insert(key) {
            errors.duplicate(path.child("key"), key);
        }
    }
}

fn check_audit_expression(
    expression: &str,
    compilers: &Compilers,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    let trimmed = expression.trim();
    if trimmed.is_empty() {
        errors.required(path, "valueExpression is not specified");
    } else if trimmed.len() > MAX_AUDIT_EXPRESSION_BYTES {
        let why = format!("must not exceed {MAX_AUDIT_EXPRESSION_BYTES} bytes in length");
        errors.required(path, &why);
    } else if let Err(error) = compile(&compilers.env, trimmed, Expected::TextOrNull, &compilers.budget) {
        add_compile_error(error, expression, path, errors);
    }
}

fn check_validation(validation: &Value, compilers: &Compilers, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let get = |key: &str| text(&validation[key]);
    let (expression, message, evaluated) = (get("expression"), get("message"), get("messageExpression"));
    if expression.trim().is_empty() {
        errors.required(path.child("expression"), "expression is not specified");
    } else {
        let place = path.child("expression");
        check_expression(
            (&compilers.env, &compilers.budget),
            expression,
            Expected::Bool,
            &place,
            errors,
        );
    }
    let place = path.child("messageExpression");
    if !evaluated.is_empty() && evaluated.trim().is_empty() {
        errors.invalid(place, evaluated, "must be non-empty if specified");
    } else if !evaluated.is_empty() {
        check_expression(
            (&compilers.messages, &compilers.budget),
            evaluated,
            Expected::Text,
            &place,
            errors,
        );
    }
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(path.child("message"), message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        errors.invalid(path.child("message"), message, "must not contain line breaks");
    }
    errors.one_of_if_given(
        path.child("reason"),
        &validation["reason"],
        &["Forbidden", "Invalid", "RequestEntityTooLarge"],
    );
}

fn check_mutations(mutations: &[Value], compilers: &Compilers, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if mutations.is_empty() {
        errors.required(path, "mutations must contain at least one item");
    }
    for (index, mutation) in mutations.iter().enumerate() {
        let path = path.index(index);
        let kind = text(&mutation["patchType"]);
        let (own, other, expected) = match kind {
            "JSONPatch" => ("jsonPatch", "applyConfiguration", Expected::Patches),
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Expected::Object),
            _ => {
                let supported = ["ApplyConfiguration", "JSONPatch"];
                errors.one_of_required(path.child("patchType"), &mutation["patchType"], &supported);
                continue;
            }
        };
        if mutation[own].is_object() {
            let body = path.child(own);
            let place = body.child("expression");
            let expression = text(&mutation[own]["expression"]).trim();
            if expression.is_empty() {
                errors.required(place, "");
            } else {
                check_expression(
                    (&compilers.env, &compilers.budget),
                    expression,
                    expected,
                    &place,
                    errors,
                );
            }
        } else {
            let why = format!("must be specified when patchType is {kind}");
            errors.required(path.child(own), &why);
        }
        if mutation[other].is_object() {
            let why = format!("must not be specified when patchType is {kind}");
            errors.invalid(path.child(other), format!("{{{other}}}"), &why);
        }
    }
}
