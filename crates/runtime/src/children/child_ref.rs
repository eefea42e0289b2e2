//! Which child: its kind and its name.

use std::fmt;

use kube::Resource;
use windlass_cache::{GroupVersionKind, ObjectKey};

/// Names a child of the reconciled object, for [`Desired::after`](crate::Desired::after).
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::ChildRef;
/// let settings = ChildRef::of::<ConfigMap>("settings");
/// assert_eq!(settings.to_string(), "ConfigMap settings");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildRef {
    kind: GroupVersionKind,
    namespace: Option<String>,
    name: String,
}

impl ChildRef {
    /// The child of this kind and name.
    pub fn of<C: Resource<DynamicType: Default>>(name: impl Into<String>) -> Self {
        Self::dynamic::<C>(&C::DynamicType::default(), name)
    }

    /// The child of a kind known only at run time.
    pub fn dynamic<C: Resource>(kind: &C::DynamicType, name: impl Into<String>) -> Self {
        Self {
            kind: GroupVersionKind::of::<C>(kind),
            namespace: None,
            name: name.into(),
        }
    }

    /// The child's namespace, for a cluster-scoped object with children of one name in several namespaces. Default: any.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    pub(super) fn is(&self, child: &ChildId) -> bool {
        let ChildId { kind, key } = child;
        is_same_kind(&self.kind, kind)
            && self.name == key.name()
            && (self.namespace.is_none() || self.namespace.as_deref() == key.namespace())
    }
}

impl fmt::Display for ChildRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            None => write!(f, "{} {}", self.kind.kind, self.name),
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind.kind, self.name),
        }
    }
}

/// Identifies a child by group, kind and key, whatever the API version.
#[derive(Clone, Debug)]
pub(super) struct ChildId {
    pub(super) kind: GroupVersionKind,
    pub(super) key: ObjectKey,
}

/// What identifies the child of this kind and key in a set: group, kind and key.
pub(super) fn identity<'a>(
    kind: &'a GroupVersionKind,
    key: &'a ObjectKey,
) -> (&'a str, &'a str, &'a ObjectKey) {
    (group(kind), &kind.kind, key)
}

impl fmt::Display for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.key)
    }
}

/// Whether both have the same group and kind.
pub(super) fn is_same_kind(one: &GroupVersionKind, other: &GroupVersionKind) -> bool {
    one.kind == other.kind && group(one) == group(other)
}

fn group(kind: &GroupVersionKind) -> &str {
    kind.api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(api_version: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        }
    }

    #[test]
    fn kinds_are_compared_without_their_version() {
        for (one, other, expected) in [
            (kind("v1", "A"), kind("v2", "A"), true),
            (kind("v1", "A"), kind("v1", "B"), false),
            (kind("apps/v1", "A"), kind("apps/v1beta1", "A"), true),
            (kind("apps/v1", "A"), kind("v1", "A"), false),
            (kind("apps/v1", "A"), kind("spam/v1", "A"), false),
        ] {
            assert_eq!(is_same_kind(&one, &other), expected, "{one} and {other}");
        }
    }
}
