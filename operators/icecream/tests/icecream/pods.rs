//! The pods in the status. Most cases cover a mistake of upstream's controller.

use http::StatusCode;
use serde_json::json;
use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::api::{DeleteParams, PostParams},
};
use windlass_icecream::Icecream;
use windlass_suite::{Context as Case, RecordedRequest};

use crate::icecream::fixture::{Fixture, flavor_label, icecream_label, pod};

/// Sorted, each node once; selected by the Icecream's own label, or by the flavor's.
pub(crate) async fn status_reports_nodes_names_addresses_and_requests(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    for (name, spec, label) in [
        ("plain", json!({ "deploymentName": "a" }), icecream_label("plain")),
        (
            "mint",
            json!({ "deploymentName": "b", "flavor": "mint" }),
            flavor_label("mint"),
        ),
    ] {
        fixture.create_icecream(name, spec).await?;
        let [a, b, c] = ["a", "b", "c"].map(|one| format!("{name}-{one}"));
        fixture.create_pod(&c, label, "north", 3).await?;
        fixture.create_pod(&a, label, "south", 10).await?;
        fixture.create_pod(&b, label, "north", 2).await?;
        fixture
            .wait_for::<Icecream>(name, |icecream| {
                let status = json!(icecream.status);
                status
                    == json!({
                        "nodeNames": ["north", "south"],
                        "podNames": [a, b, c],
                        "podIPs": ["10.0.0.10", "10.0.0.2", "10.0.0.3"],
                        "totalAllocatedCPU": "750m",
                        "totalAllocatedMemory": "192Mi",
                    })
            })
            .await?;
        // A pod without a node is reported too.
        let waiting = format!("{name}-d");
        fixture.create(pod(&waiting, label, "")).await?;
        let status = fixture.wait_for_pods(name, &[&a, &b, &c, &waiting]).await?;
        assert_eq!(status.node_names, ["north", "south"]);
        assert_eq!(status.total_allocated_cpu, "1");
        assert_eq!(status.total_allocated_memory, "256Mi");
    }
    fixture.stop().await
}

pub(crate) async fn status_write_causes_at_most_one_more_reconcile(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    fixture.create_example().await?;
    fixture.wait_for_pods("example", &[]).await?;
    fixture.wait_until_idle().await;
    let (before, _) = fixture.reconciles();
    fixture.proxy().clear();
    // One change of one pod: it is created with all reported fields.
    fixture.create(pod("one", flavor_label("mint"), "north")).await?;
    fixture.wait_for_pods("example", &["one"]).await?;
    fixture.wait_until_idle().await;
    let (after, failed) = fixture.reconciles();
    let reconciles = after - before;
    assert!(
        (1..=2).contains(&reconciles),
        "{reconciles}: one for the pod, and at most one for the status write"
    );
    assert_eq!(failed, 0);
    assert_eq!(fixture.writes(), ["patch icecreams/example/status"]);
    fixture.stop().await
}

/// Upstream watches pods by owner, but lists them by label: these pods have no owner.
pub(crate) async fn relabeled_pod_moves_between_statuses(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    for flavor in ["mint", "plum"] {
        let spec = json!({ "deploymentName": flavor, "flavor": flavor });
        fixture.create_icecream(flavor, spec).await?;
    }
    fixture
        .create_icecream("plain", json!({ "deploymentName": "plain" }))
        .await?;
    fixture
        .create_pod("one", flavor_label("mint"), "north", 1)
        .await?;
    fixture.wait_for_pods("mint", &["one"]).await?;
    let relabel = async |labels| {
        fixture
            .patch::<Pod>("one", json!({ "metadata": { "labels": labels } }))
            .await
    };
    relabel(json!({ "ice-cream-flavor": "plum" })).await?;
    fixture.wait_for_pods("plum", &["one"]).await?;
    fixture.wait_for_pods("mint", &[]).await?;
    relabel(json!({ "ice-cream-flavor": null, "icecream": "plain" })).await?;
    fixture.wait_for_pods("plain", &["one"]).await?;
    fixture.wait_for_pods("plum", &[]).await?;
    relabel(json!({ "icecream": null })).await?;
    fixture.wait_for_pods("plain", &[]).await?;
    fixture.stop().await
}

/// Upstream keeps the last status.
pub(crate) async fn status_is_cleared_without_pods(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    fixture.create_example().await?;
    for name in ["one", "two"] {
        fixture.create_pod(name, flavor_label("mint"), "north", 1).await?;
    }
    fixture.wait_for_pods("example", &["one", "two"]).await?;
    for name in ["one", "two"] {
        let now = DeleteParams::default().grace_period(0);
        case.api::<Pod>().delete(name, &now).await?;
    }
    let status = fixture.wait_for_pods("example", &[]).await?;
    assert_eq!(
        json!(status),
        json!({
            "nodeNames": [], "podNames": [], "podIPs": [], "totalAllocatedCPU": "0", "totalAllocatedMemory": "0",
        })
    );
    fixture.stop().await
}

/// Upstream treats a failed list as an empty one.
pub(crate) async fn failed_list_does_not_clear_the_status(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    fixture.create_example().await?;
    fixture
        .create_pod("one", flavor_label("mint"), "north", 1)
        .await?;
    fixture.wait_for_pods("example", &["one"]).await?;
    fixture.wait_until_idle().await;
    fixture.stop().await?;
    let before = fixture.version::<Icecream>("example").await?;

    fixture.proxy().clear();
    let asks = |sent: &RecordedRequest| sent.resource() == "pods";
    fixture.proxy().reject(3, StatusCode::INTERNAL_SERVER_ERROR, asks);
    fixture.start();
    // Both are reconciled once the pods are listed.
    let spec = json!({ "deploymentName": "more", "flavor": "mint" });
    fixture.create_icecream("late", spec).await?;
    fixture.wait_for_pods("late", &["one"]).await?;
    fixture.wait_until_idle().await;
    let asked = fixture.proxy().requests().into_iter().filter(asks).count();
    assert!(asked > 3, "{asked} requests");
    assert!(fixture.reconciles().0 >= 2, "both were reconciled");
    assert_eq!(fixture.version::<Icecream>("example").await?, before);
    fixture.stop().await
}

/// Upstream rounds up to whole CPUs.
pub(crate) async fn fractional_cpus_are_not_rounded(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    fixture.create_example().await?;
    for (name, total) in [("one", "250m"), ("two", "500m"), ("three", "750m"), ("four", "1")] {
        fixture.create_pod(name, flavor_label("mint"), "north", 1).await?;
        fixture
            .wait_for::<Icecream>("example", |icecream| {
                let status = icecream.status.as_ref();
                status.is_some_and(|status| status.total_allocated_cpu == total)
            })
            .await?;
    }
    // All containers of a pod count; one without requests adds nothing.
    let container =
        |name: &str, requests| json!({ "name": name, "image": "x", "resources": { "requests": requests } });
    let many = json!([
        container("a", json!({ "cpu": "0.1", "memory": "1G" })),
        container("b", json!({ "cpu": "1m" })),
        container("c", json!({})),
    ]);
    let mut big = pod("big", flavor_label("mint"), "north");
    big.spec = serde_json::from_value(json!({ "containers": many }))?;
    fixture.create(big).await?;
    let status = fixture
        .wait_for_pods("example", &["big", "four", "one", "three", "two"])
        .await?;
    assert_eq!(status.total_allocated_cpu, "1101m");
    assert_eq!(
        status.total_allocated_memory,
        (1_000_000_000 + 4 * 64 * 1024 * 1024).to_string()
    );
    fixture.stop().await
}

/// Upstream counts both.
pub(crate) async fn init_containers_and_finished_pods_are_not_counted(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    fixture.create_example().await?;
    let mut prepared = pod("prepared", flavor_label("mint"), "north");
    let init = json!([{ "name": "churn", "image": "x", "resources": { "requests": { "cpu": "4", "memory": "4Gi" } } }]);
    if let Some(spec) = &mut prepared.spec {
        spec.init_containers = serde_json::from_value(init)?;
    }
    fixture.create(prepared).await?;
    for name in ["done", "dropped"] {
        fixture.create_pod(name, flavor_label("mint"), "south", 2).await?;
    }
    let status = fixture
        .wait_for_pods("example", &["done", "dropped", "prepared"])
        .await?;
    assert_eq!(
        (
            status.total_allocated_cpu.as_str(),
            status.total_allocated_memory.as_str()
        ),
        ("750m", "192Mi")
    );
    for (name, phase) in [("done", "Succeeded"), ("dropped", "Failed")] {
        fixture
            .patch_status::<Pod>(name, json!({ "status": { "phase": phase } }))
            .await?;
    }
    let status = fixture.wait_for_pods("example", &["prepared"]).await?;
    assert_eq!(status.node_names, ["north"]);
    assert_eq!(
        (
            status.total_allocated_cpu.as_str(),
            status.total_allocated_memory.as_str()
        ),
        ("250m", "64Mi")
    );
    fixture.stop().await
}

/// Upstream writes them in list order.
pub(crate) async fn pod_order_does_not_cause_writes(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    fixture.create_example().await?;
    for (name, node) in [("c", "east"), ("a", "west"), ("b", "south")] {
        fixture.create_pod(name, flavor_label("mint"), node, 1).await?;
    }
    let status = fixture.wait_for_pods("example", &["a", "b", "c"]).await?;
    assert_eq!(status.node_names, ["east", "south", "west"]);
    fixture.wait_until_idle().await;
    // After restarts, which list the pods again.
    for _ in 0..3 {
        fixture.restart().await?;
        assert!(fixture.reconciles().0 > 0, "it was reconciled");
        assert_eq!(fixture.writes(), [""; 0]);
    }
    fixture.stop().await
}

/// Upstream selects pods whose flavor is the empty string.
pub(crate) async fn empty_flavor_counts_as_none(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "flavor": "" });
    fixture.create_icecream("example", spec).await?;
    fixture
        .create_pod("flavorless", flavor_label(""), "south", 1)
        .await?;
    fixture
        .create_pod("own", icecream_label("example"), "north", 2)
        .await?;
    fixture.wait_for_pods("example", &["own"]).await?;
    fixture.wait_until_idle().await;
    let status = fixture.wait_for_pods("example", &["own"]).await?;
    assert_eq!(status.node_names, ["north"]);
    let deployment = fixture
        .get::<windlass::k8s_openapi::api::apps::v1::Deployment>("scoops")
        .await?;
    let labels = &json!(deployment.spec)["template"]["metadata"]["labels"];
    assert_eq!(*labels, json!({ "icecream": "example" }));
    fixture.stop().await
}

pub(crate) async fn unreported_pod_changes_cause_no_reconcile(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::running(&case).await?;
    fixture.create_example().await?;
    fixture
        .create_pod("one", flavor_label("mint"), "north", 1)
        .await?;
    fixture.wait_for_pods("example", &["one"]).await?;
    fixture.wait_until_idle().await;
    let before = fixture.reconciles();
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    fixture
        .patch_status::<Pod>(
            "one",
            json!({ "status": { "conditions": ready, "message": "hello" } }),
        )
        .await?;
    fixture
        .patch::<Pod>("one", json!({ "metadata": { "annotations": { "a": "b" } } }))
        .await?;
    fixture.create_pod("stranger", ("app", "web"), "north", 9).await?;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.reconciles(), before);
    fixture.stop().await
}

pub(crate) async fn pods_of_other_namespaces_and_flavors_are_ignored(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::stopped(&case).await?;
    let elsewhere = case.fresh().await?;
    fixture.start_with(
        fixture
            .manager()
            .namespaces([case.namespace(), elsewhere.namespace()]),
    );
    fixture.create_example().await?;
    // Two Icecreams of one flavor report the same pods.
    let spec = json!({ "deploymentName": "other", "flavor": "mint" });
    fixture.create_icecream("sibling", spec).await?;
    let stranger = pod("stranger", flavor_label("mint"), "north");
    let pods = elsewhere.api::<Pod>();
    pods.create(&PostParams::default(), &stranger).await?;
    fixture
        .create_pod("plum", flavor_label("plum"), "north", 2)
        .await?;
    fixture
        .create_pod("one", flavor_label("mint"), "north", 1)
        .await?;
    for icecream in ["example", "sibling"] {
        fixture.wait_for_pods(icecream, &["one"]).await?;
    }
    fixture.wait_until_idle().await;
    for icecream in ["example", "sibling"] {
        fixture.wait_for_pods(icecream, &["one"]).await?;
    }
    fixture.stop().await
}
