//! What a reconcile reports in the status: the standard conditions of its outcome. No I/O.

use super::failure::{Problem, failure_reason, listed, text};
use crate::{
    conditions::{
        ConditionUpdate, READY_CONDITION, RECONCILED_REASON, RECONCILING_CONDITION, STALLED_CONDITION,
        STANDARD_CONDITIONS,
    },
    error::Error,
};

/// Reason of `Reconciling` while a failed reconcile is retried. Flux uses the same.
const RETRY_REASON: &str = "ProgressingWithRetry";

/// Reason of `Ready` and `Reconciling` while a child is being deleted, to be created again or because it is unwanted.
const TERMINATING_REASON: &str = "ChildTerminating";

/// Reason of `Ready` and `Stalled` while unwanted children are kept, and of the event.
pub(super) const PRUNE_BLOCKED_REASON: &str = "PruneBlocked";

/// Reason of `Stalled` after the last retry.
const EXHAUSTED_REASON: &str = "RetriesExceeded";

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    Follows,
    /// It was the last of the controller's `max_retries`.
    Exhausted,
}

/// The outcome of a reconcile, as standard conditions.
#[derive(Debug)]
pub(super) struct Report {
    ready: ConditionUpdate,
    reconciling: Option<ConditionUpdate>,
    stalled: Option<ConditionUpdate>,
    precedence: Precedence,
}

/// Which standard conditions of the author replace those of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precedence {
    /// All of them: the author knows more than that the children are applied.
    Author,
    /// A `Ready` that does not claim success.
    AuthorsFailure,
    /// None: the author did not know that a child would fail.
    Runtime,
}

impl Report {
    /// Every child is applied and pruning is complete.
    pub(super) fn reconciled() -> Self {
        Self {
            ready: ConditionUpdate::true_(READY_CONDITION, RECONCILED_REASON)
                .message("all children are applied"),
            reconciling: None,
            stalled: None,
            precedence: Precedence::Author,
        }
    }

    /// The author cannot decide now.
    pub(super) fn undecided(reason: &str, message: &str) -> Self {
        let update = |status: fn(&'static str, String) -> ConditionUpdate, kind| {
            status(kind, reason.to_owned()).message(message)
        };
        Self {
            ready: update(ConditionUpdate::unknown, READY_CONDITION),
            reconciling: Some(update(ConditionUpdate::true_, RECONCILING_CONDITION)),
            stalled: None,
            precedence: Precedence::Author,
        }
    }

    /// Every child is applied, and these unwanted ones are being deleted.
    pub(super) fn pruning(terminating: &[Problem]) -> Self {
        Self {
            precedence: Precedence::Author,
            ..Self::problems(terminating, Retry::Follows)
        }
    }

    /// Unwanted children are kept.
    pub(super) fn prune_blocked(message: &str) -> Self {
        Self {
            ready: ConditionUpdate::false_(READY_CONDITION, PRUNE_BLOCKED_REASON).message(message),
            reconciling: None,
            stalled: Some(ConditionUpdate::true_(STALLED_CONDITION, PRUNE_BLOCKED_REASON).message(message)),
            precedence: Precedence::Runtime,
        }
    }

    /// `desired` or `cleanup` failed.
    pub(super) fn failed(error: &Error, retry: Retry) -> Self {
        let report = Self::not_ready(failure_reason(error), &text(error), error.is_terminal(), retry);
        let precedence = Precedence::AuthorsFailure;
        Self { precedence, ..report }
    }

    /// Reason of `Ready` and `Reconciling` while an object is being deleted.
    pub(super) const TERMINATING_REASON: &str = "Terminating";

    /// The object is being deleted, and what the controller cleans up is gone.
    pub(super) fn terminating() -> Self {
        let message = "the object is being deleted; the cleanup is complete";
        let update = |status: fn(&'static str, &'static str) -> ConditionUpdate, kind| {
            status(kind, Self::TERMINATING_REASON).message(message)
        };
        Self {
            ready: update(ConditionUpdate::false_, READY_CONDITION),
            reconciling: Some(update(ConditionUpdate::true_, RECONCILING_CONDITION)),
            stalled: None,
            precedence: Precedence::Runtime,
        }
    }

    /// Some children are not as desired. There is at least one problem.
    pub(super) fn problems(problems: &[Problem], retry: Retry) -> Self {
        let mut errors = problems.iter().filter_map(Problem::error);
        let reason = errors.clone().next().map_or(TERMINATING_REASON, failure_reason);
        let is_terminal = errors.clone().next().is_some() && errors.all(Error::is_terminal);
        Self::not_ready(reason, &listed(problems), is_terminal, retry)
    }

    fn not_ready(reason: &'static str, message: &str, is_terminal: bool, retry: Retry) -> Self {
        let (kind, why) = match (reason, retry) {
            _ if is_terminal => (STALLED_CONDITION, reason),
            // It is no failure: the end of the deletion is a change.
            (TERMINATING_REASON, _) => (RECONCILING_CONDITION, TERMINATING_REASON),
            (_, Retry::Follows) => (RECONCILING_CONDITION, RETRY_REASON),
            (_, Retry::Exhausted) => (STALLED_CONDITION, EXHAUSTED_REASON),
        };
        let other = ConditionUpdate::true_(kind, why).message(message);
        let (reconciling, stalled) = match kind {
            RECONCILING_CONDITION => (Some(other), None),
            _ => (None, Some(other)),
        };
        Self {
            ready: ConditionUpdate::false_(READY_CONDITION, reason).message(message),
            reconciling,
            stalled,
            precedence: Precedence::Runtime,
        }
    }

    /// The standard conditions, then the author's other ones.
    pub(super) fn conditions(&self, authors: &[ConditionUpdate]) -> Vec<ConditionUpdate> {
        let own = [
            Some(&self.ready),
            self.reconciling.as_ref(),
            self.stalled.as_ref(),
        ];
        let standard = STANDARD_CONDITIONS.iter().zip(own);
        let standard = standard.filter_map(|(kind, own)| self.authors(kind, authors).or(own));
        let others = authors
            .iter()
            .filter(|theirs| !STANDARD_CONDITIONS.contains(&theirs.condition_type()));
        standard.chain(others).cloned().collect()
    }

    /// The standard conditions that are not the author's.
    pub(super) fn reported_types(&self, authors: &[ConditionUpdate]) -> Vec<&'static str> {
        let mut types = STANDARD_CONDITIONS.to_vec();
        types.retain(|kind| self.authors(kind, authors).is_none());
        types
    }

    /// The author's condition of a standard type, if it has precedence. The last one counts, as in a list that is set one
    /// by one.
    fn authors<'a>(&self, kind: &str, authors: &'a [ConditionUpdate]) -> Option<&'a ConditionUpdate> {
        let authors = authors
            .iter()
            .rfind(|condition| condition.condition_type() == kind);
        authors.filter(|condition| match self.precedence {
            Precedence::Author => true,
            Precedence::AuthorsFailure => kind == READY_CONDITION && !condition.is_true(),
            Precedence::Runtime => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use windlass_cache::ObjectKey;

    use super::*;
    use crate::{
        children::failure::Cause,
        writer::{WriteError, WriteErrorKind},
    };

    fn problem(child: &str, error: Error) -> Problem {
        Problem::failed(&child, error)
    }

    /// Type, status, reason and message of the conditions.
    fn shown(report: &Report, authors: &[ConditionUpdate]) -> Vec<String> {
        let conditions = report.conditions(authors);
        conditions.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn failed_children_are_named_with_the_servers_messages() {
        let waiting = Problem {
            child: "Service shop/web".to_owned(),
            why: Cause::Waiting {
                predecessor: "Ingress shop/web".to_owned(),
            },
        };
        let status = Status::failure("ingresses is forbidden", "Forbidden").with_code(403);
        let why = WriteErrorKind::Server(Box::new(status));
        let key = ObjectKey::namespaced("shop", "web");
        let forbidden = WriteError::new("apply", "Ingress".to_owned(), key, why).into();
        let failed = [
            problem("Ingress shop/web", forbidden),
            waiting,
            problem("Secret shop/web", "the network is down".into()),
        ];
        let message = "cannot apply Ingress shop/web: ingresses is forbidden; Service shop/web waits for Ingress \
                       shop/web; Secret shop/web: the network is down";
        let ready = ConditionUpdate::true_(READY_CONDITION, "Mine");
        assert_eq!(
            shown(&Report::problems(&failed, Retry::Follows), &[ready]),
            [
                format!("Ready=False Forbidden: {message}"),
                format!("Reconciling=True ProgressingWithRetry: {message}"),
            ]
        );
    }

    #[test]
    fn terminal_errors_stall_only_if_nothing_is_retried() {
        let invalid = || Error::terminal("too small");
        let report = Report::problems(&[problem("Pod a", invalid())], Retry::Follows);
        let message = "Pod a: too small";
        assert_eq!(
            shown(&report, &[]),
            [
                format!("Ready=False ReconcileFailed: {message}"),
                format!("Stalled=True ReconcileFailed: {message}"),
            ]
        );
        let both = [problem("Pod a", invalid()), problem("Pod b", "busy".into())];
        let report = Report::problems(&both, Retry::Follows);
        assert!(shown(&report, &[])[1].starts_with("Reconciling=True"));
    }

    #[test]
    fn last_failure_stalls() {
        let message = "Pod b: busy";
        let report = Report::problems(&[problem("Pod b", "busy".into())], Retry::Exhausted);
        assert_eq!(
            shown(&report, &[]),
            [
                format!("Ready=False ReconcileFailed: {message}"),
                format!("Stalled=True RetriesExceeded: {message}"),
            ]
        );
        let report = Report::failed(&Error::from("busy"), Retry::Exhausted);
        assert_eq!(shown(&report, &[])[1], "Stalled=True RetriesExceeded: busy");
    }

    #[test]
    fn child_that_is_being_deleted_is_no_failure() {
        let why = Cause::Terminating;
        let child = "Pod a".to_owned();
        assert_eq!(
            shown(
                &Report::problems(&[Problem { child, why }], Retry::Exhausted),
                &[]
            ),
            [
                "Ready=False ChildTerminating: Pod a is being deleted",
                "Reconciling=True ChildTerminating: Pod a is being deleted",
            ]
        );
    }

    #[test]
    fn author_has_precedence_where_nothing_failed() {
        let mine = [
            ConditionUpdate::false_(READY_CONDITION, "Starting"),
            ConditionUpdate::true_("Mine", "Yes"),
        ];
        assert_eq!(
            shown(&Report::reconciled(), &mine),
            ["Ready=False Starting", "Mine=True Yes"]
        );
        assert_eq!(
            shown(&Report::undecided("SecretMissing", "no Secret a"), &mine[1..]),
            [
                "Ready=Unknown SecretMissing: no Secret a",
                "Reconciling=True SecretMissing: no Secret a",
                "Mine=True Yes",
            ]
        );
        assert_eq!(
            shown(&Report::prune_blocked("kept"), &mine)[0],
            "Ready=False PruneBlocked: kept"
        );
        let failed = Report::failed(&Error::terminal("bad"), Retry::Follows);
        assert_eq!(shown(&failed, &mine)[0], "Ready=False Starting");
        let claims_success = [ConditionUpdate::true_(READY_CONDITION, "Mine")];
        assert_eq!(
            shown(&failed, &claims_success)[0],
            "Ready=False ReconcileFailed: bad"
        );
        assert_eq!(failed.reported_types(&mine), ["Reconciling", "Stalled"]);
    }
}
