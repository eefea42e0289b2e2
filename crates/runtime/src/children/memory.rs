//! What was applied in this process, so that it is not applied again to no effect.

use std::collections::HashMap;

use windlass_cache::ObjectKey;

/// By object of the controller's kind; forgotten with it. Nothing depends on it but the number of requests.
#[derive(Default)]
pub(crate) struct Memory {
    objects: HashMap<ObjectKey, Remembered>,
}

#[derive(Default)]
struct Remembered {
    status: Option<Deed>,
    children: HashMap<(String, ObjectKey), Deed>,
}

/// What was asked for, and what was there afterwards, as fingerprints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Deed {
    pub(super) wanted: u64,
    pub(super) there: u64,
}

impl Memory {
    pub(crate) fn forget(&mut self, object: &ObjectKey) {
        self.objects.remove(object);
    }

    pub(super) fn applied(&mut self, object: &ObjectKey, kind: &str, child: &ObjectKey, deed: Deed) {
        let remembered = self.objects.entry(object.clone()).or_default();
        remembered.children.insert((kind.to_owned(), child.clone()), deed);
    }

    pub(super) fn is_applied(&self, object: &ObjectKey, kind: &str, child: &ObjectKey, deed: Deed) -> bool {
        let remembered = self.objects.get(object);
        remembered
            .and_then(|remembered| remembered.children.get(&(kind.to_owned(), child.clone())))
            .is_some_and(|known| *known == deed)
    }

    pub(super) fn pruned(&mut self, object: &ObjectKey, kind: &str, child: &ObjectKey) {
        if let Some(remembered) = self.objects.get_mut(object) {
            remembered.children.remove(&(kind.to_owned(), child.clone()));
        }
    }

    pub(super) fn status_written(&mut self, object: &ObjectKey, deed: Deed) {
        self.objects.entry(object.clone()).or_default().status = Some(deed);
    }

    pub(super) fn status(&self, object: &ObjectKey) -> Option<Deed> {
        self.objects.get(object)?.status
    }
}
