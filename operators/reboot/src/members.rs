//! Which policy a node belongs to.

use std::{collections::BTreeSet, sync::Arc};

use windlass::{
    kube::core::{ParseExpressionError, Selector, SelectorExt},
    prelude::ResourceExt,
};

use crate::{
    api::{DEFAULT_POLICY, RebootPolicy},
    machine::NodeView,
};

/// All policies, with what they select; the one that has a node is the first that does.
pub(crate) struct Policies(Vec<(Arc<RebootPolicy>, Result<Selector, ParseExpressionError>)>);

impl Policies {
    /// Those that there are.
    pub(crate) fn new(policies: Vec<Arc<RebootPolicy>>) -> Self {
        let mut all: Vec<_> = policies
            .into_iter()
            .map(|policy| {
                let selector = Selector::try_from(policy.spec.node_selector.clone());
                (policy, selector)
            })
            .collect();
        all.sort_by_cached_key(|(policy, _)| (policy.name_any() == DEFAULT_POLICY, policy.name_any()));
        Self(all)
    }

    /// The policy that has the node: one that is on its way stays with the policy that let it go.
    pub(crate) fn of(&self, node: &NodeView) -> Option<&Arc<RebootPolicy>> {
        let state = node.state().filter(|state| state.phase.is_active());
        let named = state.and_then(|state| self.named(&state.policy));
        named.or_else(|| self.selecting(node).next())
    }

    /// The policy of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<RebootPolicy>> {
        let mut all = self.0.iter().map(|(policy, _)| policy);
        all.find(|policy| policy.name_any() == name)
    }

    /// What is wrong with this one's selector.
    pub(crate) fn invalid(&self, name: &str) -> Option<&ParseExpressionError> {
        let (_, selector) = self.0.iter().find(|(policy, _)| policy.name_any() == name)?;
        selector.as_ref().err()
    }

    /// The other policies that select nodes of this one, `default` left out: it is meant to be beaten.
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
                .is_ok_and(|selector| selector.matches(&node.labels))
        };
        self.0
            .iter()
            .filter(move |(_, selector)| selects(selector))
            .map(|(policy, _)| policy)
    }
}
