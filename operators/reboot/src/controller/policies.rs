//! One policy's slots and status.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use windlass::{
    k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time},
    kube::{Api, api::ListParams},
    prelude::*,
    runtime::WriteError,
};

use super::{Shared, halt, live};
use crate::{
    api::{BlockerStatus, Grant, PolicyPhase, RebootPolicy, RebootPolicyStatus},
    ledger::{Roll, is_spent},
    machine::{Halt, NodeView},
    members::Policies,
    state::Phase,
    window::Windows,
};

/// So many blockers are shown in a status.
const MOST_BLOCKERS: usize = 20;

/// So many names are in a message.
const NAMED: usize = 5;

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

    fn spent(&self, policy: &RebootPolicy) -> BTreeSet<u64> {
        let node = |grant: &Grant| self.nodes.iter().find(|node| node.name == grant.node);
        let spent = granted(policy)
            .iter()
            .filter(|grant| is_spent(grant, node(grant)));
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

fn failed(roll: &Roll<'_>) -> Vec<String> {
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
            policies: self.policies(ctx, &policy)?,
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
        let status = self.account(&sight, &policy, &roll);
        let before = policy.status.clone().unwrap_or_default();
        let next = next_look(&policy, &roll, now);
        if before != status {
            self.speak(ctx, &policy, &before, &status);
            policy.status = Some(status);
            write(ctx, &policy).await?;
        }
        Ok(next.map_or_else(Action::done, |next| Action::requeue_after(self.0.wait(next))))
    }

    /// All policies, this one as it is given.
    fn policies(&self, ctx: &Context, policy: &RebootPolicy) -> Result<Policies, Error> {
        let mut all = ctx.lister::<RebootPolicy>()?.try_list(&Query::all())?;
        all.retain(|other| other.name_any() != policy.name_any());
        all.push(Arc::new(policy.clone()));
        Ok(Policies::new(all))
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
            policies: self.policies(ctx, &policy)?,
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
        let next: Vec<_> = roll
            .next()?
            .into_iter()
            .map(|node| (node.name.clone(), node.uid.clone()))
            .collect();
        let status = policy.status.get_or_insert_default();
        for (node, uid) in next {
            status.epoch += 1;
            status.granted.push(Grant {
                node,
                uid,
                epoch: status.epoch,
                at: Time(now),
            });
        }
        write(ctx, &policy).await
    }

    /// What people see of it.
    fn account(&self, sight: &Sight, policy: &RebootPolicy, roll: &Roll<'_>) -> RebootPolicyStatus {
        let mut status = policy.status.clone().unwrap_or_default();
        let generation = policy.metadata.generation;
        let has_slot = |node: &NodeView| node.is_active() || roll.slot(node).is_some();
        let nodes = || roll.nodes.values().copied();
        let count = |test: &dyn Fn(&NodeView) -> bool| {
            u32::try_from(nodes().filter(|node| test(node)).count()).unwrap_or(u32::MAX)
        };
        let is_failed = |node: &NodeView| node.phase() == Some(Phase::Failed);
        let failed = failed(roll);
        let halt = halt(policy, failed.len(), roll.now);
        status.observed_generation = generation;
        status.nodes = count(&|_| true);
        status.requested = count(&|node| node.needed.is_some() && !has_slot(node));
        status.rebooting = count(&|node| has_slot(node) && !is_failed(node));
        status.failed = count(&is_failed);
        status.unavailable = u32::try_from(roll.unavailable().len()).unwrap_or(u32::MAX);
        status.max_unavailable = roll
            .max()
            .ok()
            .and_then(|max| u32::try_from(max).ok())
            .unwrap_or(0);
        status.plan = match halt {
            Some(Halt::DryRun) => roll.plan().unwrap_or_default(),
            _ => Vec::new(),
        };
        let draining = nodes().filter(|node| node.phase() == Some(Phase::Draining));
        let blockers = draining.flat_map(|node| {
            let blockers = self.0.figures.blockers_of(&node.name).into_iter();
            blockers.map(|blocker| BlockerStatus {
                node: node.name.clone(),
                pod: format!("{}/{}", blocker.namespace, blocker.pod),
                budget: blocker.budget,
                message: blocker.message,
            })
        });
        status.blockers = blockers.take(MOST_BLOCKERS).collect();
        status.phase = Some(match halt {
            Some(Halt::DryRun) => PolicyPhase::DryRun,
            Some(Halt::Paused | Halt::BudgetSpent | Halt::Invalid) => PolicyPhase::Paused,
            _ if status.rebooting > 0 => PolicyPhase::Rolling,
            _ if status.requested > 0 => PolicyPhase::Waiting,
            _ => PolicyPhase::Idle,
        });
        let wrong = wrong(sight, policy, roll);
        status.message = wrong.clone().or_else(|| match halt {
            Some(halt) => Some(halt.message().to_owned()),
            None if status.requested == 0 => None,
            None => Some(format!("{} nodes wait for a slot", status.requested)),
        });

        let conditions = &mut status.conditions;
        let mut note = |finding: Finding| conditions.set(finding.at(generation), &self.0.clock);
        note(match &wrong {
            None => Finding::yes("Ready", "Followed"),
            Some(wrong) => Finding::no("Ready", "Invalid").message(wrong.as_str()),
        });
        note(match halt {
            Some(halt @ (Halt::Paused | Halt::DryRun | Halt::BudgetSpent | Halt::Invalid)) => {
                Finding::yes("Paused", format!("{halt:?}")).message(halt.message())
            }
            Some(Halt::WindowClosed) => Finding::no("Paused", "WindowClosed"),
            None => Finding::no("Paused", "Running"),
        });
        note(if failed.is_empty() {
            Finding::no("Degraded", "NoneFailed")
        } else {
            Finding::yes("Degraded", "NodesFailed").message(format!(
                "look at these nodes, and take their state annotation off when they are good: {}",
                some_of(failed.iter().map(String::as_str))
            ))
        });
        let overlaps = sight.policies.overlaps(&policy.name_any(), sight.nodes.iter());
        note(if overlaps.is_empty() {
            Finding::no("Overlap", "None")
        } else {
            let others = some_of(overlaps.iter().map(String::as_str));
            Finding::yes("Overlap", "NodesShared").message(format!(
                "other policies select nodes of this one, and the first by name has them: {others}"
            ))
        });
        status
    }

    /// Tells of what changed for people.
    fn speak(
        &self,
        ctx: &Context,
        policy: &RebootPolicy,
        before: &RebootPolicyStatus,
        now: &RebootPolicyStatus,
    ) {
        let is = |status: &RebootPolicyStatus, kind: &str| {
            let condition = status.conditions.of_type(kind);
            condition.map(|one| (one.status.clone(), one.reason.clone()))
        };
        for kind in ["Degraded", "Overlap", "Paused"] {
            let Some(condition) = now.conditions.of_type(kind) else {
                continue;
            };
            let (was, is) = (is(before, kind), is(now, kind));
            if was == is || (was.is_none() && condition.status == "False") {
                continue;
            }
            if condition.status == "True" {
                ctx.recorder()
                    .warning(policy, &condition.reason, condition.message.as_str());
            } else {
                let message = format!("{kind} no longer");
                ctx.recorder().normal(policy, &condition.reason, message);
            }
        }
    }
}

/// What only people can put right.
fn wrong(sight: &Sight, policy: &RebootPolicy, roll: &Roll<'_>) -> Option<String> {
    let spec = &policy.spec;
    let selector = sight.policies.invalid(&policy.name_any());
    let selector = selector.map(|error| format!("nodeSelector cannot be read: {error}"));
    selector
        .or_else(|| Some(roll.max().err()?.to_string()))
        .or_else(|| Some(roll.plan().err()?.to_string()))
        .or_else(|| Some(Windows::parse(&spec.windows, &spec.exclusions).err()?.to_string()))
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

fn by_phase(roll: &Roll<'_>) -> BTreeMap<&'static str, usize> {
    let mut phases: BTreeMap<_, _> = Phase::ALL.into_iter().map(|phase| (phase.name(), 0)).collect();
    for name in ["Idle", "Requested", "Unknown"] {
        phases.insert(name, 0);
    }
    for node in roll.nodes.values() {
        let phase = match &node.state {
            Some(Ok(state)) => state.phase.name(),
            Some(Err(_)) => "Unknown",
            None if node.needed.is_some() => "Requested",
            None => "Idle",
        };
        *phases.entry(phase).or_default() += 1;
    }
    phases
}

fn some_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let some = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
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
