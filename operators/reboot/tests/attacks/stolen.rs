//! The token of an agent's pod in other hands.
//!
//! What RBAC refuses is refused on every backend. The rest is refused by the `ValidatingAdmissionPolicy`, which the embedded server
//! keeps and does not evaluate: there these cases show that the attack is one that only the policy stops.

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
use windlass_cluster::Backend;
use windlass_reboot::state::Names;
use windlass_suite::Context as Case;

use crate::{
    node::TestNode,
    token::{POLICY, RIGHTS, annotations, apply, client, in_force, may, said, token},
};

/// Two nodes, and the token of the agent on the first.
struct Theft {
    own: TestNode,
    other: TestNode,
    thief: Client,
    /// Whether the server evaluates the policy.
    real: bool,
}

impl Theft {
    async fn new(case: &Case) -> anyhow::Result<Self> {
        apply(case, RIGHTS).await?;
        apply(case, POLICY).await?;
        let (own, other) = (
            TestNode::new(case, "own").await?,
            TestNode::new(case, "other").await?,
        );
        let thief = client(case, &token(case, Some(&own)).await?).await?;
        let real = case.cluster().backend() == Backend::Real;
        if real {
            in_force(&thief, &other).await?;
        }
        Ok(Self {
            own,
            other,
            thief,
            real,
        })
    }

    /// Sets an annotation by every type of patch. Each must be refused where the policy is evaluated.
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
            let answer = said(self.thief.request::<Node>(request).await)?;
            ensure!(
                answer.is_err() == self.real,
                "{how} of {name} on {}: {answer:?}",
                node.name
            );
            if self.real {
                let now = node.nodes.get(&node.name).await?;
                ensure!(
                    now.annotations().get(name).map(String::as_str) != Some(value),
                    "{how}"
                );
            }
        }
        Ok(())
    }
}

pub(crate) async fn stolen_token_writes_nothing_to_other_nodes(case: Case) -> anyhow::Result<()> {
    let (theft, names) = (Theft::new(&case).await?, Names::default());
    for name in [&names.needed, &names.in_progress, &names.now, &names.state] {
        theft.sets(&theft.other, name, "{}").await?;
    }
    Ok(())
}

pub(crate) async fn stolen_token_cannot_arm_its_own_node(case: Case) -> anyhow::Result<()> {
    let (theft, names) = (Theft::new(&case).await?, Names::default());
    for name in [&names.now, &names.state, &names.cordoned] {
        theft.sets(&theft.own, name, "{}").await?;
    }
    Ok(())
}

/// All annotations of an object share 256 KiB. A node without room for the controller's could neither be let go nor given back,
/// and would keep its slot.
pub(crate) async fn stolen_token_cannot_fill_the_annotations_of_its_node(case: Case) -> anyhow::Result<()> {
    let (theft, names) = (Theft::new(&case).await?, Names::default());
    let full = "x".repeat(200_000);
    for name in [&names.needed, &names.in_progress] {
        let answer = may(
            &theft.thief,
            &theft.own.name,
            &annotations(json!({ name: &full })),
        )
        .await?;
        assert_eq!(answer.is_err(), theft.real, "{name}");
        let short = annotations(json!({ name: "x".repeat(4096) }));
        assert_eq!(
            may(&theft.thief, &theft.own.name, &short).await?,
            Ok(()),
            "{name}"
        );
    }
    Ok(())
}

pub(crate) async fn stolen_token_gives_no_other_rights(case: Case) -> anyhow::Result<()> {
    let theft = Theft::new(&case).await?;
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
        ("reads Secrets", said(secrets.list(&list).await)?),
        ("reads ConfigMaps", said(config_maps.list(&list).await)?),
        ("creates pods", said(pods.create(&post, &pod).await)?),
        (
            "mints tokens",
            said(
                accounts
                    .create_token_request("reboot-agent", &post, &request)
                    .await,
            )?,
        ),
        ("creates nodes", said(nodes.create(&post, &node).await)?),
        (
            "deletes nodes",
            said(nodes.delete(&theft.own.name, &DeleteParams::default()).await)?,
        ),
        (
            "writes a node's status",
            said(
                nodes
                    .patch_status(&theft.own.name, &PatchParams::default(), &unready)
                    .await,
            )?,
        ),
    ];
    for (what, answer) in answers {
        assert!(answer.is_err(), "it {what}");
    }
    // What it can do, and docs/reboot.md says so: read all nodes, and clear who owns which fields of its own.
    assert_eq!(said(nodes.list(&list).await)?, Ok(()));
    let cleared = json!({ "metadata": { "managedFields": [{}] } });
    assert_eq!(may(thief, &theft.own.name, &cleared).await?, Ok(()));
    assert_eq!(
        may(thief, &theft.other.name, &cleared).await?.is_err(),
        theft.real
    );
    Ok(())
}
