//! Helpers of the tests that use a cluster with nodes.

#![allow(dead_code, reason = "no test uses all of it")]

use std::{fmt::Debug, time::Duration};

use anyhow::{Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Pod, ServiceAccount};
use kube::{
    Api, Resource,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use windlass_cluster::{Cluster, Embedded};

/// Starts a cluster, with the service account that pods need.
pub(crate) async fn start(how: Embedded) -> Result<Cluster> {
    let cluster = how.start().await?;
    let accounts = Api::<ServiceAccount>::default_namespaced(cluster.client());
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("default".to_owned());
    match accounts.create(&PostParams::default(), &account).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        made => drop(made?),
    }
    Ok(cluster)
}

/// Builds a pod with one container, merged with `extra`.
pub(crate) fn pod(name: &str, extra: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]},
    });
    merge(&mut pod, extra);
    serde_json::from_value(pod).expect("a pod")
}

/// Builds a pod with a pod script.
pub(crate) fn pod_with_script(name: &str, script: &str, spec: &Value) -> Pod {
    let annotations = json!({"windlass.dev/pod-script": script});
    pod(
        name,
        json!({"metadata": {"annotations": annotations}, "spec": spec}),
    )
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

pub(crate) fn pods(cluster: &Cluster) -> Api<Pod> {
    Api::default_namespaced(cluster.client())
}

/// Creates an object, and returns all its states until `last` returns true. A deletion is `Null`.
pub(crate) async fn create_and_watch<K>(
    api: &Api<K>,
    object: &K,
    last: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    let all = api.list(&ListParams::default().limit(1)).await?;
    let since = all.metadata.resource_version.unwrap_or_default();
    api.create(&PostParams::default(), object).await?;
    let name = object.meta().name.as_deref().unwrap_or_default();
    watch_until(api, name, &since, last).await
}

/// Returns all states of an object since a resource version until `last` returns true. A deletion is `Null`.
pub(crate) async fn watch_until<K>(
    api: &Api<K>,
    name: &str,
    since: &str,
    last: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    let (mut seen, mut since) = (Vec::new(), since.to_owned());
    let watching = async {
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        // The server ends a watch after five minutes at the latest.
        loop {
            let mut changes = api.watch(&params, &since).await?.boxed();
            while let Some(change) = changes.next().await {
                let (object, is_gone) = match change? {
                    WatchEvent::Added(new) | WatchEvent::Modified(new) => (new, false),
                    WatchEvent::Deleted(old) => (old, true),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(error) => bail!("{error}"),
                };
                since = object.meta().resource_version.clone().unwrap_or_default();
                let state = if is_gone {
                    Value::Null
                } else {
                    serde_json::to_value(&object)?
                };
                let passes = last(&state);
                seen.push(state);
                if passes {
                    return Ok(());
                }
            }
        }
    };
    match tokio::time::timeout(Duration::from_mins(30), watching).await {
        Ok(watched) => watched.map(|()| seen),
        Err(_) => bail!(
            "timed out: the last state of {name} is {:#}",
            seen.last().unwrap_or(&Value::Null)
        ),
    }
}

/// Waits until `test` returns true for the newest state of an object, `Null` if it does not exist.
pub(crate) async fn wait_until<K>(api: &Api<K>, name: &str, test: impl Fn(&Value) -> bool) -> Result<Value>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    if api.get_opt(name).await?.is_none() && test(&Value::Null) {
        return Ok(Value::Null);
    }
    let mut states = watch_until(api, name, "0", test).await?;
    Ok(states.pop().unwrap_or_default())
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    let found = all
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind);
    found.unwrap_or(&Value::Null)
}

pub(crate) fn is_ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

/// Returns reason and message of the events about an object, in order. Repeated events are merged.
pub(crate) async fn events(cluster: &Cluster, about: &str) -> Result<Vec<(String, String)>> {
    // They are written in the background.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let events = Api::<Event>::all(cluster.client());
    let mut all = events.list(&ListParams::default()).await?.items;
    all.retain(|event| event.involved_object.name.as_deref() == Some(about));
    all.sort_by_key(|event| {
        let version = event.metadata.resource_version.as_deref().unwrap_or_default();
        version.parse::<u64>().unwrap_or(0)
    });
    let text = |text: Option<String>| text.unwrap_or_default();
    Ok(all
        .into_iter()
        .map(|event| (text(event.reason), text(event.message)))
        .collect())
}
