//! A copy is ours because we wrote it, not because it has our labels and annotations.

use windlass::{
    k8s_openapi::api::core::v1::{Namespace, Secret},
    kube::{Api, api::PostParams},
    prelude::*,
    runtime::CrdInstaller,
};
use windlass_secretsync::{
    Arguments, SecretSync,
    api::{DEFAULT_SOURCE_NAMESPACE, SYNC_ANNOTATION},
    setup,
};
use windlass_suite::{Context as Case, RunningManager, TestEnvironment, install_crds, suite};

suite!("slice", paused, cluster_per_case; manually_copied_copy_is_not_ours);

async fn manually_copied_copy_is_not_ours(case: Case) -> anyhow::Result<()> {
    install_crds(&case, [SecretSync::crd()]).await?;
    let env = TestEnvironment::new(&case);
    for (name, annotations) in [
        (DEFAULT_SOURCE_NAMESPACE, json!({})),
        ("asks", json!({ SYNC_ANNOTATION: "true" })),
        ("by-hand", json!({})),
    ] {
        let namespace: Namespace =
            from_value(json!({ "metadata": { "name": name, "annotations": annotations } }))?;
        let namespaces = Api::all(case.client());
        namespaces.create(&PostParams::default(), &namespace).await?;
    }
    let source: Secret = from_value(json!({
        "metadata": { "name": "token", "annotations": { SYNC_ANNOTATION: "" } }, "stringData": { "a": "b" },
    }))?;
    env.in_namespace(DEFAULT_SOURCE_NAMESPACE).create(source).await?;
    let client = env.proxy().client();
    let manager = Manager::new(client.clone()).install(CrdInstaller::new([SecretSync::crd()]));
    let running = RunningManager::start(setup(manager, &client, &[], &Arguments::default()).await?);

    let (asks, by_hand) = (env.in_namespace("asks"), env.in_namespace("by-hand"));
    let copy = asks.wait_for::<Secret>("token", |_| true).await?;
    let mut other = Secret::clone(&copy);
    other.metadata.namespace = None;
    other.metadata.resource_version = None;
    other.metadata.uid = None;
    other.metadata.managed_fields = None;
    let other = by_hand.create(other).await?;
    assert_eq!(other.labels(), copy.labels());
    env.in_namespace(DEFAULT_SOURCE_NAMESPACE)
        .delete::<Secret>("token")
        .await?;
    asks.wait_until_deleted::<Secret>("token").await?;
    env.proxy()
        .wait_until_idle(std::time::Duration::from_secs(1))
        .await;
    assert_eq!(
        by_hand.version::<Secret>("token").await?,
        other.metadata.resource_version
    );
    running.stop().await
}
