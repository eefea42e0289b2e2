//! A copy that somebody changes, and somebody who has a say in it.

use windlass::{
    k8s_openapi::api::core::v1::{Event, Secret},
    kube::{
        ResourceExt,
        api::{Patch, PatchParams, PostParams},
    },
    prelude::*,
    serde_json::Value,
};
use windlass_secretsync::api::{HASH, SOURCE, SYNCED_BY};
use windlass_suite::Context as Case;

use crate::world::{HOME, World, secret};

async fn stage(case: &Case) -> anyhow::Result<(World, windlass_suite::Running)> {
    let world = World::new(case).await?;
    world.consenting(&["asks", "other"]).await?;
    world.source("token", "1").await?;
    let running = world.start().await?;
    world.copied("asks", "token", "1").await?;
    world.copied("other", "token", "1").await?;
    world.settle().await;
    Ok((world, running))
}

fn is_whole(copy: &Secret) -> bool {
    let marks = [HASH, SOURCE, SYNCED_BY];
    copy.data == secret("token", "1").data
        && marks.iter().all(|mark| copy.annotations().contains_key(*mark))
        && !copy.annotations().values().any(|value| value == "wrong")
}

/// Demand 5: by patch, by update, by apply and by hand; each is repaired in one write, in less than two seconds.
pub(crate) async fn drift_is_repaired_at_once(case: Case) -> anyhow::Result<()> {
    let (world, running) = stage(&case).await?;
    let patches: [(&str, Value); 6] = [
        ("a value", json!({ "data": { "password": "d3Jvbmc=" } })),
        ("a key more", json!({ "data": { "more": "d3Jvbmc=" } })),
        (
            "a key by stringData",
            json!({ "stringData": { "more": "wrong" } }),
        ),
        ("a key less", json!({ "data": { "password": null } })),
        ("no data", json!({ "data": null })),
        (
            "a hash",
            json!({ "metadata": { "annotations": { HASH: "wrong" } } }),
        ),
    ];
    for (what, patch) in patches {
        world.wire().forget();
        world.within("asks").patch::<Secret>("token", patch).await?;
        let repaired = world.within("asks");
        world
            .soon(what, repaired.wait_for::<Secret>("token", is_whole))
            .await?;
        world.settle().await;
        assert_eq!(world.copying(), ["update asks/token"], "{what}");
    }
    // By an update of the whole, as an editor does it.
    let mut edited = world.within("asks").get::<Secret>("token").await?;
    edited.data = secret("token", "wrong").data;
    let api = world.within("asks").case().api::<Secret>();
    api.replace("token", &PostParams::default(), &edited).await?;
    let repaired = world.within("asks");
    world
        .soon("an edit", repaired.wait_for::<Secret>("token", is_whole))
        .await?;
    // By deletion.
    world.settle().await;
    world.wire().forget();
    world.within("asks").delete::<Secret>("token").await?;
    world
        .soon("a deletion", world.copied("asks", "token", "1"))
        .await?;
    world.settle().await;
    assert_eq!(world.copying(), ["create asks/token"]);
    running.stop().await
}

/// A namespace that copies objects of its own by name, and gets copies, is served as quickly as the others.
pub(crate) async fn drift_is_repaired_at_once_also_in_a_namespace_of_sources(
    case: Case,
) -> anyhow::Result<()> {
    let (world, running) = stage(&case).await?;
    world.within("asks").create(secret("own", "1")).await?;
    world.sync("asks", "on", json!({ "names": ["own"] })).await?;
    world.says("asks", "on", |status| status.matched == 1).await?;
    for value in ["2", "3", "4"] {
        let changed = json!({ "data": secret("token", value).data });
        world.within(HOME).patch::<Secret>("token", changed).await?;
        world
            .soon("a change", world.copied("asks", "token", value))
            .await?;
        world.within("asks").delete::<Secret>("token").await?;
        world
            .soon("a deletion", world.copied("asks", "token", value))
            .await?;
    }
    running.stop().await
}

/// What happens while it is down is seen in the managed fields, without reading any value.
pub(crate) async fn drift_while_it_was_down_is_repaired_without_reading_values(
    case: Case,
) -> anyhow::Result<()> {
    let (world, running) = stage(&case).await?;
    running.stop().await?;
    world
        .within("asks")
        .patch::<Secret>("token", json!({ "data": { "password": "d3Jvbmc=" } }))
        .await?;
    world.wire().forget();
    let running = world.start().await?;
    world.within("asks").wait_for::<Secret>("token", is_whole).await?;
    world.settle().await;
    assert_eq!(world.copying(), ["update asks/token"]);
    let reads = world.wire().sent().into_iter().filter(|sent| {
        sent.access.verb == "get" && sent.resource() == "secrets" && crate::world::namespace_of(sent) != HOME
    });
    assert!(reads.count() <= 1, "only what is to be written may be read");
    running.stop().await
}

/// Labels and annotations of others on a copy are theirs.
pub(crate) async fn what_others_add_around_the_data_stays(case: Case) -> anyhow::Result<()> {
    let (world, running) = stage(&case).await?;
    world.wire().forget();
    let patch = json!({ "metadata": { "labels": { "theirs": "1" }, "annotations": { "theirs": "1" } } });
    world.within("asks").patch::<Secret>("token", patch).await?;
    world.settle().await;
    assert_eq!(world.copying(), [""; 0]);
    // They stay also when there is something to write.
    let changed = json!({ "data": secret("token", "2").data });
    world.within(HOME).patch::<Secret>("token", changed).await?;
    let copy = world.copied("asks", "token", "2").await?;
    assert_eq!(copy.labels().get("theirs").map(String::as_str), Some("1"));
    assert_eq!(copy.annotations().get("theirs").map(String::as_str), Some("1"));
    running.stop().await
}

/// Demand 5: whoever applies another value for a key and would do it again is not fought, but reported.
pub(crate) async fn there_is_no_fight_with_somebody_who_applies(case: Case) -> anyhow::Result<()> {
    let (world, running) = stage(&case).await?;
    let source = world.within(HOME).get::<Secret>("token").await?;
    let api = world.within("asks").case().api::<Secret>();
    let theirs = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "token" },
        "data": { "password": "dGhlaXJz" },
    });
    world.wire().forget();
    // As a deployment tool does that comes round every minute.
    for _ in 0..5 {
        api.patch(
            "token",
            &PatchParams::apply("flux").force(),
            &Patch::Apply(&theirs),
        )
        .await?;
        world.settle().await;
    }
    let writes = world.copying();
    assert!(writes.len() <= 1, "a fight: {writes:?}");
    let warned = |event: &Event| event.type_.as_deref() == Some("Warning");
    let told = world.within(HOME).told(&source, warned).await?;
    let message = told.message.unwrap_or_default();
    assert!(
        message.contains("asks/token") && message.contains("flux"),
        "{message}"
    );
    // The others go on.
    let changed = json!({ "data": secret("token", "2").data });
    world.within(HOME).patch::<Secret>("token", changed).await?;
    world.copied("other", "token", "2").await?;
    // When it lets go, the copy is ours again.
    let nothing = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "token" } });
    api.patch(
        "token",
        &PatchParams::apply("flux").force(),
        &Patch::Apply(&nothing),
    )
    .await?;
    world.copied("asks", "token", "2").await?;
    running.stop().await
}
