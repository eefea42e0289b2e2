//! Budgets that say no.

use std::time::Duration;

use windlass::runtime::{Clock, Writer};
use windlass_reboot::drain::{BlockerReason, Drainer, How};
use windlass_suite::Context as Case;

use crate::stage::Stage;

const FIVE: Duration = Duration::from_secs(5);

pub(crate) async fn a_budget_at_zero_is_named_and_asked_once_in_five_seconds(
    case: Case,
) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    let web = stage.pod("web").await?;
    stage.budget("at-zero", "web", Some(0)).await?;

    let progress = stage.passes(11).await?;
    assert_eq!(progress.left, 1);
    let [blocker] = &progress.blockers[..] else {
        panic!("{progress:?}")
    };
    assert_eq!(
        (blocker.pod.as_str(), blocker.budget.as_deref(), blocker.reason),
        ("web", Some("at-zero"), BlockerReason::Budget)
    );
    assert!(
        blocker
            .message
            .contains("at-zero needs 1 healthy pods and has 1 currently"),
        "{blocker}"
    );
    let asked = stage.asked("web");
    assert!((2..=3).contains(&asked.len()), "{asked:?}");
    assert!(
        asked.windows(2).all(|pair| pair[1] - pair[0] >= FIVE),
        "{asked:?}"
    );
    assert!(progress.next_try <= FIVE && stage.stays(&web).await?);
    Ok(())
}

pub(crate) async fn a_budget_that_is_being_processed_is_asked_when_the_server_says(
    case: Case,
) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    stage.pod("web").await?;
    // Its controller has not looked at it.
    stage.budget("fresh", "web", None).await?;
    let progress = stage.pass().await?;
    assert_eq!(progress.blockers[0].budget.as_deref(), Some("fresh"));
    assert!(
        progress.blockers[0].message.contains("still being processed"),
        "{progress:?}"
    );
    let ten = Duration::from_secs(10);
    assert!(
        progress.next_try > FIVE && progress.next_try <= ten,
        "{progress:?}"
    );
    // Five seconds are over, ten are not; nothing is forgotten meanwhile.
    let progress = stage.passes(7).await?;
    assert_eq!((stage.asked("web").len(), progress.blockers.len()), (1, 1));
    let progress = stage.passes(4).await?;
    let asked = stage.asked("web");
    assert_eq!((asked.len(), progress.left), (2, 1));
    assert!(asked[1] - asked[0] >= ten, "{asked:?}");
    Ok(())
}

pub(crate) async fn two_budgets_on_a_pod_are_both_named_and_hold_no_other_pod_up(
    case: Case,
) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    let web = stage.pod("web").await?;
    stage.pod("api").await?;
    for budget in ["one", "two"] {
        stage.budget(budget, "web", None).await?;
        // Whatever they allow.
        stage.allow(budget, 1).await?;
    }
    stage.budget("others", "db", None).await?;
    let progress = stage.passes(6).await?;
    let [blocker] = &progress.blockers[..] else {
        panic!("{progress:?}")
    };
    assert_eq!(
        (blocker.pod.as_str(), blocker.budget.as_deref(), blocker.reason),
        ("web", Some("one,two"), BlockerReason::SeveralBudgets)
    );
    assert!(blocker.message.ends_with("These cover it: one,two."), "{blocker}");
    assert!(stage.asked("web").len() <= 2 && stage.stays(&web).await?);
    assert_eq!(
        (stage.asked("api").len(), progress.left),
        (1, 2),
        "it goes, and is asked once"
    );
    stage.stopped("api").await?;
    assert_eq!(stage.pass().await?.left, 1);
    Ok(())
}

pub(crate) async fn a_budget_that_gives_way_lets_the_pod_go(case: Case) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    stage.pod("web").await?;
    stage.budget("strict", "web", Some(0)).await?;
    let blocked = stage.pass().await?;
    assert_eq!(blocked.blockers.len(), 1);
    stage.allow("strict", 1).await?;
    // As long as it may not be asked again, what was said last is what is known.
    assert_eq!(stage.pass().await?.blockers, blocked.blockers);
    tokio::time::sleep(blocked.next_try).await;
    let going = stage.pass().await?;
    assert_eq!((going.left, going.blockers.len()), (1, 0));
    assert!(!going.is_drained());
    stage.stopped("web").await?;
    assert!(stage.pass().await?.is_drained());
    assert_eq!(stage.asked("web").len(), 2);
    Ok(())
}

pub(crate) async fn forced_a_pod_goes_whatever_its_budget_says(case: Case) -> anyhow::Result<()> {
    let mut stage = Stage::new(&case).await?;
    stage.options.grace_period_seconds = Some(0);
    let web = stage.pod("web").await?;
    stage.budget("strict", "web", Some(0)).await?;
    assert_eq!(stage.pass().await?.left, 1);
    // At once: the budget is not asked, so nothing has to be waited for.
    let forced = stage
        .drainer
        .pass(&stage.here(), &stage.options, How::Force)
        .await?;
    assert!(forced.is_drained() && !stage.stays(&web).await?, "{forced:?}");
    Ok(())
}

pub(crate) async fn without_storing_anything_it_is_known_what_is_in_the_way(
    case: Case,
) -> anyhow::Result<()> {
    let stage = Stage::new(&case).await?;
    let (web, api) = (stage.pod("web").await?, stage.pod("api").await?);
    stage.budget("strict", "web", Some(0)).await?;
    let writer = Writer::new(stage.world.wire().client(), "drain-test").dry_run();
    let trial = Drainer::new(writer, Clock::system());
    let progress = trial.pass(&stage.here(), &stage.options, How::Evict).await?;
    let names: Vec<_> = progress.blockers.iter().map(|blocker| &*blocker.pod).collect();
    assert_eq!((progress.left, &names[..]), (2, &["web"][..]));
    assert!(stage.stays(&web).await? && stage.stays(&api).await?);
    Ok(())
}
