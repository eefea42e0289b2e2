//! Unit tests of `desired`: a context made from a few objects, no cluster.

use std::time::Duration;

use windlass::{
    k8s_openapi::{
        api::{
            apps::v1::Deployment,
            core::v1::{ConfigMap, Secret},
            networking::v1::Ingress,
        },
        apimachinery::pkg::apis::meta::v1::Time,
        jiff::Timestamp,
    },
    prelude::*,
    serde_json::Value,
    testing, tokio,
};
use windlass_webapp::{SECRET_VERSION_ANNOTATION, WebApp, desired};

/// A WebApp `shop` with these fields besides its image.
fn shop(spec: &Value) -> WebApp {
    let mut app = json!({ "apiVersion": "example.com/v1", "kind": "WebApp", "metadata": { "name": "shop" }, "spec": spec });
    app["spec"]["image"] = json!("shop:1");
    from_value(app).expect("a WebApp")
}

fn secret(name: &str, version: &str) -> Secret {
    from_value(json!({ "metadata": { "name": name, "resourceVersion": version } })).expect("a Secret")
}

/// Calls `desired` in a cluster with these Secrets and Deployments.
async fn desired_with(
    app: &WebApp,
    secrets: impl IntoIterator<Item = Secret>,
    deployments: impl IntoIterator<Item = Deployment>,
) -> Result<Desired, Error> {
    let ctx = testing::context(app)
        .objects(secrets)
        .objects(deployments)
        .build()?;
    desired(Arc::new(app.clone()), ctx).await
}

#[tokio::test]
async fn webapp_has_four_children_and_no_ingress_without_a_host() -> Result<(), Error> {
    let app = shop(&json!({ "host": "shop.example.com", "config": { "GREETING": "hello" } }));
    let desired = desired_with(&app, [], []).await?;
    let view = testing::inspect(&desired);
    assert_eq!(
        view.children(),
        [
            "ConfigMap/shop",
            "Deployment/shop",
            "Service/shop",
            "Ingress/shop"
        ]
    );
    let config: ConfigMap = view.child("shop")?;
    assert_eq!(config.data.unwrap_or_default()["GREETING"], "hello");
    assert_eq!(view.status()?["url"], "http://shop.example.com/");

    let desired = desired_with(&shop(&json!({})), [], []).await?;
    let error = testing::inspect(&desired)
        .child::<Ingress>("shop")
        .expect_err("no host");
    assert_eq!(
        error.to_string(),
        "no child Ingress/shop is desired; the children are [ConfigMap/shop, Deployment/shop, Service/shop]"
    );
    Ok(())
}

#[tokio::test]
async fn pods_have_the_version_of_the_secret() -> Result<(), Error> {
    let app = shop(&json!({ "secretName": "keys" }));
    let desired = desired_with(&app, [secret("keys", "7"), secret("other", "8")], []).await?;
    let deployment: Deployment = testing::inspect(&desired).child("shop")?;
    let template = deployment
        .spec
        .map(|spec| spec.template)
        .and_then(|template| template.metadata);
    let annotations = template.and_then(|meta| meta.annotations).unwrap_or_default();
    assert_eq!(annotations[SECRET_VERSION_ANNOTATION], "7");
    Ok(())
}

#[tokio::test]
async fn missing_secret_leaves_the_children_undecided() -> Result<(), Error> {
    let app = shop(&json!({ "secretName": "keys" }));
    let desired = desired_with(&app, [secret("other", "8")], []).await?;
    let undecided = testing::inspect(&desired).undecided();
    assert_eq!(
        undecided,
        Some(("SecretMissing", "Secret keys does not exist: create it"))
    );
    Ok(())
}

#[tokio::test]
async fn webapp_is_ready_with_all_its_replicas() -> Result<(), Error> {
    let app = shop(&json!({ "replicas": 2 }));
    let not_ready = |message| ConditionUpdate::false_("Ready", "ReplicasNotReady").message(message);
    for (observed, replicas, updated, ready, expected) in [
        (2, 2, 2, 1, not_ready("1 of 2 replicas are ready")),
        // Some or all replicas have an earlier spec.
        (2, 2, 1, 2, not_ready("1 of 2 replicas are ready")),
        (1, 2, 2, 2, not_ready("0 of 2 replicas are ready")),
        // One ready replica may have an earlier spec, or surely has it.
        (2, 3, 2, 2, not_ready("1 of 2 replicas are ready")),
        (2, 3, 1, 2, not_ready("0 of 2 replicas are ready")),
        (2, 4, 2, 1, not_ready("0 of 2 replicas are ready")),
        (
            2,
            2,
            2,
            2,
            ConditionUpdate::true_("Ready", "AllReplicasReady").message("2 of 2 replicas are ready"),
        ),
    ] {
        let deployment = json!({
            "metadata": { "name": "shop", "generation": 2 },
            "status": {
                "observedGeneration": observed,
                "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
            },
        });
        let desired = desired_with(&app, [], [from_value(deployment)?]).await?;
        assert_eq!(testing::inspect(&desired).condition("Ready"), Some(&expected));
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn preview_is_reconciled_again_when_its_time_has_passed() -> Result<(), Error> {
    let mut app = shop(&json!({ "ttlSeconds": 3600 }));
    let ctx = testing::context(&app)
        .objects::<Secret>([])
        .objects::<Deployment>([])
        .build()?;
    app.metadata.creation_timestamp = Some(Time(ctx.now()));
    tokio::time::sleep(Duration::from_mins(50)).await;
    let desired = desired(Arc::new(app), ctx).await?;
    assert_eq!(
        testing::inspect(&desired).requeue_after(),
        Some(Duration::from_mins(10))
    );
    Ok(())
}

/// It deletes the WebApp, for which this context has no cluster.
#[tokio::test]
async fn expired_preview_is_deleted() -> Result<(), Error> {
    let mut app = shop(&json!({ "ttlSeconds": 3600 }));
    app.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    app.metadata.namespace = Some("previews".to_owned());
    let error = desired_with(&app, [], []).await.err().expect("it cannot delete");
    let expected = "cannot send DELETE /apis/example.com/v1/namespaces/previews/webapps/shop: this context for tests has \
                    no cluster";
    assert!(error.to_string().contains(expected), "{error}");
    Ok(())
}
