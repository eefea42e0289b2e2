//! What one sink knows of one feed's objects, and what follows from it. No I/O, no time.
//!
//! ```text
//!            offer               delivered               settled
//!   unknown ───────► offered ───────────────► unsettled ─────────► confirmed (in `Progress`, which the journal keeps)
//!   (with a journal: written here)                └── not kept: as before
//! ```

use std::{collections::HashSet, sync::Arc};

use windlass::cache::{ObjectKey, Uid};

use crate::{
    journal::{Progress, Version},
    notice::{Notice, What},
};

/// A sink's knowledge of one feed.
#[derive(Debug)]
pub(super) struct Known {
    progress: Progress,
    /// Delivered, but the sink has not said yet that it will stay so. In order.
    unsettled: Vec<(ObjectKey, Confirmation)>,
}

#[derive(Clone, Debug)]
enum Confirmation {
    There(Version),
    /// `None`: whichever it was.
    Gone(Option<Uid>),
}

impl Known {
    /// What was confirmed before.
    pub(super) fn new(progress: Progress) -> Self {
        Self {
            progress,
            unsettled: Vec::new(),
        }
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The sink has heard of everything that there is.
    pub(super) fn complete(&mut self) {
        self.progress.complete = true;
    }

    /// The sink has got it.
    pub(super) fn delivered(&mut self, notice: &Notice) {
        self.unsettled
            .push((notice.key.clone(), Confirmation::of(notice)));
    }

    /// The end of an object is not to be told any more: the sink is left to believe what it does, or the ends that it does
    /// not want would pile up.
    pub(super) fn given_up(&mut self, notice: &Notice) {
        if notice.what == What::Deleted {
            self.confirm(notice.key.clone(), Confirmation::of(notice));
        }
    }

    /// How many were delivered and are not confirmed.
    pub(super) fn unsettled(&self) -> usize {
        self.unsettled.len()
    }

    /// What was delivered stays so: it is confirmed.
    pub(super) fn settled(&mut self) {
        for (key, confirmation) in std::mem::take(&mut self.unsettled) {
            self.confirm(key, confirmation);
        }
    }

    /// What was delivered may not stay: it counts as not confirmed.
    pub(super) fn unsettle(&mut self) {
        self.unsettled.clear();
    }

    /// The object that the sink would first hear of by this notice, unless it was offered.
    pub(super) fn needs_offer(&self, next: &Notice) -> Option<Uid> {
        let uid = Version::of(next).uid;
        let Progress { objects, offered, .. } = &self.progress;
        let is_known = objects.get(&next.key).is_some_and(|known| known.uid == uid);
        let is_offered = offered.get(&next.key) == Some(&uid);
        (next.what != What::Deleted && !is_known && !is_offered).then_some(uid)
    }

    /// The sink may hear of this object soon.
    pub(super) fn offer(&mut self, key: ObjectKey, uid: Uid) {
        self.progress.offered.insert(key, uid);
    }

    /// A change that is not told counts as confirmed if what was before it is. Returns whether it does now.
    pub(super) fn pass(&mut self, key: &ObjectKey, old: Option<&Version>, new: Option<&Version>) -> bool {
        let is_up_to_date = match (self.of(key), old) {
            (None, None) => true,
            (Some(known), Some(old)) => known.is_same(old),
            _ => false,
        };
        is_up_to_date && self.unwanted(key, new)
    }

    /// A state, or an end (`None`), that nobody wants to hear of. Returns whether it is confirmed now.
    pub(super) fn unwanted(&mut self, key: &ObjectKey, new: Option<&Version>) -> bool {
        let confirmation = match new {
            Some(version) => Confirmation::There(version.clone()),
            None => Confirmation::Gone(None),
        };
        // Not before what was delivered and is not confirmed yet.
        let waits = self.unsettled.iter().any(|(unsettled, _)| unsettled == key);
        if waits {
            self.unsettled.push((key.clone(), confirmation));
        } else {
            self.confirm(key.clone(), confirmation);
        }
        !waits
    }

    /// What a notice is to this sink if none of its object waits: nothing, one step or two.
    pub(super) fn judge(&self, notice: &Arc<Notice>) -> [Option<Arc<Notice>>; 2] {
        let as_it_is = [Some(Arc::clone(notice)), None];
        if notice.what == What::Deleted {
            return as_it_is;
        }
        let now = Version::of(notice);
        let inferred = |what| {
            Some(Arc::new(Notice {
                what,
                inferred: true,
                ..Notice::clone(notice)
            }))
        };
        let ended = |uid: Uid, resource_version| {
            Some(Arc::new(Notice {
                what: What::Deleted,
                inferred: true,
                uid: Some(uid.to_string()),
                resource_version,
                object: None,
                ..Notice::clone(notice)
            }))
        };
        match (self.of(&notice.key), self.progress.offered.get(&notice.key)) {
            (Some(known), _) if known.is_same(&now) => [None, None],
            _ if notice.what != What::Synced => as_it_is,
            (_, Some(offered)) if *offered != now.uid => [ended(*offered, None), inferred(What::Added)],
            (Some(known), None) if known.uid == now.uid => [inferred(What::Updated), None],
            (Some(known), None) => {
                let ended = ended(known.uid, known.resource_version_text());
                [ended, inferred(What::Added)]
            }
            _ if self.progress.complete => [inferred(What::Added), None],
            _ => as_it_is,
        }
    }

    /// Objects whose state the sink has not confirmed, and those that it may know and that are not there.
    pub(super) fn differences(&self, versions: &[Version]) -> (Vec<ObjectKey>, Vec<Version>) {
        let Progress { objects, offered, .. } = &self.progress;
        let changed = versions
            .iter()
            .filter(|now| !objects.get(&now.key).is_some_and(|known| known.is_same(now)))
            .map(|now| now.key.clone());
        let there: HashSet<_> = versions.iter().map(|now| &now.key).collect();
        // The end of what was there before something was offered has been told.
        let confirmed = objects.values().filter(|known| !offered.contains_key(&known.key));
        let offered = offered.iter().map(|(key, uid)| Version {
            key: key.clone(),
            uid: *uid,
            resource_version: 0,
        });
        let known = confirmed.cloned().chain(offered);
        let gone = known.filter(|known| !there.contains(&known.key));
        (changed.collect(), gone.collect())
    }

    /// The state that was confirmed, or delivered since.
    fn of(&self, key: &ObjectKey) -> Option<&Version> {
        let unsettled = self
            .unsettled
            .iter()
            .rev()
            .find(|(unsettled, _)| unsettled == key);
        match unsettled {
            Some((_, Confirmation::There(version))) => Some(version),
            Some((_, Confirmation::Gone(_))) => None,
            None => self.progress.objects.get(key),
        }
    }

    fn confirm(&mut self, key: ObjectKey, confirmation: Confirmation) {
        let Progress { objects, offered, .. } = &mut self.progress;
        match confirmation {
            Confirmation::There(version) => {
                offered.remove(&key);
                objects.insert(key, version);
            }
            Confirmation::Gone(gone) => {
                let is_it = |uid: &Uid| gone.is_none_or(|gone| gone == *uid);
                if offered.get(&key).is_some_and(is_it) {
                    offered.remove(&key);
                    // The end of an earlier one came before.
                    objects.remove(&key);
                } else if objects.get(&key).is_some_and(|known| is_it(&known.uid)) {
                    objects.remove(&key);
                }
                // The end of another object of this name says nothing about the one that is known.
            }
        }
    }
}

impl Confirmation {
    fn of(notice: &Notice) -> Self {
        let version = Version::of(notice);
        match notice.what {
            What::Deleted => Self::Gone(notice.uid.as_ref().map(|_| version.uid)),
            _ => Self::There(version),
        }
    }
}
