//! Retries, concurrency and shutdown.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use windlass::k8s_openapi::api::apps::v1::Deployment;
use windlass_cluster::Backend;
use windlass_foo::Foo;
use windlass_suite::{Context as Case, RecordedRequest};

use crate::foo::fixture::Fixture;

/// From 5 ms, doubled each time; a success resets it.
pub(crate) async fn failures_are_retried_with_exponential_backoff(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    for (attempt, deployment) in ["web", "moved"].into_iter().enumerate() {
        env.proxy().clear();
        let applies =
            move |sent: &RecordedRequest| sent.is_write() && sent.is_about("deployments", deployment);
        env.proxy().reject(5, StatusCode::INTERNAL_SERVER_ERROR, applies);
        if attempt == 0 {
            env.create_foo("example", deployment, Some(1)).await?;
        } else {
            let moved = json!({ "spec": { "deploymentName": deployment } });
            env.patch::<Foo>("example", moved).await?;
        }
        env.wait_for::<Deployment>(deployment, |_| true).await?;
        env.wait_until_processed().await?;
        let tries: Vec<_> = env.proxy().writes().into_iter().filter(applies).collect();
        let pauses = tries.windows(2).map(|two| two[1].at - two[0].at);
        let pauses: Vec<_> = pauses.map(|pause| pause.as_millis()).collect();
        let expected = [5, 10, 20, 40, 80];
        if case.cluster().backend() == Backend::Embedded {
            // The timer has millisecond resolution and rounds up.
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

pub(crate) async fn nothing_is_written_before_both_caches_are_synced(case: Case) -> anyhow::Result<()> {
    for late in ["foos", "deployments"] {
        let env = Fixture::new(&case).await?;
        let looks = move |sent: &RecordedRequest| {
            !sent.is_write() && sent.resource() == late && sent.name().is_empty()
        };
        env.proxy().reject(3, StatusCode::SERVICE_UNAVAILABLE, looks);
        let example = format!("without-{late}");
        env.create_foo(&example, &example, Some(1)).await?;
        let running = env.start();
        env.wait_for_status(&example).await?;
        let sent = env.proxy().requests();
        let seen = sent
            .iter()
            .filter(|sent| looks(sent))
            .nth(3)
            .expect("a fourth request")
            .at;
        let first = sent.iter().find(|sent| sent.is_write()).expect("a write").at;
        assert!(seen <= first, "{late}");
        let too_early = sent.iter().take_while(|sent| !looks(sent) || sent.at < seen);
        assert_eq!(too_early.filter(|sent| sent.is_write()).count(), 0, "{late}");
        running.stop().await?;
    }
    Ok(())
}

/// Two workers process different Foos concurrently, but never the same one.
pub(crate) async fn two_workers_never_share_a_foo(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = env.start();
    let slow = Duration::from_secs(5);
    let about_slow = |sent: &RecordedRequest| sent.is_write() && sent.is_about("deployments", "slow");
    env.proxy().delay(1, slow, about_slow);
    env.create_foo("slow", "slow", Some(1)).await?;
    env.proxy().wait_until_sent(about_slow).await?;
    env.create_foo("quick", "quick", Some(1)).await?;
    env.wait_for_status("quick").await?;
    assert!(
        env.get::<Foo>("slow").await?.status.is_none(),
        "still in progress"
    );
    env.patch::<Foo>("slow", json!({ "spec": { "replicas": 2 } }))
        .await?;
    let grown = |deployment: &Deployment| crate::foo::fixture::spec(deployment).replicas == Some(2);
    env.wait_for::<Deployment>("slow", grown).await?;
    let writes = env.proxy().writes();
    let [first, second] = &writes.iter().filter(|sent| about_slow(sent)).collect::<Vec<_>>()[..] else {
        anyhow::bail!("two writes: {:?}", env.writes_about(&["slow"]))
    };
    assert!(second.at - first.at >= slow, "one after the other");
    running.stop().await
}

/// Queued keys are left to the next start, which lists them again. Upstream drains its queue, but exits before that is done.
pub(crate) async fn stop_finishes_running_reconciles(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let names: Vec<_> = (0..8).map(|number| format!("foo-{number}")).collect();
    for name in &names {
        env.create_foo(name, name, Some(1)).await?;
    }
    // All Foos exist when the controller starts.
    env.wait_for::<Foo>("foo-7", |_| true).await?;
    // Both workers are busy when the stop is requested.
    let made = |sent: &RecordedRequest| sent.is_write() && sent.resource() == "deployments";
    env.proxy().delay(2, Duration::from_secs(1), made);
    let running = env.start();
    env.proxy().wait_until_sent(made).await?;
    running.stop().await?;
    let begun: Vec<_> = env.proxy().writes().into_iter().filter(made).collect();
    for deployment in &begun {
        let foo = env.get::<Foo>(deployment.name()).await?;
        assert!(foo.status.is_some(), "{deployment} was started but not finished");
    }
    let running = env.start();
    for name in &names {
        env.wait_for_status(name).await?;
        env.get::<Deployment>(name).await?;
    }
    running.stop().await
}
