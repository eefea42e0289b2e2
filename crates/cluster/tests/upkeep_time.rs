//! What keeps an embedded cluster tidy takes its time, and none when there is nothing to do: on a paused clock.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::{
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

/// Long enough for anything that has no duration of its own.
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
async fn events_go_an_hour_after_they_were_last_written() -> Result<()> {
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

/// How many requests anybody made, except for watches, which are renewed every few minutes.
fn requests(recorder: &Recorder) -> u64 {
    let uses = recorder.uses();
    let asked = uses
        .all
        .iter()
        .filter(|one| !one.access.to_string().starts_with("watch "));
    asked.map(|one| one.count).sum()
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
async fn a_cluster_that_has_nothing_to_do_asks_nothing() -> Result<()> {
    let recorder = Recorder::new();
    let cluster = Cluster::embedded()
        .controllers()
        .recorder(recorder.clone())
        .start()
        .await?;
    namespace_with_account(&cluster.client(), "a").await?;
    let before = requests(&recorder);
    ensure!(before > 0, "the recorder sees the controllers");
    sleep(mins(25)).await;
    assert_eq!(requests(&recorder), before);
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stuck_namespace_is_looked_at_now_and_then_and_goes_when_it_can() -> Result<()> {
    let recorder = Recorder::new();
    let cluster = Cluster::embedded()
        .controllers()
        .recorder(recorder.clone())
        .start()
        .await?;
    let namespaces = namespace_with_account(&cluster.client(), "stuck").await?;
    let config_maps = Api::<ConfigMap>::namespaced(cluster.client(), "stuck");
    let metadata = json!({"name": "c", "finalizers": ["example.com/stuck"]});
    create(&config_maps, json!({"metadata": metadata})).await?;
    namespaces.delete("stuck", &DeleteParams::default()).await?;
    sleep(mins(1)).await;
    let looks = || {
        let uses = recorder.uses();
        let sweeps = uses.all.iter().filter(|one| {
            let access = one.access.to_string();
            access.starts_with("deletecollection configmaps")
        });
        sweeps.map(|one| one.count).sum::<u64>()
    };
    let first = looks();
    ensure!(
        (1..=15).contains(&first),
        "it was looked at {first} times in a minute"
    );
    sleep(mins(10)).await;
    // Every eight and a half seconds, as by a real controller.
    let more = looks() - first;
    ensure!(
        (60..=80).contains(&more),
        "it was looked at {more} times in ten minutes"
    );
    patch(&config_maps, "c", &json!({"metadata": {"finalizers": null}})).await?;
    sleep(Duration::from_secs(9)).await;
    ensure!(namespaces.get_opt("stuck").await?.is_none());
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_emptied_at_once_or_as_slowly_as_in_reality() -> Result<()> {
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
async fn an_evicted_pod_that_stays_counts_again_after_two_minutes() -> Result<()> {
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
