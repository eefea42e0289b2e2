use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-06-01T12:00:00Z";

/// A pod of a ReplicaSet on node `n1`, with changes.
fn pod(name: &str, change: &Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": { "app": "web" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true }],
        },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c" }] },
        "status": { "phase": "Running" },
    });
    merge(&mut pod, change);
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

fn owner(kind: &str) -> Value {
    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": true }] } })
}

fn planned(pod: &Arc<Pod>, options: &DrainSpec) -> DrainPlan {
    let plan = plan(
        "n1",
        std::slice::from_ref(pod),
        options,
        NOW.parse().expect("a valid time"),
    );
    plan.expect("valid selectors")
}

/// The category that the one pod is in.
fn place(plan: &DrainPlan) -> &'static str {
    let DrainPlan {
        evict,
        terminating,
        overdue,
        protected,
        ignored,
    } = plan;
    match (
        evict.len(),
        terminating.len(),
        overdue.len(),
        protected.len(),
        ignored,
    ) {
        (0, 0, 0, 0, 0) => "nowhere",
        (1, 0, 0, 0, 0) => "evict",
        (0, 1, 0, 0, 0) => "wait",
        (0, 0, 1, 0, 0) => "overdue",
        (0, 0, 0, 1, 0) => "spared",
        (0, 0, 0, 0, 1) => "stay",
        _ => "several",
    }
}

#[test]
fn plan_classifies_every_kind_of_pod() {
    let going = |at: &str| json!({ "metadata": { "deletionTimestamp": at } });
    let cases = [
        ("an ordinary one", json!({}), "evict"),
        (
            "of another node",
            json!({ "spec": { "nodeName": "n2" } }),
            "nowhere",
        ),
        (
            "not scheduled",
            json!({ "spec": { "nodeName": null } }),
            "nowhere",
        ),
        ("a DaemonSet's", owner("DaemonSet"), "stay"),
        (
            "a mirror",
            json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } } }),
            "stay",
        ),
        ("succeeded", json!({ "status": { "phase": "Succeeded" } }), "stay"),
        ("failed", json!({ "status": { "phase": "Failed" } }), "stay"),
        ("pending", json!({ "status": { "phase": "Pending" } }), "evict"),
        (
            "unmanaged",
            json!({ "metadata": { "ownerReferences": null } }),
            "evict",
        ),
        (
            "with files",
            json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } }),
            "evict",
        ),
        ("a StatefulSet's", owner("StatefulSet"), "evict"),
        ("going", going("2026-06-01T12:00:20Z"), "wait"),
        (
            "terminating, just past its grace period",
            going("2026-06-01T11:59:40Z"),
            "wait",
        ),
        (
            "terminating, long past its grace period",
            going("2026-06-01T11:59:30Z"),
            "overdue",
        ),
        (
            "finished and terminating",
            json!({ "metadata": { "deletionTimestamp": "2026-06-01T11:00:00Z" }, "status": { "phase": "Failed" } }),
            "stay",
        ),
    ];
    for (name, change, expected) in cases {
        let plan = planned(&pod("a", &change), &DrainSpec::default());
        assert_eq!(place(&plan), expected, "a pod: {name}");
    }
}

#[test]
fn protected_pods_block_with_a_fix_in_the_message() {
    let careful = DrainSpec {
        delete_empty_dir: false,
        delete_unmanaged: false,
        ..DrainSpec::default()
    };
    let unmanaged = planned(
        &pod("a", &json!({ "metadata": { "ownerReferences": null } })),
        &careful,
    );
    assert_eq!(
        unmanaged.protected.first().map(ToString::to_string).as_deref(),
        Some(
            "pod shop/a: Unmanaged: it has no controller that would recreate it: delete it, or set drain.deleteUnmanaged"
        )
    );
    let files = json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } });
    let with_files = planned(&pod("a", &files), &careful);
    assert_eq!(
        with_files.protected.first().map(|blocker| blocker.reason),
        Some(BlockerReason::EmptyDir)
    );
    // Once it is deleted, it only has to be waited for.
    let mut going = files;
    merge(&mut going, &json!({ "metadata": { "deletionTimestamp": NOW } }));
    assert_eq!(place(&planned(&pod("a", &going), &careful)), "wait");
    assert_eq!(place(&planned(&pod("a", &json!({})), &careful)), "evict");
}

#[test]
fn selectors_choose_the_pods_to_evict() {
    let web =
        || Some(serde_json::from_value(json!({ "matchLabels": { "app": "web" } })).expect("a selector"));
    let db = || {
        Some(
            serde_json::from_value(
                json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["db"] }] }),
            )
            .expect("a selector"),
        )
    };
    let a = pod("a", &json!({}));
    for (pod_selector, ignore_selector, expected) in [
        (None, None, "evict"),
        (web(), None, "evict"),
        (db(), None, "stay"),
        (None, web(), "stay"),
        (None, db(), "evict"),
        (web(), web(), "stay"),
        (Some(LabelSelector::default()), None, "evict"),
    ] {
        let options = DrainSpec {
            pod_selector,
            ignore_selector,
            ..DrainSpec::default()
        };
        assert_eq!(place(&planned(&a, &options)), expected, "{options:?}");
    }
    let wrong = serde_json::from_value(json!({ "matchExpressions": [{ "key": "app", "operator": "Near" }] }));
    let options = DrainSpec {
        ignore_selector: Some(wrong.expect("a selector")),
        ..DrainSpec::default()
    };
    let error = plan("n1", &[a], &options, NOW.parse().expect("a valid time")).expect_err("invalid selector");
    assert!(
        error
            .to_string()
            .starts_with("invalid label selector drain.ignoreSelector: "),
        "{error}"
    );
}

#[test]
fn overdue_pod_names_kubelet_or_finalizers() {
    let going = json!({ "metadata": { "deletionTimestamp": "2026-06-01T11:00:00Z" } });
    let stuck = planned(&pod("a", &going), &DrainSpec::default());
    let message = "it should have stopped at 2026-06-01T11:00:00Z; the kubelet has not stopped it";
    assert_eq!(stuck.overdue[0].message, message);
    let mut held = going;
    merge(
        &mut held,
        &json!({ "metadata": { "finalizers": ["a.com/x", "b.com/y"] } }),
    );
    let held = planned(&pod("a", &held), &DrainSpec::default());
    assert!(
        held.overdue[0]
            .message
            .ends_with("it has finalizers: a.com/x, b.com/y")
    );
}

#[test]
fn spec_parses_and_applies_defaults() {
    let empty: DrainSpec = serde_json::from_value(json!({})).expect("a valid spec");
    assert_eq!(empty, DrainSpec::default());
    assert_eq!(
        serde_json::to_value(&empty).expect("JSON"),
        json!({ "enabled": true, "timeout": "10m", "onTimeout": "Abort", "deleteEmptyDir": true, "deleteUnmanaged": true })
    );
    let forced: DrainSpec =
        serde_json::from_value(json!({ "timeout": "90s", "onTimeout": "Force" })).expect("a valid spec");
    assert_eq!(
        (forced.timeout, forced.on_timeout),
        (GoDuration::from_secs(90), OnTimeout::Force)
    );
}

fn any_change() -> impl Strategy<Value = Value> {
    let owners = prop_oneof![
        Just(json!({})),
        Just(owner("DaemonSet")),
        Just(json!({ "metadata": { "ownerReferences": null } }))
    ];
    let phases = proptest::sample::select(vec!["Pending", "Running", "Succeeded", "Failed"]);
    let nodes = proptest::sample::select(vec!["n1", "n1", "n2"]);
    let going = proptest::option::of(proptest::sample::select(vec![
        "2026-06-01T11:00:00Z",
        "2026-06-01T13:00:00Z",
    ]));
    let apps = proptest::sample::select(vec!["web", "db"]);
    let parts = (owners, phases, nodes, going, apps, any::<bool>(), any::<bool>());
    parts.prop_map(|(mut change, phase, node, going, app, mirror, files)| {
        merge(&mut change, &json!({ "metadata": { "labels": { "app": app } }, "spec": { "nodeName": node }, "status": { "phase": phase } }));
        if let Some(going) = going {
            merge(&mut change, &json!({ "metadata": { "deletionTimestamp": going } }));
        }
        if mirror {
            merge(&mut change, &json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } } }));
        }
        if files {
            merge(&mut change, &json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } }));
        }
        change
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// With any options and in any order, each pod of the node is in exactly one category, and only evictable pods
    /// are evicted.
    #[test]
    fn plan_is_complete_and_evicts_only_evictable_pods(
        changes in proptest::collection::vec(any_change(), 0..8),
        (empty_dir, unmanaged, ignore) in any::<(bool, bool, bool)>(),
    ) {
        let pods: Vec<_> = changes.iter().enumerate().map(|(index, change)| pod(&format!("p{index}"), change)).collect();
        let ignored = serde_json::from_value(json!({ "matchLabels": { "app": "db" } })).expect("a selector");
        let options = DrainSpec {
            delete_empty_dir: empty_dir,
            delete_unmanaged: unmanaged,
            ignore_selector: ignore.then_some(ignored),
            ..DrainSpec::default()
        };
        let now = NOW.parse().expect("a valid time");
        let plan = plan("n1", &pods, &options, now).expect("valid selectors");
        let here = pods.iter().filter(|pod| node_name(pod) == Some("n1")).count();
        prop_assert_eq!(plan.evict.len() + plan.terminating.len() + plan.overdue.len() + plan.protected.len() + plan.ignored, here);
        for pod in &plan.evict {
            prop_assert!(!is_ignored(pod) && pod.metadata.deletion_timestamp.is_none());
            prop_assert!(!ignore || pod.labels()["app"] != "db");
            prop_assert!(unmanaged || controller_kind(pod).is_some());
        }
        let mut backwards = pods.clone();
        backwards.reverse();
        let again = super::plan("n1", &backwards, &options, now).expect("valid selectors");
        prop_assert_eq!(again.evict, plan.evict);
        prop_assert_eq!(again.protected, plan.protected);
    }
}
