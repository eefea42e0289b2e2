//! The webhooks, called over TLS at a URL of this machine.

use serde_json::{Value, json};
use windlass::{
    k8s_openapi::api::core::v1::{Namespace, Secret},
    kube::{
        self, Api,
        api::{DeleteParams, Patch, PatchParams},
    },
    prelude::{ResourceExt, from_value},
    runtime::CrdInstaller,
    webhook::{OptionalWebhooks, Webhooks},
};
use windlass_secretsync::{SecretSync, add_webhooks, api::SYNC_ANNOTATION};
use windlass_suite::{Context as Case, ManifestRoles, RunningManager, STEP_TIMEOUT};

use super::test_cluster::{CANARY, HOME, TestCluster};

windlass_suite::suite!("secretsync-webhooks", cluster_per_case; mistakes_are_refused_and_copies_are_protected);

/// The shipped rights, with those of webhooks at a URL.
fn rights() -> anyhow::Result<ManifestRoles> {
    let registration = r"
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: registration }
rules:
  - { apiGroups: [admissionregistration.k8s.io], resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations], verbs: [get, create, patch, delete] }
  - { apiGroups: [authentication.k8s.io], resources: [selfsubjectreviews], verbs: [create] }
";
    ManifestRoles::parse(&format!("{}{registration}", include_str!("../../rbac.yaml")))
}

/// The error of a refused request.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> anyhow::Result<String> {
    match result {
        Err(kube::Error::Api(status)) if status.message.contains("denied the request") => Ok(status.message),
        other => anyhow::bail!("it is not refused: {other:?}"),
    }
}

/// The program with `--webhooks --protect-copies --install`; returns when the API server calls the webhooks.
async fn start(env: &TestCluster) -> anyhow::Result<RunningManager> {
    let mut flags = OptionalWebhooks::default();
    flags.enabled = true;
    let (manager, client) = (env.new_manager().await?, env.proxy().client());
    let added = add_webhooks(Webhooks::new("secretsync"), &client, env.arguments()).await;
    let webhooks = added.map_err(|error| anyhow::anyhow!("{error}"))?;
    let manager = manager.install(CrdInstaller::new([]).apply());
    let running = RunningManager::start(flags.add_to(manager, webhooks));
    let deadline = tokio::time::Instant::now() + STEP_TIMEOUT;
    while refusal(set_consent(env, "asks", json!("yes")).await).is_err() {
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "not called in time");
        set_consent(env, "asks", json!("true")).await?;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Ok(running)
}

async fn set_consent(env: &TestCluster, namespace: &str, value: Value) -> kube::Result<Namespace> {
    let patch = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: value } } });
    let params = PatchParams::default();
    env.namespaces()
        .patch(namespace, &params, &Patch::Merge(patch))
        .await
}

async fn mistakes_are_refused_and_copies_are_protected(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::with(&case, &rights()?).await?;
    let env = env.with_arguments(|arguments| arguments.protect_copies = true);
    env.consenting(&["asks"]).await?;
    env.source("token", "1").await?;
    let running = start(&env).await?;
    env.wait_for_copy("asks", "token", "1").await?;

    // What would be `InvalidConsent` later. A name of no namespace is only a warning, since it may be created later.
    let message = refusal(set_consent(&env, "asks", json!("true,team-d")).await)?;
    assert!(
        message.contains("`true` is not taken for the name of a namespace"),
        "{message}"
    );
    set_consent(&env, "asks", json!("secretsync,team-d")).await?;

    // What would be `InvalidAnnotation` later.
    let annotated = |value: &str| {
        let annotation = json!({ SYNC_ANNOTATION: value });
        json!({ "metadata": { "annotations": annotation } })
    };
    let home = env.in_namespace(HOME);
    let message = refusal(home.patch::<Secret>("token", annotated("no")).await)?;
    assert!(message.contains("`false`"), "{message}");

    // What would be `InvalidSpec` later.
    let sync = |names: Value| -> anyhow::Result<SecretSync> {
        Ok(from_value(
            json!({ "metadata": { "name": "a" }, "spec": { "names": names } }),
        )?)
    };
    let message = refusal(env.create(sync(json!(["Not a name"]))?).await)?;
    assert!(
        message.contains("spec.names: Forbidden: invalid name \"Not a name\""),
        "{message}"
    );
    env.create(sync(json!(["a-name"]))?).await?;

    // Copies: others change neither the content nor our metadata, but may have labels of their own.
    let everything = from_value(json!({
        "metadata": { "name": "tenant" },
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["*"] }],
    }))?;
    let tenant = case.cluster().user("tenant", [""; 0]).await?;
    let tenant = tenant.with_cluster_role(&everything).await?;
    let user = Api::<Secret>::namespaced(tenant.client(), "asks");
    for patch in [
        json!({ "data": { "token": "eA==" } }),
        json!({ "stringData": { "more": "x" } }),
        json!({ "metadata": { "labels": { "secretsync.windlass.dev/source-uid": null } } }),
    ] {
        let message = refusal(
            user.patch("token", &PatchParams::default(), &Patch::Merge(&patch))
                .await,
        )?;
        assert!(message.contains("is a copy of `secretsync/token`"), "{message}");
    }
    refusal(user.delete("token", &DeleteParams::default()).await.map(|_| ()))?;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "theirs": "kept" } } }));
    let labelled = user.patch("token", &PatchParams::default(), &label).await?;
    assert_eq!(labelled.labels()["theirs"], "kept");

    // secretsync itself still updates and deletes them.
    let changed = json!({ "stringData": { "password": format!("{CANARY}2") } });
    home.patch::<Secret>("token", changed).await?;
    env.wait_for_copy("asks", "token", "2").await?;
    set_consent(&env, "asks", json!("false")).await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("token")
        .await?;
    running.stop().await
}
