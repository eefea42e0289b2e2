//! When it does what it does.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use windlass::k8s_openapi::api::apps::v1::Deployment;
use windlass_cluster::Backend;
use windlass_foo::Foo;
use windlass_suite::{Context as Case, Sent};

use crate::world::World;

/// 10: 5 ms, and twice as long each time; what works begins anew.
pub(crate) async fn failures_are_retried_with_growing_pauses(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    for (attempt, deployment) in ["web", "moved"].into_iter().enumerate() {
        world.wire().forget();
        let applies = move |sent: &Sent| sent.is_write() && sent.is_about("deployments", deployment);
        world.wire().refuse(5, StatusCode::INTERNAL_SERVER_ERROR, applies);
        if attempt == 0 {
            world.create_foo("example", deployment, Some(1)).await?;
        } else {
            let moved = json!({ "spec": { "deploymentName": deployment } });
            world.patch::<Foo>("example", moved).await?;
        }
        world.wait_for::<Deployment>(deployment, |_| true).await?;
        world.settle().await?;
        let tries: Vec<_> = world.wire().writes().into_iter().filter(applies).collect();
        let pauses = tries.windows(2).map(|two| two[1].at - two[0].at);
        let pauses: Vec<_> = pauses.map(|pause| pause.as_millis()).collect();
        let expected = [5, 10, 20, 40, 80];
        if case.cluster().backend() == Backend::Embedded {
            // The clock ticks in milliseconds, and a tick is waited for.
            let exact = pauses
                .iter()
                .zip(expected)
                .all(|(pause, expected)| (expected..=expected + 1).contains(pause));
            assert!(exact && pauses.len() == 5, "{pauses:?}");
        } else {
            let enough = pauses
                .iter()
                .zip(expected)
                .all(|(pause, expected)| *pause >= expected);
            assert!(enough && pauses.len() == 5, "{pauses:?}");
        }
    }
    running.stop().await
}

/// 11: half a view of the world is none.
pub(crate) async fn nothing_is_done_before_both_caches_are_complete(case: Case) -> anyhow::Result<()> {
    for late in ["foos", "deployments"] {
        let world = World::new(&case).await?;
        let looks = move |sent: &Sent| !sent.is_write() && sent.resource() == late && sent.name().is_empty();
        world.wire().refuse(3, StatusCode::SERVICE_UNAVAILABLE, looks);
        let example = format!("without-{late}");
        world.create_foo(&example, &example, Some(1)).await?;
        let running = world.start();
        world.synced(&example).await?;
        let sent = world.wire().sent();
        let seen = sent
            .iter()
            .filter(|sent| looks(sent))
            .nth(3)
            .expect("a fourth look")
            .at;
        let first = sent.iter().find(|sent| sent.is_write()).expect("a write").at;
        assert!(seen <= first, "{late}");
        let too_early = sent.iter().take_while(|sent| !looks(sent) || sent.at < seen);
        assert_eq!(too_early.filter(|sent| sent.is_write()).count(), 0, "{late}");
        running.stop().await?;
    }
    Ok(())
}

/// 11: two workers, and one key never in both.
pub(crate) async fn one_foo_does_not_wait_for_another_and_is_never_in_two_hands(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let running = world.start();
    let slow = Duration::from_secs(5);
    let about_slow = |sent: &Sent| sent.is_write() && sent.is_about("deployments", "slow");
    world.wire().delay(1, slow, about_slow);
    world.create_foo("slow", "slow", Some(1)).await?;
    world.wire().seen(about_slow).await?;
    world.create_foo("quick", "quick", Some(1)).await?;
    world.synced("quick").await?;
    assert!(
        world.get::<Foo>("slow").await?.status.is_none(),
        "it is still under way"
    );
    world
        .patch::<Foo>("slow", json!({ "spec": { "replicas": 2 } }))
        .await?;
    let grown = |deployment: &Deployment| crate::world::spec(deployment).replicas == Some(2);
    world.wait_for::<Deployment>("slow", grown).await?;
    let writes = world.wire().writes();
    let [first, second] = &writes.iter().filter(|sent| about_slow(sent)).collect::<Vec<_>>()[..] else {
        anyhow::bail!("two writes: {:?}", world.writes_about(&["slow"]))
    };
    assert!(second.at - first.at >= slow, "one after the other");
    running.stop().await
}

/// 11, and sooner: what runs is finished, and what waits is left to the next start, which finds it again. Upstream lets its
/// queue run empty, and its process ends meanwhile.
pub(crate) async fn what_runs_is_finished_before_it_stops(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let names: Vec<_> = (0..8).map(|number| format!("foo-{number}")).collect();
    for name in &names {
        world.create_foo(name, name, Some(1)).await?;
    }
    // A controller that starts sees them all.
    world.wait_for::<Foo>("foo-7", |_| true).await?;
    // So that both workers are in the middle when it is told to stop.
    let made = |sent: &Sent| sent.is_write() && sent.resource() == "deployments";
    world.wire().delay(2, Duration::from_secs(1), made);
    let running = world.start();
    world.wire().seen(made).await?;
    running.stop().await?;
    let begun: Vec<_> = world.wire().writes().into_iter().filter(made).collect();
    for deployment in &begun {
        let foo = world.get::<Foo>(deployment.name()).await?;
        assert!(foo.status.is_some(), "{deployment} was begun and not finished");
    }
    let running = world.start();
    for name in &names {
        world.synced(name).await?;
        world.get::<Deployment>(name).await?;
    }
    running.stop().await
}
