//! The type check of ValidatingAdmissionPolicies.

use anyhow::{Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass_suite::Context;

use crate::upkeep::recorded_watch::eventually;

pub(crate) async fn policy_status_names_type_errors_of_each_kind(ctx: Context) -> Result<()> {
    let policy = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [
            rule("apps", "v1", &["replicasets", "deployments", "deployments/status"]),
            rule("", "v1", &["pods"]),
            rule("*", "v1", &["jobs"]),
        ]},
        "variables": [
            {"name": "replicas", "expression": "object.spec.replicas"},
            {"name": "wrong", "expression": "object.spec.nothing"},
        ],
        "validations": [
            {"expression": "has(object.metadata.labels) && object.metadata.name != ''", "messageExpression": "string(object.metadata.name)"},
            {"expression": "object.spec.replicas > 'many'", "messageExpression": "'a' + string(oldObject.spec.replicas + 'b')"},
            {"expression": "variables.replicas.size() > 0 && variables.wrong == 1"},
            {"expression": "object.spec.strategy.rollingUpdate.maxSurge == 1"},
            {"expression": "params.data.max > 1 && authorizer.group('').resource('pods').check('get').allowed()"},
            {"expression": "object.spec.replicas == 1\n  || object.metadata.name == 2"},
            {"expression": "object.metadata.labels.app.size() > 0 && object.status.conditions.all(c, c.status != true)"},
            {"expression": "object.spec.template.spec.containers.all(c, c.resources.limits['cpu'] == 1)"},
        ],
    });
    let status = checked(&ctx, "types", policy).await?;
    let warnings = status["typeChecking"]["expressionWarnings"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let kinds = |warning: &Value| -> Vec<String> {
        let text = warning["warning"].as_str().unwrap_or_default();
        let kinds = text.lines().filter_map(|line| line.split_once(": ERROR: "));
        kinds.map(|(kind, error)| format!("{kind}: {error}")).collect()
    };
    let all: Vec<_> = warnings
        .iter()
        .map(|warning| (warning["fieldRef"].as_str().unwrap_or_default(), kinds(warning)))
        .collect();
    let expected = EXPECTED
        .iter()
        .map(|(field, kinds)| (*field, kinds.iter().map(|kind| (*kind).to_owned()).collect()));
    let expected: Vec<(&str, Vec<String>)> = expected.collect();
    ensure!(all == expected, "{all:#?}");
    let first = "/v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > 'many'\n | ...........^\n\n\
                 apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n \
                 | object.spec.replicas > 'many'\n | .....................^\n";
    let text = warnings[0]["warning"].as_str().unwrap_or_default();
    ensure!(text.starts_with(first), "{text}");
    Ok(())
}

/// The kinds with an error in each expression, and their first error.
const EXPECTED: [(&str, &[&str]); 8] = [
    (
        "spec.validations[1].expression",
        &[
            "/v1, Kind=Pod: <input>:1:12: undefined field 'replicas'",
            "apps/v1, Kind=Deployment: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'",
            "apps/v1, Kind=ReplicaSet: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'",
        ],
    ),
    (
        "spec.validations[1].messageExpression",
        &[
            "/v1, Kind=Pod: <input>:1:28: undefined field 'replicas'",
            "apps/v1, Kind=Deployment: <input>:1:38: found no matching overload for '_+_' applied to '(int, string)'",
            "apps/v1, Kind=ReplicaSet: <input>:1:38: found no matching overload for '_+_' applied to '(int, string)'",
        ],
    ),
    (
        "spec.validations[2].expression",
        &[
            "apps/v1, Kind=Deployment: <input>:1:24: found no matching overload for 'size' applied to 'int.()'",
            "apps/v1, Kind=ReplicaSet: <input>:1:24: found no matching overload for 'size' applied to 'int.()'",
        ],
    ),
    (
        "spec.validations[3].expression",
        &[
            "/v1, Kind=Pod: <input>:1:12: undefined field 'strategy'",
            "apps/v1, Kind=ReplicaSet: <input>:1:12: undefined field 'strategy'",
        ],
    ),
    (
        "spec.validations[4].expression",
        &[
            "/v1, Kind=Pod: <input>:1:17: found no matching overload for '_>_' applied to '(string, int)'",
            "apps/v1, Kind=Deployment: <input>:1:17: found no matching overload for '_>_' applied to '(string, int)'",
            "apps/v1, Kind=ReplicaSet: <input>:1:17: found no matching overload for '_>_' applied to '(string, int)'",
        ],
    ),
    (
        "spec.validations[5].expression",
        &[
            "/v1, Kind=Pod: <input>:1:12: undefined field 'replicas'",
            "apps/v1, Kind=Deployment: <input>:2:27: found no matching overload for '_==_' applied to '(string, int)'",
            "apps/v1, Kind=ReplicaSet: <input>:2:27: found no matching overload for '_==_' applied to '(string, int)'",
        ],
    ),
    (
        "spec.validations[6].expression",
        &[
            "/v1, Kind=Pod: <input>:1:83: found no matching overload for '_!=_' applied to '(string, bool)'",
            "apps/v1, Kind=Deployment: <input>:1:83: found no matching overload for '_!=_' applied to '(string, bool)'",
            "apps/v1, Kind=ReplicaSet: <input>:1:83: found no matching overload for '_!=_' applied to '(string, bool)'",
        ],
    ),
    (
        "spec.validations[7].expression",
        &[
            "/v1, Kind=Pod: <input>:1:12: undefined field 'template'",
            "apps/v1, Kind=Deployment: <input>:1:56: undefined field 'limits'",
            "apps/v1, Kind=ReplicaSet: <input>:1:56: undefined field 'limits'",
        ],
    ),
];

pub(crate) async fn checked_policy_without_errors_is_checked_again_after_a_change(
    ctx: Context,
) -> Result<()> {
    let policy = |expression: &str| {
        json!({
            "matchConstraints": {"resourceRules": [rule("", "v1", &["configmaps"])]},
            "validations": [{"expression": expression}],
        })
    };
    let status = checked(&ctx, "again", policy("object.data.a == 'b'")).await?;
    ensure!(
        status == json!({"observedGeneration": 1, "typeChecking": {}}),
        "{status}"
    );

    let policies: Api<ValidatingAdmissionPolicy> = Api::all(ctx.client().clone());
    let name = format!("{}-again", ctx.namespace());
    let change = json!({"spec": policy("object.data.a == 1")});
    policies
        .patch(&name, &PatchParams::default(), &Patch::Merge(change))
        .await?;
    let status = status_of_generation(&policies, &name, 2).await?;
    let warnings = &status["typeChecking"]["expressionWarnings"];
    ensure!(warnings.as_array().map(Vec::len) == Some(1), "{status}");
    ensure!(warnings[0]["fieldRef"] == "spec.validations[0].expression");

    let managers = policies
        .get_metadata(&name)
        .await?
        .metadata
        .managed_fields
        .unwrap_or_default();
    let found = managers.iter().any(|entry| {
        entry.manager.as_deref() == Some("validatingadmissionpolicy-status")
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == Some("status")
    });
    ensure!(found, "{managers:?}");
    Ok(())
}

fn rule(group: &str, version: &str, resources: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": resources})
}

/// Creates a policy that is bound to nothing, and returns its status after the type check.
async fn checked(ctx: &Context, name: &str, spec: Value) -> Result<Value> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(ctx.client().clone());
    let name = format!("{}-{name}", ctx.namespace());
    let policy = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
    policies.create(&PostParams::default(), &policy).await?;
    status_of_generation(&policies, &name, 1).await
}

async fn status_of_generation(
    policies: &Api<ValidatingAdmissionPolicy>,
    name: &str,
    generation: i64,
) -> Result<Value> {
    eventually("the type check of a policy", async || {
        let status = policies.get(name).await?.status.unwrap_or_default();
        let is_checked = status.observed_generation == Some(generation);
        Ok(is_checked.then(|| serde_json::to_value(status)).transpose()?)
    })
    .await
}
