//! Both sides consent, or nothing is written.

use windlass::{
    k8s_openapi::api::core::v1::{Event, Secret},
    prelude::*,
};
use windlass_secretsync::{SecretSync, SecretSyncStatus, SyncFailure, api::SYNC_ANNOTATION};
use windlass_suite::Context as Case;

use crate::secretsync::test_cluster::{HOME, TestCluster, condition, consent, secret};

/// What each consent allows: (value of the annotation, copies from the source namespace, copies from team-a).
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

pub(crate) async fn namespace_gets_copies_only_from_namespaces_it_names(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    let mut wrong = Vec::new();
    for (name, value, ..) in CONSENTS {
        let namespace = env.namespace(name, consent(value)).await?;
        if ["no-name", "pattern"].contains(name) {
            wrong.push(namespace);
        }
    }
    env.source("from-home", "1").await?;
    env.in_namespace("team-a").create(secret("from-a", "1")).await?;
    // The annotation has no effect outside of the source namespace.
    let mut stray = secret("stray", "1");
    stray
        .annotations_mut()
        .insert(SYNC_ANNOTATION.to_owned(), "true".to_owned());
    env.in_namespace("team-a").create(stray).await?;
    let running = env.start().await?;
    env.sync(
        "team-a",
        "everywhere",
        json!({ "names": ["from-a"], "namespaceSelector": {} }),
    )
    .await?;
    for (namespace, _, home, team) in CONSENTS {
        if *home {
            env.wait_for_copy(namespace, "from-home", "1").await?;
        }
        if *team {
            env.wait_for_copy(namespace, "from-a", "1").await?;
        }
    }
    env.settle().await;
    for (namespace, value, home, team) in CONSENTS {
        let mut expected = Vec::new();
        expected.extend(team.then_some("from-a"));
        expected.extend(home.then_some("from-home"));
        assert_eq!(env.names::<Secret>(namespace).await?, expected, "`{value}`");
    }
    assert_eq!(
        env.names::<Secret>(HOME).await?,
        ["from-home"],
        "not a target of its own"
    );
    assert_eq!(env.names::<Secret>("team-a").await?, ["from-a", "stray"]);
    // Invalid consent is reported as an event on the namespace; such events are in `default`.
    for namespace in wrong {
        let warned = |event: &Event| event.type_.as_deref() == Some("Warning");
        env.in_namespace("default")
            .wait_for_event(&namespace, warned)
            .await?;
    }
    running.stop().await
}

/// A value that looks like a mistake neither consents nor withdraws: the copies stay as they are, also after a restart,
/// and all sides see it. Only an unmistakable value removes them.
pub(crate) async fn mistaken_consent_withdraws_nothing(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    let asks = env.namespace("asks", consent("secretsync,team-a")).await?;
    env.source("from-home", "1").await?;
    env.in_namespace("team-a").create(secret("from-a", "1")).await?;
    let mut running = env.start().await?;
    let sync = env
        .sync("team-a", "shared", json!({ "names": ["from-a"] }))
        .await?;
    env.wait_for_copy("asks", "from-home", "1").await?;
    env.wait_for_copy("asks", "from-a", "1").await?;
    env.settle().await;
    env.proxy().clear();
    for value in [
        "true,team-a",
        "no",
        "False",
        "team-a;secretsync",
        "*,team-a",
        "enable",
        "ture",
        "secretsnyc",
    ] {
        env.patch_namespace("asks", consent(value)).await?;
        env.settle().await;
        running.stop().await?;
        running = env.start().await?;
        env.settle().await;
        assert_eq!(env.copy_writes(), [""; 0], "`{value}`");
    }
    env.patch_namespace("asks", consent("*,team-a")).await?;
    let is_stale = |status: &SecretSyncStatus| {
        let invalid =
            |failure: &SyncFailure| failure.reason == "InvalidConsent" && failure.namespace == "asks";
        condition(status, "Ready", "False") && status.failures.iter().any(invalid)
    };
    let observed = env.wait_for_status("team-a", "shared", is_stale).await?;
    // Its owner learns nothing about the namespaces that the target names.
    assert!(
        !serde_json::to_string(&observed.status)?.contains("*,"),
        "{observed:?}"
    );
    let invalid = |event: &Event| event.reason.as_deref() == Some("InvalidConsent");
    env.in_namespace("team-a").wait_for_event(&sync, invalid).await?;
    // There are events about the earlier values, too.
    let about_the_last = |event: &Event| {
        invalid(event)
            && event
                .message
                .as_deref()
                .is_some_and(|message| message.contains("use `true`"))
    };
    env.in_namespace("default")
        .wait_for_event(&asks, about_the_last)
        .await?;
    // A changed source does not get into a namespace whose consent is not clear.
    let changed = json!({ "data": secret("from-a", "2").data });
    env.in_namespace("team-a")
        .patch::<Secret>("from-a", changed)
        .await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    // Both ways out.
    env.patch_namespace("asks", consent("team-a")).await?;
    env.wait_for_copy("asks", "from-a", "2").await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("from-home")
        .await?;
    env.patch_namespace("asks", consent("none")).await?;
    env.settle().await;
    env.patch_namespace("asks", consent("false")).await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("from-a")
        .await?;
    running.stop().await
}

/// A valid name that no namespace has is a mistake, and one that another namespace has is not: it withdraws the consent as soon as
/// that namespace exists. What is named besides is copied.
pub(crate) async fn name_of_no_namespace_withdraws_nothing_until_it_exists(case: Case) -> anyhow::Result<()> {
    let (env, running) = TestCluster::in_sync(&case).await?;
    env.source("other", "1").await?;
    env.wait_for_copy("asks", "other", "1").await?;
    env.settle().await;
    env.proxy().clear();
    let asks = env.patch_namespace("asks", consent("secretsync,team-d")).await?;
    let unknown = |event: &Event| {
        let message = event.message.as_deref().unwrap_or_default();
        event.reason.as_deref() == Some("InvalidConsent") && message.contains("no namespace `team-d`")
    };
    env.in_namespace("default").wait_for_event(&asks, unknown).await?;
    let changed = json!({ "data": secret("other", "2").data });
    env.in_namespace(HOME).patch::<Secret>("other", changed).await?;
    env.wait_for_copy("asks", "other", "2").await?;
    env.settle().await;
    env.proxy().clear();
    env.patch_namespace("asks", consent("team-d")).await?;
    env.wait_for_status(HOME, "secret.token", |status| {
        status
            .failures
            .iter()
            .any(|failure| failure.reason == "InvalidConsent")
    })
    .await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    env.namespace("team-d", json!({})).await?;
    for name in ["token", "other"] {
        env.in_namespace("asks")
            .wait_until_deleted::<Secret>(name)
            .await?;
    }
    env.wait_for_status(HOME, "secret.token", |status| condition(status, "Ready", "True"))
        .await?;
    running.stop().await
}

/// A deleted source takes its copies along, also where the consent is invalid at that time.
pub(crate) async fn source_deleted_during_an_invalid_consent_takes_its_copy_along(
    case: Case,
) -> anyhow::Result<()> {
    let (env, running) = TestCluster::in_sync(&case).await?;
    env.patch_namespace("asks", consent("no")).await?;
    env.settle().await;
    env.in_namespace(HOME).delete::<Secret>("token").await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("token")
        .await?;
    running.stop().await
}

/// `no` on a source is taken for a mistake: nothing is copied because of it, and nothing is removed.
pub(crate) async fn negated_annotation_of_a_source_copies_and_removes_nothing(
    case: Case,
) -> anyhow::Result<()> {
    let (env, mut running) = TestCluster::in_sync(&case).await?;
    let home = env.in_namespace(HOME);
    env.proxy().clear();
    for value in ["no", "False", "OFF", "0", "disabled"] {
        let name = format!("not-{}", value.to_lowercase());
        let mut source = secret(&name, "1");
        source
            .annotations_mut()
            .insert(SYNC_ANNOTATION.to_owned(), value.to_owned());
        let source = home.create(source).await?;
        let token = home
            .patch::<Secret>("token", json!({ "metadata": consent(value) }))
            .await?;
        env.settle().await;
        running.stop().await?;
        running = env.start().await?;
        env.settle().await;
        assert_eq!(env.copy_writes(), [""; 0], "`{value}`");
        let invalid = |event: &Event| {
            let message = event.message.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some("InvalidAnnotation")
                && message.contains(&format!("`{value}`"))
                && message.contains("`false`")
        };
        for source in [&source, &token] {
            home.wait_for_event(source, invalid).await?;
        }
        env.wait_for_status(HOME, &format!("secret.{name}"), |status| {
            condition(status, "Ready", "False")
        })
        .await?;
    }
    // Both ways out.
    home.patch::<Secret>("not-no", json!({ "metadata": consent("yes") }))
        .await?;
    env.wait_for_copy("asks", "not-no", "1").await?;
    home.patch::<Secret>("token", json!({ "metadata": consent("false") }))
        .await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("token")
        .await?;
    running.stop().await
}

/// Neither a Secret, nor a SecretSync, nor any selector of a tenant reaches a namespace that does not name it.
pub(crate) async fn tenant_cannot_reach_other_tenants_or_system_namespaces(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("mallory", consent("*")).await?;
    env.namespace("silent", json!({})).await?;
    env.consenting(&["trusting"]).await?;
    for system in ["kube-system", "kube-public", "kube-node-lease"] {
        // Consent alone is not enough for a system namespace.
        env.patch_namespace(system, consent("*")).await?;
    }
    let before = env.names::<Secret>("kube-system").await?;
    let mut evil = secret("evil", "1");
    evil.metadata.annotations = Some(
        [
            (SYNC_ANNOTATION, "*"),
            ("replicator.v1.mittwald.de/replicate-to", ".*"),
            ("reflector.v1.k8s.emberstack.com/reflection-auto-enabled", "true"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
    );
    env.in_namespace("mallory").create(evil).await?;
    let running = env.start().await?;
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
        env.sync("mallory", name, spec).await?;
    }
    for name in ["all", "system", "silent"] {
        let observed = env
            .wait_for_status("mallory", name, |status| status.observed_generation.is_some())
            .await?;
        let status = observed.status.clone().unwrap_or_default();
        assert_eq!((status.targets, status.namespaces), (0, 0), "{name}");
    }
    env.settle().await;
    assert_eq!(env.copy_writes(), [""; 0]);
    assert_eq!(env.names::<Secret>("kube-system").await?, before);
    running.stop().await
}

/// With the administrator's flag and its own consent, it is a target like any other.
pub(crate) async fn allowed_system_namespace_still_has_to_consent(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?.with_arguments(|arguments| {
        arguments.allowed_system_namespaces = vec!["kube-system".to_owned(), "kube-public".to_owned()];
    });
    env.patch_namespace("kube-system", consent("true")).await?;
    env.patch_namespace("kube-node-lease", consent("true")).await?;
    env.source("token", "1").await?;
    let running = env.start().await?;
    env.wait_for_copy("kube-system", "token", "1").await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), ["create kube-system/token"]);
    running.stop().await
}

/// The administrator can choose the annotation and the source namespace.
pub(crate) async fn annotation_and_source_namespace_are_configurable(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?.with_arguments(|arguments| {
        "eightypercent.net/secretsync".clone_into(&mut arguments.annotation);
        "vault".clone_into(&mut arguments.source_namespace);
    });
    env.namespace("vault", json!({})).await?;
    let asks = json!({ "annotations": { "eightypercent.net/secretsync": "" } });
    env.namespace("asks", asks).await?;
    env.consenting(&["asks-otherwise"]).await?;
    let mut source = secret("token", "1");
    source
        .annotations_mut()
        .insert("eightypercent.net/secretsync".to_owned(), String::new());
    env.in_namespace("vault").create(source).await?;
    env.source("elsewhere", "1").await?;
    let running = env.start().await?;
    env.wait_for_copy("asks", "token", "1").await?;
    env.settle().await;
    assert_eq!(env.copy_writes(), ["create asks/token"]);
    running.stop().await
}

/// Copies from another source namespace belong to the process that is responsible for it.
pub(crate) async fn copies_from_another_source_namespace_are_ignored(case: Case) -> anyhow::Result<()> {
    let (env, running) = TestCluster::in_sync(&case).await?;
    running.stop().await?;
    let before = env.bytes("asks", "token").await?;
    let other = env.another_process().with_arguments(|arguments| {
        "vault".clone_into(&mut arguments.source_namespace);
    });
    other.namespace("vault", json!({})).await?;
    let running = other.start().await?;
    let mut source = secret("other", "1");
    source
        .annotations_mut()
        .insert(SYNC_ANNOTATION.to_owned(), String::new());
    other.in_namespace("vault").create(source).await?;
    other.wait_for_copy("asks", "other", "1").await?;
    other.settle().await;
    assert_eq!(env.bytes("asks", "token").await?, before);
    running.stop().await
}

/// A SecretSync in the source namespace is covered by `true` as well.
pub(crate) async fn consent_to_the_source_namespace_covers_its_secret_syncs(
    case: Case,
) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["asks"]).await?;
    env.in_namespace(HOME).create(secret("token", "1")).await?;
    let running = env.start().await?;
    env.sync(HOME, "shared", json!({ "names": ["token"] })).await?;
    env.wait_for_copy("asks", "token", "1").await?;
    env.in_namespace(HOME).delete::<SecretSync>("shared").await?;
    env.in_namespace("asks")
        .wait_until_deleted::<Secret>("token")
        .await?;
    running.stop().await
}
