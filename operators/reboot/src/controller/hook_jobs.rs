//! Runs a hook: finds its Job, or creates it from the CronJob.

use windlass::{
    api::status::StatusClass,
    k8s_openapi::api::batch::v1::{CronJob, Job},
    kube::{self, Api},
    prelude::*,
};

use super::SharedState;
use crate::hooks::{HookRun, HookStatus};

/// Returns the state of the hook's Job, and creates the Job if there is none.
///
/// Its name is that of the grant: after a crash, and if two controllers do this at once, there is still one Job. Missing
/// rights are a failed hook and not an error to retry: hooks are optional, and so are the rights for them.
pub(super) async fn run(
    shared: &SharedState,
    ctx: &Context,
    run: HookRun<'_>,
    cron_job: &str,
) -> Result<HookStatus, Error> {
    let namespace = &shared.hook_namespace;
    let jobs = Api::<Job>::namespaced(ctx.client().clone(), namespace);
    let name = run.job_name();
    match jobs.get_opt(&name).await {
        Ok(Some(job)) => return Ok(HookStatus::of(&job)),
        Ok(None) => {}
        Err(error) if is_forbidden(&error) => return Ok(no_rights(namespace)),
        Err(error) => return Err(error.into()),
    }
    let templates = Api::<CronJob>::namespaced(ctx.client().clone(), namespace);
    let template = match templates.get_opt(cron_job).await {
        Ok(template) => template,
        Err(error) if is_forbidden(&error) => return Ok(no_rights(namespace)),
        Err(error) => return Err(error.into()),
    };
    let Some(mut job) = template.and_then(|template| run.job(&template)) else {
        return Ok(HookStatus::Failed(format!(
            "there is no CronJob {cron_job} in namespace {namespace}"
        )));
    };
    job.metadata.namespace = Some(namespace.clone());
    match ctx.writer().create(&job).await {
        Ok(_) => tracing::info!(node = run.node, job = name, "started the hook {}", run.hook),
        Err(error) if error.is_already_exists() => {}
        Err(error)
            if matches!(
                error.class(),
                Some(StatusClass::Forbidden | StatusClass::NamespaceTerminating)
            ) =>
        {
            return Ok(HookStatus::Failed(format!(
                "the server refused its Job in namespace {namespace}: {}",
                error.status().map_or("", |status| &status.message)
            )));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(HookStatus::Running)
}

fn is_forbidden(error: &kube::Error) -> bool {
    StatusClass::of_error(error) == Some(StatusClass::Forbidden)
}

fn no_rights(namespace: &str) -> HookStatus {
    HookStatus::Failed(format!(
        "the controller may not run hooks in namespace {namespace}: apply operators/reboot/hooks"
    ))
}
