//! The clock: timestamps of the server, the runtime and a controller agree, also when a test pauses it.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use windlass::{
    k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp},
    prelude::*,
};
use windlass_cluster::Backend;
use windlass_suite::{Context as Case, RunningManager, TestEnvironment, install_crds, suite};

use crate::runtime::garden::{Garden, GardenSpec, GardenStatus};

suite!("clock", paused;
    object_is_deleted_when_its_time_to_live_has_passed,
    all_timestamps_follow_one_clock,
);

const FINALIZER: &str = "suite.windlass.dev/hold";

/// An hour on a paused clock; the least that is exact in real time.
fn time_to_live(case: &Case) -> Duration {
    if case.cluster().backend() == Backend::Embedded {
        Duration::from_hours(1)
    } else {
        Duration::from_secs(3)
    }
}

async fn start(case: &Case) -> anyhow::Result<TestEnvironment> {
    install_crds(case, [Garden::crd()]).await?;
    Ok(TestEnvironment::new(case))
}

fn kitchen() -> Garden {
    let beds = vec!["herbs".to_owned()];
    Garden::new("kitchen", GardenSpec { beds })
}

pub(crate) async fn object_is_deleted_when_its_time_to_live_has_passed(case: Case) -> anyhow::Result<()> {
    let env = start(&case).await?;
    let ttl = time_to_live(&case);
    let gardens =
        Controller::<Garden>::new("ttl").reconcile(move |request: Request, ctx: Context| async move {
            let Some(garden) = ctx.lister::<Garden>()?.get(&request.key) else {
                return Ok(Action::done());
            };
            let created = garden.creation_timestamp().ok_or("it was created")?;
            let age = Duration::try_from(ctx.now().duration_since(created.0)).unwrap_or_default();
            match ttl.saturating_sub(age) {
                Duration::ZERO => {
                    ctx.writer().delete(&*garden).await?;
                    Ok(Action::done())
                }
                left => Ok(Action::requeue_after(left)),
            }
        });
    let running = RunningManager::start(env.manager().controller(gardens));
    let start = Instant::now();
    env.create(kitchen()).await?;
    sleep(ttl.saturating_sub(Duration::from_secs(2))).await;
    env.get::<Garden>("kitchen").await?;
    env.wait_until_deleted::<Garden>("kitchen").await?;
    if case.cluster().backend() == Backend::Embedded {
        assert_eq!(start.elapsed(), ttl);
    }
    running.stop().await
}

/// The server's timestamps, a condition, an event and `Context::now`, an hour after the creation.
pub(crate) async fn all_timestamps_follow_one_clock(case: Case) -> anyhow::Result<()> {
    let env = start(&case).await?;
    let garden = env.create(kitchen()).await?;
    let created = garden.creation_timestamp().map(|time| time.0);
    let created = created.ok_or_else(|| anyhow::anyhow!("it was created"))?;
    let ttl = time_to_live(&case);
    sleep(ttl).await;
    let desired = |garden: Arc<Garden>, ctx: Context| async move {
        let message = ctx.now().to_string();
        ctx.recorder().normal(&*garden, "Watered", message.as_str());
        let watered = ConditionUpdate::true_("Watered", "Today").message(message);
        let planted = json!({ "planted": 0 });
        Ok(Desired::new().status(planted).condition(watered))
    };
    let gardens = Controller::<Garden>::new("gardener").declare(desired);
    let gardens = gardens.cleanup(FINALIZER, |_, _| async { Err("held".into()) });
    let running = RunningManager::start(env.manager().controller(gardens));
    let watered = |garden: &Garden| status(garden).is_some_and(|status| status.conditions.is_true("Watered"));
    let garden = env.wait_for("kitchen", watered).await?;
    let event = env
        .wait_for_event(&*garden, |event: &Event| {
            event.reason.as_deref() == Some("Watered")
        })
        .await?;
    env.delete::<Garden>("kitchen").await?;
    let condition = status(&garden).and_then(|status| status.conditions.of_type("Watered").cloned());
    let condition = condition.ok_or_else(|| anyhow::anyhow!("it has the condition"))?;
    // The cache has no managed fields.
    let garden = env.get::<Garden>("kitchen").await?;
    let managed = garden
        .managed_fields()
        .iter()
        .filter_map(|entry| entry.time.clone());
    let times = [
        ("condition", Some(condition.last_transition_time)),
        ("message", condition.message.parse().ok().map(Time)),
        ("event", event.first_timestamp),
        ("created event", event.metadata.creation_timestamp),
        ("deletion", garden.metadata.deletion_timestamp.clone()),
        ("last managed fields", managed.max()),
    ];
    let is_paused = case.cluster().backend() == Backend::Embedded;
    for (what, time) in times {
        let time: Timestamp = time
            .map(|time| time.0)
            .ok_or_else(|| anyhow::anyhow!("no time: {what}"))?;
        let age = Duration::try_from(time.duration_since(created))?;
        if is_paused {
            assert_eq!(Duration::from_secs(age.as_secs()), ttl, "{what}");
        } else {
            assert!(age + Duration::from_secs(1) >= ttl, "{what}: {age:?}");
        }
    }
    running.kill().await;
    env.patch::<Garden>("kitchen", json!({ "metadata": { "finalizers": null } }))
        .await?;
    Ok(())
}

fn status(garden: &Garden) -> Option<&GardenStatus> {
    garden.status.as_ref()
}
