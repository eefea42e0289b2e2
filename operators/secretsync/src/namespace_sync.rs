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

use windlass::{
    k8s_openapi::api::core::v1::ObjectReference,
    prelude::{Action, Context, Error, ObjectKey},
    runtime::events::Recorder,
};

use crate::{
    action_log::{ActionLog, copy_reference, sync_reference},
    api::SourceKind,
    copy_metadata::CopyMetadata,
    copy_outcome::{CopyOutcome, RetryPolicy, failed_request, unconfirmed},
    copy_reconciler::{CopyReconciler, Pruned},
    engine::Engine,
    identity::{Job, SyncId},
    plan::{ActiveSync, DesiredCopies, Plan},
    removal_count::CopyAt,
    requests::RequestError,
    work_tracker::{CopyFailure, NamespaceResult, REPORT_INTERVAL},
};

/// How often to check whether a conflicting object still exists, since it is not watched.
///
/// With many conflicts at most one check per second, and each object at least every ten minutes.
const MIN_CONFLICT_POLL: Duration = Duration::from_secs(30);
const MAX_CONFLICT_POLL: Duration = Duration::from_mins(10);

fn conflict_poll_interval(conflicts: u32) -> Duration {
    Duration::from_secs(conflicts.into()).clamp(MIN_CONFLICT_POLL, MAX_CONFLICT_POLL)
}

/// The results of one run.
#[derive(Default)]
struct Run {
    result: NamespaceResult,
    /// The soonest retry.
    again: RetryPolicy,
    /// The server could not be reached: the rest was not tried.
    disconnected: Option<RequestError>,
}

impl Run {
    fn add(&mut self, outcome: CopyOutcome) {
        let is_target = !matches!(outcome, CopyOutcome::Excluded | CopyOutcome::Disconnected(_));
        self.result.targets += u32::from(is_target);
        match outcome {
            CopyOutcome::Synced => self.result.synced += 1,
            CopyOutcome::Excluded => self.result.excluded += 1,
            CopyOutcome::Pending => {}
            CopyOutcome::Failed(failure, how) => self.fail(failure, how),
            CopyOutcome::Disconnected(failure) => self.disconnected = Some(failure),
        }
    }

    /// Adds a removal that failed.
    fn add_removal(&mut self, name: &Arc<str>, failure: RequestError) {
        match failed_request(name, failure) {
            CopyOutcome::Failed(failure, how) => self.fail(failure, how),
            outcome => self.add(outcome),
        }
    }

    fn fail(&mut self, failure: CopyFailure, how: RetryPolicy) {
        self.again = self.again.max(how);
        self.result.add_failure(failure);
    }
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
        let (mut plan, annotation, source_namespace) = {
            let index = self.index.read();
            (
                index.plan(sync, namespace),
                Arc::clone(&index.config.annotation),
                Arc::clone(&index.config.source_namespace),
            )
        };
        if matches!(plan, Plan::Wait | Plan::UnclearConsent(_)) {
            // The plan may have changed since: it is computed again while the waiting namespace is registered.
            plan = self.index.write().plan_or_register(sync, namespace);
        }
        let desired = match plan {
            Plan::Sync(desired) => desired,
            Plan::NamespaceGone => {
                self.unanswered.forget(sync, namespace);
                let nothing = Some(NamespaceResult::default());
                self.record_result(sync, namespace, began, nothing, ctx);
                return Ok(Action::done());
            }
            Plan::UnclearConsent(live) => {
                return self
                    .sync_unclear_namespace(sync, namespace, began, *live, ctx)
                    .await;
            }
            Plan::Wait => {
                self.record_result(sync, namespace, began, None, ctx);
                return Ok(Action::done());
            }
        };
        let actions = ActionLog::new(sync, namespace);
        let copy_reconciler = CopyReconciler {
            engine: self,
            client: ctx.client(),
            namespace,
            annotation,
            actions: &actions,
        };
        let mut run = Run::default();
        let pruned = self
            .prune_copies(sync, namespace, &desired, &copy_reconciler, &mut run, ctx)
            .await;
        let is_over = desired.sync.as_ref().is_some_and(|live| live.exceeds_limits);
        let mut is_interrupted = false;
        if let Some(live) = desired.sync.as_ref().filter(|_| !is_over && pruned.is_ok()) {
            for wanted_copy in &desired.wanted {
                is_interrupted = ctx.is_stopping();
                if is_interrupted || run.disconnected.is_some() {
                    break;
                }
                run.add(copy_reconciler.reconcile(live, wanted_copy).await);
            }
        }
        let reference = match &desired.sync {
            Some(live) => live.reference.clone(),
            None => sync_reference(sync, &source_namespace),
        };
        self.unanswered.settle(sync, namespace, &actions, self.listers());
        actions.report(ctx.recorder(), &reference, &self.action_events);
        if is_interrupted {
            return Err("interrupted by shutdown".into());
        }
        if let Err(failure) = pruned {
            self.tracker.lock().disconnect(sync, namespace);
            return Err(failure);
        }
        let Run {
            result,
            again,
            disconnected,
        } = run;
        if let Some(failure) = disconnected {
            // What was found before says nothing about the rest: the last result stays until the retry.
            self.tracker.lock().disconnect(sync, namespace);
            return Err(failure.into());
        }
        let worst = result.failures.first().cloned();
        let conflicts = result.conflicts;
        // If nothing was checked, the previous result stays.
        let is_known = !is_over || desired.wanted.is_empty() || worst.is_some();
        let found = is_known.then_some(result);
        self.record_result(sync, namespace, began, found, ctx);
        match (again, worst) {
            (RetryPolicy::Backoff, Some(CopyFailure { name, message, .. })) => {
                Err(format!("cannot copy {name} into {namespace}: {message}").into())
            }
            (RetryPolicy::Poll, _) => Ok(Action::requeue_after(conflict_poll_interval(conflicts))),
            // No change can be expected, but it is reported again.
            (_, Some(_)) => Ok(Action::requeue_after(REPORT_INTERVAL)),
            _ => Ok(Action::done()),
        }
    }

    /// Removes the copies that are no longer wanted, unless that waits for a confirmation. Fails if the removals cannot be
    /// planned; then the rest was not tried.
    async fn prune_copies(
        &self,
        sync: &SyncId,
        namespace: &Arc<str>,
        desired: &DesiredCopies,
        copy_reconciler: &CopyReconciler<'_>,
        run: &mut Run,
        ctx: &Context<Job>,
    ) -> Result<(), Error> {
        for (kind, name, copy) in &self.copies_of(sync, namespace) {
            let mut pruned = copy_reconciler.prune(sync, desired, *kind, name, copy).await;
            if matches!(pruned, Ok(Pruned::Unplanned)) {
                self.plan_removals(sync, ctx).await?;
                pruned = copy_reconciler.prune(sync, desired, *kind, name, copy).await;
            }
            match pruned {
                Ok(Pruned::Done) => {}
                Ok(Pruned::Unplanned) => return Err("other copies became unwanted meanwhile".into()),
                Ok(Pruned::Held) => {
                    self.index.write().register_waiting(sync, namespace);
                    run.fail(unconfirmed(&self.confirmation(sync), name), RetryPolicy::Poll);
                }
                Err(failure) => run.add_removal(name, failure),
            }
            if run.disconnected.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Reconciles a namespace whose consent looks like a mistake: only copies whose source was deleted are removed.
    async fn sync_unclear_namespace(
        &self,
        sync: &SyncId,
        namespace: &Arc<str>,
        began: u32,
        live: ActiveSync,
        ctx: &Context<Job>,
    ) -> Result<Action, Error> {
        let actions = ActionLog::new(sync, namespace);
        let reference = live.reference.clone();
        let copy_reconciler = CopyReconciler {
            engine: self,
            client: ctx.client(),
            namespace,
            annotation: Arc::clone(&self.index.read().config.annotation),
            actions: &actions,
        };
        let home = Arc::clone(&live.adoption.source);
        let desired = DesiredCopies {
            sync: Some(live),
            wanted: Vec::new(),
        };
        let mut run = Run::default();
        for (kind, name, copy) in self.copies_of(sync, namespace) {
            let at = CopyAt {
                kind,
                namespace,
                name: &name,
                copy: &copy,
            };
            let is_revoked = self.index.read().is_revoked(sync, &home, at);
            if !is_revoked {
                continue;
            }
            if let Err(failure) = copy_reconciler.prune(sync, &desired, kind, &name, &copy).await {
                run.add_removal(&name, failure);
            }
            if run.disconnected.is_some() {
                break;
            }
        }
        self.unanswered.settle(sync, namespace, &actions, self.listers());
        actions.report(ctx.recorder(), &reference, &self.action_events);
        if let Some(failure) = run.disconnected {
            self.tracker.lock().disconnect(sync, namespace);
            return Err(failure.into());
        }
        let is_failed = !run.result.failures.is_empty();
        let result = self.add_unclear(sync, namespace, &home, run.result);
        let is_reported = !result.failures.is_empty();
        self.record_result(sync, namespace, began, Some(result), ctx);
        if is_failed {
            return Err(format!("cannot remove all copies of deleted sources from {namespace}").into());
        }
        Ok(if is_reported {
            Action::requeue_after(REPORT_INTERVAL)
        } else {
            Action::done()
        })
    }

    /// Adds the copies that stay where the namespace's consent looks like a mistake.
    fn add_unclear(
        &self,
        sync: &SyncId,
        namespace: &str,
        home: &Arc<str>,
        mut result: NamespaceResult,
    ) -> NamespaceResult {
        // The value may contain names that are none of the sync's business.
        let message =
            "the namespace's consent is invalid, see the events there; the copy stays, and is not updated";
        let copies = self.copies_of(sync, namespace);
        let index = self.index.read();
        for (kind, name, copy) in copies {
            let at = CopyAt {
                kind,
                namespace,
                name: &name,
                copy: &copy,
            };
            if index.is_revoked(sync, home, at) {
                continue;
            }
            result.targets += 1;
            result.add_failure(CopyFailure::new(&name, "InvalidConsent", message.to_owned()));
        }
        result
    }

    /// Records the result, and records events for new and for lasting failures.
    fn record_result(
        &self,
        sync: &SyncId,
        namespace: &Arc<str>,
        began: u32,
        found: Option<NamespaceResult>,
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
            let CopyFailure {
                name,
                reason,
                message,
                ..
            } = failure;
            tracing::warn!(%sync, %namespace, %name, %reason, error = %message, "copy failed");
        }
        let mut failures = settled
            .new_failures
            .iter()
            .chain(&settled.lasting_failures)
            .peekable();
        if failures.peek().is_some()
            && let Some((kind, reference)) = self.reported_sync(sync)
        {
            for failure in failures {
                self.report_failure(kind, &reference, namespace, failure, &ctx.recorder().lasting());
            }
        }
        // While many copies are being written, the status is updated from time to time.
        if settled.is_idle || self.is_status_write_due(sync) {
            self.enqueue_status(sync, None);
        }
        if settled.is_idle && self.index.read().sync(sync).is_none() {
            self.tracker.lock().forget(sync);
        }
    }

    /// Returns the kind that a sync copies, and the object that its events are about; `None` if it was deleted.
    fn reported_sync(&self, sync: &SyncId) -> Option<(SourceKind, ObjectReference)> {
        let index = self.index.read();
        match (sync, index.sync(sync)) {
            (SyncId::Annotated { kind, .. }, None) => Some((*kind, index.annotated_source(sync)?)),
            (SyncId::Annotated { kind, .. }, Some(live)) => Some((*kind, live.reference.clone())),
            (SyncId::Declared { .. }, live) => {
                let live = live?;
                Some((live.rules.as_ref().ok()?.kind, live.reference.clone()))
            }
        }
    }

    /// Records events about a failure: on the sync, and in the target namespace.
    fn report_failure(
        &self,
        kind: SourceKind,
        reference: &ObjectReference,
        namespace: &Arc<str>,
        failure: &CopyFailure,
        recorder: &Recorder,
    ) {
        let CopyFailure {
            name,
            reason,
            message,
            ..
        } = failure;
        recorder.warning(reference, reason, format!("{namespace}/{name}: {message}"));
        let copy = copy_reference(kind, namespace, name, None);
        self.failure_events
            .warning(recorder, namespace, &copy, reason, message);
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
