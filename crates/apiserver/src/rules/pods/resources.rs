//! What containers and pods ask for and may use.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{
    super::{
        findings::{Findings, entries, list, text},
        quota,
        repeats::Repeats,
    },
    Pod,
};
use crate::{
    naming,
    schema::{Problem, quantity},
    trail::Trail,
};

/// The resources that a container may ask for without a domain in their name.
const CONTAINER: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

const ONE: i128 = 1_000_000_000;

/// The amounts of one container.
pub(super) fn check(resources: &Value, path: &Trail<'_>, findings: &mut Findings) {
    check_amounts(resources, path, check_container_name, findings);
}

/// The amounts of all containers together.
pub(super) fn check_pod(pod: &Pod<'_>, path: &Trail<'_>, findings: &mut Findings) {
    let resources = &pod.spec["resources"];
    if resources.is_null() {
        return;
    }
    if pod.is_windows() {
        findings.forbidden(path, "may not be set for a windows pod");
        return;
    }
    check_amounts(resources, path, check_pod_name, findings);
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
            findings.invalid(path.at("requests").entry(name), most.clone(), &why);
        }
    }
    let place = path.at("containers");
    for (index, container) in containers.iter().enumerate() {
        for (name, own) in entries(&container["resources"]["limits"]) {
            let most = &resources["limits"][name];
            if !own.is_null() && !most.is_null() && quantity::nanos(own) > quantity::nanos(most) {
                let why = format!("must be less than or equal to pod limits of {}", text(most));
                let field = place.item(index);
                let field = field.entry(name);
                findings.invalid(field.at("limits"), own.clone(), &why);
            }
        }
    }
}

type NameRule = fn(&str, &Trail<'_>, &mut Findings);

fn check_amounts(resources: &Value, path: &Trail<'_>, rule: NameRule, findings: &mut Findings) {
    let (limits, requests) = (&resources["limits"], &resources["requests"]);
    for (name, amount) in entries(limits) {
        let field = path.at("limits");
        let field = field.entry(name);
        rule(name, &field, findings);
        check_amount(name, amount, &field, findings);
        check_huge(name, amount, &field, findings);
    }
    for (name, amount) in entries(requests) {
        let field = path.at("requests");
        let field = field.entry(name);
        rule(name, &field, findings);
        check_amount(name, amount, &field, findings);
        let shareable = !name.contains('/') && !is_huge(name);
        let (asked, limit) = (quantity::nanos(amount), &limits[name]);
        if limit.is_null() {
            // What cannot be shared is asked for in full.
            if !shareable {
                let why = "Limit must be set for non overcommitable resources";
                findings.required(path.at("limits"), why);
            }
        } else if asked != quantity::nanos(limit) && !shareable {
            let why = format!("must be equal to {name} limit of {}", text(limit));
            findings.invalid(path.at("requests"), amount.clone(), &why);
        } else if asked > quantity::nanos(limit) {
            let why = format!("must be less than or equal to {name} limit of {}", text(limit));
            findings.invalid(path.at("requests"), amount.clone(), &why);
        }
        check_huge(name, amount, &field, findings);
    }
    let asks = |wanted: fn(&str) -> bool| {
        entries(limits)
            .chain(entries(requests))
            .any(|(name, _)| wanted(name))
    };
    if asks(is_huge) && !asks(|name| matches!(name, "cpu" | "memory")) {
        findings.forbidden(path, "HugePages require cpu or memory");
    }
}

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// What a resource may be called anywhere.
pub(in super::super) fn check_name(name: &str, field: &Trail<'_>, findings: &mut Findings) {
    let problems = naming::qualified(name);
    if !problems.is_empty() {
        findings.named(field, name, problems);
    } else if !name.contains('/') && !is_huge(name) && !quota::is_standard(name) {
        findings.invalid(field, name, "must be a standard resource type or fully qualified");
    }
}

/// What a class of runtimes costs each pod.
pub(in super::super) fn check_overhead(amounts: &Value, path: &Trail<'_>, findings: &mut Findings) {
    for (name, amount) in entries(amounts) {
        let field = path.entry(name);
        check_container_name(name, &field, findings);
        check_amount(name, amount, &field, findings);
    }
}

/// What a container may ask for.
pub(in super::super) fn check_container_name(name: &str, field: &Trail<'_>, findings: &mut Findings) {
    check_name(name, field, findings);
    if !name.contains('/') {
        if !is_huge(name) && !CONTAINER.contains(&name) {
            findings.invalid(field, name, "must be a standard resource for containers");
        }
    } else if !name.contains("kubernetes.io/") && !is_extended(name) {
        findings.invalid(field, name, "doesn't follow extended resource name standard");
    }
}

/// A resource of somebody else's, which a quota can count as `requests.NAME`.
fn is_extended(name: &str) -> bool {
    !name.starts_with("requests.") && naming::qualified(name).is_empty() && name.len() <= 253 + 64 - 9
}

fn check_pod_name(name: &str, field: &Trail<'_>, findings: &mut Findings) {
    let before = findings.count();
    check_name(name, field, findings);
    if findings.count() == before && !is_huge(name) && !matches!(name, "cpu" | "memory") {
        let choices = ["cpu", "hugepages-", "memory"].map(Value::from).into();
        findings.add(field, Problem::NotSupported(name.into(), choices));
    }
}

fn check_amount(name: &str, amount: &Value, field: &Trail<'_>, findings: &mut Findings) {
    let nanos = quantity::nanos(amount).unwrap_or(0);
    if nanos < 0 {
        findings.invalid(field, amount.clone(), "must be greater than or equal to 0");
    }
    if name.contains('/') && !name.contains("kubernetes.io/") && nanos % ONE != 0 {
        findings.invalid(field, amount.clone(), "must be an integer");
    }
}

/// Huge pages come whole.
fn check_huge(name: &str, amount: &Value, field: &Trail<'_>, findings: &mut Findings) {
    let Some(size) = name.strip_prefix("hugepages-") else {
        return;
    };
    let (size, asked) = (quantity::nanos(&json!(size)), quantity::nanos(amount));
    let whole =
        matches!((size, asked), (Some(size), Some(asked)) if size > 0 && asked > 0 && asked % size == 0);
    if !whole {
        let why = format!("{} is not positive integer multiple of {name}", text(amount));
        findings.invalid(field, amount.clone(), &why);
    }
}

/// What becomes of a container whose amounts change.
pub(super) fn check_resizing(pod: &Pod<'_>, container: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let policies = list(&container["resizePolicy"]);
    let repeats = Repeats::of_field(policies, "resourceName");
    for (index, policy) in policies.iter().enumerate() {
        let (resource, restart) = (&policy["resourceName"], &policy["restartPolicy"]);
        if repeats.has(index) {
            findings.duplicate(path.item(index), text(resource));
        }
        findings.one_of_required(path, resource, &["cpu", "memory"]);
        findings.one_of_required(path, restart, &["NotRequired", "RestartContainer"]);
        if pod.spec["restartPolicy"] == "Never" && *restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            findings.invalid(path, text(restart), why);
        }
    }
}
