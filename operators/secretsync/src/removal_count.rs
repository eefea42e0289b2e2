//! Counts the copies that a change removes, for the [`RemovalGuard`](crate::removal_guard::RemovalGuard).
//!
//! What counts, and is held back, are removals that may be a mistake of the source's owner: a selector or a label no longer
//! matches, an annotation is gone, of the source or of target namespaces, or a SecretSync is gone that was never seen being
//! deleted, although it has a finalizer. What is unmistakable is neither counted nor held:
//! the deletion of the sync or of the source, `false` on a source, and a target namespace that says `false`, or names others,
//! which is its right.
//!
//! All metadata of a copy can be forged by the owner of its namespace. So a copy counts only if its sync, its source and its
//! consent are what it says, and a copy that this process has not compared itself only up to the number in the sync's status.

use std::sync::Arc;

use windlass::{
    cache::Uid,
    prelude::{Conditions, Context, Error, ObjectKey},
    runtime::READY_CONDITION,
};

use crate::{
    api::{SecretSync, SourceKind},
    consent::Stance,
    copy_metadata::CopyMetadata,
    engine::Engine,
    identity::{Job, SyncId, SyncOwner},
    removal_guard::{Confirmation, CopyCount, Removal},
    source_status::{status_key, status_of},
    source_watch::SourceWatchKey,
    sync_index::SyncIndex,
};

/// A copy, and where it is.
#[derive(Clone, Copy)]
pub(crate) struct CopyAt<'a> {
    pub(crate) kind: SourceKind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) copy: &'a CopyMetadata,
}

/// Whether the consents of namespaces can be compared with those of before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsentKey {
    Same,
    /// `--annotation` was changed since the copies were written: what the new one says was not said about them.
    Changed,
}

impl SyncIndex {
    /// Returns whether the removal of a copy may be a mistake of the source's owner. Otherwise it is unmistakable.
    pub(crate) fn guards_removal(&self, id: &SyncId, at: CopyAt<'_>, key: ConsentKey) -> bool {
        let home = match self.syncs.get(id) {
            Some(sync) if sync.is_deleting || at.copy.owner.as_deref() != Some(&*sync.owner) => return false,
            Some(sync) => &sync.namespace,
            None => match id {
                // Its annotation was removed, or `--annotation` was changed.
                SyncId::Annotated { .. } => &self.config.source_namespace,
                // If it was deleted, its finalizer was not respected.
                SyncId::Declared { namespace, .. } => namespace,
            },
        };
        let place = self.namespaces.get(at.namespace);
        let Some(place) = place.filter(|place| !place.is_terminating) else {
            return false;
        };
        let refuses = self.stance(place, home) == Stance::Refuses;
        !self.is_revoked(id, home, at) && (!refuses || key == ConsentKey::Changed)
    }

    /// Returns whether the source of a copy was deleted, or is annotated with `false`. `home` is the namespace of the source.
    pub(crate) fn is_revoked(&self, id: &SyncId, home: &Arc<str>, at: CopyAt<'_>) -> bool {
        let watch = SourceWatchKey {
            kind: at.kind,
            namespace: Arc::clone(home),
        };
        // If it is not watched any more, the source may still exist.
        let Some(watch) = self.watch(&watch).filter(|watch| watch.is_complete) else {
            return false;
        };
        watch.objects.get(at.name).is_none_or(|source| {
            let is_other = Uid::from(source.uid()) != at.copy.source_uid;
            is_other || matches!(id, SyncId::Annotated { .. }) && source.refuses()
        })
    }

    /// Returns whether a copy is wanted, or whether that cannot be known.
    fn keeps_copy(&self, id: &SyncId, at: CopyAt<'_>) -> bool {
        self.syncs
            .get(id)
            .is_some_and(|sync| sync.rules.is_err() || self.keeps(sync, at.kind, at.namespace, at.name))
    }
}

/// The copies of a sync.
#[derive(Default)]
struct Tally {
    wanted: usize,
    /// Unwanted copies that this process has written or compared.
    known: usize,
    /// Unwanted copies that it knows only by what they say themselves.
    unknown: usize,
}

impl Tally {
    fn add(&mut self, index: &SyncIndex, id: &SyncId, at: CopyAt<'_>, key: ConsentKey) {
        let CopyMetadata {
            ownership,
            is_deleting,
            is_adopted,
            ..
        } = at.copy;
        if !ownership.is_ours || *is_deleting || *is_adopted || !index.guards_removal(id, at, key) {
            return;
        }
        if index.keeps_copy(id, at) {
            self.wanted += 1;
        } else if at.copy.content().is_some() {
            self.known += 1;
        } else {
            self.unknown += 1;
        }
    }

    /// `most` is how many copies the sync had by its status.
    fn count(&self, most: usize) -> CopyCount {
        let sure = self.wanted + self.known;
        let trusted = self.unknown.min(most.saturating_sub(sure));
        CopyCount {
            wanted: self.wanted,
            unwanted: self.known + trusted,
            doubtful: self.unknown - trusted,
        }
    }
}

impl Engine {
    /// Returns the SecretSync that has or shows the status of a sync.
    pub(crate) fn status_object(&self, id: &SyncId) -> Option<Arc<SecretSync>> {
        let home = Arc::clone(&self.index.read().config.source_namespace);
        let object = self.listers().syncs.get(&status_key(id, &home)?)?;
        let shown = status_of(&object.metadata, &home);
        match id {
            SyncId::Annotated { .. } => (shown.as_ref() == Some(id)).then_some(object),
            SyncId::Declared { .. } => shown.is_none().then_some(object),
        }
    }

    /// Returns whether the status of a source is shown, or cannot be.
    fn shows_status(&self, index: &SyncIndex, id: &SyncId) -> bool {
        let key = status_key(id, &index.config.source_namespace);
        key.is_none_or(|key| self.listers().syncs.get(&key).is_some())
    }

    /// Returns how a removal can be confirmed.
    pub(crate) fn confirmation(&self, id: &SyncId) -> Confirmation {
        let home = Arc::clone(&self.index.read().config.source_namespace);
        let Some(key) = status_key(id, &home) else {
            return Confirmation::Source;
        };
        let is_absent = self.listers().syncs.get(&key).is_none();
        match id {
            SyncId::Declared { .. } if is_absent => Confirmation::Recreation(key),
            SyncId::Declared { .. } => Confirmation::Annotation(key),
            // What it does not see cannot be confirmed either.
            SyncId::Annotated { .. } if !self.index.read().config.is_within(&home) => Confirmation::Source,
            SyncId::Annotated { .. } if is_absent || self.status_object(id).is_some() => {
                Confirmation::Annotation(key)
            }
            SyncId::Annotated { .. } => Confirmation::Source,
        }
    }

    /// Returns the removal of this sync's copies that waits for a confirmation, if so.
    pub(crate) fn held_removal(&self, id: &SyncId) -> Option<Removal> {
        let object = self.status_object(id);
        let revision = self.index.read().revision;
        self.removals.held(
            id,
            revision,
            object.as_deref(),
            || self.count_copies(id, object.as_deref()),
            || match id {
                SyncId::Annotated { .. } => Some(self.count_annotated(self.consent_key(object.as_deref()))),
                SyncId::Declared { .. } => None,
            },
        )
    }

    /// Returns whether the removal of a copy may be held back.
    pub(crate) fn guards_removal(&self, id: &SyncId, at: CopyAt<'_>) -> bool {
        let key = self.consent_key(self.status_object(id).as_deref());
        self.index.read().guards_removal(id, at, key)
    }

    /// Returns whether the status of a sync has the plan to remove another copy.
    pub(crate) fn is_removal_planned(&self, id: &SyncId) -> bool {
        self.removals.is_planned(id, self.status_object(id).as_deref())
    }

    /// Writes which copies are about to be removed to the status, so that a crash does not reset their count.
    pub(crate) async fn plan_removals(&self, id: &SyncId, ctx: &Context<Job>) -> Result<(), Error> {
        // One write covers all namespaces.
        let _turn = self.status_turn(id).await;
        if self.is_removal_planned(id) {
            return Ok(());
        }
        let Some(object) = self.status_object(id) else {
            return Ok(());
        };
        let mut updated = SecretSync::clone(&object);
        let status = updated.status.get_or_insert_default();
        status.recent_removals = self.removals.recent(id, Some(&object));
        ctx.writer().apply_status(&updated).await?;
        Ok(())
    }

    /// Records that a copy was removed whose removal could have been held back.
    pub(crate) fn record_removal(&self, id: &SyncId) {
        self.removals.record(id, self.status_object(id).as_deref());
    }

    /// Returns whether copies of a sync could still be removed that are no longer wanted.
    pub(crate) fn has_unwanted(&self, id: &SyncId, object: Option<&SecretSync>) -> bool {
        let count = self.count_copies(id, object);
        count.unwanted + count.doubtful > 0
    }

    fn consent_key(&self, object: Option<&SecretSync>) -> ConsentKey {
        let status = object.and_then(|object| object.status.as_ref());
        match status.and_then(|status| status.consent_annotation.as_deref()) {
            Some(before) if *before != *self.index.read().config.annotation => ConsentKey::Changed,
            _ => ConsentKey::Same,
        }
    }

    /// Counts the copies of a sync that could be deleted, and how many of them it no longer wants.
    fn count_copies(&self, id: &SyncId, object: Option<&SecretSync>) -> CopyCount {
        let key = self.consent_key(object);
        let index = self.index.read();
        let mut tally = Tally::default();
        let most = match id {
            SyncId::Declared { namespace, name } => {
                let sync = ObjectKey::namespaced(&**namespace, &**name);
                for kind in SourceKind::ALL {
                    for (at, copy) in self.listers().copies(kind).of_sync(&sync, None) {
                        tally.add(&index, id, copy_at(kind, &at, &copy), key);
                    }
                }
                copies_by_status(object)
            }
            SyncId::Annotated { kind, name } => {
                for namespace in index.namespaces.keys() {
                    let at = ObjectKey::namespaced(&**namespace, &**name);
                    let copy = self.listers().copies(*kind).get(&at);
                    if let Some(copy) = copy.filter(|copy| index.is_annotated_copy(copy)) {
                        tally.add(&index, id, copy_at(*kind, &at, &copy), key);
                    }
                }
                copies_by_status(object)
            }
        };
        tally.count(most)
    }

    /// Counts the unwanted copies of all annotated sources. They have one annotation, so `key` holds for all of them.
    fn count_annotated(&self, key: ConsentKey) -> usize {
        let index = self.index.read();
        let mut tally = Tally::default();
        for kind in SourceKind::ALL {
            for (at, copy) in self.listers().copies(kind).all() {
                if !index.is_annotated_copy(&copy) {
                    continue;
                }
                let id = SyncId::Annotated {
                    kind,
                    name: at.name().into(),
                };
                // Without a status, nothing says that it was annotated: it counts only for itself.
                if copy.content().is_some() || self.shows_status(&index, &id) {
                    tally.add(&index, &id, copy_at(kind, &at, &copy), key);
                }
            }
        }
        tally.count(usize::MAX).unwanted
    }
}

impl SyncIndex {
    fn is_annotated_copy(&self, copy: &CopyMetadata) -> bool {
        matches!(
            copy.owner.as_deref(),
            Some(SyncOwner::Annotation { source_namespace }) if *source_namespace == self.config.source_namespace
        )
    }
}

/// Returns how many copies a SecretSync has at most, by its status.
fn copies_by_status(object: Option<&SecretSync>) -> usize {
    let Some(status) = object.and_then(|object| object.status.as_ref()) else {
        return usize::MAX;
    };
    let ready = status.conditions.of_type(READY_CONDITION);
    // Where nothing is written, not all copies are counted.
    if ready.is_none_or(|ready| ["InvalidSpec", "LimitExceeded"].contains(&&*ready.reason)) {
        return usize::MAX;
    }
    // What is held counts as failed.
    status.targets.saturating_add(status.failed) as usize
}

fn copy_at<'a>(kind: SourceKind, key: &'a ObjectKey, copy: &'a CopyMetadata) -> CopyAt<'a> {
    CopyAt {
        kind,
        namespace: key.namespace().unwrap_or_default(),
        name: key.name(),
        copy,
    }
}
