//! Carries out what [`machine::agent::step`](crate::machine::agent::step) says.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use windlass::{
    k8s_openapi::api::core::v1::Node,
    prelude::{Action, Context, Error, Reconciler, Request, ResourceExt, json},
    runtime::{Clock, WriteError},
};

use super::{
    how::{How, is_simulated},
    words::Words,
};
use crate::{
    machine::{
        NodeView,
        agent::{AgentStep, PATIENCE, step, unchecked},
    },
    state::{Names, Progress, clip, text},
};

/// How long a check may take, and how long after it the next one is.
const CHECK_PATIENCE: Duration = Duration::from_mins(1);
const CHECK_AGAIN: Duration = Duration::from_secs(10);

/// The agent of a node, or of all simulated ones.
pub(super) struct Agent {
    pub(super) names: Names,
    pub(super) boot: Boot,
    pub(super) how: How,
    /// What has to end with 0 after a reboot.
    pub(super) check: Option<Words>,
    pub(super) clock: Clock,
    /// By node, why the last attempt did not even begin. For people alone: nothing is decided by it.
    pub(super) complaints: Mutex<BTreeMap<String, String>>,
}

/// Where an agent knows its boot from.
pub(super) enum Boot {
    /// From the machine.
    Own(String),
    /// From the node's status, for an agent that is not on the machine. While the node is not ready the machine may be off,
    /// and whatever runs on it is, too.
    Reported,
}

impl Reconciler for Agent {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let Some(node) = ctx.lister::<Node>()?.get(&request.key) else {
            self.complaints.lock().remove(request.key.name());
            return Ok(Action::done());
        };
        let view = NodeView::of(&node, &self.names);
        let own = match &self.boot {
            Boot::Own(id) => id,
            Boot::Reported if is_simulated(&node) && view.ready && !view.boot_id.is_empty() => &view.boot_id,
            Boot::Reported => return Ok(Action::done()),
        };
        let now = self.clock.now();
        match step(&view, own, now) {
            AgentStep::Rest => self.check(&node, &view, own, &ctx).await,
            AgentStep::Until(then) => Ok(Action::requeue_after(between(now, then))),
            AgentStep::Claim(progress) => self.reboot(&node, own, &progress, &ctx).await,
            AgentStep::Prove(progress) => {
                if self.write(&node, &progress, &ctx).await? {
                    tracing::info!(node = view.name, boot_id = own, "rebooted");
                }
                Ok(Action::done()) // that it is proved comes back, and is looked at
            }
            AgentStep::GiveUp(mut progress) => {
                if let (Some(failed), Some(why)) = (
                    &mut progress.failed,
                    self.complaints.lock().get(&view.name).cloned(),
                ) {
                    failed.push_str(": ");
                    failed.push_str(&clip(&why));
                }
                if self.write(&node, &progress, &ctx).await? {
                    let why = progress.failed.as_deref();
                    tracing::error!(node = view.name, why, "gave up");
                }
                Ok(Action::done())
            }
        }
    }
}

impl Agent {
    /// Runs its own check if there is one that has not passed since the reboot, and says when it has.
    async fn check(
        &self,
        node: &Arc<Node>,
        view: &NodeView,
        own: &str,
        ctx: &Context,
    ) -> Result<Action, Error> {
        let Some((command, passed)) = self.check.as_ref().zip(unchecked(view, own)) else {
            return Ok(Action::done());
        };
        let wrong = match command.run(CHECK_PATIENCE).await {
            Ok((status, _)) if status.success() => {
                if self.write(node, &passed, ctx).await? {
                    tracing::info!(node = view.name, %command, "the check has passed");
                }
                return Ok(Action::done());
            }
            Ok((status, said)) => format!("`{command}` ended with {status}: {said}"),
            Err(error) => error,
        };
        tracing::warn!(node = view.name, wrong, "the check has not passed yet");
        Ok(Action::requeue_after(CHECK_AGAIN))
    }

    /// Says that it is about to reboot, and does. Whoever was faster with the node wins: then nothing happens here.
    async fn reboot(
        &self,
        node: &Arc<Node>,
        own: &str,
        progress: &Progress,
        ctx: &Context,
    ) -> Result<Action, Error> {
        if !self.write(node, progress, ctx).await? {
            return Ok(Action::done());
        }
        let (name, attempt) = (node.name_any(), progress.attempt);
        tracing::info!(node = name, boot_id = own, attempt, "reboots");
        let mut complaints = BTreeMap::new();
        if let Err(error) = self.how.reboot(node, own, ctx.writer()).await {
            tracing::warn!(node = name, attempt, %error, "the machine does not reboot");
            complaints.insert(name.clone(), error.to_string());
        }
        let mut known = self.complaints.lock();
        known.remove(&name);
        known.append(&mut complaints);
        // What stands on the node says when to try again, if this process is still there.
        Ok(Action::requeue_after(PATIENCE))
    }

    /// Writes to the node if it is still the version that was looked at; false if it is not, which is told when it comes.
    async fn write(&self, node: &Arc<Node>, progress: &Progress, ctx: &Context) -> Result<bool, Error> {
        let patch = json!({"metadata": {
            "resourceVersion": node.metadata.resource_version,
            "annotations": {&self.names.in_progress: text(progress)},
        }});
        let changed =
            |error: &WriteError| error.is_conflict() || error.is_not_found() || error.is_other_object();
        match ctx.writer().merge(&**node, &patch).await {
            Ok(_) => Ok(true),
            Err(error) if changed(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn between(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}
