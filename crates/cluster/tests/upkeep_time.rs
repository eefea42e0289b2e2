//! Timing of the maintenance controllers of an embedded cluster, on a paused clock.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Event, Namespace, Pod, ServiceAccount},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use windlass_cluster::Cluster;
use windlass_rights::Recorder;

/// Long enough for everything without an intentional delay.
const MOMENT: Duration = Duration::from_secs(1);

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let object = serde_json::from_value(object)?;
    Ok(api.create(&PostParams::default(), &object).await?)
}

async fn patch<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    Ok(api.patch(name, &params, &patch).await?)
}

fn mins(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

#[tokio::test(start_paused = true)]
async fn events_expire_an_hour_after_their_last_write() -> Result<()> {
    let cluster = Cluster::embedded().controllers().start().await?;
    let events = Api::<Event>::namespaced(cluster.client(), "default");
    for name in ["once", "again"] {
        let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
        create(
            &events,
            json!({"metadata": {"name": name}, "involvedObject": about}),
        )
        .await?;
    }
    sleep(mins(59)).await;
    patch(&events, "again", &json!({"count": 2})).await?;
    ensure!(events.get_opt("once").await?.is_some());
    sleep(mins(2)).await;
    ensure!(events.get_opt("once").await?.is_none());
    ensure!(events.get_opt("again").await?.is_some());
    sleep(mins(57)).await;
    ensure!(events.get_opt("again").await?.is_some());
    sleep(mins(2)).await;
    ensure!(events.get_opt("again").await?.is_none());
    cluster.stop().await;
    Ok(())
}

/// Returns the number of all requests but watches, which are renewed every few minutes.
fn requests(recorder: &Recorder) -> u64 {
    let uses = recorder.records();
    let asked = uses
        .records
        .iter()
        .filter(|one| !one.access.to_string().starts_with("watch "));
    asked.map(|one| one.count).sum()
}

async fn recorded_cluster() -> Result<(Cluster, Recorder)> {
    let recorder = Recorder::new();
    let cluster = Cluster::embedded().controllers().recorder(recorder.clone());
    Ok((cluster.start().await?, recorder))
}

async fn namespace_with_account(client: &Client, name: &str) -> Result<Api<Namespace>> {
    let namespaces = Api::<Namespace>::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": name}})).await?;
    sleep(MOMENT).await;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), name);
    ensure!(accounts.get_opt("default").await?.is_some());
    Ok(namespaces)
}

#[tokio::test(start_paused = true)]
async fn idle_cluster_sends_no_requests() -> Result<()> {
    let (cluster, recorder) = recorded_cluster().await?;
    namespace_with_account(&cluster.client(), "a").await?;
    let before = requests(&recorder);
    ensure!(before > 0, "the recorder sees the controllers");
    sleep(mins(25)).await;
    assert_eq!(requests(&recorder), before);
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stuck_namespace_is_retried_until_it_can_be_deleted() -> Result<()> {
    let (cluster, recorder) = recorded_cluster().await?;
    let namespaces = namespace_with_account(&cluster.client(), "stuck").await?;
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client(), "stuck");
    let metadata = json!({"name": "c", "finalizers": ["example.com/stuck"]});
    create(&config_maps, json!({"metadata": metadata})).await?;
    namespaces.delete("stuck", &DeleteParams::default()).await?;
    sleep(mins(1)).await;
    let looks = || {
        let uses = recorder.records();
        let sweeps = uses.records.iter().filter(|one| {
            let access = one.access.to_string();
            access.starts_with("deletecollection configmaps")
        });
        sweeps.map(|one| one.count).sum::<u64>()
    };
    let first = looks();
    ensure!((1..=15).contains(&first), "{first} attempts in a minute");
    sleep(mins(10)).await;
    // Every eight and a half seconds, as in Kubernetes.
    let more = looks() - first;
    ensure!((60..=80).contains(&more), "{more} attempts in ten minutes");
    patch(&config_maps, "c", &json!({"metadata": {"finalizers": null}})).await?;
    sleep(Duration::from_secs(9)).await;
    ensure!(namespaces.get_opt("stuck").await?.is_none());
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pod_past_its_grace_period_is_reported_in_namespace_conditions() -> Result<()> {
    let cluster = Cluster::embedded().controllers().speed(1.0).start().await?;
    let namespaces = namespace_with_account(&cluster.client(), "a").await?;
    let pods = Api::<Pod>::namespaced(cluster.client(), "a");
    // A pod on a nonexistent node is never terminated by a kubelet.
    let spec = json!({
        "nodeName": "nowhere", "terminationGracePeriodSeconds": 7, "containers": [{"name": "c", "image": "i"}],
    });
    create(&pods, json!({"metadata": {"name": "p"}, "spec": spec})).await?;
    namespaces.delete("a", &DeleteParams::default()).await?;
    let failure = async || {
        let status = namespaces.get("a").await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default().into_iter();
        let mut failures = conditions.filter(|one| one.type_ == "NamespaceDeletionContentFailure");
        let failure = failures.next().context("the namespace was processed")?;
        anyhow::Ok((failure.status, failure.message.unwrap_or_default()))
    };
    // The first attempt is after five seconds, the next one four seconds later.
    sleep(Duration::from_secs(8)).await;
    assert_eq!(failure().await?.0, "False");
    sleep(Duration::from_secs(2)).await;
    let (status, message) = failure().await?;
    assert_eq!(status, "True");
    assert_eq!(
        message,
        "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: a for gvr: /v1, \
         Resource=pods"
    );
    pods.delete("p", &DeleteParams::default().grace_period(0)).await?;
    sleep(MOMENT).await;
    ensure!(namespaces.get_opt("a").await?.is_none(), "its last pod is gone");
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn namespace_is_deleted_as_soon_as_its_pods_terminated() -> Result<()> {
    let cluster = Cluster::embedded().nodes(1).start().await?;
    let namespaces = namespace_with_account(&cluster.client(), "a").await?;
    let labels = json!({"app": "web"});
    let deployments = Api::<Deployment>::namespaced(cluster.client(), "a");
    let spec = json!({
        "replicas": 3, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    });
    create(&deployments, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    sleep(MOMENT).await;
    let ready = deployments
        .get("web")
        .await?
        .status
        .unwrap_or_default()
        .ready_replicas;
    assert_eq!(ready, Some(3));
    namespaces.delete("a", &DeleteParams::default()).await?;
    sleep(MOMENT).await;
    ensure!(namespaces.get_opt("a").await?.is_none(), "its content is deleted");
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn namespace_deletion_follows_the_cluster_speed() -> Result<()> {
    for (speed, least, most) in [(f64::INFINITY, 0, 1), (1.0, 5, 6), (5.0, 1, 2)] {
        let cluster = Cluster::embedded().controllers().speed(speed).start().await?;
        let namespaces = namespace_with_account(&cluster.client(), "a").await?;
        let began = Instant::now();
        namespaces.delete("a", &DeleteParams::default()).await?;
        while namespaces.get_opt("a").await?.is_some() {
            sleep(Duration::from_millis(10)).await;
        }
        let took = began.elapsed();
        let expected = Duration::from_secs(least)..Duration::from_secs(most);
        ensure!(expected.contains(&took), "{took:?} at speed {speed}");
        cluster.stop().await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn evicted_pod_that_stays_counts_again_after_two_minutes() -> Result<()> {
    let cluster = Cluster::embedded().controllers().start().await?;
    sleep(MOMENT).await;
    let pods = Api::<Pod>::namespaced(cluster.client(), "default");
    let pod = json!({
        "metadata": {"name": "p", "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    create(&pods, pod).await?;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status("p", &PatchParams::default(), &Patch::Merge(ready))
        .await?;
    let budgets = Api::<PodDisruptionBudget>::namespaced(cluster.client(), "default");
    let spec = json!({"minAvailable": 0, "selector": {"matchLabels": {"app": "a"}}});
    create(&budgets, json!({"metadata": {"name": "b"}, "spec": spec})).await?;
    sleep(MOMENT).await;
    let seen = async || {
        let status = budgets.get("b").await?.status.context("it has a status")?;
        let evicted = status.disrupted_pods.unwrap_or_default().len();
        anyhow::Ok((status.current_healthy, status.disruptions_allowed, evicted))
    };
    assert_eq!(seen().await?, (Some(1), Some(1), 0));
    let now: Option<Time> = pods.get("p").await?.metadata.creation_timestamp;
    let taken = json!({"status": {"disruptedPods": {"p": now}}});
    budgets
        .patch_status("b", &PatchParams::default(), &Patch::Merge(taken))
        .await?;
    sleep(Duration::from_secs(110)).await;
    assert_eq!(seen().await?, (Some(0), Some(0), 1));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(seen().await?, (Some(1), Some(1), 0));
    let events = Api::<Event>::namespaced(cluster.client(), "default");
    let events = events.list(&kube::api::ListParams::default()).await?.items;
    let late = events
        .iter()
        .find(|event| event.reason.as_deref() == Some("NotDeleted"));
    let late = late.and_then(|event| event.message.as_deref());
    assert_eq!(
        late,
        Some("Pod was expected by PDB default/default to be deleted but it wasn't")
    );
    cluster.stop().await;
    Ok(())
}
