//! The shipped rights.

use http::StatusCode;
use serde_json::json;
use windlass::{k8s_openapi::api::apps::v1::Deployment, runtime::ElectionConfig};
use windlass_foo::Foo;
use windlass_suite::{Context as Case, RecordedRequest, RunningManager};

use crate::foo::fixture::{Fixture, add_controller, shipped};

/// All cases run with the shipped rights. This one needs each of them.
pub(crate) async fn shipped_rights_are_sufficient_and_minimal(case: Case) -> anyhow::Result<()> {
    let rights = shipped();
    let env = Fixture::with(&case, &rights).await?;
    // A server without streaming lists makes the caches list.
    let streams = |sent: &RecordedRequest| sent.access.verb == "watch";
    env.proxy().reject(2, StatusCode::UNPROCESSABLE_ENTITY, streams);
    let manager = add_controller(env.manager()).elect(ElectionConfig::new("foo"));
    let running = RunningManager::start(manager);
    env.create_foo("example", "web", Some(1)).await?;
    env.wait_for_status("example").await?;
    let renamed = json!({ "spec": { "deploymentName": "renamed" } });
    env.patch::<Foo>("example", renamed).await?;
    let first = env.wait_for::<Deployment>("renamed", |_| true).await?;
    env.wait_until_deleted::<Deployment>("web").await?;
    env.wait_until_processed().await?;
    env.delete::<Deployment>("renamed").await?;
    let is_another = |now: &Deployment| now.metadata.uid != first.metadata.uid;
    env.wait_for("renamed", is_another).await?;
    env.wait_until_processed().await?;
    running.stop().await?;
    assert_eq!(rights.forbidden(), [""; 0]);
    assert_eq!(rights.unused(), [], "unused rights");
    Ok(())
}
