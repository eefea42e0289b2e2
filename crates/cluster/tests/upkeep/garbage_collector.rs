//! Garbage collection.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::sleep;
use windlass_suite::Context;

use crate::upkeep::recorded_watch::{
    RecordedWatch, blocking_owner, config_map, config_maps, config_maps_in, create, eventually,
    nonexistent_owner, owner, resource,
};

/// Long enough for a collector to delete what it should keep.
const A_WHILE: Duration = Duration::from_millis(300);

pub(crate) async fn background_deletion_collects_dependents(ctx: Context) -> Result<()> {
    let api = config_maps(&ctx);
    let mut watch = RecordedWatch::start(&api).await?;
    let parent = config_map(&api, "a", &[]).await?;
    let child = config_map(&api, "a-1", &[owner(&parent)]).await?;
    config_map(&api, "a-1-1", &[owner(&child)]).await?;
    config_map(&api, "b", &[]).await?;
    api.delete("a", &DeleteParams::background()).await?;
    let lines = watch.until("DELETED a-1-1 <a-1").await?;
    assert_eq!(lines[4..], ["DELETED a", "DELETED a-1 <a", "DELETED a-1-1 <a-1"]);
    ensure!(api.get_opt("b").await?.is_some());
    Ok(())
}

pub(crate) async fn foreground_deletion_waits_for_blocking_dependents(ctx: Context) -> Result<()> {
    let api = config_maps(&ctx);
    let mut watch = RecordedWatch::start(&api).await?;
    let parent = config_map(&api, "b", &[]).await?;
    let child = config_map(&api, "b-1", &[blocking_owner(&parent)]).await?;
    config_map(&api, "b-1-1", &[blocking_owner(&child)]).await?;
    api.delete("b", &DeleteParams::foreground()).await?;
    let lines = watch.until("DELETED b [foregroundDeletion] deleting").await?;
    assert_eq!(
        lines[3..],
        [
            "MODIFIED b [foregroundDeletion] deleting",
            "MODIFIED b-1 <b [foregroundDeletion] deleting",
            "DELETED b-1-1 <b-1",
            "DELETED b-1 <b [foregroundDeletion] deleting",
            "DELETED b [foregroundDeletion] deleting",
        ]
    );
    Ok(())
}

pub(crate) async fn dependent_with_finalizer_blocks_foreground_deletion(ctx: Context) -> Result<()> {
    let api = config_maps(&ctx);
    let mut watch = RecordedWatch::start(&api).await?;
    let parent = config_map(&api, "l", &[]).await?;
    for (name, owner) in [("l-1", blocking_owner(&parent)), ("l-2", owner(&parent))] {
        create(
            &api,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "name": name, "ownerReferences": [owner], "finalizers": ["example.com/stuck"],
            }}),
        )
        .await?;
    }
    api.delete("l", &DeleteParams::foreground()).await?;
    for name in ["l-1", "l-2"] {
        eventually("the dependent's deletion", async || {
            let dependent = api.get(name).await?;
            Ok(dependent.metadata.deletion_timestamp)
        })
        .await?;
    }
    sleep(A_WHILE).await;
    ensure!(api.get_opt("l").await?.is_some(), "a dependent blocks it");
    let release = json!({"metadata": {"finalizers": null}});
    api.patch("l-1", &PatchParams::default(), &Patch::Merge(release))
        .await?;
    let lines = watch.until("DELETED l [foregroundDeletion] deleting").await?;
    assert_eq!(
        lines[lines.len() - 2],
        "DELETED l-1 <l [example.com/stuck] deleting"
    );
    ensure!(api.get_opt("l-2").await?.is_some(), "it blocks no owner");
    Ok(())
}

pub(crate) async fn orphan_deletion_removes_owner_references_first(ctx: Context) -> Result<()> {
    let api = config_maps(&ctx);
    let mut watch = RecordedWatch::start(&api).await?;
    let parent = config_map(&api, "c", &[]).await?;
    config_map(&api, "c-1", &[owner(&parent)]).await?;
    api.delete("c", &DeleteParams::orphan()).await?;
    let lines = watch.until("DELETED c [orphan] deleting").await?;
    assert_eq!(
        lines[2..],
        [
            "MODIFIED c [orphan] deleting",
            "MODIFIED c-1",
            "DELETED c [orphan] deleting",
        ]
    );
    sleep(A_WHILE).await;
    ensure!(api.get_opt("c-1").await?.is_some(), "it has no owner any more");
    Ok(())
}

pub(crate) async fn dependent_of_nonexistent_owner_is_deleted(ctx: Context) -> Result<()> {
    let api = config_maps(&ctx);
    let mut watch = RecordedWatch::start(&api).await?;
    config_map(&api, "d-1", &[nonexistent_owner("v1", "ConfigMap")]).await?;
    let lines = watch.until("DELETED d-1 <nobody").await?;
    assert_eq!(lines, ["ADDED d-1 <nobody", "DELETED d-1 <nobody"]);
    Ok(())
}

pub(crate) async fn dependent_of_previous_uid_is_deleted(ctx: Context) -> Result<()> {
    let api = config_maps(&ctx);
    let mut watch = RecordedWatch::start(&api).await?;
    let parent = config_map(&api, "p", &[]).await?;
    api.delete("p", &DeleteParams::default()).await?;
    let successor = config_map(&api, "p", &[]).await?;
    config_map(&api, "p-1", &[owner(&parent)]).await?;
    config_map(&api, "p-2", &[owner(&successor)]).await?;
    watch.until("DELETED p-1 <p").await?;
    sleep(A_WHILE).await;
    ensure!(api.get_opt("p-2").await?.is_some(), "its owner is there");
    Ok(())
}

pub(crate) async fn reference_to_deleted_owner_is_removed_while_another_exists(ctx: Context) -> Result<()> {
    let api = config_maps(&ctx);
    let mut watch = RecordedWatch::start(&api).await?;
    let one = config_map(&api, "f", &[]).await?;
    let other = config_map(&api, "g", &[]).await?;
    config_map(
        &api,
        "f-1",
        &[owner(&one), owner(&other), nonexistent_owner("v1", "ConfigMap")],
    )
    .await?;
    watch.until("MODIFIED f-1 <f,g").await?;
    api.delete("f", &DeleteParams::default()).await?;
    let lines = watch.until("MODIFIED f-1 <g").await?;
    assert_eq!(
        lines[2..],
        [
            "ADDED f-1 <f,g,nobody",
            "MODIFIED f-1 <f,g",
            "DELETED f",
            "MODIFIED f-1 <g",
        ]
    );
    // Removing fields makes no field manager.
    let left = api.get("f-1").await?;
    let managers: Vec<_> = left
        .managed_fields()
        .iter()
        .filter_map(|entry| entry.manager.as_deref())
        .collect();
    ensure!(!managers.contains(&"kube-controller-manager"), "{managers:?}");
    Ok(())
}

pub(crate) async fn owner_in_another_namespace_is_invalid(ctx: Context) -> Result<()> {
    let namespaces = Api::<Namespace>::all(ctx.client());
    let name = format!("{}-2", ctx.namespace());
    let other = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces.create(&PostParams::default(), &other).await?;
    let api = config_maps(&ctx);
    let elsewhere = config_maps_in(ctx.client(), &name);
    let parent = config_map(&api, "h", &[]).await?;
    // The collector reports the owner only if it observed it before the dependent.
    sleep(A_WHILE).await;
    let mut watch = RecordedWatch::start(&elsewhere).await?;
    let child = config_map(&elsewhere, "h-1", &[owner(&parent)]).await?;
    watch.until("DELETED h-1 <h").await?;
    let events = Api::<Event>::namespaced(ctx.client(), &name);
    let event = eventually("the event", async || {
        let events = events.list(&ListParams::default()).await?;
        Ok(events
            .items
            .into_iter()
            .find(|event| event.reason.as_deref() == Some("OwnerRefInvalidNamespace")))
    })
    .await?;
    let uid = parent.uid().context("it has a uid")?;
    assert_eq!(
        event.message.as_deref(),
        Some(
            format!(
                "ownerRef [v1/ConfigMap, namespace: {name}, name: h, uid: {uid}] does not exist in namespace \"{name}\""
            )
            .as_str()
        )
    );
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.involved_object.name.as_deref(), Some("h-1"));
    assert_eq!(event.involved_object.uid, child.uid());
    let source = event.source.unwrap_or_default().component;
    assert_eq!(source.as_deref(), Some("garbage-collector-controller"));
    namespaces.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

pub(crate) async fn cluster_scoped_object_keeps_its_namespaced_owner(ctx: Context) -> Result<()> {
    let parent = config_map(&config_maps(&ctx), "i", &[]).await?;
    let roles = Api::all_with(
        ctx.client(),
        &resource("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    );
    let name = format!("{}-i", ctx.namespace());
    create(
        &roles,
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {
            "name": name, "ownerReferences": [owner(&parent)],
        }}),
    )
    .await?;
    sleep(A_WHILE).await;
    ensure!(roles.get_opt(&name).await?.is_some());
    roles.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

pub(crate) async fn dependent_of_unknown_kind_is_kept(ctx: Context) -> Result<()> {
    let api = config_maps(&ctx);
    config_map(&api, "k-1", &[nonexistent_owner("no.example.com/v1", "Nope")]).await?;
    sleep(A_WHILE).await;
    ensure!(api.get_opt("k-1").await?.is_some());
    Ok(())
}
