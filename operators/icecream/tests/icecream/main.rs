//! What the Icecream controller promises, on every kind of cluster, with exactly the rights that it ships with.
//!
//! Nobody runs pods here: the test makes them and says where they are, so that the same case holds on a control plane
//! without nodes.

mod mistakes;
mod pods;
mod stand;
mod story;

use serde_json::json;
use stand::Stand;
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Event},
    prelude::*,
};
use windlass_icecream::{FLAVOR, ICECREAM, Icecream};
use windlass_suite::{Context as Case, suite};

suite!("icecream", paused;
    a_new_icecream_gets_one_deployment_and_one_status,
    the_example_works_as_it_is,
    an_icecream_in_sync_is_left_alone_by_a_restarted_controller,
    replicas_and_flavor_follow_the_icecream,
    what_drifts_is_put_right,
    a_deployment_that_is_deleted_comes_back,
    the_deployment_of_a_former_name_is_removed,
    an_icecream_that_is_being_deleted_gets_nothing_new,
    pods::the_status_tells_nodes_names_addresses_and_requests,
    pods::a_status_write_leads_to_one_more_look_and_then_to_silence,
    pods::a_pod_that_changes_its_label_is_told_of_where_it_went_and_no_longer_where_it_was,
    pods::without_pods_the_status_is_cleared,
    pods::a_list_that_fails_is_told_and_not_taken_for_no_pods,
    pods::quarters_are_not_rounded_up_to_ones,
    pods::init_containers_and_finished_pods_are_not_counted,
    pods::in_whatever_order_pods_come_nothing_is_written_twice,
    pods::an_empty_flavor_is_none,
    pods::what_the_status_does_not_tell_wakes_nobody,
    pods::pods_of_other_namespaces_and_flavors_are_not_its_own,
    mistakes::the_server_refuses_replicas_out_of_range,
    mistakes::what_cannot_be_a_name_or_label_is_told_with_the_rule_and_changes_nothing,
    mistakes::a_deployment_of_somebody_else_is_not_touched_and_its_name_taken_when_it_is_free,
    mistakes::two_icecreams_do_not_share_a_deployment,
    story::it_comes_to_the_same_end_wherever_it_is_stopped,
    story::the_roles_are_enough_and_nothing_in_them_is_idle,
);

/// (a), (d): the Deployment is written once, then the status, under upstream's name, and people are told.
async fn a_new_icecream_gets_one_deployment_and_one_status(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "replicas": 2 });
    let icecream = stand.icecream("example", spec).await?;
    let status = stand.tells("example", &[]).await?;
    assert_eq!(
        (
            status.total_allocated_cpu.as_str(),
            status.total_allocated_memory.as_str()
        ),
        ("0", "0")
    );
    let synced = stand
        .told(&icecream, |event: &Event| {
            event.reason.as_deref() == Some("Synced")
        })
        .await?;
    assert_eq!(synced.message.as_deref(), Some("Icecream synced successfully"));
    let source = synced.source.and_then(|source| source.component);
    assert_eq!(source.as_deref(), Some("nicole-controller"));

    let deployment = stand.get::<Deployment>("scoops").await?;
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
    assert_eq!(spec["selector"]["matchLabels"], json!({ ICECREAM: "example" }));
    assert_eq!(
        spec["template"]["metadata"]["labels"],
        json!({ ICECREAM: "example" })
    );
    assert_eq!(spec["template"]["spec"]["containers"][0]["image"], "nginx:latest");

    stand.settle().await;
    assert_eq!(
        stand.writes(),
        ["patch deployments/scoops", "patch icecreams/example/status"]
    );
    let writes = stand.wire().writes().into_iter();
    let mut writes = writes.filter(|write| write.resource() != "events");
    assert!(writes.all(|write| write.field_manager.as_deref() == Some("nicole-controller")));
    stand.close().await
}

/// The file that people try first.
async fn the_example_works_as_it_is(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let example: Icecream = serde_yaml_ng::from_str(include_str!("../../example.yaml"))?;
    let name = example.name_any();
    let deployment = example.spec.deployment_name.clone();
    stand.create(example).await?;
    stand.tells(&name, &[]).await?;
    stand.get::<Deployment>(&deployment).await?;
    assert_eq!(stand.looks().1, 0);
    stand.close().await
}

async fn an_icecream_in_sync_is_left_alone_by_a_restarted_controller(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "replicas": 1, "flavor": "mint" });
    stand.icecream("example", spec).await?;
    stand.pod("one", stand::of_flavor("mint"), "north", 1).await?;
    stand.tells("example", &["one"]).await?;
    stand.settle().await;
    let before = (
        stand.version::<Icecream>("example").await?,
        stand.version::<Deployment>("scoops").await?,
    );
    stand.reopen().await?;
    assert!(stand.looks().0 > 0, "it was looked at");
    assert_eq!(stand.writes(), [""; 0]);
    let after = (
        stand.version::<Icecream>("example").await?,
        stand.version::<Deployment>("scoops").await?,
    );
    assert_eq!(after, before);
    stand.close().await
}

/// A flavor that is taken back is taken off the pods, and what is left out is left to others.
async fn replicas_and_flavor_follow_the_icecream(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    stand
        .icecream("example", json!({ "deploymentName": "scoops" }))
        .await?;
    stand.wait_for::<Deployment>("scoops", |_| true).await?;
    stand
        .patch::<Deployment>("scoops", json!({ "spec": { "replicas": 4 } }))
        .await?;
    stand.settle().await;
    assert_eq!(
        json!(stand.get::<Deployment>("scoops").await?.spec)["replicas"],
        4
    );
    for (spec, replicas, flavor) in [
        (json!({ "replicas": 3, "flavor": "mint" }), 3, Some("mint")),
        (json!({ "replicas": 5, "flavor": "plum" }), 5, Some("plum")),
        (json!({ "flavor": null }), 5, None),
    ] {
        stand.settle().await;
        stand.wire().forget();
        stand
            .patch::<Icecream>("example", json!({ "spec": spec }))
            .await?;
        stand
            .wait_for::<Deployment>("scoops", |deployment| {
                let spec = json!(deployment.spec);
                let labels = &spec["template"]["metadata"]["labels"];
                spec["replicas"] == replicas
                    && labels[FLAVOR].as_str() == flavor
                    && labels[ICECREAM] == "example"
            })
            .await?;
        stand.settle().await;
        assert_eq!(stand.writes(), ["patch deployments/scoops"], "{flavor:?}");
    }
    stand.close().await
}

async fn what_drifts_is_put_right(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "replicas": 2 });
    stand.icecream("example", spec).await?;
    stand.wait_for::<Deployment>("scoops", |_| true).await?;
    stand.settle().await;
    let drift = json!({
        "metadata": { "labels": { "theirs": "kept" } },
        "spec": {
            "replicas": 7,
            "template": { "spec": { "containers": [{ "name": "nginx", "image": "other" }] } },
        },
    });
    stand.patch::<Deployment>("scoops", drift).await?;
    stand
        .wait_for::<Deployment>("scoops", |deployment| {
            let spec = json!(deployment.spec);
            let image = &spec["template"]["spec"]["containers"][0]["image"];
            spec["replicas"] == 2 && image == "nginx:latest" && deployment.labels()["theirs"] == "kept"
        })
        .await?;
    stand.close().await
}

async fn a_deployment_that_is_deleted_comes_back(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    stand
        .icecream("example", json!({ "deploymentName": "scoops" }))
        .await?;
    let first = stand.wait_for::<Deployment>("scoops", |_| true).await?;
    stand.delete::<Deployment>("scoops").await?;
    stand
        .wait_for::<Deployment>("scoops", |deployment| deployment.uid() != first.uid())
        .await?;
    stand.close().await
}

/// The new one is there before the old one goes, and nobody else's goes with it.
async fn the_deployment_of_a_former_name_is_removed(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    for name in ["example", "other"] {
        stand
            .icecream(name, json!({ "deploymentName": format!("{name}-scoops") }))
            .await?;
        stand.tells(name, &[]).await?;
    }
    stand.settle().await;
    stand.wire().forget();
    stand
        .patch::<Icecream>("example", json!({ "spec": { "deploymentName": "renamed" } }))
        .await?;
    stand.wait_gone::<Deployment>("example-scoops").await?;
    stand.get::<Deployment>("renamed").await?;
    stand.get::<Deployment>("other-scoops").await?;
    stand.settle().await;
    assert_eq!(
        stand.writes(),
        ["patch deployments/renamed", "delete deployments/example-scoops"]
    );
    stand.close().await
}

async fn an_icecream_that_is_being_deleted_gets_nothing_new(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::closed(&case).await?;
    stand
        .icecream("example", json!({ "deploymentName": "scoops" }))
        .await?;
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    stand.patch::<Icecream>("example", hold).await?;
    stand.delete::<Icecream>("example").await?;
    stand.start();
    stand.settle().await;
    assert!(stand.looks().0 > 0, "it was looked at");
    assert_eq!(stand.writes(), [""; 0]);
    let release = json!({ "metadata": { "finalizers": null } });
    stand.patch::<Icecream>("example", release).await?;
    stand.wait_gone::<Icecream>("example").await?;
    stand.close().await
}
