//! Reading a desired state, for unit tests of the function that returned it.

use std::time::Duration;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_cache::GroupVersionKind;

use super::desired::Desired;
use crate::{conditions::ConditionUpdate, error::Error};

/// What a [`Desired`] asks for; see [`testing::inspect`](crate::testing::inspect).
#[derive(Clone, Copy)]
pub struct DesiredView<'a>(&'a Desired);

impl<'a> DesiredView<'a> {
    pub(crate) fn new(desired: &'a Desired) -> Self {
        Self(desired)
    }

    /// The children as `Kind/name`, in the order in which they were added.
    pub fn children(&self) -> Vec<String> {
        self.0.children.iter().map(super::child::Child::name).collect()
    }

    /// Returns the child of this kind and name, as `desired` wrote it. The error names the children that there are.
    pub fn child<C: Resource<DynamicType: Default> + DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<C, Error> {
        let kind = GroupVersionKind::of::<C>(&C::DynamicType::default());
        for child in self.0.children.iter().filter(|child| *child.kind() == kind) {
            let object = child.object().map_err(ToString::to_string)?;
            if object.metadata.name.as_deref() == Some(name) {
                return Ok(serde_json::from_value(serde_json::to_value(object)?)?);
            }
        }
        let (kind, children) = (kind.kind, self.children().join(", "));
        Err(Error::terminal(format!(
            "no child {kind}/{name} is desired; the children are [{children}]"
        )))
    }

    /// Returns the status as JSON; `null` if it is left alone.
    pub fn status(&self) -> Result<Value, Error> {
        match &self.0.status {
            None => Ok(Value::Null),
            Some(Ok(status)) => Ok(status.clone()),
            Some(Err(error)) => Err(error.to_string().into()),
        }
    }

    /// Returns the condition of this type, for comparison with an expected [`ConditionUpdate`].
    pub fn condition(&self, kind: &str) -> Option<&'a ConditionUpdate> {
        let mut conditions = self.0.conditions.iter();
        conditions.find(|update| update.condition_type() == kind)
    }

    /// Returns reason and message of a state that is [undecided](Desired::undecided).
    pub fn undecided(&self) -> Option<(&'a str, &'a str)> {
        let (reason, message) = self.0.undecided.as_ref()?;
        Some((reason, message))
    }

    /// Returns the delay after which the object is reconciled again even if nothing changes.
    pub fn requeue_after(&self) -> Option<Duration> {
        self.0.action.requeue_after
    }
}
