//! Users and their rights: what a test gives them is what they have.

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
use windlass_cluster::recorded;
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

/// The refusal's text.
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> Result<String> {
    match answer {
        Err(Error::Api(status)) if status.code == 403 => Ok(status.message),
        other => anyhow::bail!("not refused: {other:?}"),
    }
}

pub(crate) async fn a_user_without_roles_may_only_look_around(ctx: Context) -> Result<()> {
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
        refused(maps.list(&ListParams::default()).await)?,
        format!(
            "configmaps is forbidden: User \"visitor\" cannot list resource \"configmaps\" in API group \"\" in the \
             namespace \"{}\"",
            ctx.namespace()
        )
    );
    Ok(())
}

pub(crate) async fn a_user_has_the_rights_of_its_role_and_no_others(ctx: Context) -> Result<()> {
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
    refused(maps.get("yours").await)?;
    refused(maps.delete("mine", &DeleteParams::default()).await)?;
    refused(
        Api::<ConfigMap>::all(user.client())
            .list(&ListParams::default())
            .await,
    )?;
    let secrets = Api::<Secret>::namespaced(user.client(), ctx.namespace());
    refused(secrets.list(&ListParams::default()).await)?;
    // The administrator still may.
    ctx.api::<ConfigMap>()
        .delete("mine", &DeleteParams::default())
        .await?;
    Ok(())
}

pub(crate) async fn a_cluster_role_reaches_everywhere(ctx: Context) -> Result<()> {
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
    refused(maps.create(&PostParams::default(), &map("mine")).await)?;
    Ok(())
}

/// What a small program does with its client.
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

pub(crate) async fn rights_derived_from_a_run_are_enough_for_the_next(ctx: Context) -> Result<()> {
    let recorder = Recorder::new();
    let client = recorded(&ctx.client(), &recorder, "program");
    program(client, ctx.namespace()).await?;
    let uses = recorder.uses().of("program");
    let rights = uses.rights();
    ensure!(
        rights.cluster.is_empty(),
        "nothing was outside of the namespace: {rights:?}"
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
    refused(maps.get("state").await)?;
    let granted: Vec<windlass_rights::Rule> = from_value(json!([
        {"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps", "secrets"]},
        {"verbs": ["get", "watch"], "apiGroups": [""], "resources": ["pods"]},
    ]))?;
    let unused = uses.within(ctx.namespace()).unused(&granted);
    assert_eq!(
        json!(unused),
        json!([{"verbs": ["get", "watch"], "apiGroups": [""], "resources": ["pods"]}])
    );
    Ok(())
}
