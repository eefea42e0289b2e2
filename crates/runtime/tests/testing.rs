//! Contexts for unit tests, made from a few objects.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Secret},
};
use kube::{Api, ResourceExt, api::ObjectMeta};
use serde_json::{Value, json};
use windlass_cache::{Indexer, Query};
use windlass_runtime::{ConditionUpdate, Context, Desired, Error, ObjectKey, testing};

fn meta(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ObjectMeta::default()
    }
}

fn config(name: &str, namespace: Option<&str>) -> ConfigMap {
    ConfigMap {
        metadata: meta(name, namespace),
        ..ConfigMap::default()
    }
}

fn secret(name: &str, namespace: Option<&str>) -> Secret {
    Secret {
        metadata: meta(name, namespace),
        ..Secret::default()
    }
}

#[tokio::test]
async fn listers_of_a_test_context_have_the_given_objects() -> Result<(), Error> {
    let ctx = testing::context(&config("web", Some("shop")))
        .objects([secret("a", None), secret("b", Some("other"))])
        .objects([secret("c", None)])
        .objects::<Deployment>([])
        .build()?;
    // Without a namespace, an object is in that of the reconciled one.
    assert!(ctx.get::<Secret>("a")?.is_some());
    assert!(ctx.get::<Secret>("b")?.is_none());
    let secrets = ctx.lister::<Secret>()?;
    let names = |query: &Query| -> Vec<_> { secrets.list(query).iter().map(|one| one.name_any()).collect() };
    assert_eq!(names(&Query::all()), ["b", "a", "c"]);
    let by_name = secrets.cache().index(Indexer::field("metadata.name".parse()?));
    assert_eq!(names(&Query::all().indexed(&by_name, "c")), ["c"]);
    assert!(ctx.lister::<Deployment>()?.is_empty());
    assert!(ctx.get::<ConfigMap>("web")?.is_some(), "the object itself");
    let error = ctx.lister::<Namespace>().err().expect("it is not declared");
    assert!(error.to_string().contains(".reads::<Namespace>()"), "{error}");
    Ok(())
}

#[tokio::test]
async fn cluster_scoped_objects_have_no_namespace() -> Result<(), Error> {
    let namespace = Namespace {
        metadata: meta("shop", None),
        ..Namespace::default()
    };
    let ctx = testing::context(&namespace)
        .objects([config("web", None)])
        .build()?;
    assert!(ctx.get::<Namespace>("shop")?.is_some());
    let configs = ctx.lister::<ConfigMap>()?;
    assert!(configs.get(&ObjectKey::namespaced("default", "web")).is_some());
    Ok(())
}

#[tokio::test]
async fn object_without_a_name_is_an_error() {
    let nameless = testing::context(&config("web", None)).objects([Secret::default()]);
    let error = nameless.build().err().expect("it has no name");
    assert_eq!(error.to_string(), "Secret (v1): it has no metadata.name");
}

#[tokio::test]
async fn requests_of_a_test_context_fail_or_use_the_given_client() -> Result<(), Error> {
    let web = config("web", Some("shop"));
    let ctx = testing::context(&web).build()?;
    let error = ctx.writer().delete(&web).await.expect_err("there is no cluster");
    let expected =
        "cannot send DELETE /api/v1/namespaces/shop/configmaps/web: this context for tests has no cluster";
    assert!(Error::from(error).to_string().contains(expected));

    let client = kube::Client::new(windlass_apiserver::Server::new(), "default");
    let ctx = testing::context(&web).client(client).build()?;
    let namespaces = Api::<Namespace>::all(ctx.client().clone());
    assert!(namespaces.get_opt("default").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn recorded_events_are_kept_until_they_are_taken() -> Result<(), Error> {
    let web = config("web", Some("shop"));
    let ctx = testing::context(&web).build()?;
    ctx.recorder().normal(&web, "Planted", "one");
    ctx.recorder().warning(&web, "Dry", "two");
    ctx.recorder().warning(&web, "Dry", "two");
    let events = testing::events(&ctx);
    let found: Vec<_> = events
        .iter()
        .map(|event| (event.reason.as_deref(), event.message.as_deref(), event.count))
        .collect();
    assert_eq!(
        found,
        [
            (Some("Planted"), Some("one"), Some(1)),
            (Some("Dry"), Some("two"), Some(2))
        ]
    );
    assert_eq!(events[0].involved_object.name.as_deref(), Some("web"));
    assert!(testing::events(&ctx).is_empty());
    ctx.recorder().normal(&web, "Planted", "again");
    assert_eq!(testing::events(&ctx).len(), 1);
    Ok(())
}

#[tokio::test]
async fn test_context_is_neither_queued_again_nor_stopping() -> Result<(), Error> {
    let ctx = testing::context(&config("web", None)).build()?;
    assert!(!ctx.is_stopping() && !ctx.is_queued_again() && ctx.epoch().is_none());
    let stopping = tokio::time::timeout(Duration::from_millis(1), ctx.stopping());
    assert!(stopping.await.is_err());
    Ok(())
}

/// One child, a status, a condition and a requeue.
fn desired(config: &ConfigMap, ctx: &Context) -> Result<Desired, Error> {
    let found = ctx.get::<Secret>(&config.name_any())?.is_some();
    let mut copy = ConfigMap::default();
    copy.metadata.name = Some("copy".to_owned());
    Ok(Desired::new()
        .child(copy)
        .status(json!({ "found": found }))
        .condition(ConditionUpdate::true_("Ready", "Copied"))
        .requeue_after(Duration::from_mins(1)))
}

#[tokio::test]
async fn desired_state_can_be_inspected() -> Result<(), Error> {
    let config = config("web", None);
    let ctx = testing::context(&config).objects([secret("web", None)]).build()?;
    let desired = desired(&config, &ctx)?;
    let view = testing::inspect(&desired);
    assert_eq!(view.children(), ["ConfigMap/copy"]);
    assert_eq!(view.child::<ConfigMap>("copy")?.name_any(), "copy");
    let error = view.child::<Secret>("copy").expect_err("another kind");
    assert_eq!(
        error.to_string(),
        "no child Secret/copy is desired; the children are [ConfigMap/copy]"
    );
    assert_eq!(view.status()?, json!({ "found": true }));
    let ready = ConditionUpdate::true_("Ready", "Copied");
    assert_eq!(
        (view.condition("Ready"), view.condition("Other")),
        (Some(&ready), None)
    );
    assert_eq!(view.requeue_after(), Some(Duration::from_mins(1)));

    let nothing = Desired::new();
    let view = testing::inspect(&nothing);
    assert_eq!((view.status()?, view.requeue_after()), (Value::Null, None));
    Ok(())
}
