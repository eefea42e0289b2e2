//! Data outside of the cluster, and previews.

use std::time::Duration;

use windlass::{
    cache::Change,
    prelude::*,
    tokio::time::{Instant, sleep},
};
use windlass_cluster::Backend;
use windlass_webapp::{FINALIZER, WebApp};

use crate::fixture::Fixture;

fn has_finalizer(app: &WebApp) -> bool {
    app.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// The service takes 50 ms to answer, in real time; the timeout of the request is in paused time.
pub(crate) async fn data_is_deleted_before_the_webapp(fixture: &Fixture) -> anyhow::Result<()> {
    let running = fixture.start()?;
    let shop = fixture.create_shop(json!({})).await?;
    fixture.wait_for("shop", has_finalizer).await?;
    assert_eq!(fixture.data.requests(), [""; 0]);
    fixture.delete::<WebApp>("shop").await?;
    fixture.wait_until_deleted::<WebApp>("shop").await?;
    let request = format!("DELETE /data/{}", shop.uid().unwrap_or_default());
    // At least once.
    assert!(fixture.data.requests().iter().all(|sent| *sent == request));
    assert!(!fixture.data.requests().is_empty());
    running.stop().await
}

pub(crate) async fn failed_deletion_of_data_is_retried(fixture: &Fixture) -> anyhow::Result<()> {
    let running = fixture.start()?;
    fixture.create_shop(json!({})).await?;
    fixture.wait_for("shop", has_finalizer).await?;
    fixture.data.fail(3);
    fixture.delete::<WebApp>("shop").await?;
    fixture.wait_until_deleted::<WebApp>("shop").await?;
    assert!(
        fixture.data.requests().len() >= 4,
        "{:?}",
        fixture.data.requests()
    );
    running.stop().await
}

pub(crate) async fn preview_is_deleted_when_its_time_has_passed(fixture: &Fixture) -> anyhow::Result<()> {
    let running = fixture.start()?;
    // An hour takes no time on a paused clock.
    let is_paused = fixture.backend == Backend::Embedded;
    let ttl = if is_paused { 3600 } else { 3 };
    let start = Instant::now();
    let webapps = fixture.cache::<WebApp>();
    let mut changes = webapps.subscribe();
    fixture.create_shop(json!({ "ttlSeconds": ttl })).await?;
    sleep(Duration::from_secs(ttl - 2)).await;
    let is_expired = |app: &WebApp| app.metadata.deletion_timestamp.is_some();
    assert!(!is_expired(&fixture.get("shop").await?));
    fixture
        .wait_until("shop", |app| app.is_none_or(is_expired))
        .await?;
    if is_paused {
        assert_eq!(start.elapsed(), Duration::from_secs(ttl));
    }
    // Nothing is reported about the missing children.
    let last = loop {
        match changes.next().await {
            Some(Change::Deleted { last, .. }) => break last.object()?,
            Some(_) => {}
            None => anyhow::bail!("the cache has ended"),
        }
    };
    let conditions = last.status.as_ref().map(|status| &status.conditions);
    let shown: Vec<_> = conditions
        .into_iter()
        .flatten()
        .map(|found| format!("{} {}", found.type_, found.reason))
        .collect();
    assert!(
        matches!(&shown[..], [ready] if ready == "Ready ReplicasNotReady" || ready == "Ready AllReplicasReady"),
        "{shown:?}"
    );
    running.stop().await?;
    let events = fixture.events().await?;
    assert!(
        events.iter().all(|event| !event.starts_with("Warning")),
        "{events:?}"
    );
    Ok(())
}

/// While the Secret is missing nothing is decided about the children; the time passes all the same.
pub(crate) async fn preview_without_its_secret_is_deleted_too(fixture: &Fixture) -> anyhow::Result<()> {
    let running = fixture.start()?;
    fixture
        .create_shop(json!({ "ttlSeconds": 3, "secretName": "missing" }))
        .await?;
    fixture.wait_until_deleted::<WebApp>("shop").await?;
    running.stop().await
}
