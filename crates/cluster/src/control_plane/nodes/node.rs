//! Builds the Node objects and statuses that kubelets write.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use windlass_api::conditions;

use super::{identity::uuid, machines::Machine};
use crate::{KUBERNETES_VERSION, simulation};

/// What a kubelet reports as its node's Ready condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    ShuttingDown,
    /// Not Ready for a moment, to rehearse what a controller does then.
    Flapping,
}

/// Builds the Node that a kubelet registers.
pub(super) fn build_node(machine: &Machine, now: Timestamp) -> Value {
    let name = &machine.spec.name;
    let mut labels = json!({
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
    });
    for (key, value) in &machine.spec.labels {
        labels[key] = value.as_str().into();
    }
    let taints: Vec<_> = machine
        .spec
        .taints
        .iter()
        .map(|(key, value, effect)| match value.as_str() {
            "" => json!({"key": key, "effect": effect}),
            value => json!({"key": key, "value": value, "effect": effect}),
        })
        .collect();
    let mut spec = json!({"podCIDR": machine.pod_cidr(), "podCIDRs": [machine.pod_cidr()]});
    if !taints.is_empty() {
        spec["taints"] = taints.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {
                simulation::MACHINE_ANNOTATION: machine.machine_id(),
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": spec,
        "status": build_status(machine, Readiness::Ready, now, None),
    })
}

/// Builds the node status that a kubelet reports. Conditions whose status is as in `known` keep their transition time.
pub(super) fn build_status(
    machine: &Machine,
    ready: Readiness,
    now: Timestamp,
    known: Option<&Value>,
) -> Value {
    let name = &machine.spec.name;
    json!({
        "addresses": [
            {"type": "InternalIP", "address": machine.address()},
            {"type": "Hostname", "address": name},
        ],
        "allocatable": machine.spec.capacity,
        "capacity": machine.spec.capacity,
        "conditions": conditions(ready, now, known),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": machine.boot_id,
            "containerRuntimeVersion": "containerd://2.2.1",
            "kernelVersion": "6.12.57",
            "kubeProxyVersion": "",
            "kubeletVersion": format!("v{}", KUBERNETES_VERSION.trim_start_matches('v')),
            "machineID": machine.machine_id(),
            "operatingSystem": "linux",
            "osImage": "Windlass (simulated)",
            "systemUUID": uuid(&format!("system {} {name}", machine.number)),
        },
    })
}

fn conditions(ready: Readiness, now: Timestamp, known: Option<&Value>) -> Value {
    let (status, reason, message) = match ready {
        Readiness::Ready => ("True", "KubeletReady", "kubelet is posting ready status"),
        Readiness::ShuttingDown => ("False", "KubeletNotReady", "node is shutting down"),
        Readiness::Flapping => ("False", "KubeletNotReady", "simulated: the node flaps"),
    };
    let all = [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        ("Ready", status, reason, message),
    ];
    let now = now.to_string();
    let known = known.and_then(|known| known["conditions"].as_array());
    let condition = |(kind, status, reason, message): &(&str, &str, &str, &str)| {
        let mut condition = json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        });
        let known = known.and_then(|known| conditions::find(known, kind));
        conditions::keep_transition_time(&mut condition, known);
        condition
    };
    all.iter().map(condition).collect()
}
