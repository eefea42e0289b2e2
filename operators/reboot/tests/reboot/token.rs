//! A token of an agent's pod, and what the server lets it do. The account, its role and the policy are the shipped ones, with the
//! case's namespace for theirs.

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
use windlass_suite::{Context as Case, DEADLINE};

use crate::node::TestNode;

const NAMESPACE: &str = "windlass-reboot";
pub(crate) const RIGHTS: &str = include_str!("../../manifests/agent-rbac.yaml");
pub(crate) const POLICY: &str = include_str!("../../manifests/agent-policy.yaml");

/// Creates what manifests say, with the case's namespace for the shipped one; what lives outside of it has the namespace in
/// its name.
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

/// A token of the agents' account; bound to a pod, and by it to a node, if one is given.
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

/// A client that has nothing but this token.
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

/// Whether the server takes it; it is only tried. What is refused for another reason than the right to it is an error.
pub(crate) async fn may(client: &Client, node: &str, patch: &Value) -> anyhow::Result<Result<(), String>> {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let nodes = Api::<Node>::all(client.clone());
    said(nodes.patch(node, &params, &Patch::Strategic(patch)).await)
}

pub(crate) fn said<T>(answer: kube::Result<T>) -> anyhow::Result<Result<(), String>> {
    match answer {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

/// A server takes a moment to know of a policy.
pub(crate) async fn in_force(client: &Client, other: &TestNode) -> anyhow::Result<()> {
    let (patch, until) = (annotations(json!({"a": "b"})), Instant::now() + DEADLINE);
    while may(client, &other.name, &patch).await?.is_ok() {
        ensure!(Instant::now() < until, "the policy has no effect");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
