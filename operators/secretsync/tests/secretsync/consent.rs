//! Both sides consent, or nothing is written.

use windlass::{
    k8s_openapi::api::core::v1::{Event, Secret},
    prelude::*,
};
use windlass_secretsync::{SecretSync, api::SYNC};
use windlass_suite::Context as Case;

use crate::world::{HOME, World, consent, secret};

/// Which consent means what: (value of the annotation, copies from the source namespace, copies from team-a).
const CONSENTS: &[(&str, &str, bool, bool)] = &[
    ("empty", "", true, false),
    ("true", "true", true, false),
    ("named", "team-a", false, true),
    ("several", "team-b, team-a", false, true),
    ("both", "team-a,secretsync", true, true),
    ("all", "*", true, true),
    ("other", "team-b", false, false),
    ("no-name", "Team A!", false, false),
    ("pattern", "team-.*", false, false),
];

pub(crate) async fn a_namespace_gets_copies_from_whom_it_named_and_nobody_else(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("team-a", json!({})).await?;
    let mut wrong = Vec::new();
    for (name, value, ..) in CONSENTS {
        let namespace = world.namespace(name, consent(value)).await?;
        if ["no-name", "pattern"].contains(name) {
            wrong.push(namespace);
        }
    }
    world.source("from-home", "1").await?;
    world.within("team-a").create(secret("from-a", "1")).await?;
    // An annotation means nothing outside of the source namespace.
    let mut stray = secret("stray", "1");
    stray.annotations_mut().insert(SYNC.to_owned(), "true".to_owned());
    world.within("team-a").create(stray).await?;
    let running = world.start().await?;
    world
        .sync(
            "team-a",
            "everywhere",
            json!({ "names": ["from-a"], "namespaceSelector": {} }),
        )
        .await?;
    for (namespace, _, home, team) in CONSENTS {
        if *home {
            world.copied(namespace, "from-home", "1").await?;
        }
        if *team {
            world.copied(namespace, "from-a", "1").await?;
        }
    }
    world.settle().await;
    for (namespace, value, home, team) in CONSENTS {
        let mut expected = Vec::new();
        expected.extend(team.then_some("from-a"));
        expected.extend(home.then_some("from-home"));
        assert_eq!(world.names::<Secret>(namespace).await?, expected, "`{value}`");
    }
    assert_eq!(
        world.names::<Secret>(HOME).await?,
        ["from-home"],
        "no target of its own"
    );
    assert_eq!(world.names::<Secret>("team-a").await?, ["from-a", "stray"]);
    // What makes no sense is told to whoever looks at the namespace; such events are in `default`.
    for namespace in wrong {
        let warned = |event: &Event| event.type_.as_deref() == Some("Warning");
        world.within("default").told(&namespace, warned).await?;
    }
    running.stop().await
}

/// Demand 3: neither a Secret, nor a SecretSync, nor any selector of a tenant reaches a namespace that did not name it.
pub(crate) async fn a_tenant_reaches_neither_another_tenant_nor_the_system(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("mallory", consent("*")).await?;
    world.namespace("silent", json!({})).await?;
    world.consenting(&["trusting"]).await?;
    for system in ["kube-system", "kube-public", "kube-node-lease"] {
        // Whoever sets this has the rights to; it is not enough.
        world.patch_namespace(system, consent("*")).await?;
    }
    let before = world.names::<Secret>("kube-system").await?;
    let mut evil = secret("evil", "1");
    evil.metadata.annotations = Some(
        [
            (SYNC, "*"),
            ("replicator.v1.mittwald.de/replicate-to", ".*"),
            ("reflector.v1.k8s.emberstack.com/reflection-auto-enabled", "true"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
    );
    world.within("mallory").create(evil).await?;
    let running = world.start().await?;
    for (name, selector) in [
        ("all", json!({})),
        (
            "system",
            json!({ "matchLabels": { "kubernetes.io/metadata.name": "kube-system" } }),
        ),
        (
            "silent",
            json!({ "matchLabels": { "kubernetes.io/metadata.name": "silent" } }),
        ),
    ] {
        let spec = json!({ "names": ["evil"], "namespaceSelector": selector, "adoptionPolicy": "Always" });
        world.sync("mallory", name, spec).await?;
    }
    for name in ["all", "system", "silent"] {
        let told = world
            .says("mallory", name, |status| status.observed_generation.is_some())
            .await?;
        let status = told.status.clone().unwrap_or_default();
        assert_eq!((status.targets, status.namespaces), (0, 0), "{name}");
    }
    world.settle().await;
    assert_eq!(world.copying(), [""; 0]);
    assert_eq!(world.names::<Secret>("kube-system").await?, before);
    running.stop().await
}

/// Named by the administrator, and by the namespace itself: then it is one like any other.
pub(crate) async fn a_system_namespace_that_is_allowed_still_has_to_consent(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?.told_to(|arguments| {
        arguments.allowed_namespaces = vec!["kube-system".to_owned(), "kube-public".to_owned()];
    });
    world.patch_namespace("kube-system", consent("true")).await?;
    world.patch_namespace("kube-node-lease", consent("true")).await?;
    world.source("token", "1").await?;
    let running = world.start().await?;
    world.copied("kube-system", "token", "1").await?;
    world.settle().await;
    assert_eq!(world.copying(), ["create kube-system/token"]);
    running.stop().await
}

/// Names and namespace are the administrator's to choose.
pub(crate) async fn the_annotation_and_the_source_namespace_can_be_named(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?.told_to(|arguments| {
        "eightypercent.net/secretsync".clone_into(&mut arguments.annotation);
        "vault".clone_into(&mut arguments.source_namespace);
    });
    world.namespace("vault", json!({})).await?;
    let asks = json!({ "annotations": { "eightypercent.net/secretsync": "" } });
    world.namespace("asks", asks).await?;
    world.consenting(&["asks-otherwise"]).await?;
    let mut source = secret("token", "1");
    source
        .annotations_mut()
        .insert("eightypercent.net/secretsync".to_owned(), String::new());
    world.within("vault").create(source).await?;
    world.source("elsewhere", "1").await?;
    let running = world.start().await?;
    world.copied("asks", "token", "1").await?;
    world.settle().await;
    assert_eq!(world.copying(), ["create asks/token"]);
    running.stop().await
}

/// What was copied from another source namespace belongs to whoever looks after that.
pub(crate) async fn copies_from_another_source_namespace_are_left_alone(case: Case) -> anyhow::Result<()> {
    let (world, running) = World::in_sync(&case).await?;
    running.stop().await?;
    let before = world.bytes("asks", "token").await?;
    let other = world.beside().told_to(|arguments| {
        "vault".clone_into(&mut arguments.source_namespace);
    });
    other.namespace("vault", json!({})).await?;
    let running = other.start().await?;
    let mut source = secret("other", "1");
    source.annotations_mut().insert(SYNC.to_owned(), String::new());
    other.within("vault").create(source).await?;
    other.copied("asks", "other", "1").await?;
    other.settle().await;
    assert_eq!(world.bytes("asks", "token").await?, before);
    running.stop().await
}

/// A SecretSync in the source namespace is one of the source namespace's: `true` means it as well.
pub(crate) async fn a_secret_sync_in_the_source_namespace_needs_no_other_consent(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.consenting(&["asks"]).await?;
    world.within(HOME).create(secret("token", "1")).await?;
    let running = world.start().await?;
    world.sync(HOME, "shared", json!({ "names": ["token"] })).await?;
    world.copied("asks", "token", "1").await?;
    world.within(HOME).delete::<SecretSync>("shared").await?;
    world.within("asks").wait_gone::<Secret>("token").await?;
    running.stop().await
}
