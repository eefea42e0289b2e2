use serde_json::{Value, json};

use super::*;

const PROVED: &str = "2026-06-01T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a valid time")
}

fn node(boot_id: &str, conditions: &Value) -> Node {
    let info = json!({
        "architecture": "", "bootID": boot_id, "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
        "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
    });
    let node =
        json!({ "metadata": { "name": "n1" }, "status": { "nodeInfo": info, "conditions": conditions } });
    serde_json::from_value(node).expect("a node")
}

fn ready_node(since: &str) -> Node {
    node(
        "new",
        &json!([{ "type": "Ready", "status": "True", "lastTransitionTime": since }]),
    )
}

fn pod(name: &str, owner: &str, node: &str, ready: &str) -> Arc<Pod> {
    let pod = json!({
        "metadata": {
            "name": name, "namespace": "sys", "labels": { "app": name },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": true }],
        },
        "spec": { "nodeName": node, "containers": [] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] },
    });
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn checked(node: &Node, pods: &[Arc<Pod>], spec: &HealthCheckSpec, now: &str) -> HealthStatus {
    let booted = RebootProof {
        boot_id_before: "old",
        proved_at: at(PROVED),
        checked_boot_id: None,
    };
    check(node, pods, spec, booted, at(now)).expect("a valid selector")
}

fn waits(why: &str, until: Option<&str>) -> HealthStatus {
    HealthStatus::Waiting {
        why: why.to_owned(),
        until: until.map(at),
    }
}

#[test]
fn node_is_healthy_when_all_checks_hold_long_enough() {
    let long = "2026-06-01T13:00:00Z";
    let stale = node(
        "old",
        &json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-06-01T11:00:00Z" }]),
    );
    let broken =
        json!([{ "type": "Ready", "status": "False", "message": "container runtime network not ready" }]);
    let routes =
        json!([{ "type": "Ready", "status": "True" }, { "type": "NetworkUnavailable", "status": "True" }]);
    let ten = "the node has to be Ready for 10 s";
    for (node, now, expected) in [
        (
            stale,
            long,
            waits("the kubelet has not reported since the reboot", None),
        ),
        (
            node("new", &json!([])),
            long,
            waits("the node is not Ready", None),
        ),
        (
            node("new", &json!([{ "type": "Ready", "status": "Unknown" }])),
            long,
            waits("the node is not Ready", None),
        ),
        (
            node("new", &broken),
            long,
            waits("the node is not Ready: container runtime network not ready", None),
        ),
        (
            node("new", &routes),
            long,
            waits("the node's network is unavailable", None),
        ),
        // It was Ready again before the condition changed: counted from the verified reboot.
        (
            ready_node("2026-05-01T00:00:00Z"),
            "2026-06-01T12:00:09Z",
            waits(ten, Some("2026-06-01T12:00:10Z")),
        ),
        (
            ready_node("2026-05-01T00:00:00Z"),
            "2026-06-01T12:00:10Z",
            HealthStatus::Healthy,
        ),
        // It became Ready a minute later: counted from then. Each flap starts it over.
        (
            ready_node("2026-06-01T12:01:00Z"),
            "2026-06-01T12:01:09Z",
            waits(ten, Some("2026-06-01T12:01:10Z")),
        ),
        (
            ready_node("2026-06-01T12:01:00Z"),
            "2026-06-01T12:01:10Z",
            HealthStatus::Healthy,
        ),
        // The kubelet's clock is ten minutes ahead.
        (
            ready_node("2026-06-01T12:11:00Z"),
            "2026-06-01T12:01:10Z",
            HealthStatus::Healthy,
        ),
    ] {
        assert_eq!(
            checked(&node, &[], &HealthCheckSpec::default(), now),
            expected,
            "at {now}"
        );
    }
}

#[test]
fn daemon_set_and_selected_pods_have_to_be_ready() {
    let web = || serde_json::from_value(json!({ "matchLabels": { "app": "web" } })).expect("a selector");
    let selecting = HealthCheckSpec {
        pod_selector: Some(web()),
        ..HealthCheckSpec::default()
    };
    let neither = HealthCheckSpec {
        daemon_set_pods: false,
        ..HealthCheckSpec::default()
    };
    let mut going = (*pod("proxy", "DaemonSet", "n1", "True")).clone();
    going.metadata.deletion_timestamp = serde_json::from_value(json!(PROVED)).expect("a valid time");
    let mut finished = (*pod("proxy", "DaemonSet", "n1", "False")).clone();
    finished.status.as_mut().expect("a status").phase = Some("Succeeded".to_owned());
    let usual = HealthCheckSpec::default();
    let wait = |names: &str| waits(&format!("pods are not ready: {names}"), None);
    for (pods, spec, expected) in [
        (
            vec![pod("proxy", "DaemonSet", "n1", "True")],
            &usual,
            HealthStatus::Healthy,
        ),
        (
            vec![pod("proxy", "DaemonSet", "n1", "False")],
            &usual,
            wait("sys/proxy"),
        ),
        (
            vec![pod("proxy", "DaemonSet", "n2", "False")],
            &usual,
            HealthStatus::Healthy,
        ),
        (
            vec![pod("proxy", "DaemonSet", "n1", "False")],
            &neither,
            HealthStatus::Healthy,
        ),
        (vec![Arc::new(going)], &usual, wait("sys/proxy")),
        (vec![Arc::new(finished)], &usual, HealthStatus::Healthy),
        (
            vec![pod("web", "ReplicaSet", "n1", "False")],
            &usual,
            HealthStatus::Healthy,
        ),
        (
            vec![pod("web", "ReplicaSet", "n1", "False")],
            &selecting,
            wait("sys/web"),
        ),
        (
            vec![pod("db", "ReplicaSet", "n1", "False")],
            &selecting,
            HealthStatus::Healthy,
        ),
        (
            ["e", "b", "a", "d", "c"]
                .map(|name| pod(name, "DaemonSet", "n1", "False"))
                .to_vec(),
            &usual,
            wait("sys/a, sys/b, sys/c and 2 more"),
        ),
    ] {
        let node = ready_node(PROVED);
        assert_eq!(checked(&node, &pods, spec, "2026-06-01T13:00:00Z"), expected);
    }
}

#[test]
fn agent_check_counts_only_for_the_current_boot() {
    let asked = HealthCheckSpec {
        agent_check: true,
        ..HealthCheckSpec::default()
    };
    let (node, now) = (ready_node(PROVED), at("2026-06-01T13:00:00Z"));
    let waits = || waits("the agent's health check has not passed", None);
    for (checked_boot_id, expected) in [
        (None, waits()),
        (Some("old"), waits()),
        (Some("new"), HealthStatus::Healthy),
    ] {
        let booted = RebootProof {
            boot_id_before: "old",
            proved_at: at(PROVED),
            checked_boot_id,
        };
        let found = check(&node, &[], &asked, booted, now).expect("a valid selector");
        assert_eq!(found, expected, "{checked_boot_id:?}");
    }
}

#[test]
fn spec_applies_defaults() {
    let empty: HealthCheckSpec = serde_json::from_value(json!({})).expect("a valid spec");
    assert_eq!(empty, HealthCheckSpec::default());
    let written =
        json!({ "minReadySeconds": 10, "daemonSetPods": true, "agentCheck": false, "timeout": "10m" });
    assert_eq!(serde_json::to_value(&empty).expect("JSON"), written);
}
