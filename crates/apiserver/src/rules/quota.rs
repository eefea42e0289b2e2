//! How much a namespace, and each thing in it, may use.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    findings::{Findings, entries, list, text},
    pods,
    repeats::Repeats,
};
use crate::{
    internals, naming,
    schema::{Problem, quantity},
    trail::Trail,
};

const SCOPES: [&str; 6] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
];

/// Scopes of which one excludes the other.
const EXCLUSIVE: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

/// What is counted whole.
const WHOLE: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// What a quota can be set on without a domain in its name, besides what is counted whole.
const MEASURED: [&str; 11] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
];

pub(super) fn check(spec: &Value, findings: &mut Findings) {
    let path = Trail::from_root("spec.hard");
    for (name, amount) in entries(&spec["hard"]) {
        let field = path.entry(name);
        pods::check_resource_name(name, &field, findings);
        if !name.contains('/') && !is_known(name) {
            findings.invalid(field, name.as_str(), "must be a standard resource for quota");
        }
        let nanos = quantity::nanos(amount).unwrap_or(0);
        if nanos < 0 {
            findings.invalid(field, amount.clone(), "must be greater than or equal to 0");
        }
        let extended = name.contains('/')
            && !name.contains("kubernetes.io/")
            && !name.starts_with("count/")
            && !name.starts_with("requests.")
            && !name.contains(".storageclass.storage.k8s.io/");
        if (WHOLE.contains(&name.as_str()) || extended) && nanos % 1_000_000_000 != 0 {
            findings.invalid(field, amount.clone(), "must be an integer");
        }
    }
    check_scopes(spec, findings);
    check_selector(spec, findings);
}

/// Whether somebody may count it without a domain in its name, be it in a quota or not.
pub(super) fn is_standard(name: &str) -> bool {
    MEASURED.contains(&name) || (WHOLE.contains(&name) && name != "services.loadbalancers")
}

fn is_known(name: &str) -> bool {
    WHOLE.contains(&name) || MEASURED.contains(&name) || name.contains("hugepages-")
}

/// Whether a resource can be counted for pods of a scope.
fn counts(scope: &str, name: &str) -> bool {
    let of_pods = [
        "pods",
        "cpu",
        "memory",
        "requests.cpu",
        "requests.memory",
        "limits.cpu",
        "limits.memory",
    ];
    match scope {
        "BestEffort" => name == "pods",
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => of_pods.contains(&name) || name.contains("ephemeral-storage"),
        _ => true,
    }
}

/// How many of a quota's resources cannot be counted, by scope.
fn uncounted(spec: &Value) -> HashMap<&'static str, usize> {
    let known: Vec<_> = entries(&spec["hard"])
        .map(|(name, _)| name)
        .filter(|name| is_known(name))
        .collect();
    let count = |scope: &'static str| {
        let names = known.iter().filter(|name| !counts(scope, name));
        (scope, names.count())
    };
    SCOPES.into_iter().map(count).collect()
}

fn check_scopes(spec: &Value, findings: &mut Findings) {
    let (scopes, field) = (list(&spec["scopes"]), "spec.scopes");
    let uncounted = uncounted(spec);
    for scope in scopes {
        if !SCOPES.contains(&text(scope)) {
            findings.invalid_list(field, scopes, "unsupported scope");
        }
        for _ in 0..uncounted.get(text(scope)).copied().unwrap_or(0) {
            if !findings.may_quote(scopes.len()) {
                break;
            }
            findings.invalid(field, scopes.to_vec(), "unsupported scope applied to resource");
        }
    }
    for pair in EXCLUSIVE {
        if pair.iter().all(|scope| scopes.iter().any(|given| given == scope)) {
            findings.invalid_list(field, scopes, "conflicting scopes");
        }
    }
}

fn check_selector(spec: &Value, findings: &mut Findings) {
    let path = Trail::from_root("spec.scopeSelector.matchExpressions");
    let uncounted = uncounted(spec);
    let terms = list(&spec["scopeSelector"]["matchExpressions"]);
    for term in terms {
        let (scope, operator) = (text(&term["scopeName"]), text(&term["operator"]));
        let values = list(&term["values"]);
        if !SCOPES.contains(&scope) {
            findings.invalid(path.at("scopeName"), scope, "unsupported scope");
        }
        for _ in 0..uncounted.get(scope).copied().unwrap_or(0) {
            if !findings.may_quote(terms.len()) {
                break;
            }
            let shown = internals::shown("ScopeSelector", &spec["scopeSelector"]);
            let why = "unsupported scope applied to resource".to_owned();
            findings.add(path, Problem::InvalidText(shown, why));
        }
        if SCOPES.contains(&scope) && scope != "PriorityClass" && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            findings.invalid(path.at("operator"), operator, why);
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                findings.required(path.at("values"), why);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                findings.invalid(path.at("values"), values.to_vec(), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => findings.invalid(path.at("operator"), operator, "not a valid selector operator"),
        }
    }
}

pub(super) fn check_limits(spec: &Value, findings: &mut Findings) {
    let (limits, path) = (list(&spec["limits"]), Trail::from_root("spec.limits"));
    let repeats = Repeats::of_field(limits, "type");
    for (index, limit) in limits.iter().enumerate() {
        let path = path.item(index);
        let kind = text(&limit["type"]);
        let problems = naming::qualified(kind);
        let known = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
        if problems.is_empty() && !kind.contains('/') && !known {
            let why = "must be a standard limit type or fully qualified";
            findings.invalid(path.at("type"), kind, why);
        }
        findings.named(path.at("type"), kind, problems);
        if repeats.has(index) {
            findings.duplicate(path.at("type"), kind);
        }
        check_names(limit, kind, &path, findings);
        check_order(limit, kind, &path, findings);
    }
}

fn check_names(limit: &Value, kind: &str, path: &Trail<'_>, findings: &mut Findings) {
    let names = |key: &str, findings: &mut Findings| {
        let path = path.at(key);
        for (name, _) in entries(&limit[key]) {
            if matches!(kind, "Pod" | "Container") {
                pods::check_container_resource(name, &path.entry(name), findings);
            } else {
                pods::check_resource_name(name, &path.entry(name), findings);
            }
        }
    };
    names("max", findings);
    names("min", findings);
    for key in ["default", "defaultRequest"] {
        if kind != "Pod" {
            names(key, findings);
        } else if entries(&limit[key]).next().is_some() {
            findings.forbidden(path.at(key), "may not be specified when `type` is 'Pod'");
        }
    }
    if kind == "PersistentVolumeClaim"
        && limit["min"].get("storage").is_none()
        && limit["max"].get("storage").is_none()
    {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        findings.required(path.at("limits"), why);
    }
    names("maxLimitRequestRatio", findings);
}

/// At least this, usually that, at most so much.
fn check_order(limit: &Value, kind: &str, path: &Trail<'_>, findings: &mut Findings) {
    let (least, usual, request, most) = ("min", "default", "defaultRequest", "max");
    // The smaller, the larger, where it is told and with whose value, and what they are called.
    let pairs = [
        (least, most, least, least, ["min", "max"]),
        (least, request, request, request, ["min", "default request"]),
        (request, most, request, request, ["default request", "max"]),
        (
            request,
            usual,
            request,
            request,
            ["default request", "default limit"],
        ),
        (least, usual, usual, least, ["min", "default"]),
        (usual, most, usual, most, ["default", "max"]),
    ];
    let mut names: Vec<&String> = [least, most, usual, request, "maxLimitRequestRatio"]
        .iter()
        .flat_map(|key| entries(&limit[*key]))
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        for (small, large, place, shown, [first, second]) in pairs {
            let (low, high) = (&limit[small][name], &limit[large][name]);
            let skipped = kind == "Pod" && [small, large].iter().any(|key| key.starts_with("default"));
            let (Some(a), Some(b)) = (quantity::nanos(low), quantity::nanos(high)) else {
                continue;
            };
            if a > b && !skipped {
                let why = format!(
                    "{first} value {} is greater than {second} value {}",
                    text(low),
                    text(high)
                );
                findings.invalid(path.at(place).entry(name), limit[shown][name].clone(), &why);
            }
        }
        let ratio = &limit["maxLimitRequestRatio"][name];
        if quantity::nanos(ratio).is_some_and(|nanos| nanos < 1_000_000_000) {
            let why = format!("ratio {} is less than 1", text(ratio));
            findings.invalid(path.at("maxLimitRequestRatio").entry(name), ratio.clone(), &why);
        }
    }
}
