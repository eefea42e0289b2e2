//! Nodes.

use serde_json::{Value, json};
use windlass_api::{conditions, naming};

use super::{
    defaulting::set_if_absent,
    duplicates::Duplicates,
    error_list::{ErrorList, entries, list, text},
    pod::validation::check_effect,
    row::{self, Row, or_none},
    selectable::SelectableField,
    strategy::{CheckOrder, Creation, Facts, InitialStatus, MetadataChecks, Strategy, Write},
};
use crate::{
    admission_plugins::AdmissionPlugin,
    field_path::FieldPath,
    internal_types, json,
    object::Object,
    registry::Resource,
    schema::{Problem, quantity},
    status::Status,
};

const PREFER_AVOID_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

pub(super) struct Node;

impl Strategy for Node {
    fn facts(&self) -> Facts {
        Facts {
            metadata_checks: MetadataChecks {
                order: CheckOrder::MetadataBetween,
                ..Facts::DEFAULT.metadata_checks
            },
            selects_namespace: false,
            selectable_fields: const { &[SelectableField::flag("spec.unschedulable")] },
            columns: Some(
                "Name Status Roles Age Version +Internal-IP +External-IP +OS-Image +Kernel-Version +Container-Runtime",
            ),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, node: &mut Object) {
        let node = node.tree_mut();
        // `podCIDR` and the first of `podCIDRs` are kept equal.
        let block = node["spec"]["podCIDR"].clone();
        if block.is_string() {
            set_if_absent(&mut node["spec"], "podCIDRs", vec![block]);
        } else if let Some(block) = node["spec"]["podCIDRs"].get(0).cloned() {
            set_if_absent(&mut node["spec"], "podCIDR", block);
        }
        if let Some(capacity) = node["status"].get("capacity").cloned() {
            set_if_absent(&mut node["status"], "allocatable", capacity);
        }
    }

    fn admit(&self, creation: &Creation<'_>, node: &mut Object) -> Result<(), Status> {
        if creation.has(AdmissionPlugin::TaintNodesByCondition) {
            add_not_ready_taint(node);
        }
        Ok(())
    }

    fn initial_status(&self, _resource: &Resource, _node: &Object, _now: &str) -> InitialStatus {
        // A kubelet registers its node with a status.
        InitialStatus::Keep
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        let node = write.value();
        check_annotations(node, errors);
        check_taints(&node["spec"]["taints"], errors);
        check_resource_lists(&node["status"], errors);
        check_pod_cidrs(&node["spec"], errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        check_changes(write.value(), old, errors);
    }

    fn validate_subresource(&self, _subresource: &str, node: &Value, _old: &Value, errors: &mut ErrorList) {
        check_status(&node["status"], errors);
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        if write.spec().get("externalID").is_some() {
            warnings
                .push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

/// `TaintNodesByCondition`: nothing is scheduled onto a new node before it is ready.
fn add_not_ready_taint(node: &mut Object) {
    let spec = node.fields_mut().entry("spec").or_insert_with(|| json!({}));
    let mut taints = spec["taints"].as_array().cloned().unwrap_or_default();
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    if taints
        .iter()
        .all(|known| known["key"] != taint["key"] || known["effect"] != taint["effect"])
    {
        taints.push(taint);
    }
    spec["taints"] = taints.into();
}

fn check_annotations(node: &Value, errors: &mut ErrorList) {
    let avoid = text(&node["metadata"]["annotations"][PREFER_AVOID_PODS]);
    if !avoid.is_empty()
        && let Err(why) = json::read(avoid.as_bytes())
    {
        errors.invalid("metadata.annotations.AvoidPods", PREFER_AVOID_PODS, &why);
    }
}

fn check_resource_lists(status: &Value, errors: &mut ErrorList) {
    for key in ["capacity", "allocatable"] {
        let path = FieldPath::from_root("status");
        let path = path.child(key);
        for (name, amount) in entries(&status[key]) {
            check_quantity(name, amount, &path.child(name), errors);
        }
    }
}

fn check_quantity(name: &str, amount: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let Some(nanos) = quantity::nanos(amount) else {
        return;
    };
    if nanos < 0 {
        errors.invalid(path, amount.clone(), "must be greater than or equal to 0");
    }
    if (name.contains('/') || name == "pods") && nanos % 1_000_000_000 != 0 {
        errors.invalid(path, amount.clone(), "must be an integer");
    }
}

fn check_taints(taints: &Value, errors: &mut ErrorList) {
    let (taints, path) = (list(taints), FieldPath::from_root("metadata.taints"));
    let repeats = Duplicates::by(taints, |taint| (text(&taint["key"]), text(&taint["effect"])));
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        let (key, value) = (text(&taint["key"]), text(&taint["value"]));
        errors.invalid_each(path.child("key"), key, naming::qualified(key));
        errors.invalid_each(path.child("value"), value, naming::label_value(value));
        errors.require(path.child("effect"), &taint["effect"]);
        check_effect(&taint["effect"], path.child("effect"), errors);
        if repeats.contains(index) {
            let shown = format!(
                "{}: taints must be unique by key and effect pair",
                internal_types::format_as_struct("Taint", taint)
            );
            errors.add(path, Problem::DuplicateText(shown));
        }
    }
}

fn check_pod_cidrs(spec: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec.podCIDRs");
    let blocks = match list(&spec["podCIDRs"]) {
        [] if spec["podCIDR"].is_string() => std::slice::from_ref(&spec["podCIDR"]),
        blocks => blocks,
    };
    let before = errors.len();
    for (index, block) in blocks.iter().map(text).enumerate() {
        errors.invalid_each(path.index(index), block, naming::cidr(block));
    }
    let v6 = blocks.iter().filter(|block| text(block).contains(':')).count();
    if errors.len() == before && blocks.len() > 1 && !(blocks.len() == 2 && v6 == 1) {
        let why = "may specify no more than one CIDR for each IP family";
        errors.invalid(path, blocks.to_vec(), why);
    }
}

/// Validates a node's status.
fn check_status(status: &Value, errors: &mut ErrorList) {
    check_resource_lists(status, errors);
    let addresses = list(&status["addresses"]);
    let repeats = Duplicates::by(addresses, |address| address);
    for (index, address) in addresses.iter().enumerate() {
        if repeats.contains(index) {
            let shown = internal_types::format_as_struct("NodeAddress", address);
            let field = FieldPath::from_root("status.addresses");
            errors.add(field.index(index), Problem::DuplicateText(shown));
        }
    }
}

/// Validates a node update.
fn check_changes(node: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before) = (&node["spec"], &old["spec"]);
    // The real server checks these twice.
    check_annotations(node, errors);
    check_status(&node["status"], errors);
    if !list(&before["podCIDRs"]).is_empty() && spec["podCIDRs"] != before["podCIDRs"] {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden("spec.podCIDRs", why);
    }
    if !text(&before["providerID"]).is_empty() && spec["providerID"] != before["providerID"] {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden("spec.providerID", why);
    }
    check_taints(&spec["taints"], errors);
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let ready = conditions::find(row.object, "Ready");
    let mut status = match ready.map(|c| c["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if row.object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = row.object.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None if key == "kubernetes.io/role" => value.as_str(),
                None => None,
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| {
        let found = row::items(row.object, "/status/addresses").find(|a| a["type"] == kind);
        or_none(found.map_or("", |a| row::text(a, "/address")))
    };
    let known = |pointer: &str| match row.text(pointer) {
        "" => "<unknown>".to_owned(),
        text => text.to_owned(),
    };
    let kernel = match row.text("/status/nodeInfo/architecture") {
        "" => known("/status/nodeInfo/kernelVersion"),
        architecture => format!("{} ({architecture})", known("/status/nodeInfo/kernelVersion")),
    };
    vec![
        row.name(),
        status.into(),
        or_none(&roles.join(",")),
        row.age(),
        row.text("/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        known("/status/nodeInfo/osImage").into(),
        kernel.into(),
        known("/status/nodeInfo/containerRuntimeVersion").into(),
    ]
}
