//! Attacks with the token of an agent's pod.
//!
//! What RBAC does not refuse is refused by the `ValidatingAdmissionPolicy`.

use anyhow::ensure;
use http::Request;
use serde_json::json;
use windlass::{
    k8s_openapi::api::{
        authentication::v1::TokenRequest,
        core::v1::{ConfigMap, Node, Pod, Secret, ServiceAccount},
    },
    kube::{
        Api, Client,
        api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_reboot::state::AnnotationKeys;
use windlass_suite::Context as Case;

use crate::attacks::{
    node::TestNode,
    token::{POLICY, RIGHTS, annotations, apply, client, refusal, token, try_patch, wait_until_enforced},
};

/// Two nodes, and the token of the agent on the first.
struct StolenToken {
    own: TestNode,
    other: TestNode,
    thief: Client,
}

impl StolenToken {
    async fn new(case: &Case) -> anyhow::Result<Self> {
        apply(case, RIGHTS).await?;
        apply(case, POLICY).await?;
        let (own, other) = (
            TestNode::new(case, "own").await?,
            TestNode::new(case, "other").await?,
        );
        let thief = client(case, &token(case, Some(&own)).await?).await?;
        wait_until_enforced(&thief, &other).await?;
        Ok(Self { own, other, thief })
    }

    /// Sets an annotation by every type of patch. Each must be refused.
    async fn sets(&self, node: &TestNode, name: &str, value: &str) -> anyhow::Result<()> {
        let body = annotations(json!({ name: value }));
        let pointer = name.replace('~', "~0").replace('/', "~1");
        let operations =
            json!([{ "op": "add", "path": format!("/metadata/annotations/{pointer}"), "value": value }]);
        let mut applied = body.clone();
        applied["apiVersion"] = "v1".into();
        applied["kind"] = "Node".into();
        for (how, query, body) in [
            ("merge-patch+json", "", &body),
            ("strategic-merge-patch+json", "", &body),
            ("json-patch+json", "", &operations),
            ("apply-patch+yaml", "?fieldManager=thief&force=true", &applied),
        ] {
            let request = Request::patch(format!("/api/v1/nodes/{}{query}", node.name))
                .header("content-type", format!("application/{how}"))
                .body(serde_json::to_vec(body)?)?;
            let answer = refusal(self.thief.request::<Node>(request).await)?;
            ensure!(answer.is_err(), "{how} of {name} on {}: {answer:?}", node.name);
            let now = node.nodes.get(&node.name).await?;
            ensure!(
                now.annotations().get(name).map(String::as_str) != Some(value),
                "{how}"
            );
        }
        Ok(())
    }
}

pub(crate) async fn stolen_token_cannot_write_other_nodes(case: Case) -> anyhow::Result<()> {
    let (theft, names) = (StolenToken::new(&case).await?, AnnotationKeys::default());
    for name in [
        &names.reboot_needed,
        &names.reboot_in_progress,
        &names.reboot_now,
        &names.state,
    ] {
        theft.sets(&theft.other, name, "{}").await?;
    }
    Ok(())
}

pub(crate) async fn stolen_token_cannot_arm_its_own_node(case: Case) -> anyhow::Result<()> {
    let (theft, names) = (StolenToken::new(&case).await?, AnnotationKeys::default());
    for name in [&names.reboot_now, &names.state, &names.cordoned] {
        theft.sets(&theft.own, name, "{}").await?;
    }
    Ok(())
}

/// All annotations of an object share 256 KiB. A node without room for the controller's could neither be rebooted nor
/// released, and would keep its slot.
pub(crate) async fn stolen_token_cannot_fill_the_annotations_of_its_node(case: Case) -> anyhow::Result<()> {
    let (theft, names) = (StolenToken::new(&case).await?, AnnotationKeys::default());
    let full = "x".repeat(200_000);
    for name in [&names.reboot_needed, &names.reboot_in_progress] {
        let answer = try_patch(
            &theft.thief,
            &theft.own.name,
            &annotations(json!({ name: &full })),
        )
        .await?;
        assert!(answer.is_err(), "{name}");
        let short = annotations(json!({ name: "x".repeat(4096) }));
        assert_eq!(
            try_patch(&theft.thief, &theft.own.name, &short).await?,
            Ok(()),
            "{name}"
        );
    }
    Ok(())
}

pub(crate) async fn stolen_token_gives_no_other_rights(case: Case) -> anyhow::Result<()> {
    let theft = StolenToken::new(&case).await?;
    let (thief, post) = (&theft.thief, PostParams::default());
    let (list, namespace) = (ListParams::default(), case.namespace());
    let secrets = Api::<Secret>::all(thief.clone());
    let config_maps = Api::<ConfigMap>::namespaced(thief.clone(), namespace);
    let pods = Api::<Pod>::namespaced(thief.clone(), namespace);
    let accounts = Api::<ServiceAccount>::namespaced(thief.clone(), namespace);
    let nodes = Api::<Node>::all(thief.clone());
    let pod: Pod = from_value(json!({
        "metadata": { "name": "privileged" },
        "spec": { "containers": [{ "name": "a", "image": "a", "securityContext": { "privileged": true } }] },
    }))?;
    let request: TokenRequest = from_value(json!({ "spec": { "audiences": [] } }))?;
    let node: Node = from_value(json!({ "metadata": { "name": format!("{namespace}-forged") } }))?;
    let unready = Patch::Strategic(json!({
        "status": { "conditions": [{ "type": "Ready", "status": "False" }] },
    }));
    let answers = [
        ("reads Secrets", refusal(secrets.list(&list).await)?),
        ("reads ConfigMaps", refusal(config_maps.list(&list).await)?),
        ("creates pods", refusal(pods.create(&post, &pod).await)?),
        (
            "mints tokens",
            refusal(
                accounts
                    .create_token_request("reboot-agent", &post, &request)
                    .await,
            )?,
        ),
        ("creates nodes", refusal(nodes.create(&post, &node).await)?),
        (
            "deletes nodes",
            refusal(nodes.delete(&theft.own.name, &DeleteParams::default()).await)?,
        ),
        (
            "writes a node's status",
            refusal(
                nodes
                    .patch_status(&theft.own.name, &PatchParams::default(), &unready)
                    .await,
            )?,
        ),
    ];
    for (what, answer) in answers {
        assert!(answer.is_err(), "it {what}");
    }
    // What it can do, as docs/reboot.md documents: read all nodes, and clear the managed fields of its own.
    assert_eq!(refusal(nodes.list(&list).await)?, Ok(()));
    let cleared = json!({ "metadata": { "managedFields": [{}] } });
    assert_eq!(try_patch(thief, &theft.own.name, &cleared).await?, Ok(()));
    assert!(try_patch(thief, &theft.other.name, &cleared).await?.is_err());
    Ok(())
}
