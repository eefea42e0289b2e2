//! Carries out the actions of [`state_machine::agent::step`](crate::state_machine::agent::step).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use windlass::{
    k8s_openapi::api::core::v1::Node,
    prelude::{Action, Context, Error, Reconciler, Request, ResourceExt, json},
    runtime::{Clock, WriteError},
};

use super::{
    command_line::CommandLine,
    reboot_method::{RebootMethod, is_simulated},
};
use crate::{
    state::{AnnotationKeys, Progress, to_annotation, truncate},
    state_machine::{
        NodeView,
        agent::{AgentStep, FIRST_RETRY_DELAY, pending_check, step},
    },
};

/// Timeout of a health check, and the delay between two of them.
const CHECK_TIMEOUT: Duration = Duration::from_mins(1);
const CHECK_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The agent of a node, or of all simulated nodes.
pub(super) struct Agent {
    pub(super) keys: AnnotationKeys,
    pub(super) boot_id_source: BootIdSource,
    pub(super) reboot_method: RebootMethod,
    /// The health check that has to exit with 0 after a reboot.
    pub(super) check: Option<CommandLine>,
    pub(super) clock: Clock,
    /// By node, why the last attempt failed to start. Only for messages.
    pub(super) last_errors: Mutex<BTreeMap<String, String>>,
}

/// Where an agent gets the boot ID from.
pub(super) enum BootIdSource {
    /// The machine it runs on.
    Machine(String),
    /// The node's status, for an agent that does not run on the node. While the node is not Ready, it may be off.
    NodeStatus,
}

impl Reconciler for Agent {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let Some(node) = ctx.lister::<Node>()?.get(&request.key) else {
            self.last_errors.lock().remove(request.key.name());
            return Ok(Action::done());
        };
        let view = NodeView::from_node(&node, &self.keys);
        let own = match &self.boot_id_source {
            BootIdSource::Machine(id) => id,
            BootIdSource::NodeStatus if is_simulated(&node) && view.is_ready && !view.boot_id.is_empty() => {
                &view.boot_id
            }
            BootIdSource::NodeStatus => return Ok(Action::done()),
        };
        let now = self.clock.now();
        match step(&view, own, now) {
            AgentStep::Wait => self.check(&node, &view, own, &ctx).await,
            AgentStep::WaitUntil(then) => Ok(Action::requeue_after(delay(now, then))),
            AgentStep::Claim(progress) => self.reboot(&node, own, &progress, &ctx).await,
            AgentStep::Prove(progress) => {
                if self.write(&node, &progress, &ctx).await? {
                    tracing::info!(node = view.name, boot_id = own, "rebooted");
                }
                Ok(Action::done()) // the write triggers another reconcile
            }
            AgentStep::GiveUp(mut progress) => {
                if let (Some(failed), Some(why)) = (
                    &mut progress.failure_reason,
                    self.last_errors.lock().get(&view.name).cloned(),
                ) {
                    failed.push_str(": ");
                    failed.push_str(&truncate(&why));
                }
                if self.write(&node, &progress, &ctx).await? {
                    let why = progress.failure_reason.as_deref();
                    tracing::error!(node = view.name, why, "gave up");
                }
                Ok(Action::done())
            }
        }
    }
}

impl Agent {
    /// Runs the health check if one is due, and writes the result when it passes.
    async fn check(
        &self,
        node: &Arc<Node>,
        view: &NodeView,
        own: &str,
        ctx: &Context,
    ) -> Result<Action, Error> {
        let Some((command, passed)) = self.check.as_ref().zip(pending_check(view, own)) else {
            return Ok(Action::done());
        };
        let wrong = match command.run(CHECK_TIMEOUT).await {
            Ok((status, _)) if status.success() => {
                if self.write(node, &passed, ctx).await? {
                    tracing::info!(node = view.name, %command, "health check passed");
                }
                return Ok(Action::done());
            }
            Ok((status, output)) => format!("`{command}` failed with {status}: {output}"),
            Err(error) => error,
        };
        tracing::warn!(node = view.name, wrong, "health check failed; will retry");
        Ok(Action::requeue_after(CHECK_RETRY_DELAY))
    }

    /// Claims the reboot with a conditional write, and reboots. After a conflict nothing happens.
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
        tracing::info!(node = name, boot_id = own, attempt, "rebooting");
        let mut complaints = BTreeMap::new();
        if let Err(error) = self.reboot_method.reboot(node, own, ctx.writer()).await {
            tracing::warn!(node = name, attempt, %error, "cannot reboot the node");
            complaints.insert(name.clone(), error.to_string());
        }
        let mut known = self.last_errors.lock();
        known.remove(&name);
        known.append(&mut complaints);
        // If this process survives, the progress on the node tells when to retry.
        Ok(Action::requeue_after(FIRST_RETRY_DELAY))
    }

    /// Writes the progress, conditional on the node's resource version. Returns false on a conflict; the change
    /// triggers another reconcile.
    async fn write(&self, node: &Arc<Node>, progress: &Progress, ctx: &Context) -> Result<bool, Error> {
        let patch = json!({"metadata": {
            "resourceVersion": node.metadata.resource_version,
            "annotations": {&self.keys.reboot_in_progress: to_annotation(progress)},
        }});
        let changed =
            |error: &WriteError| error.is_conflict() || error.is_not_found() || error.is_uid_mismatch();
        match ctx.writer().merge_patch(&**node, &patch).await {
            Ok(_) => Ok(true),
            Err(error) if changed(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn delay(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}
