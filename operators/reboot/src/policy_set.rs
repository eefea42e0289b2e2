//! Which policy a node belongs to.

use std::{collections::BTreeSet, sync::Arc};

use windlass::{
    api::labels::{InvalidSelector, Selector},
    prelude::ResourceExt,
};

use crate::{
    api::{DEFAULT_POLICY, RebootPolicy},
    state_machine::NodeView,
};

/// All policies with their parsed selectors, in order of precedence.
pub(crate) struct PolicySet(Vec<(Arc<RebootPolicy>, Result<Selector, InvalidSelector>)>);

impl PolicySet {
    /// Sorts the policies by precedence and parses their selectors.
    pub(crate) fn new(policies: Vec<Arc<RebootPolicy>>) -> Self {
        let mut all: Vec<_> = policies
            .into_iter()
            .map(|policy| {
                let selector = Selector::try_from(&policy.spec.node_selector);
                (policy, selector)
            })
            .collect();
        all.sort_by_cached_key(|(policy, _)| (policy.name_any() == DEFAULT_POLICY, policy.name_any()));
        Self(all)
    }

    /// Returns the node's policy. A node that has a slot keeps the policy that granted it.
    pub(crate) fn policy_for(&self, node: &NodeView) -> Option<&Arc<RebootPolicy>> {
        let state = node.state().filter(|state| state.phase.is_active());
        let named = state.and_then(|state| self.get(&state.policy));
        named.or_else(|| self.selecting(node).next())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<RebootPolicy>> {
        let mut all = self.0.iter().map(|(policy, _)| policy);
        all.find(|policy| policy.name_any() == name)
    }

    /// Returns the error in this policy's selector.
    pub(crate) fn selector_error(&self, name: &str) -> Option<&InvalidSelector> {
        let (_, selector) = self.0.iter().find(|(policy, _)| policy.name_any() == name)?;
        selector.as_ref().err()
    }

    /// Returns the other policies that select nodes of this one, except `default`, which every other policy
    /// overrides.
    pub(crate) fn overlaps<'a>(
        &self,
        name: &str,
        nodes: impl Iterator<Item = &'a NodeView>,
    ) -> BTreeSet<String> {
        let mut others = BTreeSet::new();
        for node in nodes {
            let selecting = self.selecting(node).map(|policy| policy.name_any());
            let explicit: BTreeSet<_> = selecting.filter(|other| other != DEFAULT_POLICY).collect();
            if explicit.contains(name) {
                others.extend(explicit);
            }
        }
        others.remove(name);
        others
    }

    fn selecting(&self, node: &NodeView) -> impl Iterator<Item = &Arc<RebootPolicy>> {
        let selects = |selector: &Result<Selector, _>| {
            selector
                .as_ref()
                .is_ok_and(|selector| selector.matches_map(&node.labels))
        };
        self.0
            .iter()
            .filter(move |(_, selector)| selects(selector))
            .map(|(policy, _)| policy)
    }
}
