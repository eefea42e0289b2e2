//! Decisions and bookkeeping of the scheduler's cache.

use serde_json::{Value, json};

use super::*;

fn node(cache: &mut SchedulerCache, name: &str, extra: &Value) {
    let mut node = json!({"metadata": {"labels": {"name": name}}, "spec": {}, "status": {"allocatable": {
        "cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "3", "example.com/gpu": "1",
    }}});
    for (key, value) in extra.as_object().into_iter().flatten() {
        node["spec"][key] = value.clone();
    }
    cache.update_node(name, &serde_json::from_value(node).expect("a node"));
}

fn requirements(spec: Value) -> PodRequirements {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "a"}]);
    }
    PodRequirements::of(&serde_json::from_value(json!({"spec": spec})).expect("a pod"))
}

fn asking(requests: &Value) -> PodRequirements {
    requirements(json!({"containers": [{"name": "a", "resources": {"requests": requests}}]}))
}

fn place(cache: &mut SchedulerCache, name: &str, requirements: &PodRequirements) -> String {
    match cache.choose(requirements) {
        Ok(node) => {
            cache.assign(
                &ObjectKey::namespaced("ns", name),
                name,
                &node,
                requirements.resources.clone(),
            );
            node.to_string()
        }
        Err(fit_error) => fit_error.to_string(),
    }
}

#[test]
fn pods_spread_over_emptiest_nodes_deterministically() {
    let mut cache = SchedulerCache::default();
    for name in ["c", "a", "b"] {
        node(&mut cache, name, &json!({}));
    }
    let plain = requirements(json!({}));
    let order: Vec<_> = (0..6)
        .map(|i| place(&mut cache, &format!("p{i}"), &plain))
        .collect();
    assert_eq!(order, ["a", "b", "c", "a", "b", "c"]);
    assert_eq!(place(&mut cache, "large", &asking(&json!({"cpu": "1"}))), "a");
    assert!(place(&mut cache, "more", &plain).starts_with('b'));
}

#[test]
fn insufficient_resources_are_counted_and_reported() {
    let mut cache = SchedulerCache::default();
    node(&mut cache, "a", &json!({}));
    node(&mut cache, "b", &json!({"unschedulable": true}));
    node(
        &mut cache,
        "c",
        &json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    );
    let half = asking(&json!({"cpu": "1500m", "example.com/gpu": "1"}));
    assert_eq!(place(&mut cache, "first", &half), "a");
    assert_eq!(
        place(&mut cache, "second", &half),
        "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, 1 node(s) had untolerated \
         taint(s), 1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/3 nodes are available: 1 No preemption victims found \
         for incoming pod, 2 Preemption is not helpful for scheduling."
    );
    cache.remove_pod(&ObjectKey::namespaced("ns", "first"));
    assert_eq!(place(&mut cache, "third", &half), "a");
}

#[test]
fn repeated_updates_change_nothing() {
    let mut cache = SchedulerCache::default();
    let pod = asking(&json!({"cpu": "2"}));
    let key = ObjectKey::namespaced("ns", "p");
    cache.assign(&key, "u", "late", pod.resources.clone());
    cache.assign(&key, "u", "late", pod.resources.clone());
    node(&mut cache, "late", &json!({}));
    assert!(cache.choose(&pod).is_err());
    cache.assign(&key, "u", "elsewhere", pod.resources.clone());
    assert!(cache.choose(&pod).is_ok());
    cache.remove_pod(&key);
    cache.remove_pod(&key);
    cache.remove_node("late");
    cache.remove_node("late");
    assert!(cache.node_infos.is_empty() && cache.nodes == 0);
}

#[test]
fn unschedulable_pods_are_returned_for_a_fitting_node() {
    let mut cache = SchedulerCache::default();
    let (here, there) = (
        ObjectKey::namespaced("ns", "here"),
        ObjectKey::namespaced("ns", "there"),
    );
    cache.add_unschedulable(&here, requirements(json!({"nodeSelector": {"name": "a"}})));
    cache.add_unschedulable(&there, requirements(json!({"nodeSelector": {"name": "b"}})));
    node(&mut cache, "a", &json!({}));
    assert_eq!(cache.pods_that_fit("a"), [here]);
    assert_eq!(cache.pods_that_fit("b"), []);
}

#[test]
fn preferred_affinity_attracts_and_soft_taints_repel() {
    let mut cache = SchedulerCache::default();
    node(
        &mut cache,
        "a",
        &json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}),
    );
    node(&mut cache, "b", &json!({}));
    node(&mut cache, "c", &json!({}));
    assert_eq!(&*cache.choose(&requirements(json!({}))).expect("room"), "b");
    let likes_c = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "name", "operator": "In", "values": ["c"]}]}},
    ]}}});
    assert_eq!(&*cache.choose(&requirements(likes_c)).expect("room"), "c");
}

#[test]
fn pod_with_required_node_name_ignores_other_nodes() {
    let mut cache = SchedulerCache::default();
    node(&mut cache, "a", &json!({}));
    node(&mut cache, "b", &json!({"unschedulable": true}));
    let daemon = |name: &str, tolerations: Value| {
        requirements(json!({"tolerations": tolerations, "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]},
            ]},
        }}}))
    };
    let fit_error = cache
        .choose(&daemon("b", json!([])))
        .expect_err("cordoned")
        .to_string();
    assert_eq!(
        fit_error,
        "0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) were unschedulable. no new claims to deallocate, \
         preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    let all = json!([{"operator": "Exists"}]);
    assert_eq!(&*cache.choose(&daemon("b", all)).expect("tolerated"), "b");
}
