//! Deletes children that are no longer desired, if that is declared intent and not an accident.

use std::{collections::HashSet, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    api::{DeleteParams, Preconditions},
    core::DynamicObject,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_cache::GroupVersionKind;

use super::{
    Parent,
    child_ref::{ChildId, identity, is_same_kind},
    compare::fingerprint,
    desired::Desired,
    failure::Problem,
    owned::{OwnedChild, OwnedKind},
};

/// Annotation on an object that allows the deletion of children that [`PrunePolicy::Guarded`] keeps. The conditions and
/// the event contain its value, which is for one generation of the object and one set of desired children, so a later,
/// different mistake is guarded again. (For some kinds, such as Deployments, setting the annotation makes a new generation,
/// which it is valid for too.) The value `always` has no end.
pub const ALLOW_PRUNE_ANNOTATION: &str = "windlass.dev/allow-prune";

/// The value of the annotation that has no end.
const ALLOW_ALWAYS: &str = "always";

/// How many children may be deleted, whatever their share. Small lists often change by more than half: three shards
/// become one.
const MAX_AT_ONCE: usize = 3;

/// Deletions of one generation count together for this long. Otherwise a series of mistakes would delete half of the
/// children each time.
pub(super) const WINDOW: Duration = Duration::from_mins(10);

/// Children that a message names.
const MAX_NAMED: usize = 5;

/// Which of the children that are no longer desired are deleted.
///
/// A wrong desired state must not take a workload down. By default, children are deleted only if that is declared
/// intent. **Nothing is deleted** if
///
/// 1. [`Desired`] has no children at all, for example because a list was empty or a function returned early;
/// 2. an unwanted child has a kind that `Desired` does not mention. A kind is mentioned by a [child](Desired::child) of
///    it, by [`Desired::children`] even if it adds none, by [`Desired::optional_child`], and by [`Desired::without`];
/// 3. a kind has children, and none of them is desired any more;
/// 4. more than half of the children, and more than three, would be deleted in ten minutes for one generation of the
///    object. New children count, so renaming all of them is allowed. A restart forgets earlier deletions.
///
/// Children of kinds that [`Desired::without`] names, and one child for each absent [`Desired::optional_child`], do not
/// count for these rules: their removal is explicit.
///
/// If something is kept, `Ready` is `False` and [`Stalled`](crate::STALLED_CONDITION) is `True` with the reason
/// `PruneBlocked`, and a warning event says what would be deleted, why it is not, and how to allow it:
///
/// - a user sets the annotation [`ALLOW_PRUNE_ANNOTATION`] on the object;
/// - the author declares it in `Desired`, with [`without`](Desired::without) or [`prune`](Desired::prune);
/// - the author sets it for the controller, with [`Controller::prune`](crate::Controller::prune).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrunePolicy {
    /// Deletes children only by declared intent. The default.
    #[default]
    Guarded,
    /// Deletes every child that is not desired, after all others were applied. If all that failed are refused by a
    /// quota of the namespace, the undesired ones are deleted nevertheless, since they may hold it.
    All,
}

/// What a [`Desired`] says about the removal of children.
pub(super) struct PruneIntent {
    has_children: bool,
    /// Kinds that may lose children.
    mentioned: Vec<GroupVersionKind>,
    /// Kinds whose removal is explicit.
    removed: Vec<GroupVersionKind>,
    /// Kinds of single children whose removal is explicit.
    absent: Vec<GroupVersionKind>,
    policy: Option<PrunePolicy>,
}

/// The existing children of an object.
struct ExistingChildren<'a> {
    /// How many there are, with those that were deleted recently for this generation.
    count: usize,
    /// How many were deleted recently for this generation.
    recently_deleted: usize,
    unwanted: &'a [ChildId],
    /// Kinds of which some children are wanted.
    wanted_kinds: Vec<&'a GroupVersionKind>,
}

impl PruneIntent {
    pub(super) fn of(desired: &mut Desired) -> Self {
        Self {
            has_children: !desired.children.is_empty(),
            mentioned: std::mem::take(&mut desired.mentioned),
            removed: std::mem::take(&mut desired.removed),
            absent: std::mem::take(&mut desired.absent),
            policy: desired.prune,
        }
    }

    /// Why the unwanted children must not be deleted, if so.
    fn objection(&self, existing: &ExistingChildren<'_>) -> Option<Objection> {
        let position = |kinds: &[GroupVersionKind], child: &ChildId| {
            kinds.iter().position(|kind| is_same_kind(kind, &child.kind))
        };
        let mut absent = self.absent.clone();
        let implicit: Vec<_> = existing
            .unwanted
            .iter()
            .filter(|child| {
                let single = position(&absent, child).map(|index| absent.swap_remove(index));
                single.is_none() && position(&self.removed, child).is_none()
            })
            .collect();
        if implicit.is_empty() {
            return None;
        }
        if !self.has_children {
            return Some(Objection::NoChildren);
        }
        let mut not_mentioned = implicit
            .iter()
            .filter(|child| position(&self.mentioned, child).is_none());
        if let Some(child) = not_mentioned.next() {
            return Some(Objection::NotMentioned(child.kind.kind.clone()));
        }
        let is_emptied = |kind: &GroupVersionKind| {
            let mut wanted = existing.wanted_kinds.iter();
            implicit.iter().any(|child| is_same_kind(kind, &child.kind))
                && !wanted.any(|wanted| is_same_kind(wanted, kind))
        };
        if let Some(kind) = self.mentioned.iter().find(|kind| is_emptied(kind)) {
            return Some(Objection::Emptied(kind.kind.clone()));
        }
        let count = implicit.len() + existing.recently_deleted;
        (count > MAX_AT_ONCE && count * 2 > existing.count).then_some(Objection::TooMany)
    }
}

/// Why children are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Objection {
    NoChildren,
    NotMentioned(String),
    Emptied(String),
    TooMany,
}

impl Objection {
    /// What is wrong, and how the author declares that it is right.
    fn explain(&self) -> (String, String) {
        let without = |kind: &str| format!("`Desired::without::<{kind}>()`");
        match self {
            Self::NoChildren => (
                "the desired state has no children".to_owned(),
                "`Desired::without`".to_owned(),
            ),
            Self::NotMentioned(kind) => (
                format!("the desired state does not mention {kind}"),
                without(kind),
            ),
            Self::Emptied(kind) => (format!("the desired state has no {kind} any more"), without(kind)),
            Self::TooMany => (
                "that is more than half of them in ten minutes".to_owned(),
                "`Desired::prune(PrunePolicy::All)`".to_owned(),
            ),
        }
    }
}

/// Result of pruning.
#[derive(Default)]
pub(super) struct Pruned {
    pub(super) deleted: usize,
    /// What is kept, why, and how to allow its deletion.
    pub(super) blocked: Option<String>,
    pub(super) problems: Vec<Problem>,
    /// Unwanted children that still exist and are being deleted, also since an earlier reconcile.
    pub(super) terminating: Vec<Problem>,
}

impl Parent<'_> {
    pub(super) fn prunes_all(&self, intent: &PruneIntent) -> bool {
        let policy = intent.policy.unwrap_or(self.ctx.term.listers.child_options.prune);
        policy == PrunePolicy::All
    }

    /// Deletes the children that are no longer desired, or none of them.
    pub(super) async fn prune(&self, wanted: &[ChildId], intent: &PruneIntent) -> Pruned {
        let listers = &self.ctx.term.listers;
        let uid = self.object.meta().uid.as_deref().unwrap_or_default();
        let is_wanted: HashSet<_> = wanted
            .iter()
            .map(|child| identity(&child.kind, &child.key))
            .collect();
        let (mut existing, mut unwanted, mut objects) = (0, Vec::new(), Vec::new());
        let (mut wanted_kinds, mut pruned) = (Vec::new(), Pruned::default());
        for owned in &listers.owned_kinds {
            for child in owned.children_of(uid, &listers.controller) {
                let OwnedChild {
                    key,
                    is_deleting,
                    metadata,
                } = child;
                let kind = owned.kind();
                let is_wanted = is_wanted.contains(&identity(kind, &key));
                let child = || ChildId {
                    kind: kind.clone(),
                    key: key.clone(),
                };
                if is_deleting {
                    let unwanted = (!is_wanted).then(|| Problem::terminating(&child()));
                    pruned.terminating.extend(unwanted);
                    continue;
                }
                let metadata = match metadata {
                    Ok(metadata) => metadata,
                    Err(error) => {
                        // One that is wanted was reported when it was read.
                        let problem = (!is_wanted).then(|| Problem::failed(&child(), error.into()));
                        pruned.problems.extend(problem);
                        continue;
                    }
                };
                existing += 1;
                if is_wanted {
                    if wanted_kinds.last() != Some(&kind) {
                        wanted_kinds.push(kind);
                    }
                } else {
                    unwanted.push(child());
                    let object = DynamicObject {
                        types: None,
                        metadata,
                        data: Value::Null,
                    };
                    objects.push((owned.as_ref(), object));
                }
            }
        }
        if unwanted.is_empty() {
            self.history.lock().set_requested_approval(&self.key, None);
            return pruned;
        }
        let requested = self.history.lock().requested_approval(&self.key);
        let is_allowed =
            self.prunes_all(intent) || is_approved(self.object.meta(), wanted, requested.as_deref());
        let (generation, now) = (self.object.meta().generation, Instant::now());
        let recently_deleted = self.history.lock().recent_deletions(&self.key, generation, now);
        let objection = intent.objection(&ExistingChildren {
            count: existing + recently_deleted,
            recently_deleted,
            unwanted: &unwanted,
            wanted_kinds,
        });
        if let Some(objection) = objection.filter(|_| !is_allowed) {
            let approval = approval_value(generation, wanted);
            let blocked = Some(explain(&objection, existing, &unwanted, &approval));
            self.history
                .lock()
                .set_requested_approval(&self.key, Some(approval));
            return Pruned { blocked, ..pruned };
        }
        for (child, (owned, object)) in unwanted.iter().zip(&objects) {
            match self.delete_child(child, *owned, object).await {
                Ok(()) => {
                    pruned.deleted += 1;
                    if owned.is_deleting(&child.key) {
                        pruned.terminating.push(Problem::terminating(child));
                    }
                    self.history.lock().record_deletion(&self.key, generation, now);
                }
                Err(error) => pruned.problems.push(Problem::failed(child, error)),
            }
        }
        pruned
    }

    async fn delete_child(
        &self,
        child: &ChildId,
        owned: &dyn OwnedKind,
        object: &DynamicObject,
    ) -> Result<(), crate::Error> {
        let ChildId { kind, key } = child;
        tracing::info!(kind = kind.kind, child = %key, "deleting unwanted child");
        // Only the observed version: another owner may have adopted it since.
        let options = DeleteParams::background().preconditions(Preconditions {
            uid: object.metadata.uid.clone(),
            resource_version: object.metadata.resource_version.clone(),
        });
        let writer = self.ctx.term.writer.dynamic(owned.resource());
        writer.delete_with(object, &options).await?;
        self.history.lock().forget_child(&self.key, &kind.kind, key);
        Ok(())
    }
}

fn explain(objection: &Objection, existing: usize, unwanted: &[ChildId], approval: &str) -> String {
    let (what, declaration) = objection.explain();
    let mut names: Vec<_> = unwanted.iter().map(ToString::to_string).collect();
    names.sort();
    let more = names.len().saturating_sub(MAX_NAMED);
    names.truncate(MAX_NAMED);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    format!(
        "kept {} of {existing} children that are not desired ({}): {what}. To delete them, annotate the object with \
         {ALLOW_PRUNE_ANNOTATION}={approval}, or declare it in the controller with {declaration}",
        unwanted.len(),
        names.join(", "),
    )
}

/// The value of the annotation that allows to delete everything but these children, for one generation. It does not
/// change while they are being deleted.
fn approval_value(generation: Option<i64>, wanted: &[ChildId]) -> String {
    let mut names: Vec<_> = wanted.iter().map(ToString::to_string).collect();
    names.sort();
    let generation = generation.unwrap_or_default();
    let digest = fingerprint(&json!(names)) >> 32;
    format!("{generation}-{digest:08x}")
}

/// `requested` is the value that this process has asked for, while children are kept. The annotation may have made the
/// generation after that.
fn is_approved(object: &ObjectMeta, wanted: &[ChildId], requested: Option<&str>) -> bool {
    let annotations = object.annotations.as_ref();
    let Some(value) = annotations.and_then(|annotations| annotations.get(ALLOW_PRUNE_ANNOTATION)) else {
        return false;
    };
    let is_for = |generation| *value == approval_value(generation, wanted);
    value == ALLOW_ALWAYS
        || is_for(object.generation)
        || (requested == Some(value) && is_for(object.generation.map(|generation| generation - 1)))
}

#[cfg(test)]
mod tests {
    use windlass_cache::ObjectKey;

    use super::*;

    fn kind(name: &str) -> GroupVersionKind {
        GroupVersionKind {
            api_version: "v1".to_owned(),
            kind: name.to_owned(),
        }
    }

    fn children(name: &str, count: usize) -> Vec<ChildId> {
        let child = |index: usize| ChildId {
            kind: kind(name),
            key: ObjectKey::namespaced("default", index.to_string()),
        };
        (0..count).map(child).collect()
    }

    fn kinds(names: &str) -> Vec<GroupVersionKind> {
        names.chars().map(|name| kind(&name.to_string())).collect()
    }

    /// How many children of A and B are wanted and unwanted.
    struct Case {
        mentioned: &'static str,
        removed: &'static str,
        absent: &'static str,
        wanted: [usize; 2],
        unwanted: [usize; 2],
        recently_deleted: usize,
    }

    /// A and B are mentioned.
    fn case(wanted: [usize; 2], unwanted: [usize; 2]) -> Case {
        Case {
            mentioned: "AB",
            removed: "",
            absent: "",
            wanted,
            unwanted,
            recently_deleted: 0,
        }
    }

    fn objection(case: &Case) -> Option<Objection> {
        let intent = PruneIntent {
            has_children: case.wanted != [0, 0],
            mentioned: kinds(case.mentioned),
            removed: kinds(case.removed),
            absent: kinds(case.absent),
            policy: None,
        };
        let [wanted_a, wanted_b] = case.wanted;
        let [unwanted_a, unwanted_b] = case.unwanted;
        let wanted = [kind("A"), kind("B")];
        let wanted_kinds = wanted.iter().zip([wanted_a, wanted_b]);
        intent.objection(&ExistingChildren {
            count: wanted_a + wanted_b + unwanted_a + unwanted_b + case.recently_deleted,
            recently_deleted: case.recently_deleted,
            unwanted: &[children("A", unwanted_a), children("B", unwanted_b)].concat(),
            wanted_kinds: wanted_kinds
                .filter(|(_, count)| *count > 0)
                .map(|(kind, _)| kind)
                .collect(),
        })
    }

    #[test]
    fn children_are_deleted_only_by_declared_intent() {
        let not_mentioned = |kind: &str| Some(Objection::NotMentioned(kind.to_owned()));
        let emptied = |kind: &str| Some(Objection::Emptied(kind.to_owned()));
        let none = Some(Objection::NoChildren);
        let too_many = Some(Objection::TooMany);
        #[rustfmt::skip]
        let cases = [
            (case([0, 0], [0, 0]), None),
            (case([0, 0], [1, 0]), none.clone()),
            (Case { mentioned: "", ..case([0, 0], [1, 0]) }, none.clone()),
            // `without` is a decision, about its kind alone.
            (Case { removed: "A", ..case([0, 0], [9, 0]) }, None),
            (Case { removed: "B", ..case([0, 0], [1, 0]) }, none.clone()),
            (Case { absent: "B", ..case([0, 0], [1, 1]) }, none),
            (Case { mentioned: "A", ..case([1, 0], [1, 0]) }, None),
            (Case { mentioned: "A", ..case([1, 0], [0, 1]) }, not_mentioned("B")),
            (Case { mentioned: "A", ..case([7, 0], [1, 1]) }, not_mentioned("B")),
            // The last ones of a kind.
            (case([1, 0], [0, 1]), emptied("B")),
            (case([9, 0], [0, 2]), emptied("B")),
            (case([9, 1], [0, 2]), None),
            (Case { removed: "B", ..case([1, 0], [0, 8]) }, None),
            // One for each absent child.
            (Case { absent: "B", ..case([1, 0], [0, 1]) }, None),
            (Case { absent: "BB", ..case([9, 0], [0, 3]) }, emptied("B")),
            (Case { absent: "BBB", ..case([9, 0], [0, 3]) }, None),
            // Up to three, or up to half.
            (case([1, 0], [3, 0]), None),
            (case([1, 0], [4, 0]), too_many.clone()),
            (case([4, 0], [4, 0]), None),
            (case([3, 0], [4, 0]), too_many.clone()),
            // With the recent ones: 8 of which 4 are left lose no more.
            (Case { recently_deleted: 4, ..case([1, 0], [3, 0]) }, too_many.clone()),
            (Case { recently_deleted: 4, ..case([3, 0], [1, 0]) }, too_many),
            (Case { recently_deleted: 1, ..case([6, 0], [3, 0]) }, None),
            // Explicit removals do not count.
            (Case { removed: "B", ..case([1, 0], [3, 4]) }, None),
        ];
        for (index, (case, expected)) in cases.into_iter().enumerate() {
            assert_eq!(objection(&case), expected, "case {index}");
        }
    }

    #[test]
    fn approval_is_for_one_generation_and_desired_state() {
        let object = |value: &str, generation| ObjectMeta {
            annotations: Some([(ALLOW_PRUNE_ANNOTATION.to_owned(), value.to_owned())].into()),
            generation,
            ..ObjectMeta::default()
        };
        let (one, two) = (children("A", 1), children("A", 2));
        let approval = approval_value(Some(3), &one);
        for (value, generation, wanted, expected) in [
            (approval.as_str(), Some(3), &one, true),
            (&approval, Some(4), &one, false),
            (&approval, Some(2), &one, false),
            (&approval, Some(3), &two, false),
            ("", Some(3), &one, false),
            ("3", Some(3), &one, false),
            ("true", Some(3), &one, false),
            ("always", Some(3), &two, true),
            ("always", None, &one, true),
        ] {
            let object = object(value, generation);
            let is_approved = is_approved(&object, wanted, None);
            assert_eq!(is_approved, expected, "{value:?} at {generation:?}");
        }
        assert!(!is_approved(&ObjectMeta::default(), &one, None));

        // The annotation that was asked for made this generation.
        for (value, generation, wanted, expected) in [
            (approval.as_str(), Some(4), &one, true),
            (&approval, Some(5), &one, false),
            (&approval, Some(4), &two, false),
            ("", Some(4), &one, false),
        ] {
            let is_approved = is_approved(&object(value, generation), wanted, Some(&approval));
            assert_eq!(is_approved, expected, "{value:?} at {generation:?}");
        }
    }
}
