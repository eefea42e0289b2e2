//! Which changes matter: a test over the state before and the state after.

use std::sync::Arc;

use kube::core::{Selector, SelectorExt};
use windlass_cache::{Cacheable, Change, Meta, Stored};

/// Says of a change whether it should trigger a reconcile, from the state before and the state after.
///
/// It is asked about objects that are new (there is no state before) and that changed. It is never asked about a
/// deletion, about the moment in which one begins, or about an object that was replaced by another of its name: these
/// always trigger, so that no predicate, also not a negated one, can lose a clean-up.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use windlass_runtime::Predicate;
///
/// // The spec or the labels changed, or it is new; not when only its status moved.
/// let interesting = Predicate::<Deployment>::generation_changed().or(Predicate::labels_changed());
/// // What an author can say too:
/// let paused = Predicate::<Deployment>::new(|_old, new| {
///     new.object().is_ok_and(|new| new.spec.as_ref().is_some_and(|spec| spec.paused == Some(true)))
/// });
/// let predicate = interesting.and(!paused);
/// ```
pub struct Predicate<K>(Arc<Test<K>>);

type Test<K> = dyn Fn(Option<&Stored<K>>, &Stored<K>) -> bool + Send + Sync;

impl<K> Predicate<K> {
    /// The changes of which `test` says so, given the state before (`None` for an object that is new) and after.
    pub fn new(test: impl Fn(Option<&Stored<K>>, &Stored<K>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(test))
    }

    /// The desired state changed, or the object is new. Changes of status and of metadata do not count; decodes nothing.
    ///
    /// Kinds without a generation (config maps, secrets) never pass except when they are new: use
    /// [`resource_version_changed`](Self::resource_version_changed) for those.
    pub fn generation_changed() -> Self {
        Self::differs(Meta::generation)
    }

    /// Anything changed, or the object is new: what a resync tells again does not pass. Decodes nothing.
    pub fn resource_version_changed() -> Self {
        Self::differs(Meta::resource_version)
    }

    /// A label changed, or the object is new. Decodes nothing.
    pub fn labels_changed() -> Self {
        Self::new(|old, new| old.is_none_or(|old| !old.meta().labels().eq(new.meta().labels())))
    }

    /// The object has, or had, labels that match. Decodes nothing.
    ///
    /// What leaves the selection passes once more. To never hear of others at all, let the server select:
    /// [`Watch::labels`](crate::Watch::labels).
    pub fn labelled(selector: Selector) -> Self {
        Self::new(move |old, new| {
            let matches = |state: &Stored<K>| {
                let labels = state.meta().labels();
                let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
                selector.matches(&labels.collect())
            };
            matches(new) || old.is_some_and(matches)
        })
    }

    fn differs<T: PartialEq + 'static>(figure: fn(&Meta) -> T) -> Self {
        Self::new(move |old, new| old.is_none_or(|old| figure(old.meta()) != figure(new.meta())))
    }

    /// Both pass.
    #[must_use]
    pub fn and(self, other: Self) -> Self
    where
        K: 'static,
    {
        Self::new(move |old, new| (self.0)(old, new) && (other.0)(old, new))
    }

    /// At least one passes.
    #[must_use]
    pub fn or(self, other: Self) -> Self
    where
        K: 'static,
    {
        Self::new(move |old, new| (self.0)(old, new) || (other.0)(old, new))
    }

    pub(crate) fn passes(&self, change: &Change<K>) -> bool {
        undeniable(change) || (self.0)(change.old(), change.stored())
    }
}

impl<K: Cacheable> Predicate<K> {
    /// An annotation changed, or the object is new.
    pub fn annotations_changed() -> Self {
        Self::new(|old, new| {
            let annotations = |state: &Stored<K>| {
                let object = state.object().ok()?;
                Some(object.meta().annotations.clone().unwrap_or_default())
            };
            old.is_none_or(|old| annotations(old) != annotations(new))
        })
    }
}

/// Nothing may filter it out: the object is gone, starts to go, or is another one than before.
pub(crate) fn undeniable<K>(change: &Change<K>) -> bool {
    match change {
        Change::Deleted { .. } => true,
        Change::Applied { old: None, new, .. } => new.meta().is_deleting(),
        Change::Applied {
            old: Some(old), new, ..
        } => change.recreated() || (new.meta().is_deleting() && !old.meta().is_deleting()),
    }
}

impl<K: 'static> std::ops::Not for Predicate<K> {
    type Output = Self;

    /// The changes that do not pass; those that no predicate is asked about still do.
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

    fn state(edit: impl FnOnce(&mut ConfigMap)) -> Stored<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("a".into());
        object.metadata.uid = Some("00000000-0000-0000-0000-000000000001".into());
        object.metadata.resource_version = Some("1".into());
        object.metadata.generation = Some(1);
        edit(&mut object);
        Stored::of(Arc::new(object))
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
        Predicate::labelled(Expression::Equal("app".into(), "web".into()).into())
    }

    /// 152: what each predicate says of a new object, of one that changed in one way, and of one that did not change.
    #[test]
    fn each_predicate_sees_its_own_difference_and_no_other() {
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
        let cases: [(&str, Predicate<ConfigMap>, [bool; 6]); 8] = [
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
            (
                "annotations",
                Predicate::annotations_changed(),
                [true, false, false, true, false, false],
            ),
            (
                "version",
                Predicate::resource_version_changed(),
                [true, false, false, false, true, false],
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
    fn what_leaves_a_selection_passes_once_more() {
        let left = Change::Applied {
            old: Some(state(labelled)),
            new: state(|_| {}),
            initial: false,
        };
        assert!(web().passes(&left));
    }

    /// Deletions are never swallowed: neither the end, nor its beginning, nor one that a new object hides.
    #[test]
    fn no_predicate_loses_a_deletion() {
        let never = || Predicate::<ConfigMap>::new(|_, _| false);
        let deleting = |object: &mut ConfigMap| {
            object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        };
        let gone = Change::Deleted {
            old: state(|_| {}),
            last: state(|_| {}),
            how: Deletion::Inferred,
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
