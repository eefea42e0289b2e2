//! The rights that it ships with.

use http::StatusCode;
use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Secret},
    prelude::*,
    runtime::ElectionConfig,
};
use windlass_secretsync::{SecretSync, api::SYNC};
use windlass_suite::{Context as Case, Running, Sent};

use crate::world::{HOME, World, consent, secret, shipped};

/// All cases run with these rights. Here is a life in which each of them is needed.
pub(crate) async fn the_roles_are_enough_and_nothing_in_them_is_idle(case: Case) -> anyhow::Result<()> {
    let rights = shipped();
    let world = World::with(&case, &rights).await?;
    world.consenting(&["asks", "two"]).await?;
    world.namespace("wrong", consent("No Name!")).await?;
    world.within("two").create(secret("token", "own")).await?;
    let config: ConfigMap = from_value(json!({
        "metadata": { "name": "settings", "annotations": { SYNC: "" } }, "data": { "a": "1" },
    }))?;
    world.within(HOME).create(config).await?;
    world.source("token", "1").await?;
    world.within(HOME).create(secret("selected", "1")).await?;
    // A server that does not stream lists is asked for them.
    let streams = |sent: &Sent| sent.access.verb == "watch";
    world.wire().refuse(12, StatusCode::UNPROCESSABLE_ENTITY, streams);
    let manager = world
        .whole()
        .await?
        .elect(ElectionConfig::new("secretsync").namespace(case.namespace()));
    let running = Running::start(manager);
    let spec = json!({ "names": ["selected"], "adoptionPolicy": "IfIdentical", "recreate": "IfNeeded" });
    world.sync(HOME, "shared", spec).await?;
    let configs = json!({ "kind": "ConfigMap", "secretSelector": { "matchLabels": { "nothing": "yet" } } });
    world.sync(HOME, "configs", configs).await?;
    world.copied("asks", "token", "1").await?;
    world.copied("asks", "selected", "1").await?;
    let text = |is: &'static str| {
        move |config: &ConfigMap| {
            config
                .data
                .as_ref()
                .and_then(|data| data.get("a"))
                .is_some_and(|text| text == is)
        }
    };
    let asks = world.within("asks");
    asks.wait_for::<ConfigMap>("settings", text("1")).await?;
    asks.patch::<ConfigMap>("settings", json!({ "data": { "a": "2" } }))
        .await?;
    asks.wait_for::<ConfigMap>("settings", text("1")).await?;
    asks.patch::<Secret>("token", json!({ "data": { "more": "eA==" } }))
        .await?;
    world.copied("asks", "token", "1").await?;
    world.settle().await;
    // What is still wrong is told again: the event of before is counted up.
    let changed = json!({ "labels": { "changed": "yes" } });
    world.patch_namespace("wrong", changed).await?;
    world
        .wire()
        .seen(|sent| sent.resource() == "events" && sent.access.verb == "patch")
        .await?;
    world.within(HOME).delete::<ConfigMap>("settings").await?;
    asks.wait_gone::<ConfigMap>("settings").await?;
    world.within(HOME).delete::<SecretSync>("shared").await?;
    asks.wait_gone::<Secret>("selected").await?;
    world.within(HOME).wait_gone::<SecretSync>("shared").await?;
    world.settle().await;
    running.stop().await?;
    assert_eq!(rights.refused(), [""; 0]);
    assert_eq!(rights.unused(), [], "granted, and nobody needs it");
    Ok(())
}
