//! Objects that are valid for the server, but do not decode into the controller's type.

use windlass::{
    k8s_openapi::api::core::v1::ConfigMap, prelude::*, runtime::STALLED_CONDITION, serde_json::Value,
};
use windlass_suite::{Context as Case, RunningManager, TestEnvironment, install_crds};

use crate::runtime::{
    fixture::lock,
    shop::{Shop, ShopStatus, Street, config, message, shown},
};

/// Desired state of a [`Kiosk`].
#[windlass::resource(group = "suite.windlass.dev", version = "v1")]
#[kube(kind = "Kiosk", namespaced, status = "ShopStatus")]
pub(crate) struct KioskSpec {
    pub(crate) size: i32,
}

/// The kind as the server has it.
mod server {
    use super::{ShopStatus, Value, schema_of_anything};

    /// Desired state of a [`Kiosk`].
    #[windlass::resource(group = "suite.windlass.dev", version = "v1")]
    #[kube(kind = "Kiosk", namespaced, status = "ShopStatus")]
    pub(crate) struct KioskSpec {
        #[schemars(schema_with = "schema_of_anything")]
        pub(crate) size: Value,
    }
}

fn schema_of_anything(_: &mut windlass::schemars::SchemaGenerator) -> windlass::schemars::Schema {
    windlass::schemars::json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

fn conditions(kiosk: &server::Kiosk) -> Vec<String> {
    let conditions = kiosk.status.iter().flat_map(|status| &status.conditions);
    let mut shown: Vec<_> = conditions
        .map(|found| format!("{} {}", found.type_, shown(found)))
        .collect();
    shown.sort();
    shown
}

/// The earlier status would claim success; also of an object that never decoded.
pub(crate) async fn undecodable_object_is_reported_in_the_status(case: Case) -> anyhow::Result<()> {
    const STALLED: [&str; 2] = ["Ready False ReconcileFailed", "Stalled True ReconcileFailed"];
    install_crds(&case, [server::Kiosk::crd()]).await?;
    let env = TestEnvironment::new(&case);
    let kiosk = |name: &str, size: Value| server::Kiosk::new(name, server::KioskSpec { size });
    env.create(kiosk("corner", json!(1))).await?;
    let kiosks = Controller::<Kiosk>::new("kiosks").owns::<ConfigMap>();
    let running = RunningManager::start(env.manager().controller(kiosks.declare(
        |kiosk: Arc<Kiosk>, _: Context| async move { Ok(Desired::new().child(config(kiosk.name_any()))) },
    )));
    let is_ready = |kiosk: &server::Kiosk| conditions(kiosk) == ["Ready True Reconciled"];
    env.wait_for("corner", is_ready).await?;

    env.create(kiosk("new", json!("many"))).await?;
    let many = json!({ "spec": { "size": "many" } });
    let changed = env.patch::<server::Kiosk>("corner", many).await?;
    for (name, generation) in [("new", Some(1)), ("corner", changed.metadata.generation)] {
        let kiosk = env
            .wait_for(name, |kiosk: &server::Kiosk| conditions(kiosk) == STALLED)
            .await?;
        let status = kiosk.status.as_ref().expect("a status");
        let stalled = status.conditions.of_type(STALLED_CONDITION).expect("a condition");
        assert!(
            stalled.message.contains("invalid type: string"),
            "{name}: {stalled:?}"
        );
        assert_eq!(
            (status.observed_generation, stalled.observed_generation),
            (generation, generation)
        );
    }

    env.patch::<server::Kiosk>("corner", json!({ "spec": { "size": 2 } }))
        .await?;
    env.wait_for("corner", is_ready).await?;
    running.stop().await
}

/// An unwanted child whose owner cannot be read may be anyone's: it is kept, and reported until a person deletes it.
pub(crate) async fn undecodable_child_is_reported_when_it_is_unwanted(case: Case) -> anyhow::Result<()> {
    install_crds(&case, [server::Kiosk::crd()]).await?;
    let with_child = |_: &Shop| Ok(Desired::new().child(Kiosk::new("child", KioskSpec { size: 1 })));
    let mut street = Street::closed(&case, with_child).await?;
    let plan = Arc::clone(&street.plan);
    let shops = Controller::<Shop>::new("shops").owns::<Kiosk>();
    street.run(shops.declare(move |shop: Arc<Shop>, _: Context| {
        let wants = Arc::clone(&lock(&plan));
        async move { wants(&shop) }
    }));
    street.wait_for_ready("True Reconciled").await?;
    let many = json!({ "spec": { "size": "many" } });
    street.env.patch::<server::Kiosk>("child", many).await?;
    let without = |_: &Shop| Ok(Desired::new().without::<Kiosk>());
    let shop = street.want(without, "False ReconcileFailed").await?;
    let text = message(&shop, "Ready");
    let child = format!("{}/child", case.namespace());
    assert!(
        text.contains(&child) && text.contains("invalid type: string"),
        "{text}"
    );
    street.env.delete::<server::Kiosk>("child").await?;
    street.wait_for_ready("True Reconciled").await?;
    street.stop().await
}
