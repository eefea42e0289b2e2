//! Lists: order, selectors, paging.

use serde_json::{Value, json};
use windlass_suite::Context;

use crate::api::{
    rest::{Collection, names, version},
    writes::config_map,
};

pub(crate) fn labelled(name: &str, color: &str) -> Value {
    let mut object = config_map(name);
    object["metadata"]["labels"] = json!({ "suite": "api", "color": color });
    object
}

pub(crate) async fn list_is_ordered_by_name(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    let mut newest = 0;
    for name in ["b", "a-2", "c", "a"] {
        newest = version(&config_maps.create(&labelled(name, "red")).await?.ok()?);
    }
    let list = config_maps.list("labelSelector=suite%3Dapi").await?.ok()?;
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["apiVersion"], "v1");
    assert_eq!(names(&list), ["a", "a-2", "b", "c"]);
    assert!(
        version(&list) >= newest,
        "a list is at least as new as the writes before it"
    );
    assert_eq!(
        list["items"][0].get("kind"),
        None,
        "the items of a built-in list have no kind"
    );

    Ok(())
}

pub(crate) async fn list_of_all_namespaces_is_ordered_by_key(ctx: Context) -> anyhow::Result<()> {
    let namespaces = Collection::at(&ctx, "/api/v1/namespaces");
    let longer = format!("{}-x", ctx.namespace());
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": longer } });
    namespaces.create(&namespace).await?.ok()?;
    for namespace in [ctx.namespace(), &longer] {
        let config_maps = Collection::at(&ctx, format!("/api/v1/namespaces/{namespace}/configmaps"));
        config_maps.create(&labelled("a", ctx.namespace())).await?.ok()?;
    }
    let query = format!("labelSelector=color%3D{}", ctx.namespace());
    let list = Collection::at(&ctx, "/api/v1/configmaps")
        .list(&query)
        .await?
        .ok()?;
    let order: Vec<_> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| &item["metadata"]["namespace"])
        .collect();
    // The key is `namespace/name`, and `-` comes before `/`.
    assert_eq!(order, [&json!(longer), &json!(ctx.namespace())]);
    namespaces.delete(&longer).await?.ok()?;
    Ok(())
}

pub(crate) async fn label_selector_filters_a_list(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    for (name, color) in [("a", "red"), ("b", "green"), ("c", "blue")] {
        config_maps.create(&labelled(name, color)).await?.ok()?;
    }
    config_maps.create(&config_map("plain")).await?.ok()?;
    for (selector, expected) in [
        ("color%3Dred", vec!["a"]),
        ("color%3D%3Dred", vec!["a"]),
        ("suite,color!%3Dred", vec!["b", "c"]),
        ("color%20in%20(red,blue)", vec!["a", "c"]),
        ("suite%3Dapi,color%20notin%20(red,blue)", vec!["b"]),
        ("color", vec!["a", "b", "c"]),
        ("!color,other", vec![]),
    ] {
        let list = config_maps
            .list(&format!("labelSelector={selector}"))
            .await?
            .ok()?;
        assert_eq!(names(&list), expected, "{selector}");
    }
    let without = names(&config_maps.list("labelSelector=!color").await?.ok()?);
    assert!(
        without.contains(&"plain".to_owned()) && !without.contains(&"a".to_owned()),
        "{without:?}"
    );
    Ok(())
}

pub(crate) async fn field_selector_finds_an_object_by_name(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    for name in ["a", "b"] {
        config_maps.create(&config_map(name)).await?.ok()?;
    }
    let list = config_maps.list("fieldSelector=metadata.name%3Db").await?.ok()?;
    assert_eq!(names(&list), ["b"]);
    let query = format!(
        "fieldSelector=metadata.name%3Db,metadata.namespace%3D{}",
        ctx.namespace()
    );
    let everywhere = Collection::at(&ctx, "/api/v1/configmaps")
        .list(&query)
        .await?
        .ok()?;
    assert_eq!(names(&everywhere), ["b"]);
    let unknown = config_maps.list("fieldSelector=data.k%3Dv").await?;
    assert_eq!(
        (unknown.code, &unknown.body["reason"]),
        (400, &json!("BadRequest")),
        "{}",
        unknown.body
    );
    Ok(())
}

pub(crate) async fn paged_list_is_one_snapshot(ctx: Context) -> anyhow::Result<()> {
    let config_maps = Collection::config_maps(&ctx);
    for name in ["a", "b", "c", "d", "e"] {
        config_maps.create(&labelled(name, "red")).await?.ok()?;
    }
    let query = "labelSelector=suite%3Dapi&limit=2";
    let first = config_maps.list(query).await?.ok()?;
    assert_eq!(names(&first), ["a", "b"]);

    // Changes between two pages do not affect later pages.
    config_maps.delete("d").await?.ok()?;
    config_maps.create(&labelled("f", "red")).await?.ok()?;

    let mut page = first.clone();
    let mut rest = Vec::new();
    while let Some(token) = page["metadata"]["continue"]
        .as_str()
        .filter(|token| !token.is_empty())
    {
        page = config_maps
            .list(&format!("{query}&continue={token}"))
            .await?
            .ok()?;
        assert_eq!(
            version(&page),
            version(&first),
            "every page has the version of the first"
        );
        rest.extend(names(&page));
        assert!(rest.len() <= 5, "the pages do not end: {rest:?}");
    }
    assert_eq!(rest, ["c", "d", "e"]);
    Ok(())
}
