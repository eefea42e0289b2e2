//! What the account decides, and that it forgets nothing.

use serde_json::{Value, json};

use super::*;

fn node(account: &mut Account, name: &str, extra: &Value) {
    let mut node = json!({"metadata": {"labels": {"name": name}}, "spec": {}, "status": {"allocatable": {
        "cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "3", "example.com/gpu": "1",
    }}});
    for (key, value) in extra.as_object().into_iter().flatten() {
        node["spec"][key] = value.clone();
    }
    account.node_is(name, &serde_json::from_value(node).expect("a node"));
}

fn demand(spec: Value) -> Demand {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "a"}]);
    }
    Demand::of(&serde_json::from_value(json!({"spec": spec})).expect("a pod"))
}

fn asking(requests: &Value) -> Demand {
    demand(json!({"containers": [{"name": "a", "resources": {"requests": requests}}]}))
}

fn place(account: &mut Account, name: &str, demand: &Demand) -> String {
    match account.choose(demand) {
        Ok(node) => {
            account.is_on(
                &ObjectKey::namespaced("ns", name),
                name,
                &node,
                demand.share.clone(),
            );
            node.to_string()
        }
        Err(verdict) => verdict.to_string(),
    }
}

#[test]
fn pods_spread_over_the_emptiest_nodes_in_a_fixed_order() {
    let mut account = Account::default();
    for name in ["c", "a", "b"] {
        node(&mut account, name, &json!({}));
    }
    let plain = demand(json!({}));
    let order: Vec<_> = (0..6)
        .map(|i| place(&mut account, &format!("p{i}"), &plain))
        .collect();
    assert_eq!(order, ["a", "b", "c", "a", "b", "c"]);
    assert_eq!(place(&mut account, "large", &asking(&json!({"cpu": "1"}))), "a");
    assert!(place(&mut account, "more", &plain).starts_with('b'));
}

#[test]
fn what_is_short_is_counted_and_told() {
    let mut account = Account::default();
    node(&mut account, "a", &json!({}));
    node(&mut account, "b", &json!({"unschedulable": true}));
    node(
        &mut account,
        "c",
        &json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    );
    let half = asking(&json!({"cpu": "1500m", "example.com/gpu": "1"}));
    assert_eq!(place(&mut account, "first", &half), "a");
    assert_eq!(
        place(&mut account, "second", &half),
        "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, 1 node(s) had untolerated \
         taint(s), 1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/3 nodes are available: 1 No preemption victims found \
         for incoming pod, 2 Preemption is not helpful for scheduling."
    );
    account.is_gone(&ObjectKey::namespaced("ns", "first"));
    assert_eq!(place(&mut account, "third", &half), "a");
}

/// Saying what is known again, in any order, leaves the same account.
#[test]
fn repeated_news_changes_nothing() {
    let mut account = Account::default();
    let pod = asking(&json!({"cpu": "2"}));
    let key = ObjectKey::namespaced("ns", "p");
    account.is_on(&key, "u", "late", pod.share.clone());
    account.is_on(&key, "u", "late", pod.share.clone());
    node(&mut account, "late", &json!({}));
    assert!(account.choose(&pod).is_err());
    account.is_on(&key, "u", "elsewhere", pod.share.clone());
    assert!(account.choose(&pod).is_ok());
    account.is_gone(&key);
    account.is_gone(&key);
    account.node_is_gone("late");
    account.node_is_gone("late");
    assert!(account.rooms.is_empty() && account.nodes == 0);
}

#[test]
fn who_waits_is_told_of_a_node_that_fits() {
    let mut account = Account::default();
    let (here, there) = (
        ObjectKey::namespaced("ns", "here"),
        ObjectKey::namespaced("ns", "there"),
    );
    account.waits(&here, demand(json!({"nodeSelector": {"name": "a"}})));
    account.waits(&there, demand(json!({"nodeSelector": {"name": "b"}})));
    node(&mut account, "a", &json!({}));
    assert_eq!(account.wait_for("a"), [here]);
    assert_eq!(account.wait_for("b"), []);
}

#[test]
fn a_pod_goes_where_it_likes_and_not_where_taints_discourage() {
    let mut account = Account::default();
    node(
        &mut account,
        "a",
        &json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}),
    );
    node(&mut account, "b", &json!({}));
    node(&mut account, "c", &json!({}));
    assert_eq!(&*account.choose(&demand(json!({}))).expect("room"), "b");
    let likes_c = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "name", "operator": "In", "values": ["c"]}]}},
    ]}}});
    assert_eq!(&*account.choose(&demand(likes_c)).expect("room"), "c");
}

#[test]
fn a_pod_that_names_its_node_is_not_compared_with_others() {
    let mut account = Account::default();
    node(&mut account, "a", &json!({}));
    node(&mut account, "b", &json!({"unschedulable": true}));
    let daemon = |name: &str, tolerations: Value| {
        demand(json!({"tolerations": tolerations, "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]},
            ]},
        }}}))
    };
    let verdict = account
        .choose(&daemon("b", json!([])))
        .expect_err("cordoned")
        .to_string();
    assert_eq!(
        verdict,
        "0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) were unschedulable. no new claims to deallocate, \
         preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    let all = json!([{"operator": "Exists"}]);
    assert_eq!(&*account.choose(&daemon("b", all)).expect("tolerated"), "b");
}
