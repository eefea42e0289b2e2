//! The namespace controller: deletes the content of terminating namespaces, reports progress in their conditions, and
//! removes their finalizer.
//!
//! While content remains (an object with a finalizer, a pod on an unreachable node), it retries with growing delays.

mod conditions;
mod content;

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus, Pod};
use kube::{
    Api, ResourceExt,
    api::{PostParams, Request as ApiRequest},
};
use tokio::time::Instant;
use windlass_cache::{ObjectKey, Query};
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, Predicate, Reconciler, Request, Watch,
};

use self::{conditions::DeletionResult, content::DeletionAttempt};
use super::{FIELD_MANAGER, Settings};

/// How many namespaces are processed concurrently, as in Kubernetes.
const WORKERS: NonZeroUsize = NonZeroUsize::new(10).expect("not zero");

/// The finalizer of this controller, in a namespace's spec.
const FINALIZER: &str = "kubernetes";

/// The initial delay, in which other API servers of a real control plane observe the deletion.
const INITIAL_DELAY: Duration = Duration::from_secs(5);

/// The first and the longest delay after failures.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_mins(1));

/// The first delay for remaining content in an instant cluster.
const INSTANT_DELAY: Duration = Duration::from_millis(100);

pub(super) fn add(manager: Manager, settings: &Settings) -> Manager {
    let emptying = NamespaceController {
        settings: settings.clone(),
        pending: Mutex::default(),
    };
    // Only deletions of pods matter: the deleted pod may be the last one that a namespace waits for.
    let pods = Watch::<Pod>::new()
        .mapped(|pod| {
            let namespace = pod.metadata.namespace.as_deref();
            namespace.map(ObjectKey::cluster_scoped).into_iter().collect()
        })
        .filter(Predicate::new(|_, _| false));
    let namespaces = Watch::<Namespace>::new().filter(Predicate::new(|_, new| new.meta().is_deleting()));
    let controller = Controller::from_watch("namespace", namespaces)
        .watch(pods)
        .field_manager(FIELD_MANAGER)
        .concurrency(WORKERS)
        .reconcile(emptying);
    manager.controller(controller)
}

struct NamespaceController {
    settings: Settings,
    /// The terminating namespaces. Never locked across an await.
    pending: Mutex<HashMap<ObjectKey, PendingDeletion>>,
}

/// When a namespace is processed next.
struct PendingDeletion {
    uid: Option<String>,
    due: Instant,
    tries: u32,
    /// Only pods remain.
    for_pods: bool,
}

impl Reconciler for NamespaceController {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = request.key;
        let known = ctx.lister::<Namespace>()?.get(&key);
        let Some(known) = known.filter(|namespace| is_ours(namespace)) else {
            self.lock_pending().remove(&key);
            return Ok(Action::done());
        };
        if let Some(rest) = self.time_left(&key, &known, &ctx)? {
            return Ok(Action::requeue_after(rest));
        }
        let api = Api::<Namespace>::all(ctx.client().clone());
        let Some(namespace) = api.get_opt(key.name()).await?.filter(is_ours) else {
            self.lock_pending().remove(&key);
            return Ok(Action::done());
        };
        let age = namespace
            .metadata
            .deletion_timestamp
            .as_ref()
            .map_or(0, |at| Clock::system().now().as_second() - at.0.as_second());
        let age = Duration::from_secs(u64::try_from(age).unwrap_or(0));
        let emptied = content::delete_all(ctx.client(), key.name(), age).await;
        let DeletionAttempt {
            result,
            estimate,
            pods_left,
        } = emptied;
        let namespace = self.write_conditions(&api, namespace, &result).await?;
        if result.is_failure() {
            tracing::debug!(namespace = %key, ?result, "cannot delete the content of the namespace");
            let time = |tries| exponential(RETRY_DELAYS.0, tries).min(RETRY_DELAYS.1);
            return Ok(self.schedule(&key, time, pods_left));
        }
        if estimate.is_zero() {
            finalize(&ctx, namespace).await?;
            self.lock_pending().remove(&key);
            return Ok(Action::done());
        }
        Ok(self.schedule(&key, |tries| self.content_delay(estimate, tries), pods_left))
    }
}

impl NamespaceController {
    fn lock_pending(&self) -> MutexGuard<'_, HashMap<ObjectKey, PendingDeletion>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the remaining delay. Needed because updates of the namespace's own conditions trigger reconciles too.
    fn time_left(
        &self,
        key: &ObjectKey,
        known: &Namespace,
        ctx: &Context,
    ) -> Result<Option<Duration>, Error> {
        let now = Instant::now();
        let mut pending = self.lock_pending();
        let wait = pending.entry(key.clone()).or_insert_with(|| PendingDeletion {
            uid: None,
            due: now,
            tries: 0,
            for_pods: false,
        });
        if wait.uid != known.metadata.uid {
            *wait = PendingDeletion {
                uid: known.metadata.uid.clone(),
                due: now + self.settings.scale_work(INITIAL_DELAY),
                tries: 0,
                for_pods: false,
            };
        }
        let rest = wait.due.saturating_duration_since(now);
        if rest.is_zero() {
            return Ok(None);
        }
        if wait.for_pods {
            let any = Query::all().namespace(key.name()).limit(1);
            if ctx.lister::<Pod>()?.list_cached(&any).is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(rest))
    }

    fn schedule(&self, key: &ObjectKey, time: impl FnOnce(u32) -> Duration, for_pods: bool) -> Action {
        let mut pending = self.lock_pending();
        let Some(wait) = pending.get_mut(key) else {
            return Action::done();
        };
        let time = time(wait.tries);
        wait.due = Instant::now() + time;
        wait.tries = wait.tries.saturating_add(1);
        wait.for_pods = for_pods;
        Action::requeue_after(time)
    }

    /// Returns the delay for content with this estimate. In an instant cluster it starts short and grows.
    fn content_delay(&self, estimate: Duration, tries: u32) -> Duration {
        let real = Duration::from_secs(estimate.as_secs() / 2 + 1);
        exponential(INSTANT_DELAY, tries)
            .max(self.settings.scale_work(real))
            .min(real)
    }

    /// Writes the conditions if they have changed.
    async fn write_conditions(
        &self,
        api: &Api<Namespace>,
        mut namespace: Namespace,
        result: &DeletionResult,
    ) -> Result<Namespace, Error> {
        let status = namespace.status.get_or_insert_with(NamespaceStatus::default);
        let before = status.conditions.as_deref().unwrap_or_default();
        let updated = result.update_conditions(before, Clock::system().now());
        if updated.is_none() && status.phase.as_deref() == Some("Terminating") {
            return Ok(namespace);
        }
        if updated.is_some() {
            status.conditions = updated;
        }
        status.phase = Some("Terminating".to_owned());
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let name = namespace.name_any();
        Ok(api.replace_status(&name, &params, &namespace).await?)
    }
}

/// Whether the namespace is terminating and has this controller's finalizer.
fn is_ours(namespace: &Namespace) -> bool {
    let finalizers = namespace
        .spec
        .as_ref()
        .and_then(|spec| spec.finalizers.as_deref());
    namespace.metadata.deletion_timestamp.is_some()
        && finalizers.is_some_and(|finalizers| finalizers.iter().any(|one| one == FINALIZER))
}

fn exponential(first: Duration, tries: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(tries.min(20)))
}

/// Removes this controller's finalizer from the namespace.
async fn finalize(ctx: &Context, mut namespace: Namespace) -> Result<(), Error> {
    if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    let name = namespace.name_any();
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let request = ApiRequest::new("/api/v1/namespaces").replace_subresource(
        "finalize",
        &name,
        &params,
        serde_json::to_vec(&namespace)?,
    );
    let request = request.map_err(kube::Error::BuildRequest)?;
    match ctx.client().request::<Namespace>(request).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => {
            other?;
            Ok(())
        }
    }
}
