//! Evaluates the expressions of a policy for one request: values, lazy variables, and the cost budget.

use std::{
    collections::HashSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use serde_json::Value as Json;
use windlass_cel::{Budget, Check, EvalError, LazyFields, Limits, Value, authorizer};

use super::{
    authorizer::RequestAuthorizer,
    expressions::{Expression, NAMESPACE_OBJECT, PolicyPrograms, Variables},
    request::Attributes,
};
use crate::{
    auth::{AccessControl, Caller},
    object_store::ObjectStore,
    storage::TableName,
};

/// kube-apiserver's budget for the expressions of a policy, in cel-go's units.
pub(crate) const POLICY_BUDGET: u64 = 10_000_000;

/// Its budget for match conditions.
pub(crate) const MATCH_CONDITIONS_BUDGET: u64 = POLICY_BUDGET / 4;

/// The budget of a request, for all policies, bindings, parameters and match conditions of a stage together. A real server
/// has none; ours does not stop an evaluation when the client has gone.
const REQUEST_BUDGET: u64 = 4 * POLICY_BUDGET;

/// The cost from which the admission of a request is slow: some milliseconds.
const SLOW_COST: u64 = 100_000;

/// How many bytes of a parameter cost 1, because they are decoded.
const BYTES_PER_COST: u64 = 16;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The budget is spent. `Display` writes kube-apiserver's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{OUT_OF_BUDGET}")]
pub(crate) struct OutOfBudget;

/// What the expressions of a request have cost in a stage, and the work and memory that are left for them beyond the cost.
#[derive(Debug)]
pub(crate) struct RequestCost {
    spent: AtomicU64,
    /// The budget.
    most: u64,
    /// Made for the first expression, which most requests do not have.
    left: OnceLock<Budget>,
}

impl Default for RequestCost {
    fn default() -> Self {
        Self {
            spent: AtomicU64::new(0),
            most: REQUEST_BUDGET,
            left: OnceLock::new(),
        }
    }
}

impl RequestCost {
    /// The budget of a request: a small one if it runs where it delays others.
    pub(crate) fn of(caller: &Caller) -> Self {
        let mut cost = Self::default();
        if caller.must_be_brief.load(Ordering::Relaxed) {
            cost.most = SLOW_COST;
        }
        cost
    }

    /// Whether the budget did not suffice, and a larger one may.
    pub(crate) fn needs_time(&self) -> bool {
        self.most < REQUEST_BUDGET && self.is_spent(0)
    }

    fn spend(&self, cost: u64) -> Result<(), OutOfBudget> {
        let before = self.spent.fetch_add(cost, Ordering::Relaxed);
        if before.saturating_add(cost) > self.most {
            return Err(OutOfBudget);
        }
        Ok(())
    }

    /// The limits of the next evaluation.
    fn limits(&self) -> Limits {
        Limits {
            shared: Some(self.left.get_or_init(Budget::default).clone()),
            ..Limits::default()
        }
    }

    /// Counts a parameter of this size, which is decoded.
    pub(crate) fn spend_on_param(&self, bytes: usize) -> Result<(), OutOfBudget> {
        self.spend(bytes as u64 / BYTES_PER_COST)
    }

    fn is_spent(&self, more: u64) -> bool {
        self.spent.load(Ordering::Relaxed).saturating_add(more) > self.most
    }
}

/// The resources whose admission has been slow: it is not even begun on the threads that serve other requests. With other
/// policies, it may be fast.
#[derive(Debug, Default)]
pub(crate) struct Slowness(RwLock<SlowResources>);

#[derive(Debug, Default)]
struct SlowResources {
    /// Counts the changes of policies that are known here.
    changes: u64,
    /// The tables of the resources.
    tables: HashSet<TableName>,
}

impl Slowness {
    /// Records what the admission of a write to a table has cost, with the policies after so many changes.
    pub(crate) fn record(&self, table: &TableName, changes: u64, cost: &RequestCost) {
        if cost.spent.load(Ordering::Relaxed) <= SLOW_COST || self.is_slow(table, changes) {
            return;
        }
        let mut slow = self.0.write();
        if slow.changes != changes {
            slow.tables.clear();
            slow.changes = changes;
        }
        slow.tables.insert(table.clone());
    }

    pub(crate) fn is_slow(&self, table: &TableName, changes: u64) -> bool {
        let slow = self.0.read();
        slow.changes == changes && slow.tables.contains(table)
    }
}

/// The JSON that the variables of expressions borrow from.
pub(crate) struct Inputs<'a> {
    pub(crate) object: Option<&'a Json>,
    pub(crate) old_object: Option<&'a Json>,
    /// Null for cluster-scoped objects.
    pub(crate) namespace: &'a Json,
    pub(crate) request: &'a Json,
    pub(crate) params: Option<&'a Json>,
}

/// The values of the variables of a policy's expressions.
pub(crate) fn values<'a>(
    programs: &PolicyPrograms,
    inputs: &Inputs<'a>,
    access: &Arc<AccessControl>,
    attributes: &Attributes<'_>,
) -> Vec<Value<'a>> {
    let json = |json: Option<&'a Json>| json.map_or(Value::Null, Value::from_json);
    let mut values = vec![
        json(inputs.object),
        json(inputs.old_object),
        json(Some(inputs.namespace)),
        json(Some(inputs.request)),
    ];
    if programs.features.params {
        values.push(json(inputs.params));
    }
    if programs.features.variables {
        // Computed on demand.
        values.push(Value::Null);
    }
    if programs.features.authorizer {
        let decides = Arc::new(RequestAuthorizer {
            access: access.clone(),
            caller: attributes.caller.clone(),
        });
        let check = Check {
            group: attributes.resource.group.to_string(),
            resource: attributes.resource.plural.to_string(),
            subresource: attributes.subresource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.name.to_owned(),
            ..Check::default()
        };
        values.push(authorizer(decides.clone(), None));
        values.push(authorizer(decides, Some(check)));
    }
    values
}

/// The values of match conditions, which have no namespace object.
pub(crate) fn without_namespace<'a>(values: &[Value<'a>]) -> Vec<Value<'a>> {
    let mut values = values.to_vec();
    values[NAMESPACE_OBJECT] = Value::Null;
    values
}

/// The variable `namespaceObject`.
pub(crate) fn namespace_object(store: &ObjectStore, attributes: &Attributes<'_>) -> Json {
    let entry = attributes
        .containing_namespace()
        .and_then(|name| super::matching::namespace(store, name));
    let Some(Ok(mut namespace)) = entry.map(|entry| entry.object.decode()) else {
        return Json::Null;
    };
    namespace
        .metadata_mut()
        .retain(|key, _| !matches!(key.as_str(), "ownerReferences" | "managedFields" | "selfLink"));
    namespace.into_tree()
}

/// An evaluation of several expressions with one budget. Variables are computed once.
pub(crate) struct Evaluation<'v, 'a> {
    values: &'v [Value<'a>],
    variables: LazyVariables<'v, 'a>,
    remaining: u64,
    request: &'v RequestCost,
}

impl<'v, 'a> Evaluation<'v, 'a> {
    pub(crate) fn new(
        programs: &'a PolicyPrograms,
        values: &'v [Value<'a>],
        budget: u64,
        request: &'v RequestCost,
    ) -> Self {
        Self {
            values,
            variables: LazyVariables {
                variables: &programs.variables,
                slot: programs.features.variables_slot(),
                values,
                states: programs
                    .variables
                    .names
                    .iter()
                    .map(|_| Mutex::new(State::Unknown))
                    .collect(),
                cost: AtomicU64::new(0),
                most: AtomicU64::new(budget),
                request,
            },
            remaining: budget,
            request,
        }
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Evaluates an expression: its value or kube-apiserver's message of the error.
    pub(crate) fn evaluate(
        &mut self,
        expression: &'a Expression,
    ) -> Result<Result<Value<'a>, String>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        self.variables.most.store(self.remaining, Ordering::Relaxed);
        let lazy = (self.variables.slot, &self.variables as &dyn LazyFields<'a>);
        let result = program.evaluate_lazily(self.values, lazy, &self.request.limits());
        self.spend(self.variables.cost.swap(0, Ordering::Relaxed))?;
        self.spend(result.cost)?;
        Ok(result
            .value
            .map_err(|error| format!("expression '{}' resulted in error: {error}", expression.text)))
    }

    fn spend(&mut self, cost: u64) -> Result<(), OutOfBudget> {
        self.request.spend(cost)?;
        self.remaining = self.remaining.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(())
    }
}

/// `variables`: each is computed when an expression reads it first.
struct LazyVariables<'v, 'a> {
    variables: &'a Variables,
    slot: usize,
    values: &'v [Value<'a>],
    states: Box<[Mutex<State<'a>>]>,
    /// The cost of what was computed, which the budget pays and not the expression.
    cost: AtomicU64,
    /// What it may cost.
    most: AtomicU64,
    request: &'v RequestCost,
}

enum State<'a> {
    Unknown,
    /// Two variables of one name may refer to each other.
    Running,
    Known(Result<Value<'a>, EvalError>),
}

impl<'a> LazyFields<'a> for LazyVariables<'_, 'a> {
    fn field(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let index = *self.variables.by_name.get(name)?;
        let cost = self.cost.load(Ordering::Relaxed);
        if cost > self.most.load(Ordering::Relaxed) || self.request.is_spent(cost) {
            return Some(Err(EvalError::new(OUT_OF_BUDGET)));
        }
        {
            let mut state = self.states[index].lock();
            match &*state {
                State::Known(value) => return Some(value.clone()),
                State::Running => {
                    let why = format!("composited variable {name:?} fails to evaluate: it refers to itself");
                    return Some(Err(EvalError::new(why)));
                }
                State::Unknown => *state = State::Running,
            }
        }
        let value = match &self.variables.expressions[index].program {
            Ok(program) => {
                let lazy = (self.slot, self as &dyn LazyFields<'a>);
                let result = program.evaluate_lazily(self.values, lazy, &self.request.limits());
                self.cost.fetch_add(result.cost, Ordering::Relaxed);
                result.value.map_err(|error| {
                    EvalError::new(format!("composited variable {name:?} fails to evaluate: {error}"))
                })
            }
            Err(why) => Err(EvalError::new(format!(
                "composited variable {name:?} fails to compile: {why}"
            ))),
        };
        *self.states[index].lock() = State::Known(value.clone());
        Some(value)
    }

    fn names(&self) -> Vec<&str> {
        self.variables.by_name.keys().map(|name| &**name).collect()
    }
}

/// The result of match conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conditions {
    Match,
    /// One of them is false.
    Differ,
    /// None is false, but some failed.
    Failed(String),
}

/// Evaluates match conditions.
pub(crate) fn evaluate_conditions<'a>(
    conditions: &'a [Expression],
    evaluation: &mut Evaluation<'_, 'a>,
) -> Conditions {
    let mut results = Vec::with_capacity(conditions.len());
    for condition in conditions {
        match evaluation.evaluate(condition) {
            Ok(result) => results.push(result),
            Err(why) => return Conditions::Failed(why.to_string()),
        }
    }
    if results
        .iter()
        .any(|result| matches!(result, Ok(Value::Bool(false))))
    {
        return Conditions::Differ;
    }
    let failures: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() {
        Conditions::Match
    } else {
        Conditions::Failed(crate::auth::aggregate_messages(&failures))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use windlass_api::request::RequestInfo;

    use super::*;
    use crate::admission::policies::PolicyKind;

    #[test]
    fn evaluations_of_a_request_share_a_budget() {
        let spec = json!({
            "variables": [{"name": "v", "expression": "[1, 2, 3].all(x, x > 0)"}],
            "validations": [{"expression": "[1, 2, 3].all(x, x > 0)"}, {"expression": "variables.v"}],
        });
        let programs = PolicyPrograms::compile(&spec, PolicyKind::Validating);
        let values = [const { Value::Null }; 5];
        for validation in &programs.validations {
            let request = RequestCost::default();
            let evaluate = || {
                Evaluation::new(&programs, &values, POLICY_BUDGET, &request)
                    .evaluate(validation)
                    .is_ok()
            };
            assert!(evaluate());
            assert_eq!(request.spend(REQUEST_BUDGET - 100), Ok(()));
            let more = (0..100).take_while(|_| evaluate()).count();
            assert!((1..20).contains(&more), "{more}");
            assert_eq!(request.spend_on_param(16), Err(OutOfBudget));
        }
    }

    /// A variable stays until the request ends, and costs a tenth of its size.
    #[test]
    fn variables_of_a_request_share_their_memory() {
        let mut variables = vec![json!({"name": "v0", "expression": "'0123456789abcdef'"})];
        let names = (1..40).map(|index| (format!("v{index}"), (index - 1).min(18)));
        variables.extend(names.map(|(name, half)| {
            let expression = format!("variables.v{half} + variables.v{half}");
            json!({"name": name, "expression": expression})
        }));
        let validations = (0..40).map(|index| json!({"expression": format!("variables.v{index} != ''")}));
        let spec = json!({"variables": variables, "validations": validations.collect::<Vec<_>>()});
        let programs = PolicyPrograms::compile(&spec, PolicyKind::Validating);
        let values = [const { Value::Null }; 5];
        let request = RequestCost::default();
        let mut evaluation = Evaluation::new(&programs, &values, u64::MAX, &request);
        let mut results = programs.validations.iter().map(|one| evaluation.evaluate(one));
        let held = results
            .by_ref()
            .take_while(|result| matches!(result, Ok(Ok(_))))
            .count();
        // The first 20 take 16 MB, each of the others 8 MB.
        assert!((20..30).contains(&held), "{held}");
        assert!(results.all(|result| matches!(result, Ok(Err(_)))));
    }

    #[test]
    fn expressions_of_a_policy_share_a_compile_budget() {
        let expression = r"object.name.matches('\\pL{20}')";
        let validations = vec![json!({"expression": expression}); 100];
        let programs = PolicyPrograms::compile(&json!({"validations": validations}), PolicyKind::Validating);
        let mut compiled = programs.validations.iter().map(|one| &one.program);
        assert!(compiled.next().is_some_and(Result::is_ok));
        assert!(compiled.next_back().is_some_and(Result::is_err));
    }

    #[test]
    fn admission_of_a_resource_is_slow_after_a_request_that_was_until_policies_change() {
        let (slowness, request) = (Slowness::default(), RequestCost::default());
        let (slow, other): (TableName, TableName) = ("slow".into(), "other".into());
        slowness.record(&slow, 1, &request);
        assert!(!slowness.is_slow(&slow, 1));
        assert_eq!(request.spend_on_param(2_000_000), Ok(()));
        slowness.record(&slow, 1, &request);
        assert!(slowness.is_slow(&slow, 1) && !slowness.is_slow(&other, 1));
        assert!(!slowness.is_slow(&slow, 2));
        slowness.record(&other, 2, &request);
        assert!(slowness.is_slow(&other, 2) && !slowness.is_slow(&slow, 2));
    }

    #[test]
    fn request_that_must_be_brief_has_a_small_budget() {
        let info = RequestInfo::of(&http::Method::POST, "/api/v1/pods", None);
        let caller = Caller::new(Arc::new(crate::auth::User::administrator()), Arc::new(info));
        let request = RequestCost::of(&caller);
        assert_eq!(request.spend(2 * SLOW_COST), Ok(()));
        assert!(!request.needs_time());
        caller.must_be_brief.store(true, Ordering::Relaxed);
        let request = RequestCost::of(&caller);
        assert_eq!(request.spend(SLOW_COST), Ok(()));
        assert!(!request.needs_time());
        assert_eq!(request.spend(1), Err(OutOfBudget));
        assert!(request.needs_time());
    }
}
