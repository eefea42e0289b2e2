//! Users, roles and recorded rights.

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    core::v1::{ConfigMap, Namespace, Secret},
    rbac::v1::{ClusterRole, Role},
};
use kube::{
    Api, Client, Error, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{from_value, json};
use windlass_cluster::record_rbac;
use windlass_rights::Recorder;
use windlass_suite::Context;

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

/// Returns the message of a forbidden request.
fn forbidden_message<T: std::fmt::Debug>(answer: Result<T, Error>) -> Result<String> {
    match answer {
        Err(Error::Api(status)) if status.code == 403 => Ok(status.message),
        other => anyhow::bail!("not forbidden: {other:?}"),
    }
}

pub(crate) async fn user_without_roles_may_only_use_discovery(ctx: Context) -> Result<()> {
    let user = ctx.cluster().user("visitor", ["guests"]).await?;
    let review = Api::<SelfSubjectReview>::all(user.client())
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let known = review
        .status
        .and_then(|status| status.user_info)
        .unwrap_or_default();
    assert_eq!(known.username.as_deref(), Some("visitor"));
    assert_eq!(
        known.groups.unwrap_or_default(),
        ["guests", "system:authenticated"]
    );
    user.client().list_api_groups().await?;
    let maps = Api::<ConfigMap>::namespaced(user.client(), ctx.namespace());
    assert_eq!(
        forbidden_message(maps.list(&ListParams::default()).await)?,
        format!(
            "configmaps is forbidden: User \"visitor\" cannot list resource \"configmaps\" in API group \"\" in the \
             namespace \"{}\"",
            ctx.namespace()
        )
    );
    Ok(())
}

pub(crate) async fn user_has_exactly_the_rights_of_its_role(ctx: Context) -> Result<()> {
    let role: Role = from_value(json!({
        "metadata": {"name": "keeper", "namespace": ctx.namespace()},
        "rules": [
            {"verbs": ["create", "list"], "apiGroups": [""], "resources": ["configmaps"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"]},
        ],
    }))?;
    let name = format!("{}-keeper", ctx.namespace());
    let user = ctx.cluster().user(&name, [""; 0]).await?.with_role(&role).await?;
    let maps = Api::<ConfigMap>::namespaced(user.client(), ctx.namespace());
    maps.create(&PostParams::default(), &map("mine")).await?;
    maps.create(&PostParams::default(), &map("yours")).await?;
    maps.get("mine").await?;
    ensure!(
        maps.list(&ListParams::default())
            .await?
            .iter()
            .any(|map| map.name_any() == "yours")
    );
    forbidden_message(maps.get("yours").await)?;
    forbidden_message(maps.delete("mine", &DeleteParams::default()).await)?;
    forbidden_message(
        Api::<ConfigMap>::all(user.client())
            .list(&ListParams::default())
            .await,
    )?;
    let secrets = Api::<Secret>::namespaced(user.client(), ctx.namespace());
    forbidden_message(secrets.list(&ListParams::default()).await)?;
    // The administrator is still allowed.
    ctx.api::<ConfigMap>()
        .delete("mine", &DeleteParams::default())
        .await?;
    Ok(())
}

pub(crate) async fn cluster_role_applies_to_all_namespaces(ctx: Context) -> Result<()> {
    let role: ClusterRole = from_value(json!({
        "metadata": {"name": ctx.namespace(), "ownerReferences": [ctx.owner()]},
        "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps", "namespaces"]}],
    }))?;
    let name = format!("{}-reader", ctx.namespace());
    let user = ctx
        .cluster()
        .user(&name, [""; 0])
        .await?
        .with_cluster_role(&role)
        .await?;
    Api::<ConfigMap>::all(user.client())
        .list(&ListParams::default())
        .await?;
    Api::<Namespace>::all(user.client()).get("default").await?;
    let maps = Api::<ConfigMap>::namespaced(user.client(), ctx.namespace());
    forbidden_message(maps.create(&PostParams::default(), &map("mine")).await)?;
    Ok(())
}

/// A small program that uses a client.
async fn program(client: Client, namespace: &str) -> Result<(), Error> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    maps.create(&PostParams::default(), &map("state")).await?;
    let patch = json!({"data": {"k": "v"}});
    maps.patch("state", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    maps.list(&ListParams::default().labels("a=b")).await?;
    maps.delete("state", &DeleteParams::default()).await?;
    let secrets = Api::<Secret>::namespaced(client, namespace);
    secrets.get_opt("credentials").await?;
    Ok(())
}

pub(crate) async fn recorded_rights_are_sufficient_for_another_run(ctx: Context) -> Result<()> {
    let recorder = Recorder::new();
    let client = record_rbac(&ctx.client(), &recorder, "program");
    program(client, ctx.namespace()).await?;
    let uses = recorder.records().for_user("program");
    let rights = uses.rights();
    ensure!(
        rights.cluster.is_empty(),
        "all requests were in the namespace: {rights:?}"
    );
    let rules = &rights.namespaces[ctx.namespace()];
    assert_eq!(
        json!(rules),
        json!([
            {"verbs": ["create", "delete", "list", "patch"], "apiGroups": [""], "resources": ["configmaps"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]},
        ])
    );
    let role: Role = from_value(json!({
        "metadata": {"name": "program", "namespace": ctx.namespace()}, "rules": rules,
    }))?;
    let name = format!("{}-program", ctx.namespace());
    let limited = ctx.cluster().user(&name, [""; 0]).await?.with_role(&role).await?;
    program(limited.client(), ctx.namespace()).await?;
    let maps = Api::<ConfigMap>::namespaced(limited.client(), ctx.namespace());
    forbidden_message(maps.get("state").await)?;
    let granted: Vec<windlass_rights::Rule> = from_value(json!([
        {"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps", "secrets"]},
        {"verbs": ["get", "watch"], "apiGroups": [""], "resources": ["pods"]},
    ]))?;
    let unused = uses.in_namespace(ctx.namespace()).unused(&granted);
    assert_eq!(
        json!(unused),
        json!([{"verbs": ["get", "watch"], "apiGroups": [""], "resources": ["pods"]}])
    );
    Ok(())
}
