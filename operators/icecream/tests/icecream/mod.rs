//! The Icecream controller on every kind of cluster, with exactly its shipped rights.
//!
//! The tests create the pods and set their status, so that they also run on a control plane without nodes.

mod crash;
mod fixture;
mod invalid;
mod pods;

use fixture::Fixture;
use serde_json::json;
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Event},
    prelude::*,
};
use windlass_icecream::{FLAVOR_LABEL, ICECREAM_LABEL, Icecream};
use windlass_suite::{Context as Case, suite};

suite!("icecream", paused;
    new_icecream_gets_deployment_status_and_event,
    shipped_example_works,
    restart_does_not_write_a_synced_icecream,
    deployment_follows_replicas_and_flavor,
    drift_is_corrected,
    deleted_deployment_is_recreated,
    renaming_removes_the_old_deployment,
    terminating_icecream_gets_nothing_new,
    pods::status_reports_nodes_names_addresses_and_requests,
    pods::status_write_causes_at_most_one_more_reconcile,
    pods::relabeled_pod_moves_between_statuses,
    pods::status_is_cleared_without_pods,
    pods::failed_list_does_not_clear_the_status,
    pods::fractional_cpus_are_not_rounded,
    pods::init_containers_and_finished_pods_are_not_counted,
    pods::pod_order_does_not_cause_writes,
    pods::empty_flavor_counts_as_none,
    pods::unreported_pod_changes_cause_no_reconcile,
    pods::pods_of_other_namespaces_and_flavors_are_ignored,
    invalid::server_rejects_replicas_out_of_range,
    invalid::invalid_names_and_labels_are_reported_and_change_nothing,
    invalid::foreign_deployment_is_untouched_until_its_name_is_free,
    invalid::two_icecreams_do_not_share_a_deployment,
    crash::crash_at_any_request_leads_to_the_same_state,
    crash::shipped_rights_are_sufficient_and_minimal,
);

/// The Deployment is written once, then the status, both with upstream's field manager; then an event is recorded.
async fn new_icecream_gets_deployment_status_and_event(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "replicas": 2 });
    let icecream = fixture.create_icecream("example", spec).await?;
    let status = fixture.wait_for_pods("example", &[]).await?;
    assert_eq!(
        (
            status.total_allocated_cpu.as_str(),
            status.total_allocated_memory.as_str()
        ),
        ("0", "0")
    );
    let synced = fixture
        .wait_for_event(&icecream, |event: &Event| {
            event.reason.as_deref() == Some("Synced")
        })
        .await?;
    assert_eq!(synced.message.as_deref(), Some("Icecream synced successfully"));
    let source = synced.source.and_then(|source| source.component);
    assert_eq!(source.as_deref(), Some("nicole-controller"));

    let deployment = fixture.get::<Deployment>("scoops").await?;
    let owners = deployment.owner_references();
    assert_eq!(owners.len(), 1);
    assert_eq!(
        (owners[0].kind.as_str(), Some(&owners[0].uid)),
        ("Icecream", icecream.metadata.uid.as_ref())
    );
    assert_eq!(
        (owners[0].controller, owners[0].block_owner_deletion),
        (Some(true), Some(true))
    );
    let spec = json!(deployment.spec);
    assert_eq!(spec["replicas"], 2);
    assert_eq!(
        spec["selector"]["matchLabels"],
        json!({ ICECREAM_LABEL: "example" })
    );
    assert_eq!(
        spec["template"]["metadata"]["labels"],
        json!({ ICECREAM_LABEL: "example" })
    );
    assert_eq!(spec["template"]["spec"]["containers"][0]["image"], "nginx:latest");

    fixture.wait_until_idle().await;
    assert_eq!(
        fixture.writes(),
        ["patch deployments/scoops", "patch icecreams/example/status"]
    );
    let writes = fixture.proxy().writes().into_iter();
    let mut writes = writes.filter(|write| write.resource() != "events");
    assert!(writes.all(|write| write.field_manager.as_deref() == Some("nicole-controller")));
    fixture.stop().await
}

async fn shipped_example_works(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    let example: Icecream = serde_yaml_ng::from_str(include_str!("../../example.yaml"))?;
    let name = example.name_any();
    let deployment = example.spec.deployment_name.clone();
    fixture.create(example).await?;
    fixture.wait_for_pods(&name, &[]).await?;
    fixture.get::<Deployment>(&deployment).await?;
    assert_eq!(fixture.reconciles().1, 0);
    fixture.stop().await
}

async fn restart_does_not_write_a_synced_icecream(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "replicas": 1, "flavor": "mint" });
    fixture.create_icecream("example", spec).await?;
    fixture
        .create_pod("one", fixture::flavor_label("mint"), "north", 1)
        .await?;
    fixture.wait_for_pods("example", &["one"]).await?;
    fixture.wait_until_idle().await;
    let before = (
        fixture.version::<Icecream>("example").await?,
        fixture.version::<Deployment>("scoops").await?,
    );
    fixture.restart().await?;
    assert!(fixture.reconciles().0 > 0, "it was reconciled");
    assert_eq!(fixture.writes(), [""; 0]);
    let after = (
        fixture.version::<Icecream>("example").await?,
        fixture.version::<Deployment>("scoops").await?,
    );
    assert_eq!(after, before);
    fixture.stop().await
}

/// Removing the flavor removes its label from the pods; without `replicas`, others may scale the Deployment.
async fn deployment_follows_replicas_and_flavor(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    fixture
        .create_icecream("example", json!({ "deploymentName": "scoops" }))
        .await?;
    fixture.wait_for::<Deployment>("scoops", |_| true).await?;
    fixture
        .patch::<Deployment>("scoops", json!({ "spec": { "replicas": 4 } }))
        .await?;
    fixture.wait_until_idle().await;
    assert_eq!(
        json!(fixture.get::<Deployment>("scoops").await?.spec)["replicas"],
        4
    );
    for (spec, replicas, flavor) in [
        (json!({ "replicas": 3, "flavor": "mint" }), 3, Some("mint")),
        (json!({ "replicas": 5, "flavor": "plum" }), 5, Some("plum")),
        (json!({ "flavor": null }), 5, None),
    ] {
        fixture.wait_until_idle().await;
        fixture.proxy().clear();
        fixture
            .patch::<Icecream>("example", json!({ "spec": spec }))
            .await?;
        fixture
            .wait_for::<Deployment>("scoops", |deployment| {
                let spec = json!(deployment.spec);
                let labels = &spec["template"]["metadata"]["labels"];
                spec["replicas"] == replicas
                    && labels[FLAVOR_LABEL].as_str() == flavor
                    && labels[ICECREAM_LABEL] == "example"
            })
            .await?;
        fixture.wait_until_idle().await;
        assert_eq!(fixture.writes(), ["patch deployments/scoops"], "{flavor:?}");
    }
    fixture.stop().await
}

async fn drift_is_corrected(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "replicas": 2 });
    fixture.create_icecream("example", spec).await?;
    fixture.wait_for::<Deployment>("scoops", |_| true).await?;
    fixture.wait_until_idle().await;
    let drift = json!({
        "metadata": { "labels": { "theirs": "kept" } },
        "spec": {
            "replicas": 7,
            "template": { "spec": { "containers": [{ "name": "nginx", "image": "other" }] } },
        },
    });
    fixture.patch::<Deployment>("scoops", drift).await?;
    fixture
        .wait_for::<Deployment>("scoops", |deployment| {
            let spec = json!(deployment.spec);
            let image = &spec["template"]["spec"]["containers"][0]["image"];
            spec["replicas"] == 2 && image == "nginx:latest" && deployment.labels()["theirs"] == "kept"
        })
        .await?;
    fixture.stop().await
}

async fn deleted_deployment_is_recreated(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    fixture
        .create_icecream("example", json!({ "deploymentName": "scoops" }))
        .await?;
    let first = fixture.wait_for::<Deployment>("scoops", |_| true).await?;
    fixture.delete::<Deployment>("scoops").await?;
    fixture
        .wait_for::<Deployment>("scoops", |deployment| deployment.uid() != first.uid())
        .await?;
    fixture.stop().await
}

/// The new Deployment is created first, and no other Deployment is deleted.
async fn renaming_removes_the_old_deployment(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    for name in ["example", "other"] {
        fixture
            .create_icecream(name, json!({ "deploymentName": format!("{name}-scoops") }))
            .await?;
        fixture.wait_for_pods(name, &[]).await?;
    }
    fixture.wait_until_idle().await;
    fixture.proxy().clear();
    fixture
        .patch::<Icecream>("example", json!({ "spec": { "deploymentName": "renamed" } }))
        .await?;
    fixture.wait_until_deleted::<Deployment>("example-scoops").await?;
    fixture.get::<Deployment>("renamed").await?;
    fixture.get::<Deployment>("other-scoops").await?;
    fixture.wait_until_idle().await;
    assert_eq!(
        fixture.writes(),
        ["patch deployments/renamed", "delete deployments/example-scoops"]
    );
    fixture.stop().await
}

async fn terminating_icecream_gets_nothing_new(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::stopped(&case).await?;
    fixture
        .create_icecream("example", json!({ "deploymentName": "scoops" }))
        .await?;
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    fixture.patch::<Icecream>("example", hold).await?;
    fixture.delete::<Icecream>("example").await?;
    fixture.start();
    fixture.wait_until_idle().await;
    assert!(fixture.reconciles().0 > 0, "it was reconciled");
    assert_eq!(fixture.writes(), [""; 0]);
    let release = json!({ "metadata": { "finalizers": null } });
    fixture.patch::<Icecream>("example", release).await?;
    fixture.wait_until_deleted::<Icecream>("example").await?;
    fixture.stop().await
}
