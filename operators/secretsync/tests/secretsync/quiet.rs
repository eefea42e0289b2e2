//! When everything is as it should be, nothing is written.

use std::time::Duration;

use windlass::{k8s_openapi::api::core::v1::Secret, prelude::*, runtime::ElectionConfig};
use windlass_suite::{Context as Case, Line, Running};

use crate::world::{HOME, World, namespace_of, secret};

const SOURCES: usize = 5;
const NAMESPACES: usize = 8;

/// Sources of both front ends, in sync.
async fn stage(world: &World) -> anyhow::Result<()> {
    for number in 0..SOURCES {
        world.source(&format!("token-{number}"), "1").await?;
    }
    world.within(HOME).create(secret("selected", "1")).await?;
    world
        .sync(HOME, "shared", json!({ "names": ["selected"] }))
        .await?;
    for number in 0..NAMESPACES {
        world.consenting(&[&format!("ns-{number}")]).await?;
    }
    Ok(())
}

async fn all_there(world: &World) -> anyhow::Result<()> {
    let mut expected = Vec::new();
    let sources: Vec<_> = (0..SOURCES).map(|source| format!("token-{source}")).collect();
    for number in 0..NAMESPACES {
        for source in sources.iter().map(String::as_str).chain(["selected"]) {
            expected.push((format!("ns-{number}"), source, Some("1")));
        }
    }
    world.all(&expected).await?;
    world
        .says(HOME, "shared", |status| {
            status.synced == u32::try_from(NAMESPACES).unwrap_or(0)
        })
        .await?;
    world.settle().await;
    Ok(())
}

/// Demand 6: an hour, a restart and a new list of everything, and not one write.
pub(crate) async fn nothing_is_written_when_all_is_in_sync(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    stage(&world).await?;
    let line = Line::new(world.wire().client());
    let running = Running::start(world.whole_on(line.client()).await?);
    all_there(&world).await?;
    let copies = (SOURCES + 1) * NAMESPACES;
    let creates = world.copying();
    assert_eq!(creates.len(), copies, "each once: {creates:?}");
    // A source is read once, not once a namespace.
    let reads = world.wire().sent().into_iter();
    let reads = reads.filter(|sent| sent.access.verb == "get" && sent.resource() == "secrets");
    assert_eq!(reads.count(), SOURCES + 1);
    world.wire().forget();
    world.a_while().await;
    // The connection is lost, and where it was is forgotten by the server.
    line.cut();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world
        .wire()
        .refuse(6, http::StatusCode::GONE, |sent| sent.access.verb == "watch");
    line.mend();
    world.a_while().await;
    assert_eq!(world.written(), [""; 0]);
    running.stop().await?;
    world.wire().forget();
    let running = world.start().await?;
    world.settle().await;
    world.a_while().await;
    assert_eq!(world.written(), [""; 0], "after a restart");
    let unrelated = secret("unrelated", "1");
    world.within("ns-0").create(unrelated).await?;
    world.within(HOME).create(secret("unrelated", "1")).await?;
    world.settle().await;
    assert_eq!(world.written(), [""; 0], "for what is none of its business");
    running.stop().await
}

/// Demand 6: what is watched is metadata, of copies and of what may be a source; whole objects are read of sources alone.
pub(crate) async fn only_sources_are_read_whole(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    stage(&world).await?;
    world.within(HOME).create(secret("unrelated", "1")).await?;
    world.within("ns-0").create(secret("unrelated", "1")).await?;
    let shared = json!({ "secretSelector": { "matchLabels": { "shared": "yes" } } });
    world.sync(HOME, "by-label", shared).await?;
    let running = world.start().await?;
    all_there(&world).await?;
    let content = ["secrets", "configmaps"];
    let sent = world.wire().sent();
    let reads = sent
        .iter()
        .filter(|sent| content.contains(&sent.resource()) && !sent.is_write());
    let (single, many): (Vec<_>, Vec<_>) = reads.partition(|sent| sent.access.verb == "get");
    assert!(!many.is_empty());
    for read in many {
        assert!(
            read.accept.contains("as=PartialObjectMetadata"),
            "{read}: {}",
            read.accept
        );
    }
    for read in single {
        let is_source = read.name().starts_with("token-") || read.name() == "selected";
        assert!(is_source && namespace_of(read) == HOME, "{read}");
    }
    running.stop().await
}

/// Demand 10: the next leader finds everything done.
pub(crate) async fn a_leader_that_takes_over_writes_nothing_twice(case: Case) -> anyhow::Result<()> {
    let first = World::new(&case).await?;
    stage(&first).await?;
    let second = first.beside();
    let elect = |manager: Manager, who: &str| {
        manager.elect(
            ElectionConfig::new("secretsync")
                .namespace(case.namespace())
                .identity(who),
        )
    };
    let one = Running::start(elect(first.whole().await?, "one"));
    all_there(&first).await?;
    let other = Running::start(elect(second.whole().await?, "other"));
    second.settle().await;
    assert_eq!(second.written(), [""; 0], "it does not lead");
    one.stop().await?;
    // A new leader is there when it does something that only a leader does.
    let changed = json!({ "data": secret("token-0", "2").data });
    first.within(HOME).patch::<Secret>("token-0", changed).await?;
    for number in 0..NAMESPACES {
        first.copied(&format!("ns-{number}"), "token-0", "2").await?;
    }
    second.settle().await;
    let writes = second.copying();
    assert_eq!(writes.len(), NAMESPACES, "{writes:?}");
    assert!(
        writes.iter().all(|write| write.ends_with("/token-0")),
        "{writes:?}"
    );
    other.stop().await
}
