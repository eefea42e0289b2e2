//! `kubectl delete` and `wait`.

use std::time::Instant;

use anyhow::Result;
use windlass_suite::Context;

use crate::kubectl::{command::Kubectl, objects};

pub(crate) async fn delete_prints_deleted_objects(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let namespace = kubectl.namespace.clone();
    kubectl.ok_with_input("create -f -", &objects::both()).await?;
    assert_eq!(
        kubectl.ok("delete configmap settings").await?,
        format!("configmap \"settings\" deleted from {namespace} namespace\n")
    );
    kubectl.run("delete configmap settings").await?.assert_fails(
        1,
        "Error from server (NotFound): configmaps \"settings\" not found",
    );
    assert_eq!(
        kubectl.ok("delete configmap settings --ignore-not-found").await?,
        ""
    );
    assert_eq!(
        kubectl.ok("delete deployment web --dry-run=server").await?,
        format!("deployment.apps \"web\" deleted from {namespace} namespace (server dry run)\n")
    );
    assert_eq!(
        kubectl.ok("delete deployment/web -o name").await?,
        "deployment.apps/web\n"
    );
    Ok(())
}

pub(crate) async fn delete_by_file_selector_and_all(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", &objects::both()).await?;
    assert_eq!(
        kubectl
            .ok_with_input("delete -o name -f -", &objects::both())
            .await?,
        "configmap/settings\ndeployment.apps/web\n"
    );
    for name in ["a", "b", "c"] {
        kubectl.ok(&format!("create secret generic {name}")).await?;
    }
    kubectl.ok("label secret a pick=me").await?;
    assert_eq!(
        kubectl.ok("delete secret -l pick=me -o name").await?,
        "secret/a\n"
    );
    assert_eq!(
        kubectl.ok("delete secret --all -o name").await?,
        "secret/b\nsecret/c\n"
    );
    Ok(())
}

/// There is no garbage collector, so the finalizers of a cascade stay.
pub(crate) async fn delete_with_each_cascade(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    for (cascade, finalizers) in [
        ("background", None),
        ("foreground", Some(r#"["foregroundDeletion"]"#)),
        ("orphan", Some(r#"["orphan"]"#)),
    ] {
        kubectl.ok_with_input("create -f -", objects::DEPLOYMENT).await?;
        kubectl
            .ok(&format!("delete deployment web --cascade={cascade} --wait=false"))
            .await?;
        let left = kubectl
            .ok("get deployment web --ignore-not-found -o 'jsonpath={.metadata.finalizers}'")
            .await?;
        assert_eq!(left, finalizers.unwrap_or_default(), "{cascade}");
        if finalizers.is_some() {
            let when = kubectl
                .ok("get deployment web -o 'jsonpath={.metadata.deletionTimestamp}'")
                .await?;
            assert!(when.ends_with('Z'), "{cascade}: {when}");
            kubectl
                .ok(r#"patch deployment web --type=merge -p '{"metadata":{"finalizers":null}}'"#)
                .await?;
            kubectl
                .ok("wait deployment/web --for=delete --timeout=20s")
                .await?;
        }
    }
    Ok(())
}

pub(crate) async fn finalizer_blocks_deletion_and_wait_sees_its_end(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", objects::SETTINGS).await?;
    kubectl
        .ok(r#"patch configmap settings -p '{"metadata":{"finalizers":["example.com/hold"]}}'"#)
        .await?;
    let deletion = kubectl.run("delete configmap settings --timeout=30s");
    let release = async {
        // Wait until the deletion has begun.
        kubectl
            .ok("wait configmap/settings --for=jsonpath={.metadata.deletionGracePeriodSeconds}=0 --timeout=30s")
            .await?;
        kubectl
            .ok(r#"patch configmap settings --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'"#)
            .await
    };
    let waiting = kubectl.run("wait configmap/settings --for=delete --timeout=30s");
    let (deleted, released, waited) = tokio::join!(deletion, release, waiting);
    released?;
    assert_eq!(
        deleted?.ok()?,
        format!(
            "configmap \"settings\" deleted from {} namespace\n",
            kubectl.namespace
        )
    );
    assert!(matches!(
        waited?.ok()?.as_str(),
        "" | "configmap/settings condition met\n"
    ));
    Ok(())
}

pub(crate) async fn wait_for_conditions_and_fields(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", objects::DEPLOYMENT).await?;
    let waiting = kubectl.run("wait deployment/web --for=condition=Available --timeout=30s");
    let status = r#"{"status":{"conditions":[{"type":"Available","status":"True","reason":"Said","message":"so"}],"readyReplicas":2,"replicas":2}}"#;
    let line = format!("patch deployment web --subresource=status --type=merge -p '{status}'");
    let (waited, patched) = tokio::join!(waiting, kubectl.ok(&line));
    patched?;
    assert_eq!(waited?.ok()?, "deployment.apps/web condition met\n");
    for condition in [
        "condition=available=true",
        "jsonpath={.status.readyReplicas}=2",
        "jsonpath={.status.replicas}",
        "create",
    ] {
        assert_eq!(
            kubectl
                .ok(&format!("wait deployment/web --for={condition} --timeout=20s"))
                .await?,
            "deployment.apps/web condition met\n",
            "{condition}"
        );
    }
    Ok(())
}

pub(crate) async fn wait_times_out(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", objects::DEPLOYMENT).await?;
    let started = Instant::now();
    kubectl
        .run("wait deployment/web --for=condition=Available --timeout=1s")
        .await?
        .assert_fails(1, "error: timed out waiting for the condition on deployments/web");
    assert!(started.elapsed().as_secs() >= 1);
    kubectl
        .run("wait deployment/none --for=condition=Available --timeout=1s")
        .await?
        .assert_fails(
            1,
            "Error from server (NotFound): deployments.apps \"none\" not found",
        );
    Ok(())
}
