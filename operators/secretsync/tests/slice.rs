//! A copy is ours because we wrote it, not because somebody gave it our marks.

use windlass::{
    k8s_openapi::api::core::v1::{Namespace, Secret},
    kube::{Api, api::PostParams},
    prelude::*,
    runtime::Install,
};
use windlass_secretsync::{
    Arguments, SecretSync,
    api::{SOURCE_NAMESPACE, SYNC},
    setup,
};
use windlass_suite::{Context as Case, Running, World, install, suite};

suite!("slice", paused, apart; what_was_copied_by_hand_with_its_marks_stays);

async fn what_was_copied_by_hand_with_its_marks_stays(case: Case) -> anyhow::Result<()> {
    install(&case, [SecretSync::crd()]).await?;
    let world = World::new(&case);
    for (name, annotations) in [
        (SOURCE_NAMESPACE, json!({})),
        ("asks", json!({ SYNC: "true" })),
        ("by-hand", json!({})),
    ] {
        let namespace: Namespace =
            from_value(json!({ "metadata": { "name": name, "annotations": annotations } }))?;
        let namespaces = Api::all(case.client());
        namespaces.create(&PostParams::default(), &namespace).await?;
    }
    let source: Secret = from_value(json!({
        "metadata": { "name": "token", "annotations": { SYNC: "" } }, "stringData": { "a": "b" },
    }))?;
    world.within(SOURCE_NAMESPACE).create(source).await?;
    let client = world.wire().client();
    let manager = Manager::new(client.clone()).install(Install::new([SecretSync::crd()]));
    let running = Running::start(setup(manager, &client, &[], &Arguments::default()).await?);

    let (asks, by_hand) = (world.within("asks"), world.within("by-hand"));
    let copy = asks.wait_for::<Secret>("token", |_| true).await?;
    let mut other = Secret::clone(&copy);
    other.metadata.namespace = None;
    other.metadata.resource_version = None;
    other.metadata.uid = None;
    other.metadata.managed_fields = None;
    let other = by_hand.create(other).await?;
    assert_eq!(other.labels(), copy.labels());
    world.within(SOURCE_NAMESPACE).delete::<Secret>("token").await?;
    asks.wait_gone::<Secret>("token").await?;
    world.wire().quiet(std::time::Duration::from_secs(1)).await;
    assert_eq!(
        by_hand.version::<Secret>("token").await?,
        other.metadata.resource_version
    );
    running.stop().await
}
