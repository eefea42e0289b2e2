//! A token of an agent's pod, and what the server allows it. The service account, its role and the policy are the
//! shipped ones, moved into the case's namespace.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use windlass::{
    k8s_openapi::api::{
        authentication::v1::TokenRequest,
        core::v1::{Node, Pod, ServiceAccount},
    },
    kube::{
        self, Api, Client, Config,
        api::{DynamicObject, Patch, PatchParams, PostParams},
        config::{AuthInfo, KubeConfigOptions, Kubeconfig},
        core::{ApiResource, GroupVersionKind},
    },
    prelude::*,
};
use windlass_suite::{Context as Case, STEP_TIMEOUT};

use crate::reboot::node::TestNode;

const NAMESPACE: &str = "windlass-reboot";
pub(crate) const RIGHTS: &str = include_str!("../../manifests/agent-rbac.yaml");
pub(crate) const POLICY: &str = include_str!("../../manifests/agent-policy.yaml");

/// Creates the manifests with the shipped namespace replaced by the case's, also in the names of cluster-scoped
/// objects.
/// objects.
pub(crate) async fn apply(case: &Case, manifests: &str) -> anyhow::Result<()> {
    let text = manifests.replace(NAMESPACE, case.namespace());
    for document in serde_yaml_ng::Deserializer::from_str(&text) {
        let mut object: DynamicObject = from_value(Value::deserialize(document)?)?;
        let types = object.types.clone().context("a kind")?;
        let kind = GroupVersionKind::try_from(&types)?;
        let resource = match kind.kind.as_str() {
            "ValidatingAdmissionPolicy" => {
                ApiResource::from_gvk_with_plural(&kind, "validatingadmissionpolicies")
            }
            _ => ApiResource::from_gvk(&kind),
        };
        let api = match object.metadata.namespace.as_deref() {
            Some(namespace) => Api::<DynamicObject>::namespaced_with(case.client(), namespace, &resource),
            None => Api::all_with(case.client(), &resource),
        };
        object.metadata.owner_references = Some(vec![case.owner()]);
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("a {}", kind.kind))?;
    }
    Ok(())
}

/// A token of the agents' service account; bound to a pod, and thereby to a node, if one is given.
pub(crate) async fn token(case: &Case, node: Option<&TestNode>) -> anyhow::Result<String> {
    let mut bound = Value::Null;
    if let Some(node) = node {
        let pod: Pod = from_value(json!({
            "metadata": {"name": format!("agent-on-{}", node.name)},
            "spec": {
                "serviceAccountName": "reboot-agent",
                "nodeName": node.name,
                "containers": [{"name": "agent", "image": "windlass-reboot-agent"}],
            },
        }))?;
        let pod = case.api::<Pod>().create(&PostParams::default(), &pod).await?;
        bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid()});
    }
    let request: TokenRequest = from_value(json!({"spec": {"audiences": [], "boundObjectRef": bound}}))?;
    let answer = case
        .api::<ServiceAccount>()
        .create_token_request("reboot-agent", &PostParams::default(), &request)
        .await?;
    answer.status.and_then(|status| status.token).context("a token")
}

/// A client that has only this token.
pub(crate) async fn client(case: &Case, token: &str) -> anyhow::Result<Client> {
    let mut kubeconfig = Kubeconfig::read_from(case.cluster().kubeconfig()?)?;
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        });
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

#[expect(clippy::needless_pass_by_value, reason = "it is made for this")]
pub(crate) fn annotations(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

/// Whether the server accepts the patch, as a dry run. A refusal for another reason than missing rights is an error.
pub(crate) async fn try_patch(
    client: &Client,
    node: &str,
    patch: &Value,
) -> anyhow::Result<Result<(), String>> {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let nodes = Api::<Node>::all(client.clone());
    refusal(nodes.patch(node, &params, &Patch::Strategic(patch)).await)
}

pub(crate) fn refusal<T>(answer: kube::Result<T>) -> anyhow::Result<Result<(), String>> {
    match answer {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the server enforces the policy.
pub(crate) async fn wait_until_enforced(client: &Client, other: &TestNode) -> anyhow::Result<()> {
    let (patch, until) = (annotations(json!({"a": "b"})), Instant::now() + STEP_TIMEOUT);
    while try_patch(client, &other.name, &patch).await?.is_ok() {
        ensure!(Instant::now() < until, "the policy is not enforced");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
