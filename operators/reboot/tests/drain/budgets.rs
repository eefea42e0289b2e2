//! PodDisruptionBudgets that refuse evictions.

use std::time::Duration;

use windlass::runtime::{Clock, Writer};
use windlass_reboot::drain::{BlockerReason, DrainMode, Drainer};
use windlass_suite::Context as Case;

use crate::drain::fixture::Fixture;

const FIVE: Duration = Duration::from_secs(5);

pub(crate) async fn exhausted_budget_is_reported_and_retried_every_five_seconds(
    case: Case,
) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let web = fixture.pod("web").await?;
    fixture.budget("at-zero", "web", Some(0)).await?;

    let progress = fixture.passes(11).await?;
    assert_eq!(progress.remaining, 1);
    let [blocker] = &progress.blockers[..] else {
        panic!("{progress:?}")
    };
    assert_eq!(
        (blocker.pod.as_str(), blocker.budget.as_deref(), blocker.reason),
        ("web", Some("at-zero"), BlockerReason::DisruptionBudget)
    );
    assert!(
        blocker
            .message
            .contains("at-zero needs 1 healthy pods and has 1 currently"),
        "{blocker}"
    );
    let asked = fixture.eviction_times("web");
    assert!((2..=3).contains(&asked.len()), "{asked:?}");
    assert!(
        asked.windows(2).all(|pair| pair[1] - pair[0] >= FIVE),
        "{asked:?}"
    );
    assert!(progress.next_pass <= FIVE && fixture.is_running(&web).await?);
    Ok(())
}

pub(crate) async fn unprocessed_budget_is_retried_after_the_servers_delay(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    fixture.pod("web").await?;
    // It is not processed yet.
    fixture.budget("fresh", "web", None).await?;
    let progress = fixture.pass().await?;
    assert_eq!(progress.blockers[0].budget.as_deref(), Some("fresh"));
    assert!(
        progress.blockers[0].message.contains("still being processed"),
        "{progress:?}"
    );
    let ten = Duration::from_secs(10);
    assert!(
        progress.next_pass > FIVE && progress.next_pass <= ten,
        "{progress:?}"
    );
    // Five seconds have passed, ten have not; nothing is forgotten meanwhile.
    let progress = fixture.passes(7).await?;
    assert_eq!(
        (fixture.eviction_times("web").len(), progress.blockers.len()),
        (1, 1)
    );
    let progress = fixture.passes(4).await?;
    let asked = fixture.eviction_times("web");
    assert_eq!((asked.len(), progress.remaining), (2, 1));
    assert!(asked[1] - asked[0] >= ten, "{asked:?}");
    Ok(())
}

pub(crate) async fn multiple_budgets_are_named_and_do_not_block_other_pods(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let web = fixture.pod("web").await?;
    fixture.pod("api").await?;
    for budget in ["one", "two"] {
        fixture.budget(budget, "web", None).await?;
        // However much they allow.
        fixture.allow(budget, 1).await?;
    }
    fixture.budget("others", "db", None).await?;
    let progress = fixture.passes(6).await?;
    let [blocker] = &progress.blockers[..] else {
        panic!("{progress:?}")
    };
    assert_eq!(
        (blocker.pod.as_str(), blocker.budget.as_deref(), blocker.reason),
        ("web", Some("one,two"), BlockerReason::MultipleBudgets)
    );
    assert!(blocker.message.ends_with("Covered by: one,two."), "{blocker}");
    assert!(fixture.eviction_times("web").len() <= 2 && fixture.is_running(&web).await?);
    assert_eq!(
        (fixture.eviction_times("api").len(), progress.remaining),
        (1, 2),
        "it is evicted, once"
    );
    fixture.stop_pod("api").await?;
    assert_eq!(fixture.pass().await?.remaining, 1);
    Ok(())
}

pub(crate) async fn pod_is_evicted_once_its_budget_allows(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    fixture.pod("web").await?;
    fixture.budget("strict", "web", Some(0)).await?;
    let blocked = fixture.pass().await?;
    assert_eq!(blocked.blockers.len(), 1);
    fixture.allow("strict", 1).await?;
    // Until the next attempt, the last result is reported.
    assert_eq!(fixture.pass().await?.blockers, blocked.blockers);
    tokio::time::sleep(blocked.next_pass).await;
    let going = fixture.pass().await?;
    assert_eq!((going.remaining, going.blockers.len()), (1, 0));
    assert!(!going.is_drained());
    fixture.stop_pod("web").await?;
    assert!(fixture.pass().await?.is_drained());
    assert_eq!(fixture.eviction_times("web").len(), 2);
    Ok(())
}

pub(crate) async fn forced_pass_deletes_despite_the_budget(case: Case) -> anyhow::Result<()> {
    let mut fixture = Fixture::new(&case).await?;
    fixture.options.grace_period_seconds = Some(0);
    let web = fixture.pod("web").await?;
    fixture.budget("strict", "web", Some(0)).await?;
    assert_eq!(fixture.pass().await?.remaining, 1);
    // At once: deletions do not depend on the budget.
    let forced = fixture
        .drainer
        .pass(&fixture.node_name(), &fixture.options, DrainMode::Force)
        .await?;
    assert!(
        forced.is_drained() && !fixture.is_running(&web).await?,
        "{forced:?}"
    );
    Ok(())
}

pub(crate) async fn dry_run_reports_blockers(case: Case) -> anyhow::Result<()> {
    let fixture = Fixture::new(&case).await?;
    let (web, api) = (fixture.pod("web").await?, fixture.pod("api").await?);
    fixture.budget("strict", "web", Some(0)).await?;
    let writer = Writer::new(fixture.env.proxy().client(), "drain-test").dry_run();
    let trial = Drainer::new(writer, Clock::system());
    let progress = trial
        .pass(&fixture.node_name(), &fixture.options, DrainMode::Evict)
        .await?;
    let names: Vec<_> = progress.blockers.iter().map(|blocker| &*blocker.pod).collect();
    assert_eq!((progress.remaining, &names[..]), (2, &["web"][..]));
    assert!(fixture.is_running(&web).await? && fixture.is_running(&api).await?);
    Ok(())
}
