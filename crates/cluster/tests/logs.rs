//! Container logs of the embedded backend.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{LogParams, PostParams},
};
use serde_json::json;
use windlass_cluster::Cluster;

#[tokio::test]
async fn tests_write_container_logs() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::embedded().start().await?;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }))?;
    let pod = pods.create(&PostParams::default(), &pod).await?;
    let logs = cluster
        .logs()
        .ok_or("an embedded cluster's logs are written by hand")?;
    logs.print(
        &pod.metadata.uid.ok_or("a created object has a uid")?,
        "c",
        "hello\nworld",
    );
    assert_eq!(pods.logs("p", &LogParams::default()).await?, "hello\nworld\n");
    Ok(())
}
