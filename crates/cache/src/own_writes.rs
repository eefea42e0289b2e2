//! Own writes that the watch has not confirmed yet.

use std::collections::{HashMap, VecDeque};

use crate::{
    key::ObjectKey,
    meta::{Meta, Uid},
};

/// Upper bound of remembered writes; the oldest is forgotten first. An older watch event may undo a forgotten write for
/// a moment.
const MAX_OWN_WRITES: usize = 4096;

/// The last own write of each key, until the watch has reached it.
#[derive(Default)]
pub(crate) struct OwnWrites {
    by_key: HashMap<ObjectKey, OwnWrite>,
    /// In the order of the writes; may contain keys that are confirmed since.
    order: VecDeque<(ObjectKey, u64)>,
    next: u64,
}

struct OwnWrite {
    number: u64,
    kind: WriteKind,
}

#[derive(Clone, Copy)]
enum WriteKind {
    /// Written at this resource version; whether it is in the store depends on the scope.
    Updated(u64),
    /// The object with this UID was deleted.
    Deleted(Uid),
}

impl OwnWrites {
    pub(crate) fn record_write(&mut self, key: ObjectKey, resource_version: u64) {
        self.remember(key, WriteKind::Updated(resource_version));
    }

    pub(crate) fn record_delete(&mut self, key: ObjectKey, uid: Uid) {
        self.remember(key, WriteKind::Deleted(uid));
    }

    fn remember(&mut self, key: ObjectKey, kind: WriteKind) {
        let number = self.next;
        self.next += 1;
        self.order.push_back((key.clone(), number));
        self.by_key.insert(key, OwnWrite { number, kind });
        while self.by_key.len() > MAX_OWN_WRITES || self.order.len() > 2 * MAX_OWN_WRITES {
            let Some((key, number)) = self.order.pop_front() else {
                return;
            };
            if self.by_key.get(&key).is_some_and(|own| own.number == number) {
                self.by_key.remove(&key);
            }
        }
    }

    /// Returns whether an observed state is older than the own write.
    pub(crate) fn supersedes(&self, observed: &Meta) -> bool {
        self.by_key.get(&observed.key).is_some_and(|own| match own.kind {
            WriteKind::Updated(version) => {
                observed.resource_version != 0 && observed.resource_version < version
            }
            WriteKind::Deleted(uid) => observed.uid == uid,
        })
    }

    /// Returns whether a list at this version may not contain the own write of this key.
    pub(crate) fn is_newer_than(&self, key: &ObjectKey, listed: u64) -> bool {
        self.by_key
            .get(key)
            .is_some_and(|own| matches!(own.kind, WriteKind::Updated(version) if version > listed))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Confirms the deletion of an object that the watch has reported.
    pub(crate) fn confirm_delete(&mut self, observed: &Meta) {
        if self.by_key.get(&observed.key).is_some_and(|own| match own.kind {
            WriteKind::Updated(version) => version <= observed.resource_version,
            WriteKind::Deleted(uid) => uid == observed.uid,
        }) {
            self.by_key.remove(&observed.key);
        }
    }

    /// Confirms the writes up to this version of the keys that `covers` accepts.
    pub(crate) fn confirm_up_to(&mut self, resource_version: u64, covers: impl Fn(&ObjectKey) -> bool) {
        self.by_key.retain(|key, own| match own.kind {
            WriteKind::Updated(version) => version > resource_version || !covers(key),
            WriteKind::Deleted(_) => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_writes_are_bounded() {
        let mut own = OwnWrites::default();
        for number in 0..3 * MAX_OWN_WRITES {
            own.record_write(ObjectKey::cluster_scoped(format!("n{number}")), 5);
            own.record_delete(ObjectKey::cluster_scoped("again and again"), Uid::from("u"));
        }
        assert!(
            own.len() <= MAX_OWN_WRITES && own.order.len() <= 2 * MAX_OWN_WRITES,
            "{} {}",
            own.len(),
            own.order.len()
        );
        assert!(own.is_newer_than(
            &ObjectKey::cluster_scoped(format!("n{}", 3 * MAX_OWN_WRITES - 1)),
            4
        ));
        own.confirm_up_to(5, |_| true);
        assert_eq!(own.len(), 1);
    }
}
