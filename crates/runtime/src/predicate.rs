//! Predicates: filters on changes, by the old and the new state of an object.

use std::sync::Arc;

use windlass_api::labels;
use windlass_cache::{CachedObject, Change};

/// Decides from the old and the new state of an object whether a change triggers a reconcile.
///
/// It is called for new objects (without an old state) and for changed ones. It is not called for deletions, for objects
/// that get a deletion timestamp, or for recreated objects (same name, new UID): these always trigger, so no predicate,
/// not even a negated one, can suppress a cleanup.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use windlass_runtime::Predicate;
///
/// // The spec or the labels changed, or the object is new. Status changes do not pass.
/// let interesting = Predicate::<Deployment>::generation_changed().or(Predicate::labels_changed());
/// // A custom test:
/// let paused = Predicate::<Deployment>::new(|_old, new| {
///     new.object().is_ok_and(|new| new.spec.as_ref().is_some_and(|spec| spec.paused == Some(true)))
/// });
/// let predicate = interesting.and(!paused);
/// ```
pub struct Predicate<K>(Arc<Test<K>>);

type Test<K> = dyn Fn(Option<&CachedObject<K>>, &CachedObject<K>) -> bool + Send + Sync;

impl<K> Predicate<K> {
    /// Passes changes for which `test` returns `true`, given the old state (`None` for a new object) and the new one.
    pub fn new(
        test: impl Fn(Option<&CachedObject<K>>, &CachedObject<K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(test))
    }

    /// Passes if `metadata.generation` changed, or the object is new. Changes of status and metadata do not pass. Decodes
    /// nothing.
    ///
    /// Kinds without a generation (ConfigMaps, Secrets) pass only when they are new: use [a test of your own](Self::new) for
    /// those.
    pub fn generation_changed() -> Self {
        Self::new(|old, new| old.is_none_or(|old| old.meta().generation() != new.meta().generation()))
    }

    /// Passes if a label changed, or the object is new. Decodes nothing.
    pub fn labels_changed() -> Self {
        Self::new(|old, new| old.is_none_or(|old| !old.meta().labels().eq(new.meta().labels())))
    }

    /// Passes if the labels match, or matched before the change. Decodes nothing.
    ///
    /// An object that stops matching therefore passes once more. To filter on the server instead, use
    /// [`Watch::labels`](crate::Watch::labels).
    pub fn labelled(selector: impl Into<labels::Selector>) -> Self {
        let selector = selector.into();
        Self::new(move |old, new| {
            let matches = |state: &CachedObject<K>| selector.matches(|name| state.meta().label(name));
            matches(new) || old.is_some_and(matches)
        })
    }

    /// Passes if both pass.
    #[must_use]
    pub fn and(self, other: Self) -> Self
    where
        K: 'static,
    {
        Self::new(move |old, new| (self.0)(old, new) && (other.0)(old, new))
    }

    /// Passes if at least one passes.
    #[must_use]
    pub fn or(self, other: Self) -> Self
    where
        K: 'static,
    {
        Self::new(move |old, new| (self.0)(old, new) || (other.0)(old, new))
    }

    pub(crate) fn passes(&self, change: &Change<K>) -> bool {
        always_triggers(change) || (self.0)(change.old(), change.latest())
    }
}

/// Whether no filter may drop the change: the object was deleted, got a deletion timestamp, or was recreated.
pub(crate) fn always_triggers<K>(change: &Change<K>) -> bool {
    match change {
        Change::Deleted { .. } => true,
        Change::Applied { old: None, new, .. } => new.meta().is_deleting(),
        Change::Applied {
            old: Some(old), new, ..
        } => change.is_recreated() || (new.meta().is_deleting() && !old.meta().is_deleting()),
    }
}

impl<K: 'static> std::ops::Not for Predicate<K> {
    type Output = Self;

    /// Inverts the predicate. Changes that always trigger still do.
    fn not(self) -> Self {
        Self::new(move |old, new| !(self.0)(old, new))
    }
}

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use kube::core::Expression;
    use windlass_cache::Deletion;

    use super::*;

    fn state(edit: impl FnOnce(&mut ConfigMap)) -> CachedObject<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("a".into());
        object.metadata.uid = Some("00000000-0000-0000-0000-000000000001".into());
        object.metadata.resource_version = Some("1".into());
        object.metadata.generation = Some(1);
        edit(&mut object);
        CachedObject::detached(Arc::new(object))
    }

    fn changed(edit: impl FnOnce(&mut ConfigMap)) -> Change<ConfigMap> {
        Change::Applied {
            old: Some(state(|_| {})),
            new: state(edit),
            initial: false,
        }
    }

    fn labelled(object: &mut ConfigMap) {
        object.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    }

    fn web() -> Predicate<ConfigMap> {
        Predicate::labelled(Expression::Equal("app".into(), "web".into()))
    }

    /// Every predicate against a new object, each kind of change, and no change.
    #[test]
    fn predicates_pass_only_their_own_kind_of_change() {
        let new = || Change::Applied {
            old: None,
            new: state(labelled),
            initial: false,
        };
        let generation = || changed(|object| object.metadata.generation = Some(2));
        let labels = || changed(labelled);
        let annotations = || {
            changed(|object| object.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into()))
        };
        let version = || changed(|object| object.metadata.resource_version = Some("2".into()));
        let same = || changed(|_| {});
        let changes = [new(), generation(), labels(), annotations(), version(), same()];
        let cases: [(&str, Predicate<ConfigMap>, [bool; 6]); 6] = [
            (
                "generation",
                Predicate::generation_changed(),
                [true, true, false, false, false, false],
            ),
            (
                "labels",
                Predicate::labels_changed(),
                [true, false, true, false, false, false],
            ),
            ("labelled", web(), [true, false, true, false, false, false]),
            (
                "and",
                Predicate::labels_changed().and(Predicate::generation_changed()),
                [true, false, false, false, false, false],
            ),
            (
                "or",
                Predicate::labels_changed().or(Predicate::generation_changed()),
                [true, true, true, false, false, false],
            ),
            (
                "not",
                !Predicate::labels_changed(),
                [false, true, false, true, true, true],
            ),
        ];
        for (name, predicate, expected) in cases {
            let passed: Vec<_> = changes.iter().map(|change| predicate.passes(change)).collect();
            assert_eq!(passed, expected, "{name}");
        }
    }

    #[test]
    fn labelled_passes_objects_that_stop_matching() {
        let left = Change::Applied {
            old: Some(state(labelled)),
            new: state(|_| {}),
            initial: false,
        };
        assert!(web().passes(&left));
    }

    /// Neither the deletion, nor the deletion timestamp, nor a deletion hidden by a recreated object.
    #[test]
    fn predicates_never_drop_deletions() {
        let never = || Predicate::<ConfigMap>::new(|_, _| false);
        let deleting = |object: &mut ConfigMap| {
            object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        };
        let gone = Change::Deleted {
            old: state(|_| {}),
            last: state(|_| {}),
            deletion: Deletion::Inferred,
        };
        let replaced =
            changed(|object| object.metadata.uid = Some("00000000-0000-0000-0000-000000000002".into()));
        let found_deleting = Change::Applied {
            old: None,
            new: state(deleting),
            initial: true,
        };
        for change in [gone, replaced, found_deleting, changed(deleting)] {
            assert!(never().passes(&change));
            assert!((!!never()).passes(&change));
        }
        let still = Change::Applied {
            old: Some(state(deleting)),
            new: state(deleting),
            initial: false,
        };
        assert!(!never().passes(&still));
    }
}
