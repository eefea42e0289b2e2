//! Resource requests and limits of containers and pods.

use std::collections::HashMap;

use serde_json::{Value, json};
use windlass_api::naming;

use super::{
    super::super::{
        duplicates::Duplicates,
        error_list::{ErrorList, entries, list, text},
        quota,
    },
    Pod,
};
use crate::{
    field_path::FieldPath,
    schema::{Problem, quantity},
};

/// The container resources without a domain prefix.
const CONTAINER_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// Validates the resources of one container.
pub(super) fn check(resources: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    check_requests_and_limits(resources, path, check_container_name, errors);
}

/// Validates the resources of the pod against those of its containers.
pub(super) fn check_pod(pod: &Pod<'_>, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let resources = &pod.spec["resources"];
    if resources.is_null() {
        return;
    }
    if pod.is_windows() {
        errors.forbidden(path, "may not be set for a windows pod");
        return;
    }
    check_requests_and_limits(resources, path, check_pod_name, errors);
    let containers = list(&pod.spec["containers"]);
    let mut requests: HashMap<&str, i128> = HashMap::new();
    for (name, amount) in containers
        .iter()
        .flat_map(|container| entries(&container["resources"]["requests"]))
    {
        *requests.entry(name).or_default() += quantity::nanos(amount).unwrap_or(0);
    }
    for (name, most) in entries(&resources["requests"]) {
        let asked = requests.get(name.as_str()).copied().unwrap_or(0);
        if quantity::nanos(most).is_some_and(|most| asked > most) {
            let shown = quantity::canonical(&json!(format!("{asked}n"))).unwrap_or_default();
            let why = format!("must be greater than or equal to aggregate container requests of {shown}");
            errors.invalid(path.child("requests").key(name), most.clone(), &why);
        }
    }
    let place = path.child("containers");
    for (index, container) in containers.iter().enumerate() {
        for (name, own) in entries(&container["resources"]["limits"]) {
            let most = &resources["limits"][name];
            if !own.is_null() && !most.is_null() && quantity::nanos(own) > quantity::nanos(most) {
                let why = format!("must be less than or equal to pod limits of {}", text(most));
                let field = place.index(index);
                let field = field.key(name);
                errors.invalid(field.child("limits"), own.clone(), &why);
            }
        }
    }
}

type NameRule = fn(&str, &FieldPath<'_>, &mut ErrorList);

fn check_requests_and_limits(
    resources: &Value,
    path: &FieldPath<'_>,
    rule: NameRule,
    errors: &mut ErrorList,
) {
    let (limits, requests) = (&resources["limits"], &resources["requests"]);
    for (name, amount) in entries(limits) {
        let field = path.child("limits");
        let field = field.key(name);
        rule(name, &field, errors);
        check_quantity(name, amount, &field, errors);
        check_huge_pages(name, amount, &field, errors);
    }
    for (name, amount) in entries(requests) {
        let field = path.child("requests");
        let field = field.key(name);
        rule(name, &field, errors);
        check_quantity(name, amount, &field, errors);
        let shareable = !name.contains('/') && !is_huge_pages(name);
        let (asked, limit) = (quantity::nanos(amount), &limits[name]);
        if limit.is_null() {
            // Resources that cannot be overcommitted need a limit equal to the request.
            if !shareable {
                let why = "Limit must be set for non overcommitable resources";
                errors.required(path.child("limits"), why);
            }
        } else if asked != quantity::nanos(limit) && !shareable {
            let why = format!("must be equal to {name} limit of {}", text(limit));
            errors.invalid(path.child("requests"), amount.clone(), &why);
        } else if asked > quantity::nanos(limit) {
            let why = format!("must be less than or equal to {name} limit of {}", text(limit));
            errors.invalid(path.child("requests"), amount.clone(), &why);
        }
        check_huge_pages(name, amount, &field, errors);
    }
    let asks = |wanted: fn(&str) -> bool| {
        entries(limits)
            .chain(entries(requests))
            .any(|(name, _)| wanted(name))
    };
    if asks(is_huge_pages) && !asks(|name| matches!(name, "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Validates a resource name.
pub(in crate::kinds) fn check_name(name: &str, field: &FieldPath<'_>, errors: &mut ErrorList) {
    let problems = naming::qualified(name);
    if !problems.is_empty() {
        errors.invalid_each(field, name, problems);
    } else if !name.contains('/') && !is_huge_pages(name) && !quota::is_standard(name) {
        errors.invalid(field, name, "must be a standard resource type or fully qualified");
    }
}

/// Validates the pod overhead of a runtime class.
pub(in crate::kinds) fn check_overhead(amounts: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    for (name, amount) in entries(amounts) {
        let field = path.key(name);
        check_container_name(name, &field, errors);
        check_quantity(name, amount, &field, errors);
    }
}

/// Validates the name of a container resource.
pub(in crate::kinds) fn check_container_name(name: &str, field: &FieldPath<'_>, errors: &mut ErrorList) {
    check_name(name, field, errors);
    if !name.contains('/') {
        if !is_huge_pages(name) && !CONTAINER_RESOURCES.contains(&name) {
            errors.invalid(field, name, "must be a standard resource for containers");
        }
    } else if !name.contains("kubernetes.io/") && !is_extended(name) {
        errors.invalid(field, name, "doesn't follow extended resource name standard");
    }
}

/// An extended resource, which a quota can count as `requests.NAME`.
fn is_extended(name: &str) -> bool {
    !name.starts_with("requests.") && naming::qualified(name).is_empty() && name.len() <= 253 + 64 - 9
}

fn check_pod_name(name: &str, field: &FieldPath<'_>, errors: &mut ErrorList) {
    let before = errors.len();
    check_name(name, field, errors);
    if errors.len() == before && !is_huge_pages(name) && !matches!(name, "cpu" | "memory") {
        let choices = ["cpu", "hugepages-", "memory"].map(Value::from).into();
        errors.add(field, Problem::NotSupported(name.into(), choices));
    }
}

fn check_quantity(name: &str, amount: &Value, field: &FieldPath<'_>, errors: &mut ErrorList) {
    let nanos = quantity::nanos(amount).unwrap_or(0);
    if nanos < 0 {
        errors.invalid(field, amount.clone(), "must be greater than or equal to 0");
    }
    if name.contains('/') && !name.contains("kubernetes.io/") && nanos % NANOS_PER_UNIT != 0 {
        errors.invalid(field, amount.clone(), "must be an integer");
    }
}

/// The amount must be a multiple of the page size.
fn check_huge_pages(name: &str, amount: &Value, field: &FieldPath<'_>, errors: &mut ErrorList) {
    let Some(size) = name.strip_prefix("hugepages-") else {
        return;
    };
    let (size, asked) = (quantity::nanos(&json!(size)), quantity::nanos(amount));
    let whole =
        matches!((size, asked), (Some(size), Some(asked)) if size > 0 && asked > 0 && asked % size == 0);
    if !whole {
        let why = format!("{} is not positive integer multiple of {name}", text(amount));
        errors.invalid(field, amount.clone(), &why);
    }
}

/// Validates the resize policy.
pub(super) fn check_resize_policy(
    pod: &Pod<'_>,
    container: &Value,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    let policies = list(&container["resizePolicy"]);
    let repeats = Duplicates::by_field(policies, "resourceName");
    for (index, policy) in policies.iter().enumerate() {
        let (resource, restart) = (&policy["resourceName"], &policy["restartPolicy"]);
        if repeats.contains(index) {
            errors.duplicate(path.index(index), text(resource));
        }
        errors.one_of_required(path, resource, &["cpu", "memory"]);
        errors.one_of_required(path, restart, &["NotRequired", "RestartContainer"]);
        if pod.spec["restartPolicy"] == "Never" && *restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, text(restart), why);
        }
    }
}
