//! An embedded cluster with nodes: pods get one, start, and end.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use kube::{
    Api,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use windlass_cluster::Cluster;

async fn cluster(nodes: usize) -> Result<Cluster> {
    let cluster = Cluster::embedded().nodes(nodes).start().await?;
    let accounts = Api::<ServiceAccount>::default_namespaced(cluster.client());
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("default".to_owned());
    match accounts.create(&PostParams::default(), &account).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        made => drop(made?),
    }
    Ok(cluster)
}

fn pod(name: &str, extra: Value) -> Result<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]},
    });
    merge(&mut pod, extra);
    Ok(serde_json::from_value(pod)?)
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Waits until the pod's newest state passes.
async fn until<K>(api: &Api<K>, name: &str, test: impl Fn(&Value) -> bool) -> Result<Value>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let mut last = Value::Null;
    let watching = async {
        let found = api.get_opt(name).await?;
        let mut version = "0".to_owned();
        if let Some(found) = found {
            version = found.meta().resource_version.clone().unwrap_or_default();
            last = serde_json::to_value(&found)?;
            if test(&last) {
                return Ok(last.clone());
            }
        }
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut changes = api.watch(&params, &version).await?.boxed();
        while let Some(change) = changes.next().await {
            match change? {
                WatchEvent::Added(new) | WatchEvent::Modified(new) => {
                    last = serde_json::to_value(&new)?;
                    if test(&last) {
                        return Ok(last.clone());
                    }
                }
                WatchEvent::Deleted(_) => {
                    last = Value::Null;
                    if test(&last) {
                        return Ok(Value::Null);
                    }
                }
                _ => {}
            }
        }
        anyhow::bail!("the watch ended")
    };
    match tokio::time::timeout(Duration::from_mins(30), watching).await {
        Ok(found) => found,
        Err(_) => anyhow::bail!("{name} stayed at {last:#}"),
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    all.into_iter()
        .flatten()
        .find(|c| c["type"] == kind)
        .unwrap_or(&Value::Null)
}

fn is_ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_a_node_and_becomes_ready() -> Result<()> {
    let cluster = cluster(3).await?;
    let pods = Api::<Pod>::default_namespaced(cluster.client());
    let changes = pods.watch(&WatchParams::default(), "0").await?;
    pods.create(&PostParams::default(), &pod("web", json!({}))?)
        .await?;
    let seen: Vec<_> = changes
        .take(3)
        .map(|change| match change {
            Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                serde_json::to_value(pod).expect("a pod")
            }
            other => panic!("{other:?}"),
        })
        .collect()
        .await;
    let steps: Vec<_> = seen
        .iter()
        .map(|pod| {
            (
                pod["status"]["phase"].as_str().unwrap_or_default(),
                pod["spec"]["nodeName"].as_str(),
                condition(pod, "PodScheduled")["status"].as_str(),
                is_ready(pod),
            )
        })
        .collect();
    assert_eq!(
        steps,
        [
            ("Pending", None, None, false),
            ("Pending", Some("node-1"), Some("True"), false),
            ("Running", Some("node-1"), Some("True"), true),
        ]
    );
    println!("{:#}", seen[2]["status"]);
    let nodes = Api::<Node>::all(cluster.client())
        .list(&ListParams::default())
        .await?;
    println!("{}", serde_json::to_string_pretty(&nodes.items[0])?);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = Api::<Event>::all(cluster.client())
        .list(&ListParams::default())
        .await?;
    for event in events {
        println!(
            "{:?} {:?} {:?}",
            event.involved_object.name, event.reason, event.message
        );
    }
    cluster.stop().await;
    Ok(())
}
