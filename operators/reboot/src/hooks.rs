//! Hooks: Jobs that run before the drain and after the reboot.
//!
//! ```text
//!   CronJob (suspended: only a template) ── with NODE_NAME … ──► Job, whose name is that of the grant
//!                                                                 └─► HookStatus: running · succeeded · failed
//! ```
//!
//! The name of a Job is computed from the policy, the node, its boot and the grant. So a process that continues after a
//! crash finds the Job of its predecessor, and there is one Job per grant, boot and hook. A policy names a CronJob and contains no
//! pod template: who may write policies can run only what is in the hooks' namespace already. This module does no I/O.

use std::{fmt, time::Duration};

use windlass::{
    api_type,
    k8s_openapi::{
        api::{
            batch::v1::{CronJob, Job, JobSpec},
            core::v1::{Container, EnvVar},
        },
        apimachinery::pkg::apis::meta::v1::ObjectMeta,
    },
};

use crate::{go_duration::GoDuration, state::truncate};

/// How long a finished Job is kept, unless the template says otherwise: its log may be needed.
const KEEP_FINISHED_SECONDS: i32 = 24 * 60 * 60;

/// Jobs that run before the drain and after the reboot. Each is the name of a CronJob in the namespace of
/// `--hook-namespace`, which is used as a template.
#[api_type]
#[serde(default)]
pub struct HookSpec {
    /// Runs after the node is cordoned and before it is drained. If it fails, the attempt is aborted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 52))]
    pub before: Option<String>,
    /// Runs when the node is healthy after the reboot, before it is uncordoned, within `healthCheck.timeout`. If it
    /// fails, the node has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 52))]
    pub after: Option<String>,
    /// How long `before` may take. Default: 10m.
    pub timeout: GoDuration,
}

impl Default for HookSpec {
    fn default() -> Self {
        Self {
            before: None,
            after: None,
            timeout: GoDuration::from_mins(10),
        }
    }
}

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Before the drain.
    Before,
    /// After the reboot.
    After,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::After => "after",
        })
    }
}

/// The grant that a hook runs for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HookRun<'a> {
    pub(crate) hook: Hook,
    pub(crate) policy: &'a str,
    pub(crate) policy_uid: &'a str,
    pub(crate) node: &'a str,
    pub(crate) node_uid: &'a str,
    /// The boot in which it runs: a node that is started over by hand keeps its grant.
    pub(crate) boot_id: &'a str,
    pub(crate) epoch: u64,
    /// How long its finished Job is kept at least, whatever the template says: a Job that is gone is created again.
    pub(crate) keep_finished: Duration,
}

impl HookRun<'_> {
    /// Returns the name of its Job.
    pub(crate) fn job_name(&self) -> String {
        let Self {
            hook,
            policy_uid,
            node_uid,
            boot_id,
            epoch,
            ..
        } = self;
        let digest = fnv(&format!("{policy_uid}/{node_uid}/{boot_id}"));
        format!("reboot-{hook}-{epoch}-{digest:016x}")
    }

    /// Makes its Job from the template.
    pub(crate) fn job(&self, template: &CronJob) -> Option<Job> {
        let template = &template.spec.job_template;
        let metadata = template.metadata.clone().unwrap_or_default();
        let mut annotations = metadata.annotations.unwrap_or_default();
        annotations.insert("reboot.windlass.dev/node".to_owned(), self.node.to_owned());
        annotations.insert("reboot.windlass.dev/policy".to_owned(), self.policy.to_owned());
        let mut spec: JobSpec = template.spec.clone()?;
        let at_least = i32::try_from(self.keep_finished.as_secs()).unwrap_or(i32::MAX);
        let keep = spec.ttl_seconds_after_finished.unwrap_or(KEEP_FINISHED_SECONDS);
        spec.ttl_seconds_after_finished = Some(keep.max(at_least));
        if let Some(pod) = &mut spec.template.spec {
            let init = pod.init_containers.iter_mut().flatten();
            for container in init.chain(&mut pod.containers) {
                self.set_environment(container);
            }
        }
        Some(Job {
            metadata: ObjectMeta {
                name: Some(self.job_name()),
                labels: metadata.labels,
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
            status: None,
        })
    }

    fn set_environment(&self, container: &mut Container) {
        let variables = [
            ("NODE_NAME", self.node.to_owned()),
            ("REBOOT_POLICY", self.policy.to_owned()),
            ("REBOOT_HOOK", self.hook.to_string()),
        ];
        let all = container.env.get_or_insert_default();
        all.retain(|one| variables.iter().all(|(name, _)| one.name != *name));
        all.extend(variables.map(|(name, value)| EnvVar {
            name: name.to_owned(),
            value: Some(value),
            value_from: None,
        }));
    }
}

/// The state of a hook's Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HookStatus {
    Running,
    Succeeded,
    /// With the reason.
    Failed(String),
}

impl HookStatus {
    pub(crate) fn of(job: &Job) -> Self {
        let conditions = job
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        for condition in conditions.filter(|condition| condition.status == "True") {
            match condition.type_.as_str() {
                "Complete" => return Self::Succeeded,
                "Failed" => {
                    let why = condition.message.as_deref().or(condition.reason.as_deref());
                    return Self::Failed(truncate(why.unwrap_or("no reason was reported")));
                }
                _ => {}
            }
        }
        Self::Running
    }
}

/// FNV-1a: a name that does not change between versions. Nothing depends on its strength.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run<'a>(hook: Hook, node_uid: &'a str, boot_id: &'a str, epoch: u64) -> HookRun<'a> {
        HookRun {
            hook,
            policy: "default",
            policy_uid: "p",
            node: "n1",
            node_uid,
            boot_id,
            epoch,
            keep_finished: Duration::from_hours(1),
        }
    }

    #[test]
    fn job_name_is_stable_and_unique_for_each_grant_boot_and_hook() {
        let name = run(Hook::Before, "u", "b", 7).job_name();
        assert_eq!(name, "reboot-before-7-877271489a6ac1e6");
        for other in [
            run(Hook::After, "u", "b", 7),
            run(Hook::Before, "v", "b", 7),
            run(Hook::Before, "u", "c", 7),
            run(Hook::Before, "u", "b", 8),
        ] {
            assert_ne!(name, other.job_name());
        }
        let longest = run(Hook::Before, "u", "b", u64::MAX).job_name();
        assert!(longest.len() <= 63, "{longest}");
    }

    #[test]
    fn job_is_the_template_with_the_node_in_its_environment() {
        let template = json!({
            "metadata": { "name": "noout" },
            "spec": { "schedule": "@yearly", "suspend": true, "jobTemplate": {
                "metadata": { "labels": { "app": "hook" } },
                "spec": { "backoffLimit": 1, "template": { "spec": {
                    "restartPolicy": "Never",
                    "initContainers": [{ "name": "first" }],
                    "containers": [{ "name": "main", "env": [
                        { "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
                        { "name": "OTHER", "value": "x" },
                    ] }],
                } } },
            } },
        });
        let template: CronJob = serde_json::from_value(template).expect("a CronJob");
        let job = run(Hook::After, "u", "b", 7).job(&template).expect("a Job");
        let job = serde_json::to_value(job).expect("JSON");
        assert_eq!(job["metadata"]["labels"], json!({ "app": "hook" }));
        assert_eq!(job["metadata"]["annotations"]["reboot.windlass.dev/node"], "n1");
        assert_eq!(job["spec"]["backoffLimit"], 1);
        assert_eq!(job["spec"]["ttlSecondsAfterFinished"], 86400);
        let ours = [
            ("NODE_NAME", "n1"),
            ("REBOOT_POLICY", "default"),
            ("REBOOT_HOOK", "after"),
        ];
        let ours = ours.map(|(name, value)| json!({ "name": name, "value": value }));
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["initContainers"][0]["env"], json!(ours));
        let mut all = vec![json!({ "name": "OTHER", "value": "x" })];
        all.extend(ours);
        assert_eq!(pod["containers"][0]["env"], json!(all));
    }

    /// A Job that is deleted while its grant lasts would be created again.
    #[test]
    fn finished_job_is_kept_for_as_long_as_its_grant() {
        for (ttl, kept) in [
            (json!(0), 3600),
            (json!(3599), 3600),
            (json!(7200), 7200),
            (json!(null), 86400),
        ] {
            let template = json!({ "spec": { "schedule": "@yearly", "jobTemplate": { "spec": {
                "ttlSecondsAfterFinished": ttl, "template": {},
            } } } });
            let template: CronJob = serde_json::from_value(template).expect("a CronJob");
            let job = run(Hook::After, "u", "b", 7).job(&template).expect("a Job");
            let seconds = job.spec.and_then(|spec| spec.ttl_seconds_after_finished);
            assert_eq!(seconds, Some(kept), "{ttl}");
        }
    }

    #[test]
    fn only_a_true_condition_ends_a_hook() {
        for (conditions, status) in [
            (json!([]), HookStatus::Running),
            (
                json!([{ "type": "Complete", "status": "False" }]),
                HookStatus::Running,
            ),
            (
                json!([{ "type": "Suspended", "status": "True" }]),
                HookStatus::Running,
            ),
            (
                json!([{ "type": "Complete", "status": "True" }]),
                HookStatus::Succeeded,
            ),
            (
                json!([{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }]),
                HookStatus::Failed("BackoffLimitExceeded".to_owned()),
            ),
        ] {
            let job = json!({ "metadata": { "name": "x" }, "status": { "conditions": conditions } });
            let job: Job = serde_json::from_value(job).expect("a Job");
            assert_eq!(HookStatus::of(&job), status, "{conditions}");
        }
    }
}
