//! Writes whose response was lost: the retry finds that they had their effect, and they are logged then.
//!
//! ```text
//!   a write fails without a response ──► Attempt, kept per sync and namespace
//!   a later run: the cache shows its effect ──► ActionLog, as if it had been answered
//! ```
//!
//! Owned by the engine; each run of a sync in a namespace takes its attempts, and returns those that are still undecided.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass::{cache::Uid, prelude::ObjectKey};

use crate::{
    action_log::{ActionLog, CopyAction},
    api::SourceKind,
    engine::Listers,
    identity::SyncId,
};

/// How long to wait for the effect of an attempt: the watch may be late.
const MAX_AGE: Duration = Duration::from_mins(10);

/// A write that may have had its effect.
pub(crate) struct Attempt {
    pub(crate) action: CopyAction,
    pub(crate) kind: SourceKind,
    pub(crate) name: Arc<str>,
    /// The UID of the object; `None` if it was to be created.
    pub(crate) uid: Option<Uid>,
    pub(crate) at: Instant,
}

/// A sync, and a namespace.
type Place = (SyncId, Arc<str>);

/// The attempts of all syncs, by namespace.
#[derive(Default)]
pub(crate) struct Unanswered(Mutex<HashMap<Place, Vec<Attempt>>>);

impl Unanswered {
    /// Logs the attempts of earlier runs that had their effect, and keeps those of this run.
    pub(crate) fn settle(
        &self,
        sync: &SyncId,
        namespace: &Arc<str>,
        actions: &ActionLog<'_>,
        listers: &Listers,
    ) {
        let attempts = actions.take_attempts();
        let mut all = self.0.lock();
        // Most runs neither have any nor had.
        if all.is_empty() && attempts.is_empty() {
            return;
        }
        let key = (sync.clone(), Arc::clone(namespace));
        let mut kept = all.remove(&key).unwrap_or_default();
        kept.retain(|attempt| {
            attempt.at.elapsed() < MAX_AGE && !is_settled(attempt, namespace, actions, listers)
        });
        kept.extend(attempts);
        if !kept.is_empty() {
            all.insert(key, kept);
        }
    }

    /// Forgets the attempts in a namespace that was deleted.
    pub(crate) fn forget(&self, sync: &SyncId, namespace: &Arc<str>) {
        let mut all = self.0.lock();
        if !all.is_empty() {
            all.remove(&(sync.clone(), Arc::clone(namespace)));
        }
    }
}

/// Logs an attempt if it had its effect; returns whether it needs no further look.
fn is_settled(attempt: &Attempt, namespace: &str, actions: &ActionLog<'_>, listers: &Listers) -> bool {
    let Attempt {
        action,
        kind,
        name,
        uid,
        ..
    } = attempt;
    let copy = listers
        .copies(*kind)
        .get(&ObjectKey::namespaced(namespace, &**name));
    let next = actions.first(*kind, name);
    let found = match action {
        CopyAction::Created | CopyAction::Updated | CopyAction::Adopted => copy
            .filter(|copy| copy.ownership.is_ours && copy.content().is_some())
            .map(|copy| copy.uid),
        CopyAction::Released | CopyAction::Deleted => uid.filter(|uid| {
            copy.is_none_or(|copy| copy.uid != *uid || copy.is_deleting || !copy.ownership.is_ours)
        }),
    };
    match (next, found) {
        // What was done since shows that it had its effect.
        (Some(CopyAction::Updated), Some(uid)) if *action == CopyAction::Created => {
            actions.record(*action, *kind, name, uid);
        }
        (Some(CopyAction::Created), Some(uid)) if *action == CopyAction::Deleted => {
            actions.record(*action, *kind, name, uid);
        }
        // It was repeated, or overtaken.
        (Some(_), _) => {}
        (None, Some(uid)) => actions.record(*action, *kind, name, uid),
        (None, None) => return false,
    }
    true
}
