//! What the token of an agent is good for: two annotations of its own node.
//!
//! The embedded server keeps admission policies and does not evaluate them (they are CEL): there the case shows what RBAC alone
//! refuses, and that the rest passes it, so that whoever leaves the policy out knows what that means.

use serde_json::{Value, json};
use windlass::{
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{
        Api, Client,
        api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_cluster::Backend;
use windlass_reboot::{
    agent::{self, Arguments, Words},
    state::{Names, PREFIX},
};
use windlass_suite::{Context as Case, Running};

use crate::{
    node::TestNode,
    token::{POLICY, RIGHTS, annotations, apply, client, in_force, may, said, token},
};

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
