//! Field ownership: server-side apply and diff, and the migration from client-side apply.

use anyhow::Result;
use windlass_suite::Context;

use crate::kubectl::{command::Kubectl, objects};

/// Prints the managed fields, one line per manager.
const OWNERS: &str = "get configmap settings --show-managed-fields -o \
    'jsonpath={range .metadata.managedFields[*]}{.manager} {.operation} {.fieldsV1}{\"\\n\"}{end}'";

async fn owners(kubectl: &Kubectl) -> Result<Vec<String>> {
    // The server orders them by time.
    let mut owners: Vec<_> = kubectl.ok(OWNERS).await?.lines().map(str::to_owned).collect();
    owners.sort_unstable();
    Ok(owners)
}

fn settings(data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {data}\n")
}

pub(crate) async fn server_side_apply_creates_and_keeps_objects(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let both = objects::both();
    let applied = "configmap/settings serverside-applied\ndeployment.apps/web serverside-applied\n";
    assert_eq!(
        kubectl.ok_with_input("apply --server-side -f -", &both).await?,
        applied
    );
    let version = "get deployment web -o 'jsonpath={.metadata.resourceVersion}'";
    let before = kubectl.ok(version).await?;
    assert_eq!(
        kubectl.ok_with_input("apply --server-side -f -", &both).await?,
        applied
    );
    assert_eq!(kubectl.ok(version).await?, before);
    let fewer = both.replace("replicas: 2", "paused: true");
    kubectl.ok_with_input("apply --server-side -f -", &fewer).await?;
    let output = kubectl
        .ok("get deployment web -o 'jsonpath={.spec.replicas} {.spec.paused}'")
        .await?;
    assert_eq!(output, "1 true", "a removed field gets its default");
    Ok(())
}

pub(crate) async fn server_side_apply_conflicts_and_can_be_forced(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl
        .ok_with_input("apply --server-side -f -", &settings("{a: '1', b: '1'}"))
        .await?;
    let other = settings("{a: '2'}");
    let refused = kubectl
        .run_with_input("apply --server-side --field-manager=other -f -", &other)
        .await?;
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    let wanted = "error: Apply failed with 1 conflict: conflict with \"kubectl\": .data.a\n";
    assert!(refused.stderr.starts_with(wanted), "{}", refused.stderr);
    kubectl
        .ok_with_input(
            "apply --server-side --field-manager=other --force-conflicts -f -",
            &other,
        )
        .await?;
    assert_eq!(
        owners(&kubectl).await?,
        [
            r#"kubectl Apply {"f:data":{"f:b":{}}}"#,
            r#"other Apply {"f:data":{"f:a":{}}}"#
        ]
    );
    // A field that the first manager drops and the other one owns stays.
    kubectl
        .ok_with_input("apply --server-side -f -", &settings("{b: '3'}"))
        .await?;
    let data = kubectl.ok("get configmap settings -o 'jsonpath={.data}'").await?;
    assert_eq!(data, r#"{"a":"2","b":"3"}"#);
    Ok(())
}

pub(crate) async fn client_side_applied_fields_migrate_to_server_side_apply(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl
        .ok_with_input("apply -f -", &settings("{a: '1', b: '1'}"))
        .await?;
    let output = kubectl
        .ok_with_input("apply --server-side -f -", &settings("{a: '2'}"))
        .await?;
    assert_eq!(output, "configmap/settings serverside-applied\n");
    let data = kubectl.ok("get configmap settings -o 'jsonpath={.data}'").await?;
    assert_eq!(
        data, r#"{"a":"2"}"#,
        "previously applied fields that are missing now are removed"
    );
    assert_eq!(
        owners(&kubectl).await?,
        [
            r#"kubectl Apply {"f:data":{"f:a":{}}}"#,
            r#"kubectl-last-applied Apply {"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}"#
        ]
    );
    // Client-side apply still works with it.
    let last = kubectl.ok("apply view-last-applied configmap settings").await?;
    assert!(last.contains("a: \"2\""), "{last}");
    Ok(())
}

pub(crate) async fn managed_fields_are_shown_on_request(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl
        .ok_with_input("create -f -", &settings("{a: '1'}"))
        .await?;
    kubectl.ok("label configmap settings x=y").await?;
    let hidden = kubectl.ok("get configmap settings -o yaml").await?;
    assert!(!hidden.contains("managedFields"), "{hidden}");
    assert_eq!(
        owners(&kubectl).await?,
        [
            r#"kubectl-create Update {"f:data":{".":{},"f:a":{}}}"#,
            r#"kubectl-label Update {"f:metadata":{"f:labels":{".":{},"f:x":{}}}}"#
        ]
    );
    Ok(())
}

pub(crate) async fn server_side_diff_shows_what_apply_would_do(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl
        .ok_with_input("apply --server-side -f -", &settings("{a: '1', b: '1'}"))
        .await?;
    let same = settings("{a: '1', b: '1'}");
    assert_eq!(kubectl.ok_with_input("diff --server-side -f -", &same).await?, "");
    let output = kubectl
        .run_with_input("diff --server-side -f -", &settings("{a: '2'}"))
        .await?;
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(
        output.stdout.contains("-  a: \"1\"\n-  b: \"1\"\n+  a: \"2\"\n"),
        "{}",
        output.stdout
    );
    assert_eq!(kubectl.ok_with_input("diff --server-side -f -", &same).await?, "");
    Ok(())
}
