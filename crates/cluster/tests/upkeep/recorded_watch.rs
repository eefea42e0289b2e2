//! Records the watch events of a kind as lines of text.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt, stream::BoxStream};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use windlass_suite::Context;

/// Timeout of every wait. A real namespace controller waits for tens of seconds at a time.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A watch, and its events so far.
pub(crate) struct RecordedWatch {
    events: BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>,
    pub(crate) lines: Vec<String>,
    render: fn(&DynamicObject) -> String,
}

impl RecordedWatch {
    /// Starts a watch that records names, owners and finalizers.
    pub(crate) async fn start(api: &Api<DynamicObject>) -> Result<Self> {
        Self::start_with(api, &WatchParams::default(), format_owned).await
    }

    /// Starts a watch that formats objects with `render`.
    pub(crate) async fn start_with(
        api: &Api<DynamicObject>,
        params: &WatchParams,
        render: fn(&DynamicObject) -> String,
    ) -> Result<Self> {
        let now = api.list_metadata(&kube::api::ListParams::default()).await?;
        let version = now.metadata.resource_version.context("a list has a version")?;
        let events = api.watch(params, &version).await?.boxed();
        Ok(Self {
            events,
            lines: Vec::new(),
            render,
        })
    }

    /// Reads events until this line, and returns all lines so far.
    pub(crate) async fn until(&mut self, line: &str) -> Result<&[String]> {
        self.until_one_of(&[line]).await
    }

    /// Reads events until one of these lines, and returns all lines so far.
    pub(crate) async fn until_one_of(&mut self, lines: &[&str]) -> Result<&[String]> {
        let found = timeout(TIMEOUT, async {
            while self
                .lines
                .last()
                .is_none_or(|last| !lines.contains(&last.as_str()))
            {
                self.next().await?;
            }
            Ok(())
        });
        match found.await {
            Ok(result) => result.map(|()| self.lines.as_slice()),
            Err(_) => bail!("timed out waiting for {lines:?} after {:#?}", self.lines),
        }
    }

    async fn next(&mut self) -> Result<()> {
        let event = self.events.next().await.context("the watch ended")??;
        let (verb, object) = match &event {
            WatchEvent::Added(object) => ("ADDED", object),
            WatchEvent::Modified(object) => ("MODIFIED", object),
            WatchEvent::Deleted(object) => ("DELETED", object),
            WatchEvent::Bookmark(_) => return Ok(()),
            WatchEvent::Error(status) => bail!("the watch failed: {status}"),
        };
        if object.name_any() != "kube-root-ca.crt" {
            self.lines.push(format!("{verb} {}", (self.render)(object)));
        }
        Ok(())
    }
}

/// Formats `name <owner,owner [finalizer] deleting`.
fn format_owned(object: &DynamicObject) -> String {
    let mut parts = vec![object.name_any()];
    let owners: Vec<_> = object
        .owner_references()
        .iter()
        .map(|owner| owner.name.as_str())
        .collect();
    if !owners.is_empty() {
        parts.push(format!("<{}", owners.join(",")));
    }
    if !object.finalizers().is_empty() {
        parts.push(format!("[{}]", object.finalizers().join(",")));
    }
    if object.metadata.deletion_timestamp.is_some() {
        parts.push("deleting".to_owned());
    }
    parts.join(" ")
}

pub(crate) fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

pub(crate) fn config_maps(ctx: &Context) -> Api<DynamicObject> {
    config_maps_in(ctx.client(), ctx.namespace())
}

pub(crate) fn config_maps_in(client: Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &resource("", "v1", "ConfigMap"))
}

pub(crate) async fn create(api: &Api<DynamicObject>, object: Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object)?;
    Ok(api.create(&PostParams::default(), &object).await?)
}

/// Creates a config map with these owners.
pub(crate) async fn config_map(
    api: &Api<DynamicObject>,
    name: &str,
    owners: &[Value],
) -> Result<DynamicObject> {
    let metadata = json!({"name": name, "ownerReferences": owners});
    create(
        api,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),
    )
    .await
}

/// Builds an owner reference.
pub(crate) fn owner(object: &DynamicObject) -> Value {
    let types = object.types.clone().unwrap_or_default();
    json!({
        "apiVersion": types.api_version, "kind": types.kind,
        "name": object.name_any(), "uid": object.uid(),
    })
}

/// Builds an owner reference that blocks the owner's foreground deletion.
pub(crate) fn blocking_owner(object: &DynamicObject) -> Value {
    let mut owner = owner(object);
    owner["blockOwnerDeletion"] = true.into();
    owner
}

/// Builds an owner reference to a nonexistent object.
pub(crate) fn nonexistent_owner(api_version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "name": "nobody", "uid": "11111111-2222-4333-8444-555555555555",
    })
}

/// Polls until `look` returns a value.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let found = timeout(TIMEOUT, async {
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            sleep(POLL_INTERVAL).await;
        }
    });
    found
        .await
        .with_context(|| format!("timed out waiting for {what}"))?
}
