//! Watches: order, starting points, selectors.

use serde_json::json;
use windlass_suite::Context;

use crate::api::{
    lists::labelled,
    rest::{Collection, version},
    writes::config_map,
};

pub(crate) async fn watch_from_a_list_delivers_each_change_in_order(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    config_maps.create(&labelled("before", "red")).await?.ok()?;
    let list = config_maps.list("labelSelector=suite").await?.ok()?;
    let query = format!("labelSelector=suite&resourceVersion={}", version(&list));
    let mut watch = config_maps.watch(&query).await?;

    config_maps.create(&labelled("a", "red")).await?.ok()?;
    config_maps
        .merge("a", &json!({ "data": { "k": "w" } }))
        .await?
        .ok()?;
    config_maps.delete("a").await?.ok()?;
    config_maps.create(&labelled("b", "red")).await?.ok()?;

    let mut previous = version(&list);
    for (expected, name, value) in [
        ("ADDED", "a", "v"),
        ("MODIFIED", "a", "w"),
        ("DELETED", "a", "w"),
        ("ADDED", "b", "v"),
    ] {
        let (kind, object) = watch.next().await?;
        assert_eq!(kind, expected, "{object}");
        assert_eq!(object["metadata"]["name"], name);
        assert_eq!(
            object["data"]["k"], value,
            "the object after the change, or its last state"
        );
        assert_eq!(object["kind"], "ConfigMap", "watched objects have a kind");
        assert!(version(&object) > previous, "versions rise, also on deletion");
        previous = version(&object);
    }
    Ok(())
}

pub(crate) async fn watch_from_zero_starts_with_existing_objects(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let mut newest = 0;
    for name in ["a", "b"] {
        newest = version(&config_maps.create(&labelled(name, "red")).await?.ok()?);
    }
    // Zero allows any state. A list at least as new as the objects makes sure that the state has them.
    config_maps
        .list(&format!("resourceVersion={newest}"))
        .await?
        .ok()?;
    let mut watch = config_maps.watch("labelSelector=suite&resourceVersion=0").await?;
    let mut there = [watch.next_name().await?, watch.next_name().await?];
    there.sort();
    let added = |name: &str| ("ADDED".to_owned(), name.to_owned());
    assert_eq!(there, [added("a"), added("b")]);

    config_maps.create(&labelled("c", "red")).await?.ok()?;
    assert_eq!(watch.next_name().await?, added("c"));
    Ok(())
}

pub(crate) async fn watch_with_selector_reports_entering_and_leaving_objects(
    ctx: Context,
) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let created = config_maps.create(&config_map("a")).await?.ok()?;
    let query = format!("labelSelector=color%3Dred&resourceVersion={}", version(&created));
    let mut watch = config_maps.watch(&query).await?;

    let mut versions = Vec::new();
    for color in ["red", "green", "red"] {
        let patch = json!({ "metadata": { "labels": { "color": color } } });
        versions.push(version(&config_maps.merge("a", &patch).await?.ok()?));
    }
    for (expected, at) in [
        ("ADDED", versions[0]),
        ("DELETED", versions[1]),
        ("ADDED", versions[2]),
    ] {
        let (kind, object) = watch.next().await?;
        assert_eq!((kind.as_str(), version(&object)), (expected, at));
        assert_eq!(
            object["metadata"]["labels"]["color"], "red",
            "an object that leaves is shown as it last matched"
        );
    }
    Ok(())
}
