//! One policy's slots and status.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use windlass::{
    k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time},
    kube::{Api, api::ListParams},
    prelude::*,
    runtime::WriteError,
};

use super::{
    Shared,
    account::{account, by_phase, speak},
    halt, live,
};
use crate::{
    api::{Grant, RebootPolicy},
    ledger::{Roll, is_spent},
    machine::NodeView,
    members::Policies,
    state::Phase,
    window::Windows,
};

/// After somebody was faster: by then their change is in the cache, which is a reason to look too.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Policing(pub(super) Arc<Shared>);

impl Reconciler for Policing {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        match self.police(&request, &ctx).await {
            Err(Unfinished::Outrun) => Ok(Action::requeue_after(AGAIN)),
            Err(Unfinished::Failed(error)) => Err(error),
            Ok(action) => Ok(action),
        }
    }
}

/// Why a reconcile has not come to its end.
enum Unfinished {
    /// Somebody else wrote the policy.
    Outrun,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Unfinished {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// What is looked at together: all nodes and all policies.
struct Sight {
    nodes: Vec<NodeView>,
    policies: Policies,
}

impl Sight {
    /// The nodes of a policy, as its ledger sees them.
    fn roll<'a>(&'a self, policy: &'a RebootPolicy, shared: &'a Shared, now: Timestamp) -> Roll<'a> {
        let name = policy.name_any();
        let has = |node: &&NodeView| {
            let policy = self.policies.of(node);
            policy.is_some_and(|policy| policy.name_any() == name)
        };
        let nodes = self.nodes.iter().filter(has);
        Roll {
            spec: &policy.spec,
            granted: granted(policy),
            nodes: nodes.map(|node| (node.name.as_str(), node)).collect(),
            own: shared.own.as_deref(),
            now,
        }
    }

    /// The slots that are over. One of a node that is another policy's by now, and not on its way, is: that one gives slots to it.
    fn spent(&self, policy: &RebootPolicy) -> BTreeSet<u64> {
        let name = policy.name_any();
        let is_others = |node: &NodeView| self.policies.of(node).is_some_and(|has| has.name_any() != name);
        let spent = granted(policy).iter().filter(|grant| {
            let node = self.nodes.iter().find(|node| node.name == grant.node);
            is_spent(grant, node) || node.is_some_and(is_others)
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

/// The nodes that have failed.
pub(super) fn failed(roll: &Roll<'_>) -> Vec<String> {
    let failed = roll
        .nodes
        .values()
        .filter(|node| node.phase() == Some(Phase::Failed));
    failed.map(|node| node.name.clone()).collect()
}

impl Policing {
    async fn police(&self, request: &Request, ctx: &Context) -> Result<Action, Unfinished> {
        let cached = ctx.lister::<RebootPolicy>()?.try_get(&request.key)?;
        let Some(policy) = cached.filter(|policy| policy.metadata.deletion_timestamp.is_none()) else {
            self.0.figures.forget(request.key.name());
            return Ok(Action::done());
        };
        let mut policy = RebootPolicy::clone(&policy);
        let nodes = ctx.lister::<Node>()?.try_list(&Query::all())?;
        let sight = Sight {
            nodes: nodes.iter().map(|node| self.0.view(node)).collect(),
            policies: policies(ctx, &policy)?,
        };
        if !sight.spent(&policy).is_empty() {
            policy = self.release(ctx, &policy).await?;
        }
        let now = self.0.clock.now();
        if self.is_due(&sight, &policy, now) {
            policy = self.grant(ctx, &policy).await?;
        }
        let roll = sight.roll(&policy, &self.0, now);
        self.0.figures.count(request.key.name(), by_phase(&roll));
        // Also of one that has no node, because others have them all.
        let overlaps = sight.policies.overlaps(&policy.name_any(), sight.nodes.iter());
        let status = account(&self.0, &sight.policies, &policy, &roll, &overlaps);
        let before = policy.status.clone().unwrap_or_default();
        let next = next_look(&policy, &roll, now);
        if before != status {
            speak(ctx, &policy, &before, &status);
            policy.status = Some(status);
            write(ctx, &policy).await?;
        }
        Ok(next.map_or_else(Action::done, |next| Action::requeue_after(self.0.wait(next))))
    }

    /// Whether a slot can be given.
    fn is_due(&self, sight: &Sight, policy: &RebootPolicy, now: Timestamp) -> bool {
        let roll = sight.roll(policy, &self.0, now);
        halt(policy, failed(&roll).len(), now).is_none() && roll.next().is_ok_and(|next| !next.is_empty())
    }

    /// The policy, and after it all nodes, as the server has them now. `None` if the policy is gone.
    async fn sight(
        &self,
        ctx: &Context,
        policy: &RebootPolicy,
    ) -> Result<Option<(RebootPolicy, Sight)>, Error> {
        let Some(policy) = live(ctx, &policy.name_any()).await? else {
            return Ok(None);
        };
        let nodes = Api::<Node>::all(ctx.client().clone());
        let nodes = nodes.list(&ListParams::default()).await?;
        let sight = Sight {
            nodes: nodes.items.iter().map(|node| self.0.view(node)).collect(),
            policies: policies(ctx, &policy)?,
        };
        Ok(Some((policy, sight)))
    }

    /// Takes back the slots that are over.
    async fn release(&self, ctx: &Context, policy: &RebootPolicy) -> Result<RebootPolicy, Unfinished> {
        let (mut policy, sight) = self.sight(ctx, policy).await?.ok_or(Unfinished::Outrun)?;
        let spent = sight.spent(&policy);
        if spent.is_empty() {
            return Ok(policy);
        }
        let status = policy.status.get_or_insert_default();
        status.granted.retain(|grant| !spent.contains(&grant.epoch));
        write(ctx, &policy).await
    }

    /// Gives slots, as many as there may be. Never in one write with those that are taken back.
    async fn grant(&self, ctx: &Context, policy: &RebootPolicy) -> Result<RebootPolicy, Unfinished> {
        let (mut policy, sight) = self.sight(ctx, policy).await?.ok_or(Unfinished::Outrun)?;
        let now = self.0.clock.now();
        if !self.is_due(&sight, &policy, now) {
            return Ok(policy);
        }
        let roll = sight.roll(&policy, &self.0, now);
        let next: Vec<_> = roll.next()?.into_iter().cloned().collect();
        let status = policy.status.get_or_insert_default();
        for node in next {
            status.epoch += 1;
            status.granted.push(Grant {
                node: node.name,
                uid: node.uid,
                epoch: status.epoch,
                at: Time(now),
                boot_id: node.boot_id,
            });
        }
        write(ctx, &policy).await
    }
}

/// All policies, this one as it is given.
fn policies(ctx: &Context, policy: &RebootPolicy) -> Result<Policies, Error> {
    let mut all = ctx.lister::<RebootPolicy>()?.try_list(&Query::all())?;
    all.retain(|other| other.name_any() != policy.name_any());
    all.push(Arc::new(policy.clone()));
    Ok(Policies::new(all))
}

/// When time alone makes a difference: a window opens or closes, or a node has rested.
fn next_look(policy: &RebootPolicy, roll: &Roll<'_>, now: Timestamp) -> Option<Timestamp> {
    let windows = Windows::parse(&policy.spec.windows, &policy.spec.exclusions).ok()?;
    let asked = roll.nodes.values().any(|node| !node.is_idle());
    let window = if windows.open_at(now) {
        windows.closes_after(now)
    } else {
        windows.next_opening(now)
    };
    let rests = roll.nodes.values().filter_map(|node| {
        let state = node.state().filter(|state| state.phase == Phase::Aborted)?;
        state.deadline.filter(|rest| *rest > now)
    });
    rests.chain(window.filter(|_| asked)).min()
}

/// Writes the status, if the policy still is the version that it was made from.
async fn write(ctx: &Context, policy: &RebootPolicy) -> Result<RebootPolicy, Unfinished> {
    let outrun = |error: &WriteError| error.is_conflict() || error.is_not_found();
    match ctx.writer().replace_status(policy).await {
        Ok(written) => Ok(written),
        Err(error) if outrun(&error) => Err(Unfinished::Outrun),
        Err(error) => Err(error.into()),
    }
}
