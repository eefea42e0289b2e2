//! What the status tells of pods. Most cases are named after a mistake that upstream's controller makes.

use http::StatusCode;
use serde_json::json;
use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::api::{DeleteParams, PostParams},
};
use windlass_icecream::Icecream;
use windlass_suite::Context as Case;

use crate::stand::{Stand, of_flavor, of_icecream, pod};

/// (c): sorted, each node once; without a flavor by its own label, with one by the flavor's.
pub(crate) async fn the_status_tells_nodes_names_addresses_and_requests(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    for (name, spec, label) in [
        ("plain", json!({ "deploymentName": "a" }), of_icecream("plain")),
        (
            "mint",
            json!({ "deploymentName": "b", "flavor": "mint" }),
            of_flavor("mint"),
        ),
    ] {
        stand.icecream(name, spec).await?;
        let [a, b, c] = ["a", "b", "c"].map(|one| format!("{name}-{one}"));
        stand.pod(&c, label, "north", 3).await?;
        stand.pod(&a, label, "south", 10).await?;
        stand.pod(&b, label, "north", 2).await?;
        stand
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
        // A pod that has no node yet is told of as far as it goes.
        let waiting = format!("{name}-d");
        stand.create(pod(&waiting, label, "")).await?;
        let status = stand.tells(name, &[&a, &b, &c, &waiting]).await?;
        assert_eq!(status.node_names, ["north", "south"]);
        assert_eq!(status.total_allocated_cpu, "1");
        assert_eq!(status.total_allocated_memory, "256Mi");
    }
    stand.close().await
}

/// (e).
pub(crate) async fn a_status_write_leads_to_one_more_look_and_then_to_silence(
    case: Case,
) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "flavor": "mint" });
    stand.icecream("example", spec).await?;
    stand.tells("example", &[]).await?;
    stand.settle().await;
    let (before, _) = stand.looks();
    stand.wire().forget();
    // One change of one pod: it comes with everything that is told of it.
    stand.create(pod("one", of_flavor("mint"), "north")).await?;
    stand.tells("example", &["one"]).await?;
    stand.settle().await;
    let (after, failed) = stand.looks();
    assert_eq!(after - before, 2, "the pod's, and the status write's own");
    assert_eq!(failed, 0);
    assert_eq!(stand.writes(), ["patch icecreams/example/status"]);
    stand.close().await
}

/// Upstream hears of pods that an Icecream owns, and lists by label: here the pods are nobody's.
pub(crate) async fn a_pod_that_changes_its_label_is_told_of_where_it_went_and_no_longer_where_it_was(
    case: Case,
) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    for flavor in ["mint", "plum"] {
        let spec = json!({ "deploymentName": flavor, "flavor": flavor });
        stand.icecream(flavor, spec).await?;
    }
    stand
        .icecream("plain", json!({ "deploymentName": "plain" }))
        .await?;
    stand.pod("one", of_flavor("mint"), "north", 1).await?;
    stand.tells("mint", &["one"]).await?;
    let relabel = async |labels| {
        stand
            .patch::<Pod>("one", json!({ "metadata": { "labels": labels } }))
            .await
    };
    relabel(json!({ "ice-cream-flavor": "plum" })).await?;
    stand.tells("plum", &["one"]).await?;
    stand.tells("mint", &[]).await?;
    relabel(json!({ "ice-cream-flavor": null, "icecream": "plain" })).await?;
    stand.tells("plain", &["one"]).await?;
    stand.tells("plum", &[]).await?;
    relabel(json!({ "icecream": null })).await?;
    stand.tells("plain", &[]).await?;
    stand.close().await
}

/// Upstream leaves what it told last.
pub(crate) async fn without_pods_the_status_is_cleared(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "flavor": "mint" });
    stand.icecream("example", spec).await?;
    for name in ["one", "two"] {
        stand.pod(name, of_flavor("mint"), "north", 1).await?;
    }
    stand.tells("example", &["one", "two"]).await?;
    for name in ["one", "two"] {
        let now = DeleteParams::default().grace_period(0);
        case.api::<Pod>().delete(name, &now).await?;
    }
    let status = stand.tells("example", &[]).await?;
    assert_eq!(
        json!(status),
        json!({
            "nodeNames": [], "podNames": [], "podIPs": [], "totalAllocatedCPU": "0", "totalAllocatedMemory": "0",
        })
    );
    stand.close().await
}

/// Upstream takes a failed list for an empty one.
pub(crate) async fn a_list_that_fails_is_told_and_not_taken_for_no_pods(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "flavor": "mint" });
    stand.icecream("example", spec).await?;
    stand.pod("one", of_flavor("mint"), "north", 1).await?;
    stand.tells("example", &["one"]).await?;
    stand.settle().await;
    stand.close().await?;
    let before = stand.version::<Icecream>("example").await?;

    stand.wire().forget();
    stand
        .wire()
        .refuse(usize::MAX, StatusCode::INTERNAL_SERVER_ERROR, |sent| {
            sent.resource() == "pods"
        });
    stand.start();
    stand.settle().await;
    let asked = stand
        .wire()
        .sent()
        .iter()
        .filter(|sent| sent.resource() == "pods")
        .count();
    assert!(asked > 0, "it asked");
    assert_eq!(stand.looks(), (0, 0), "nothing is judged before it is known");
    stand.close().await?;
    assert_eq!(stand.version::<Icecream>("example").await?, before);
    assert_eq!(stand.writes(), [""; 0]);
    Ok(())
}

/// Upstream counts whole CPUs, rounded up.
pub(crate) async fn quarters_are_not_rounded_up_to_ones(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "flavor": "mint" });
    stand.icecream("example", spec).await?;
    for (name, total) in [("one", "250m"), ("two", "500m"), ("three", "750m"), ("four", "1")] {
        stand.pod(name, of_flavor("mint"), "north", 1).await?;
        stand
            .wait_for::<Icecream>("example", |icecream| {
                let status = icecream.status.as_ref();
                status.is_some_and(|status| status.total_allocated_cpu == total)
            })
            .await?;
    }
    // All containers of a pod count, and one that asks for nothing adds nothing.
    let container =
        |name: &str, requests| json!({ "name": name, "image": "x", "resources": { "requests": requests } });
    let many = json!([
        container("a", json!({ "cpu": "0.1", "memory": "1G" })),
        container("b", json!({ "cpu": "1m" })),
        container("c", json!({})),
    ]);
    let mut big = pod("big", of_flavor("mint"), "north");
    big.spec = serde_json::from_value(json!({ "containers": many }))?;
    stand.create(big).await?;
    let status = stand
        .tells("example", &["big", "four", "one", "three", "two"])
        .await?;
    assert_eq!(status.total_allocated_cpu, "1101m");
    assert_eq!(
        status.total_allocated_memory,
        (1_000_000_000 + 4 * 64 * 1024 * 1024).to_string()
    );
    stand.close().await
}

/// Upstream counts both.
pub(crate) async fn init_containers_and_finished_pods_are_not_counted(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "flavor": "mint" });
    stand.icecream("example", spec).await?;
    let mut prepared = pod("prepared", of_flavor("mint"), "north");
    let init = json!([{ "name": "churn", "image": "x", "resources": { "requests": { "cpu": "4", "memory": "4Gi" } } }]);
    if let Some(spec) = &mut prepared.spec {
        spec.init_containers = serde_json::from_value(init)?;
    }
    stand.create(prepared).await?;
    for name in ["done", "dropped"] {
        stand.pod(name, of_flavor("mint"), "south", 2).await?;
    }
    let status = stand.tells("example", &["done", "dropped", "prepared"]).await?;
    assert_eq!(
        (
            status.total_allocated_cpu.as_str(),
            status.total_allocated_memory.as_str()
        ),
        ("750m", "192Mi")
    );
    for (name, phase) in [("done", "Succeeded"), ("dropped", "Failed")] {
        stand
            .patch_status::<Pod>(name, json!({ "status": { "phase": phase } }))
            .await?;
    }
    let status = stand.tells("example", &["prepared"]).await?;
    assert_eq!(status.node_names, ["north"]);
    assert_eq!(
        (
            status.total_allocated_cpu.as_str(),
            status.total_allocated_memory.as_str()
        ),
        ("250m", "64Mi")
    );
    stand.close().await
}

/// Upstream writes them as they come.
pub(crate) async fn in_whatever_order_pods_come_nothing_is_written_twice(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "flavor": "mint" });
    stand.icecream("example", spec).await?;
    for (name, node) in [("c", "east"), ("a", "west"), ("b", "south")] {
        stand.pod(name, of_flavor("mint"), node, 1).await?;
    }
    let status = stand.tells("example", &["a", "b", "c"]).await?;
    assert_eq!(status.node_names, ["east", "south", "west"]);
    stand.settle().await;
    // The same again, from processes that read them anew.
    for _ in 0..3 {
        stand.reopen().await?;
        assert!(stand.looks().0 > 0, "it was looked at");
        assert_eq!(stand.writes(), [""; 0]);
    }
    stand.close().await
}

/// Upstream looks for pods whose flavor is the empty text.
pub(crate) async fn an_empty_flavor_is_none(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "flavor": "" });
    stand.icecream("example", spec).await?;
    stand.pod("flavorless", of_flavor(""), "south", 1).await?;
    stand.pod("own", of_icecream("example"), "north", 2).await?;
    stand.tells("example", &["own"]).await?;
    stand.settle().await;
    let status = stand.tells("example", &["own"]).await?;
    assert_eq!(status.node_names, ["north"]);
    let deployment = stand
        .get::<windlass::k8s_openapi::api::apps::v1::Deployment>("scoops")
        .await?;
    let labels = &json!(deployment.spec)["template"]["metadata"]["labels"];
    assert_eq!(*labels, json!({ "icecream": "example" }));
    stand.close().await
}

pub(crate) async fn what_the_status_does_not_tell_wakes_nobody(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::open(&case).await?;
    let spec = json!({ "deploymentName": "scoops", "flavor": "mint" });
    stand.icecream("example", spec).await?;
    stand.pod("one", of_flavor("mint"), "north", 1).await?;
    stand.tells("example", &["one"]).await?;
    stand.settle().await;
    let before = stand.looks();
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    stand
        .patch_status::<Pod>(
            "one",
            json!({ "status": { "conditions": ready, "message": "hello" } }),
        )
        .await?;
    stand
        .patch::<Pod>("one", json!({ "metadata": { "annotations": { "a": "b" } } }))
        .await?;
    stand.pod("stranger", ("app", "web"), "north", 9).await?;
    stand.settle().await;
    assert_eq!(stand.looks(), before);
    stand.close().await
}

pub(crate) async fn pods_of_other_namespaces_and_flavors_are_not_its_own(case: Case) -> anyhow::Result<()> {
    let mut stand = Stand::closed(&case).await?;
    let elsewhere = case.anew().await?;
    stand.start_with(
        stand
            .manager()
            .namespaces([case.namespace(), elsewhere.namespace()]),
    );
    let spec = json!({ "deploymentName": "scoops", "flavor": "mint" });
    stand.icecream("example", spec).await?;
    // Two of one flavor tell the same.
    let spec = json!({ "deploymentName": "other", "flavor": "mint" });
    stand.icecream("sibling", spec).await?;
    let stranger = pod("stranger", of_flavor("mint"), "north");
    let pods = elsewhere.api::<Pod>();
    pods.create(&PostParams::default(), &stranger).await?;
    stand.pod("plum", of_flavor("plum"), "north", 2).await?;
    stand.pod("one", of_flavor("mint"), "north", 1).await?;
    for icecream in ["example", "sibling"] {
        stand.tells(icecream, &["one"]).await?;
    }
    stand.settle().await;
    for icecream in ["example", "sibling"] {
        stand.tells(icecream, &["one"]).await?;
    }
    stand.close().await
}
