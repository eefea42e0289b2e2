//! A SecretSync's own affairs: its finalizer, and what its status tells.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use windlass::{
    k8s_openapi::api::core::v1::ObjectReference,
    prelude::{Action, Conditions, Context, Error, Finding, ObjectKey, ResourceExt},
    runtime::Clock,
};

use crate::{
    api::{FINALIZER, SecretSync, SecretSyncStatus, SourceKind, SyncFailure},
    engine::Engine,
    identity::{Mark, SyncId},
    ledger::Summary,
};

/// How many failures a status lists.
const FAILURES: usize = 10;

/// A status that keeps changing is written no more often than this.
const PACE: Duration = Duration::from_secs(1);

/// When a SecretSync's account was last looked at.
pub(crate) struct Told {
    at: Instant,
}

/// What a status is made of, beside the sums.
struct Standing {
    /// What is wrong with the spec.
    wrong: Option<String>,
    is_deleting: bool,
    is_paused: bool,
    /// What it asks for and may not have.
    excess: Option<String>,
    /// It names or selects nothing at all.
    is_empty: bool,
    matched: u32,
    /// Sources that were selected and are not copied, whatever is in the way.
    passed_over: u32,
    namespaces: u32,
    /// Names that are not there, or not to be copied.
    refused: Vec<SyncFailure>,
}

impl Engine {
    /// Sees to a SecretSync's finalizer and status.
    pub(crate) async fn account(
        &self,
        namespace: &Arc<str>,
        name: &Arc<str>,
        ctx: &Context,
    ) -> Result<Action, Error> {
        let id = SyncId::Declared {
            namespace: Arc::clone(namespace),
            name: Arc::clone(name),
        };
        let key = ObjectKey::namespaced(&**namespace, &**name);
        let Some(sync) = self.listers().syncs.try_get(&key)? else {
            self.ledger.lock().forget(&id);
            self.told.lock().remove(&id);
            return Ok(Action::done());
        };
        let has_finalizer = sync.finalizers().iter().any(|one| one == FINALIZER);
        if sync.metadata.deletion_timestamp.is_none() && !has_finalizer {
            // It comes back as a change, and with it the work begins.
            ctx.writer().add_finalizer(&*sync, FINALIZER).await?;
            return Ok(Action::done());
        }
        if sync.metadata.deletion_timestamp.is_some() && has_finalizer && !self.has_copies(&sync) {
            ctx.writer().remove_finalizer(&*sync, FINALIZER).await?;
            return Ok(Action::done());
        }
        let Some(standing) = self.standing(&id, &sync) else {
            return Ok(Action::done());
        };
        let summary = {
            let mut ledger = self.ledger.lock();
            ledger.through(&id);
            ledger.summary(&id, FAILURES)
        };
        let is_idle = standing.wrong.is_some() || standing.is_paused || standing.excess.is_some();
        if !summary.was_through && !is_idle {
            return Ok(Action::done());
        }
        // One that goes has something to tell only if something keeps it. Whatever goes is told, and then it is looked at again.
        if standing.is_deleting && summary.tally.failed == 0 {
            return Ok(Action::done());
        }
        let status = status(&sync, &standing, &summary);
        if sync.status.as_ref() == Some(&status) {
            return Ok(Action::done());
        }
        if let Some(wait) = self.too_early(&id) {
            return Ok(Action::requeue_after(wait));
        }
        let mut told = SecretSync::clone(&sync);
        told.status = Some(status);
        ctx.writer().apply_status(&told).await?;
        Ok(Action::done())
    }

    /// Whether a status that has changed could be written now.
    pub(crate) fn is_account_due(&self, id: &SyncId) -> bool {
        let told = self.told.lock();
        told.get(id).is_some_and(|last| last.at.elapsed() >= PACE)
    }

    /// How long to wait until the status may be written again.
    fn too_early(&self, id: &SyncId) -> Option<Duration> {
        let mut told = self.told.lock();
        let now = Instant::now();
        let since = told.get(id).map(|last| now - last.at);
        if let Some(wait) = since.and_then(|since| PACE.checked_sub(since).filter(|wait| !wait.is_zero())) {
            return Some(wait);
        }
        told.insert(id.clone(), Told { at: now });
        None
    }

    /// `None` while its sources are not known.
    fn standing(&self, id: &SyncId, object: &SecretSync) -> Option<Standing> {
        let roster = self.roster.read();
        let sync = roster.sync(id)?;
        let (wrong, is_paused) = match &sync.rules {
            Ok(rules) => (None, rules.is_paused),
            Err(wrong) => (Some(wrong.clone()), false),
        };
        // One that goes has no sources any more.
        if !sync.is_deleting && !roster.is_ready(sync) {
            return None;
        }
        let refusal = |name: &str, reason: &str, message: &str| SyncFailure {
            namespace: sync.namespace.to_string(),
            name: name.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        let mut refused = Vec::new();
        // Nobody looks for the sources of one that goes, or that is not understood.
        let mut names = if sync.is_deleting || sync.rules.is_err() {
            Vec::new()
        } else {
            object.spec.names.clone()
        };
        names.sort_unstable();
        names.dedup();
        for name in &names {
            match sync.members.get(name.as_str()) {
                None => refused.push(refusal(name, "NotFound", "there is no such object to copy")),
                Some(member) => {
                    refused.extend(member.refusal.map(|why| refusal(name, "IsACopy", why)));
                }
            }
        }
        let copied = |one: &bool| *one;
        let members = sync.members.values();
        let matched = members
            .map(|member| member.refusal.is_none())
            .filter(copied)
            .count();
        Some(Standing {
            wrong,
            is_deleting: sync.is_deleting,
            is_paused,
            excess: roster.excess(id, sync),
            is_empty: object.spec.secret_selector.is_none() && object.spec.names.is_empty(),
            matched: count(matched),
            passed_over: count(sync.members.len() - matched),
            namespaces: count(roster.targets_of(id)),
            refused,
        })
    }

    /// Whether there are copies of this very SecretSync that are still to be taken away: not those that go with their namespace,
    /// nor those that wait for a finalizer of the target's.
    fn has_copies(&self, sync: &SecretSync) -> bool {
        let uid = sync.metadata.uid.as_deref().unwrap_or_default();
        let roster = self.roster.read();
        let is_left = |namespace: &str| roster.place(namespace).is_some_and(|place| !place.is_terminating);
        SourceKind::ALL.into_iter().any(|kind| {
            let copies = self.listers().held(kind).of_sync(&ObjectKey::of(sync), None);
            copies.iter().any(|(key, held)| {
                let is_own = matches!(held.mark.as_deref(), Some(Mark::Sync { uid: of, .. }) if &**of == uid);
                is_own
                    && held.grip.is_ours
                    && !held.is_deleting
                    && is_left(key.namespace().unwrap_or_default())
            })
        })
    }

    /// Tells of a namespace whose consent cannot be understood.
    pub(crate) fn consent(&self, namespace: &Arc<str>, ctx: &Context) -> Action {
        let roster = self.roster.read();
        let Some(place) = roster.place(namespace) else {
            return Action::done();
        };
        for invalid in place.invalid() {
            let reference = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Namespace".to_owned()),
                name: Some(namespace.to_string()),
                uid: Some(place.uid.to_string()),
                ..ObjectReference::default()
            };
            ctx.recorder().warning(&reference, "InvalidConsent", invalid);
        }
        Action::done()
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The status that tells this.
fn status(sync: &SecretSync, standing: &Standing, summary: &Summary) -> SecretSyncStatus {
    let tally = &summary.tally;
    let failed = tally.failed.saturating_add(count(standing.refused.len()));
    let mut failures = standing.refused.clone();
    failures.extend(summary.failures.iter().cloned());
    failures.truncate(FAILURES);
    let before = sync.status.as_ref();
    let mut status = SecretSyncStatus {
        observed_generation: sync.metadata.generation,
        matched: standing.matched.saturating_sub(tally.excluded),
        excluded: tally.excluded.saturating_add(standing.passed_over),
        namespaces: standing.namespaces,
        targets: tally.targets,
        synced: tally.synced,
        failed,
        conflicts: tally.conflicts,
        failures,
        conditions: before.map(|status| status.conditions.clone()).unwrap_or_default(),
    };
    let generation = sync.metadata.generation;
    let clock = Clock::system();
    let ready = ready(standing, summary, &status);
    status.conditions.set(ready.at(generation), &clock);
    let conflict = if tally.conflicts == 0 {
        Finding::no("Conflict", "NoConflicts")
    } else {
        Finding::yes("Conflict", "InTheWay").message(format!(
            "{} of {} targets are somebody else's and are left as they are; see failures",
            tally.conflicts, tally.targets
        ))
    };
    status.conditions.set(conflict.at(generation), &clock);
    status
}

fn ready(standing: &Standing, summary: &Summary, status: &SecretSyncStatus) -> Finding {
    let no = |reason: &str, message: String| Finding::no("Ready", reason).message(message);
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
            format!("{failed} copies could not be taken away; see failures"),
        );
    }
    if let Some(wrong) = &standing.wrong {
        return no("InvalidSpec", wrong.clone());
    }
    if standing.is_paused {
        return no(
            "Paused",
            "spec.paused is true: nothing is written or deleted".to_owned(),
        );
    }
    if let Some(excess) = &standing.excess {
        return no(
            "BudgetExceeded",
            format!("{excess}; nothing is written until it selects less"),
        );
    }
    if standing.is_empty {
        return no(
            "NothingSelected",
            "neither spec.secretSelector nor spec.names says what to copy".to_owned(),
        );
    }
    if *failed > 0 {
        return no("Failed", format!("{failed} could not be copied; see failures"));
    }
    if *conflicts > 0 {
        return no(
            "Conflict",
            format!("{conflicts} of {targets} targets are somebody else's"),
        );
    }
    if summary.is_moving || synced < targets {
        return no(
            "Syncing",
            format!("{synced} of {targets} targets are as they should be"),
        );
    }
    Finding::yes("Ready", "Synced").message(format!("{synced} targets are as they should be"))
}
