//! The cache on real and embedded API servers. `follow.rs` has the cases that a healthy server does not show.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Namespace, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::json;
use tokio::time::timeout;
use windlass_cache::{
    Cache, CacheSet, Change, Lister, ObjectKey, Query, Subscription, SyncError, Uid, WatchScope,
};
use windlass_suite::{Context, suite};

suite!("cache";
    cache_converges_to_the_server_state,
    scope_is_evaluated_by_the_server,
    kind_is_followed_across_install_and_uninstall,
    own_writes_are_visible_to_the_next_read,
    own_writes_in_another_shape_are_visible_to_the_next_read,
    own_writes_move_objects_into_and_out_of_a_scope,
    object_with_finalizer_stays_until_released,
    object_stays_for_its_grace_period_or_content,
);

/// Much longer than any step takes.
const DEADLINE: Duration = Duration::from_mins(1);

async fn cache_converges_to_the_server_state(ctx: Context) -> anyhow::Result<()> {
    let api = ctx.api::<ConfigMap>();
    for number in 0..20 {
        api.create(&PostParams::default(), &config_map(&format!("early-{number}")))
            .await?;
    }
    let cache = Cache::<ConfigMap>::start(ctx.client(), &WatchScope::all().namespace(ctx.namespace()));
    let lister = cache.synced(DEADLINE).await?;
    assert_eq!(versions(&lister), server_versions(&api).await?);
    assert!(
        lister
            .list(&Query::all())
            .iter()
            .all(|object| object.managed_fields().is_empty())
    );

    let mut changes = lister.subscribe();
    for number in 0..10 {
        let patch = Patch::Merge(json!({ "data": { "number": number.to_string() } }));
        api.patch(&format!("early-{number}"), &PatchParams::default(), &patch)
            .await?;
        api.delete(&format!("early-{}", 19 - number), &DeleteParams::default())
            .await?;
    }
    api.create(&PostParams::default(), &config_map("last")).await?;
    until(&mut changes, |change| change.key().name() == "last").await?;
    assert_eq!(versions(&lister), server_versions(&api).await?);
    assert!(
        lister
            .get(&ObjectKey::namespaced(ctx.namespace(), "early-19"))
            .is_none()
    );
    Ok(())
}

async fn scope_is_evaluated_by_the_server(ctx: Context) -> anyhow::Result<()> {
    let api = ctx.api::<ConfigMap>();
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        let mut object = config_map(name);
        object.labels_mut().insert("app".to_owned(), app.to_owned());
        api.create(&PostParams::default(), &object).await?;
    }
    let names = async |selection: WatchScope| -> anyhow::Result<Vec<String>> {
        let lister = Cache::<ConfigMap>::start(ctx.client(), &selection)
            .synced(DEADLINE)
            .await?;
        Ok(lister
            .list(&Query::all())
            .iter()
            .map(|object| object.name_any())
            .collect())
    };
    let here = || WatchScope::all().namespace(ctx.namespace());
    assert_eq!(names(here().labels("app=web")).await?, ["a", "c"]);
    assert_eq!(
        names(here().labels("app in (db)").fields("metadata.name!=x")).await?,
        ["b"]
    );
    assert_eq!(names(here().fields("metadata.name=c")).await?, ["c"]);
    Ok(())
}

async fn kind_is_followed_across_install_and_uninstall(ctx: Context) -> anyhow::Result<()> {
    let group = format!("{}.windlass.test", ctx.namespace());
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Widget"));
    let selection = WatchScope::all().namespace(ctx.namespace());
    let cache = Cache::<DynamicObject>::start_dynamic(ctx.client(), &kind, &selection);
    let missing = cache
        .synced(Duration::from_millis(200))
        .await
        .err()
        .context("the kind is not installed")?;
    assert!(
        matches!(&missing, SyncError::Deadline { missing, .. } if missing.contains("not installed")),
        "{missing}"
    );

    let definitions = Api::<CustomResourceDefinition>::all(ctx.client());
    let widgets = Api::<DynamicObject>::namespaced_with(ctx.client(), ctx.namespace(), &kind);
    let mut changes = cache.subscribe();
    let only = WatchScope::all().fields(format!("metadata.name=widgets.{group}"));
    let mut definition_changes = Cache::<CustomResourceDefinition>::start(ctx.client(), &only).subscribe();
    for _ in 0..2 {
        definitions
            .create(&PostParams::default(), &widget_definition(&group))
            .await?;
        // Received now, before the definition is deleted again.
        until(&mut definition_changes, |change| {
            matches!(change, Change::Applied { .. })
        })
        .await?;
        let lister = cache.synced(DEADLINE).await?;
        // The first list shows that the kind is served; a recreated definition may take a moment.
        let created = timeout(DEADLINE, async {
            loop {
                match widgets
                    .create(&PostParams::default(), &DynamicObject::new("w", &kind))
                    .await
                {
                    Ok(created) => return created,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        let created = created.await.context("cannot create a widget")?;
        until(&mut changes, |change| {
            matches!(change, Change::Applied { .. })
                && created.metadata.uid.as_deref().map(Uid::from) == Some(change.meta().uid())
        })
        .await?;
        definitions
            .delete(&format!("widgets.{group}"), &DeleteParams::default())
            .await?;
        until(&mut changes, |change| matches!(change, Change::Deleted { .. })).await?;
        assert!(lister.is_empty());
        until(&mut definition_changes, |change| {
            matches!(change, Change::Deleted { .. })
        })
        .await?;
    }
    Ok(())
}

/// Each kind of write is readable without waiting; the watch events that follow change nothing.
async fn own_writes_are_visible_to_the_next_read(ctx: Context) -> anyhow::Result<()> {
    let caches = CacheSet::new(ctx.client());
    let here = WatchScope::all().namespace(ctx.namespace());
    let lister = caches.get::<ConfigMap>(&here).synced(DEADLINE).await?;
    let elsewhere = caches.get::<ConfigMap>(&WatchScope::all().namespace("kube-system"));
    let api = Api::<ConfigMap>::namespaced(caches.client().clone(), ctx.namespace());
    let read = |name: &str| lister.get(&ObjectKey::namespaced(ctx.namespace(), name));
    let text = |name: &str| Some(read(name)?.data.as_ref()?.get("text")?.clone());
    for round in 0..20 {
        let name = format!("own-{round}");
        let mut object = api.create(&PostParams::default(), &config_map(&name)).await?;
        anyhow::ensure!(read(&name).is_some(), "created");
        object.data = Some([("text".to_owned(), "replaced".to_owned())].into());
        api.replace(&name, &PostParams::default(), &object).await?;
        assert_eq!(text(&name).as_deref(), Some("replaced"));
        let merge = Patch::Merge(json!({ "data": { "text": "patched" } }));
        api.patch(&name, &PatchParams::default(), &merge).await?;
        assert_eq!(text(&name).as_deref(), Some("patched"));
        let apply = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": "applied" } });
        api.patch(
            &name,
            &PatchParams::apply("windlass-test").force(),
            &Patch::Apply(apply),
        )
        .await?;
        assert_eq!(text(&name).as_deref(), Some("applied"));
        let dry_run = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let merge = Patch::Merge(json!({ "data": { "text": "dry run" } }));
        api.patch(&name, &dry_run, &merge).await?;
        assert_eq!(
            text(&name).as_deref(),
            Some("applied"),
            "a dry run writes nothing"
        );
        if round % 2 == 0 {
            api.delete(&name, &DeleteParams::default()).await?;
            assert!(read(&name).is_none(), "deleted");
            api.create(&PostParams::default(), &config_map(&name)).await?;
            assert!(text(&name).is_none() && read(&name).is_some(), "recreated");
        }
    }
    api.delete_collection(
        &DeleteParams::default(),
        &ListParams::default().fields("metadata.name!=kube-root-ca.crt"),
    )
    .await?;
    assert!(read("own-0").is_none() && read("own-19").is_none(), "all deleted");
    let last = api.create(&PostParams::default(), &config_map("last")).await?;
    let version = last.resource_version().unwrap_or_default().parse()?;
    anyhow::ensure!(
        lister.wait_for_resource_version(version, DEADLINE).await,
        "the watch does not reach the version"
    );
    let server = server_versions(&ctx.api::<ConfigMap>()).await?;
    assert_eq!(versions(&lister), server, "after the watch events");
    let elsewhere = elsewhere.synced(DEADLINE).await?;
    assert!(
        elsewhere
            .get(&ObjectKey::namespaced(ctx.namespace(), "last"))
            .is_none(),
        "another namespace"
    );
    Ok(())
}

/// Writes through another API version and to the scale subresource.
async fn own_writes_in_another_shape_are_visible_to_the_next_read(ctx: Context) -> anyhow::Result<()> {
    let group = format!("{}.windlass.test", ctx.namespace());
    let resource = |version: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(&group, version, "Widget"));
    let (alpha, stable) = (resource("v1alpha1"), resource("v1"));
    let mut definition = widget_definition(&group);
    let mut version = definition.spec.versions[0].clone();
    (version.name, version.storage) = ("v1alpha1".to_owned(), false);
    definition.spec.versions.push(version);
    for version in &mut definition.spec.versions {
        let schema = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut());
        schema.context("a schema")?.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    Api::<CustomResourceDefinition>::all(ctx.client())
        .create(&PostParams::default(), &definition)
        .await?;

    let caches = CacheSet::new(ctx.client());
    let here = WatchScope::all().namespace(ctx.namespace());
    let lister = caches
        .get_dynamic::<DynamicObject>(&stable, &here)
        .synced(DEADLINE)
        .await?;
    let widgets = Api::<DynamicObject>::namespaced_with(caches.client().clone(), ctx.namespace(), &alpha);
    for round in 0..20 {
        let name = format!("w-{round}");
        let read = || lister.get(&ObjectKey::namespaced(ctx.namespace(), name.as_str()));
        let object = DynamicObject::new(&name, &alpha).data(json!({ "spec": { "size": 1 } }));
        widgets.create(&PostParams::default(), &object).await?;
        let created = read().context("created")?;
        let types = created.types.as_ref().context("types")?;
        assert_eq!(
            types.api_version,
            format!("{group}/v1"),
            "it is read in the cached version"
        );
        let patch = Patch::Merge(json!({ "spec": { "size": 2 } }));
        widgets.patch(&name, &PatchParams::default(), &patch).await?;
        assert_eq!(
            read().context("patched")?.data["spec"]["size"],
            2,
            "round {round}"
        );
        widgets.delete(&name, &DeleteParams::default()).await?;
        assert!(read().is_none(), "deleted");
    }

    let lister = caches.get::<Deployment>(&here).synced(DEADLINE).await?;
    let deployments = Api::<Deployment>::namespaced(caches.client().clone(), ctx.namespace());
    let deployment = serde_json::from_value(json!({
        "metadata": { "name": "d" },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": "d" } },
            "template": {
                "metadata": { "labels": { "app": "d" } },
                "spec": { "containers": [{ "name": "c", "image": "registry.example.com/c:1" }] },
            },
        },
    }))?;
    deployments.create(&PostParams::default(), &deployment).await?;
    for replicas in 1..10 {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        deployments
            .patch_scale("d", &PatchParams::default(), &patch)
            .await?;
        let read = lister.get(&ObjectKey::namespaced(ctx.namespace(), "d"));
        let spec = read.and_then(|deployment| deployment.spec.clone());
        assert_eq!(spec.and_then(|spec| spec.replicas), Some(replicas));
    }
    Ok(())
}

/// A write decides immediately whether an object belongs to a scope.
async fn own_writes_move_objects_into_and_out_of_a_scope(ctx: Context) -> anyhow::Result<()> {
    let caches = CacheSet::new(ctx.client());
    let web = WatchScope::all().namespace(ctx.namespace()).labels("app=web");
    let lister = caches.get::<ConfigMap>(&web).synced(DEADLINE).await?;
    let api = Api::<ConfigMap>::namespaced(caches.client().clone(), ctx.namespace());
    api.create(&PostParams::default(), &config_map("moving")).await?;
    let key = ObjectKey::namespaced(ctx.namespace(), "moving");
    assert!(lister.get(&key).is_none(), "not in the scope");
    for round in 0..10 {
        for (app, inside) in [("web", true), ("db", false)] {
            let patch =
                Patch::Merge(json!({ "metadata": { "labels": { "app": app, "round": round.to_string() } } }));
            api.patch("moving", &PatchParams::default(), &patch).await?;
            assert_eq!(lister.get(&key).is_some(), inside, "{app} in round {round}");
        }
    }
    Ok(())
}

/// A terminating object is readable until its last finalizer is removed, and not after that.
async fn object_with_finalizer_stays_until_released(ctx: Context) -> anyhow::Result<()> {
    let caches = CacheSet::new(ctx.client());
    let here = WatchScope::all().namespace(ctx.namespace());
    let lister = caches.get::<ConfigMap>(&here).synced(DEADLINE).await?;
    let mut changes = lister.subscribe();
    let api = Api::<ConfigMap>::namespaced(caches.client().clone(), ctx.namespace());
    for round in 0..20 {
        let name = format!("held-{round}");
        let mut object = config_map(&name);
        object.finalizers_mut().push("windlass.test/hold".to_owned());
        api.create(&PostParams::default(), &object).await?;
        api.delete(&name, &DeleteParams::default()).await?;
        let key = ObjectKey::namespaced(ctx.namespace(), name.as_str());
        let held = lister.get_cached(&key).context("it waits for its finalizer")?;
        assert!(held.meta().is_deleting());
        // Each kind of write that can remove a finalizer.
        if round % 2 == 0 {
            let release = Patch::Merge(json!({ "metadata": { "finalizers": [] } }));
            api.patch(&name, &PatchParams::default(), &release).await?;
        } else {
            let mut released = held.object()?.as_ref().clone();
            released.metadata.finalizers = None;
            api.replace(&name, &PostParams::default(), &released).await?;
        }
        assert!(lister.get_cached(&key).is_none(), "gone in round {round}");
        // Its name is free, and what the watch reports about the deleted object does not affect the new one.
        let again = api.create(&PostParams::default(), &config_map(&name)).await?;
        assert_eq!(lister.get(&key).and_then(|object| object.uid()), again.uid());
    }
    let last = api.create(&PostParams::default(), &config_map("last")).await?;
    let version = last.resource_version().unwrap_or_default().parse()?;
    anyhow::ensure!(lister.wait_for_resource_version(version, DEADLINE).await);
    assert_eq!(
        versions(&lister),
        server_versions(&ctx.api::<ConfigMap>()).await?,
        "after the watch events"
    );
    let mut deletions = 0;
    until(&mut changes, |change| {
        // A subscriber that is behind gets a deletion and the creation after it as one change.
        deletions += usize::from(matches!(change, Change::Deleted { .. }) || change.is_recreated());
        change.key().name() == "last"
    })
    .await?;
    assert!(deletions <= 20, "each deletion is delivered once: {deletions}");
    Ok(())
}

/// What the server keeps after a delete stays in the cache: a pod for its grace period, a namespace for its content.
async fn object_stays_for_its_grace_period_or_content(ctx: Context) -> anyhow::Result<()> {
    let caches = CacheSet::new(ctx.client());
    let here = WatchScope::all().namespace(ctx.namespace());
    let pods = caches.get::<Pod>(&here).synced(DEADLINE).await?;
    let api = Api::<Pod>::namespaced(caches.client().clone(), ctx.namespace());
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "p", "finalizers": ["windlass.test/hold"] },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "registry.example.com/c:1" }] },
    }))?;
    api.create(&PostParams::default(), &pod).await?;
    api.delete("p", &DeleteParams::default().grace_period(600))
        .await?;
    let key = ObjectKey::namespaced(ctx.namespace(), "p");
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    api.patch("p", &PatchParams::default(), &release).await?;
    let kept = pods.get_cached(&key).context("its grace period is not over")?;
    assert!(kept.meta().is_deleting());
    api.delete("p", &DeleteParams::default().grace_period(0)).await?;
    assert!(pods.get_cached(&key).is_none(), "deleted at once");

    let namespaces = caches
        .get::<Namespace>(&WatchScope::all())
        .synced(DEADLINE)
        .await?;
    let api = Api::<Namespace>::all(caches.client().clone());
    let name = format!("{}-content", ctx.namespace());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    api.create(&PostParams::default(), &namespace).await?;
    api.delete(&name, &DeleteParams::default()).await?;
    let key = ObjectKey::cluster_scoped(name.as_str());
    let mut terminating = namespaces
        .get(&key)
        .context("it is terminating")?
        .as_ref()
        .clone();
    terminating.spec.get_or_insert_default().finalizers = None;
    let _: Namespace = api
        .replace_subresource("finalize", &name, &PostParams::default(), &terminating)
        .await?;
    assert!(namespaces.get(&key).is_none(), "its content is gone");
    Ok(())
}

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object
}

fn widget_definition(group: &str) -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": { "name": format!("widgets.{group}") },
        "spec": {
            "group": group,
            "names": { "kind": "Widget", "plural": "widgets" },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    }))
    .expect("a definition")
}

fn versions(lister: &Lister<ConfigMap>) -> BTreeMap<String, Option<String>> {
    let objects = lister.list(&Query::all());
    objects
        .iter()
        .map(|object| (object.name_any(), object.resource_version()))
        .collect()
}

async fn server_versions(api: &Api<ConfigMap>) -> kube::Result<BTreeMap<String, Option<String>>> {
    let objects = api.list(&ListParams::default()).await?;
    Ok(objects
        .iter()
        .map(|object| (object.name_any(), object.resource_version()))
        .collect())
}

async fn until<K: Send + Sync + 'static>(
    changes: &mut Subscription<K>,
    mut wanted: impl FnMut(&Change<K>) -> bool,
) -> anyhow::Result<()> {
    let found = timeout(DEADLINE, async {
        while let Some(change) = changes.next().await {
            if wanted(&change) {
                return true;
            }
        }
        false
    });
    anyhow::ensure!(
        found.await.context("the change is not delivered")?,
        "the watch ended"
    );
    Ok(())
}
