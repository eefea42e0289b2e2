//! Reconciles one node.

use std::sync::Arc;

use jiff::Timestamp;
use tracing::info;
use windlass::{
    api::conditions::is_true,
    cache::{CachedObject, FieldPath, Indexer},
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{
        Api,
        core::{ApiResource, DynamicObject},
    },
    prelude::*,
};

use super::{SharedState, conditions, get_live_policy, halt_reason, hook_jobs, rules};
use crate::{
    api::{DEFAULT_POLICY, RebootPolicy, RebootPolicySpec},
    drain::{Blocker, DrainMode, DrainProgress},
    health_check::{self, HealthStatus, RebootProof},
    hooks::{Hook, HookRun, HookStatus},
    metrics::Outcome,
    policy_set::PolicySet,
    progress, slots,
    state::{Phase, State, truncate},
    state_machine::{self, NodeChange, NodeView, Step, StepInput},
    window::Windows,
};

/// More steps than a reboot has: the bound of the reconcile loop.
const MAX_STEPS: usize = 16;

/// How often the Job of a hook is looked at: Jobs are not watched, so that the controller needs no right to list them.
const HOOK_POLL_DELAY: std::time::Duration = std::time::Duration::from_secs(5);

/// How long the controller may be down without a finished hook running again.
const MIN_KEEP_FINISHED: std::time::Duration = std::time::Duration::from_hours(1);

/// Maximum number of blockers in a message.
const MAX_NAMED_BLOCKERS: usize = 3;

/// The parts of a pod that draining and health checks depend on: whether it terminates, its phase, and whether it is
/// ready.
pub(super) fn pod_fingerprint(pod: &CachedObject<Pod>) -> Option<(bool, Option<String>, bool)> {
    let pod = pod.object().ok()?;
    let status = pod.status.as_ref();
    Some((
        pod.metadata.deletion_timestamp.is_some(),
        status.and_then(|status| status.phase.clone()),
        is_true(&*pod, "Ready"),
    ))
}

pub(super) struct NodeReconciler(pub(super) Arc<SharedState>);

impl Reconciler for NodeReconciler {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let mut node = ctx.lister::<Node>()?.try_get(&request.key)?;
        for _ in 0..MAX_STEPS {
            let Some(current) = node else {
                self.0.metrics.set_blockers(request.key.name(), Vec::new());
                return Ok(Action::done());
            };
            match self.step(&ctx, &current).await? {
                NextStep::Continue(changed) => node = changed,
                NextStep::Stop(action) => return Ok(action),
            }
        }
        Err(format!("node {} did not settle within {MAX_STEPS} steps", request.key).into())
    }
}

/// The input of one step.
#[derive(Clone, Copy)]
struct StepContext<'a> {
    ctx: &'a Context,
    node: &'a Node,
    /// The parsed node.
    view: &'a NodeView,
    policy: &'a RebootPolicy,
    /// How many nodes of the policy have failed.
    failed: usize,
}

/// What follows a step.
enum NextStep {
    /// Another step with the current node; `None` if it was deleted.
    Continue(Option<Arc<Node>>),
    Stop(Action),
}

impl NodeReconciler {
    async fn step(&self, ctx: &Context, node: &Arc<Node>) -> Result<NextStep, Error> {
        let view = self.0.view(node);
        if view.is_idle() && view.command.is_none() && view.progress.is_none() {
            self.update_conditions(ctx, node, &view, "", None).await?;
            return Ok(NextStep::Stop(Action::done()));
        }
        if let Some(Err(unreadable)) = &view.state {
            ctx.recorder()
                .lasting()
                .warning(&**node, "InvalidState", unreadable.to_string());
        }
        let policies = PolicySet::new(ctx.lister::<RebootPolicy>()?.try_list(&Query::all())?);
        let policy = match policies.policy_for(&view) {
            Some(policy) => Arc::clone(policy),
            None => {
                if view.request.is_some() {
                    create_default(ctx).await?;
                }
                Arc::new(RebootPolicy::new(DEFAULT_POLICY, RebootPolicySpec::default()))
            }
        };
        let step = StepContext {
            ctx,
            node,
            view: &view,
            policy: &policy,
            failed: self.failed(ctx, &policies, &policy)?,
        };
        match self.decide(step) {
            Step::Wait => {
                self.update_conditions(ctx, node, &view, &policy.name_any(), None)
                    .await?;
                Ok(NextStep::Stop(Action::done()))
            }
            Step::WaitUntil(until) => {
                self.update_conditions(ctx, node, &view, &policy.name_any(), None)
                    .await?;
                Ok(NextStep::Stop(Action::requeue_after(self.0.delay_until(until))))
            }
            Step::Write(change) => self.write(step, &change).await,
            Step::WriteIfSlotHeld(_) => self.confirm(step).await,
            Step::Drain { force } => self.drain(step, force).await,
            Step::Prepare => self.prepare(step).await,
            Step::Verify => self.verify(step).await,
            Step::Expire => self.expire(step).await,
        }
    }

    /// Counts the failed nodes of the policy.
    fn failed(&self, ctx: &Context, policies: &PolicySet, policy: &RebootPolicy) -> Result<usize, Error> {
        let nodes = ctx.lister::<Node>()?.try_list(&Query::all())?;
        let failed = nodes.iter().filter(|node| {
            let view = self.0.view(node);
            view.phase() == Some(Phase::Failed)
                && policies
                    .policy_for(&view)
                    .is_some_and(|has| has.name_any() == policy.name_any())
        });
        Ok(failed.count())
    }

    fn decide(&self, step: StepContext<'_>) -> Step {
        self.with_input(step, |input| state_machine::step(step.view, input))
    }

    fn with_input<T>(&self, step: StepContext<'_>, then: impl FnOnce(&StepInput<'_>) -> T) -> T {
        let (policy, now) = (step.policy, self.0.clock.now());
        let status = policy.status.as_ref();
        let granted = status.map(|status| status.granted.as_slice()).unwrap_or_default();
        then(&StepInput {
            now,
            policy: &policy.name_any(),
            rules: &rules(policy),
            slot: slots::slot(granted, step.view).map(|grant| grant.epoch),
            halt: halt_reason(policy, step.failed, now),
        })
    }

    /// Decides again with the live policy: slot, pause, window.
    async fn confirm(&self, step: StepContext<'_>) -> Result<NextStep, Error> {
        let name = step.policy.name_any();
        let policy = get_live_policy(step.ctx, &name).await?;
        let policy = policy.unwrap_or_else(|| RebootPolicy::new(&name, RebootPolicySpec::default()));
        let step = StepContext {
            policy: &policy,
            ..step
        };
        match self.decide(step) {
            Step::WriteIfSlotHeld(mut change) => {
                if let Some(command) = &mut change.arm {
                    (command.not_before, command.not_after) = current_window(&policy, self.0.clock.now());
                }
                self.write(step, &change).await
            }
            Step::Write(change) => self.write(step, &change).await,
            // The step no longer applies; the change that caused this is about to reach the cache.
            _ => Ok(NextStep::Stop(Action::requeue_after(
                std::time::Duration::from_secs(1),
            ))),
        }
    }

    /// Runs the hook before the drain.
    async fn prepare(&self, step: StepContext<'_>) -> Result<NextStep, Error> {
        let (view, spec) = (step.view, &step.policy.spec.hooks);
        let Some(cron_job) = &spec.before else {
            return Ok(NextStep::Stop(Action::done()));
        };
        let change = match self.run_hook(step, Hook::Before, cron_job).await? {
            HookStatus::Running => return self.wait_for_hook(step, Hook::Before, cron_job).await,
            HookStatus::Succeeded => self.with_input(step, |input| state_machine::prepared(view, input)),
            HookStatus::Failed(why) => {
                self.with_input(step, |input| state_machine::hook_failed(view, input, &why))
            }
        };
        match change {
            Some(change) => self.write(step, &change).await,
            None => Ok(NextStep::Stop(Action::done())),
        }
    }

    async fn run_hook(&self, step: StepContext<'_>, hook: Hook, cron_job: &str) -> Result<HookStatus, Error> {
        let (view, policy) = (step.view, step.policy);
        let run = HookRun {
            hook,
            policy: &policy.name_any(),
            policy_uid: policy.metadata.uid.as_deref().unwrap_or_default(),
            node: &view.name,
            node_uid: &view.uid,
            boot_id: &view.boot_id,
            epoch: view.state().map_or(0, |state| state.epoch),
            keep_finished: keep_finished(&policy.spec),
        };
        hook_jobs::run(&self.0, step.ctx, run, cron_job).await
    }

    async fn wait_for_hook(
        &self,
        step: StepContext<'_>,
        hook: Hook,
        cron_job: &str,
    ) -> Result<NextStep, Error> {
        let deadline = step.view.state().and_then(|state| state.deadline);
        let limit = deadline.map(progress::to_the_second);
        let limit = limit.map_or_else(String::new, |end| format!("; it has until {end}"));
        let why = format!("waiting for its hook {hook} (CronJob {cron_job}){limit}");
        self.update_conditions(
            step.ctx,
            step.node,
            step.view,
            &step.policy.name_any(),
            Some(&why),
        )
        .await?;
        Ok(NextStep::Stop(Action::requeue_after(HOOK_POLL_DELAY)))
    }

    async fn drain(&self, step: StepContext<'_>, force: bool) -> Result<NextStep, Error> {
        let StepContext {
            ctx,
            node,
            view,
            policy,
            ..
        } = step;
        let drainer = self.0.drainer(ctx);
        let how = if force { DrainMode::Force } else { DrainMode::Evict };
        let progress = drainer.pass(&view.name, &policy.spec.drain, how).await?;
        self.0.metrics.set_blockers(&view.name, progress.blockers.clone());
        let left_behind = !view.is_ready && progress.is_overdue();
        if progress.is_drained() || left_behind {
            drainer.forget(&view.name);
            let message = if left_behind {
                "its pods are past their grace period, and its kubelet does not report that they stopped"
            } else {
                "all pods are gone"
            };
            let change = self.with_input(step, |input| state_machine::drained(view, input, message));
            return match change {
                Some(change) => self.write(step, &change).await,
                None => Ok(NextStep::Stop(Action::done())),
            };
        }
        let DrainProgress {
            remaining,
            blockers,
            next_pass,
        } = progress;
        let deadline = view.state().and_then(|state| state.deadline);
        let waits_for = describe_drain(remaining, &blockers, deadline);
        let updated = self
            .update_conditions(ctx, node, view, &policy.name_any(), Some(&waits_for))
            .await?;
        if updated && !blockers.is_empty() {
            let message = format!("node {}: {waits_for}", view.name);
            ctx.recorder().warning(node, "DrainBlocked", message);
        }
        let deadline = deadline.filter(|deadline| *deadline > self.0.clock.now());
        let wait = deadline.map_or(next_pass, |deadline| next_pass.min(self.0.delay_until(deadline)));
        Ok(NextStep::Stop(Action::requeue_after(wait)))
    }

    async fn verify(&self, step: StepContext<'_>) -> Result<NextStep, Error> {
        let view = step.view;
        let Some(state) = view.state() else {
            return Ok(NextStep::Stop(Action::done()));
        };
        match self.health(step, state)? {
            HealthStatus::Healthy => {
                if let Some(cron_job) = &step.policy.spec.hooks.after {
                    let change = match self.run_hook(step, Hook::After, cron_job).await? {
                        HookStatus::Running => return self.wait_for_hook(step, Hook::After, cron_job).await,
                        HookStatus::Succeeded => None,
                        HookStatus::Failed(why) => {
                            self.with_input(step, |input| state_machine::hook_failed(view, input, &why))
                        }
                    };
                    if let Some(change) = change {
                        return self.write(step, &change).await;
                    }
                }
                match self.with_input(step, |input| state_machine::verified(view, input)) {
                    Some(change) => self.write(step, &change).await,
                    None => Ok(NextStep::Stop(Action::done())),
                }
            }
            HealthStatus::Waiting { why, until } => {
                let deadline = state.deadline.map(progress::to_the_second);
                let limit = deadline.map_or_else(String::new, |end| format!("; it has until {end}"));
                let why = format!("{why}{limit}");
                self.update_conditions(step.ctx, step.node, view, &step.policy.name_any(), Some(&why))
                    .await?;
                let until = [until, state.deadline].into_iter().flatten().min();
                Ok(NextStep::Stop(until.map_or_else(Action::done, |until| {
                    Action::requeue_after(self.0.delay_until(until))
                })))
            }
        }
    }

    /// Checks whether the node is healthy now.
    fn health(&self, step: StepContext<'_>, state: &State) -> Result<HealthStatus, Error> {
        let view = step.view;
        let pods = step.ctx.lister::<Pod>()?;
        let path = "spec.nodeName".parse::<FieldPath>()?;
        let of_node = pods.cache().index(Indexer::field(path));
        let pods = pods.try_list(&Query::all().indexed(&of_node, &view.name))?;
        let booted = RebootProof {
            boot_id_before: state.boot_id_before.as_deref().unwrap_or_default(),
            proved_at: state.since,
            checked_boot_id: view
                .progress()
                .and_then(|progress| progress.checked_boot_id.as_deref()),
        };
        let (spec, now) = (&step.policy.spec.health_check, self.0.clock.now());
        Ok(health_check::check(step.node, &pods, spec, booted, now)?)
    }

    /// Fails a node whose time to become healthy is over, and says what was missing.
    async fn expire(&self, step: StepContext<'_>) -> Result<NextStep, Error> {
        let view = step.view;
        let Some(state) = view.state() else {
            return Ok(NextStep::Stop(Action::done()));
        };
        let hook = step.policy.spec.hooks.after.as_ref();
        let missing = match (self.health(step, state), hook) {
            (Ok(HealthStatus::Healthy), Some(cron_job)) => {
                format!("its hook after the reboot (CronJob {cron_job}) did not finish in time")
            }
            (Ok(HealthStatus::Waiting { why, .. }), _) => {
                format!("did not become healthy in time: {}", truncate(&why))
            }
            // It became healthy at the last moment. An error must not keep the node from failing.
            (Ok(HealthStatus::Healthy) | Err(_), _) => "did not become healthy in time".to_owned(),
        };
        match self.with_input(step, |input| state_machine::expired(view, input, &missing)) {
            Some(change) => self.write(step, &change).await,
            None => Ok(NextStep::Stop(Action::done())),
        }
    }

    /// Writes a change. On a conflict, the next step starts from the live node.
    async fn write(&self, step: StepContext<'_>, change: &NodeChange) -> Result<NextStep, Error> {
        let StepContext { ctx, node, view, .. } = step;
        let patch = change.patch(view, &self.0.keys);
        let changed = match ctx.writer().merge_patch(node, &patch).await {
            Ok(changed) => changed,
            Err(error) if error.is_conflict() => {
                let live = Api::<Node>::all(ctx.client().clone()).get_opt(&view.name).await?;
                return Ok(NextStep::Continue(live.map(Arc::new)));
            }
            Err(error) if error.is_not_found() || error.is_uid_mismatch() => {
                return Ok(NextStep::Continue(None));
            }
            Err(error) => return Err(error.into()),
        };
        let event = &change.event;
        let message = format!("node {}: {}", view.name, event.message);
        if event.is_warning {
            ctx.recorder().warning(&changed, event.reason, message.as_str());
        } else {
            ctx.recorder().normal(&changed, event.reason, message.as_str());
        }
        info!(node = view.name, reason = event.reason, "{message}");
        if let Some(state) = view.state() {
            let next = change.state.as_ref().map(|state| state.phase);
            if next != Some(state.phase) {
                let took = self.0.clock.now().duration_since(state.since);
                self.0.metrics.observe_phase(state.phase, took.unsigned_abs());
                if let Some(outcome) = Outcome::of(next, change.remove_request) {
                    self.0.metrics.count_outcome(&state.policy, outcome);
                }
                self.0.metrics.set_blockers(&view.name, Vec::new());
            }
        }
        Ok(NextStep::Continue(Some(Arc::new(changed))))
    }

    /// Updates the node's conditions from its annotations. Returns whether they changed.
    async fn update_conditions(
        &self,
        ctx: &Context,
        node: &Node,
        view: &NodeView,
        policy: &str,
        waits_for: Option<&str>,
    ) -> Result<bool, Error> {
        let now = self.0.clock.now();
        let Some(wanted) = conditions::desired_conditions(node, view, policy, waits_for, now) else {
            return Ok(false);
        };
        match ctx.writer().apply_status(&wanted).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() || error.is_uid_mismatch() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns how long the finished Job of a hook may be needed: while it is, it stands for the hook, and without it the hook
/// would run again. After an interrupted soak, the health check and `hooks.after` come once more.
fn keep_finished(spec: &RebootPolicySpec) -> std::time::Duration {
    let health_check = spec.health_check.timeout.get();
    let longest = [
        spec.hooks.timeout.get(),
        health_check,
        spec.soak.get(),
        health_check,
        MIN_KEEP_FINISHED,
    ];
    longest
        .into_iter()
        .fold(std::time::Duration::ZERO, std::time::Duration::saturating_add)
}

/// Returns when the current window opened, and when it closes.
fn current_window(policy: &RebootPolicy, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
    let windows = Windows::parse(&policy.spec.windows, &policy.spec.exclusions);
    let windows = windows.unwrap_or_default();
    (windows.open_since(now), windows.closes_after(now))
}

/// Describes what a drain is waiting for.
fn describe_drain(left: usize, blockers: &[Blocker], deadline: Option<Timestamp>) -> String {
    let pods = if left == 1 { "pod" } else { "pods" };
    let mut text = format!("{left} {pods} remaining");
    if let Some(deadline) = deadline {
        text = format!("{text}, until {}", progress::to_the_second(deadline));
    }
    let named: Vec<_> = blockers
        .iter()
        .take(MAX_NAMED_BLOCKERS)
        .map(ToString::to_string)
        .collect();
    if !named.is_empty() {
        text = format!("{text}; blocked by: {}", named.join("; "));
    }
    match blockers.len().saturating_sub(MAX_NAMED_BLOCKERS) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

/// Creates the policy for nodes that no other policy selects.
async fn create_default(ctx: &Context) -> Result<(), Error> {
    let resource = ApiResource::erase::<RebootPolicy>(&());
    let policy = DynamicObject::new(DEFAULT_POLICY, &resource).data(json!({ "spec": {} }));
    match ctx.writer().dynamic(resource).create(&policy).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => Err(error.into()),
    }
}
