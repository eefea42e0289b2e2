//! Custom resources, whose kinds are created, changed and deleted.

use anyhow::Result;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject},
};
use serde_json::json;
use windlass_suite::Context;

use crate::upkeep::recorded_watch::{
    RecordedWatch, blocking_owner, config_map, config_maps, create, eventually, nonexistent_owner, owner,
    resource,
};

/// A custom resource definition of this test case, and its objects in the case's namespace.
pub(crate) struct Foos {
    definitions: Api<DynamicObject>,
    name: String,
    api_version: String,
    api: Api<DynamicObject>,
}

impl Foos {
    pub(crate) async fn install(ctx: &Context) -> Result<Self> {
        let definitions = Api::all_with(
            ctx.client(),
            &resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        );
        let group = format!("{}.windlass.dev", ctx.namespace());
        let name = format!("foos.{group}");
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        create(
            &definitions,
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": name},
                "spec": {
                    "group": group, "scope": "Namespaced",
                    "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
                    "versions": [
                        {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                            "subresources": {"scale": {
                                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                            }}},
                    ],
                },
            }),
        )
        .await?;
        let api = Api::namespaced_with(ctx.client(), ctx.namespace(), &resource(&group, "v1", "Foo"));
        eventually("the kind", async || {
            let served = api.list(&kube::api::ListParams::default()).await;
            Ok(served.ok())
        })
        .await?;
        Ok(Self {
            definitions,
            name,
            api_version: format!("{group}/v1"),
            api,
        })
    }

    pub(crate) async fn create(&self, name: &str, owners: &[serde_json::Value]) -> Result<DynamicObject> {
        let metadata = json!({"name": name, "ownerReferences": owners});
        let foo = json!({"apiVersion": self.api_version, "kind": "Foo", "metadata": metadata, "spec": {"replicas": 4}});
        let mut created = create(&self.api, foo).await?;
        created.types = Some(kube::api::TypeMeta {
            api_version: self.api_version.clone(),
            kind: "Foo".to_owned(),
        });
        Ok(created)
    }
}

pub(crate) async fn custom_resources_are_owners_and_dependents(ctx: Context) -> Result<()> {
    let foos = Foos::install(&ctx).await?;
    let api = config_maps(&ctx);
    let mut watch = RecordedWatch::start(&foos.api).await?;
    let mut children = RecordedWatch::start(&api).await?;
    let parent = foos.create("a", &[]).await?;
    foos.create("b", &[owner(&parent), nonexistent_owner("v1", "ConfigMap")])
        .await?;
    config_map(&api, "a-1", &[blocking_owner(&parent)]).await?;
    // Custom resources do not support strategic merge patches.
    watch.until("MODIFIED b <a").await?;
    foos.api.delete("a", &DeleteParams::foreground()).await?;
    children.until("DELETED a-1 <a").await?;
    watch.until("DELETED a [foregroundDeletion] deleting").await?;
    if foos.api.get_opt("b").await?.is_some() {
        watch.until("DELETED b <a").await?;
    }

    let parent = foos.create("c", &[]).await?;
    foos.create("c-1", &[owner(&parent)]).await?;
    foos.api.delete("c", &DeleteParams::orphan()).await?;
    let lines = watch.until("DELETED c [orphan] deleting").await?;
    assert_eq!(lines[lines.len() - 2], "MODIFIED c-1");
    foos.definitions
        .delete(&foos.name, &DeleteParams::default())
        .await?;
    Ok(())
}

/// kube's types cannot parse objects that nest this deep, so the controllers must not need to.
pub(crate) async fn deeply_nested_objects_are_deleted_with_owner_and_namespace(ctx: Context) -> Result<()> {
    const DEPTH: usize = 9_000;
    let foos = Foos::install(&ctx).await?;
    let api = config_maps(&ctx);
    let url = |namespace: &str| format!("/apis/{}/namespaces/{namespace}/foos", foos.api_version);
    let create_deep = async |namespace: &str, owners: &[serde_json::Value]| {
        let deep = format!("{}1{}", "{\"a\":".repeat(DEPTH), "}".repeat(DEPTH));
        let foo = json!({
            "apiVersion": foos.api_version, "kind": "Foo", "spec": "DEEP",
            "metadata": {"name": "deep", "ownerReferences": owners},
        });
        let body = foo.to_string().replace("\"DEEP\"", &deep);
        let request = http::Request::post(url(namespace)).body(body.into_bytes())?;
        ctx.client()
            .request_text(request)
            .await
            .map_err(anyhow::Error::from)
    };
    // Its managed fields are as deep, so kube's types cannot even parse its metadata.
    let is_gone = async |path: String| {
        let request = http::Request::get(path).body(Vec::new())?;
        match ctx.client().request_text(request).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Some(())),
            Err(error) => Err(anyhow::Error::from(error)),
        }
    };

    let parent = config_map(&api, "parent", &[]).await?;
    create_deep(ctx.namespace(), &[owner(&parent)]).await?;
    foos.create("shallow", &[owner(&parent)]).await?;
    let deep = format!("{}/deep", url(ctx.namespace()));
    assert_eq!(is_gone(deep.clone()).await?, None);
    api.delete("parent", &DeleteParams::background()).await?;
    let shallow = format!("{}/shallow", url(ctx.namespace()));
    for path in [deep, shallow] {
        eventually("the collection", async || is_gone(path.clone()).await).await?;
    }

    let namespaces = Api::<DynamicObject>::all_with(ctx.client(), &resource("", "v1", "Namespace"));
    let other = format!("{}-deep", ctx.namespace());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}});
    create(&namespaces, namespace).await?;
    create_deep(&other, &[]).await?;
    namespaces.delete(&other, &DeleteParams::default()).await?;
    let path = format!("/api/v1/namespaces/{other}");
    eventually("the end of the namespace", async || is_gone(path.clone()).await).await
}

pub(crate) async fn deleting_a_crd_collects_dependents_of_its_objects(ctx: Context) -> Result<()> {
    let foos = Foos::install(&ctx).await?;
    let api = config_maps(&ctx);
    let mut children = RecordedWatch::start(&api).await?;
    let parent = foos.create("a", &[]).await?;
    config_map(&api, "a-1", &[owner(&parent)]).await?;
    // Wait until the collector watches the kind; otherwise it does not know the objects.
    let seen = foos
        .create("seen", &[nonexistent_owner("v1", "ConfigMap")])
        .await?;
    eventually("the collector to watch the kind", async || {
        let gone = foos
            .api
            .get_opt(seen.metadata.name.as_deref().unwrap_or_default());
        Ok(gone.await?.is_none().then_some(()))
    })
    .await?;
    foos.definitions
        .delete(&foos.name, &DeleteParams::default())
        .await?;
    children.until("DELETED a-1 <a").await?;
    Ok(())
}

pub(crate) async fn crd_version_change_keeps_collection_working(ctx: Context) -> Result<()> {
    let foos = Foos::install(&ctx).await?;
    let api = config_maps(&ctx);
    let mut children = RecordedWatch::start(&api).await?;
    let parent = foos.create("a", &[]).await?;
    foos.create("b", &[]).await?;
    config_map(&api, "a-1", &[owner(&parent)]).await?;
    let mut definition = foos.definitions.get(&foos.name).await?;
    let mut other = definition.data["spec"]["versions"][0].clone();
    definition.data["spec"]["versions"][0]["served"] = false.into();
    other["name"] = "v2".into();
    other["storage"] = false.into();
    if let Some(versions) = definition.data["spec"]["versions"].as_array_mut() {
        versions.push(other);
    }
    let params = kube::api::PostParams::default();
    foos.definitions.replace(&foos.name, &params, &definition).await?;
    let group = foos.name.trim_start_matches("foos.");
    let moved = Api::namespaced_with(ctx.client(), ctx.namespace(), &resource(group, "v2", "Foo"));
    // A dependent in the other version shows that the collector watches it.
    let foo = json!({"apiVersion": format!("{group}/v2"), "kind": "Foo",
        "metadata": {"name": "c", "ownerReferences": [nonexistent_owner("v1", "ConfigMap")]}});
    eventually("the other version", async || {
        Ok(create(&moved, foo.clone()).await.ok())
    })
    .await?;
    eventually("the collector to delete it", async || {
        Ok(moved.get_opt("c").await?.is_none().then_some(()))
    })
    .await?;
    assert!(api.get_opt("a-1").await?.is_some(), "its owner exists");
    // A reference with an unserved version cannot be resolved; one with a served version can.
    let mut served = owner(&parent);
    served["apiVersion"] = format!("{group}/v2").into();
    config_map(&api, "a-2", &[served]).await?;
    moved.delete("a", &DeleteParams::default()).await?;
    children.until("DELETED a-2 <a").await?;
    assert!(
        api.get_opt("a-1").await?.is_some(),
        "its owner cannot be resolved"
    );
    foos.definitions
        .delete(&foos.name, &DeleteParams::default())
        .await?;
    Ok(())
}
