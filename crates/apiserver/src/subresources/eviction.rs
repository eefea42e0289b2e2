//! `pods/eviction`: a deletion that respects disruption budgets.

use serde_json::{Value, json};

use windlass_api::{conditions, labels};

use super::{SubresourceRequest, created_status};
use crate::{
    environment::Environment,
    object::{Object, set_condition},
    object_store::ObjectStore,
    request::{Query, Target},
    status::Status,
    verbs::{Answer, DeleteOptions, Generation, WriteOptions, WriteVerbs, set_managed_fields_on_update},
};

/// The maximum number of unconfirmed evictions of a budget.
const MAX_DISRUPTED_PODS: usize = 2000;

pub(super) fn evict(
    writes: &WriteVerbs,
    request: SubresourceRequest<'_>,
    eviction: &Value,
) -> Result<Answer, Status> {
    let SubresourceRequest { target, options } = request;
    request.check_name(eviction, "Eviction")?;
    let mut deletion = DeleteOptions::from_request(&Query::default(), eviction.get("deleteOptions"))?;
    deletion.dry_run |= options.dry_run;
    let pod = writes.store.current(target)?.object.decode()?;
    if !ignores_budgets(&pod) {
        consume_disruption_budget(writes, target, &pod, deletion.dry_run)?;
    }
    if !deletion.dry_run {
        writes.modify(target, options, Generation::Keep, |pod| {
            pod.set_condition(json!({
                "type": "DisruptionTarget",
                "status": "True",
                "lastProbeTime": null,
                "lastTransitionTime": writes.store.environment.now_rfc3339(),
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }));
            Ok(())
        })?;
    }
    writes.delete(
        &Target {
            subresource: "".into(),
            ..target.clone()
        },
        &deletion,
    )?;
    Ok(Answer::from_value(201, &created_status()))
}

/// The size of what an eviction reads besides the pod, in bytes.
pub(super) fn budget_bytes(store: &ObjectStore, target: &Target) -> usize {
    let budgets = store.snapshot(&budgets_of(store, target), None);
    budgets.map_or(0, |budgets| {
        let entries = budgets.range(Some(&target.namespace), None);
        entries.map(|entry| entry.object.json().len()).sum()
    })
}

/// The budgets in the pod's namespace.
fn budgets_of(store: &ObjectStore, pod: &Target) -> Target {
    let catalogue = store.registry.catalogue();
    let resource = catalogue
        .find("policy", "v1", "poddisruptionbudgets")
        .expect("built in");
    Target {
        resource: resource.clone(),
        namespace: pod.namespace.clone(),
        name: "".into(),
        subresource: "".into(),
    }
}

/// Consumes one allowed disruption of the budget that covers the pod.
fn consume_disruption_budget(
    writes: &WriteVerbs,
    target: &Target,
    pod: &Object,
    dry_run: bool,
) -> Result<(), Status> {
    let budgets = budgets_of(&writes.store, target);
    let labels: Vec<(&str, &str)> = pod.labels().collect();
    let covers = |budget: &Object| {
        let selector = budget
            .fields()
            .get("spec")
            .map_or(&Value::Null, |spec| &spec["selector"]);
        selector.is_object() && labels::Selector::from_json(selector).matches(|key| find_label(&labels, key))
    };
    let snapshot = writes.store.snapshot(&budgets, None)?;
    let mut covering = snapshot
        .range(Some(&target.namespace), None)
        .filter_map(|entry| entry.object.decode().ok())
        .filter(covers);
    let Some(budget) = covering.next() else {
        return Ok(());
    };
    if covering.next().is_some() {
        return Err(Status::multiple_budgets());
    }
    if is_free_eviction(pod, &budget) {
        return Ok(());
    }
    let one = Target {
        name: budget.name().into(),
        subresource: "status".into(),
        ..budgets
    };
    let options = WriteOptions {
        dry_run,
        ..WriteOptions::internal()
    };
    writes.modify(&one, &options, Generation::Keep, |budget| {
        let before = budget.clone();
        decrement_disruptions_allowed(&writes.store.environment, budget, &target.name)?;
        set_managed_fields_on_update(&writes.store, &one.resource, "status", &options, budget, &before)
    })?;
    Ok(())
}

fn decrement_disruptions_allowed(
    environment: &Environment,
    budget: &mut Object,
    pod: &str,
) -> Result<(), Status> {
    let name = budget.name().to_owned();
    let generation = budget
        .metadata()
        .get("generation")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let status = budget.fields_mut().entry("status").or_insert_with(|| json!({}));
    let number = |key: &str| status[key].as_i64().unwrap_or(0);
    if number("observedGeneration") < generation {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(Status::eviction_refused(&why, Some(10)));
    }
    if status["disruptedPods"]
        .as_object()
        .is_some_and(|pods| pods.len() > MAX_DISRUPTED_PODS)
    {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::eviction_refused(why, None));
    }
    let allowed = number("disruptionsAllowed");
    if allowed <= 0 {
        return Err(Status::eviction_refused(&blocked_message(&name, status), None));
    }
    status["disruptionsAllowed"] = (allowed - 1).into();
    status["disruptedPods"][pod] = environment.now_rfc3339().into();
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": number_of(status, "observedGeneration"),
            "lastTransitionTime": environment.now_rfc3339(),
            "reason": "InsufficientPods",
            "message": "",
        });
        set_condition(status, condition);
    }
    Ok(())
}

/// Whether a pod can be evicted regardless of budgets: it is not running, or is being deleted.
fn ignores_budgets(pod: &Object) -> bool {
    pod.is_deleting() || matches!(&*pod.text_at("status.phase"), "Succeeded" | "Failed" | "Pending")
}

/// Whether a pod's eviction consumes no disruption: it is not ready, and the policy is `AlwaysAllow` or enough other pods
/// are healthy.
fn is_free_eviction(pod: &Object, budget: &Object) -> bool {
    let at = |key: &str| budget.fields().get(key).unwrap_or(&Value::Null);
    let (spec, status) = (at("spec"), at("status"));
    let desired = number_of(status, "desiredHealthy");
    let broken = desired <= 0 || number_of(status, "currentHealthy") < desired;
    !is_ready(pod) && (spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || !broken)
}

fn is_ready(pod: &Object) -> bool {
    let status = pod.fields().get("status");
    let conditions = status.and_then(|status| status["conditions"].as_array());
    conditions.is_some_and(|conditions| conditions::is_true(conditions, "Ready"))
}

fn blocked_message(name: &str, status: &Value) -> String {
    let conditions = status["conditions"].as_array();
    let condition = conditions
        .and_then(|conditions| conditions::find(conditions, "DisruptionAllowed"))
        .filter(|condition| condition["status"] == "False" && condition["message"] != "");
    let text = |key: &str| condition.and_then(|c| c[key].as_str()).unwrap_or_default();
    let (healthy, desired) = (
        number_of(status, "currentHealthy"),
        number_of(status, "desiredHealthy"),
    );
    match condition {
        Some(_) if text("reason") == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            text("message")
        ),
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some(_) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            text("reason"),
            text("message")
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

fn number_of(status: &Value, key: &str) -> i64 {
    status[key].as_i64().unwrap_or(0)
}

fn find_label<'a>(labels: &[(&'a str, &'a str)], key: &str) -> Option<&'a str> {
    labels
        .iter()
        .find(|(name, _)| *name == key)
        .map(|(_, value)| *value)
}
