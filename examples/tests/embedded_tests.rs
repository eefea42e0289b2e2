//! How to test a controller on an embedded cluster: on the real clock, and on a paused one.
//!
//! The controller under test deletes ConfigMaps some time after their creation, as their annotation says. An embedded
//! cluster starts in milliseconds inside the test, needs no binary and no socket, and ends with the test, so every test has
//! its own. For suites that also run on a real kube-apiserver, see `tests/autoservice`.
//!
//! ```sh
//! cargo test -p windlass-examples --test integration embedded_tests
//! ```

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use windlass::{
    cache::{Cache, WatchScope},
    k8s_openapi::api::core::v1::ConfigMap,
    kube::api::{Api, PostParams},
    prelude::*,
    runtime::OutcomeCounters,
};
use windlass_cluster::Cluster;

/// Seconds from the creation of an object to its deletion.
const TTL_ANNOTATION: &str = "example.com/ttl-seconds";

/// The controller under test. A test can pause tokio's clock; waits, `ctx.now()` and the timestamps of objects follow it.
fn controller() -> Controller<ConfigMap, impl Reconciler> {
    Controller::<ConfigMap>::new("ttl").reconcile(expire)
}

async fn expire(request: Request, ctx: Context) -> Result<Action, Error> {
    let Some(config) = ctx.lister::<ConfigMap>()?.get(&request.key) else {
        return Ok(Action::done());
    };
    let (Some(ttl), Some(created)) = (
        config.annotations().get(TTL_ANNOTATION),
        config.creation_timestamp(),
    ) else {
        return Ok(Action::done());
    };
    let ttl = ttl.parse::<u32>().map(i64::from);
    let ttl =
        ttl.map_err(|error| Error::terminal(format!("invalid annotation {TTL_ANNOTATION}: {error}")))?;
    let left = ttl - (ctx.now().as_second() - created.0.as_second());
    if left > 0 {
        return Ok(Action::requeue_after(Duration::from_secs(left.unsigned_abs())));
    }
    ctx.writer().delete(&*config).await?;
    Ok(Action::done())
}

/// A cluster with the running controller.
struct Fixture {
    cluster: Cluster,
    outcomes: Arc<OutcomeCounters>,
}

impl Fixture {
    async fn start() -> Self {
        let cluster = Cluster::embedded().start().await.expect("it starts");
        let controller = controller();
        let outcomes = controller.outcomes();
        let manager = Manager::new(cluster.client()).controller(controller);
        // Ends with the runtime of the test.
        tokio::spawn(manager.run_until(std::future::pending()));
        Self { cluster, outcomes }
    }

    async fn create(&self, name: &str, ttl: Option<&str>) {
        let mut config = ConfigMap::default();
        config.metadata.name = Some(name.to_owned());
        config.metadata.annotations = ttl.map(|ttl| [(TTL_ANNOTATION.to_owned(), ttl.to_owned())].into());
        let configs = Api::default_namespaced(self.cluster.client());
        configs
            .create(&PostParams::default(), &config)
            .await
            .expect("it is valid");
    }

    async fn exists(&self, name: &str) -> bool {
        let configs = Api::<ConfigMap>::default_namespaced(self.cluster.client());
        configs.get_opt(name).await.expect("it is readable").is_some()
    }

    /// Waits for watch events instead of polling, so a paused clock advances only to the next event.
    async fn wait_until_deleted(&self, name: &str) {
        let mut changes = Cache::<ConfigMap>::start(self.cluster.client(), &WatchScope::all()).subscribe();
        let deleted = async {
            while let Some(change) = changes.next().await {
                if change.key().name() == name && matches!(change, Change::Deleted { .. }) {
                    return;
                }
            }
        };
        timeout(Duration::from_hours(2), deleted)
            .await
            .expect("it is deleted in time");
    }
}

/// On a paused clock, time passes when every task waits: an hour takes milliseconds, and is exactly an hour.
#[tokio::test(start_paused = true)]
async fn object_is_deleted_when_its_ttl_has_passed() {
    let fixture = Fixture::start().await;
    fixture.create("short", Some("60")).await;
    fixture.create("long", Some("3600")).await;
    let created = Instant::now();
    fixture.wait_until_deleted("short").await;
    assert!(fixture.exists("long").await);
    fixture.wait_until_deleted("long").await;
    assert_eq!(created.elapsed(), Duration::from_hours(1));
}

#[tokio::test(start_paused = true)]
async fn object_without_annotation_is_kept() {
    let fixture = Fixture::start().await;
    fixture.create("kept", None).await;
    sleep(Duration::from_hours(24)).await;
    assert!(fixture.exists("kept").await);
}

#[tokio::test(start_paused = true)]
async fn invalid_annotation_is_not_retried() {
    let fixture = Fixture::start().await;
    fixture.create("invalid", Some("soon")).await;
    sleep(Duration::from_hours(24)).await;
    assert!(fixture.exists("invalid").await);
    assert_eq!((fixture.outcomes.terminal(), fixture.outcomes.failed()), (1, 0));
}

/// The real clock, for code that waits for other processes or the network.
#[tokio::test]
async fn object_with_zero_ttl_is_deleted_at_once() {
    let fixture = Fixture::start().await;
    fixture.create("gone", Some("0")).await;
    while fixture.exists("gone").await {
        sleep(Duration::from_millis(10)).await;
    }
}
