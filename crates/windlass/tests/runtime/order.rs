//! Order between children.

use std::time::Duration;

use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Event, Secret},
    prelude::*,
    runtime::{ChildRef, STALLED_CONDITION},
};
use windlass_suite::{Context as Case, RecordedRequest};

use crate::runtime::shop::{Shop, Street, all_shown, config, message, secret};

/// How long no request is sent when all is done.
const IDLE: Duration = Duration::from_millis(500);

/// A name that the server rejects.
const INVALID: &str = "Not_Valid!";

pub(crate) async fn child_waits_for_its_predecessors(case: Case) -> anyhow::Result<()> {
    let in_order = |first: &'static str| {
        move |_: &Shop| {
            let desired = Desired::new().child(config(first)).child(secret("two"));
            let desired = desired.after([ChildRef::of::<ConfigMap>(first)]);
            let desired = desired.children([config("three"), config("four")]);
            Ok(desired
                .after([ChildRef::of::<Secret>("two")])
                .child(config("free")))
        }
    };
    let mut street = Street::new(&case, in_order(INVALID)).await?;
    let shop = street.wait_for_ready("False Invalid").await?;
    let text = message(&shop, "Ready");
    for waiting in [
        format!(
            "Secret {0}/two waits for ConfigMap {0}/{INVALID}",
            case.namespace()
        ),
        format!("ConfigMap {0}/three waits for Secret {0}/two", case.namespace()),
        format!("ConfigMap {0}/four waits for Secret {0}/two", case.namespace()),
    ] {
        assert!(text.contains(&waiting), "{text}");
    }
    street.env.wait_for::<ConfigMap>("free", |_| true).await?;
    assert!(!street.has::<Secret>("two").await? && !street.has::<ConfigMap>("three").await?);

    street.want(in_order("one"), "True Reconciled").await?;
    assert!(street.has::<Secret>("two").await? && street.has::<ConfigMap>("four").await?);

    let unknown = |_: &Shop| {
        let after = [ChildRef::of::<Secret>("late")];
        Ok(Desired::new()
            .child(config("one"))
            .after(after)
            .child(secret("late")))
    };
    let shop = street.want(unknown, "False Invalid").await?;
    let expected = format!(
        "ConfigMap {}/one is declared after Secret late, which is not a child: add it before",
        case.namespace()
    );
    assert_eq!(message(&shop, STALLED_CONDITION), expected);
    street.stop().await
}

pub(crate) async fn child_that_is_being_deleted_is_not_ready(case: Case) -> anyhow::Result<()> {
    let plan = |_: &Shop| Ok(Desired::new().child(config("one")).event("Synced", "all is well"));
    let mut street = Street::new(&case, plan).await?;
    let shop = street.wait_for_ready("True Reconciled").await?;
    let is_synced = |event: &Event| event.reason.as_deref() == Some("Synced");
    street.env.wait_for_event(&*shop, is_synced).await?;
    street.env.proxy().wait_until_idle(IDLE).await;
    street.env.proxy().clear();
    let hold = json!({ "metadata": { "finalizers": ["suite.windlass.dev/hold"] } });
    street.env.patch::<ConfigMap>("one", hold).await?;
    street.env.delete::<ConfigMap>("one").await?;
    let shop = street.wait_for_ready("False ChildTerminating").await?;
    assert_eq!(
        all_shown(&shop),
        [
            "Ready False ChildTerminating",
            "Reconciling True ChildTerminating"
        ]
    );
    street.env.proxy().wait_until_idle(IDLE).await;
    let is_event = |sent: &RecordedRequest| sent.is_write() && sent.resource() == "events";
    assert!(
        !street.env.proxy().requests().iter().any(is_event),
        "not all is well"
    );
    street
        .env
        .patch::<ConfigMap>("one", json!({ "metadata": { "finalizers": null } }))
        .await?;
    street.wait_for_ready("True Reconciled").await?;
    street.env.proxy().wait_until_sent(is_event).await?;
    street.stop().await
}
