//! Own writes that the watch has not told of yet.

use std::collections::{HashMap, VecDeque};

use crate::{
    key::ObjectKey,
    meta::{Meta, Uid},
};

/// No more than so many are remembered; the oldest goes first. One that is forgotten may be undone for a moment by
/// what the watch tells late.
const MOST: usize = 4096;

/// What was written last under each key, until the watch has come that far.
#[derive(Default)]
pub(crate) struct OwnWrites {
    by_key: HashMap<ObjectKey, Own>,
    /// In the order in which they were made; may name keys that are confirmed since.
    order: VecDeque<(ObjectKey, u64)>,
    next: u64,
}

struct Own {
    number: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// It was written at this version; whether it is in the store depends on the selection.
    Wrote(u64),
    /// The object with this UID is gone.
    Deleted(Uid),
}

impl OwnWrites {
    pub(crate) fn wrote(&mut self, key: ObjectKey, resource_version: u64) {
        self.remember(key, What::Wrote(resource_version));
    }

    pub(crate) fn deleted(&mut self, key: ObjectKey, uid: Uid) {
        self.remember(key, What::Deleted(uid));
    }

    fn remember(&mut self, key: ObjectKey, what: What) {
        let number = self.next;
        self.next += 1;
        self.order.push_back((key.clone(), number));
        self.by_key.insert(key, Own { number, what });
        while self.by_key.len() > MOST || self.order.len() > 2 * MOST {
            let Some((key, number)) = self.order.pop_front() else {
                return;
            };
            if self.by_key.get(&key).is_some_and(|own| own.number == number) {
                self.by_key.remove(&key);
            }
        }
    }

    /// Whether a state that the server tells of is older than what was written here.
    pub(crate) fn supersedes(&self, told: &Meta) -> bool {
        self.by_key.get(&told.key).is_some_and(|own| match own.what {
            What::Wrote(version) => told.resource_version != 0 && told.resource_version < version,
            What::Deleted(uid) => told.uid == uid,
        })
    }

    /// Whether a list at this version may not know yet what was written under this key.
    pub(crate) fn is_newer_than(&self, key: &ObjectKey, listed: u64) -> bool {
        self.by_key
            .get(key)
            .is_some_and(|own| matches!(own.what, What::Wrote(version) if version > listed))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The watch told of the object's end.
    pub(crate) fn ended(&mut self, told: &Meta) {
        if self.by_key.get(&told.key).is_some_and(|own| match own.what {
            What::Wrote(version) => version <= told.resource_version,
            What::Deleted(uid) => uid == told.uid,
        }) {
            self.by_key.remove(&told.key);
        }
    }

    /// Everything up to this version has been told about the keys that `covers` accepts.
    pub(crate) fn told_up_to(&mut self, resource_version: u64, covers: impl Fn(&ObjectKey) -> bool) {
        self.by_key.retain(|key, own| match own.what {
            What::Wrote(version) => version > resource_version || !covers(key),
            What::Deleted(_) => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_remembered_than_the_limit() {
        let mut own = OwnWrites::default();
        for number in 0..3 * MOST {
            own.wrote(ObjectKey::cluster(format!("n{number}")), 5);
            own.deleted(ObjectKey::cluster("again and again"), Uid::from("u"));
        }
        assert!(
            own.len() <= MOST && own.order.len() <= 2 * MOST,
            "{} {}",
            own.len(),
            own.order.len()
        );
        assert!(own.is_newer_than(&ObjectKey::cluster(format!("n{}", 3 * MOST - 1)), 4));
        own.told_up_to(5, |_| true);
        assert_eq!(own.len(), 1);
    }
}
