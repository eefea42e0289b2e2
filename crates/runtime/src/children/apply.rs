//! Applies a desired state, and reports the outcome in the status.

use std::time::Duration;

use super::{
    Parent,
    child::{Child, ChildChange},
    child_ref::ChildId,
    desired::Desired,
    error::ChildError,
    failure::{Cause, Problem},
    prune::{PruneIntent, Pruned, WINDOW},
    report::{PRUNE_BLOCKED_REASON, Report, Retry},
    status::{StatusOutcome, StatusUpdate},
};
use crate::{error::Error, reconcile::Action, writer::WriteError};

/// Whose the status is, and what to do if it was computed before the children existed or had their current spec.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusMode {
    /// The runtime's. It does not write a status from before the children, but calls `desired` again at once.
    Declarative,
    /// The reconciler's, unless it is part of the desired state.
    Imperative,
}

/// What was done to the children.
#[derive(Default)]
struct Applied {
    ids: Vec<ChildId>,
    change: Option<ChildChange>,
    problems: Vec<Problem>,
}

impl Parent<'_> {
    pub(super) async fn apply_desired(
        &self,
        mut desired: Desired,
        mode: StatusMode,
    ) -> Result<Action, Error> {
        let has_status = desired.status.is_some() || !desired.conditions.is_empty();
        let is_reported = mode == StatusMode::Declarative || has_status || desired.undecided.is_some();
        if let Some((reason, message)) = desired.undecided.take() {
            return self
                .report_undecided(desired, &reason, &message, is_reported)
                .await;
        }
        let intent = PruneIntent::of(&mut desired);
        let Applied {
            ids,
            change,
            mut problems,
        } = self.apply_children(desired.children).await;
        self.history.lock().retain_children(&self.key, &ids);
        let mut pruned = Pruned::default();
        // Last, so that a replacement exists before its predecessor is deleted; unless it needs the quota of its
        // predecessor, and the author wants exactly these children.
        if problems.is_empty() || (self.prunes_all(&intent) && problems.iter().all(Problem::is_quota)) {
            pruned = self.prune(&ids, &intent).await;
            problems.append(&mut pruned.problems);
        }
        let mut has_written = change > Some(ChildChange::Terminating) || pruned.deleted > 0;
        // While stopping, a status from before the children is better than none.
        let can_recompute = mode == StatusMode::Declarative && !self.ctx.is_stopping();
        if change >= Some(ChildChange::NewGeneration)
            && problems.is_empty()
            && has_status
            && can_recompute
            && self.history.lock().defer_status(&self.key)
        {
            return Ok(desired.action.with_earlier_requeue(Some(Duration::ZERO)));
        }
        let fields = desired.status.transpose().unwrap_or_else(|error| {
            problems.push(Problem::failed(&"the status", self.unserializable(&error)));
            None
        });
        let has_failed = |problems: &[Problem]| problems.iter().any(|problem| problem.error().is_some());
        let report = match &pruned.blocked {
            _ if !problems.is_empty() => Report::problems(&problems, self.retry()),
            Some(message) => Report::prune_blocked(message),
            None if !pruned.terminating.is_empty() => Report::pruning(&pruned.terminating),
            None => Report::reconciled(),
        };
        let update = StatusUpdate {
            fields,
            conditions: desired.conditions,
            keeps_conditions: false,
            report,
            is_reported,
            is_failure: has_failed(&problems),
        };
        let status = match self.write_status(update).await {
            // The failure is reported without the author's part.
            Err(error) if is_rejected(&error) => {
                problems.push(Problem::failed(&"the status", error));
                let report = Report::problems(&problems, self.retry());
                let update = StatusUpdate::failure(report, Vec::new(), is_reported);
                self.write_status(update).await
            }
            status => status,
        };
        if status.is_ok() {
            self.history.lock().clear_deferred_status(&self.key);
        }
        has_written |= status.as_ref().is_ok_and(|status| status.written.is_some());
        if has_failed(&problems) {
            if has_written {
                self.history.lock().set_event_pending(&self.key);
            }
            return Err(self.failure(problems, status).reported());
        }
        let status = status?;
        let action = desired.action.with_earlier_requeue(status.retry_after);
        if let Some(message) = pruned.blocked {
            if status.is_news {
                tracing::warn!(why = message, "children are kept that are no longer desired");
                let about = self.object.object_ref();
                let recorder = self.ctx.recorder().lasting();
                recorder.warning(&about, PRUNE_BLOCKED_REASON, message);
            }
            // Earlier deletions cease to count, and the annotation may be a change that the controller filters out.
            return Ok(action.with_earlier_requeue(Some(WINDOW)));
        }
        // The event says that all is done.
        if !problems.is_empty() || !pruned.terminating.is_empty() {
            if has_written {
                self.history.lock().set_event_pending(&self.key);
            }
            return Ok(action);
        }
        let version = status.written.as_ref().map(|write| write.version.as_str());
        let version = version.or(self.object.meta().resource_version.as_deref());
        if let Some((reason, message)) = desired.event
            && (self.history.lock().is_event_due(&self.key, version) || has_written)
        {
            let about = self.object.object_ref();
            self.ctx.recorder().normal(&about, &reason, message);
        }
        Ok(action)
    }

    /// Keeps the children, and says why.
    async fn report_undecided(
        &self,
        desired: Desired,
        reason: &str,
        message: &str,
        is_reported: bool,
    ) -> Result<Action, Error> {
        tracing::info!(reason, why = message, "undecided; children are kept");
        let fields = match desired.status.transpose() {
            Ok(fields) => fields,
            Err(error) => return Err(self.report_error(self.unserializable(&error)).await),
        };
        let update = StatusUpdate {
            fields,
            conditions: desired.conditions,
            keeps_conditions: true,
            report: Report::undecided(reason, message),
            is_reported,
            is_failure: false,
        };
        match self.write_status(update).await {
            Ok(status) => {
                if !status.is_visible {
                    let about = self.object.object_ref();
                    self.ctx
                        .recorder()
                        .lasting()
                        .normal(&about, reason, message.to_owned());
                }
                Ok(desired.action.with_earlier_requeue(status.retry_after))
            }
            Err(error) if is_rejected(&error) => Err(self.report_error(error).await),
            Err(error) => Err(error),
        }
    }

    /// Reports an error of `desired` or `cleanup` in the status and as an event. Returns the error of the reconcile.
    pub(super) async fn report_error(&self, error: Error) -> Error {
        let conditions = error.conditions().to_vec();
        let report = || Report::failed(&error, self.retry());
        let update = StatusUpdate::failure(report(), conditions, true);
        let status = match self.write_status(update).await {
            Err(rejected) if is_rejected(&rejected) => {
                let update = StatusUpdate::failure(report(), Vec::new(), true);
                self.write_status(update).await
            }
            status => status,
        };
        self.failure(vec![Problem::failed(&"", error)], status).reported()
    }

    fn retry(&self) -> Retry {
        if self.ctx.run.is_last_attempt {
            Retry::Exhausted
        } else {
            Retry::Follows
        }
    }

    async fn apply_children(&self, children: Vec<Child>) -> Applied {
        let mut applied = Applied::default();
        // Whether each child so far is as desired.
        let mut is_applied = Vec::new();
        for child in &children {
            let id = self.child_id(child);
            let result = match self.waits_for(child, &applied.ids, &is_applied) {
                Ok(Some(predecessor)) => Err(Cause::Waiting { predecessor }),
                Ok(None) => self.ensure_child(child).await.map_err(Cause::Failed),
                Err(error) => Err(Cause::Failed(error)),
            };
            let why = match result {
                Ok(change) => {
                    applied.change = applied.change.max(Some(change));
                    (change == ChildChange::Terminating).then_some(Cause::Terminating)
                }
                Err(why) => Some(why),
            };
            is_applied.push(why.is_none());
            applied.problems.extend(why.map(|why| Problem {
                child: id.to_string(),
                why,
            }));
            applied.ids.push(id);
        }
        applied
    }

    /// The predecessor that a child waits for, if any.
    fn waits_for(
        &self,
        child: &Child,
        ids: &[ChildId],
        is_applied: &[bool],
    ) -> Result<Option<String>, Error> {
        for predecessor in &child.after {
            let Some(position) = ids.iter().position(|id| predecessor.is(id)) else {
                let child = self.child_id(child).to_string();
                let predecessor = predecessor.to_string();
                return Err(Error::terminal(ChildError::UnknownPredecessor {
                    child,
                    predecessor,
                }));
            };
            if !is_applied[position] {
                return Ok(Some(ids[position].to_string()));
            }
        }
        Ok(None)
    }

    /// Records warning events, and returns the error of the reconcile: the first one that is retried, else the first.
    fn failure(&self, problems: Vec<Problem>, status: Result<StatusOutcome, Error>) -> Error {
        if let Ok(StatusOutcome {
            written: Some(write), ..
        }) = &status
            && self.is_only_change(write).unwrap_or_default()
        {
            let version = write.version.clone();
            self.history.lock().record_failure_report(&self.key, version);
        }
        // Without its status, the event is all that a user sees.
        let is_news = status.as_ref().map_or(true, |status| status.is_news);
        let mut errors = Vec::new();
        for problem in problems {
            let Cause::Failed(error) = problem.why else {
                continue;
            };
            if is_news {
                self.record_warning(&error);
            }
            // The worker logs the error of the reconcile.
            tracing::debug!(%error, child = problem.child, "child failed");
            errors.push(error);
        }
        let first = errors.iter().position(|error| !error.is_terminal()).unwrap_or(0);
        let error = errors.swap_remove(first);
        match status {
            Ok(status) if status.retry_after.is_none() => error,
            // It is still to be reported.
            Ok(_) => error.retried(),
            Err(unreported) => {
                let is_final = error.is_terminal() && unreported.is_terminal();
                let both = format!("{error}; and this cannot be reported in the status: {unreported}");
                if is_final {
                    Error::terminal(both)
                } else {
                    both.into()
                }
            }
        }
    }

    fn unserializable(&self, cause: &serde_json::Error) -> Error {
        let what = format!("the status of {}", self.key);
        let cause = cause.to_string();
        Error::terminal(ChildError::Serialization { what, cause })
    }
}

/// Whether the server rejects the content of a status, most likely the author's part of it.
fn is_rejected(error: &Error) -> bool {
    let Some(status) = error.find::<WriteError>().and_then(WriteError::status) else {
        return false;
    };
    match status.code {
        400 | 422 => true,
        // An apply with a value of the wrong type.
        500 => status.message.starts_with("failed to create typed patch object"),
        _ => false,
    }
}
