//! History of what this process applied, to avoid writes without effect.

use std::collections::HashMap;

use windlass_cache::ObjectKey;

/// Applied state by object of the controller's kind, removed with the object. It only saves requests.
#[derive(Default)]
pub(crate) struct ApplyHistory {
    objects: HashMap<ObjectKey, ObjectHistory>,
}

#[derive(Default)]
struct ObjectHistory {
    status: Option<AppliedState>,
    /// The status was not written because children were created after it was computed.
    is_status_deferred: bool,
    /// The object's resource version when the event of [`Desired`](super::Desired) was last recorded.
    event_version: Option<String>,
    children: HashMap<(String, ObjectKey), AppliedState>,
}

/// Hashes of what was applied and of the object afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct AppliedState {
    pub(super) desired_hash: u64,
    pub(super) actual_hash: u64,
}

impl ApplyHistory {
    pub(crate) fn forget_object(&mut self, object: &ObjectKey) {
        self.objects.remove(object);
    }

    pub(super) fn record_applied(
        &mut self,
        object: &ObjectKey,
        kind: &str,
        child: &ObjectKey,
        state: AppliedState,
    ) {
        let history = self.objects.entry(object.clone()).or_default();
        history.children.insert((kind.to_owned(), child.clone()), state);
    }

    pub(super) fn is_applied(
        &self,
        object: &ObjectKey,
        kind: &str,
        child: &ObjectKey,
        state: AppliedState,
    ) -> bool {
        let history = self.objects.get(object);
        history
            .and_then(|history| history.children.get(&(kind.to_owned(), child.clone())))
            .is_some_and(|known| *known == state)
    }

    /// Whether this process has applied or observed the child.
    pub(super) fn has_child(&self, object: &ObjectKey, kind: &str, child: &ObjectKey) -> bool {
        let history = self.objects.get(object);
        history.is_some_and(|history| history.children.contains_key(&(kind.to_owned(), child.clone())))
    }

    pub(super) fn forget_child(&mut self, object: &ObjectKey, kind: &str, child: &ObjectKey) {
        if let Some(history) = self.objects.get_mut(object) {
            history.children.remove(&(kind.to_owned(), child.clone()));
        }
    }

    pub(super) fn record_status(&mut self, object: &ObjectKey, state: AppliedState) {
        self.objects.entry(object.clone()).or_default().status = Some(state);
    }

    pub(super) fn status(&self, object: &ObjectKey) -> Option<AppliedState> {
        self.objects.get(object)?.status
    }

    /// Defers the status. Returns `false` if it is already deferred: children that keep vanishing must not prevent the
    /// status from being written.
    pub(super) fn defer_status(&mut self, object: &ObjectKey) -> bool {
        let history = self.objects.entry(object.clone()).or_default();
        history.event_version = None;
        !std::mem::replace(&mut history.is_status_deferred, true)
    }

    /// Ends the deferral: the status is up to date.
    pub(super) fn clear_deferred_status(&mut self, object: &ObjectKey) {
        if let Some(history) = self.objects.get_mut(object) {
            history.is_status_deferred = false;
        }
    }

    /// Whether an event is due for this version of the object, which is then noted.
    pub(super) fn is_event_due(&mut self, object: &ObjectKey, version: Option<&str>) -> bool {
        let history = self.objects.entry(object.clone()).or_default();
        let is_new = version.is_none() || history.event_version.as_deref() != version;
        history.event_version = version.map(str::to_owned);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_deferred_only_once() {
        let (mut history, web) = (ApplyHistory::default(), ObjectKey::cluster_scoped("web"));
        assert!(history.defer_status(&web));
        assert!(
            !history.defer_status(&web),
            "vanishing children do not block the status"
        );
        history.clear_deferred_status(&web);
        assert!(history.defer_status(&web));
    }

    #[test]
    fn event_is_due_once_per_version_and_after_a_new_child() {
        let (mut history, web) = (ApplyHistory::default(), ObjectKey::cluster_scoped("web"));
        let mut is_due = |version| history.is_event_due(&web, version);
        let due = [Some("1"), Some("1"), Some("2"), None, None, Some("2")].map(&mut is_due);
        assert_eq!(due, [true, false, true, true, true, true]);
        history.defer_status(&web);
        assert!(history.is_event_due(&web, Some("2")), "a child was created");
    }
}
