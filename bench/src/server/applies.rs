//! Server-side apply of Deployments of various sizes.

use anyhow::ensure;
use http::Request;
use serde_json::{Value, json};

use super::loads::{Load, Throughput};

impl Load {
    /// Applies an unchanged configuration.
    pub(super) async fn apply_unchanged(
        &self,
        kilobytes: usize,
        at_once: usize,
        times: usize,
    ) -> anyhow::Result<Throughput> {
        let path = path(kilobytes);
        let body = deployment(kilobytes, "1").to_string();
        ensure!(
            (kilobytes * 900..kilobytes * 1_150).contains(&body.len()),
            "{} bytes instead of {kilobytes} KB",
            body.len()
        );
        let requests =
            |count| -> anyhow::Result<Vec<_>> { (0..count).map(|_| apply(&path, &body)).collect() };
        self.rate(requests(1)?, 1).await?;
        self.rate(requests(times)?, at_once).await
    }

    /// Applies a different image every time.
    pub(super) async fn apply_changed(&self, kilobytes: usize, times: usize) -> anyhow::Result<Throughput> {
        let path = path(kilobytes);
        let changed = |time| apply(&path, &deployment(kilobytes, &format!("2.{time}")).to_string());
        let requests = (0..times).map(changed).collect::<anyhow::Result<_>>()?;
        self.rate(requests, 1).await
    }
}

fn apply(path: &str, body: &str) -> anyhow::Result<Request<Vec<u8>>> {
    let request = Request::patch(path).header("content-type", "application/apply-patch+yaml");
    Ok(request.body(body.as_bytes().to_vec())?)
}

fn path(kilobytes: usize) -> String {
    format!("/apis/apps/v1/namespaces/few/deployments/size-{kilobytes}?fieldManager=bench")
}

/// Creates a Deployment with one container, padded to the size by environment variables.
fn deployment(kilobytes: usize, tag: &str) -> Value {
    let labels =
        json!({"app.kubernetes.io/name": "bench", "app.kubernetes.io/instance": format!("size-{kilobytes}")});
    let env: Vec<_> = (0..kilobytes * 21 - 14)
        .map(|n| json!({"name": format!("SETTING_{n:05}"), "value": format!("value-{n:05}")}))
        .collect();
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": format!("size-{kilobytes}"), "labels": labels},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{
                        "name": "main",
                        "image": format!("registry.example.com/bench:{tag}"),
                        "args": ["--verbose", "--address=:8080"],
                        "env": env,
                        "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
                        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
                        "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings", "readOnly": true}],
                    }],
                    "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
                },
            },
        },
    })
}
