//! One sink's view of one feed's objects, and the notices that follow from it. Pure: no I/O, no clock.
//!
//! ```text
//!            offer               delivered                 commit
//!   unknown ───────► offered ───────────────► uncommitted ─────────► confirmed (in `Progress`, which the journal stores)
//!   (with a journal: written here)                └── commit failed: as before
//! ```

use std::{collections::HashSet, sync::Arc};

use windlass::cache::{ObjectKey, Uid};

use crate::{
    journal::{ObjectVersion, Progress},
    notice::{EventType, Notice},
};

/// A sink's view of one feed's objects.
#[derive(Debug)]
pub(super) struct SinkView {
    progress: Progress,
    /// Delivered, but not committed by the sink yet. In order.
    uncommitted: Vec<(ObjectKey, Confirmation)>,
}

#[derive(Clone, Debug)]
enum Confirmation {
    Present(ObjectVersion),
    /// `None`: any UID.
    Deleted(Option<Uid>),
}

impl SinkView {
    /// Starts from what was confirmed before.
    pub(super) fn new(progress: Progress) -> Self {
        Self {
            progress,
            uncommitted: Vec::new(),
        }
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Records that the sink has every existing object.
    pub(super) fn mark_complete(&mut self) {
        self.progress.complete = true;
    }

    /// Records a delivery.
    pub(super) fn delivered(&mut self, notice: &Notice) {
        self.uncommitted
            .push((notice.key.clone(), Confirmation::from_notice(notice)));
    }

    /// Records that a notice will not be delivered. A deletion counts as confirmed, or rejected deletions would pile up.
    pub(super) fn give_up(&mut self, notice: &Notice) {
        if notice.event == EventType::Deleted {
            self.confirm(notice.key.clone(), Confirmation::from_notice(notice));
        }
    }

    /// The number of deliveries that are not confirmed.
    pub(super) fn uncommitted(&self) -> usize {
        self.uncommitted.len()
    }

    /// Confirms all deliveries, after the sink committed them.
    pub(super) fn committed(&mut self) {
        for (key, confirmation) in std::mem::take(&mut self.uncommitted) {
            self.confirm(key, confirmation);
        }
    }

    /// Discards the unconfirmed deliveries, after the sink failed to commit them.
    pub(super) fn discard_uncommitted(&mut self) {
        self.uncommitted.clear();
    }

    /// The UID of the notice's object, if it is new to the sink and not offered yet.
    pub(super) fn needs_offer(&self, next: &Notice) -> Option<Uid> {
        let uid = ObjectVersion::from_notice(next).uid;
        let Progress { objects, offered, .. } = &self.progress;
        let is_known = objects.get(&next.key).is_some_and(|known| known.uid == uid);
        let is_offered = offered.get(&next.key) == Some(&uid);
        (next.event != EventType::Deleted && !is_known && !is_offered).then_some(uid)
    }

    /// Records that the sink may receive this object soon.
    pub(super) fn offer(&mut self, key: ObjectKey, uid: Uid) {
        self.progress.offered.insert(key, uid);
    }

    /// Counts a change that is not reported as confirmed, if the state before it is. Returns whether it was confirmed now.
    pub(super) fn skip(
        &mut self,
        key: &ObjectKey,
        old: Option<&ObjectVersion>,
        new: Option<&ObjectVersion>,
    ) -> bool {
        let is_up_to_date = match (self.latest_version(key), old) {
            (None, None) => true,
            (Some(known), Some(old)) => known.is_same_version(old),
            _ => false,
        };
        is_up_to_date && self.confirm_unreported(key, new)
    }

    /// Counts a version, or a deletion (`None`), that is not reported as confirmed. Returns whether it was confirmed now.
    pub(super) fn confirm_unreported(&mut self, key: &ObjectKey, new: Option<&ObjectVersion>) -> bool {
        let confirmation = match new {
            Some(version) => Confirmation::Present(version.clone()),
            None => Confirmation::Deleted(None),
        };
        // After the object's uncommitted deliveries, to keep the order.
        let waits = self.uncommitted.iter().any(|(unsettled, _)| unsettled == key);
        if waits {
            self.uncommitted.push((key.clone(), confirmation));
        } else {
            self.confirm(key.clone(), confirmation);
        }
        !waits
    }

    /// Translates a notice for this sink, if none of its object waits: to nothing, or one or two notices.
    pub(super) fn translate(&self, notice: &Arc<Notice>) -> [Option<Arc<Notice>>; 2] {
        let as_it_is = [Some(Arc::clone(notice)), None];
        if notice.event == EventType::Deleted {
            return as_it_is;
        }
        let now = ObjectVersion::from_notice(notice);
        let inferred = |event| {
            Some(Arc::new(Notice {
                event,
                inferred: true,
                ..Notice::clone(notice)
            }))
        };
        let ended = |uid: Uid, resource_version| {
            Some(Arc::new(Notice {
                event: EventType::Deleted,
                inferred: true,
                uid: Some(uid.to_string()),
                resource_version,
                object: None,
                ..Notice::clone(notice)
            }))
        };
        match (
            self.latest_version(&notice.key),
            self.progress.offered.get(&notice.key),
        ) {
            (Some(known), _) if known.is_same_version(&now) => [None, None],
            _ if notice.event != EventType::Synced => as_it_is,
            (_, Some(offered)) if *offered != now.uid => [ended(*offered, None), inferred(EventType::Added)],
            (Some(known), None) if known.uid == now.uid => [inferred(EventType::Updated), None],
            (Some(known), None) => {
                let ended = ended(known.uid, known.resource_version_text());
                [ended, inferred(EventType::Added)]
            }
            _ if self.progress.complete => [inferred(EventType::Added), None],
            _ => as_it_is,
        }
    }

    /// The existing objects whose version the sink has not confirmed, and the deleted objects that it may know.
    pub(super) fn differences(&self, versions: &[ObjectVersion]) -> (Vec<ObjectKey>, Vec<ObjectVersion>) {
        let Progress { objects, offered, .. } = &self.progress;
        let changed = versions
            .iter()
            .filter(|now| {
                !objects
                    .get(&now.key)
                    .is_some_and(|known| known.is_same_version(now))
            })
            .map(|now| now.key.clone());
        let there: HashSet<_> = versions.iter().map(|now| &now.key).collect();
        // Before an object was offered, the deletion of its predecessor was delivered.
        let confirmed = objects.values().filter(|known| !offered.contains_key(&known.key));
        let offered = offered.iter().map(|(key, uid)| ObjectVersion {
            key: key.clone(),
            uid: *uid,
            resource_version: 0,
        });
        let known = confirmed.cloned().chain(offered);
        let gone = known.filter(|known| !there.contains(&known.key));
        (changed.collect(), gone.collect())
    }

    /// The version that was confirmed, or delivered since.
    fn latest_version(&self, key: &ObjectKey) -> Option<&ObjectVersion> {
        let unsettled = self
            .uncommitted
            .iter()
            .rev()
            .find(|(unsettled, _)| unsettled == key);
        match unsettled {
            Some((_, Confirmation::Present(version))) => Some(version),
            Some((_, Confirmation::Deleted(_))) => None,
            None => self.progress.objects.get(key),
        }
    }

    fn confirm(&mut self, key: ObjectKey, confirmation: Confirmation) {
        let Progress { objects, offered, .. } = &mut self.progress;
        match confirmation {
            Confirmation::Present(version) => {
                offered.remove(&key);
                objects.insert(key, version);
            }
            Confirmation::Deleted(gone) => {
                let is_it = |uid: &Uid| gone.is_none_or(|gone| gone == *uid);
                if offered.get(&key).is_some_and(is_it) {
                    offered.remove(&key);
                    // The deletion of its predecessor was delivered earlier.
                    objects.remove(&key);
                } else if objects.get(&key).is_some_and(|known| is_it(&known.uid)) {
                    objects.remove(&key);
                }
                // The deletion of another object of this name does not affect the known one.
            }
        }
    }
}

impl Confirmation {
    fn from_notice(notice: &Notice) -> Self {
        let version = ObjectVersion::from_notice(notice);
        match notice.event {
            EventType::Deleted => Self::Deleted(notice.uid.as_ref().map(|_| version.uid)),
            _ => Self::Present(version),
        }
    }
}
