//! Commands that know who owns which fields: server-side apply and diff, and the way there from client-side apply.

use anyhow::Result;
use windlass_suite::Context;

use crate::{kubectl::Kubectl, objects};

/// Who owns what, one line a manager.
const OWNERS: &str = "get configmap settings --show-managed-fields -o \
    'jsonpath={range .metadata.managedFields[*]}{.manager} {.operation} {.fieldsV1}{\"\\n\"}{end}'";

async fn owners(kubectl: &Kubectl) -> Result<Vec<String>> {
    // Their order is that of their times.
    let mut owners: Vec<_> = kubectl.ok(OWNERS).await?.lines().map(str::to_owned).collect();
    owners.sort_unstable();
    Ok(owners)
}

fn settings(data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {data}\n")
}

pub(crate) async fn server_side_apply_creates_and_leaves_alone(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let both = objects::both();
    let applied = "configmap/settings serverside-applied\ndeployment.apps/web serverside-applied\n";
    assert_eq!(kubectl.ok_with("apply --server-side -f -", &both).await?, applied);
    let version = "get deployment web -o 'jsonpath={.metadata.resourceVersion}'";
    let before = kubectl.ok(version).await?;
    assert_eq!(kubectl.ok_with("apply --server-side -f -", &both).await?, applied);
    assert_eq!(kubectl.ok(version).await?, before);
    let fewer = both.replace("replicas: 2", "paused: true");
    kubectl.ok_with("apply --server-side -f -", &fewer).await?;
    let said = kubectl
        .ok("get deployment web -o 'jsonpath={.spec.replicas} {.spec.paused}'")
        .await?;
    assert_eq!(said, "1 true", "what is said no longer falls back to its default");
    Ok(())
}

pub(crate) async fn server_side_apply_meets_conflicts_and_takes_by_force(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl
        .ok_with("apply --server-side -f -", &settings("{a: '1', b: '1'}"))
        .await?;
    let other = settings("{a: '2'}");
    let refused = kubectl
        .feed("apply --server-side --field-manager=other -f -", &other)
        .await?;
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    let wanted = "error: Apply failed with 1 conflict: conflict with \"kubectl\": .data.a\n";
    assert!(refused.err.starts_with(wanted), "{}", refused.err);
    kubectl
        .ok_with(
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
    // What the first lets go, and the other has, stays.
    kubectl
        .ok_with("apply --server-side -f -", &settings("{b: '3'}"))
        .await?;
    let data = kubectl.ok("get configmap settings -o 'jsonpath={.data}'").await?;
    assert_eq!(data, r#"{"a":"2","b":"3"}"#);
    Ok(())
}

pub(crate) async fn what_was_applied_by_the_client_moves_to_the_server(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl
        .ok_with("apply -f -", &settings("{a: '1', b: '1'}"))
        .await?;
    let said = kubectl
        .ok_with("apply --server-side -f -", &settings("{a: '2'}"))
        .await?;
    assert_eq!(said, "configmap/settings serverside-applied\n");
    let data = kubectl.ok("get configmap settings -o 'jsonpath={.data}'").await?;
    assert_eq!(
        data, r#"{"a":"2"}"#,
        "what was applied before and is not now goes"
    );
    assert_eq!(
        owners(&kubectl).await?,
        [
            r#"kubectl Apply {"f:data":{"f:a":{}}}"#,
            r#"kubectl-last-applied Apply {"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}"#
        ]
    );
    // Older ones can still work with it.
    let last = kubectl.ok("apply view-last-applied configmap settings").await?;
    assert!(last.contains("a: \"2\""), "{last}");
    Ok(())
}

pub(crate) async fn managed_fields_are_shown_on_request(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with("create -f -", &settings("{a: '1'}")).await?;
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
        .ok_with("apply --server-side -f -", &settings("{a: '1', b: '1'}"))
        .await?;
    let same = settings("{a: '1', b: '1'}");
    assert_eq!(kubectl.ok_with("diff --server-side -f -", &same).await?, "");
    let said = kubectl
        .feed("diff --server-side -f -", &settings("{a: '2'}"))
        .await?;
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(
        said.out.contains("-  a: \"1\"\n-  b: \"1\"\n+  a: \"2\"\n"),
        "{}",
        said.out
    );
    assert_eq!(kubectl.ok_with("diff --server-side -f -", &same).await?, "");
    Ok(())
}
