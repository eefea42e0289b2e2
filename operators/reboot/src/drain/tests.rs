use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-06-01T12:00:00Z";

/// A pod on node `n1` that a ReplicaSet keeps there, with changes.
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
        NOW.parse().expect("a time"),
    );
    plan.expect("a plan")
}

/// Where the one pod went.
fn place(plan: &DrainPlan) -> &'static str {
    let DrainPlan {
        evict,
        wait,
        overdue,
        spared,
        stay,
    } = plan;
    match (evict.len(), wait.len(), overdue.len(), spared.len(), stay) {
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
fn every_pod_has_its_place_in_the_plan() {
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
        ("going, its time just over", going("2026-06-01T11:59:40Z"), "wait"),
        (
            "going, its time long over",
            going("2026-06-01T11:59:30Z"),
            "overdue",
        ),
        (
            "finished and going",
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
fn the_policy_spares_pods_and_says_what_to_do() {
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
        unmanaged.spared.first().map(ToString::to_string).as_deref(),
        Some("pod shop/a: nothing would make it anew elsewhere: delete it, or set drain.deleteUnmanaged")
    );
    let files = json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } });
    let with_files = planned(&pod("a", &files), &careful);
    assert_eq!(
        with_files.spared.first().map(|blocker| blocker.reason),
        Some(BlockerReason::EmptyDir)
    );
    // Once somebody has deleted it, it only has to be waited for.
    let mut going = files;
    merge(&mut going, &json!({ "metadata": { "deletionTimestamp": NOW } }));
    assert_eq!(place(&planned(&pod("a", &going), &careful)), "wait");
    assert_eq!(place(&planned(&pod("a", &json!({})), &careful)), "evict");
}

#[test]
fn selectors_say_who_has_to_go() {
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
    let error = plan("n1", &[a], &options, NOW.parse().expect("a time")).expect_err("nobody knows who stays");
    assert!(
        error
            .to_string()
            .starts_with("drain.ignoreSelector is not a label selector: "),
        "{error}"
    );
}

#[test]
fn a_pod_that_does_not_go_says_what_holds_it() {
    let going = json!({ "metadata": { "deletionTimestamp": "2026-06-01T11:00:00Z" } });
    let stuck = planned(&pod("a", &going), &DrainSpec::default());
    let message = "it should be gone since 2026-06-01T11:00:00Z; its kubelet has not stopped it";
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
            .ends_with("it waits for finalizers: a.com/x, b.com/y")
    );
}

#[test]
fn a_spec_is_as_people_write_it_and_complete_without_them() {
    let empty: DrainSpec = serde_json::from_value(json!({})).expect("a spec");
    assert_eq!(empty, DrainSpec::default());
    assert_eq!(
        serde_json::to_value(&empty).expect("JSON"),
        json!({ "enabled": true, "timeout": "10m", "onTimeout": "Abort", "deleteEmptyDir": true, "deleteUnmanaged": true })
    );
    let forced: DrainSpec =
        serde_json::from_value(json!({ "timeout": "90s", "onTimeout": "Force" })).expect("a spec");
    assert_eq!(
        (forced.timeout, forced.on_timeout),
        (Span::from_secs(90), OnTimeout::Force)
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

    /// Whatever the options and the order: each pod of the node is in one place, and nobody is evicted who must not be.
    #[test]
    fn a_plan_leaves_nobody_out_and_evicts_only_who_may_be(
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
        let now = NOW.parse().expect("a time");
        let plan = plan("n1", &pods, &options, now).expect("a plan");
        let here = pods.iter().filter(|pod| node_of(pod) == Some("n1")).count();
        prop_assert_eq!(plan.evict.len() + plan.wait.len() + plan.overdue.len() + plan.spared.len() + plan.stay, here);
        for pod in &plan.evict {
            prop_assert!(!may_stay(pod) && pod.metadata.deletion_timestamp.is_none());
            prop_assert!(!ignore || pod.labels()["app"] != "db");
            prop_assert!(unmanaged || controller_kind(pod).is_some());
        }
        let mut backwards = pods.clone();
        backwards.reverse();
        let again = super::plan("n1", &backwards, &options, now).expect("a plan");
        prop_assert_eq!(again.evict, plan.evict);
        prop_assert_eq!(again.spared, plan.spared);
    }
}
