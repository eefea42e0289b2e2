//! Attacks with the controller's token: each claim of "A compromised controller" in docs/reboot.md that RBAC decides.

use serde_json::{Value, json};
use windlass::{
    k8s_openapi::api::{
        authentication::v1::TokenRequest,
        core::v1::{Node, ServiceAccount},
    },
    kube::{
        Api, Client,
        api::{DynamicObject, Patch, PatchParams, PostParams},
        core::{ApiResource, GroupVersionKind},
    },
    prelude::*,
};
use windlass_suite::{Context as Case, ManifestRoles};

use crate::attacks::{node::TestNode, token::refusal};

const DEFAULT: &str = include_str!("../../rbac.yaml");
const HOOKS: &str = include_str!("../../hooks/rbac.yaml");

/// A privileged pod that mounts its host.
fn root_pod() -> Value {
    json!({
        "restartPolicy": "Never",
        "containers": [{ "name": "a", "image": "a", "securityContext": { "privileged": true } }],
        "volumes": [{ "name": "host", "hostPath": { "path": "/" } }],
    })
}

fn workloads() -> Vec<(GroupVersionKind, Value)> {
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": root_pod() });
    let selector = json!({ "matchLabels": { "a": "b" } });
    let replicated = json!({ "selector": selector, "template": template });
    let job = json!({ "template": template });
    vec![
        (GroupVersionKind::gvk("", "v1", "Pod"), root_pod()),
        (
            GroupVersionKind::gvk("", "v1", "ReplicationController"),
            json!({ "selector": { "a": "b" }, "template": template }),
        ),
        (
            GroupVersionKind::gvk("apps", "v1", "Deployment"),
            replicated.clone(),
        ),
        (
            GroupVersionKind::gvk("apps", "v1", "ReplicaSet"),
            replicated.clone(),
        ),
        (GroupVersionKind::gvk("apps", "v1", "DaemonSet"), replicated),
        (
            GroupVersionKind::gvk("apps", "v1", "StatefulSet"),
            json!({ "serviceName": "a", "selector": selector, "template": template }),
        ),
        (GroupVersionKind::gvk("batch", "v1", "Job"), job.clone()),
        (
            GroupVersionKind::gvk("batch", "v1", "CronJob"),
            json!({ "schedule": "@yearly", "jobTemplate": { "spec": job } }),
        ),
    ]
}

/// The kinds of workloads that this token may create in a namespace.
async fn may_create(thief: &Client, namespace: &str) -> anyhow::Result<Vec<String>> {
    let mut allowed = Vec::new();
    for (kind, spec) in workloads() {
        let resource = ApiResource::from_gvk(&kind);
        let object = DynamicObject::new("root", &resource).data(json!({ "spec": spec }));
        let api = Api::<DynamicObject>::namespaced_with(thief.clone(), namespace, &resource);
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        if refusal(api.create(&dry_run, &object).await)?.is_ok() {
            allowed.push(kind.kind);
        }
    }
    Ok(allowed)
}

pub(crate) async fn stolen_controller_token_cannot_start_programs(case: Case) -> anyhow::Result<()> {
    let thief = ManifestRoles::parse(DEFAULT)?.client(&case).await?;
    // The case's namespace stands for the controller's own.
    for namespace in [case.namespace(), "kube-system"] {
        assert_eq!(may_create(&thief, namespace).await?, [""; 0], "{namespace}");
    }
    // What it can do, as docs/reboot.md documents.
    let node = TestNode::new(&case, "any").await?;
    let nodes = Api::<Node>::all(thief);
    let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    nodes.patch(&node.name, &PatchParams::default(), &cordon).await?;
    Ok(())
}

pub(crate) async fn stolen_controller_token_gives_no_other_rights(case: Case) -> anyhow::Result<()> {
    let both = format!("{DEFAULT}\n---\n{HOOKS}");
    let thief = ManifestRoles::parse(&both)?.client(&case).await?;
    let (post, own) = (PostParams::default(), case.namespace());
    for (group, version, kind) in [
        ("", "v1", "Secret"),
        ("", "v1", "ConfigMap"),
        ("rbac.authorization.k8s.io", "v1", "Role"),
        ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api = Api::<DynamicObject>::all_with(thief.clone(), &resource);
        let list = api.list(&windlass::kube::api::ListParams::default()).await;
        assert!(refusal(list)?.is_err(), "it reads {kind}s");
    }
    let accounts = Api::<ServiceAccount>::namespaced(thief.clone(), own);
    let request: TokenRequest = from_value(json!({ "spec": { "audiences": [] } }))?;
    let minted = accounts.create_token_request("default", &post, &request).await;
    assert!(refusal(minted)?.is_err(), "it mints tokens");
    // The label of the hooks' namespace is what forbids privileged Jobs.
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
    let namespaces = Api::<DynamicObject>::all_with(thief.clone(), &resource);
    let relabel = Patch::Merge(json!({
        "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } },
    }));
    let relabelled = namespaces.patch(own, &PatchParams::default(), &relabel).await;
    assert!(refusal(relabelled)?.is_err(), "it changes the namespace");
    assert_eq!(
        may_create(&thief, own).await?,
        ["Job"],
        "with the rights for hooks"
    );
    assert_eq!(may_create(&thief, "kube-system").await?, [""; 0]);
    Ok(())
}
