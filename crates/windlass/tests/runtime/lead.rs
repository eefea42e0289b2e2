//! Two processes, one of which works.

use std::{sync::Mutex, time::Duration};

use anyhow::Context as _;
use windlass::{
    k8s_openapi::api::coordination::v1::Lease,
    prelude::*,
    runtime::{ElectionConfig, Epoch},
};
use windlass_suite::{Context as Case, DEADLINE, Running};

use crate::{
    garden::Garden,
    world::{World, lock},
};

/// Who reconciled what, in which term.
type Log = Arc<Mutex<Vec<(&'static str, String, Option<Epoch>)>>>;

/// A lease of less than a second, which on a busy machine may be lost now and then: whoever loses it stands by, and
/// nobody works without it.
fn manager(world: &World, name: &'static str, log: &Log) -> Manager {
    let millis = Duration::from_millis;
    let election = ElectionConfig::new("gardeners")
        .identity(name)
        .lease_duration(millis(900))
        .renew_deadline(millis(700))
        .retry_period(millis(100));
    let log = Arc::clone(log);
    let walker = Controller::<Garden>::new("walker").reconcile(move |request: Request, ctx: Context| {
        lock(&log).push((name, request.key.name().to_owned(), ctx.epoch()));
        async { Ok(Action::done()) }
    });
    world.manager().controller(walker).elect(election)
}

pub(crate) async fn one_of_two_works_and_the_other_takes_over_at_once(case: Case) -> anyhow::Result<()> {
    let (world, log) = (World::new(&case).await?, Log::default());
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
        let epoch = tokio::time::timeout(DEADLINE, looking).await;
        epoch.with_context(|| format!("{name} did not work on {garden}: {:?}", lock(&log)))
    };
    world.garden("first", &[]).await?;
    let one = Running::start(manager(&world, "one", &log));
    let before = worked("one", "first").await?;
    let other = Running::start(manager(&world, "other", &log));
    let lease = world.get::<Lease>("gardeners").await?.spec.context("a lease")?;
    let holder = lease.holder_identity.context("a holder")?;
    assert!(holder.starts_with("one"), "{holder}");

    one.stop().await?;
    let after = worked("other", "first").await?;
    world.garden("second", &[]).await?;
    worked("other", "second").await?;
    assert!(before < after && before.is_some(), "{before:?} {after:?}");
    let terms: Vec<_> = lock(&log).iter().map(|(_, _, epoch)| *epoch).collect();
    assert!(terms.is_sorted(), "one term after the other: {terms:?}");

    other.stop().await?;
    let lease = world.get::<Lease>("gardeners").await?.spec.context("a lease")?;
    assert_eq!(lease.holder_identity.unwrap_or_default(), "", "it is given back");
    Ok(())
}
