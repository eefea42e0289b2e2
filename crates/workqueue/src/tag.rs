//! What a queued key carries besides itself.

/// What a key carries while it waits, for instance why it was queued. It is no part of the key: a key is queued once,
/// whatever its tags.
///
/// ```
/// use windlass_workqueue::{AddOptions, Tag, WorkQueue};
///
/// struct Reasons(Vec<&'static str>);
///
/// impl Tag for Reasons {
///     fn merge(&mut self, later: Self) {
///         self.0.extend(later.0);
///     }
/// }
///
/// let queue = WorkQueue::<&str>::builder().build_tagged();
/// queue.add_tagged("web", AddOptions::default(), Reasons(vec!["image changed"]));
/// queue.add_tagged("web", AddOptions::default(), Reasons(vec!["pod deleted"]));
/// let mut item = queue.try_next().unwrap();
/// assert_eq!(item.take_tag().unwrap().0, ["image changed", "pod deleted"]);
/// item.done();
/// ```
pub trait Tag {
    /// Adds the tag of a later add of the same key. Called under the queue's lock: it must be short, and must not use the
    /// queue.
    fn merge(&mut self, later: Self);
}
