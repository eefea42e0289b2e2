//! MutatingAdmissionPolicies: each mutates the object in turn, and sees what those before it did.
//!
//! ```text
//!   plugins ─► policies ─► (webhooks) ──changed?──► plugins ─► those policies with IfNeeded that ran before a change ─► …
//! ```
//!
//! The managed fields were computed before: what a policy sets has no owner.

use std::{collections::HashSet, sync::Arc};

use serde_json::Value as Json;

use super::{
    Policies,
    evaluation::{
        Conditions, Evaluation, Inputs, MATCH_CONDITIONS_BUDGET, POLICY_BUDGET, evaluate_conditions,
        namespace_object, values, without_namespace,
    },
    expressions::{Mutation, PolicyPrograms},
    mutation::{apply_configuration, apply_json_patch},
    name_in_errors,
    params::{Param, ParamKind},
    policies::{Binding, Policy},
    request::Attributes,
    versions::{WholeObjects, at_version, convert, is_same},
};
use crate::{
    depth,
    fields::Shape,
    object::Object,
    registry::Resource,
    schema::{self, Source},
    status::Status,
    storage::Key,
    verbs,
};

/// How many denials are collected, and how much of the message of each.
const MAX_DENIALS: usize = 1_000;
const MAX_DENIAL_BYTES: usize = 64 * 1024;

/// A policy, a binding and a parameter.
type InvocationKey = (Arc<str>, Arc<str>, Option<Key>);

/// What the first pass of the mutating stage leaves for the second.
#[derive(Default)]
pub(super) struct Reinvocation {
    /// Whether this is the second pass.
    pub(super) is_second: bool,
    /// Whether there is a second pass.
    pub(super) is_needed: bool,
    /// Whether a mutation has run in this pass. A real server counts it as a change, whatever it did: those that want to
    /// run again do so, also the one itself.
    has_run: bool,
    /// The object after the first pass.
    last_output: Option<Json>,
    /// Those that ran since the last change, and want to run again after one.
    invoked: HashSet<InvocationKey>,
    /// Those that run again.
    reinvoke: HashSet<InvocationKey>,
}

impl Reinvocation {
    /// Something has changed the object: those that ran before it run again.
    fn changed(&mut self) {
        self.reinvoke.extend(self.invoked.drain());
    }
}

/// A policy that matches a request, with one binding and parameter.
struct Invocation<'a> {
    policy: Arc<Policy>,
    binding: Arc<Binding>,
    matched: &'a Arc<Resource>,
    param: Option<Param>,
}

/// Why a policy denies a request.
struct PolicyError {
    message: String,
    /// Whether the reason is `Invalid`, not `Forbidden`.
    is_invalid: bool,
}

/// Why a mutation failed.
enum MutationError {
    /// An error of the policy, which its failure policy may excuse.
    Policy(String),
    /// The answer of the request.
    Status(Status),
}

impl Policies {
    /// Lets the mutating policies change an object.
    pub(super) fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Object,
        old: Option<&Object>,
        state: &mut Reinvocation,
    ) -> Result<(), Status> {
        let mut errors = Vec::new();
        let invocations = self.invocations(attributes, [Some(object), old], &mut errors);
        if !invocations.is_empty() {
            if state.is_second && state.last_output.as_ref() != Some(object.tree()) {
                state.changed();
            }
            let namespace = namespace_object(&self.store, attributes);
            let whole_old = WholeObjects::new([None, old]);
            for invocation in &invocations {
                let is_deep = invocation.policy.programs().is_deep
                    || invocation.param.as_ref().is_some_and(Param::is_deep);
                let mut invoke = || {
                    self.invoke(
                        invocation,
                        attributes,
                        (object, &whole_old),
                        &namespace,
                        state,
                        &mut errors,
                    )
                };
                if is_deep {
                    depth::with_large_stack(invoke)?;
                } else {
                    invoke()?;
                }
            }
            if state.has_run {
                state.changed();
                state.is_needed = true;
            }
            state.last_output = Some(object.tree().clone());
        }
        let Some(first) = errors.first() else {
            return Ok(());
        };
        let causes: Vec<&str> = errors.iter().map(|error| &*error.message).collect();
        let name = name_in_errors(attributes, Some(object));
        Err(Status::denied_by_mutating_policy(
            attributes.resource,
            name,
            &causes,
            first.is_invalid,
        ))
    }

    /// The policies, bindings and parameters that match a request.
    fn invocations<'a>(
        &self,
        attributes: &'a Attributes<'_>,
        objects: [Option<&Object>; 2],
        errors: &mut Vec<PolicyError>,
    ) -> Vec<Invocation<'a>> {
        let trees = objects.map(|object| object.map(Object::tree));
        let mut invocations = Vec::new();
        for hook in self.mutating.hooks(&self.store, attributes) {
            let policy = &hook.policy;
            let mut misconfigured = |binding: Option<&Binding>, why: String| {
                let what = if binding.is_some() { "binding" } else { "policy" };
                let why = format!("failed to configure {what}: {why}");
                errors.extend(denial(policy, binding, &why, false));
            };
            match policy.constraints.match_labels(&self.store, attributes, trees) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    misconfigured(None, why);
                    continue;
                }
            }
            let kind = match ParamKind::of(policy, &self.store) {
                Ok(kind) => kind,
                Err(why) => {
                    misconfigured(None, why);
                    continue;
                }
            };
            for binding in &hook.bindings {
                let params = match binding.matches(&self.store, attributes, trees) {
                    Ok(true) => kind.collect(binding, &self.store, attributes),
                    Ok(false) => continue,
                    Err(why) => Err(why),
                };
                match params {
                    Ok(params) => invocations.extend(params.into_iter().map(|param| Invocation {
                        policy: policy.clone(),
                        binding: binding.clone(),
                        matched: hook.matched,
                        param,
                    })),
                    Err(why) => misconfigured(Some(binding), why),
                }
            }
        }
        invocations
    }

    /// Evaluates the match conditions of a policy.
    fn match_conditions(
        &self,
        programs: &PolicyPrograms,
        inputs: &Inputs<'_>,
        attributes: &Attributes<'_>,
    ) -> Conditions {
        if programs.match_conditions.is_empty() {
            return Conditions::Match;
        }
        let values = values(programs, inputs, &self.access, attributes);
        let values = without_namespace(&values);
        let mut evaluation = Evaluation::new(programs, &values, MATCH_CONDITIONS_BUDGET, &attributes.cost);
        evaluate_conditions(&programs.match_conditions, &mut evaluation)
    }

    /// Runs the mutations of a policy.
    fn invoke(
        &self,
        invocation: &Invocation<'_>,
        attributes: &Attributes<'_>,
        (object, whole_old): (&mut Object, &WholeObjects<'_>),
        namespace: &Json,
        state: &mut Reinvocation,
        errors: &mut Vec<PolicyError>,
    ) -> Result<(), Status> {
        let Invocation {
            policy,
            binding,
            matched,
            param,
        } = invocation;
        let mut refuse = |why: &str| {
            // More causes are not sent.
            if errors.len() < MAX_DENIALS {
                errors.extend(denial(policy, Some(binding), why, true));
            }
        };
        let decoded: Option<Result<Json, String>> = param
            .as_ref()
            .map(|param| param.decode(&attributes.cost))
            .transpose()?;
        let params = match decoded.transpose() {
            Ok(params) => params,
            Err(why) => {
                refuse(&why);
                return Ok(());
            }
        };
        let whole_old = whole_old.at(attributes, matched)?;
        let [_, old] = &*whole_old;
        let request = attributes.to_request(matched);
        let mut versioned = at_version(attributes, matched, object)?.0.into_owned();
        let mut whole = versioned.clone().into_value();
        let programs = policy.programs();
        let inputs = Inputs {
            object: Some(&whole),
            old_object: old.as_ref(),
            namespace,
            request: &request,
            params: params.as_ref(),
        };
        match self.match_conditions(programs, &inputs, attributes) {
            Conditions::Match => {}
            Conditions::Differ => return Ok(()),
            Conditions::Failed(why) => {
                refuse(&why);
                return Ok(());
            }
        }
        let key = (
            policy.name.clone(),
            binding.name.clone(),
            param.as_ref().map(|param| param.key().clone()),
        );
        if state.is_second && !state.reinvoke.contains(&key) {
            return Ok(());
        }
        let mut has_changed = false;
        let mut is_stale = false;
        for mutation in &programs.mutations {
            if std::mem::take(&mut is_stale) {
                whole = versioned.clone().into_value();
            }
            let inputs = Inputs {
                object: Some(&whole),
                old_object: old.as_ref(),
                namespace,
                request: &request,
                params: params.as_ref(),
            };
            let values = values(programs, &inputs, &self.access, attributes);
            let mut evaluation = Evaluation::new(programs, &values, POLICY_BUDGET, &attributes.cost);
            match mutate_once(mutation, &mut evaluation, attributes, matched, &versioned) {
                Ok(None) => state.has_run = true,
                Ok(Some(mut changed)) => {
                    state.has_run = true;
                    changed.set_managed_fields(versioned.take_managed_fields());
                    has_changed |= changed.tree() != versioned.tree();
                    versioned = changed;
                    is_stale = true;
                }
                Err(MutationError::Policy(why)) => refuse(&why),
                Err(MutationError::Status(status)) => return Err(status),
            }
        }
        if has_changed {
            state.changed();
            *object = if !attributes.is_object() || is_same(attributes.resource, matched) {
                versioned
            } else {
                convert(
                    matched,
                    attributes.resource,
                    versioned,
                    &attributes.caller.answers,
                )?
            };
        }
        if policy.spec["reinvocationPolicy"] == "IfNeeded" {
            state.invoked.insert(key);
        }
        Ok(())
    }
}

/// The error of a policy, unless its failures are ignored.
fn denial(policy: &Policy, binding: Option<&Binding>, why: &str, is_invalid: bool) -> Option<PolicyError> {
    if policy.ignores_failures() {
        return None;
    }
    let why = &why[..why.floor_char_boundary(MAX_DENIAL_BYTES)];
    let message = match binding {
        Some(binding) => format!(
            "policy '{}' with binding '{}' denied request: {why}",
            policy.name, binding.name
        ),
        None => format!("policy {:?} denied request: {why}", policy.name),
    };
    Some(PolicyError { message, is_invalid })
}

/// Evaluates a mutation and applies it. `None` if it changes nothing.
fn mutate_once<'a>(
    mutation: &'a Mutation,
    evaluation: &mut Evaluation<'_, 'a>,
    attributes: &Attributes<'_>,
    matched: &Resource,
    object: &Object,
) -> Result<Option<Object>, MutationError> {
    let (Mutation::ApplyConfiguration(expression) | Mutation::JsonPatch(expression)) = mutation;
    let value = evaluation
        .evaluate(expression)
        .map_err(|spent| MutationError::Policy(spent.to_string()))?
        .map_err(MutationError::Policy)?;
    match mutation {
        Mutation::ApplyConfiguration(_) => {
            let schema = if attributes.is_object() {
                matched.schema.as_ref()
            } else {
                attributes.schema()
            };
            let is_custom = attributes.is_object() && matched.is_custom;
            let shape = Shape::for_resource(schema.map(schema::Schema::view), is_custom);
            let changed = apply_configuration(shape, object.tree(), &value).map_err(MutationError::Policy)?;
            let (object, _) =
                decode(changed, attributes, matched, Source::Tree).map_err(MutationError::Policy)?;
            Ok(Some(object))
        }
        Mutation::JsonPatch(_) => {
            let changed = apply_json_patch(object.tree(), &value).map_err(MutationError::Policy)?;
            let Some(changed) = changed else {
                return Ok(None);
            };
            let internal = |why: &str| MutationError::Status(Status::internal(why));
            let (object, unknown) =
                decode(changed, attributes, matched, Source::Json).map_err(|why| internal(&why))?;
            if !unknown.is_empty() && !matched.is_custom {
                let unknown: Vec<_> = unknown
                    .iter()
                    .map(|path| format!("unknown field {path:?}"))
                    .collect();
                return Err(internal(&format!(
                    "strict decoding error: {}",
                    unknown.join(", ")
                )));
            }
            Ok(Some(object))
        }
    }
}

/// Decodes a mutated object like one from a client. Also returns the paths of unknown fields.
pub(super) fn decode(
    mut value: Json,
    attributes: &Attributes<'_>,
    matched: &Resource,
    source: Source,
) -> Result<(Object, Vec<String>), String> {
    if attributes.is_object() {
        // A mutation does not change what the object is.
        if let Some(fields) = value.as_object_mut() {
            fields.insert("kind".to_owned(), matched.kind.to_string().into());
            fields.insert("apiVersion".to_owned(), matched.api_version().into());
        }
        return verbs::to_object(value, matched, source);
    }
    let unknown = match attributes.schema() {
        Some(schema) => schema::decode(schema.view(), &mut value, source)?,
        None => Vec::new(),
    };
    let object = Object::new(value).ok_or("the mutated object has no metadata")?;
    Ok((object, unknown))
}
