//! What an agent's token allows: writing two annotations of its own node. RBAC refuses some of the rest, and the shipped
//! ValidatingAdmissionPolicy all of it.

use serde_json::{Value, json};
use windlass::{
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{
        Api, Client,
        api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_reboot::{
    agent::{self, Arguments, CommandLine},
    state::{AnnotationKeys, DEFAULT_ANNOTATION_PREFIX},
};
use windlass_suite::{Context as Case, RunningManager};

use crate::reboot::{
    node::TestNode,
    token::{POLICY, RIGHTS, annotations, apply, client, refusal, token, try_patch, wait_until_enforced},
};

pub(crate) async fn agent_token_can_write_only_two_annotations_of_its_node(case: Case) -> anyhow::Result<()> {
    let names = AnnotationKeys::default();
    apply(&case, RIGHTS).await?;
    apply(&case, POLICY).await?;
    let (own, other) = (
        TestNode::new(&case, "own").await?,
        TestNode::new(&case, "other").await?,
    );
    own.annotate(json!({"example.com/theirs": "1", &names.state: "{}"}))
        .await?;
    other.annotate(json!({&names.reboot_needed: "because"})).await?;
    let agent = client(&case, &token(&case, Some(&own)).await?).await?;
    wait_until_enforced(&agent, &other).await?;
    let progress = |value: Value| annotations(json!({&names.reboot_in_progress: value}));

    for (what, patch) in [
        ("reports progress", progress(json!("{}"))),
        (
            "requests a reboot",
            annotations(json!({&names.reboot_needed: "kernel"})),
        ),
        ("removes its progress", progress(json!(null))),
    ] {
        assert_eq!(try_patch(&agent, &own.name, &patch).await?, Ok(()), "{what}");
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
            "adds a finalizer",
            json!({"metadata": {"finalizers": ["example.com/stay"]}}),
        ),
        ("disowns it", json!({"metadata": {"ownerReferences": null}})),
        ("arms it", annotations(json!({&names.reboot_now: "{}"}))),
        (
            "writes the controller's state",
            annotations(json!({&names.state: null})),
        ),
        (
            "changes an annotation of others",
            annotations(json!({"example.com/theirs": "2"})),
        ),
        ("adds something", annotations(json!({"example.com/mine": ""}))),
    ];
    for (what, patch) in refused {
        let answer = try_patch(&agent, &own.name, &patch).await?;
        assert!(answer.is_err(), "it {what}: {answer:?}");
    }
    // An agent cannot remove an existing request.
    own.annotate(json!({&names.reboot_needed: "because"})).await?;
    for value in [json!(null), json!("no")] {
        let answer = try_patch(
            &agent,
            &own.name,
            &annotations(json!({&names.reboot_needed: value})),
        )
        .await?;
        assert!(answer.is_err(), "{answer:?}");
    }
    // Not even its two annotations on another node; nor with a token without a node.
    let of_none = client(&case, &token(&case, None).await?).await?;
    let of_other = client(&case, &token(&case, Some(&other)).await?).await?;
    for (what, client, node) in [
        ("its token, another node", &agent, &other),
        ("a token without a node", &of_none, &own),
        ("the token of another node", &of_other, &own),
    ] {
        let answer = try_patch(client, &node.name, &progress(json!("{}"))).await?;
        let why = answer.expect_err(what);
        assert!(why.contains("the node that its pod runs on"), "{why}");
    }
    assert_eq!(
        try_patch(&of_other, &other.name, &progress(json!("{}"))).await?,
        Ok(())
    );
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
            refusal(
                nodes
                    .patch_status(&own.name, &PatchParams::default(), &condition)
                    .await,
            )?,
        ),
        (
            "all of it",
            refusal(nodes.replace(&own.name, &post, &node).await)?,
        ),
        (
            "its end",
            refusal(nodes.delete(&own.name, &DeleteParams::default()).await)?,
        ),
        ("another one", refusal(nodes.create(&post, &node).await)?),
        ("pods", refusal(pods.list(&ListParams::default()).await)?),
        (
            "a pod",
            refusal(pods.delete(&pod, &DeleteParams::default()).await)?,
        ),
        (
            "an eviction",
            refusal(pods.evict(&pod, &EvictParams::default()).await)?,
        ),
    ];
    for (what, answer) in answers {
        assert!(answer.is_err(), "{what}");
    }
    Ok(())
}

/// The whole agent with such a token: it needs nothing more.
pub(crate) async fn agent_works_with_its_shipped_rights(case: Case) -> anyhow::Result<()> {
    apply(&case, RIGHTS).await?;
    apply(&case, POLICY).await?;
    let (own, other) = (
        TestNode::new(&case, "own").await?,
        TestNode::new(&case, "other").await?,
    );
    let client = client(&case, &token(&case, Some(&own)).await?).await?;
    wait_until_enforced(&client, &other).await?;
    let folder = tempfile::tempdir()?;
    let boot_id_file = folder.path().join("boot_id");
    let start = async |boot: &str| {
        std::fs::write(&boot_id_file, boot)?;
        let arguments = Arguments {
            node: Some(own.name.clone()),
            reboot_command: Some(CommandLine::new("true", [""; 0])),
            boot_id_file: boot_id_file.clone(),
            ..Arguments::default()
        };
        let manager = Manager::new(client.clone());
        let manager = agent::setup(manager, &client, DEFAULT_ANNOTATION_PREFIX, &arguments).await?;
        anyhow::Ok(RunningManager::start(manager))
    };
    own.arm(7).await?;
    let before = start("boot-0").await?;
    let claim = own.wait_for_progress(|progress| progress.attempt == 1).await?;
    assert_eq!((claim.boot_id.as_str(), claim.new_boot_id), ("boot-0", None));
    before.kill().await;
    let after = start("boot-1").await?;
    let proof = own.wait_for_proof().await?;
    assert_eq!(proof.new_boot_id.as_deref(), Some("boot-1"));
    after.stop().await
}
