//! Watches the workload kinds of a namespace, and records every change in order.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet},
    core::v1::{Event, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};
use windlass_suite::{Context, Namespaced};

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) text: String,
    /// The fields that the writer decided, as opposed to observed.
    pub(crate) decision: String,
}

/// The watches of one namespace. They end on drop.
pub(crate) struct Watcher {
    recording: Recording,
    count: watch::Receiver<usize>,
    watches: JoinSet<()>,
}

/// The changes and versions that all watches record.
#[derive(Clone, Default)]
struct Recording(Arc<Mutex<(Vec<Change>, Versions)>>);

/// The last observed resource version of each existing object.
type Versions = BTreeMap<(String, String), String>;

impl Recording {
    fn lock(&self) -> MutexGuard<'_, (Vec<Change>, Versions)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    pub(crate) async fn start(ctx: &Context) -> Result<Self> {
        let (count, counted) = watch::channel(0);
        let mut watcher = Self {
            recording: Recording::default(),
            count: counted,
            watches: JoinSet::new(),
        };
        let count = Arc::new(count);
        watcher.watch::<Deployment>(ctx, &count, workload).await?;
        watcher.watch::<ReplicaSet>(ctx, &count, workload).await?;
        watcher.watch::<DaemonSet>(ctx, &count, workload).await?;
        watcher.watch::<ControllerRevision>(ctx, &count, revision).await?;
        watcher.watch::<Pod>(ctx, &count, pod).await?;
        watcher.watch::<Event>(ctx, &count, event).await?;
        Ok(watcher)
    }

    /// Returns all changes so far.
    pub(crate) fn changes(&self) -> Vec<Change> {
        self.recording.lock().0.clone()
    }

    /// Marks the start of a step.
    pub(crate) fn begin_step(&self, step: &str) {
        let mark = Change {
            kind: String::new(),
            name: String::new(),
            text: step.to_owned(),
            decision: String::new(),
        };
        self.recording.lock().0.push(mark);
    }

    /// Waits until there was no change for this long, and every existing object was observed in its current version.
    pub(crate) async fn wait_until_idle(&mut self, ctx: &Context, quiet: Duration) -> Result<()> {
        loop {
            while tokio::time::timeout(quiet, self.count.changed()).await.is_ok() {}
            let mut there = versions::<Deployment>(ctx).await?;
            there.extend(versions::<ReplicaSet>(ctx).await?);
            there.extend(versions::<DaemonSet>(ctx).await?);
            there.extend(versions::<ControllerRevision>(ctx).await?);
            there.extend(versions::<Pod>(ctx).await?);
            there.extend(versions::<Event>(ctx).await?);
            if self.recording.lock().1 == there {
                return Ok(());
            }
        }
    }

    async fn watch<K: Namespaced>(
        &mut self,
        ctx: &Context,
        count: &Arc<watch::Sender<usize>>,
        tell: fn(&str, &Value) -> String,
    ) -> Result<()> {
        let api: Api<K> = ctx.api();
        let list = api.list(&ListParams::default()).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        self.recording.lock().1.extend(list.items.iter().map(version_of));
        let (notes, count) = (self.recording.clone(), Arc::clone(count));
        self.watches.spawn(async move {
            let params = WatchParams::default().timeout(290);
            let Ok(changes) = api.watch(&params, &version).await else {
                return;
            };
            pin_mut!(changes);
            while let Some(Ok(change)) = changes.next().await {
                let (verb, object) = match change {
                    WatchEvent::Added(object) => ("ADDED", object),
                    WatchEvent::Modified(object) => ("MODIFIED", object),
                    WatchEvent::Deleted(object) => ("DELETED", object),
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
                };
                let value = serde_json::to_value(&object).unwrap_or_default();
                let note = Change {
                    kind: K::kind(&()).into_owned(),
                    name: object.name_any(),
                    text: tell(verb, &value),
                    decision: decision(&value),
                };
                let mut notes = notes.lock();
                notes.0.push(note);
                let (key, version) = version_of(&object);
                if verb == "DELETED" {
                    notes.1.remove(&key);
                } else {
                    notes.1.insert(key, version);
                }
                drop(notes);
                count.send_modify(|count| *count += 1);
            }
        });
        Ok(())
    }
}

fn version_of<K: Namespaced>(object: &K) -> ((String, String), String) {
    let key = (K::kind(&()).into_owned(), object.name_any());
    (key, object.resource_version().unwrap_or_default())
}

async fn versions<K: Namespaced>(ctx: &Context) -> Result<Versions> {
    let list = ctx.api::<K>().list(&ListParams::default()).await?;
    Ok(list.items.iter().map(version_of).collect())
}

/// Formats Deployments, ReplicaSets and DaemonSets, without their templates.
fn workload(verb: &str, object: &Value) -> String {
    let mut spec = object["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("template");
        if verb != "ADDED" {
            spec.retain(|field, _| ["replicas", "paused"].contains(&field.as_str()));
        }
    }
    let mut status = object["status"].clone();
    remove_times(&mut status);
    let mut annotations = object["metadata"]["annotations"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    let generation = &object["metadata"]["generation"];
    let owned = owners(object);
    format!("{verb} generation {generation}{owned} {annotations} spec {spec} status {status}")
}

/// Formats replicas, annotations, and the reasons of conditions.
fn decision(object: &Value) -> String {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let conditions = object["status"]["conditions"].as_array();
    let mut reasons: Vec<_> = conditions
        .into_iter()
        .flatten()
        .map(|one| text(&one["reason"]))
        .collect();
    reasons.sort_unstable();
    let [generation, annotations] = [&metadata["generation"], &metadata["annotations"]];
    format!(
        "generation {generation} {annotations} replicas {} {reasons:?}",
        spec["replicas"]
    )
}

fn revision(verb: &str, object: &Value) -> String {
    format!("{verb} revision {}{}", object["revision"], owners(object))
}

fn pod(verb: &str, object: &Value) -> String {
    let status = &object["status"];
    let mut conditions = Vec::new();
    for condition in status["conditions"].as_array().into_iter().flatten() {
        conditions.push(format!(
            "{}={}",
            text(&condition["type"]),
            text(&condition["status"])
        ));
    }
    conditions.sort();
    let metadata = &object["metadata"];
    let leaving = if metadata["deletionTimestamp"].is_null() {
        String::new()
    } else {
        format!(" leaving within {}s", metadata["deletionGracePeriodSeconds"])
    };
    let node = if object["spec"]["nodeName"].is_null() {
        "no node"
    } else {
        "a node"
    };
    let owned = owners(object);
    let phase = text(&status["phase"]);
    format!(
        "{verb} {phase} on {node}{owned} [{}]{leaving}",
        conditions.join(" ")
    )
}

/// Formats an event without count and "combined" prefix, which depend on earlier events.
fn event(_: &str, object: &Value) -> String {
    let [kind, name] = ["kind", "name"].map(|field| text(&object["involvedObject"][field]));
    let [type_, reason, message] = ["type", "reason", "message"].map(|field| text(&object[field]));
    let source = text(&object["source"]["component"]);
    let message = message.trim_start_matches("(combined from similar events): ");
    format!("{type_} {kind} {name} {reason}: {message} ({source})")
}

fn owners(object: &Value) -> String {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let names: Vec<_> = owners
        .into_iter()
        .flatten()
        .map(|owner| {
            let [kind, name] = ["kind", "name"].map(|field| text(&owner[field]));
            let controls = owner["controller"] == json!(true) && owner["blockOwnerDeletion"] == json!(true);
            format!(
                " of {kind} {name}{}",
                if controls { "" } else { ", not its controller" }
            )
        })
        .collect();
    names.concat()
}

fn remove_times(status: &mut Value) {
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.retain(|field, _| !field.ends_with("Time"));
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
