//! Hooks: one Job per grant, and what its end means for the node.

use serde_json::json;
use windlass::{
    k8s_openapi::api::batch::v1::{CronJob, Job},
    kube::api::{ListParams, Patch, PatchParams, PostParams},
    prelude::*,
};
use windlass_reboot::{Arguments, state::Phase};
use windlass_suite::{Context as Case, ManifestRoles, RunningManager};

use crate::controller::{
    fleet::{Fleet, controllers_with},
    roll::{at_a_time, status},
};

/// Creates a suspended CronJob, the template of a hook.
pub(crate) async fn create_template(case: &Case, name: &str) -> anyhow::Result<()> {
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "main", "image": "hook" }] });
    let template = json!({
        "metadata": { "name": name },
        "spec": { "schedule": "@yearly", "suspend": true, "jobTemplate": { "spec": { "template": { "spec": pod } } } },
    });
    case.api::<CronJob>()
        .create(&PostParams::default(), &from_value(template)?)
        .await?;
    Ok(())
}

/// Ends each Job with this condition: these clusters have no job controller.
pub(crate) fn finish_jobs(case: &Case, condition: &'static str) -> RunningManager {
    let reconcile = move |request: Request, ctx: Context| async move {
        let Some(job) = ctx.lister::<Job>()?.get(&request.key) else {
            return Ok(Action::done());
        };
        if job.status.iter().any(|status| status.conditions.is_some()) {
            return Ok(Action::done());
        }
        let now = ctx.now().to_string();
        let ended = |kind: &str| {
            json!({
                "type": kind, "status": "True", "reason": "Test", "message": "it says so",
                "lastProbeTime": now, "lastTransitionTime": now,
            })
        };
        // The server wants the condition that precedes the end, and the matching times.
        let status = match condition {
            "Complete" => json!({
                "startTime": now, "completionTime": now, "succeeded": 1,
                "conditions": [ended("SuccessCriteriaMet"), ended("Complete")],
            }),
            _ => json!({ "startTime": now, "conditions": [ended("FailureTarget"), ended("Failed")] }),
        };
        let jobs = windlass::kube::Api::<Job>::namespaced(
            ctx.client().clone(),
            request.key.namespace().unwrap_or_default(),
        );
        let patch = Patch::Merge(json!({ "status": status }));
        jobs.patch_status(request.key.name(), &PatchParams::default(), &patch)
            .await?;
        Ok::<_, Error>(Action::done())
    };
    let controller = Controller::<Job>::new("jobs").reconcile(reconcile);
    let manager = Manager::new(case.client()).namespaces([case.namespace()]);
    RunningManager::start(manager.controller(controller))
}

/// A fleet whose policy has these hooks, with a running controller.
async fn fleet_with_hooks(case: &Case, hooks: serde_json::Value) -> anyhow::Result<(Fleet, RunningManager)> {
    let mut spec = at_a_time(1);
    spec["hooks"] = hooks;
    spec["backoff"] = "1s".into();
    let fleet = Fleet::idle(case, 1, spec).await?;
    let arguments = Arguments {
        hook_namespace: case.namespace().to_owned(),
        ..Arguments::default()
    };
    let manager = Manager::new(fleet.proxy.client());
    let running = RunningManager::start(controllers_with(manager, fleet.clock, &arguments));
    Ok((fleet, running))
}

/// The names of the hooks' Jobs, without the digest.
async fn jobs(case: &Case) -> anyhow::Result<Vec<String>> {
    let jobs = case.api::<Job>().list(&ListParams::default()).await?;
    let names = jobs.items.iter().map(ResourceExt::name_any);
    let mut names: Vec<_> = names
        .map(|name| {
            name.rsplit_once('-')
                .map_or_else(String::new, |(name, _)| name.to_owned())
        })
        .collect();
    names.sort();
    Ok(names)
}

pub(crate) async fn hooks_run_once_before_the_drain_and_after_the_reboot(case: Case) -> anyhow::Result<()> {
    let hooks = json!({ "before": "noout", "after": "unset" });
    let (fleet, running) = fleet_with_hooks(&case, hooks).await?;
    for name in ["noout", "unset"] {
        create_template(&case, name).await?;
    }
    let node = fleet.name(0);
    fleet.request(&node).await?;
    // The node is cordoned and not drained while the hook runs.
    let says = |policy: &windlass_reboot::RebootPolicy| {
        let message = status(policy).message.unwrap_or_default();
        message.contains(&format!(
            "{node}: Cordoned (waiting for its hook before (CronJob noout); it has until "
        ))
    };
    fleet.wait_for_policy(says).await?;
    assert_eq!(jobs(&case).await?, ["reboot-before-1"]);
    // Another controller process finds the Job.
    running.kill().await;
    let arguments = Arguments {
        hook_namespace: case.namespace().to_owned(),
        ..Arguments::default()
    };
    let manager = Manager::new(fleet.proxy.client());
    let running = RunningManager::start(controllers_with(manager, fleet.clock, &arguments));
    fleet.settle().await;
    assert_eq!(jobs(&case).await?, ["reboot-before-1"]);
    let finished = finish_jobs(&case, "Complete");
    fleet.wait_until_idle(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    assert_eq!(jobs(&case).await?, ["reboot-after-1", "reboot-before-1"]);
    let all = case.api::<Job>().list(&ListParams::default()).await?;
    let environment = json!(all.items)[0]["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    assert_eq!(environment[0], json!({ "name": "NODE_NAME", "value": node }));
    finished.stop().await?;
    running.stop().await?;
    fleet.end().await
}

pub(crate) async fn failed_hook_before_the_drain_aborts_the_attempt(case: Case) -> anyhow::Result<()> {
    let (fleet, running) = fleet_with_hooks(&case, json!({ "before": "noout" })).await?;
    let node = fleet.name(0);
    fleet.request(&node).await?;
    let reason = |view: &windlass_reboot::state_machine::NodeView| {
        let state = view.state().filter(|state| state.phase == Phase::Aborted);
        state.and_then(|state| state.reason.clone()).unwrap_or_default()
    };
    let missing = format!("there is no CronJob noout in namespace {}", case.namespace());
    fleet
        .wait_for_node(&node, |view| reason(view).contains(&missing))
        .await?;
    create_template(&case, "noout").await?;
    let finished = finish_jobs(&case, "Failed");
    let view = fleet
        .wait_for_node(&node, |view| {
            reason(view).contains("its hook before the drain failed: it says so")
        })
        .await?;
    assert!(!view.unschedulable, "it is restored");
    assert_eq!(fleet.boots(&node), 0);
    finished.stop().await?;
    running.stop().await?;
    fleet.end().await
}

pub(crate) async fn failed_hook_after_the_reboot_fails_the_node(case: Case) -> anyhow::Result<()> {
    let (fleet, running) = fleet_with_hooks(&case, json!({ "after": "unset" })).await?;
    create_template(&case, "unset").await?;
    let finished = finish_jobs(&case, "Failed");
    let node = fleet.name(0);
    fleet.request(&node).await?;
    let view = fleet.wait_for_phase(&node, Phase::Failed).await?;
    let reason = view
        .state()
        .and_then(|state| state.reason.clone())
        .unwrap_or_default();
    assert!(
        reason.contains("its hook after the reboot failed: it says so"),
        "{reason}"
    );
    assert!(view.unschedulable, "it stays cordoned");
    assert_eq!(fleet.boots(&node), 1);
    finished.stop().await?;
    // Someone repairs the hook and starts over: the failed Job is not taken for that of the next boot.
    let finished = finish_jobs(&case, "Complete");
    let state = windlass_reboot::state::AnnotationKeys::default().state;
    fleet.annotate(&node, json!({ state: null })).await?;
    fleet.wait_until_idle(&node).await?;
    assert_eq!((fleet.boots(&node), jobs(&case).await?.len()), (2, 2));
    finished.stop().await?;
    running.stop().await?;
    fleet.end().await
}

/// The health check has passed by then: its failure is not the cause.
pub(crate) async fn unfinished_hook_after_the_reboot_is_named_as_the_cause(case: Case) -> anyhow::Result<()> {
    let (fleet, running) = fleet_with_hooks(&case, json!({ "after": "unset" })).await?;
    fleet
        .change_policy(json!({ "healthCheck": { "minReadySeconds": 0, "timeout": "30s" } }))
        .await?;
    create_template(&case, "unset").await?;
    let node = fleet.name(0);
    fleet.request(&node).await?;
    let view = fleet.wait_for_phase(&node, Phase::Failed).await?;
    let reason = view.state().and_then(|state| state.reason.clone());
    assert_eq!(
        reason.as_deref(),
        Some("it rebooted, but its hook after the reboot (CronJob unset) did not finish in time")
    );
    assert_eq!(jobs(&case).await?, ["reboot-after-1"]);
    running.stop().await?;
    fleet.end().await
}

/// The default installation has no rights for hooks.
pub(crate) async fn hook_without_rights_aborts_the_attempt_and_names_the_fix(
    case: Case,
) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["hooks"] = json!({ "before": "noout" });
    let fleet = Fleet::idle(&case, 1, spec).await?;
    create_template(&case, "noout").await?;
    let rights = ManifestRoles::parse(include_str!("../../rbac.yaml"))?;
    let arguments = Arguments {
        hook_namespace: case.namespace().to_owned(),
        ..Arguments::default()
    };
    let manager = Manager::new(rights.client(&case).await?);
    let running = RunningManager::start(controllers_with(manager, fleet.clock, &arguments));
    let node = fleet.name(0);
    fleet.request(&node).await?;
    let view = fleet.wait_for_phase(&node, Phase::Aborted).await?;
    let reason = view.state().and_then(|state| state.reason.clone());
    let reason = reason.unwrap_or_default();
    assert!(reason.contains("apply operators/reboot/hooks"), "{reason}");
    assert_eq!(jobs(&case).await?, [""; 0]);
    running.stop().await?;
    fleet.end().await
}
