//! ValidatingAdmissionPolicies: each is evaluated for each binding and parameter, and the first denial is the answer.
//!
//! Audit annotations are evaluated, because an error in one may deny a request. The server has no audit log: they are events
//! of `tracing` at level debug, as the audit annotation of the action `Audit` is.

use std::sync::Arc;

use serde_json::Value as Json;
use windlass_cel::Value;

use super::{
    Policies,
    evaluation::{
        Conditions, Evaluation, Inputs, MATCH_CONDITIONS_BUDGET, POLICY_BUDGET, RequestCost,
        evaluate_conditions, namespace_object, values, without_namespace,
    },
    expressions::PolicyPrograms,
    name_in_errors,
    params::{Param, ParamKind},
    policies::{Binding, Hook, Policy},
    request::Attributes,
    versions::WholeObjects,
};
use crate::{depth, object::Object, status::Status, warnings::Warnings};

/// The greatest length of a message from an expression, in bytes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// The greatest length of an audit annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;

/// The default reason of a denial.
const INVALID: &str = "Invalid";

/// A failed validation that denies the request, or a policy that cannot be evaluated.
struct Denial {
    policy: Arc<Policy>,
    binding: Option<Arc<Binding>>,
    message: String,
    reason: &'static str,
}

/// What the policies found.
struct Findings<'a> {
    /// The first: the others are not shown.
    denial: Option<Denial>,
    warnings: &'a mut Warnings,
}

/// A validation that did not pass, before the actions of its binding.
struct Failure {
    /// Its place in the policy.
    index: usize,
    message: String,
    reason: &'static str,
}

/// The result of one evaluation of a policy.
#[derive(Default)]
struct Outcome {
    failures: Vec<Failure>,
    /// Keys and values.
    audit_annotations: Vec<(String, String)>,
    /// Messages of audit annotations that failed.
    audit_errors: Vec<String>,
}

impl Policies {
    /// Evaluates the validating policies. Adds warnings for the client.
    pub(super) fn validate(
        &self,
        attributes: &Attributes<'_>,
        (objects, whole): ([Option<&Object>; 2], &WholeObjects<'_>),
        warnings: &mut Warnings,
    ) -> Result<(), Status> {
        let hooks = self.validating.hooks(&self.store, attributes);
        if hooks.is_empty() {
            return Ok(());
        }
        let mut findings = Findings {
            denial: None,
            warnings,
        };
        let namespace = namespace_object(&self.store, attributes);
        for hook in &hooks {
            self.validate_hook(hook, attributes, (objects, whole), &namespace, &mut findings)?;
        }
        let Some(denial) = findings.denial else {
            return Ok(());
        };
        let policy = &denial.policy.name;
        let message = match &denial.binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{policy}' with binding '{}' denied request: {}",
                binding.name, denial.message
            ),
            None => {
                format!(
                    "ValidatingAdmissionPolicy '{policy}' denied request: {}",
                    denial.message
                )
            }
        };
        let code = match denial.reason {
            "Forbidden" => 403,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        let name = name_in_errors(attributes, objects[0]);
        Err(Status::denied_by_policy(
            attributes.resource,
            name,
            &message,
            (code, denial.reason),
        ))
    }

    fn validate_hook(
        &self,
        hook: &Hook<'_>,
        attributes: &Attributes<'_>,
        (objects, whole): ([Option<&Object>; 2], &WholeObjects<'_>),
        namespace: &Json,
        findings: &mut Findings<'_>,
    ) -> Result<(), Status> {
        let Hook { policy, matched, .. } = hook;
        let trees = objects.map(|object| object.map(Object::tree));
        match policy.constraints.match_labels(&self.store, attributes, trees) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(why) => {
                findings.misconfigured(policy, None, &why);
                return Ok(());
            }
        }
        let kind = match ParamKind::of(policy, &self.store) {
            Ok(kind) => kind,
            Err(why) => {
                findings.misconfigured(policy, None, &why);
                return Ok(());
            }
        };
        let whole = whole.at(attributes, matched)?;
        let [object, old] = &*whole;
        let request = attributes.to_request(matched);
        for binding in &hook.bindings {
            let params = match binding.matches(&self.store, attributes, trees) {
                Ok(true) => kind.collect(binding, &self.store, attributes),
                Ok(false) => continue,
                Err(why) => Err(why),
            };
            let params = match params {
                Ok(params) => params,
                Err(why) => {
                    findings.misconfigured(policy, Some(binding), &why);
                    continue;
                }
            };
            for param in &params {
                let is_deep = policy.programs().is_deep || param.as_ref().is_some_and(Param::is_deep);
                let evaluate = || -> Result<Result<Outcome, String>, Status> {
                    let params = match param
                        .as_ref()
                        .map(|param| param.decode(&attributes.cost))
                        .transpose()?
                        .transpose()
                    {
                        Ok(params) => params,
                        Err(why) => return Ok(Err(why)),
                    };
                    let inputs = Inputs {
                        object: object.as_ref(),
                        old_object: old.as_ref(),
                        namespace,
                        request: &request,
                        params: params.as_ref(),
                    };
                    Ok(Ok(self.evaluate_policy(policy, &inputs, attributes)))
                };
                let outcome = if is_deep {
                    depth::with_large_stack(evaluate)
                } else {
                    evaluate()
                };
                match outcome? {
                    Ok(outcome) => findings.act(outcome, policy, binding),
                    Err(why) => findings.misconfigured(policy, Some(binding), &why),
                }
            }
        }
        Ok(())
    }

    /// Evaluates a policy once.
    fn evaluate_policy(&self, policy: &Policy, inputs: &Inputs<'_>, attributes: &Attributes<'_>) -> Outcome {
        let programs = policy.programs();
        let values = values(programs, inputs, &self.access, attributes);
        if !programs.match_conditions.is_empty() {
            let values = without_namespace(&values);
            let mut evaluation =
                Evaluation::new(programs, &values, MATCH_CONDITIONS_BUDGET, &attributes.cost);
            match evaluate_conditions(&programs.match_conditions, &mut evaluation) {
                Conditions::Match => {}
                Conditions::Differ => return Outcome::default(),
                Conditions::Failed(why) => return Outcome::failed(policy, why),
            }
        }
        let mut evaluation = Evaluation::new(programs, &values, POLICY_BUDGET, &attributes.cost);
        let mut results = Vec::with_capacity(programs.validations.len());
        for validation in &programs.validations {
            match evaluation.evaluate(validation) {
                Ok(result) => results.push(result),
                Err(spent) => return Outcome::failed(policy, spent.to_string()),
            }
        }
        let mut outcome = Outcome::default();
        let messages = Messages::evaluate(
            programs,
            &values,
            &results,
            (evaluation.remaining(), &attributes.cost),
        );
        let ignores_failures = policy.ignores_failures();
        for (index, result) in results.into_iter().enumerate() {
            let message = match (result, &messages) {
                (Err(why), _) => why,
                (Ok(_), Messages::OutOfBudget(why)) => format!("failed messageExpression: {why}"),
                (Ok(Value::Bool(true)), _) => continue,
                (Ok(_), Messages::Known(messages)) => {
                    let validation = &policy.spec["validations"][index];
                    outcome.failures.push(Failure {
                        index,
                        message: message_of(validation, messages.get(index)),
                        reason: reason_of(validation),
                    });
                    continue;
                }
            };
            if !ignores_failures {
                let reason = INVALID;
                outcome.failures.push(Failure {
                    index,
                    message,
                    reason,
                });
            }
        }
        if programs.audit_annotations.is_empty() {
            return outcome;
        }
        match audit(policy, (programs, &attributes.cost), &values, &mut outcome) {
            Ok(()) => outcome,
            Err(why) => Outcome::failed(policy, why),
        }
    }
}

impl Outcome {
    /// The policy as a whole could not be evaluated.
    fn failed(policy: &Policy, message: String) -> Self {
        let failure = Failure {
            index: 0,
            message,
            reason: INVALID,
        };
        Self {
            failures: Vec::from_iter((!policy.ignores_failures()).then_some(failure)),
            ..Self::default()
        }
    }
}

impl Findings<'_> {
    /// A policy, or a binding of it, that cannot be evaluated denies the request, unless failures are ignored.
    fn misconfigured(&mut self, policy: &Arc<Policy>, binding: Option<&Arc<Binding>>, why: &str) {
        if policy.ignores_failures() {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.denial.get_or_insert_with(|| Denial {
            policy: policy.clone(),
            binding: binding.cloned(),
            message: format!("failed to configure {what}: {why}"),
            reason: INVALID,
        });
    }

    /// Does what the binding says about failed validations.
    fn act(&mut self, outcome: Outcome, policy: &Arc<Policy>, binding: &Arc<Binding>) {
        let denial = |message, reason| Denial {
            policy: policy.clone(),
            binding: Some(binding.clone()),
            message,
            reason,
        };
        let actions: Vec<&str> = binding.spec["validationActions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        for failure in outcome.failures {
            let Failure {
                index,
                message,
                reason,
            } = failure;
            if actions.contains(&"Warn") {
                self.warnings.push(&format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                    policy.name, binding.name
                ));
            }
            if actions.contains(&"Audit") {
                tracing::debug!(
                    policy = &*policy.name,
                    binding = &*binding.name,
                    index,
                    message,
                    "validation.policy.admission.k8s.io/validation_failure"
                );
            }
            if actions.contains(&"Deny") && self.denial.is_none() {
                self.denial = Some(denial(message, reason));
            }
        }
        for (key, value) in outcome.audit_annotations {
            tracing::debug!(policy = &*policy.name, key, value, "audit annotation of a policy");
        }
        if let Some(message) = outcome.audit_errors.into_iter().next()
            && self.denial.is_none()
        {
            self.denial = Some(denial(message, INVALID));
        }
    }
}

/// The results of message expressions, of all validations.
enum Messages {
    Known(Vec<Option<String>>),
    OutOfBudget(String),
}

impl Messages {
    /// Evaluates the message expressions with what the validations left of the budget. A real server does so for the
    /// validations that pass too; here only if they could spend the budget, which would deny the request.
    fn evaluate<'a>(
        programs: &'a PolicyPrograms,
        values: &[Value<'a>],
        results: &[Result<Value<'a>, String>],
        (budget, request): (u64, &RequestCost),
    ) -> Self {
        let expressions = programs.messages.iter().flatten().count() + programs.variables.names.len();
        let most = (expressions as u64).saturating_mul(2 * windlass_cel::PER_CALL_LIMIT);
        let all_pass = results
            .iter()
            .all(|result| matches!(result, Ok(Value::Bool(true))));
        if programs.messages.iter().all(Option::is_none) || (all_pass && most <= budget) {
            return Self::Known(Vec::new());
        }
        let mut evaluation = Evaluation::new(programs, values, budget, request);
        let mut texts = Vec::with_capacity(programs.messages.len());
        for message in &programs.messages {
            let Some(expression) = message else {
                texts.push(None);
                continue;
            };
            match evaluation.evaluate(expression) {
                Ok(Ok(Value::String(text))) => texts.push(usable(&text)),
                Ok(_) => texts.push(None),
                Err(spent) => return Self::OutOfBudget(spent.to_string()),
            }
        }
        Self::Known(texts)
    }
}

/// A message that is neither empty nor too long, and has one line.
fn usable(text: &str) -> Option<String> {
    let text = text.trim();
    let is_usable = !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
    is_usable.then(|| text.to_owned())
}

/// The message of a validation that is false.
fn message_of(validation: &Json, evaluated: Option<&Option<String>>) -> String {
    if let Some(Some(message)) = evaluated {
        return message.clone();
    }
    let text = |key: &str| validation[key].as_str().unwrap_or_default().trim();
    match text("message") {
        "" => format!("failed expression: {}", text("expression")),
        message => message.to_owned(),
    }
}

fn reason_of(validation: &Json) -> &'static str {
    match validation["reason"].as_str() {
        Some("Forbidden") => "Forbidden",
        Some("RequestEntityTooLarge") => "RequestEntityTooLarge",
        _ => INVALID,
    }
}

/// Evaluates the audit annotations. Returns why the budget does not suffice.
fn audit<'a>(
    policy: &Policy,
    (programs, request): (&'a PolicyPrograms, &RequestCost),
    values: &[Value<'a>],
    outcome: &mut Outcome,
) -> Result<(), String> {
    let mut evaluation = Evaluation::new(programs, values, POLICY_BUDGET, request);
    for (index, expression) in programs.audit_annotations.iter().enumerate() {
        match evaluation
            .evaluate(expression)
            .map_err(|spent| spent.to_string())?
        {
            Ok(Value::String(text)) if !text.trim().is_empty() => {
                let key = policy.spec["auditAnnotations"][index]["key"].as_str();
                let text = text.trim();
                let end = text.floor_char_boundary(MAX_ANNOTATION_BYTES);
                let key = format!("{}/{}", policy.name, key.unwrap_or_default());
                outcome.audit_annotations.push((key, text[..end].to_owned()));
            }
            Err(why) if !policy.ignores_failures() => outcome.audit_errors.push(why),
            _ => {}
        }
    }
    Ok(())
}
