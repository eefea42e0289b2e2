//! On a cluster with controllers and nodes: Deployments get pods, pods get nodes, and garbage is collected.

use std::{
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use serde_json::json;
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod},
    kube::{
        Api,
        api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_icecream::{FLAVOR_LABEL, Icecream, IcecreamSpec, controller};
use windlass_suite::{Context as Case, ManifestRoles, RunningManager, TestEnvironment, install_crds, suite};

suite!("icecream-alive", paused, nodes(3);
    status_follows_the_available_deployment,
    flavor_change_rolls_out_and_its_pods_are_counted,
    deletion_removes_deployment_and_pods,
);

async fn status_follows_the_available_deployment(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::start(&case).await?;
    fixture.create_icecream(1, None).await?;
    fixture.wait_until_available(1, "250m", "64Mi").await?;
    for (replicas, cpu, memory) in [(3, "750m", "192Mi"), (4, "1", "256Mi"), (2, "500m", "128Mi")] {
        let size = json!({ "spec": { "replicas": replicas } });
        fixture.env.patch::<Icecream>("example", size).await?;
        fixture.wait_until_available(replicas, cpu, memory).await?;
    }
    fixture.stop().await
}

/// A new flavor replaces all pods; other pods with the label are counted too.
async fn flavor_change_rolls_out_and_its_pods_are_counted(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::start(&case).await?;
    fixture.create_icecream(2, None).await?;
    let plain = fixture.wait_until_available(2, "500m", "128Mi").await?;
    let mint = json!({ "spec": { "flavor": "mint" } });
    fixture.env.patch::<Icecream>("example", mint).await?;
    fixture
        .env
        .wait_for::<Deployment>("scoops", |deployment| {
            json!(deployment.spec)["template"]["metadata"]["labels"][FLAVOR_LABEL] == "mint"
        })
        .await?;
    let minty = fixture.wait_until_available(2, "500m", "128Mi").await?;
    assert!(
        minty.iter().all(|pod| !plain.contains(pod)),
        "{plain:?} {minty:?}"
    );
    let guest: Pod = serde_json::from_value(json!({
        "metadata": { "name": "guest", "labels": { FLAVOR_LABEL: "mint" } },
        "spec": { "containers": [{ "name": "c", "image": "c", "resources": { "requests": { "cpu": "1" } } }] },
    }))?;
    fixture.env.create(guest).await?;
    fixture.wait_for_status(3, "1500m", "128Mi").await?;
    fixture.stop().await
}

async fn deletion_removes_deployment_and_pods(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::start(&case).await?;
    fixture.create_icecream(2, Some("mint")).await?;
    let pods = fixture.wait_until_available(2, "500m", "128Mi").await?;
    fixture.env.delete::<Icecream>("example").await?;
    // A real garbage collector resyncs its kinds every 30 s, which may take longer than one wait.
    if fixture
        .env
        .wait_until_deleted::<Deployment>("scoops")
        .await
        .is_err()
    {
        fixture.env.wait_until_deleted::<Deployment>("scoops").await?;
    }
    for pod in pods {
        fixture.env.wait_until_deleted::<Pod>(&pod).await?;
    }
    fixture.stop().await
}

struct Fixture {
    env: TestEnvironment,
    running: Vec<RunningManager>,
}

impl Fixture {
    async fn start(case: &Case) -> anyhow::Result<Self> {
        install_crds(case, [Icecream::crd()]).await?;
        let client = ManifestRoles::parse(include_str!("../rbac.yaml"))?
            .client(case)
            .await?;
        let env = TestEnvironment::with_client(case, &client);
        let mut running = vec![RunningManager::start(env.manager().controller(controller()))];
        if case.cluster().nodes().is_none() {
            let manager = Manager::new(case.client()).namespace(case.namespace());
            running.push(RunningManager::start(manager.controller(kubelet())));
        }
        Ok(Self { env, running })
    }

    async fn stop(self) -> anyhow::Result<()> {
        for running in self.running {
            running.stop().await?;
        }
        Ok(())
    }

    async fn create_icecream(&self, replicas: i32, flavor: Option<&str>) -> anyhow::Result<()> {
        let spec = IcecreamSpec {
            deployment_name: "scoops".to_owned(),
            replicas: Some(replicas),
            flavor: flavor.map(str::to_owned),
        };
        self.env.create(Icecream::new("example", spec)).await?;
        Ok(())
    }

    /// Waits until the Deployment is rolled out, and the status reports its pods.
    async fn wait_until_available(
        &self,
        replicas: usize,
        cpu: &str,
        memory: &str,
    ) -> anyhow::Result<Vec<String>> {
        let is_out = |deployment: &Deployment| {
            let (meta, status) = (&deployment.metadata, json!(deployment.status));
            let counts =
                ["replicas", "updatedReplicas", "availableReplicas"].map(|count| status[count].as_u64());
            json!(deployment.spec)["replicas"] == replicas
                && status["observedGeneration"].as_i64() == meta.generation
                && counts == [Some(replicas as u64); 3]
        };
        self.env.wait_for::<Deployment>("scoops", is_out).await?;
        self.wait_for_status(replicas, cpu, memory).await
    }

    /// Waits until the status reports this many pods, and compares it with the server's pods.
    async fn wait_for_status(&self, count: usize, cpu: &str, memory: &str) -> anyhow::Result<Vec<String>> {
        self.env.proxy().wait_until_idle(Duration::from_millis(500)).await;
        let icecream = self
            .env
            .wait_for::<Icecream>("example", |icecream| {
                let status = icecream.status.as_ref();
                status.is_some_and(|status| status.pod_names.len() == count && status.pod_ips.len() == count)
            })
            .await?;
        let status = icecream.status.clone().unwrap_or_default();
        let pods = self.env.case().api::<Pod>();
        let pods = pods.list(&ListParams::default()).await?.items;
        let fields = |field: &str| {
            let mut values: Vec<_> = pods
                .iter()
                .filter_map(|pod| Some(json!(pod).pointer(field)?.as_str()?.to_owned()))
                .collect();
            values.sort();
            values.dedup();
            values
        };
        assert_eq!(status.pod_names, fields("/metadata/name"));
        assert_eq!(status.node_names, fields("/spec/nodeName"));
        assert_eq!(status.pod_ips, fields("/status/podIP"));
        assert_eq!(
            (
                status.total_allocated_cpu.as_str(),
                status.total_allocated_memory.as_str()
            ),
            (cpu, memory)
        );
        Ok(status.pod_names)
    }
}

/// Schedules and runs pods, for a control plane without scheduler and kubelet.
fn kubelet() -> Controller<Pod, impl Reconciler> {
    static ADDRESS: AtomicU8 = AtomicU8::new(1);
    Controller::<Pod>::new("kubelet").reconcile(async |request: Request, ctx: Context| {
        let Some(pod) = ctx.lister::<Pod>()?.get(&request.key) else {
            return Ok(Action::done());
        };
        let name = pod.name_any();
        let pods = Api::<Pod>::namespaced(ctx.client().clone(), &pod.namespace().unwrap_or_default());
        let (spec, status) = (json!(pod.spec), json!(pod.status));
        if pod.metadata.deletion_timestamp.is_some() {
            let now = DeleteParams::default().grace_period(0);
            ctx.writer().delete_with(&*pod, &now).await?;
        } else if spec["nodeName"].is_null() {
            let target = json!({ "kind": "Node", "name": format!("node-{}", name.len() % 3) });
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name }, "target": target,
            });
            let _: serde_json::Value = pods
                .create_subresource("binding", &name, &PostParams::default(), &binding)
                .await?;
        } else if status["podIP"].is_null() {
            let address = format!("10.1.0.{}", ADDRESS.fetch_add(1, Ordering::Relaxed));
            let status = json!({
                "phase": "Running",
                "podIP": address,
                "podIPs": [{ "ip": address }],
                "conditions": [{ "type": "Ready", "status": "True" }],
            });
            let patch = Patch::Merge(json!({ "status": status }));
            pods.patch_status(&name, &PatchParams::default(), &patch).await?;
        }
        Ok(Action::done())
    })
}
