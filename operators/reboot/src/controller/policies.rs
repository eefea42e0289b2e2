//! Reconciles one policy: its slots and its status.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use windlass::{
    k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time},
    kube::{Api, api::ListParams},
    prelude::*,
    runtime::WriteError,
};

use super::{
    SharedState,
    conditions::reported_wait,
    get_live_policy, halt_reason,
    policy_status::{Observed, compute_status, figures, record_events},
};
use crate::{
    alerts::{self, AlertDecision},
    api::{Grant, RebootPolicy},
    policy_set::PolicySet,
    slots::{Rollout, is_expired},
    state::Phase,
    state_machine::NodeView,
    window::Windows,
};

/// Delay after a write conflict: by then the other writer's change should have reached the cache.
const CONFLICT_RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) struct PolicyReconciler(pub(super) Arc<SharedState>);

impl Reconciler for PolicyReconciler {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        match self.try_reconcile(&request, &ctx).await {
            Err(ReconcileError::Conflict) => Ok(Action::requeue_after(CONFLICT_RETRY_DELAY)),
            Err(ReconcileError::Failed(error)) => Err(error),
            Ok(action) => Ok(action),
        }
    }
}

/// Why a reconcile did not finish.
enum ReconcileError {
    /// Another client wrote the policy.
    Conflict,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for ReconcileError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// All nodes and policies at one moment.
struct ClusterSnapshot {
    nodes: Vec<NodeView>,
    policies: PolicySet,
}

impl ClusterSnapshot {
    /// Returns the policy's nodes and grants.
    fn rollout<'a>(
        &'a self,
        policy: &'a RebootPolicy,
        shared: &'a SharedState,
        now: Timestamp,
    ) -> Rollout<'a> {
        let name = policy.name_any();
        let has = |node: &&NodeView| {
            let policy = self.policies.policy_for(node);
            policy.is_some_and(|policy| policy.name_any() == name)
        };
        let nodes = self.nodes.iter().filter(has);
        Rollout {
            spec: &policy.spec,
            granted: granted(policy),
            nodes: nodes.map(|node| (node.name.as_str(), node)).collect(),
            own_node: shared.own_node.as_deref(),
            now,
        }
    }

    /// Returns the epochs of the expired slots. A slot also expires when its node now belongs to another policy and
    /// is not being rebooted.
    fn expired_grants(&self, policy: &RebootPolicy) -> BTreeSet<u64> {
        let name = policy.name_any();
        let is_others = |node: &NodeView| {
            self.policies
                .policy_for(node)
                .is_some_and(|has| has.name_any() != name)
        };
        let spent = granted(policy).iter().filter(|grant| {
            let node = self.nodes.iter().find(|node| node.name == grant.node);
            is_expired(grant, node) || node.is_some_and(is_others)
        });
        spent.map(|grant| grant.epoch).collect()
    }
}

fn granted(policy: &RebootPolicy) -> &[Grant] {
    policy
        .status
        .as_ref()
        .map(|status| status.granted.as_slice())
        .unwrap_or_default()
}

/// Returns the number of the last grant.
fn last_epoch(policy: &RebootPolicy) -> u64 {
    policy.status.as_ref().map_or(0, |status| status.epoch)
}

/// Returns the names of the failed nodes.
pub(super) fn failed_nodes(roll: &Rollout<'_>) -> Vec<String> {
    let failed = roll
        .nodes
        .values()
        .filter(|node| node.phase() == Some(Phase::Failed));
    failed.map(|node| node.name.clone()).collect()
}

impl PolicyReconciler {
    async fn try_reconcile(&self, request: &Request, ctx: &Context) -> Result<Action, ReconcileError> {
        let cached = ctx.lister::<RebootPolicy>()?.try_get(&request.key)?;
        let Some(policy) = cached.filter(|policy| policy.metadata.deletion_timestamp.is_none()) else {
            self.0.metrics.remove_policy(request.key.name());
            return Ok(Action::done());
        };
        let mut policy = RebootPolicy::clone(&policy);
        let nodes = ctx.lister::<Node>()?.try_list(&Query::all())?;
        let snapshot = ClusterSnapshot {
            nodes: nodes.iter().map(|node| self.0.view(node)).collect(),
            policies: policy_set_with(ctx, &policy)?,
        };
        if !snapshot.expired_grants(&policy).is_empty() {
            policy = self.release(ctx, &policy).await?;
        }
        let now = self.0.clock.now();
        let mut alerts = None;
        if self.can_grant(&snapshot, &policy, now) {
            let decision = self.0.alerts.decide(policy.spec.alerts.as_ref()).await;
            if decision.block().is_none() {
                let epoch = last_epoch(&policy);
                policy = self.grant(ctx, &policy).await?;
                if let AlertDecision::Ignored(message) = &decision
                    && last_epoch(&policy) > epoch
                {
                    ctx.recorder().warning(&policy, "AlertsIgnored", message.as_str());
                }
            }
            alerts = Some(decision);
        }
        let roll = snapshot.rollout(&policy, &self.0, now);
        // Also for a policy without nodes, because other policies have them all.
        let overlaps = snapshot
            .policies
            .overlaps(&policy.name_any(), snapshot.nodes.iter());
        let waits = nodes.iter().filter_map(|node| {
            let view = roll.nodes.get(node.name_any().as_str())?;
            Some((view.name.as_str(), reported_wait(node, view)?))
        });
        let observed = Observed {
            policies: &snapshot.policies,
            overlaps: &overlaps,
            waits: waits.collect(),
            alerts,
        };
        let (status, reason) = compute_status(&self.0, &policy, &roll, &observed);
        self.0
            .metrics
            .set_policy(request.key.name(), figures(&roll, reason));
        let before = policy.status.clone().unwrap_or_default();
        let check_again = now.checked_add(alerts::RETRY_DELAY).ok();
        let is_blocked = |alerts: &AlertDecision| alerts.block().is_some();
        let check_again = check_again.filter(|_| observed.alerts.as_ref().is_some_and(is_blocked));
        let next = next_time_event(&policy, &roll, now)
            .into_iter()
            .chain(check_again)
            .min();
        if before != status {
            record_events(ctx, &policy, &before, &status);
            policy.status = Some(status);
            write(ctx, &policy).await?;
        }
        Ok(next.map_or_else(Action::done, |next| {
            Action::requeue_after(self.0.delay_until(next))
        }))
    }

    /// Returns whether a slot can be granted.
    fn can_grant(&self, snapshot: &ClusterSnapshot, policy: &RebootPolicy, now: Timestamp) -> bool {
        let roll = snapshot.rollout(policy, &self.0, now);
        halt_reason(policy, failed_nodes(&roll).len(), now).is_none()
            && roll.next().is_ok_and(|next| !next.is_empty())
    }

    /// Reads the policy and then all nodes from the server, bypassing the cache. `None` if the policy was deleted.
    async fn live_snapshot(
        &self,
        ctx: &Context,
        policy: &RebootPolicy,
    ) -> Result<Option<(RebootPolicy, ClusterSnapshot)>, Error> {
        let Some(policy) = get_live_policy(ctx, &policy.name_any()).await? else {
            return Ok(None);
        };
        let nodes = Api::<Node>::all(ctx.client().clone());
        let nodes = nodes.list(&ListParams::default()).await?;
        let snapshot = ClusterSnapshot {
            nodes: nodes.items.iter().map(|node| self.0.view(node)).collect(),
            policies: policy_set_with(ctx, &policy)?,
        };
        Ok(Some((policy, snapshot)))
    }

    /// Takes back expired slots.
    async fn release(&self, ctx: &Context, policy: &RebootPolicy) -> Result<RebootPolicy, ReconcileError> {
        let (mut policy, snapshot) = self
            .live_snapshot(ctx, policy)
            .await?
            .ok_or(ReconcileError::Conflict)?;
        let spent = snapshot.expired_grants(&policy);
        if spent.is_empty() {
            return Ok(policy);
        }
        let status = policy.status.get_or_insert_default();
        status.granted.retain(|grant| !spent.contains(&grant.epoch));
        write(ctx, &policy).await
    }

    /// Grants as many slots as allowed. Never in the same write as a release.
    async fn grant(&self, ctx: &Context, policy: &RebootPolicy) -> Result<RebootPolicy, ReconcileError> {
        let checked = &policy.spec.alerts;
        let (mut policy, snapshot) = self
            .live_snapshot(ctx, policy)
            .await?
            .ok_or(ReconcileError::Conflict)?;
        if policy.spec.alerts != *checked {
            return Err(ReconcileError::Conflict); // other alerts have to be checked
        }
        let now = self.0.clock.now();
        if !self.can_grant(&snapshot, &policy, now) {
            return Ok(policy);
        }
        let roll = snapshot.rollout(&policy, &self.0, now);
        let next: Vec<_> = roll.next()?.into_iter().cloned().collect();
        let status = policy.status.get_or_insert_default();
        for node in next {
            status.epoch += 1;
            status.granted.push(Grant {
                node: node.name,
                uid: node.uid,
                epoch: status.epoch,
                granted_at: Time(now),
                boot_id: node.boot_id,
            });
        }
        write(ctx, &policy).await
    }
}

/// Returns all policies, with this one as given.
fn policy_set_with(ctx: &Context, policy: &RebootPolicy) -> Result<PolicySet, Error> {
    let mut all = ctx.lister::<RebootPolicy>()?.try_list(&Query::all())?;
    all.retain(|other| other.name_any() != policy.name_any());
    all.push(Arc::new(policy.clone()));
    Ok(PolicySet::new(all))
}

/// Returns when time alone changes something: a window opens or closes, which also the status of an idle policy
/// shows, or a backoff ends.
fn next_time_event(policy: &RebootPolicy, roll: &Rollout<'_>, now: Timestamp) -> Option<Timestamp> {
    let windows = Windows::parse(&policy.spec.windows, &policy.spec.exclusions).ok()?;
    let window = if windows.open_at(now) {
        windows.closes_after(now)
    } else {
        windows.next_opening(now)
    };
    let rests = roll.nodes.values().filter_map(|node| roll.rests_until(node));
    rests.chain(window).min()
}

/// Writes the status, conditional on the policy's resource version.
async fn write(ctx: &Context, policy: &RebootPolicy) -> Result<RebootPolicy, ReconcileError> {
    let outrun = |error: &WriteError| error.is_conflict() || error.is_uid_mismatch() || error.is_not_found();
    match ctx.writer().replace_status(policy).await {
        Ok(written) => Ok(written),
        Err(error) if outrun(&error) => Err(ReconcileError::Conflict),
        Err(error) => Err(error.into()),
    }
}
