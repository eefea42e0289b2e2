//! What takes copies away, while it runs and while it does not: the right ones, and no others.

use anyhow::Context as _;
use windlass::{k8s_openapi::api::core::v1::Secret, kube::ResourceExt, prelude::*};
use windlass_secretsync::{SecretSync, api::SYNC};
use windlass_suite::{Context as Case, Running};

use crate::world::{HOME, World, secret};

/// Something that takes copies away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    /// The annotated source is deleted.
    Source,
    /// The annotated source loses its annotation.
    Annotation,
    /// The source that a SecretSync selects is deleted.
    Selected,
    /// It is relabelled, so that it is selected no more.
    Label,
    /// The SecretSync's selector is narrowed.
    Selector,
    /// The SecretSync's namespace selector is narrowed.
    Namespaces,
    /// A namespace loses the label by which it is selected.
    Relabelled,
    /// A namespace withdraws its consent to everybody.
    Consent,
    /// A namespace is deleted.
    Namespace,
    /// The SecretSync is deleted.
    Sync,
    /// The annotated source is deleted and created anew.
    Replaced,
}

const ALL: [Removal; 11] = [
    Removal::Source,
    Removal::Annotation,
    Removal::Selected,
    Removal::Label,
    Removal::Selector,
    Removal::Namespaces,
    Removal::Relabelled,
    Removal::Consent,
    Removal::Namespace,
    Removal::Sync,
    Removal::Replaced,
];

/// What is copied: `annotated` and `other` from [`HOME`], `selected` and `also` by the SecretSync `shared` of team-a.
const COPIES: [&str; 4] = ["also", "annotated", "other", "selected"];

/// The namespaces that all of it is copied to.
const TARGETS: [&str; 2] = ["one", "two"];

/// Where everything is in sync, with objects of others beside.
async fn stage(case: &Case) -> anyhow::Result<(World, Running)> {
    let world = World::new(case).await?;
    world.namespace("team-a", json!({})).await?;
    for namespace in TARGETS {
        let metadata = json!({ "annotations": { SYNC: "secretsync,team-a" }, "labels": { "copies": "yes", "is": namespace } });
        world.namespace(namespace, metadata).await?;
        world.within(namespace).create(secret("foreign", "own")).await?;
    }
    for name in ["annotated", "other"] {
        world.source(name, "1").await?;
    }
    for name in ["selected", "also"] {
        let mut source = secret(name, "1");
        let labels = [
            ("shared".to_owned(), "yes".to_owned()),
            ("is".to_owned(), name.to_owned()),
        ];
        source.labels_mut().extend(labels);
        world.within("team-a").create(source).await?;
    }
    let spec = json!({
        "secretSelector": { "matchLabels": { "shared": "yes" } },
        "namespaceSelector": { "matchLabels": { "copies": "yes" } },
    });
    let running = world.start().await?;
    world.sync("team-a", "shared", spec).await?;
    for namespace in TARGETS {
        for name in COPIES {
            world.copied(namespace, name, "1").await?;
        }
    }
    world.settle().await;
    Ok((world, running))
}

async fn remove(world: &World, removal: Removal) -> anyhow::Result<()> {
    let (home, team) = (world.within(HOME), world.within("team-a"));
    match removal {
        Removal::Source => home.delete::<Secret>("annotated").await?,
        Removal::Annotation => {
            let patch = json!({ "metadata": { "annotations": { SYNC: null } } });
            home.patch::<Secret>("annotated", patch).await?;
        }
        Removal::Selected => team.delete::<Secret>("selected").await?,
        Removal::Label => {
            let patch = json!({ "metadata": { "labels": { "shared": "no" } } });
            team.patch::<Secret>("selected", patch).await?;
        }
        Removal::Selector => {
            let patch = json!({ "spec": { "secretSelector": { "matchLabels": { "is": "also" } } } });
            team.patch::<SecretSync>("shared", patch).await?;
        }
        Removal::Namespaces => {
            let patch = json!({ "spec": { "namespaceSelector": { "matchLabels": { "is": "one" } } } });
            team.patch::<SecretSync>("shared", patch).await?;
        }
        Removal::Relabelled => {
            let metadata = json!({ "labels": { "copies": null } });
            world.patch_namespace("two", metadata).await?;
        }
        Removal::Consent => {
            let metadata = json!({ "annotations": { SYNC: null } });
            world.patch_namespace("two", metadata).await?;
        }
        Removal::Namespace => world.remove_namespace("two").await?,
        Removal::Sync => team.delete::<SecretSync>("shared").await?,
        Removal::Replaced => {
            home.delete::<Secret>("annotated").await?;
            home.wait_gone::<Secret>("annotated").await?;
            world.source("annotated", "2").await?;
        }
    }
    Ok(())
}

/// What is gone by it, as (namespace, name).
fn is_gone(removal: Removal, namespace: &str, name: &str) -> bool {
    let synced = ["selected", "also"].contains(&name);
    match removal {
        Removal::Source | Removal::Annotation => name == "annotated",
        Removal::Selected | Removal::Label | Removal::Selector => name == "selected",
        Removal::Namespaces | Removal::Relabelled => synced && namespace == "two",
        Removal::Consent | Removal::Namespace => namespace == "two",
        Removal::Sync => synced,
        Removal::Replaced => false,
    }
}

async fn assert_removed(world: &World, removal: Removal, before: &[(String, String)]) -> anyhow::Result<()> {
    let changed = |name: &str| removal == Removal::Replaced && name == "annotated";
    for namespace in TARGETS {
        for name in COPIES {
            if is_gone(removal, namespace, name) {
                world.within(namespace).wait_gone::<Secret>(name).await?;
            } else if changed(name) {
                world.copied(namespace, name, "2").await?;
            }
        }
    }
    world.settle().await;
    for (path, bytes) in before {
        let (namespace, name) = path.split_once('/').expect("a namespace");
        if is_gone(removal, namespace, name) || changed(name) {
            continue;
        }
        if removal == Removal::Namespace && namespace == "two" {
            continue;
        }
        assert_eq!(&world.bytes(namespace, name).await?, bytes, "{removal:?}: {path}");
    }
    if removal == Removal::Sync {
        world.within("team-a").wait_gone::<SecretSync>("shared").await?;
    }
    Ok(())
}

/// All copies, and what is not one, as it is now.
async fn all(world: &World) -> anyhow::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for namespace in TARGETS {
        for name in COPIES.into_iter().chain(["foreign"]) {
            all.push((format!("{namespace}/{name}"), world.bytes(namespace, name).await?));
        }
    }
    Ok(all)
}

/// Demand 4, while it runs: within two seconds.
pub(crate) async fn whatever_ends_a_copy_takes_the_right_ones_away(case: Case) -> anyhow::Result<()> {
    for removal in ALL {
        let case = case.anew().await?;
        let (world, running) = stage(&case).await?;
        let before = all(&world).await?;
        remove(&world, removal).await?;
        let gone = async {
            for namespace in TARGETS {
                for name in COPIES {
                    if is_gone(removal, namespace, name) {
                        world.within(namespace).wait_gone::<Secret>(name).await?;
                    }
                }
            }
            Ok(())
        };
        world.soon(&format!("{removal:?}"), gone).await?;
        assert_removed(&world, removal, &before).await?;
        running.stop().await?;
    }
    Ok(())
}

/// Demand 4, while it is down.
pub(crate) async fn whatever_ends_a_copy_while_it_is_down_is_caught_up(case: Case) -> anyhow::Result<()> {
    for removal in ALL {
        let case = case.anew().await?;
        let (world, running) = stage(&case).await?;
        running.stop().await?;
        let before = all(&world).await?;
        remove(&world, removal).await?;
        world.wire().forget();
        let running = world.start().await?;
        let removed = assert_removed(&world, removal, &before).await;
        removed.with_context(|| format!("{removal:?}"))?;
        // Each in one write; what is in sync is not written at all.
        let mut writes = world.copying();
        writes.sort();
        let mut once = writes.clone();
        once.dedup();
        assert_eq!(writes, once, "{removal:?}");
        running.stop().await?;
    }
    Ok(())
}

/// A deletion does not wait for a fan-out that is under way.
pub(crate) async fn a_deletion_overtakes_a_pending_fan_out(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case)
        .await?
        .told_to(|arguments| arguments.writers = std::num::NonZeroUsize::MIN);
    let many: Vec<_> = (0..40).map(|number| format!("ns-{number:02}")).collect();
    let names: Vec<_> = many.iter().map(String::as_str).collect();
    world.consenting(&names).await?;
    world.source("old", "1").await?;
    let running = world.start().await?;
    for namespace in &names {
        world.copied(namespace, "old", "1").await?;
    }
    world.settle().await;
    world.wire().forget();
    // Each copy takes a while from now on.
    let creates =
        |sent: &windlass_suite::Sent| sent.is_about("secrets", "new") && sent.access.verb == "create";
    world
        .wire()
        .delay(usize::MAX, std::time::Duration::from_millis(50), creates);
    world.source("new", "1").await?;
    world.wire().seen(creates).await?;
    world.within(HOME).delete::<Secret>("old").await?;
    for namespace in &names {
        world.within(namespace).wait_gone::<Secret>("old").await?;
    }
    let writes = world.copying();
    let last = writes
        .iter()
        .rposition(|write| write.starts_with("delete "))
        .expect("deletions");
    let before = writes[..last]
        .iter()
        .filter(|write| write.starts_with("create "))
        .count();
    assert!(before < names.len() / 2, "{before} were copied first");
    for namespace in &names {
        world.copied(namespace, "new", "1").await?;
    }
    running.stop().await
}

/// A namespace that is deleted and made anew is another one, whether or not anybody saw it go.
pub(crate) async fn a_namespace_that_is_made_anew_gets_its_copies_again(case: Case) -> anyhow::Result<()> {
    for down in [false, true] {
        let case = case.anew().await?;
        let (world, running) = stage(&case).await?;
        let mut running = Some(running);
        if let Some(running) = running.take_if(|_| down) {
            running.stop().await?;
        }
        world.remove_namespace("two").await?;
        let metadata = json!({ "annotations": { SYNC: "secretsync,team-a" }, "labels": { "copies": "yes" } });
        world.namespace("two", metadata).await?;
        let running = match running {
            Some(running) => running,
            None => world.start().await?,
        };
        for name in COPIES {
            world.copied("two", name, "1").await?;
        }
        world
            .says("team-a", "shared", |status| {
                status.synced == 4 && status.failed == 0
            })
            .await?;
        running.stop().await?;
    }
    Ok(())
}
