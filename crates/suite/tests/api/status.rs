//! The status subresource and the generation of a built-in kind.

use serde_json::json;
use windlass_suite::Context;

use crate::api::{
    rest::{Collection, version},
    writes::deployment,
};

/// A status field that the Deployment controller does not change.
const FIELD: &str = "collisionCount";

pub(crate) async fn deployment_status_and_spec_are_separate(ctx: Context) -> anyhow::Result<()> {
    let deployments = Collection::deployments(&ctx);
    let mut wanted = deployment("a");
    wanted["status"] = json!({ FIELD: 7 });
    let created = deployments.create(&wanted).await?.ok()?;
    assert_eq!(created["status"], json!({}), "create ignores the status");

    let patch = json!({ "spec": { "replicas": 5 }, "status": { FIELD: 1 } });
    let through_status = deployments.merge("a/status", &patch).await?.ok()?;
    assert_eq!(through_status["status"][FIELD], 1);
    assert_eq!(
        through_status["spec"]["replicas"], 1,
        "the status subresource ignores the spec"
    );
    assert!(version(&through_status) > version(&created));

    let patch = json!({ "spec": { "replicas": 5 }, "status": { FIELD: 9 } });
    let through_main = deployments.merge("a", &patch).await?.ok()?;
    assert_eq!(through_main["spec"]["replicas"], 5);
    assert_eq!(
        through_main["status"][FIELD], 1,
        "the main resource ignores the status"
    );
    Ok(())
}

pub(crate) async fn generation_counts_changes_of_the_spec_only(ctx: Context) -> anyhow::Result<()> {
    let deployments = Collection::deployments(&ctx);
    deployments.create(&deployment("a")).await?.ok()?;
    for (target, patch, generation) in [
        ("a", json!({ "metadata": { "labels": { "l": "1" } } }), 1),
        ("a/status", json!({ "status": { FIELD: 1 } }), 1),
        ("a", json!({ "spec": { "replicas": 2 } }), 2),
        ("a", json!({ "spec": { "replicas": 2 } }), 2),
        ("a", json!({ "spec": { "replicas": 3 } }), 3),
    ] {
        let object = deployments.merge(target, &patch).await?.ok()?;
        assert_eq!(
            object["metadata"]["generation"], generation,
            "after {patch} to {target}"
        );
    }
    Ok(())
}
