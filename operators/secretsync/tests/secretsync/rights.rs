//! The shipped rights.

use http::StatusCode;
use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Secret},
    prelude::*,
    runtime::ElectionConfig,
};
use windlass_secretsync::{SecretSync, api::SYNC_ANNOTATION};
use windlass_suite::{Context as Case, RecordedRequest, RunningManager};

use crate::secretsync::test_cluster::{HOME, TestCluster, consent, secret, shipped};

/// All cases run with these rights. This scenario needs each of them.
pub(crate) async fn shipped_roles_are_sufficient_and_minimal(case: Case) -> anyhow::Result<()> {
    let rights = shipped();
    let env = TestCluster::with(&case, &rights).await?;
    env.consenting(&["asks", "two"]).await?;
    env.namespace("wrong", consent("No Name!")).await?;
    env.in_namespace("two").create(secret("token", "own")).await?;
    let config: ConfigMap = from_value(json!({
        "metadata": { "name": "settings", "annotations": { SYNC_ANNOTATION: "" } }, "data": { "a": "1" },
    }))?;
    env.in_namespace(HOME).create(config).await?;
    env.source("token", "1").await?;
    env.in_namespace(HOME).create(secret("selected", "1")).await?;
    // A server without streaming lists is listed from.
    let streams = |sent: &RecordedRequest| sent.access.verb == "watch";
    env.proxy().reject(12, StatusCode::UNPROCESSABLE_ENTITY, streams);
    let manager = env
        .new_manager()
        .await?
        .elect(ElectionConfig::new("secretsync").namespace(case.namespace()));
    let running = RunningManager::start(manager);
    let spec =
        json!({ "names": ["selected"], "adoptionPolicy": "IfIdentical", "recreatePolicy": "IfNeeded" });
    env.sync(HOME, "shared", spec).await?;
    let configs = json!({ "kind": "ConfigMap", "sourceSelector": { "matchLabels": { "nothing": "yet" } } });
    env.sync(HOME, "configs", configs).await?;
    env.wait_for_copy("asks", "token", "1").await?;
    env.wait_for_copy("asks", "selected", "1").await?;
    let text = |is: &'static str| {
        move |config: &ConfigMap| {
            config
                .data
                .as_ref()
                .and_then(|data| data.get("a"))
                .is_some_and(|text| text == is)
        }
    };
    let asks = env.in_namespace("asks");
    asks.wait_for::<ConfigMap>("settings", text("1")).await?;
    asks.patch::<ConfigMap>("settings", json!({ "data": { "a": "2" } }))
        .await?;
    asks.wait_for::<ConfigMap>("settings", text("1")).await?;
    asks.patch::<Secret>("token", json!({ "data": { "more": "eA==" } }))
        .await?;
    env.wait_for_copy("asks", "token", "1").await?;
    env.settle().await;
    // A repeated event increases the count of the existing one.
    let changed = json!({ "labels": { "changed": "yes" } });
    env.patch_namespace("wrong", changed).await?;
    env.proxy()
        .wait_until_sent(|sent| sent.resource() == "events" && sent.access.verb == "patch")
        .await?;
    env.in_namespace(HOME).delete::<ConfigMap>("settings").await?;
    asks.wait_until_deleted::<ConfigMap>("settings").await?;
    env.in_namespace(HOME).delete::<SecretSync>("shared").await?;
    asks.wait_until_deleted::<Secret>("selected").await?;
    env.in_namespace(HOME)
        .wait_until_deleted::<SecretSync>("shared")
        .await?;
    env.settle().await;
    running.stop().await?;
    assert_eq!(rights.forbidden(), [""; 0]);
    assert_eq!(rights.unused(), [], "unused rights");
    Ok(())
}
