//! A crash at any request of a fan-out and of a removal, and the successor.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use windlass::{
    k8s_openapi::api::core::v1::Secret,
    kube::{Client, ResourceExt, api::ListParams},
    prelude::*,
    serde_json::Value,
};
use windlass_cluster::Backend;
use windlass_secretsync::{
    SecretSync,
    api::{SOURCE_UID_LABEL, SYNCED_BY_ANNOTATION},
};
use windlass_suite::{
    Context as Case, CrashScenario, RecordedRequest, RunningManager, TestEnvironment as Inner,
    crash_at_every_request, crash_at_requests,
};

use crate::secretsync::test_cluster::{
    HOME, TestCluster, describe_request, is_neither_event_nor_lease, namespace_of, secret, shipped,
};

/// From both front ends, into several namespaces, one of which has a Secret of its own with that name.
struct Spread {
    namespaces: usize,
    /// How often each copy was written, over both processes.
    writes: Mutex<BTreeMap<String, usize>>,
}

/// The same removed: the annotated source and the SecretSync are deleted while no process runs.
struct Withdrawn(Spread);

impl Spread {
    fn to(namespaces: usize) -> Self {
        Self {
            namespaces,
            writes: Mutex::default(),
        }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.namespaces).map(|number| format!("ns-{number:03}"))
    }

    /// All desired copies, with this value; `None`: removed.
    fn copies(&self, value: Option<&'static str>) -> Vec<(String, &'static str, Option<&'static str>)> {
        let annotated = self.names().skip(1).map(|name| (name, "annotated", value));
        let selected = self.names().map(|name| (name, "selected", value));
        annotated.chain(selected).collect()
    }

    /// The initial state.
    async fn create_initial_state(&self, env: &TestCluster) -> anyhow::Result<()> {
        self.writes.lock().clear();
        for namespace in self.names() {
            env.consenting(&[&namespace]).await?;
        }
        env.in_namespace("ns-000")
            .create(secret("annotated", "own"))
            .await?;
        env.source("annotated", "1").await?;
        env.in_namespace(HOME).create(secret("selected", "1")).await?;
        env.sync(HOME, "shared", json!({ "names": ["selected"] })).await?;
        env.in_namespace(HOME)
            .wait_for::<SecretSync>("shared", |_| true)
            .await?;
        Ok(())
    }

    async fn spread(&self, env: &TestCluster) -> anyhow::Result<()> {
        env.wait_for_copies(&self.copies(Some("1"))).await?;
        let all = u32::try_from(self.namespaces)?;
        env.wait_for_status(HOME, "shared", |status| status.synced == all)
            .await?;
        Ok(())
    }

    /// All Secrets: their location, data, and whether they have our label and annotations.
    async fn state(&self, inner: &Inner) -> anyhow::Result<Value> {
        let all = windlass::kube::Api::<Secret>::all(inner.case().client());
        let all = all.list(&ListParams::default()).await?;
        let state = all.items.iter().map(|secret| {
            let path = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
            let marks = (
                secret.labels().contains_key(SOURCE_UID_LABEL),
                secret.annotations().contains_key(SYNCED_BY_ANNOTATION),
            );
            Ok((path, json!({ "data": secret.data, "marks": marks })))
        });
        Ok(Value::Object(state.collect::<anyhow::Result<_>>()?))
    }

    /// At most one write more than necessary, over both processes.
    fn at_most_twice(&self, write: &RecordedRequest) -> bool {
        let mut writes = self.writes.lock();
        let times = writes.entry(describe_request(write)).or_default();
        *times += 1;
        *times <= 2
    }

    /// What every process may write.
    fn is_status_or_event(write: &RecordedRequest) -> bool {
        // The second shows the status of the annotated source.
        let statuses = ["shared", "secret.annotated"];
        !is_neither_event_nor_lease(write) || statuses.iter().any(|name| write.is_about("secretsyncs", name))
    }
}

/// The process of a scenario.
async fn process(inner: &Inner) -> anyhow::Result<Manager> {
    TestCluster::of(inner.clone(), inner.case().client())
        .new_manager()
        .await
}

/// An environment that creates the initial state.
async fn setup_cluster(inner: &Inner) -> anyhow::Result<TestCluster> {
    let client = inner.case().client();
    let env = TestCluster::of(Inner::with_client(inner.case(), &client), client);
    windlass_suite::install_crds(inner.case(), [SecretSync::crd()]).await?;
    env.namespace(HOME, json!({})).await?;
    Ok(env)
}

impl CrashScenario for Spread {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        shipped().client(case).await
    }

    async fn prepare(&self, inner: &Inner) -> anyhow::Result<()> {
        self.create_initial_state(&setup_cluster(inner).await?).await
    }

    async fn manager(&self, inner: &Inner) -> anyhow::Result<Manager> {
        process(inner).await
    }

    async fn wait_until_done(&self, inner: &Inner) -> anyhow::Result<()> {
        let env = TestCluster::of(inner.clone(), inner.case().client());
        self.spread(&env).await?;
        env.settle().await;
        Ok(())
    }

    async fn end_state(&self, inner: &Inner) -> anyhow::Result<Value> {
        Self::state(self, inner).await
    }

    fn may_write(&self, write: &RecordedRequest) -> bool {
        let copy = write.resource() == "secrets"
            && ["create", "update"].contains(&&*write.access.verb)
            && namespace_of(write).starts_with("ns-")
            && ["annotated", "selected"].contains(&write.name());
        Self::is_status_or_event(write) || copy && self.at_most_twice(write)
    }
}

impl CrashScenario for Withdrawn {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        shipped().client(case).await
    }

    async fn prepare(&self, inner: &Inner) -> anyhow::Result<()> {
        let env = setup_cluster(inner).await?;
        self.0.create_initial_state(&env).await?;
        let running = RunningManager::start(env.new_manager().await?);
        self.0.spread(&env).await?;
        env.settle().await;
        running.stop().await?;
        let home = env.in_namespace(HOME);
        home.delete::<Secret>("annotated").await?;
        home.delete::<SecretSync>("shared").await?;
        home.wait_until_deleted::<Secret>("annotated").await?;
        let going = |sync: &SecretSync| sync.metadata.deletion_timestamp.is_some();
        home.wait_for::<SecretSync>("shared", going).await?;
        Ok(())
    }

    async fn manager(&self, inner: &Inner) -> anyhow::Result<Manager> {
        process(inner).await
    }

    async fn wait_until_done(&self, inner: &Inner) -> anyhow::Result<()> {
        let env = TestCluster::of(inner.clone(), inner.case().client());
        env.wait_for_copies(&self.0.copies(None)).await?;
        env.in_namespace(HOME)
            .wait_until_deleted::<SecretSync>("shared")
            .await?;
        env.settle().await;
        Ok(())
    }

    async fn end_state(&self, inner: &Inner) -> anyhow::Result<Value> {
        self.0.state(inner).await
    }

    fn may_write(&self, write: &RecordedRequest) -> bool {
        let delete = write.resource() == "secrets"
            && write.access.verb == "delete"
            && namespace_of(write).starts_with("ns-")
            && describe_request(write) != "delete ns-000/annotated"
            // Exactly the version that was read.
            && write.body["preconditions"]["uid"].is_string();
        Spread::is_status_or_event(write) || delete && self.0.at_most_twice(write)
    }
}

async fn run_scenario(case: &Case, scenario: &impl CrashScenario) -> anyhow::Result<()> {
    // Where each run starts a control plane, fewer runs are enough.
    let report = match case.cluster().backend() {
        Backend::Embedded => crash_at_every_request(case, scenario).await?,
        _ => crash_at_requests(case, scenario, |n| n + n + 1).await?,
    };
    assert!(report.requests >= 15, "{report:?}");
    if case.cluster().backend() == Backend::Embedded {
        assert_eq!(
            report.crashes,
            2 * report.requests,
            "at every request, before and after"
        );
    }
    Ok(())
}

pub(crate) async fn fan_out_recovers_from_a_crash_at_every_request(case: Case) -> anyhow::Result<()> {
    run_scenario(&case, &Spread::to(5)).await
}

pub(crate) async fn removal_recovers_from_a_crash_at_every_request(case: Case) -> anyhow::Result<()> {
    run_scenario(&case, &Withdrawn(Spread::to(5))).await
}

/// With many namespaces.
pub(crate) async fn fan_out_to_200_namespaces_recovers_from_a_crash(case: Case) -> anyhow::Result<()> {
    sample(&case, &Spread::to(many(&case))).await
}

/// With many namespaces.
pub(crate) async fn removal_of_200_copies_recovers_from_a_crash(case: Case) -> anyhow::Result<()> {
    sample(&case, &Withdrawn(Spread::to(many(&case)))).await
}

/// Fewer where the setup takes longer than the test.
fn many(case: &Case) -> usize {
    match case.cluster().backend() {
        Backend::Embedded => 200,
        _ => 60,
    }
}

/// A sample of crashes; where time is real, at the beginning and in the middle.
async fn sample(case: &Case, scenario: &impl CrashScenario) -> anyhow::Result<()> {
    let (least, report) = match case.cluster().backend() {
        // At most 1,000 requests, of which many are events.
        Backend::Embedded => (
            16,
            crash_at_requests(case, scenario, |n| (n + n + 1).min(999)).await?,
        ),
        _ => (
            4,
            crash_at_requests(case, scenario, |n| if n == 1 { 70 } else { 900 }).await?,
        ),
    };
    assert!(
        report.requests > 2 * many(case) && report.crashes >= least,
        "{report:?}"
    );
    Ok(())
}
