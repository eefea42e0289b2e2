//! The disruption controller.

use anyhow::Result;
use k8s_openapi::api::{
    core::v1::{Event, Pod, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use windlass_suite::Context;

use crate::upkeep::{
    kinds::Foos,
    recorded_watch::{RecordedWatch, create, eventually, owner, resource},
};

/// A namespace with pods and budgets.
struct TestNamespace {
    client: Client,
    namespace: String,
}

impl TestNamespace {
    async fn of(ctx: &Context) -> Result<Self> {
        Self::new(ctx.client(), ctx.namespace()).await
    }

    async fn new(client: Client, namespace: &str) -> Result<Self> {
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
        eventually("the pods' account", async || {
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        let namespace = namespace.to_owned();
        Ok(Self { client, namespace })
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a budget, and watches it.
    async fn create_budget(&self, name: &str, spec: Value) -> Result<RecordedWatch> {
        let api = Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &resource("policy", "v1", "PodDisruptionBudget"),
        );
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        let watch = RecordedWatch::start_with(&api, &only, format_budget).await?;
        create(
            &api,
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": name}, "spec": spec}),
        )
        .await?;
        Ok(watch)
    }

    async fn create_pod(&self, name: &str, controller: Option<&DynamicObject>) -> Result<()> {
        let mut owners = Vec::from_iter(controller.map(owner));
        for owner in &mut owners {
            owner["controller"] = true.into();
        }
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "a"}, "ownerReferences": owners},
            "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
        }))?;
        self.api::<Pod>().create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    async fn set_ready(&self, pod: &str, status: &str) -> Result<()> {
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}});
        self.api::<Pod>()
            .patch_status(pod, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(())
    }

    async fn event(&self, reason: &str) -> Result<Event> {
        let events = self.api::<Event>();
        eventually("the event", async || {
            let events = events.list(&ListParams::default()).await?.items;
            Ok(events
                .into_iter()
                .find(|event| event.reason.as_deref() == Some(reason)))
        })
        .await
    }
}

/// Formats `observed generation/generation: healthy of desired of expected, allowed; condition [evicted pods]`.
fn format_budget(budget: &DynamicObject) -> String {
    let status = &budget.data["status"];
    let number = |key: &str| status[key].as_i64().unwrap_or(-1);
    let conditions: Vec<_> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|condition| {
            let text = |key: &str| condition[key].as_str().unwrap_or("absent");
            assert_eq!(condition["observedGeneration"], status["observedGeneration"]);
            format!(
                "{}={}/{}/{}",
                text("type"),
                text("status"),
                text("reason"),
                text("message")
            )
        })
        .collect();
    let evicted = status["disruptedPods"].as_object();
    let evicted: Vec<_> = evicted
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    format!(
        "{}/{}: {} of {} of {}, {} allowed; {} [{}]",
        number("observedGeneration"),
        budget.metadata.generation.unwrap_or(0),
        number("currentHealthy"),
        number("desiredHealthy"),
        number("expectedPods"),
        number("disruptionsAllowed"),
        conditions.join(","),
        evicted.join(",")
    )
}

const NO: &str = "DisruptionAllowed=False/InsufficientPods/";
const YES: &str = "DisruptionAllowed=True/SufficientPods/";

fn selector() -> Value {
    json!({"matchLabels": {"app": "a"}})
}

pub(crate) async fn min_available_number_counts_existing_pods(ctx: Context) -> Result<()> {
    let place = TestNamespace::of(&ctx).await?;
    let mut budget = place
        .create_budget("b", json!({"minAvailable": 1, "selector": selector()}))
        .await?;
    let lines = budget
        .until(&format!("MODIFIED 1/1: 0 of 1 of 0, 0 allowed; {NO} []"))
        .await?;
    assert_eq!(lines[0], "ADDED -1/1: 0 of 0 of 0, 0 allowed;  []");
    let event = place.event("NoPods").await?;
    assert_eq!(event.message.as_deref(), Some("No matching pods found"));
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    let source = event.source.unwrap_or_default().component;
    assert_eq!(source.as_deref(), Some("controllermanager"));

    place.create_pod("a-1", None).await?;
    budget
        .until(&format!("MODIFIED 1/1: 0 of 1 of 1, 0 allowed; {NO} []"))
        .await?;
    place.create_pod("a-2", None).await?;
    place.set_ready("a-1", "True").await?;
    budget
        .until(&format!("MODIFIED 1/1: 1 of 1 of 2, 0 allowed; {NO} []"))
        .await?;
    place.set_ready("a-2", "True").await?;
    let before = budget
        .until(&format!("MODIFIED 1/1: 2 of 1 of 2, 1 allowed; {YES} []"))
        .await?
        .len();
    let budgets = place.api::<PodDisruptionBudget>();
    let more = json!({"spec": {"minAvailable": 2}});
    budgets
        .patch("b", &PatchParams::default(), &Patch::Merge(more))
        .await?;
    let lines = budget
        .until(&format!("MODIFIED 2/2: 2 of 2 of 2, 0 allowed; {NO} []"))
        .await?;
    assert_eq!(
        lines[before],
        format!("MODIFIED 1/2: 2 of 1 of 2, 1 allowed; {YES} []")
    );
    let author = budgets.get("b").await?;
    let author = author
        .managed_fields()
        .iter()
        .find(|entry| entry.subresource.as_deref() == Some("status"))
        .and_then(|entry| entry.manager.as_deref());
    assert_eq!(author, Some("kube-controller-manager"));
    Ok(())
}

pub(crate) async fn percentage_of_unmanaged_pods_is_zero(ctx: Context) -> Result<()> {
    let place = TestNamespace::of(&ctx).await?;
    place.create_pod("a-1", None).await?;
    place.set_ready("a-1", "True").await?;
    let mut budget = place
        .create_budget("b", json!({"minAvailable": "50%", "selector": selector()}))
        .await?;
    budget
        .until(&format!("MODIFIED 1/1: 1 of 0 of 0, 0 allowed; {NO} []"))
        .await?;
    let event = place.event("UnmanagedPods").await?;
    let message = event.message.unwrap_or_default();
    assert_eq!(
        message,
        "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string{app: a,},\
         MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged. As a result, the status of the PDB cannot \
         be calculated correctly, which may result in undefined behavior. To account for these pods please set \
         \".spec.minAvailable\" field of the PDB to an integer value."
    );
    Ok(())
}

pub(crate) async fn expected_pods_follow_the_scale_subresource(ctx: Context) -> Result<()> {
    let place = TestNamespace::of(&ctx).await?;
    let foos = Foos::install(&ctx).await?;
    let foo = foos.create("f", &[]).await?;
    for name in ["a-1", "a-2", "a-3"] {
        place.create_pod(name, Some(&foo)).await?;
        place.set_ready(name, "True").await?;
    }
    let mut budget = place
        .create_budget("b", json!({"maxUnavailable": "40%", "selector": selector()}))
        .await?;
    // A real controller discovers new kinds every 30 seconds, and syncs again when a pod changes.
    let budgets = place.api::<PodDisruptionBudget>();
    let mut tries = 0;
    eventually("the count", async || {
        tries += 1;
        let again = json!({"metadata": {"annotations": {"tries": tries.to_string()}}});
        let pods = place.api::<Pod>();
        pods.patch("a-1", &PatchParams::default(), &Patch::Merge(again))
            .await?;
        let status = budgets.get("b").await?.status.unwrap_or_default();
        Ok((status.expected_pods == Some(4)).then_some(()))
    })
    .await?;
    // Of four expected pods, 40% may be unavailable: two, rounded up.
    budget
        .until(&format!("MODIFIED 1/1: 3 of 2 of 4, 1 allowed; {YES} []"))
        .await?;
    place.set_ready("a-3", "False").await?;
    budget
        .until(&format!("MODIFIED 1/1: 2 of 2 of 4, 0 allowed; {NO} []"))
        .await?;
    Ok(())
}

pub(crate) async fn controller_without_scale_subresource_fails_the_sync(ctx: Context) -> Result<()> {
    let place = TestNamespace::of(&ctx).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let secrets = Api::namespaced_with(ctx.client(), ctx.namespace(), &resource("", "v1", "Secret"));
    let mut secret = create(&secrets, secret).await?;
    secret.types = Some(kube::api::TypeMeta {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
    });
    place.create_pod("a-1", Some(&secret)).await?;
    let mut budget = place
        .create_budget("b", json!({"maxUnavailable": 1, "selector": selector()}))
        .await?;
    let why = "secrets does not implement the scale subresource";
    let failed = format!("0 of 0 of 0, 0 allowed; DisruptionAllowed=False/SyncFailed/{why} []");
    // A sync before the controller's cache has the pod succeeds, and observes the generation.
    let lines = [-1, 1].map(|observed| format!("MODIFIED {observed}/1: {failed}"));
    budget.until_one_of(&lines.each_ref().map(String::as_str)).await?;
    let event = place.event("CalculateExpectedPodCountFailed").await?;
    assert_eq!(
        event.message,
        Some(format!("Failed to calculate the number of expected pods: {why}"))
    );
    Ok(())
}

/// Returns a client that does not retry "too many requests".
async fn client_without_retries(ctx: &Context) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(ctx.cluster().kubeconfig()?)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

pub(crate) async fn evictions_reduce_the_allowed_disruptions(ctx: Context) -> Result<()> {
    let place = TestNamespace::of(&ctx).await?;
    let pods = Api::<Pod>::namespaced(client_without_retries(&ctx).await?, ctx.namespace());
    for name in ["a-1", "a-2"] {
        place.create_pod(name, None).await?;
        place.set_ready(name, "True").await?;
    }
    let mut budget = place
        .create_budget("b", json!({"minAvailable": 1, "selector": selector()}))
        .await?;
    let before = budget
        .until(&format!("MODIFIED 1/1: 2 of 1 of 2, 1 allowed; {YES} []"))
        .await?
        .len();
    pods.evict("a-1", &EvictParams::default()).await?;
    let lines = budget
        .until(&format!("MODIFIED 1/1: 1 of 1 of 1, 0 allowed; {NO} []"))
        .await?;
    assert_eq!(
        lines[before],
        format!("MODIFIED 1/1: 2 of 1 of 2, 0 allowed; {NO} [a-1]")
    );
    let refused = pods.evict("a-2", &EvictParams::default()).await;
    let Err(kube::Error::Api(status)) = refused else {
        anyhow::bail!("it must be refused: {refused:?}");
    };
    assert_eq!(status.code, 429);
    // An unready pod may be evicted as long as enough others are healthy.
    place.create_pod("a-3", None).await?;
    place.set_ready("a-3", "False").await?;
    budget
        .until(&format!("MODIFIED 1/1: 1 of 1 of 2, 0 allowed; {NO} []"))
        .await?;
    pods.evict("a-3", &EvictParams::default()).await?;
    budget
        .until(&format!("MODIFIED 1/1: 1 of 1 of 1, 0 allowed; {NO} []"))
        .await?;
    // Otherwise it may not, unless the budget allows it.
    place.set_ready("a-2", "False").await?;
    budget
        .until(&format!("MODIFIED 1/1: 0 of 1 of 1, 0 allowed; {NO} []"))
        .await?;
    let refused = pods.evict("a-2", &EvictParams::default()).await;
    let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
    anyhow::ensure!(refused.contains("violate"), "{refused}");
    let generous = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    let budgets = place.api::<PodDisruptionBudget>();
    budgets
        .patch("b", &PatchParams::default(), &Patch::Merge(generous))
        .await?;
    pods.evict("a-2", &EvictParams::default()).await?;
    budget
        .until(&format!("MODIFIED 2/2: 0 of 1 of 0, 0 allowed; {NO} []"))
        .await?;
    Ok(())
}

pub(crate) async fn replica_sets_count_with_the_scale_of_their_deployment(ctx: Context) -> Result<()> {
    let place = TestNamespace::of(&ctx).await?;
    let mut budget = place
        .create_budget("b", json!({"maxUnavailable": 1, "selector": selector()}))
        .await?;
    let run = async |kind: &str, replicas: i32| {
        let api = Api::namespaced_with(
            place.client.clone(),
            &place.namespace,
            &resource("apps", "v1", kind),
        );
        let labels = json!({"app": "a", "of": kind});
        let object = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
            }},
        });
        create(&api, object).await?;
        anyhow::Ok(api)
    };
    let deployments = run("Deployment", 4).await?;
    budget
        .until(&format!("MODIFIED 1/1: 0 of 3 of 4, 0 allowed; {NO} []"))
        .await?;
    run("ReplicaSet", 2).await?;
    budget
        .until(&format!("MODIFIED 1/1: 0 of 5 of 6, 0 allowed; {NO} []"))
        .await?;
    // The Deployment's scale counts, also while its ReplicaSet and pods lag behind.
    let fewer = json!({"spec": {"replicas": 1}});
    deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(fewer))
        .await?;
    budget
        .until(&format!("MODIFIED 1/1: 0 of 2 of 3, 0 allowed; {NO} []"))
        .await?;
    let pods = place.api::<Pod>();
    let left = eventually("the end of the others", async || {
        let pods = pods.list(&ListParams::default()).await?.items;
        Ok((pods.len() == 3).then_some(pods))
    })
    .await?;
    for pod in left {
        place.set_ready(&pod.name_any(), "True").await?;
    }
    budget
        .until(&format!("MODIFIED 1/1: 3 of 2 of 3, 1 allowed; {YES} []"))
        .await?;
    Ok(())
}
