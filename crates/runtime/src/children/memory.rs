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
    /// The status waits for a look at children that were made since it was thought of.
    is_put_off: bool,
    /// The version of the object of which people were told that all is as it should be.
    told: Option<String>,
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

    /// Whether it was there once, as far as this process knows.
    pub(super) fn has(&self, object: &ObjectKey, kind: &str, child: &ObjectKey) -> bool {
        let remembered = self.objects.get(object);
        remembered.is_some_and(|remembered| {
            remembered
                .children
                .contains_key(&(kind.to_owned(), child.clone()))
        })
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

    /// Puts the status off, unless that was done the last time: children that vanish again and again must not keep it
    /// from being written.
    pub(super) fn put_off(&mut self, object: &ObjectKey) -> bool {
        let remembered = self.objects.entry(object.clone()).or_default();
        remembered.told = None;
        !std::mem::replace(&mut remembered.is_put_off, true)
    }

    /// The status is as it should be.
    pub(super) fn caught_up(&mut self, object: &ObjectKey) {
        if let Some(remembered) = self.objects.get_mut(object) {
            remembered.is_put_off = false;
        }
    }

    /// Notes that people are told of the object as it is in this version. `false`: they were already.
    pub(super) fn tells(&mut self, object: &ObjectKey, version: Option<&str>) -> bool {
        let remembered = self.objects.entry(object.clone()).or_default();
        let is_new = version.is_none() || remembered.told.as_deref() != version;
        remembered.told = version.map(str::to_owned);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_put_off_once_until_it_has_caught_up() {
        let (mut memory, web) = (Memory::default(), ObjectKey::cluster("web"));
        assert!(memory.put_off(&web));
        assert!(!memory.put_off(&web), "children that vanish do not keep it away");
        memory.caught_up(&web);
        assert!(memory.put_off(&web));
    }

    #[test]
    fn people_are_told_once_of_each_version_and_of_what_was_done_to_it() {
        let (mut memory, web) = (Memory::default(), ObjectKey::cluster("web"));
        let mut tells = |version| memory.tells(&web, version);
        let told = [Some("1"), Some("1"), Some("2"), None, None, Some("2")].map(&mut tells);
        assert_eq!(told, [true, false, true, true, true, true]);
        memory.put_off(&web);
        assert!(memory.tells(&web, Some("2")), "a child was made");
    }
}
