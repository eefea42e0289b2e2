//! The annotations of a Deployment's ReplicaSets: revision, revision history and desired sizes.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::Resource;

use super::{proportions::max_surge, replicas};

pub(super) const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";
const HISTORY_ANNOTATION: &str = "deployment.kubernetes.io/revision-history";
const DESIRED_REPLICAS_ANNOTATION: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX_REPLICAS_ANNOTATION: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations that are not copied from the Deployment to its ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION_ANNOTATION,
    HISTORY_ANNOTATION,
    DESIRED_REPLICAS_ANNOTATION,
    MAX_REPLICAS_ANNOTATION,
    "deprecated.deployment.rollback.to",
];

/// The maximum length of the revision history; older revisions are dropped.
const MAX_HISTORY_LENGTH: usize = 2000;

type Annotations = BTreeMap<String, String>;

fn annotations(set: &mut ReplicaSet) -> &mut Annotations {
    set.metadata.annotations.get_or_insert_default()
}

fn annotation<'a>(object: &'a impl Resource, key: &str) -> Option<&'a str> {
    let annotations = object.meta().annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

/// Returns a non-negative number from an annotation.
pub(super) fn number_annotation(set: &ReplicaSet, key: &str) -> Option<i32> {
    let number = annotation(set, key)?.parse().ok()?;
    (number >= 0).then_some(number)
}

/// Returns the Deployment's size for which the ReplicaSet was last scaled.
pub(super) fn desired_replicas(set: &ReplicaSet) -> Option<i32> {
    number_annotation(set, DESIRED_REPLICAS_ANNOTATION)
}

/// Returns the revision as a number: 0 without the annotation, `None` if it is invalid.
pub(super) fn of(set: &ReplicaSet) -> Option<i64> {
    annotation(set, REVISION_ANNOTATION).map_or(Some(0), |text| text.parse().ok())
}

/// Returns the revision annotation.
pub(super) fn text(object: &impl Resource) -> Option<&str> {
    annotation(object, REVISION_ANNOTATION)
}

/// Returns the next revision after these ReplicaSets.
pub(super) fn next(old: &[std::sync::Arc<ReplicaSet>]) -> i64 {
    let highest = old.iter().filter_map(|set| of(set)).max();
    highest.unwrap_or_default().max(0) + 1
}

/// Copies the Deployment's annotations to the new ReplicaSet, and raises its revision. A previous revision goes to the
/// history.
pub(super) fn set_annotations(set: &mut ReplicaSet, deployment: &Deployment, revision: i64) {
    let passed_on = deployment.metadata.annotations.iter().flatten();
    let passed_on = passed_on.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str()));
    let before = annotation(set, REVISION_ANNOTATION).map(str::to_owned);
    let marks = annotations(set);
    marks.extend(passed_on.map(|(key, value)| (key.clone(), value.clone())));
    let known = before.as_deref().filter(|before| !before.is_empty());
    match known.map(str::parse::<i64>) {
        // A foreign value stays.
        Some(Err(_)) => {}
        Some(Ok(known)) if known >= revision => {}
        known => {
            marks.insert(REVISION_ANNOTATION.to_owned(), revision.to_string());
            if let (Some(Ok(_)), Some(before)) = (known, before) {
                add_to_history(marks, &before);
            }
        }
    }
}

fn add_to_history(marks: &mut Annotations, revision: &str) {
    let mut history = marks.get(HISTORY_ANNOTATION).cloned().unwrap_or_default();
    if history.is_empty() {
        marks.insert(HISTORY_ANNOTATION.to_owned(), revision.to_owned());
        return;
    }
    while history.len() + revision.len() + 1 > MAX_HISTORY_LENGTH {
        history = match history.split_once(',') {
            Some((_, rest)) => rest.to_owned(),
            None => break,
        };
    }
    marks.insert(HISTORY_ANNOTATION.to_owned(), format!("{history},{revision}"));
}

/// Sets the annotations with the Deployment's size for which the ReplicaSet is scaled.
pub(super) fn set_size_annotations(set: &mut ReplicaSet, deployment: &Deployment) {
    let wanted = replicas(deployment);
    let most = wanted + max_surge(deployment);
    let marks = annotations(set);
    marks.insert(DESIRED_REPLICAS_ANNOTATION.to_owned(), wanted.to_string());
    marks.insert(MAX_REPLICAS_ANNOTATION.to_owned(), most.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(marks: &[(&str, &str)]) -> ReplicaSet {
        let mut set = ReplicaSet::default();
        let marks = marks
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        set.metadata.annotations = Some(marks.collect());
        set
    }

    #[test]
    fn revision_only_rises_and_history_keeps_previous_ones() {
        let history = |set: &ReplicaSet| annotation(set, HISTORY_ANNOTATION).map(str::to_owned);
        for (before, revision, expected, remembered) in [
            (vec![], 1, Some("1"), None),
            (vec![(REVISION_ANNOTATION, "1")], 3, Some("3"), Some("1")),
            (
                vec![(REVISION_ANNOTATION, "3"), (HISTORY_ANNOTATION, "1")],
                5,
                Some("5"),
                Some("1,3"),
            ),
            (vec![(REVISION_ANNOTATION, "3")], 2, Some("3"), None),
            (vec![(REVISION_ANNOTATION, "mine")], 2, Some("mine"), None),
        ] {
            let mut set = annotated(&before);
            set_annotations(&mut set, &Deployment::default(), revision);
            assert_eq!(text(&set), expected, "{before:?}");
            assert_eq!(history(&set).as_deref(), remembered, "{before:?}");
        }
    }

    #[test]
    fn long_history_drops_the_oldest_revisions() {
        let long = vec!["1000"; 400].join(",");
        let mut set = annotated(&[(REVISION_ANNOTATION, "2000"), (HISTORY_ANNOTATION, &long)]);
        set_annotations(&mut set, &Deployment::default(), 2001);
        let history = annotation(&set, HISTORY_ANNOTATION).expect("it has one");
        assert!(history.len() <= MAX_HISTORY_LENGTH && history.ends_with(",2000"));
    }

    #[test]
    fn annotations_of_the_deployment_itself_are_not_copied() {
        let mut deployment = Deployment::default();
        let marks = [("a", "b"), (REVISION_ANNOTATION, "7"), (NOT_COPIED[0], "{}")];
        let marks = marks.map(|(key, value)| (key.to_owned(), value.to_owned()));
        deployment.metadata.annotations = Some(marks.into());
        let mut set = ReplicaSet::default();
        set_annotations(&mut set, &deployment, 1);
        let marks = set.metadata.annotations.expect("it has some");
        assert_eq!(
            marks.into_iter().collect::<Vec<_>>(),
            [
                ("a".to_owned(), "b".to_owned()),
                (REVISION_ANNOTATION.to_owned(), "1".to_owned())
            ]
        );
    }
}
