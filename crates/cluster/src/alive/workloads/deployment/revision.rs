//! What ReplicaSets of a Deployment have written on them: which revision each is, and which sizes it was made for.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::Resource;

use super::{fractions::max_surge, replicas};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// What the Deployment has written on it for other reasons than to pass it on.
const NOT_PASSED_ON: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];

/// A history of more characters forgets its beginning.
const LONGEST_HISTORY: usize = 2000;

type Annotations = BTreeMap<String, String>;

fn annotations(set: &mut ReplicaSet) -> &mut Annotations {
    set.metadata.annotations.get_or_insert_default()
}

fn annotation<'a>(object: &'a impl Resource, key: &str) -> Option<&'a str> {
    let annotations = object.meta().annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

/// A number that is written on the ReplicaSet, if it is one.
pub(super) fn number(set: &ReplicaSet, key: &str) -> Option<i32> {
    let number = annotation(set, key)?.parse().ok()?;
    (number >= 0).then_some(number)
}

/// The size of the Deployment for which the ReplicaSet was last scaled.
pub(super) fn desired(set: &ReplicaSet) -> Option<i32> {
    number(set, DESIRED_REPLICAS)
}

/// Which revision it is; 0 if that was never said, nothing if it is no number.
pub(super) fn of(set: &ReplicaSet) -> Option<i64> {
    annotation(set, REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// Which revision the ReplicaSet says it is.
pub(super) fn text(object: &impl Resource) -> Option<&str> {
    annotation(object, REVISION)
}

/// The revision that comes after these.
pub(super) fn next(old: &[std::sync::Arc<ReplicaSet>]) -> i64 {
    let highest = old.iter().filter_map(|set| of(set)).max();
    highest.unwrap_or_default().max(0) + 1
}

/// Writes on the new ReplicaSet what the Deployment passes on and, if it was an older one, which revision it is now and
/// which it was before.
pub(super) fn mark(set: &mut ReplicaSet, deployment: &Deployment, revision: i64) {
    let passed_on = deployment.metadata.annotations.iter().flatten();
    let passed_on = passed_on.filter(|(key, _)| !NOT_PASSED_ON.contains(&key.as_str()));
    let before = annotation(set, REVISION).map(str::to_owned);
    let marks = annotations(set);
    marks.extend(passed_on.map(|(key, value)| (key.clone(), value.clone())));
    let known = before.as_deref().filter(|before| !before.is_empty());
    match known.map(str::parse::<i64>) {
        // Somebody wrote something else there; it is left alone.
        Some(Err(_)) => {}
        Some(Ok(known)) if known >= revision => {}
        known => {
            marks.insert(REVISION.to_owned(), revision.to_string());
            if let (Some(Ok(_)), Some(before)) = (known, before) {
                remember(marks, &before);
            }
        }
    }
}

fn remember(marks: &mut Annotations, revision: &str) {
    let mut history = marks.get(HISTORY).cloned().unwrap_or_default();
    if history.is_empty() {
        marks.insert(HISTORY.to_owned(), revision.to_owned());
        return;
    }
    while history.len() + revision.len() + 1 > LONGEST_HISTORY {
        history = match history.split_once(',') {
            Some((_, rest)) => rest.to_owned(),
            None => break,
        };
    }
    marks.insert(HISTORY.to_owned(), format!("{history},{revision}"));
}

/// Writes on the ReplicaSet for which size of the Deployment it is scaled.
pub(super) fn mark_sizes(set: &mut ReplicaSet, deployment: &Deployment) {
    let wanted = replicas(deployment);
    let most = wanted + max_surge(deployment);
    let marks = annotations(set);
    marks.insert(DESIRED_REPLICAS.to_owned(), wanted.to_string());
    marks.insert(MAX_REPLICAS.to_owned(), most.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(marks: &[(&str, &str)]) -> ReplicaSet {
        let mut set = ReplicaSet::default();
        let marks = marks
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        set.metadata.annotations = Some(marks.collect());
        set
    }

    #[test]
    fn a_revision_only_rises_and_remembers_what_it_was() {
        let history = |set: &ReplicaSet| annotation(set, HISTORY).map(str::to_owned);
        for (before, revision, expected, remembered) in [
            (vec![], 1, Some("1"), None),
            (vec![(REVISION, "1")], 3, Some("3"), Some("1")),
            (vec![(REVISION, "3"), (HISTORY, "1")], 5, Some("5"), Some("1,3")),
            (vec![(REVISION, "3")], 2, Some("3"), None),
            (vec![(REVISION, "mine")], 2, Some("mine"), None),
        ] {
            let mut set = marked(&before);
            mark(&mut set, &Deployment::default(), revision);
            assert_eq!(text(&set), expected, "{before:?}");
            assert_eq!(history(&set).as_deref(), remembered, "{before:?}");
        }
    }

    #[test]
    fn a_long_history_forgets_its_beginning() {
        let long = vec!["1000"; 400].join(",");
        let mut set = marked(&[(REVISION, "2000"), (HISTORY, &long)]);
        mark(&mut set, &Deployment::default(), 2001);
        let history = annotation(&set, HISTORY).expect("it has one");
        assert!(history.len() <= LONGEST_HISTORY && history.ends_with(",2000"));
    }

    #[test]
    fn what_is_the_deployments_own_is_not_passed_on() {
        let mut deployment = Deployment::default();
        let marks = [("a", "b"), (REVISION, "7"), (NOT_PASSED_ON[0], "{}")];
        let marks = marks.map(|(key, value)| (key.to_owned(), value.to_owned()));
        deployment.metadata.annotations = Some(marks.into());
        let mut set = ReplicaSet::default();
        mark(&mut set, &deployment, 1);
        let marks = set.metadata.annotations.expect("it has some");
        assert_eq!(
            marks.into_iter().collect::<Vec<_>>(),
            [
                ("a".to_owned(), "b".to_owned()),
                (REVISION.to_owned(), "1".to_owned())
            ]
        );
    }
}
