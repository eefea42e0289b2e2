//! On a cluster that is alive: Deployments get pods, pods get nodes, and who goes takes what it owns along.

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
use windlass_icecream::{FLAVOR, Icecream, IcecreamSpec, controller};
use windlass_suite::{Context as Case, Running, Shipped, World, install, suite};

suite!("icecream-alive", paused, nodes(3);
    its_deployment_becomes_available_and_the_status_tells_where_it_runs,
    a_flavor_rolls_out_and_its_pods_are_counted,
    who_goes_takes_its_deployment_and_pods_along,
);

/// (b), (c).
async fn its_deployment_becomes_available_and_the_status_tells_where_it_runs(
    case: Case,
) -> anyhow::Result<()> {
    let stand = Stand::open(&case).await?;
    stand.sell(1, None).await?;
    stand.runs(1, "250m", "64Mi").await?;
    for (replicas, cpu, memory) in [(3, "750m", "192Mi"), (4, "1", "256Mi"), (2, "500m", "128Mi")] {
        let size = json!({ "spec": { "replicas": replicas } });
        stand.world.patch::<Icecream>("example", size).await?;
        stand.runs(replicas, cpu, memory).await?;
    }
    stand.close().await
}

/// With the flavor all pods are new ones; a pod of somebody else that has it counts as well.
async fn a_flavor_rolls_out_and_its_pods_are_counted(case: Case) -> anyhow::Result<()> {
    let stand = Stand::open(&case).await?;
    stand.sell(2, None).await?;
    let plain = stand.runs(2, "500m", "128Mi").await?;
    let mint = json!({ "spec": { "flavor": "mint" } });
    stand.world.patch::<Icecream>("example", mint).await?;
    stand
        .world
        .wait_for::<Deployment>("scoops", |deployment| {
            json!(deployment.spec)["template"]["metadata"]["labels"][FLAVOR] == "mint"
        })
        .await?;
    let minty = stand.runs(2, "500m", "128Mi").await?;
    assert!(
        minty.iter().all(|pod| !plain.contains(pod)),
        "{plain:?} {minty:?}"
    );
    let guest: Pod = serde_json::from_value(json!({
        "metadata": { "name": "guest", "labels": { FLAVOR: "mint" } },
        "spec": { "containers": [{ "name": "c", "image": "c", "resources": { "requests": { "cpu": "1" } } }] },
    }))?;
    stand.world.create(guest).await?;
    stand.tells(3, "1500m", "128Mi").await?;
    stand.close().await
}

async fn who_goes_takes_its_deployment_and_pods_along(case: Case) -> anyhow::Result<()> {
    let stand = Stand::open(&case).await?;
    stand.sell(2, Some("mint")).await?;
    let pods = stand.runs(2, "500m", "128Mi").await?;
    stand.world.delete::<Icecream>("example").await?;
    // A real garbage collector looks for new kinds only twice a minute: then it may take longer than a wait does.
    if stand.world.wait_gone::<Deployment>("scoops").await.is_err() {
        stand.world.wait_gone::<Deployment>("scoops").await?;
    }
    for pod in pods {
        stand.world.wait_gone::<Pod>(&pod).await?;
    }
    stand.close().await
}

struct Stand {
    world: World,
    running: Vec<Running>,
}

impl Stand {
    async fn open(case: &Case) -> anyhow::Result<Self> {
        install(case, [Icecream::crd()]).await?;
        let client = Shipped::read(include_str!("../rbac.yaml"))?.client(case).await?;
        let world = World::of(case, &client);
        let mut running = vec![Running::start(world.manager().controller(controller()))];
        if case.cluster().nodes().is_none() {
            let nobody_else = Manager::new(case.client()).namespace(case.namespace());
            running.push(Running::start(nobody_else.controller(kubelet())));
        }
        Ok(Self { world, running })
    }

    async fn close(self) -> anyhow::Result<()> {
        for running in self.running {
            running.stop().await?;
        }
        Ok(())
    }

    async fn sell(&self, replicas: i32, flavor: Option<&str>) -> anyhow::Result<()> {
        let spec = IcecreamSpec {
            deployment_name: "scoops".to_owned(),
            replicas: Some(replicas),
            flavor: flavor.map(str::to_owned),
        };
        self.world.create(Icecream::new("example", spec)).await?;
        Ok(())
    }

    /// Waits until the Deployment is available as it is asked for, and the status tells of its pods.
    async fn runs(&self, replicas: usize, cpu: &str, memory: &str) -> anyhow::Result<Vec<String>> {
        let is_out = |deployment: &Deployment| {
            let (meta, status) = (&deployment.metadata, json!(deployment.status));
            let counts =
                ["replicas", "updatedReplicas", "availableReplicas"].map(|count| status[count].as_u64());
            json!(deployment.spec)["replicas"] == replicas
                && status["observedGeneration"].as_i64() == meta.generation
                && counts == [Some(replicas as u64); 3]
        };
        self.world.wait_for::<Deployment>("scoops", is_out).await?;
        self.tells(replicas, cpu, memory).await
    }

    /// Waits until the status tells of so many pods, and compares it with what the server says of them.
    async fn tells(&self, count: usize, cpu: &str, memory: &str) -> anyhow::Result<Vec<String>> {
        self.world.wire().quiet(Duration::from_millis(500)).await;
        let icecream = self
            .world
            .wait_for::<Icecream>("example", |icecream| {
                let status = icecream.status.as_ref();
                status.is_some_and(|status| status.pod_names.len() == count && status.pod_ips.len() == count)
            })
            .await?;
        let status = icecream.status.clone().unwrap_or_default();
        let pods = self.world.case().api::<Pod>();
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

/// What a scheduler and a kubelet do with pods, for a control plane that has neither.
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
