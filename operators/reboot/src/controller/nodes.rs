//! One node's next steps.

use std::sync::Arc;

use jiff::Timestamp;
use tracing::info;
use windlass::{
    cache::{FieldPath, IndexBy, Stored},
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{
        Api,
        core::{ApiResource, DynamicObject},
    },
    prelude::*,
};

use super::{Shared, conditions, halt, live, rules};
use crate::{
    after::{self, After, Booted},
    api::{DEFAULT_POLICY, RebootPolicy, RebootPolicySpec},
    drain::{Blocker, DrainProgress, How},
    ledger,
    machine::{self, Change, Facts, NodeView, Step},
    members::Policies,
    state::Phase,
    window::Windows,
};

/// From a request to its end there are fewer.
const MOST_STEPS: usize = 16;

/// So many blockers are named in a sentence.
const NAMED: usize = 3;

/// What a drain or a check can see of a pod: whether it goes, has ended, and is ready.
pub(super) fn seen(pod: &Stored<Pod>) -> Option<(bool, Option<String>, bool)> {
    let pod = pod.object().ok()?;
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.into_iter().flatten();
    Some((
        pod.metadata.deletion_timestamp.is_some(),
        status.and_then(|status| status.phase.clone()),
        conditions.any(|one| one.type_ == "Ready" && one.status == "True"),
    ))
}

pub(super) struct Nodes(pub(super) Arc<Shared>);

impl Reconciler for Nodes {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let mut node = ctx.lister::<Node>()?.try_get(&request.key)?;
        for _ in 0..MOST_STEPS {
            let Some(current) = node else {
                self.0.figures.blocked(request.key.name(), Vec::new());
                return Ok(Action::done());
            };
            match self.once(&ctx, &current).await? {
                Next::Look(changed) => node = changed,
                Next::Rest(action) => return Ok(action),
            }
        }
        Err(format!("node {} does not come to rest", request.key).into())
    }
}

/// What a step is about.
#[derive(Clone, Copy)]
struct Sight<'a> {
    ctx: &'a Context,
    node: &'a Node,
    /// What stands on the node.
    view: &'a NodeView,
    policy: &'a RebootPolicy,
    /// How many nodes of its policy have failed.
    failed: usize,
}

/// What follows a step.
enum Next {
    /// Another one, from what the node is now; `None` if it is gone.
    Look(Option<Arc<Node>>),
    Rest(Action),
}

impl Nodes {
    async fn once(&self, ctx: &Context, node: &Arc<Node>) -> Result<Next, Error> {
        let view = self.0.view(node);
        if view.is_idle() && view.order.is_none() && view.progress.is_none() {
            self.tell(ctx, node, &view, None).await?;
            return Ok(Next::Rest(Action::done()));
        }
        if let Some(Err(unreadable)) = &view.state {
            ctx.recorder()
                .warning(&**node, "StateUnreadable", unreadable.to_string());
        }
        let policies = Policies::new(ctx.lister::<RebootPolicy>()?.try_list(&Query::all())?);
        let policy = match policies.of(&view) {
            Some(policy) => Arc::clone(policy),
            None => {
                if view.needed.is_some() {
                    create_default(ctx).await?;
                }
                Arc::new(RebootPolicy::new(DEFAULT_POLICY, RebootPolicySpec::default()))
            }
        };
        let sight = Sight {
            ctx,
            node,
            view: &view,
            policy: &policy,
            failed: self.failed(ctx, &policies, &policy)?,
        };
        match self.decide(sight) {
            Step::Rest => {
                self.tell(ctx, node, &view, None).await?;
                Ok(Next::Rest(Action::done()))
            }
            Step::Until(until) => {
                self.tell(ctx, node, &view, None).await?;
                Ok(Next::Rest(Action::requeue_after(self.0.wait(until))))
            }
            Step::Write(change) => self.write(sight, &change).await,
            Step::Confirm(_) => self.confirm(sight).await,
            Step::Drain { force } => self.drain(sight, force).await,
            Step::Verify => self.verify(sight).await,
        }
    }

    /// How many nodes of the policy have failed.
    fn failed(&self, ctx: &Context, policies: &Policies, policy: &RebootPolicy) -> Result<usize, Error> {
        let nodes = ctx.lister::<Node>()?.try_list(&Query::all())?;
        let failed = nodes.iter().filter(|node| {
            let view = self.0.view(node);
            view.phase() == Some(Phase::Failed)
                && policies
                    .of(&view)
                    .is_some_and(|has| has.name_any() == policy.name_any())
        });
        Ok(failed.count())
    }

    fn decide(&self, sight: Sight<'_>) -> Step {
        self.with_facts(sight, |facts| machine::step(sight.view, facts))
    }

    fn with_facts<T>(&self, sight: Sight<'_>, then: impl FnOnce(&Facts<'_>) -> T) -> T {
        let (policy, now) = (sight.policy, self.0.clock.now());
        let status = policy.status.as_ref();
        let granted = status.map(|status| status.granted.as_slice()).unwrap_or_default();
        then(&Facts {
            now,
            policy: &policy.name_any(),
            rules: &rules(policy),
            slot: ledger::slot(granted, sight.view).map(|grant| grant.epoch),
            halt: halt(policy, sight.failed, now),
        })
    }

    /// The step as it is by the policy that the server has now: slot, pause, window.
    async fn confirm(&self, sight: Sight<'_>) -> Result<Next, Error> {
        let name = sight.policy.name_any();
        let policy = live(sight.ctx, &name).await?;
        let policy = policy.unwrap_or_else(|| RebootPolicy::new(&name, RebootPolicySpec::default()));
        let sight = Sight {
            policy: &policy,
            ..sight
        };
        match self.decide(sight) {
            Step::Confirm(mut change) => {
                if let Some(order) = &mut change.arm {
                    (order.not_before, order.not_after) = window(&policy, self.0.clock.now());
                }
                self.write(sight, &change).await
            }
            Step::Write(change) => self.write(sight, &change).await,
            // What the step was taken for is not so; the change that made it so is on its way to the cache.
            _ => Ok(Next::Rest(Action::requeue_after(std::time::Duration::from_secs(
                1,
            )))),
        }
    }

    async fn drain(&self, sight: Sight<'_>, force: bool) -> Result<Next, Error> {
        let Sight {
            ctx,
            node,
            view,
            policy,
            ..
        } = sight;
        let drainer = self.0.drainer(ctx);
        let how = if force { How::Force } else { How::Evict };
        let progress = drainer.pass(&view.name, &policy.spec.drain, how).await?;
        self.0.figures.blocked(&view.name, progress.blockers.clone());
        let left_behind = !view.ready && progress.is_overdue();
        if progress.is_drained() || left_behind {
            drainer.forget(&view.name);
            let message = if left_behind {
                "its pods had their time, and its kubelet does not say that they are gone"
            } else {
                "its pods are gone"
            };
            let change = self.with_facts(sight, |facts| machine::drained(view, facts, message));
            return match change {
                Some(change) => self.write(sight, &change).await,
                None => Ok(Next::Rest(Action::done())),
            };
        }
        let DrainProgress {
            left,
            blockers,
            next_try,
        } = progress;
        let waits_for = waits_for(left, &blockers);
        let told = self.tell(ctx, node, view, Some(&waits_for)).await?;
        if told && !blockers.is_empty() {
            let message = format!("node {}: {waits_for}", view.name);
            ctx.recorder().warning(node, "DrainBlocked", message);
        }
        let deadline = view.state().and_then(|state| state.deadline);
        let deadline = deadline.filter(|deadline| *deadline > self.0.clock.now());
        let wait = deadline.map_or(next_try, |deadline| next_try.min(self.0.wait(deadline)));
        Ok(Next::Rest(Action::requeue_after(wait)))
    }

    async fn verify(&self, sight: Sight<'_>) -> Result<Next, Error> {
        let view = sight.view;
        let Some(state) = view.state() else {
            return Ok(Next::Rest(Action::done()));
        };
        let pods = sight.ctx.lister::<Pod>()?;
        let path = "spec.nodeName".parse::<FieldPath>()?;
        let of_node = pods.cache().index(IndexBy::field(path));
        let pods = pods.try_list(&Query::all().indexed(&of_node, &view.name))?;
        let booted = Booted {
            before: state.boot_id_before.as_deref().unwrap_or_default(),
            proved: state.since,
            checked: view.progress().and_then(|progress| progress.checked.as_deref()),
        };
        let now = self.0.clock.now();
        match after::check(sight.node, &pods, &sight.policy.spec.after, booted, now)? {
            After::Good => match self.with_facts(sight, |facts| machine::verified(view, facts)) {
                Some(change) => self.write(sight, &change).await,
                None => Ok(Next::Rest(Action::done())),
            },
            After::Waiting { why, until } => {
                self.tell(sight.ctx, sight.node, view, Some(&why)).await?;
                let until = [until, state.deadline].into_iter().flatten().min();
                Ok(Next::Rest(until.map_or_else(Action::done, |until| {
                    Action::requeue_after(self.0.wait(until))
                })))
            }
        }
    }

    /// Writes a change; if somebody was faster, the next look is at what they made of the node.
    async fn write(&self, sight: Sight<'_>, change: &Change) -> Result<Next, Error> {
        let Sight { ctx, node, view, .. } = sight;
        let patch = change.patch(view, &self.0.names);
        let changed = match ctx.writer().merge(node, &patch).await {
            Ok(changed) => changed,
            Err(error) if error.is_conflict() => {
                let live = Api::<Node>::all(ctx.client().clone()).get_opt(&view.name).await?;
                return Ok(Next::Look(live.map(Arc::new)));
            }
            Err(error) if error.is_not_found() || error.is_other_object() => return Ok(Next::Look(None)),
            Err(error) => return Err(error.into()),
        };
        let said = &change.said;
        let message = format!("node {}: {}", view.name, said.message);
        if said.warning {
            ctx.recorder().warning(&changed, said.reason, message.as_str());
        } else {
            ctx.recorder().normal(&changed, said.reason, message.as_str());
        }
        info!(node = view.name, reason = said.reason, "{message}");
        if let Some(state) = view.state() {
            let next = change.state.as_ref().map(|state| state.phase);
            if next != Some(state.phase) {
                let took = self.0.clock.now().duration_since(state.since);
                self.0.figures.left(state.phase, took.unsigned_abs());
                self.0.figures.blocked(&view.name, Vec::new());
            }
        }
        Ok(Next::Look(Some(Arc::new(changed))))
    }

    /// Brings the node's conditions in line with its annotations; whether they were not.
    async fn tell(
        &self,
        ctx: &Context,
        node: &Node,
        view: &NodeView,
        waits_for: Option<&str>,
    ) -> Result<bool, Error> {
        let Some(wanted) = conditions::wanted(node, view, waits_for, self.0.clock.now()) else {
            return Ok(false);
        };
        match ctx.writer().apply_status(&wanted).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() || error.is_other_object() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// When the window that is open now opened, and when it closes.
fn window(policy: &RebootPolicy, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
    let windows = Windows::parse(&policy.spec.windows, &policy.spec.exclusions);
    let windows = windows.unwrap_or_default();
    (windows.open_since(now), windows.closes_after(now))
}

/// What a drain waits for, in a sentence.
fn waits_for(left: usize, blockers: &[Blocker]) -> String {
    let mut text = format!("{left} pods have to go");
    let named: Vec<_> = blockers.iter().take(NAMED).map(ToString::to_string).collect();
    if !named.is_empty() {
        text = format!("{text}; in the way: {}", named.join("; "));
    }
    match blockers.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

/// The policy for nodes that no other one selects: it is there from the first request on.
async fn create_default(ctx: &Context) -> Result<(), Error> {
    let resource = ApiResource::erase::<RebootPolicy>(&());
    let policy = DynamicObject::new(DEFAULT_POLICY, &resource).data(json!({ "spec": {} }));
    match ctx.writer().of(resource).create(&policy).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => Err(error.into()),
    }
}
