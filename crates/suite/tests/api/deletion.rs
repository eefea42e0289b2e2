//! Deletion: immediate, with finalizers, with preconditions, and of namespaces.

use serde_json::json;
use windlass_suite::Context;

use crate::api::{
    rest::{Collection, version},
    writes::config_map,
};

pub(crate) async fn delete_returns_the_uid_and_removes_the_object(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let created = config_maps.create(&config_map("a")).await?.ok()?;
    let reply = config_maps.delete("a").await?;
    assert_eq!(reply.code, 200);
    assert_eq!(reply.body["kind"], "Status");
    assert_eq!(reply.body["status"], "Success");
    assert_eq!(
        reply.body["details"],
        json!({ "name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"] })
    );
    config_maps
        .get("a")
        .await?
        .assert_failed(404, "NotFound", r#"configmaps "a" not found"#);
    config_maps
        .delete("a")
        .await?
        .assert_failed(404, "NotFound", r#"configmaps "a" not found"#);
    Ok(())
}

pub(crate) async fn finalizer_keeps_the_object_until_removed(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["windlass.dev/hold"]);
    let created = config_maps.create(&held).await?.ok()?;
    let mut watch = config_maps
        .watch(&format!(
            "fieldSelector=metadata.name%3Da&resourceVersion={}",
            version(&created)
        ))
        .await?;

    let reply = config_maps.delete("a").await?;
    assert_eq!(reply.code, 200);
    assert_eq!(
        reply.body["kind"], "ConfigMap",
        "the response is the object, since it still exists"
    );
    let ending = config_maps.get("a").await?.ok()?;
    assert_eq!(ending["metadata"]["uid"], created["metadata"]["uid"]);
    assert!(ending["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 0);
    let (kind, object) = watch.next().await?;
    assert_eq!((kind.as_str(), version(&object)), ("MODIFIED", version(&ending)));

    let again = config_maps.delete("a").await?.ok()?;
    assert_eq!(
        version(&again),
        version(&ending),
        "deleting twice changes nothing"
    );

    let more = json!({ "metadata": { "finalizers": ["windlass.dev/hold", "windlass.dev/late"] } });
    let refused = config_maps.merge("a", &more).await?;
    assert_eq!(
        (refused.code, &refused.body["reason"]),
        (422, &json!("Invalid")),
        "{}",
        refused.body
    );

    config_maps
        .merge("a", &json!({ "metadata": { "finalizers": null } }))
        .await?
        .ok()?;
    let (kind, object) = watch.next().await?;
    assert_eq!(kind, "DELETED");
    assert!(version(&object) > version(&ending));
    config_maps
        .get("a")
        .await?
        .assert_failed(404, "NotFound", r#"configmaps "a" not found"#);
    Ok(())
}

pub(crate) async fn delete_of_another_uid_conflicts(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let created = config_maps.create(&config_map("a")).await?.ok()?;
    let uid = created["metadata"]["uid"].as_str().unwrap_or_default();
    let other = "00000000-0000-4000-8000-000000000000";
    let options =
        |uid: &str| json!({ "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "uid": uid } });

    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition ({other}) does not match the UID \
         in record ({uid}). The object might have been deleted and then recreated"
    );
    config_maps
        .delete_with("a", &options(other))
        .await?
        .assert_failed(409, "Conflict", &message);
    assert_eq!(config_maps.get("a").await?.ok()?, created);

    config_maps.delete_with("a", &options(uid)).await?.ok()?;
    Ok(())
}

pub(crate) async fn terminating_namespace_rejects_new_objects(ctx: Context) -> anyhow::Result<()> {
    let namespaces = Collection::at(&ctx, "/api/v1/namespaces");
    let name = format!("{}-ending", ctx.namespace());
    // The finalizer keeps it terminating, even if a controller deletes its content quickly.
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "finalizers": ["windlass.dev/hold"] },
    });
    let created = namespaces.create(&namespace).await?.ok()?;
    assert_eq!(created["status"]["phase"], "Active");
    assert_eq!(
        created["metadata"]["labels"]["kubernetes.io/metadata.name"],
        json!(name)
    );
    let inside = Collection::at(&ctx, format!("/api/v1/namespaces/{name}/configmaps"));
    inside.create(&config_map("early")).await?.ok()?;

    namespaces.delete(&name).await?.ok()?;
    let ending = namespaces.get(&name).await?.ok()?;
    assert_eq!(ending["status"]["phase"], "Terminating");
    assert!(ending["metadata"]["deletionTimestamp"].is_string());

    let message = format!(
        "configmaps \"late\" is forbidden: unable to create new content in namespace {name} because it is being terminated"
    );
    let status = inside
        .create(&config_map("late"))
        .await?
        .assert_failed(403, "Forbidden", &message);
    assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating");
    namespaces
        .merge(&name, &json!({ "metadata": { "finalizers": null } }))
        .await?
        .ok()?;
    Ok(())
}
