//! Create, get, update and patch.

use serde_json::{Value, json};
use windlass_suite::Context;

use crate::api::rest::{Collection, name, version};

pub(crate) fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "k": "v" } })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "i" }] },
            },
        },
    })
}

pub(crate) async fn create_assigns_identity_and_version(ctx: Context) -> anyhow::Result<()> {
    let reply = Collection::config_maps(&ctx).create(&config_map("a")).await?;
    assert_eq!(reply.code, 201);
    let object = reply.body;
    assert_eq!(object["kind"], "ConfigMap");
    assert_eq!(object["apiVersion"], "v1");
    assert_eq!(object["data"], json!({ "k": "v" }));
    let metadata = &object["metadata"];
    assert_eq!(metadata["name"], "a");
    assert_eq!(metadata["namespace"], ctx.namespace());
    let uid = metadata["uid"].as_str().unwrap_or_default();
    assert_eq!(
        uid.split('-').map(str::len).collect::<Vec<_>>(),
        [8, 4, 4, 4, 12],
        "uid {uid}"
    );
    let created = metadata["creationTimestamp"].as_str().unwrap_or_default();
    assert!(
        created.len() == 20 && created.ends_with('Z'),
        "whole seconds in UTC, not {created}"
    );
    assert!(version(&object) > 0);
    assert_eq!(metadata.get("generation"), None, "a ConfigMap has no spec");
    Ok(())
}

pub(crate) async fn create_gives_generation_one_to_a_kind_with_a_spec(ctx: Context) -> anyhow::Result<()> {
    let object = Collection::deployments(&ctx)
        .create(&deployment("a"))
        .await?
        .ok()?;
    assert_eq!(object["metadata"]["generation"], 1);
    Ok(())
}

pub(crate) async fn create_of_an_existing_name_is_rejected(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    config_maps.create(&config_map("a")).await?.ok()?;
    let again = config_maps.create(&config_map("a")).await?;
    let status = again.assert_failed(409, "AlreadyExists", r#"configmaps "a" already exists"#);
    assert_eq!(status["details"], json!({ "name": "a", "kind": "configmaps" }));

    let deployments = Collection::deployments(&ctx);
    deployments.create(&deployment("a")).await?.ok()?;
    let again = deployments.create(&deployment("a")).await?;
    let status = again.assert_failed(409, "AlreadyExists", r#"deployments.apps "a" already exists"#);
    assert_eq!(
        status["details"],
        json!({ "name": "a", "group": "apps", "kind": "deployments" })
    );
    Ok(())
}

pub(crate) async fn create_in_a_missing_namespace_is_rejected(ctx: Context) -> anyhow::Result<()> {
    let missing = format!("{}-missing", ctx.namespace());
    let elsewhere = Collection::at(&ctx, format!("/api/v1/namespaces/{missing}/configmaps"));
    let reply = elsewhere.create(&config_map("a")).await?;
    reply.assert_failed(404, "NotFound", &format!(r#"namespaces "{missing}" not found"#));
    Ok(())
}

pub(crate) async fn generate_name_appends_five_characters(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let unnamed = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "made-" } });
    let first = name(&config_maps.create(&unnamed).await?.ok()?);
    let second = name(&config_maps.create(&unnamed).await?.ok()?);
    for made in [&first, &second] {
        let suffix = made.strip_prefix("made-").unwrap_or_default();
        assert_eq!(suffix.len(), 5, "{made}");
        assert!(
            suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)),
            "{made}"
        );
    }
    assert_ne!(first, second);
    Ok(())
}

pub(crate) async fn get_of_a_missing_object_is_not_found(ctx: Context) -> anyhow::Result<()> {
    let status = Collection::config_maps(&ctx).get("a").await?.assert_failed(
        404,
        "NotFound",
        r#"configmaps "a" not found"#,
    );
    assert_eq!(status["details"], json!({ "name": "a", "kind": "configmaps" }));
    assert_eq!(status["metadata"], json!({}));
    Ok(())
}

pub(crate) async fn update_replaces_the_object_and_raises_its_version(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let created = config_maps.create(&config_map("a")).await?.ok()?;
    let mut changed = created.clone();
    changed["data"] = json!({ "other": "value" });
    let reply = config_maps.replace("a", &changed).await?;
    assert_eq!(reply.code, 200);
    assert_eq!(reply.body["data"], json!({ "other": "value" }));
    assert!(version(&reply.body) > version(&created));
    for kept in ["uid", "creationTimestamp"] {
        assert_eq!(reply.body["metadata"][kept], created["metadata"][kept]);
    }
    assert_eq!(config_maps.get("a").await?.ok()?, reply.body);
    Ok(())
}

pub(crate) async fn update_with_a_stale_version_conflicts(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let stale = config_maps.create(&config_map("a")).await?.ok()?;
    let mut fresh = stale.clone();
    fresh["data"]["k"] = json!("first");
    config_maps.replace("a", &fresh).await?.ok()?;

    let mut late = stale;
    late["data"]["k"] = json!("second");
    let status = config_maps.replace("a", &late).await?.assert_failed(
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to \
         the latest version and try again",
    );
    assert_eq!(status["details"], json!({ "name": "a", "kind": "configmaps" }));
    assert_eq!(config_maps.get("a").await?.ok()?["data"]["k"], "first");
    Ok(())
}

pub(crate) async fn update_without_change_keeps_the_version_and_is_not_watched(
    ctx: Context,
) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let created = config_maps.create(&config_map("a")).await?.ok()?;
    let mut watch = config_maps
        .watch(&format!(
            "fieldSelector=metadata.name%3Da&resourceVersion={}",
            version(&created)
        ))
        .await?;

    let same = config_maps.replace("a", &created).await?.ok()?;
    assert_eq!(version(&same), version(&created));
    let same = config_maps
        .merge("a", &json!({ "data": { "k": "v" } }))
        .await?
        .ok()?;
    assert_eq!(version(&same), version(&created));

    let changed = config_maps
        .merge("a", &json!({ "data": { "k": "w" } }))
        .await?
        .ok()?;
    let (kind, object) = watch.next().await?;
    assert_eq!((kind.as_str(), version(&object)), ("MODIFIED", version(&changed)));
    Ok(())
}

pub(crate) async fn merge_patch_sets_and_removes_fields(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let created = config_maps.create(&config_map("a")).await?.ok()?;
    let patch = json!({ "metadata": { "labels": { "l": "1" } }, "data": { "k": null, "n": "new" } });
    let patched = config_maps.merge("a", &patch).await?.ok()?;
    assert_eq!(patched["data"], json!({ "n": "new" }));
    assert_eq!(patched["metadata"]["labels"], json!({ "l": "1" }));
    assert!(version(&patched) > version(&created));

    let missing = config_maps.merge("b", &patch).await?;
    missing.assert_failed(404, "NotFound", r#"configmaps "b" not found"#);
    Ok(())
}

pub(crate) async fn json_patch_is_atomic(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let created = config_maps.create(&config_map("a")).await?.ok()?;
    let guarded = |expected: &str| {
        json!([
            { "op": "add", "path": "/data/added", "value": "x" },
            { "op": "test", "path": "/data/k", "value": expected },
            { "op": "replace", "path": "/data/k", "value": "w" },
        ])
    };
    let refused = config_maps.json_patch("a", &guarded("something else")).await?;
    assert_eq!(
        (refused.code, &refused.body["reason"]),
        (422, &json!("Invalid")),
        "{}",
        refused.body
    );
    assert_eq!(config_maps.get("a").await?.ok()?, created);

    let patched = config_maps.json_patch("a", &guarded("v")).await?.ok()?;
    assert_eq!(patched["data"], json!({ "added": "x", "k": "w" }));
    Ok(())
}
