//! Custom resources.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_suite::Context;

use crate::api::rest::{Collection, name, version};

/// The time between two polls for a new kind.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A group for this case only, since cases that run at the same time share the cluster.
fn group(ctx: &Context) -> String {
    format!("{}.windlass.dev", ctx.namespace())
}

fn definitions(ctx: &Context) -> Collection {
    Collection::at(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
}

/// A definition of `Foo`, owned by the case's namespace, so that it is garbage collected with it.
fn definition(ctx: &Context) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("foos.{}", group(ctx)), "ownerReferences": [ctx.owner()] },
        "spec": {
            "group": group(ctx), "scope": "Namespaced",
            "names": { "plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object", "required": ["replicas"],
                            "properties": { "replicas": { "type": "integer", "minimum": 1 } },
                        },
                        "status": { "type": "object", "properties": { "ready": { "type": "integer" } } },
                    },
                } },
            }],
        },
    })
}

/// Installs the definition and waits until its objects can be listed.
async fn foos(ctx: &Context) -> anyhow::Result<Collection> {
    definitions(ctx).create(&definition(ctx)).await?.ok()?;
    let foos = Collection::at(
        ctx,
        format!("/apis/{}/v1/namespaces/{}/foos", group(ctx), ctx.namespace()),
    );
    // For an unserved group the server responds with plain text, which `list` returns as an error.
    while !matches!(foos.list("").await, Ok(reply) if reply.code == 200) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(foos)
}

fn foo(ctx: &Context, name: &str) -> Value {
    json!({
        "apiVersion": format!("{}/v1", group(ctx)), "kind": "Foo", "metadata": { "name": name }, "spec": { "replicas": 1 },
    })
}

pub(crate) async fn crd_is_established_and_served(ctx: Context) -> anyhow::Result<()> {
    let created = definitions(&ctx).create(&definition(&ctx)).await?.ok()?;
    let query = format!(
        "fieldSelector=metadata.name%3D{}&resourceVersion={}",
        name(&created),
        version(&created)
    );
    let mut watch = definitions(&ctx).watch(&query).await?;
    loop {
        let (_, object) = watch.next().await?;
        let conditions = object["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let holds = |kind: &str| {
            conditions
                .iter()
                .any(|c| c["type"] == kind && c["status"] == "True")
        };
        if holds("Established") {
            assert!(holds("NamesAccepted"), "names come first: {conditions:?}");
            assert_eq!(object["status"]["acceptedNames"]["kind"], "Foo");
            assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
            break;
        }
    }
    definitions(&ctx).delete(&name(&created)).await?.ok()?;
    Ok(())
}

pub(crate) async fn custom_object_is_validated_by_its_schema(ctx: Context) -> anyhow::Result<()> {
    let foos = foos(&ctx).await?;
    let created = foos.create(&foo(&ctx, "a")).await?;
    assert_eq!(created.code, 201, "{}", created.body);
    assert_eq!(created.body["metadata"]["generation"], 1);
    let list = foos.list("").await?.ok()?;
    assert_eq!(list["kind"], "FooList");
    assert_eq!(
        list["items"][0]["kind"], "Foo",
        "the items of a custom list have a kind"
    );

    for (spec, field, complaint) in [
        (
            json!({ "replicas": 0 }),
            "spec.replicas",
            "should be greater than or equal to 1",
        ),
        (
            json!({ "replicas": "two" }),
            "spec.replicas",
            "must be of type integer",
        ),
        (json!({}), "spec.replicas", "Required value"),
    ] {
        let mut bad = foo(&ctx, "b");
        bad["spec"] = spec;
        let reply = foos.create(&bad).await?;
        assert_eq!(
            (reply.code, &reply.body["reason"]),
            (422, &json!("Invalid")),
            "{}",
            reply.body
        );
        let message = reply.body["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with(&format!("Foo.{} \"b\" is invalid: {field}: ", group(&ctx))),
            "{message}"
        );
        assert!(message.contains(complaint), "{message}");
        assert_eq!(reply.body["details"]["kind"], "Foo");
        assert_eq!(reply.body["details"]["causes"][0]["field"], field);
    }
    Ok(())
}

pub(crate) async fn unknown_fields_of_a_custom_object_are_pruned(ctx: Context) -> anyhow::Result<()> {
    let foos = foos(&ctx).await?;
    let mut wanted = foo(&ctx, "a");
    wanted["spec"]["surplus"] = json!(true);
    wanted["extra"] = json!({ "deep": 1 });
    let created = foos.create(&wanted).await?.ok()?;
    assert_eq!(created["spec"], json!({ "replicas": 1 }));
    assert_eq!(created.get("extra"), None);
    Ok(())
}

pub(crate) async fn custom_object_update_requires_a_resource_version(ctx: Context) -> anyhow::Result<()> {
    let foos = foos(&ctx).await?;
    let created = foos.create(&foo(&ctx, "a")).await?.ok()?;
    let message = format!(
        "foos.{} \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        group(&ctx)
    );
    foos.replace("a", &foo(&ctx, "a"))
        .await?
        .assert_failed(422, "Invalid", &message);

    let mut stale = created.clone();
    stale["spec"]["replicas"] = json!(2);
    foos.replace("a", &stale).await?.ok()?;
    stale["spec"]["replicas"] = json!(3);
    let message = format!(
        "Operation cannot be fulfilled on foos.{} \"a\": the object has been modified; please apply your changes to the \
         latest version and try again",
        group(&ctx)
    );
    foos.replace("a", &stale)
        .await?
        .assert_failed(409, "Conflict", &message);
    Ok(())
}

pub(crate) async fn custom_object_status_and_spec_are_separate(ctx: Context) -> anyhow::Result<()> {
    let foos = foos(&ctx).await?;
    let mut wanted = foo(&ctx, "a");
    wanted["status"] = json!({ "ready": 7 });
    let created = foos.create(&wanted).await?.ok()?;
    assert_eq!(created.get("status"), None, "create ignores the status");

    let patch = json!({ "spec": { "replicas": 5 }, "status": { "ready": 1 } });
    let object = foos.merge("a/status", &patch).await?.ok()?;
    assert_eq!(
        (&object["spec"]["replicas"], &object["status"]["ready"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        object["metadata"]["generation"], 1,
        "a status change does not count"
    );

    let patch = json!({ "spec": { "replicas": 5 }, "status": { "ready": 9 } });
    let object = foos.merge("a", &patch).await?.ok()?;
    assert_eq!(
        (&object["spec"]["replicas"], &object["status"]["ready"]),
        (&json!(5), &json!(1))
    );
    assert_eq!(object["metadata"]["generation"], 2);
    Ok(())
}

pub(crate) async fn custom_object_with_finalizer_is_watched_until_deleted(
    ctx: Context,
) -> anyhow::Result<()> {
    let foos = foos(&ctx).await?;
    let list = foos.list("").await?.ok()?;
    let mut watch = foos.watch(&format!("resourceVersion={}", version(&list))).await?;
    let mut held = foo(&ctx, "a");
    held["metadata"]["finalizers"] = json!(["windlass.dev/hold"]);
    foos.create(&held).await?.ok()?;
    let ending = foos.delete("a").await?.ok()?;
    assert_eq!(
        ending["metadata"]["generation"], 2,
        "a deletion counts as a spec change"
    );
    foos.merge("a", &json!({ "metadata": { "finalizers": [] } }))
        .await?
        .ok()?;

    let mut seen = Vec::new();
    for _ in 0..3 {
        let (kind, object) = watch.next().await?;
        seen.push((kind, object["metadata"].get("deletionTimestamp").is_some()));
    }
    let event = |kind: &str, ending| (kind.to_owned(), ending);
    assert_eq!(
        seen,
        [
            event("ADDED", false),
            event("MODIFIED", true),
            event("DELETED", true)
        ]
    );
    let message = format!("foos.{} \"a\" not found", group(&ctx));
    foos.get("a").await?.assert_failed(404, "NotFound", &message);
    Ok(())
}
