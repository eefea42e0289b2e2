//! The conditions of a terminating namespace, with the messages of the Kubernetes namespace controller.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::NamespaceCondition, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};
use windlass_api::conditions;

/// The result of deleting a namespace's content.
#[derive(Debug, Default)]
pub(super) struct DeletionResult {
    /// Why discovery failed.
    pub(super) discovery: Option<String>,
    /// Why content could not be deleted.
    pub(super) failures: Vec<String>,
    /// How many objects are left, by `resource.group`.
    pub(super) remaining: BTreeMap<String, usize>,
    /// How many objects have a finalizer left, by finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
}

/// A condition that is `False` on success, with its reason and message for that case.
struct ConditionText {
    condition_type: &'static str,
    reason: &'static str,
    message: &'static str,
}

const DISCOVERY: ConditionText = ConditionText {
    condition_type: "NamespaceDeletionDiscoveryFailure",
    reason: "ResourcesDiscovered",
    message: "All resources successfully discovered",
};
const PARSING: ConditionText = ConditionText {
    condition_type: "NamespaceDeletionGroupVersionParsingFailure",
    reason: "ParsedGroupVersions",
    message: "All legacy kube types successfully parsed",
};
const DELETION: ConditionText = ConditionText {
    condition_type: "NamespaceDeletionContentFailure",
    reason: "ContentDeleted",
    message: "All content successfully deleted, may be waiting on finalization",
};
const CONTENT: ConditionText = ConditionText {
    condition_type: "NamespaceContentRemaining",
    reason: "ContentRemoved",
    message: "All content successfully removed",
};
const FINALIZERS: ConditionText = ConditionText {
    condition_type: "NamespaceFinalizersRemaining",
    reason: "ContentHasNoFinalizers",
    message: "All content-preserving finalizers finished",
};

impl DeletionResult {
    pub(super) fn is_failure(&self) -> bool {
        self.discovery.is_some() || !self.failures.is_empty()
    }

    /// Returns the updated conditions, or `None` if they are unchanged.
    pub(super) fn update_conditions(
        &self,
        before: &[NamespaceCondition],
        now: Timestamp,
    ) -> Option<Vec<NamespaceCondition>> {
        let mut conditions = before.to_vec();
        let mut changed = false;
        for (text, problem) in self.problems() {
            let (status, reason, message) = match problem {
                Some((reason, message)) => ("True", reason, message),
                None => ("False", text.reason, text.message.to_owned()),
            };
            let updated = NamespaceCondition {
                type_: text.condition_type.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_transition_time: Some(Time(now)),
            };
            changed |= conditions::set(&mut conditions, updated);
        }
        changed.then_some(conditions)
    }

    /// Returns each condition with reason and message of its failure, if any.
    fn problems(&self) -> [(ConditionText, Option<(&'static str, String)>); 5] {
        let discovery = self.discovery.clone().map(|text| ("DiscoveryFailed", text));
        let deletion = (!self.failures.is_empty()).then(|| {
            let mut failures = self.failures.clone();
            failures.sort();
            let message = format!(
                "Failed to delete all resource types, {} remaining: {}",
                failures.len(),
                failures.join(", ")
            );
            ("ContentDeletionFailed", message)
        });
        let list = |found: &BTreeMap<String, usize>, how: fn(&str, usize) -> String| {
            let items: Vec<_> = found.iter().map(|(name, count)| how(name, *count)).collect();
            (!items.is_empty()).then(|| items.join(", "))
        };
        let left = list(&self.remaining, |kind, count| {
            format!("{kind} has {count} resource instances")
        });
        let content = left.map(|left| {
            let message = format!("Some resources are remaining: {left}");
            ("SomeResourcesRemain", message)
        });
        let left = list(&self.finalizers, |name, count| {
            format!("{name} in {count} resource instances")
        });
        let finalizers = left.map(|left| {
            let message = format!("Some content in the namespace has finalizers remaining: {left}");
            ("SomeFinalizersRemain", message)
        });
        [
            (DISCOVERY, discovery),
            // The embedded server serves no group versions that cannot be parsed.
            (PARSING, None),
            (DELETION, deletion),
            (CONTENT, content),
            (FINALIZERS, finalizers),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_updated_only_when_they_change() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut result = DeletionResult::default();
        let first = result
            .update_conditions(&[], at(1))
            .expect("there was nothing before");
        assert_eq!(first.len(), 5);
        assert!(first.iter().all(|condition| condition.status == "False"));
        assert!(result.update_conditions(&first, at(2)).is_none());

        result.remaining.insert("configmaps.".to_owned(), 2);
        result.remaining.insert("foos.example.com".to_owned(), 1);
        let second = result.update_conditions(&first, at(3)).expect("there is content");
        let of = |conditions: &[NamespaceCondition], name: &str| {
            let found = conditions.iter().find(|condition| condition.type_ == name);
            found.cloned().expect("it is there")
        };
        let content = of(&second, "NamespaceContentRemaining");
        assert_eq!(content.status, "True");
        assert_eq!(
            content.message.as_deref(),
            Some(
                "Some resources are remaining: configmaps. has 2 resource instances, foos.example.com has 1 resource instances"
            )
        );
        result.remaining.remove("configmaps.");
        let third = result.update_conditions(&second, at(4)).expect("there is less");
        let content = of(&third, "NamespaceContentRemaining");
        assert_eq!(
            content.last_transition_time,
            Some(Time(at(3))),
            "its status stays"
        );
        assert_eq!(of(&third, "NamespaceFinalizersRemaining").status, "False");
    }
}
