//! A SecretSync's finalizer and status.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use windlass::{
    k8s_openapi::api::core::v1::ObjectReference,
    prelude::{Action, ConditionUpdate, Conditions, Context, Error, ObjectKey, ResourceExt, json},
    runtime::Clock,
};

use crate::{
    api::{
        CONFIRM_REMOVAL_ANNOTATION, FINALIZER, RecentRemovals, SecretSync, SecretSyncStatus, SourceKind,
        SyncFailure,
    },
    copy_outcome::{REMOVAL_NOT_CONFIRMED, confirmation_request},
    engine::Engine,
    identity::{Job, SyncId, SyncOwner},
    removal_guard::REMOVAL_HELD,
    work_tracker::{NamespaceResult, REPORT_INTERVAL, Summary},
};

/// Maximum number of failures in a status.
const MAX_FAILURES: usize = 10;

/// Minimum time between two writes of a status.
const STATUS_WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// When a status was last written.
pub(crate) struct StatusWrite {
    at: Instant,
}

/// What the status says about removals.
struct RemovalMemory {
    /// How to confirm the removal that is held.
    request: Option<String>,
    is_held: bool,
    recent: Option<RecentRemovals>,
    /// The annotation by which the targets consented.
    annotation: String,
}

/// The input of a status besides the sums.
#[derive(Default)]
struct SyncState {
    /// The validation error of the spec.
    spec_error: Option<String>,
    is_deleting: bool,
    is_paused: bool,
    /// The limit that it exceeds.
    limit_error: Option<String>,
    /// It neither names nor selects anything.
    is_empty: bool,
    sources: u32,
    /// Number of selected objects that are not copied because they are copies themselves.
    skipped: u32,
    namespaces: u32,
    /// Names that do not exist or may not be copied.
    failures: Vec<SyncFailure>,
}

impl Engine {
    /// Reconciles a SecretSync's finalizer and status.
    pub(crate) async fn reconcile_status(
        &self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        ctx: &Context<Job>,
    ) -> Result<Action, Error> {
        let id = SyncId::Declared {
            namespace: Arc::clone(namespace),
            name: Arc::clone(name),
        };
        let key = ObjectKey::namespaced(&**namespace, &**name);
        let Some(sync) = self.listers().syncs.try_get(&key)? else {
            self.tracker.lock().forget(&id);
            self.status_writes.lock().remove(&id);
            return Ok(Action::done());
        };
        let has_finalizer = sync.finalizers().iter().any(|one| one == FINALIZER);
        if sync.metadata.deletion_timestamp.is_none() && !has_finalizer {
            // The write triggers another reconcile, and then the work begins.
            ctx.writer().add_finalizer(&*sync, FINALIZER).await?;
            return Ok(Action::done());
        }
        if sync.metadata.deletion_timestamp.is_some() && has_finalizer && !self.has_copies(&sync) {
            ctx.writer().remove_finalizer(&*sync, FINALIZER).await?;
            return Ok(Action::done());
        }
        self.write_status(&id, &sync, ctx).await
    }

    /// Writes the status of a sync to the SecretSync that shows it, if it differs.
    pub(crate) async fn write_status(
        &self,
        id: &SyncId,
        sync: &Arc<SecretSync>,
        ctx: &Context<Job>,
    ) -> Result<Action, Error> {
        let Some(standing) = self.sync_state(id, sync) else {
            return Ok(Action::done());
        };
        let mut summary = {
            let mut tracker = self.tracker.lock();
            tracker.mark_complete(id);
            tracker.summary(id, MAX_FAILURES)
        };
        let is_idle = standing.spec_error.is_some() || standing.is_paused || standing.limit_error.is_some();
        if !summary.is_complete && !is_idle {
            return Ok(Action::done());
        }
        let unconfirmed = summary.result.unconfirmed > 0;
        // A confirmation is for one removal: it must not cover the next mistake.
        if sync.annotations().contains_key(CONFIRM_REMOVAL_ANNOTATION)
            && summary.is_idle
            && !is_idle
            && !unconfirmed
            && !standing.is_deleting
        {
            let patch = json!({ "metadata": { "annotations": { CONFIRM_REMOVAL_ANNOTATION: null } } });
            ctx.writer().merge_patch(&**sync, &patch).await?;
            return Ok(Action::done());
        }
        // While it is being deleted, a status is written only if deletions fail. Each deletion of a copy triggers
        // another reconcile.
        if standing.is_deleting && summary.result.failed == 0 {
            return Ok(Action::done());
        }
        // While it is suspended nothing is counted after a start; what is known stays.
        if is_idle
            && summary.result == NamespaceResult::default()
            && let Some(before) = &sync.status
        {
            keep_sums(&mut summary, before, &standing);
        }
        // If it was held, whether it still is. A spec that is invalid decides nothing.
        let held = if standing.spec_error.is_none() && self.removals.is_held(id, Some(sync)) {
            self.held_removal(id)
        } else {
            None
        };
        // What was removed, and is about to be, must not be overwritten by what was known before.
        let _turn = self.status_turn(id).await;
        let mut sync = SecretSync::clone(sync);
        if let Some(latest) = self.status_object(id)
            && latest.metadata.uid == sync.metadata.uid
        {
            sync.status.clone_from(&latest.status);
        }
        let sync = &sync;
        let is_held = self.removals.is_held(id, Some(sync));
        let before = sync.status.as_ref();
        // While a removal is held, or not decided, the next process has to know by which annotation the targets consented.
        let before = before
            .and_then(|before| before.consent_annotation.clone())
            .filter(|_| is_held || is_idle);
        let memory = RemovalMemory {
            request: held.map(|removal| confirmation_request(&ObjectKey::of(sync), removal)),
            is_held,
            recent: self.removals.recent(id, Some(sync)),
            annotation: before.unwrap_or_else(|| self.index.read().config.annotation.to_string()),
        };
        let status = status(sync, &standing, &summary, &memory);
        if sync.status.as_ref() == Some(&status) {
            return Ok(Action::done());
        }
        if let Some(wait) = self.status_write_delay(id) {
            return Ok(Action::requeue_after(wait));
        }
        let mut updated = SecretSync::clone(sync);
        updated.status = Some(status);
        ctx.writer().apply_status(&updated).await?;
        Ok(Action::done())
    }

    /// Returns whether a changed status may be written now.
    pub(crate) fn is_status_write_due(&self, id: &SyncId) -> bool {
        let writes = self.status_writes.lock();
        writes
            .get(id)
            .is_some_and(|last| last.at.elapsed() >= STATUS_WRITE_INTERVAL)
    }

    /// Returns how long to wait until the status may be written again.
    fn status_write_delay(&self, id: &SyncId) -> Option<Duration> {
        let mut writes = self.status_writes.lock();
        let now = Instant::now();
        let since = writes.get(id).map(|last| now - last.at);
        if let Some(wait) = since.and_then(|since| {
            STATUS_WRITE_INTERVAL
                .checked_sub(since)
                .filter(|wait| !wait.is_zero())
        }) {
            return Some(wait);
        }
        writes.insert(id.clone(), StatusWrite { at: now });
        None
    }

    /// Returns `None` while its sources are not known.
    fn sync_state(&self, id: &SyncId, object: &SecretSync) -> Option<SyncState> {
        let index = self.index.read();
        let Some(sync) = index.sync(id) else {
            // An annotated source that has lost its annotation, while its copies are held.
            return index.annotated_source(id).map(|_| SyncState::default());
        };
        let (spec_error, is_paused) = match &sync.rules {
            Ok(rules) => (None, rules.is_paused),
            Err(wrong) => (Some(wrong.clone()), false),
        };
        // A SecretSync that is being deleted has no sources.
        if !sync.is_deleting && !index.is_ready(sync) {
            return None;
        }
        let refusal = |name: &str, reason: &str, message: &str| SyncFailure {
            namespace: sync.namespace.to_string(),
            name: name.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        let mut failures = Vec::new();
        // Names are not looked up while it is being deleted, or if its spec is invalid.
        let mut names = if sync.is_deleting || sync.rules.is_err() {
            Vec::new()
        } else {
            object.spec.names.clone()
        };
        names.sort_unstable();
        names.dedup();
        for name in &names {
            match sync.members.get(name.as_str()) {
                None => failures.push(refusal(name, "NotFound", "the object does not exist")),
                Some(member) => {
                    failures.extend(member.skip_reason.map(|why| refusal(name, "SourceIsCopy", why)));
                }
            }
        }
        let copied = |one: &bool| *one;
        let members = sync.members.values();
        let matched = members
            .map(|member| member.skip_reason.is_none())
            .filter(copied)
            .count();
        Some(SyncState {
            spec_error,
            is_deleting: sync.is_deleting,
            is_paused,
            limit_error: index.limit_error(id, sync),
            is_empty: object.spec.source_selector.is_none() && object.spec.names.is_empty(),
            sources: count(matched),
            skipped: count(sync.members.len() - matched),
            namespaces: count(index.targets_of(id)),
            failures,
        })
    }

    /// Returns whether copies of this SecretSync, by UID, still have to be removed. Copies that are terminating, or
    /// whose namespace is, do not count.
    fn has_copies(&self, sync: &SecretSync) -> bool {
        let uid = sync.metadata.uid.as_deref().unwrap_or_default();
        let index = self.index.read();
        let is_left = |namespace: &str| {
            index
                .namespace(namespace)
                .is_some_and(|place| !place.is_terminating)
        };
        SourceKind::ALL.into_iter().any(|kind| {
            let copies = self.listers().copies(kind).of_sync(&ObjectKey::of(sync), None);
            copies.iter().any(|(key, copy)| {
                let is_own =
                    matches!(copy.owner.as_deref(), Some(SyncOwner::Sync { uid: of, .. }) if &**of == uid);
                is_own
                    && copy.ownership.is_ours
                    && !copy.is_deleting
                    && is_left(key.namespace().unwrap_or_default())
            })
        })
    }

    /// Records an event for a namespace with an invalid consent.
    pub(crate) fn report_consent_errors(&self, namespace: &Arc<str>, ctx: &Context<Job>) -> Action {
        let index = self.index.read();
        let Some(place) = index.namespace(namespace) else {
            return Action::done();
        };
        let errors = index.consent_errors(place);
        for error in &errors {
            tracing::warn!(%namespace, %error, "invalid consent");
            let reference = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Namespace".to_owned()),
                name: Some(namespace.to_string()),
                uid: Some(place.uid.to_string()),
                ..ObjectReference::default()
            };
            ctx.recorder()
                .lasting()
                .warning(&reference, "InvalidConsent", error.as_str());
            // Events about a namespace are in `default`; the team looks into its own.
            let reference = ObjectReference {
                namespace: Some(namespace.to_string()),
                ..reference
            };
            ctx.recorder()
                .lasting()
                .warning(&reference, "InvalidConsent", error.as_str());
        }
        if errors.is_empty() {
            Action::done()
        } else {
            Action::requeue_after(REPORT_INTERVAL)
        }
    }
}

/// Keeps the sums of the last status, without what is counted in any case.
fn keep_sums(summary: &mut Summary, before: &SecretSyncStatus, standing: &SyncState) {
    summary.result = NamespaceResult {
        targets: before.targets,
        synced: before.synced,
        excluded: before.excluded.saturating_sub(standing.skipped),
        failed: before.failed.saturating_sub(count(standing.failures.len())),
        conflicts: before.conflicts,
        ..NamespaceResult::default()
    };
    let kept = before.failures.iter();
    summary.failures = kept
        .filter(|failure| !standing.failures.contains(failure))
        .cloned()
        .collect();
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Computes the status.
fn status(
    sync: &SecretSync,
    standing: &SyncState,
    summary: &Summary,
    memory: &RemovalMemory,
) -> SecretSyncStatus {
    let result = &summary.result;
    let failed = result.failed.saturating_add(count(standing.failures.len()));
    let mut failures = standing.failures.clone();
    failures.extend(summary.failures.iter().cloned());
    failures.truncate(MAX_FAILURES);
    let before = sync.status.as_ref();
    let mut status = SecretSyncStatus {
        observed_generation: sync.metadata.generation,
        sources: standing.sources.saturating_sub(result.excluded),
        excluded: result.excluded.saturating_add(standing.skipped),
        namespaces: standing.namespaces,
        targets: result.targets,
        synced: result.synced,
        failed,
        conflicts: result.conflicts,
        failures,
        consent_annotation: Some(memory.annotation.clone()),
        recent_removals: memory.recent.clone(),
        conditions: before.map(|status| status.conditions.clone()).unwrap_or_default(),
    };
    let generation = sync.metadata.generation;
    let clock = Clock::system();
    let ready = ready(standing, summary, &status, memory);
    status
        .conditions
        .set(ready.observed_generation(generation), &clock);
    let conflict = if result.conflicts == 0 {
        ConditionUpdate::false_("Conflict", "NoConflicts")
    } else {
        ConditionUpdate::true_("Conflict", "TargetsOccupied").message(format!(
            "{} of {} not written, because others have created or apply these objects; they are left unchanged, see failures",
            result.conflicts,
            copies(result.targets)
        ))
    };
    status
        .conditions
        .set(conflict.observed_generation(generation), &clock);
    if memory.is_held {
        let held = ConditionUpdate::true_(REMOVAL_HELD, REMOVAL_NOT_CONFIRMED)
            .message(
                memory
                    .request
                    .as_deref()
                    .unwrap_or("it is confirmed, and being done"),
            )
            .observed_generation(generation);
        status.conditions.set(held, &clock);
    } else {
        status.conditions.unset(REMOVAL_HELD);
    }
    status
}

fn ready(
    standing: &SyncState,
    summary: &Summary,
    status: &SecretSyncStatus,
    memory: &RemovalMemory,
) -> ConditionUpdate {
    let no = |reason: &str, message: String| ConditionUpdate::false_("Ready", reason).message(message);
    let SecretSyncStatus {
        targets,
        synced,
        failed,
        conflicts,
        ..
    } = status;
    if standing.is_deleting {
        return no(
            "Deleting",
            format!(
                "{} could not be removed{}",
                copies(*failed),
                first_failure(status)
            ),
        );
    }
    if let Some(wrong) = &standing.spec_error {
        return no("InvalidSpec", wrong.clone());
    }
    if standing.is_paused {
        return no(
            "Paused",
            "spec.paused is true: nothing is written or deleted".to_owned(),
        );
    }
    if let Some(excess) = &standing.limit_error {
        return no(
            "LimitExceeded",
            format!("{excess}; nothing is written until it selects less"),
        );
    }
    if standing.is_empty {
        return no(
            "NothingSelected",
            "neither spec.sourceSelector nor spec.names is set".to_owned(),
        );
    }
    if let Some(request) = &memory.request {
        return no(REMOVAL_NOT_CONFIRMED, request.clone());
    }
    if *failed > 0 {
        let conflicts = match conflicts {
            0 => String::new(),
            number => format!(", {number} in conflict"),
        };
        return no(
            "Failed",
            format!("{} failed{conflicts}{}", copies(*failed), first_failure(status)),
        );
    }
    if *conflicts > 0 {
        return no(
            "Conflict",
            format!(
                "{conflicts} of {} in conflict{}",
                copies(*targets),
                first_failure(status)
            ),
        );
    }
    if summary.has_pending_change || synced < targets {
        return no("Syncing", format!("{synced} of {} up to date", copies(*targets)));
    }
    ConditionUpdate::true_("Ready", "Synced").message(format!("{} up to date", copies(*synced)))
}

fn copies(number: u32) -> String {
    let noun = if number == 1 { "copy" } else { "copies" };
    format!("{number} {noun}")
}

/// Where to look, with the first failure: the columns of `kubectl get` show no other.
fn first_failure(status: &SecretSyncStatus) -> String {
    let Some(SyncFailure {
        namespace,
        name,
        reason,
        ..
    }) = status.failures.first()
    else {
        return String::new();
    };
    let others = if status.failures.len() > 1 { ", …" } else { "" };
    format!("; see failures: {namespace}/{name} ({reason}){others}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_count_and_name_the_first_failure() {
        let failure = |name: &str| SyncFailure {
            namespace: "team-a".to_owned(),
            name: name.to_owned(),
            reason: "Immutable".to_owned(),
            ..SyncFailure::default()
        };
        let message = |targets, synced, conflicts, failures: &[&str]| {
            let status = SecretSyncStatus {
                targets,
                synced,
                conflicts,
                failed: targets - synced - conflicts,
                failures: failures.iter().copied().map(failure).collect(),
                ..SecretSyncStatus::default()
            };
            let memory = RemovalMemory {
                request: None,
                is_held: false,
                recent: None,
                annotation: String::new(),
            };
            let mut conditions = Vec::new();
            let update = ready(&SyncState::default(), &Summary::default(), &status, &memory);
            conditions.set(update, &Clock::system());
            conditions.of_type("Ready").map(|ready| ready.message.clone())
        };
        for (found, expected) in [
            (message(1, 1, 0, &[]), "1 copy up to date"),
            (message(3, 3, 0, &[]), "3 copies up to date"),
            (
                message(3, 2, 0, &["x"]),
                "1 copy failed; see failures: team-a/x (Immutable)",
            ),
            (
                message(4, 1, 1, &["x", "y"]),
                "2 copies failed, 1 in conflict; see failures: team-a/x (Immutable), …",
            ),
            (
                message(3, 2, 1, &["x"]),
                "1 of 3 copies in conflict; see failures: team-a/x (Immutable)",
            ),
        ] {
            assert_eq!(found.as_deref(), Some(expected));
        }
    }
}
