//! Reconciles one sync in one namespace: removes unwanted copies, then creates and updates the others.
//!
//! ```text
//!   Plan (desired) ──────────┐
//!                            ├─► prune unwanted copies ─► reconcile each copy ─► NamespaceResult
//!   CopyMetadata (existing) ─┘
//! ```
//!
//! It is level-triggered, so it can stop anywhere and run again. A copy that cannot be written does not stop the
//! others.

use std::{sync::Arc, time::Duration};

use windlass::prelude::{Action, Context, Error, ObjectKey};

use crate::{
    api::SourceKind,
    copy_metadata::CopyMetadata,
    copy_reconciler::{CopyOutcome, CopyReconciler, RetryPolicy, request_failure},
    engine::Engine,
    identity::{Job, SyncId},
    plan::{ActiveSync, Plan},
    work_tracker::{CopyFailure, NamespaceResult},
};

/// How often to check whether a conflicting object still exists, since it is not watched.
///
/// With many conflicts at most one check per second, and each object at least every ten minutes.
const MIN_CONFLICT_POLL: Duration = Duration::from_secs(30);
const MAX_CONFLICT_POLL: Duration = Duration::from_mins(10);

fn conflict_poll_interval(conflicts: u32) -> Duration {
    Duration::from_secs(conflicts.into()).clamp(MIN_CONFLICT_POLL, MAX_CONFLICT_POLL)
}

impl Engine {
    /// Reconciles the copies of a sync in a namespace.
    pub(crate) async fn sync_namespace(
        &self,
        sync: &SyncId,
        namespace: &Arc<str>,
        ctx: &Context<Job>,
    ) -> Result<Action, Error> {
        let began = self.tracker.lock().begin(sync, namespace);
        let (mut plan, annotation) = {
            let index = self.index.read();
            (index.plan(sync, namespace), Arc::clone(&index.config.annotation))
        };
        if matches!(plan, Plan::Wait) {
            // The plan may have changed since: it is computed again while the waiting namespace is registered.
            plan = self.index.write().plan_or_register(sync, namespace);
        }
        let desired = match plan {
            Plan::Sync(desired) => desired,
            Plan::NamespaceGone => {
                self.record_result(
                    sync,
                    namespace,
                    began,
                    Some(NamespaceResult::default()),
                    None,
                    ctx,
                );
                return Ok(Action::done());
            }
            Plan::Wait => {
                self.record_result(sync, namespace, began, None, None, ctx);
                return Ok(Action::done());
            }
        };
        let copy_reconciler = CopyReconciler {
            engine: self,
            client: ctx.client(),
            namespace,
            annotation,
        };
        let mut result = NamespaceResult::default();
        let mut again = RetryPolicy::Never;
        let mut note = |result: &mut NamespaceResult, failure: CopyFailure, how: RetryPolicy| {
            again = match (again, how) {
                (RetryPolicy::Backoff, _) | (_, RetryPolicy::Backoff) => RetryPolicy::Backoff,
                (RetryPolicy::Poll, _) | (_, RetryPolicy::Poll) => RetryPolicy::Poll,
                (RetryPolicy::Never, RetryPolicy::Never) => RetryPolicy::Never,
            };
            result.add_failure(failure);
        };
        for (kind, name, copy) in self.copies_of(sync, namespace) {
            if let Err(failure) = copy_reconciler.prune(&desired, kind, &name, &copy).await {
                note(
                    &mut result,
                    request_failure(&name, &failure),
                    RetryPolicy::Backoff,
                );
            }
        }
        let is_over = desired.sync.as_ref().is_some_and(|live| live.exceeds_limits);
        if let Some(live) = desired.sync.as_ref().filter(|live| !live.exceeds_limits) {
            for wanted_copy in &desired.wanted {
                if ctx.is_stopping() {
                    return Err("interrupted by shutdown".into());
                }
                let outcome = copy_reconciler.reconcile(live, wanted_copy).await;
                if !matches!(outcome, CopyOutcome::Excluded) {
                    result.targets += 1;
                }
                match outcome {
                    CopyOutcome::Synced => result.synced += 1,
                    CopyOutcome::Excluded => result.excluded += 1,
                    CopyOutcome::Pending => {}
                    CopyOutcome::Failed(failure, how) => note(&mut result, failure, how),
                }
            }
        }
        let worst = result.failures.first().cloned();
        let conflicts = result.conflicts;
        // If nothing was checked, the previous result stays.
        let is_known = !is_over || desired.wanted.is_empty() || worst.is_some();
        self.record_result(
            sync,
            namespace,
            began,
            is_known.then_some(result),
            desired.sync.as_ref(),
            ctx,
        );
        match (again, worst) {
            (RetryPolicy::Backoff, Some(CopyFailure { name, message, .. })) => {
                Err(format!("cannot copy {name} into {namespace}: {message}").into())
            }
            (RetryPolicy::Poll, _) => Ok(Action::requeue_after(conflict_poll_interval(conflicts))),
            _ => Ok(Action::done()),
        }
    }

    /// Records the result, and records events for new failures.
    fn record_result(
        &self,
        sync: &SyncId,
        namespace: &Arc<str>,
        began: u32,
        found: Option<NamespaceResult>,
        live: Option<&ActiveSync>,
        ctx: &Context<Job>,
    ) {
        let settled = self.tracker.lock().finish(sync, namespace, began, found);
        if let Some(lag) = settled.propagation {
            self.metrics.propagation.observe(lag);
        }
        for failure in &settled.new_failures {
            if failure.is_conflict {
                self.metrics.record_conflict();
            }
            if let Some(live) = live {
                let message = format!("{namespace}/{}: {}", failure.name, failure.message);
                ctx.recorder().warning(&live.reference, &failure.reason, message);
            }
        }
        // While many copies are being written, the status is updated from time to time.
        if settled.is_idle || self.is_status_write_due(sync) {
            self.enqueue_status(sync);
        }
        if settled.is_idle && self.index.read().sync(sync).is_none() {
            self.tracker.lock().forget(sync);
        }
    }

    fn copies_of(&self, sync: &SyncId, namespace: &str) -> Vec<(SourceKind, Arc<str>, Arc<CopyMetadata>)> {
        let listers = self.listers();
        let is_of = |kind, name: &str, copy: &CopyMetadata| {
            self.sync_of_copy(kind, name, copy).as_ref() == Some(sync)
        };
        match sync {
            // It has at most one: a copy has the name of its source.
            SyncId::Annotated { kind, name } => {
                let key = ObjectKey::namespaced(namespace, &**name);
                let found = listers.copies(*kind).get(&key);
                let own = found.filter(|copy| is_of(*kind, name, copy));
                own.into_iter()
                    .map(|copy| (*kind, Arc::clone(name), copy))
                    .collect()
            }
            SyncId::Declared {
                namespace: home,
                name,
            } => {
                let declared = ObjectKey::namespaced(&**home, &**name);
                let of_kind = |kind| {
                    let found = listers.copies(kind).of_sync(&declared, Some(namespace));
                    found
                        .into_iter()
                        .map(move |(key, copy)| (kind, Arc::from(key.name()), copy))
                };
                SourceKind::ALL.into_iter().flat_map(of_kind).collect()
            }
        }
    }
}
