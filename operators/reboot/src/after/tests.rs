use serde_json::{Value, json};

use super::*;

const PROVED: &str = "2026-06-01T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
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

fn checked(node: &Node, pods: &[Arc<Pod>], spec: &AfterSpec, now: &str) -> After {
    let booted = Booted {
        before: "old",
        proved: at(PROVED),
        checked: None,
    };
    check(node, pods, spec, booted, at(now)).expect("a good selector")
}

fn waits(why: &str, until: Option<&str>) -> After {
    After::Waiting {
        why: why.to_owned(),
        until: until.map(at),
    }
}

#[test]
fn a_node_is_good_when_all_holds_for_long_enough() {
    let long = "2026-06-01T13:00:00Z";
    let stale = node(
        "old",
        &json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-06-01T11:00:00Z" }]),
    );
    let broken =
        json!([{ "type": "Ready", "status": "False", "message": "container runtime network not ready" }]);
    let routes =
        json!([{ "type": "Ready", "status": "True" }, { "type": "NetworkUnavailable", "status": "True" }]);
    let ten = "it is to be Ready for 10 s";
    for (node, now, expected) in [
        (
            stale,
            long,
            waits("its kubelet has not reported since the reboot", None),
        ),
        (node("new", &json!([])), long, waits("it is not Ready", None)),
        (
            node("new", &json!([{ "type": "Ready", "status": "Unknown" }])),
            long,
            waits("it is not Ready", None),
        ),
        (
            node("new", &broken),
            long,
            waits("it is not Ready: container runtime network not ready", None),
        ),
        (
            node("new", &routes),
            long,
            waits("its network is unavailable", None),
        ),
        // It was back before anybody had noticed: from the proof on.
        (
            ready_node("2026-05-01T00:00:00Z"),
            "2026-06-01T12:00:09Z",
            waits(ten, Some("2026-06-01T12:00:10Z")),
        ),
        (
            ready_node("2026-05-01T00:00:00Z"),
            "2026-06-01T12:00:10Z",
            After::Good,
        ),
        // It became Ready a minute later: from then on. Each flap begins it anew.
        (
            ready_node("2026-06-01T12:01:00Z"),
            "2026-06-01T12:01:09Z",
            waits(ten, Some("2026-06-01T12:01:10Z")),
        ),
        (
            ready_node("2026-06-01T12:01:00Z"),
            "2026-06-01T12:01:10Z",
            After::Good,
        ),
        // Its clock is ten minutes ahead of ours.
        (
            ready_node("2026-06-01T12:11:00Z"),
            "2026-06-01T12:01:10Z",
            After::Good,
        ),
    ] {
        assert_eq!(
            checked(&node, &[], &AfterSpec::default(), now),
            expected,
            "at {now}"
        );
    }
}

#[test]
fn pods_that_count_have_to_be_ready() {
    let web = || serde_json::from_value(json!({ "matchLabels": { "app": "web" } })).expect("a selector");
    let selecting = AfterSpec {
        pod_selector: Some(web()),
        ..AfterSpec::default()
    };
    let neither = AfterSpec {
        daemon_set_pods: false,
        ..AfterSpec::default()
    };
    let mut going = (*pod("proxy", "DaemonSet", "n1", "True")).clone();
    going.metadata.deletion_timestamp = serde_json::from_value(json!(PROVED)).expect("a time");
    let mut finished = (*pod("proxy", "DaemonSet", "n1", "False")).clone();
    finished.status.as_mut().expect("a status").phase = Some("Succeeded".to_owned());
    let usual = AfterSpec::default();
    let wait = |names: &str| waits(&format!("pods are not ready: {names}"), None);
    for (pods, spec, expected) in [
        (vec![pod("proxy", "DaemonSet", "n1", "True")], &usual, After::Good),
        (
            vec![pod("proxy", "DaemonSet", "n1", "False")],
            &usual,
            wait("sys/proxy"),
        ),
        (
            vec![pod("proxy", "DaemonSet", "n2", "False")],
            &usual,
            After::Good,
        ),
        (
            vec![pod("proxy", "DaemonSet", "n1", "False")],
            &neither,
            After::Good,
        ),
        (vec![Arc::new(going)], &usual, wait("sys/proxy")),
        (vec![Arc::new(finished)], &usual, After::Good),
        (vec![pod("web", "ReplicaSet", "n1", "False")], &usual, After::Good),
        (
            vec![pod("web", "ReplicaSet", "n1", "False")],
            &selecting,
            wait("sys/web"),
        ),
        (
            vec![pod("db", "ReplicaSet", "n1", "False")],
            &selecting,
            After::Good,
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
fn the_agents_check_counts_for_the_boot_in_which_it_passed() {
    let asked = AfterSpec {
        agent_check: true,
        ..AfterSpec::default()
    };
    let (node, now) = (ready_node(PROVED), at("2026-06-01T13:00:00Z"));
    let waits = || waits("its agent's check has not passed", None);
    for (checked, expected) in [
        (None, waits()),
        (Some("old"), waits()),
        (Some("new"), After::Good),
    ] {
        let booted = Booted {
            before: "old",
            proved: at(PROVED),
            checked,
        };
        let found = check(&node, &[], &asked, booted, now).expect("a good selector");
        assert_eq!(found, expected, "{checked:?}");
    }
}

#[test]
fn a_spec_is_complete_without_people() {
    let empty: AfterSpec = serde_json::from_value(json!({})).expect("a spec");
    assert_eq!(empty, AfterSpec::default());
    let written =
        json!({ "minReadySeconds": 10, "daemonSetPods": true, "agentCheck": false, "timeout": "10m" });
    assert_eq!(serde_json::to_value(&empty).expect("JSON"), written);
}
