//! Leader election between two managers.

use std::{sync::Mutex, time::Duration};

use anyhow::Context as _;
use windlass::{
    k8s_openapi::api::coordination::v1::Lease,
    prelude::*,
    runtime::{ElectionConfig, Epoch},
};
use windlass_suite::{Context as Case, RunningManager, STEP_TIMEOUT};

use crate::runtime::{
    fixture::{Fixture, lock},
    garden::Garden,
};

/// Which manager reconciled which object, in which term.
type Log = Arc<Mutex<Vec<(&'static str, String, Option<Epoch>)>>>;

/// Creates a manager that looks at the lease often, so that it takes over soon after a release. The lease itself is long:
/// a busy machine does not lose it.
fn manager(env: &Fixture, name: &'static str, log: &Log) -> Manager {
    let election = ElectionConfig::new("gardeners")
        .identity(name)
        .retry_period(Duration::from_millis(100));
    let log = Arc::clone(log);
    let walker = Controller::<Garden>::new("walker").reconcile(move |request: Request, ctx: Context| {
        lock(&log).push((name, request.key.name().to_owned(), ctx.epoch()));
        async { Ok(Action::done()) }
    });
    env.manager().controller(walker).elect(election)
}

pub(crate) async fn standby_takes_over_when_the_leader_stops(case: Case) -> anyhow::Result<()> {
    let (env, log) = (Fixture::new(&case).await?, Log::default());
    let worked = async |name: &str, garden: &str| {
        let looking = async {
            loop {
                let found = lock(&log)
                    .iter()
                    .find(|(who, what, _)| *who == name && what == garden)
                    .cloned();
                match found {
                    Some((_, _, epoch)) => return epoch,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let epoch = tokio::time::timeout(STEP_TIMEOUT, looking).await;
        epoch.with_context(|| format!("{name} did not reconcile {garden}: {:?}", lock(&log)))
    };
    env.garden("first", &[]).await?;
    let one = RunningManager::start(manager(&env, "one", &log));
    let before = worked("one", "first").await?;
    let other = RunningManager::start(manager(&env, "other", &log));
    let lease = env.get::<Lease>("gardeners").await?.spec.context("a lease")?;
    let holder = lease.holder_identity.context("a holder")?;
    assert!(holder.starts_with("one"), "{holder}");

    one.stop().await?;
    let after = worked("other", "first").await?;
    env.garden("second", &[]).await?;
    worked("other", "second").await?;
    assert!(before < after && before.is_some(), "{before:?} {after:?}");
    let terms: Vec<_> = lock(&log).iter().map(|(_, _, epoch)| *epoch).collect();
    assert!(terms.is_sorted(), "one term after the other: {terms:?}");

    other.stop().await?;
    let lease = env.get::<Lease>("gardeners").await?.spec.context("a lease")?;
    assert_eq!(
        lease.holder_identity.unwrap_or_default(),
        "",
        "the lease is released"
    );
    Ok(())
}
