//! Adds the controller to a manager.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use windlass::{
    api::naming::{check_label_key, is_dns_label},
    prelude::{Client, Controller, Manager},
    workqueue::Exponential,
};

use crate::{
    api::{
        ADOPT_ANNOTATION, ADOPTED_ANNOTATION, DELETION_POLICY_ANNOTATION, HASH_ANNOTATION, SOURCE_ANNOTATION,
        SOURCE_UID_LABEL, SYNCED_BY_ANNOTATION,
    },
    arguments::Arguments,
    engine::{Engine, SyncReconciler},
    field_ownership::FIELD_MANAGER,
    metrics::{self, SyncMetrics},
    sync_index::{Limits, OperatorConfig},
    watches::run_watches,
};

/// Delay after the first failure of a queue key, and the maximum.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_mins(5);
const JITTER: f64 = 0.2;

/// Why the controller cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A flag has an invalid value.
    #[error("invalid flag `{flag} {value}`: {message}")]
    InvalidFlag {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        message: String,
    },
}

/// Adds the controller that copies Secrets and ConfigMaps to a manager.
///
/// `namespaces` are those that the manager is restricted to, if any: only they are targets and sources. Nothing
/// happens before the manager runs. The CRD of [`SecretSync`](crate::SecretSync) must exist or be installed later;
/// pass it to [`Options::install`](windlass::prelude::Options::install).
///
/// ```no_run
/// use windlass::prelude::*;
/// use windlass_secretsync::{Arguments, SecretSync, setup};
///
/// # async fn example(client: Client, options: Options) -> Result<(), Error> {
/// let manager = Manager::new(client.clone()).install(options.install([SecretSync::crd()]));
/// setup(manager, &client, &[], &Arguments::default()).await?.run().await?;
/// # Ok(()) }
/// ```
#[allow(
    clippy::unused_async,
    reason = "all operators' setups have the same signature"
)]
pub async fn setup(
    manager: Manager,
    _client: &Client,
    namespaces: &[String],
    arguments: &Arguments,
) -> Result<Manager, SetupError> {
    validate(arguments)?;
    let scope = OperatorConfig {
        source_namespace: arguments.source_namespace.as_str().into(),
        annotation: arguments.annotation.as_str().into(),
        allowed_system_namespaces: arguments.allowed_system_namespaces.iter().cloned().collect(),
        restricted_to: namespaces.iter().cloned().collect(),
        limits: Limits {
            sources: arguments.max_sources.get(),
            copies: arguments.max_copies.get(),
            content: arguments.max_content_mib.get().saturating_mul(1 << 20),
            removal_percent: arguments.confirm_removals_over.into(),
        },
    };
    let engine = Arc::new(Engine::new(scope, SyncMetrics::new()));
    metrics::register(&manager.metrics(), &engine);
    let watching = Arc::clone(&engine);
    let controller = Controller::keyed("secretsync")
        .field_manager(FIELD_MANAGER)
        .concurrency(arguments.writers)
        // No shared token bucket: one failing namespace would delay all others.
        .rate_limiter(Exponential::new(MIN_BACKOFF, MAX_BACKOFF).jitter(JITTER))
        .source(move |source| run_watches(watching, source))
        .reconcile(SyncReconciler(Arc::clone(&engine)));
    let (watched, limit) = (Arc::clone(&engine), Duration::from_secs(arguments.stall_seconds));
    let leading = Arc::clone(&engine);
    Ok(manager
        .controller(controller)
        .leader_task("secretsync-term", move |ctx| {
            let engine = Arc::clone(&leading);
            async move {
                engine.tracker.lock().start();
                engine.is_leader.store(true, Ordering::Relaxed);
                let recorder = ctx.recorder().source(FIELD_MANAGER);
                tokio::select! {
                    () = ctx.stopping() => {}
                    () = engine.action_events.run(&recorder) => {}
                    () = engine.failure_events.run(&recorder) => {}
                }
                engine.action_events.clear();
                engine.failure_events.clear();
                // The next leader decides; a later term of this process begins with what that has written.
                engine.removals.clear();
                engine.is_leader.store(false, Ordering::Relaxed);
                Ok(())
            }
        })
        .check_health("secretsync-stall", move || {
            let found = metrics::check_progress(&watched, limit).map_err(Into::into);
            std::future::ready(found)
        }))
}

/// Validates the flags.
fn validate(arguments: &Arguments) -> Result<(), SetupError> {
    let wrong = |flag, value: &str, message: &str| {
        Err(SetupError::InvalidFlag {
            flag,
            value: value.to_owned(),
            message: message.to_owned(),
        })
    };
    let allowed = arguments
        .allowed_system_namespaces
        .iter()
        .map(|name| ("--allow-system-namespace", name));
    for (flag, name) in allowed.chain([("--source-namespace", &arguments.source_namespace)]) {
        if !is_dns_label(name) {
            return wrong(flag, name, "not a valid namespace name");
        }
    }
    let name = arguments.annotation.as_str();
    let is_ours = [
        ADOPT_ANNOTATION,
        ADOPTED_ANNOTATION,
        SOURCE_ANNOTATION,
        SOURCE_UID_LABEL,
        SYNCED_BY_ANNOTATION,
        HASH_ANNOTATION,
        DELETION_POLICY_ANNOTATION,
    ]
    .contains(&name);
    if is_ours {
        return wrong(
            "--annotation",
            name,
            "this annotation is reserved for copies; use another name",
        );
    }
    if check_label_key(name).is_err() {
        return wrong(
            "--annotation",
            name,
            "not a valid annotation key; use one like `example.com/sync`",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_flags_are_rejected() {
        let checked = |change: fn(&mut Arguments)| {
            let mut arguments = Arguments::default();
            change(&mut arguments);
            validate(&arguments).map_err(|error| error.to_string())
        };
        assert_eq!(checked(|_| ()), Ok(()));
        assert_eq!(
            checked(|arguments| arguments.annotation = "eightypercent.net/secretsync".to_owned()),
            Ok(())
        );
        for (change, expected) in [
            (
                (|arguments| arguments.source_namespace = "Home".to_owned()) as fn(&mut Arguments),
                "--source-namespace Home",
            ),
            (
                |arguments| arguments.allowed_system_namespaces.push("kube-*".to_owned()),
                "--allow-system-namespace kube-*",
            ),
            (
                |arguments| arguments.annotation = HASH_ANNOTATION.to_owned(),
                "reserved for copies",
            ),
            (
                |arguments| arguments.annotation = "a b".to_owned(),
                "--annotation a b",
            ),
            (
                |arguments| arguments.annotation = "example.com/".to_owned(),
                "--annotation example.com/",
            ),
        ] {
            let error = checked(change).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}
