//! Everything that removes copies, while a process runs and while none does: exactly the affected ones are deleted.

use anyhow::Context as _;
use windlass::{k8s_openapi::api::core::v1::Secret, kube::ResourceExt, prelude::*};
use windlass_secretsync::{SecretSync, api::SYNC_ANNOTATION};
use windlass_suite::{Context as Case, RunningManager};

use crate::secretsync::test_cluster::{HOME, TestCluster, secret};

/// Something that removes copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    /// The annotated source is deleted.
    Source,
    /// The annotated source loses its annotation.
    Annotation,
    /// The source that a SecretSync selects is deleted.
    Selected,
    /// The selected source is relabelled, so that it is no longer selected.
    Label,
    /// The SecretSync's selector is narrowed.
    Selector,
    /// The SecretSync's namespace selector is narrowed.
    Namespaces,
    /// A namespace loses the label by which it is selected.
    Relabelled,
    /// A namespace withdraws its consent to all sources.
    Consent,
    /// A namespace is deleted.
    Namespace,
    /// The SecretSync is deleted.
    Sync,
    /// The annotated source is deleted and recreated.
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

/// The target namespaces of all of them.
const TARGETS: [&str; 2] = ["one", "two"];

/// Everything is in sync, next to objects of others.
async fn prepare(case: &Case) -> anyhow::Result<(TestCluster, RunningManager)> {
    let env = TestCluster::new(case).await?;
    env.namespace("team-a", json!({})).await?;
    for namespace in TARGETS {
        let metadata = json!({ "annotations": { SYNC_ANNOTATION: "secretsync,team-a" }, "labels": { "copies": "yes", "is": namespace } });
        env.namespace(namespace, metadata).await?;
        env.in_namespace(namespace)
            .create(secret("foreign", "own"))
            .await?;
    }
    for name in ["annotated", "other"] {
        env.source(name, "1").await?;
    }
    for name in ["selected", "also"] {
        let mut source = secret(name, "1");
        let labels = [
            ("shared".to_owned(), "yes".to_owned()),
            ("is".to_owned(), name.to_owned()),
        ];
        source.labels_mut().extend(labels);
        env.in_namespace("team-a").create(source).await?;
    }
    let spec = json!({
        "sourceSelector": { "matchLabels": { "shared": "yes" } },
        "namespaceSelector": { "matchLabels": { "copies": "yes" } },
    });
    let running = env.start().await?;
    env.sync("team-a", "shared", spec).await?;
    for namespace in TARGETS {
        for name in COPIES {
            env.wait_for_copy(namespace, name, "1").await?;
        }
    }
    env.settle().await;
    Ok((env, running))
}

async fn remove(env: &TestCluster, removal: Removal) -> anyhow::Result<()> {
    let (home, team) = (env.in_namespace(HOME), env.in_namespace("team-a"));
    match removal {
        Removal::Source => home.delete::<Secret>("annotated").await?,
        Removal::Annotation => {
            let patch = json!({ "metadata": { "annotations": { SYNC_ANNOTATION: null } } });
            home.patch::<Secret>("annotated", patch).await?;
        }
        Removal::Selected => team.delete::<Secret>("selected").await?,
        Removal::Label => {
            let patch = json!({ "metadata": { "labels": { "shared": "no" } } });
            team.patch::<Secret>("selected", patch).await?;
        }
        Removal::Selector => {
            let patch = json!({ "spec": { "sourceSelector": { "matchLabels": { "is": "also" } } } });
            team.patch::<SecretSync>("shared", patch).await?;
        }
        Removal::Namespaces => {
            let patch = json!({ "spec": { "namespaceSelector": { "matchLabels": { "is": "one" } } } });
            team.patch::<SecretSync>("shared", patch).await?;
        }
        Removal::Relabelled => {
            let metadata = json!({ "labels": { "copies": null } });
            env.patch_namespace("two", metadata).await?;
        }
        Removal::Consent => {
            let metadata = json!({ "annotations": { SYNC_ANNOTATION: null } });
            env.patch_namespace("two", metadata).await?;
        }
        Removal::Namespace => env.remove_namespace("two").await?,
        Removal::Sync => team.delete::<SecretSync>("shared").await?,
        Removal::Replaced => {
            home.delete::<Secret>("annotated").await?;
            home.wait_until_deleted::<Secret>("annotated").await?;
            env.source("annotated", "2").await?;
        }
    }
    Ok(())
}

/// Whether it removes this copy.
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

async fn wait_until_gone(env: &TestCluster, removal: Removal) -> anyhow::Result<()> {
    for namespace in TARGETS {
        for name in COPIES
            .into_iter()
            .filter(|name| is_gone(removal, namespace, name))
        {
            let namespace = env.in_namespace(namespace);
            namespace.wait_until_deleted::<Secret>(name).await?;
        }
    }
    Ok(())
}

async fn assert_removed(
    env: &TestCluster,
    removal: Removal,
    before: &[(String, String)],
) -> anyhow::Result<()> {
    let changed = |name: &str| removal == Removal::Replaced && name == "annotated";
    wait_until_gone(env, removal).await?;
    for namespace in TARGETS {
        for name in COPIES.into_iter().filter(|name| changed(name)) {
            env.wait_for_copy(namespace, name, "2").await?;
        }
    }
    env.settle().await;
    for (path, bytes) in before {
        let (namespace, name) = path.split_once('/').expect("a namespace");
        if is_gone(removal, namespace, name) || changed(name) {
            continue;
        }
        if removal == Removal::Namespace && namespace == "two" {
            continue;
        }
        assert_eq!(&env.bytes(namespace, name).await?, bytes, "{removal:?}: {path}");
    }
    if removal == Removal::Sync {
        env.in_namespace("team-a")
            .wait_until_deleted::<SecretSync>("shared")
            .await?;
    }
    Ok(())
}

/// All objects in the targets, copies and others, with their content.
async fn all(env: &TestCluster) -> anyhow::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for namespace in TARGETS {
        for name in COPIES.into_iter().chain(["foreign"]) {
            all.push((format!("{namespace}/{name}"), env.bytes(namespace, name).await?));
        }
    }
    Ok(all)
}

/// While a process runs: within two seconds.
pub(crate) async fn every_removal_deletes_exactly_the_affected_copies(case: Case) -> anyhow::Result<()> {
    for removal in ALL {
        let case = case.fresh().await?;
        let (env, running) = prepare(&case).await?;
        let before = all(&env).await?;
        remove(&env, removal).await?;
        let gone = wait_until_gone(&env, removal);
        env.within_two_seconds(&format!("{removal:?}"), gone).await?;
        assert_removed(&env, removal, &before).await?;
        running.stop().await?;
    }
    Ok(())
}

/// While no process runs.
pub(crate) async fn removals_during_downtime_are_caught_up(case: Case) -> anyhow::Result<()> {
    for removal in ALL {
        let case = case.fresh().await?;
        let (env, running) = prepare(&case).await?;
        running.stop().await?;
        let before = all(&env).await?;
        remove(&env, removal).await?;
        env.proxy().clear();
        let running = env.start().await?;
        let removed = assert_removed(&env, removal, &before).await;
        removed.with_context(|| format!("{removal:?}"))?;
        // Each in one write; copies that are in sync are not written at all.
        let mut writes = env.copy_writes();
        writes.sort();
        let mut once = writes.clone();
        once.dedup();
        assert_eq!(writes, once, "{removal:?}");
        running.stop().await?;
    }
    Ok(())
}

/// A deletion does not wait for a pending fan-out.
pub(crate) async fn deletion_overtakes_a_pending_fan_out(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case)
        .await?
        .with_arguments(|arguments| arguments.writers = std::num::NonZeroUsize::MIN);
    let many: Vec<_> = (0..40).map(|number| format!("ns-{number:02}")).collect();
    let names: Vec<_> = many.iter().map(String::as_str).collect();
    env.consenting(&names).await?;
    env.source("old", "1").await?;
    let running = env.start().await?;
    for namespace in &names {
        env.wait_for_copy(namespace, "old", "1").await?;
    }
    env.settle().await;
    env.proxy().clear();
    // Each copy takes a while from now on.
    let creates = |sent: &windlass_suite::RecordedRequest| {
        sent.is_about("secrets", "new") && sent.access.verb == "create"
    };
    env.proxy()
        .delay(usize::MAX, std::time::Duration::from_millis(50), creates);
    env.source("new", "1").await?;
    env.proxy().wait_until_sent(creates).await?;
    env.in_namespace(HOME).delete::<Secret>("old").await?;
    for namespace in &names {
        env.in_namespace(namespace)
            .wait_until_deleted::<Secret>("old")
            .await?;
    }
    let writes = env.copy_writes();
    let last = writes
        .iter()
        .rposition(|write| write.starts_with("delete "))
        .expect("deletions");
    let before = writes[..last]
        .iter()
        .filter(|write| write.starts_with("create "))
        .count();
    assert!(before < names.len() / 2, "{before} copies were written first");
    for namespace in &names {
        env.wait_for_copy(namespace, "new", "1").await?;
    }
    running.stop().await
}

/// A namespace that is deleted and recreated is another one, whether or not its deletion was observed.
pub(crate) async fn recreated_namespace_gets_its_copies_again(case: Case) -> anyhow::Result<()> {
    for down in [false, true] {
        let case = case.fresh().await?;
        let (env, running) = prepare(&case).await?;
        let mut running = Some(running);
        if let Some(running) = running.take_if(|_| down) {
            running.stop().await?;
        }
        env.remove_namespace("two").await?;
        let metadata =
            json!({ "annotations": { SYNC_ANNOTATION: "secretsync,team-a" }, "labels": { "copies": "yes" } });
        env.namespace("two", metadata).await?;
        let running = match running {
            Some(running) => running,
            None => env.start().await?,
        };
        for name in COPIES {
            env.wait_for_copy("two", name, "1").await?;
        }
        env.wait_for_status("team-a", "shared", |status| {
            status.synced == 4 && status.failed == 0
        })
        .await?;
        running.stop().await?;
    }
    Ok(())
}
