//! CRD installation, evictions and HTTP endpoints.

use anyhow::Context as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use windlass::{
    k8s_openapi::{
        api::{
            core::v1::{Pod, ServiceAccount},
            policy::v1::PodDisruptionBudget,
        },
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::{
        Api,
        api::{DeleteParams, Patch, PatchParams, PostParams},
        core::{ApiResource, DynamicObject, GroupVersionKind},
    },
    prelude::*,
    runtime::{CrdInstaller, EvictOutcome, InstallError, Writer},
};
use windlass_suite::{Context as Case, RunningManager, STEP_TIMEOUT};

use crate::runtime::{
    fixture::Fixture,
    garden::{Garden, gardener},
};

/// Returns a CRD with these versions; the last one is the storage version.
pub(crate) fn definition(group: &str, versions: &[&str]) -> CustomResourceDefinition {
    let all = versions.iter().map(|version| {
        json!({
            "name": version, "served": true, "storage": Some(version) == versions.last(),
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
        })
    });
    let all: Vec<_> = all.collect();
    let definition = json!({
        "metadata": { "name": format!("sheds.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced", "versions": all,
            "names": { "plural": "sheds", "singular": "shed", "kind": "Shed", "listKind": "ShedList" },
        },
    });
    from_value(definition).expect("a definition")
}

pub(crate) async fn crd_install_is_served_and_keeps_stored_versions(case: Case) -> anyhow::Result<()> {
    let group = format!("{}.windlass.dev", case.namespace());
    let writer = Writer::new(case.client(), "suite");
    let definitions = Api::<CustomResourceDefinition>::all(case.client());
    let install = async |versions: &[&str]| {
        CrdInstaller::new([definition(&group, versions)])
            .apply()
            .run(&writer)
            .await
    };
    install(&["v1"]).await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Shed"));
    let sheds = Api::<DynamicObject>::namespaced_with(case.client(), case.namespace(), &kind);
    sheds
        .create(&PostParams::default(), &DynamicObject::new("tools", &kind))
        .await?;

    install(&["v1", "v2"]).await?;
    let newer = definitions.get(&format!("sheds.{group}")).await?;
    let refused = install(&["v1"]).await;
    assert!(
        matches!(&refused, Err(InstallError::DropsStoredVersions { stored, .. }) if stored == &["v2"]),
        "{refused:?}"
    );
    let still = definitions.get(&format!("sheds.{group}")).await?;
    assert_eq!(still.spec, newer.spec, "nothing was written");
    definitions
        .delete(&format!("sheds.{group}"), &DeleteParams::default())
        .await?;
    Ok(())
}

pub(crate) async fn eviction_reports_the_blocking_pdb(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    // A pod needs it, and no controller creates it here.
    let account: ServiceAccount = from_value(json!({ "metadata": { "name": "default" } }))?;
    match env.create(account).await {
        Err(windlass::kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created?),
    }
    let pod: Pod = from_value(json!({
        "metadata": { "name": "web", "labels": { "app": "web" } },
        "spec": { "nodeName": "nowhere", "containers": [{ "name": "web", "image": "web" }] },
    }))?;
    env.create(pod).await?;
    let running =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    let pod = case
        .api::<Pod>()
        .patch_status("web", &PatchParams::default(), &Patch::Merge(running))
        .await?;
    let budget: PodDisruptionBudget = from_value(json!({
        "metadata": { "name": "always" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    }))?;
    env.create(budget).await?;
    let observed = json!({ "status": {
        "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
    } });
    let budgets = case.api::<PodDisruptionBudget>();
    budgets
        .patch_status("always", &PatchParams::default(), &Patch::Merge(&observed))
        .await?;
    // The client that programs use: kube's own would retry the eviction for minutes.
    let mut settings = Options::default();
    settings.connection.kubeconfig = Some(case.cluster().kubeconfig()?);
    let writer = Writer::new(settings.client().await?, "suite");
    let options = DeleteParams::default().grace_period(0);
    let blocked = writer.evict(&pod, &options).await?;
    assert!(
        matches!(&blocked, EvictOutcome::Blocked { budget: Some(budget), message, .. }
            if budget == "always" && message.contains("needs 1 healthy pods and has 1 currently")),
        "{blocked:?}"
    );
    budgets.delete("always", &DeleteParams::default()).await?;
    assert_eq!(writer.evict(&pod, &options).await?, EvictOutcome::Accepted);
    Ok(())
}

pub(crate) async fn health_readiness_and_metrics_are_served(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    // Free a moment ago; if the port is taken in between, the manager fails.
    let free = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.to_string();
    let manager = env
        .manager()
        .controller(gardener())
        .listen(&free)
        .check_ready("gate", || async { Ok(()) });
    let running = RunningManager::start(manager);
    env.garden("kitchen", &["herbs"]).await?;
    env.wait_for::<Garden>("kitchen", |garden| garden.status.is_some())
        .await?;
    env.wait_until_processed().await?;
    assert_eq!(get(&free, "/healthz").await?, (200, "ok".to_owned()));
    let (code, ready) = get(&free, "/readyz?verbose").await?;
    assert_eq!(code, 200, "{ready}");
    for check in ["[+]controllers ok", "[+]gate ok"] {
        assert!(ready.contains(check), "{check} in {ready}");
    }
    let (_, metrics) = get(&free, "/metrics").await?;
    let done = metrics.lines().find_map(|line| {
        line.strip_prefix(r#"controller_runtime_reconcile_total{controller="gardener",result="success"} "#)
    });
    let done: u64 = done.context("a counter")?.parse()?;
    assert!(done >= 3, "{done}");
    let (code, status) = get(&free, "/debug/controllers").await?;
    assert!(code == 200 && status.contains("gardener"), "{code} {status}");
    // The last reconcile was triggered by a change of a garden or of one of its children.
    let (_, table) = get(&free, "/debug/controllers?format=text").await?;
    let last = table.lines().skip_while(|line| !line.contains("TRIGGER")).nth(1);
    let last = last.with_context(|| table.clone())?;
    let is_trigger = |kind| last.contains(&format!("  {kind} {}/", case.namespace()));
    assert!(is_trigger("Garden") || is_trigger("ConfigMap"), "{status}");
    let (code, index) = get(&free, "/debug").await?;
    assert!(code == 200 && index.contains("/debug/caches"), "{code} {index}");
    let (code, caches) = get(&free, "/debug/caches").await?;
    assert!(code == 200 && caches.contains("Garden"), "{code} {caches}");
    running.stop().await?;
    assert!(TcpStream::connect(&free).await.is_err(), "the server is stopped");
    Ok(())
}

/// Sends a GET request like kubelet or Prometheus; returns the status code and body.
async fn get(address: &str, path: &str) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    timeout(STEP_TIMEOUT, stream.read_to_string(&mut answer)).await??;
    let (head, body) = answer.split_once("\r\n\r\n").context("a head and a body")?;
    let code = head.split(' ').nth(1).context("a code")?.parse()?;
    Ok((code, body.to_owned()))
}
