//! What the token of an agent is good for: two annotations of its own node.
//!
//! The account, its role and the policy are the shipped ones, with the case's namespace for theirs. The embedded server keeps
//! admission policies and does not evaluate them (they are CEL): there the case shows what RBAC alone refuses, and that the
//! rest passes it, so that whoever leaves the policy out knows what that means.

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
        api::{DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams},
        config::{AuthInfo, KubeConfigOptions, Kubeconfig},
        core::{ApiResource, GroupVersionKind},
    },
    prelude::*,
};
use windlass_cluster::Backend;
use windlass_reboot::{
    agent::{self, Arguments, Words},
    state::{Names, PREFIX},
};
use windlass_suite::{Context as Case, DEADLINE, Running};

use crate::node::TestNode;

const NAMESPACE: &str = "windlass-reboot";
const RIGHTS: &str = include_str!("../../manifests/agent-rbac.yaml");
const POLICY: &str = include_str!("../../manifests/agent-policy.yaml");

/// Creates what manifests say, with the case's namespace for the shipped one; what lives outside of it has the namespace in
/// its name.
async fn apply(case: &Case, manifests: &str) -> anyhow::Result<()> {
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
async fn token(case: &Case, node: Option<&TestNode>) -> anyhow::Result<String> {
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
async fn client(case: &Case, token: &str) -> anyhow::Result<Client> {
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
fn annotations(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

/// Whether the server takes it; it is only tried. What is refused for another reason than the right to it is an error.
async fn may(client: &Client, node: &str, patch: &Value) -> anyhow::Result<Result<(), String>> {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let nodes = Api::<Node>::all(client.clone());
    said(nodes.patch(node, &params, &Patch::Strategic(patch)).await)
}

fn said<T>(answer: kube::Result<T>) -> anyhow::Result<Result<(), String>> {
    match answer {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

/// A server takes a moment to know of a policy.
async fn in_force(client: &Client, other: &TestNode) -> anyhow::Result<()> {
    let (patch, until) = (annotations(json!({"a": "b"})), Instant::now() + DEADLINE);
    while may(client, &other.name, &patch).await?.is_ok() {
        ensure!(Instant::now() < until, "the policy has no effect");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

pub(crate) async fn the_token_of_an_agent_is_good_for_two_annotations_of_its_node(
    case: Case,
) -> anyhow::Result<()> {
    let real = case.cluster().backend() == Backend::Real;
    let names = Names::default();
    apply(&case, RIGHTS).await?;
    apply(&case, POLICY).await?;
    let (own, other) = (
        TestNode::new(&case, "own").await?,
        TestNode::new(&case, "other").await?,
    );
    own.annotate(json!({"example.com/theirs": "1", &names.state: "{}"}))
        .await?;
    other.annotate(json!({&names.needed: "because"})).await?;
    let agent = client(&case, &token(&case, Some(&own)).await?).await?;
    if real {
        in_force(&agent, &other).await?;
    }
    let progress = |value: Value| annotations(json!({&names.in_progress: value}));

    for (what, patch) in [
        ("says that it reboots", progress(json!("{}"))),
        ("asks for a reboot", annotations(json!({&names.needed: "kernel"}))),
        ("takes its word back", progress(json!(null))),
    ] {
        assert_eq!(may(&agent, &own.name, &patch).await?, Ok(()), "{what}");
    }
    let refused = [
        ("cordons it", json!({"spec": {"unschedulable": true}})),
        (
            "taints it",
            json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
        ),
        (
            "labels it",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        ),
        (
            "has it kept",
            json!({"metadata": {"finalizers": ["example.com/stay"]}}),
        ),
        ("disowns it", json!({"metadata": {"ownerReferences": null}})),
        ("arms it", annotations(json!({&names.now: "{}"}))),
        (
            "writes the controller's state",
            annotations(json!({&names.state: null})),
        ),
        (
            "changes what is others'",
            annotations(json!({"example.com/theirs": "2"})),
        ),
        ("adds something", annotations(json!({"example.com/mine": ""}))),
    ];
    for (what, patch) in refused {
        let answer = may(&agent, &own.name, &patch).await?;
        assert_eq!(answer.is_err(), real, "it {what}: {answer:?}");
    }
    // What somebody has asked for is not the agent's to take back.
    own.annotate(json!({&names.needed: "because"})).await?;
    for value in [json!(null), json!("no")] {
        let answer = may(&agent, &own.name, &annotations(json!({&names.needed: value}))).await?;
        assert_eq!(answer.is_err(), real, "{answer:?}");
    }
    // Not even its two annotations on another node; nor with a token that is of no node.
    let of_none = client(&case, &token(&case, None).await?).await?;
    let of_other = client(&case, &token(&case, Some(&other)).await?).await?;
    for (what, client, node) in [
        ("its token, another node", &agent, &other),
        ("a token of no node", &of_none, &own),
        ("another's token", &of_other, &own),
    ] {
        let answer = may(client, &node.name, &progress(json!("{}"))).await?;
        assert_eq!(answer.is_err(), real, "{what}: {answer:?}");
        if let Err(why) = answer {
            assert!(why.contains("the node that its pod runs on"), "{why}");
        }
    }
    assert_eq!(may(&of_other, &other.name, &progress(json!("{}"))).await?, Ok(()));
    refused_by_rbac_alone(&case, &agent, &own).await
}

async fn refused_by_rbac_alone(case: &Case, agent: &Client, own: &TestNode) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(agent.clone());
    let pods = Api::<Pod>::namespaced(agent.clone(), case.namespace());
    let pod = format!("agent-on-{}", own.name);
    let (post, mut node) = (PostParams::default(), own.nodes.get(&own.name).await?);
    node.metadata.managed_fields = None;
    let condition =
        Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
    let answers = [
        (
            "its status",
            said(
                nodes
                    .patch_status(&own.name, &PatchParams::default(), &condition)
                    .await,
            )?,
        ),
        ("all of it", said(nodes.replace(&own.name, &post, &node).await)?),
        (
            "its end",
            said(nodes.delete(&own.name, &DeleteParams::default()).await)?,
        ),
        ("another one", said(nodes.create(&post, &node).await)?),
        ("pods", said(pods.list(&ListParams::default()).await)?),
        ("a pod", said(pods.delete(&pod, &DeleteParams::default()).await)?),
        (
            "an eviction",
            said(pods.evict(&pod, &EvictParams::default()).await)?,
        ),
    ];
    for (what, answer) in answers {
        assert!(answer.is_err(), "{what}");
    }
    Ok(())
}

/// The whole agent with such a token: it needs nothing more.
pub(crate) async fn an_agent_does_its_work_with_its_own_token(case: Case) -> anyhow::Result<()> {
    apply(&case, RIGHTS).await?;
    apply(&case, POLICY).await?;
    let (own, other) = (
        TestNode::new(&case, "own").await?,
        TestNode::new(&case, "other").await?,
    );
    let client = client(&case, &token(&case, Some(&own)).await?).await?;
    if case.cluster().backend() == Backend::Real {
        in_force(&client, &other).await?;
    }
    let folder = tempfile::tempdir()?;
    let boot_id_file = folder.path().join("boot_id");
    let start = async |boot: &str| {
        std::fs::write(&boot_id_file, boot)?;
        let arguments = Arguments {
            node: Some(own.name.clone()),
            reboot_command: Some(Words::new("true", [""; 0])),
            boot_id_file: boot_id_file.clone(),
            ..Arguments::default()
        };
        let manager = Manager::new(client.clone());
        let manager = agent::setup(manager, &client, PREFIX, &arguments).await?;
        anyhow::Ok(Running::start(manager))
    };
    own.arm(7).await?;
    let before = start("boot-0").await?;
    let claim = own.until(|progress| progress.attempt == 1).await?;
    assert_eq!((claim.boot_id.as_str(), claim.proved), ("boot-0", None));
    before.kill().await;
    let after = start("boot-1").await?;
    let proof = own.proved().await?;
    assert_eq!(proof.proved.as_deref(), Some("boot-1"));
    after.stop().await
}
