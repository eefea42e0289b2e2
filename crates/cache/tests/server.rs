//! A cache follows a server, on every kind of cluster. What no well server does is in `follow.rs`.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind, Selector},
};
use serde_json::json;
use tokio::time::timeout;
use windlass_cache::{Cache, Change, Lister, ObjectKey, Selection, Subscription, SyncError};
use windlass_suite::{Context, suite};

suite!("cache";
    a_cache_ends_up_as_the_server_is,
    a_selection_is_the_servers,
    a_kind_is_followed_from_its_installation_to_its_end,
);

/// No step takes nearly so long unless it never comes.
const DEADLINE: Duration = Duration::from_mins(1);

async fn a_cache_ends_up_as_the_server_is(ctx: Context) -> anyhow::Result<()> {
    let api = ctx.api::<ConfigMap>();
    for number in 0..20 {
        api.create(&PostParams::default(), &config_map(&format!("early-{number}")))
            .await?;
    }
    let cache = Cache::<ConfigMap>::start(ctx.client(), &Selection::all().namespace(ctx.namespace()));
    let lister = cache.synced(DEADLINE).await?;
    assert_eq!(versions(&lister), server_versions(&api).await?);
    assert!(
        lister
            .list(None, &Selector::default())
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

async fn a_selection_is_the_servers(ctx: Context) -> anyhow::Result<()> {
    let api = ctx.api::<ConfigMap>();
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        let mut object = config_map(name);
        object.labels_mut().insert("app".to_owned(), app.to_owned());
        api.create(&PostParams::default(), &object).await?;
    }
    let names = async |selection: Selection| -> anyhow::Result<Vec<String>> {
        let lister = Cache::<ConfigMap>::start(ctx.client(), &selection)
            .synced(DEADLINE)
            .await?;
        Ok(lister
            .list(None, &Selector::default())
            .iter()
            .map(|object| object.name_any())
            .collect())
    };
    let here = || Selection::all().namespace(ctx.namespace());
    assert_eq!(names(here().labels("app=web")).await?, ["a", "c"]);
    assert_eq!(
        names(here().labels("app in (db)").fields("metadata.name!=x")).await?,
        ["b"]
    );
    assert_eq!(names(here().fields("metadata.name=c")).await?, ["c"]);
    Ok(())
}

/// 187.
async fn a_kind_is_followed_from_its_installation_to_its_end(ctx: Context) -> anyhow::Result<()> {
    let group = format!("{}.windlass.test", ctx.namespace());
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Widget"));
    let selection = Selection::all().namespace(ctx.namespace());
    let cache = Cache::<DynamicObject>::start_dynamic(ctx.client(), &kind, &selection);
    let missing = cache
        .synced(Duration::from_millis(200))
        .await
        .err()
        .context("there is no such kind")?;
    assert!(
        matches!(&missing, SyncError::Deadline { trouble, .. } if trouble.contains("not installed")),
        "{missing}"
    );

    let definitions = Api::<CustomResourceDefinition>::all(ctx.client());
    let widgets = Api::<DynamicObject>::namespaced_with(ctx.client(), ctx.namespace(), &kind);
    let mut changes = cache.subscribe();
    let only = Selection::all().fields(format!("metadata.name=widgets.{group}"));
    let mut definition_changes = Cache::<CustomResourceDefinition>::start(ctx.client(), &only).subscribe();
    for _ in 0..2 {
        definitions
            .create(&PostParams::default(), &widget_definition(&group))
            .await?;
        // Taken now: what comes and goes untaken is not told.
        until(&mut definition_changes, |change| {
            matches!(change, Change::Applied { .. })
        })
        .await?;
        let lister = cache.synced(DEADLINE).await?;
        // The first list says that the kind is served; a definition that was made again may take a moment.
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
        let created = created.await.context("no widget can be created")?;
        until(&mut changes, |change| {
            matches!(change, Change::Applied { .. }) && change.object().meta().uid == created.metadata.uid
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
    let objects = lister.list(None, &Selector::default());
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

async fn until<K: Resource>(
    changes: &mut Subscription<K>,
    wanted: impl Fn(&Change<K>) -> bool,
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
        found.await.context("the change does not come")?,
        "the watch ended"
    );
    Ok(())
}
