//! From arguments to a manager that does it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use windlass::{
    prelude::{Client, Controller, Manager},
    runtime::names::check_label_key,
    workqueue::Exponential,
};

use crate::{
    api::{ADOPT, ADOPTED, DELETION_POLICY, HASH, SOURCE, SOURCE_UID, SYNCED_BY},
    arguments::Arguments,
    consent::is_namespace_name,
    engine::{Engine, Engineer},
    figures::{self, Figures},
    follow::follow,
    grip::FIELD_MANAGER,
    roster::{Limits, Scope},
};

/// How long a piece of work waits after its first failure, and at most.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_mins(5);
const JITTER: f64 = 0.2;

/// Why it cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A flag that cannot be meant.
    #[error("`{flag} {value}`: {message}")]
    Flag {
        /// Which flag.
        flag: &'static str,
        /// What was given.
        value: String,
        /// Why it cannot be meant.
        message: String,
    },
}

/// Adds to a manager what copies Secrets and ConfigMaps.
///
/// `namespaces` are those that the manager was given, if any: then only they are targets and sources. Nothing happens before the
/// manager runs. The CRD of [`SecretSync`](crate::SecretSync) must be there, or come: give it to
/// [`Options::install`](windlass::prelude::Options::install).
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
#[allow(clippy::unused_async, reason = "the shape that every operator's setup has")]
pub async fn setup(
    manager: Manager,
    _client: &Client,
    namespaces: &[String],
    arguments: &Arguments,
) -> Result<Manager, SetupError> {
    check(arguments)?;
    let scope = Scope {
        source_namespace: arguments.source_namespace.as_str().into(),
        annotation: arguments.annotation.as_str().into(),
        allowed: arguments.allowed_namespaces.iter().cloned().collect(),
        within: namespaces.iter().cloned().collect(),
        limits: Limits {
            sources: arguments.max_sources.get(),
            copies: arguments.max_copies.get(),
            content: arguments.max_content_mib.get().saturating_mul(1 << 20),
        },
    };
    let engine = Arc::new(Engine::new(scope, Figures::new()));
    figures::show(&manager.metrics(), &engine);
    let fed = Arc::clone(&engine);
    let controller = Controller::keyed("secretsync")
        .component(FIELD_MANAGER)
        .concurrency(arguments.writers)
        // Each piece of work waits for itself alone: a bucket for all would make one bad namespace everybody's.
        .rate_limiter(Exponential::new(FIRST_RETRY, LAST_RETRY).jitter(JITTER))
        .fed_by(move |feed| follow(fed, feed))
        .reconcile(Engineer(Arc::clone(&engine)));
    let (watched, limit) = (Arc::clone(&engine), Duration::from_secs(arguments.stall_seconds));
    let leading = Arc::clone(&engine);
    Ok(manager
        .controller(controller)
        .leader_task("secretsync-term", move |ctx| {
            let engine = Arc::clone(&leading);
            async move {
                engine.ledger.lock().start();
                engine.leads.store(true, Ordering::Relaxed);
                ctx.stopping().await;
                engine.leads.store(false, Ordering::Relaxed);
                Ok(())
            }
        })
        .check_health("secretsync-stall", move || {
            let found = figures::check_progress(&watched, limit).map_err(Into::into);
            std::future::ready(found)
        }))
}

/// Whether the flags can be meant.
fn check(arguments: &Arguments) -> Result<(), SetupError> {
    let wrong = |flag, value: &str, message: &str| {
        Err(SetupError::Flag {
            flag,
            value: value.to_owned(),
            message: message.to_owned(),
        })
    };
    let allowed = arguments
        .allowed_namespaces
        .iter()
        .map(|name| ("--allow-namespace", name));
    for (flag, name) in allowed.chain([("--source-namespace", &arguments.source_namespace)]) {
        if !is_namespace_name(name) {
            return wrong(flag, name, "that is no name of a namespace");
        }
    }
    let name = arguments.annotation.as_str();
    let is_ours = [
        ADOPT,
        ADOPTED,
        SOURCE,
        SOURCE_UID,
        SYNCED_BY,
        HASH,
        DELETION_POLICY,
    ]
    .contains(&name);
    if is_ours {
        return wrong(
            "--annotation",
            name,
            "copies are marked with that; use another name",
        );
    }
    if check_label_key(name).is_err() {
        return wrong(
            "--annotation",
            name,
            "use a name as annotations have it, like `example.com/sync`",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_cannot_be_meant_are_refused() {
        let checked = |change: fn(&mut Arguments)| {
            let mut arguments = Arguments::default();
            change(&mut arguments);
            check(&arguments).map_err(|error| error.to_string())
        };
        assert_eq!(checked(|_| ()), Ok(()));
        assert_eq!(
            checked(|arguments| arguments.annotation = "eightypercent.net/secretsync".to_owned()),
            Ok(())
        );
        for (change, said) in [
            (
                (|arguments| arguments.source_namespace = "Home".to_owned()) as fn(&mut Arguments),
                "--source-namespace Home",
            ),
            (
                |arguments| arguments.allowed_namespaces.push("kube-*".to_owned()),
                "--allow-namespace kube-*",
            ),
            (
                |arguments| arguments.annotation = HASH.to_owned(),
                "copies are marked with that",
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
            let error = checked(change).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }
}
