//! Resource quotas and limit ranges.

use std::collections::HashMap;

use serde_json::{Value, json};
use windlass_api::naming;

use super::{
    defaulting::{items, set_if_absent},
    duplicates::Duplicates,
    error_list::{ErrorList, entries, list, text},
    pod::validation::{check_container_resource, check_resource_name},
    row::Row,
    strategy::{Facts, MetadataChecks, Strategy, Write},
};
use crate::{
    field_path::FieldPath,
    internal_types,
    object::Object,
    schema::{Problem, quantity},
};

pub(super) struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn facts(&self) -> Facts {
        Facts {
            metadata_checks: MetadataChecks::THREE,
            immutable_fields: &["spec.scopes"],
            columns: Some("Name Request Limit Age"),
            ..Facts::RETURNS_DELETED
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check_quota(write.spec(), errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let [requests, limits] = quota_columns(row.object);
        vec![row.name(), requests, limits, row.age()]
    }
}

pub(super) struct LimitRange;

impl Strategy for LimitRange {
    fn facts(&self) -> Facts {
        Facts {
            create_on_update: true,
            metadata_checks: MetadataChecks::THREE,
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, range: &mut Object) {
        fill_limits(range.tree_mut());
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check_limits(write.spec(), errors);
    }
}

/// A limit range's defaults derive from its bounds.
fn fill_limits(range: &mut Value) {
    for limit in items(&mut range["spec"], "limits").filter(|limit| limit["type"] == "Container") {
        for (from, to) in [
            ("max", "default"),
            ("default", "defaultRequest"),
            ("min", "defaultRequest"),
        ] {
            let Some(amounts) = limit.get(from).and_then(Value::as_object).cloned() else {
                continue;
            };
            set_if_absent(limit, to, json!({}));
            for (resource, amount) in amounts {
                set_if_absent(&mut limit[to], &resource, amount);
            }
        }
    }
}

const SCOPES: [&str; 6] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
];

/// Mutually exclusive scopes.
const EXCLUSIVE: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

/// Resources counted in whole numbers.
const INTEGER_RESOURCES: [&str; 9] = [
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

/// Further resources that a quota may name without a domain prefix.
const QUANTITY_RESOURCES: [&str; 11] = [
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

fn check_quota(spec: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec.hard");
    for (name, amount) in entries(&spec["hard"]) {
        let field = path.key(name);
        check_resource_name(name, &field, errors);
        if !name.contains('/') && !is_known(name) {
            errors.invalid(field, name.as_str(), "must be a standard resource for quota");
        }
        let nanos = quantity::nanos(amount).unwrap_or(0);
        if nanos < 0 {
            errors.invalid(field, amount.clone(), "must be greater than or equal to 0");
        }
        let extended = name.contains('/')
            && !name.contains("kubernetes.io/")
            && !name.starts_with("count/")
            && !name.starts_with("requests.")
            && !name.contains(".storageclass.storage.k8s.io/");
        if (INTEGER_RESOURCES.contains(&name.as_str()) || extended) && nanos % 1_000_000_000 != 0 {
            errors.invalid(field, amount.clone(), "must be an integer");
        }
    }
    check_scopes(spec, errors);
    check_selector(spec, errors);
}

/// Whether a resource name needs no domain prefix, in a quota or elsewhere.
pub(super) fn is_standard(name: &str) -> bool {
    QUANTITY_RESOURCES.contains(&name)
        || (INTEGER_RESOURCES.contains(&name) && name != "services.loadbalancers")
}

fn is_known(name: &str) -> bool {
    INTEGER_RESOURCES.contains(&name) || QUANTITY_RESOURCES.contains(&name) || name.contains("hugepages-")
}

/// Whether a quota with this scope can count a resource.
fn scope_counts(scope: &str, name: &str) -> bool {
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

/// For each scope, how many of a quota's resources it cannot count.
fn uncountable_by_scope(spec: &Value) -> HashMap<&'static str, usize> {
    let known: Vec<_> = entries(&spec["hard"])
        .map(|(name, _)| name)
        .filter(|name| is_known(name))
        .collect();
    let count = |scope: &'static str| {
        let names = known.iter().filter(|name| !scope_counts(scope, name));
        (scope, names.count())
    };
    SCOPES.into_iter().map(count).collect()
}

fn check_scopes(spec: &Value, errors: &mut ErrorList) {
    let (scopes, field) = (list(&spec["scopes"]), "spec.scopes");
    let uncounted = uncountable_by_scope(spec);
    for scope in scopes {
        if !SCOPES.contains(&text(scope)) {
            errors.invalid_list(field, scopes, "unsupported scope");
        }
        for _ in 0..uncounted.get(text(scope)).copied().unwrap_or(0) {
            if !errors.try_quote(scopes.len()) {
                break;
            }
            errors.invalid(field, scopes.to_vec(), "unsupported scope applied to resource");
        }
    }
    for pair in EXCLUSIVE {
        if pair.iter().all(|scope| scopes.iter().any(|given| given == scope)) {
            errors.invalid_list(field, scopes, "conflicting scopes");
        }
    }
}

fn check_selector(spec: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec.scopeSelector.matchExpressions");
    let uncounted = uncountable_by_scope(spec);
    let terms = list(&spec["scopeSelector"]["matchExpressions"]);
    for term in terms {
        let (scope, operator) = (text(&term["scopeName"]), text(&term["operator"]));
        let values = list(&term["values"]);
        if !SCOPES.contains(&scope) {
            errors.invalid(path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in 0..uncounted.get(scope).copied().unwrap_or(0) {
            if !errors.try_quote(terms.len()) {
                break;
            }
            let shown = internal_types::format_as_struct("ScopeSelector", &spec["scopeSelector"]);
            let why = "unsupported scope applied to resource".to_owned();
            errors.add(path, Problem::InvalidText(shown, why));
        }
        if SCOPES.contains(&scope) && scope != "PriorityClass" && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(path.child("operator"), operator, why);
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(path.child("values"), why);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(path.child("values"), values.to_vec(), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid(path.child("operator"), operator, "not a valid selector operator"),
        }
    }
}

fn check_limits(spec: &Value, errors: &mut ErrorList) {
    let (limits, path) = (list(&spec["limits"]), FieldPath::from_root("spec.limits"));
    let repeats = Duplicates::by_field(limits, "type");
    for (index, limit) in limits.iter().enumerate() {
        let path = path.index(index);
        let kind = text(&limit["type"]);
        let problems = naming::qualified(kind);
        let known = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
        if problems.is_empty() && !kind.contains('/') && !known {
            let why = "must be a standard limit type or fully qualified";
            errors.invalid(path.child("type"), kind, why);
        }
        errors.invalid_each(path.child("type"), kind, problems);
        if repeats.contains(index) {
            errors.duplicate(path.child("type"), kind);
        }
        check_names(limit, kind, &path, errors);
        check_order(limit, kind, &path, errors);
    }
}

fn check_names(limit: &Value, kind: &str, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let names = |key: &str, errors: &mut ErrorList| {
        let path = path.child(key);
        for (name, _) in entries(&limit[key]) {
            if matches!(kind, "Pod" | "Container") {
                check_container_resource(name, &path.key(name), errors);
            } else {
                check_resource_name(name, &path.key(name), errors);
            }
        }
    };
    names("max", errors);
    names("min", errors);
    for key in ["default", "defaultRequest"] {
        if kind != "Pod" {
            names(key, errors);
        } else if entries(&limit[key]).next().is_some() {
            errors.forbidden(path.child(key), "may not be specified when `type` is 'Pod'");
        }
    }
    if kind == "PersistentVolumeClaim"
        && limit["min"].get("storage").is_none()
        && limit["max"].get("storage").is_none()
    {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(path.child("limits"), why);
    }
    names("maxLimitRequestRatio", errors);
}

/// Checks that minimum, defaults and maximum are in order.
fn check_order(limit: &Value, kind: &str, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (least, usual, request, most) = ("min", "default", "defaultRequest", "max");
    // The smaller, the larger, the field of the error, the field of its value, and their names in the message.
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
                errors.invalid(path.child(place).key(name), limit[shown][name].clone(), &why);
            }
        }
        let ratio = &limit["maxLimitRequestRatio"][name];
        if quantity::nanos(ratio).is_some_and(|nanos| nanos < 1_000_000_000) {
            let why = format!("ratio {} is less than 1", text(ratio));
            errors.invalid(path.child("maxLimitRequestRatio").key(name), ratio.clone(), &why);
        }
    }
}

/// Used and allowed amounts (`cpu: 1/2, pods: 0/5`) of requests and of limits.
fn quota_columns(object: &Value) -> [Value; 2] {
    let status = &object["status"];
    let mut names: Vec<_> = status["hard"]
        .as_object()
        .into_iter()
        .flat_map(|hard| hard.keys())
        .collect();
    names.sort_unstable();
    [false, true].map(|limits| {
        let shown = names
            .iter()
            .filter(|name| name.starts_with("limits.") == limits)
            .map(|name| {
                let of = |part: &str| status[part][name.as_str()].as_str().unwrap_or("0").to_owned();
                format!("{name}: {}/{}", of("used"), of("hard"))
            });
        shown.collect::<Vec<_>>().join(", ").into()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_separate_and_names_are_sorted() {
        let quota = json!({"status": {
            "hard": {"pods": "5", "cpu": "2", "limits.cpu": "4"},
            "used": {"cpu": "1", "limits.cpu": "3"},
        }});
        assert_eq!(
            quota_columns(&quota),
            [json!("cpu: 1/2, pods: 0/5"), json!("limits.cpu: 3/4")]
        );
        assert_eq!(quota_columns(&json!({})), [json!(""), json!("")]);
    }
}
