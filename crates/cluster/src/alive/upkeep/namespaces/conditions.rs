//! What a terminating namespace says about its emptying, in a real namespace controller's words.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::NamespaceCondition, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};

/// What was found while a namespace was emptied.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Why it is not known what there is.
    pub(super) discovery: Option<String>,
    /// What could not be deleted, and why.
    pub(super) failures: Vec<String>,
    /// How many objects are left, by `resource.group`.
    pub(super) left: BTreeMap<String, usize>,
    /// How many objects have a finalizer left, by finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
}

/// A condition that is `False` while all goes well, and the words for that.
struct Text {
    of: &'static str,
    reason: &'static str,
    message: &'static str,
}

const DISCOVERY: Text = Text {
    of: "NamespaceDeletionDiscoveryFailure",
    reason: "ResourcesDiscovered",
    message: "All resources successfully discovered",
};
const PARSING: Text = Text {
    of: "NamespaceDeletionGroupVersionParsingFailure",
    reason: "ParsedGroupVersions",
    message: "All legacy kube types successfully parsed",
};
const DELETION: Text = Text {
    of: "NamespaceDeletionContentFailure",
    reason: "ContentDeleted",
    message: "All content successfully deleted, may be waiting on finalization",
};
const CONTENT: Text = Text {
    of: "NamespaceContentRemaining",
    reason: "ContentRemoved",
    message: "All content successfully removed",
};
const FINALIZERS: Text = Text {
    of: "NamespaceFinalizersRemaining",
    reason: "ContentHasNoFinalizers",
    message: "All content-preserving finalizers finished",
};

impl Findings {
    pub(super) fn is_failure(&self) -> bool {
        self.discovery.is_some() || !self.failures.is_empty()
    }

    /// The conditions with what was found in them, in order; `None` if they say it already.
    pub(super) fn told(
        &self,
        before: &[NamespaceCondition],
        now: Timestamp,
    ) -> Option<Vec<NamespaceCondition>> {
        let mut conditions = before.to_vec();
        let mut changed = false;
        for (text, trouble) in self.troubles() {
            let (status, reason, message) = match trouble {
                Some((reason, message)) => ("True", reason, message),
                None => ("False", text.reason, text.message.to_owned()),
            };
            let told = NamespaceCondition {
                type_: text.of.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_transition_time: Some(Time(now)),
            };
            match conditions
                .iter_mut()
                .find(|condition| condition.type_ == told.type_)
            {
                None => {
                    conditions.push(told);
                    changed = true;
                }
                Some(known) if known.status != told.status => {
                    *known = told;
                    changed = true;
                }
                Some(known) if known.reason != told.reason || known.message != told.message => {
                    known.reason = told.reason;
                    known.message = told.message;
                    changed = true;
                }
                Some(_) => {}
            }
        }
        changed.then_some(conditions)
    }

    /// Each condition, and what is wrong: a reason and a message.
    fn troubles(&self) -> [(Text, Option<(&'static str, String)>); 5] {
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
        let left = list(&self.left, |kind, count| {
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
            // Group versions are served by one server, which does not give any that cannot be parsed.
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
    fn conditions_are_written_when_they_say_something_new() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut findings = Findings::default();
        let first = findings.told(&[], at(1)).expect("there was nothing before");
        assert_eq!(first.len(), 5);
        assert!(first.iter().all(|condition| condition.status == "False"));
        assert!(findings.told(&first, at(2)).is_none());

        findings.left.insert("configmaps.".to_owned(), 2);
        findings.left.insert("foos.example.com".to_owned(), 1);
        let second = findings.told(&first, at(3)).expect("there is content");
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
        findings.left.remove("configmaps.");
        let third = findings.told(&second, at(4)).expect("there is less");
        let content = of(&third, "NamespaceContentRemaining");
        assert_eq!(
            content.last_transition_time,
            Some(Time(at(3))),
            "its status stays"
        );
        assert_eq!(of(&third, "NamespaceFinalizersRemaining").status, "False");
    }
}
