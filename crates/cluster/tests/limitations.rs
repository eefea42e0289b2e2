//! What an embedded cluster lacks is announced to the client that needs it.

use anyhow::{Context as _, Result};
use http::{Request, header};
use kube::client::Body;
use serde_json::{Value, json};
use windlass_cluster::Cluster;

/// Sends an object, and returns the status code and the texts of the warnings.
async fn send(cluster: &Cluster, method: &str, path: &str, object: &Value) -> Result<(u16, Vec<String>)> {
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .body(Body::from(serde_json::to_vec(object)?))?;
    let response = cluster.client().send(request).await?;
    let mut warnings = Vec::new();
    for warning in response.headers().get_all(header::WARNING) {
        let text = warning.to_str()?.strip_prefix("299 - ").context("a code")?;
        warnings.push(serde_json::from_str(text)?);
    }
    Ok((response.status().as_u16(), warnings))
}

fn pod_template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}})
}

/// Its pods ask for what the scheduler ignores.
fn spread_template() -> Value {
    let selector = json!({"matchLabels": {"app": "web"}});
    let term = json!({"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"});
    let mut template = pod_template();
    template["spec"]["affinity"] =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    template["spec"]["topologySpreadConstraints"] = json!([
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector},
    ]);
    template
}

/// Its pods ask for what the scheduler considers.
fn linux_template() -> Value {
    let is_linux = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    let mut template = pod_template();
    template["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [is_linux]}],
    }}});
    template
}

/// Path, object, and the beginning of each warning.
fn kinds_without_controller() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    let selector = json!({"matchLabels": {"app": "web"}});
    let (together, on_linux) = (spread_template(), linux_template());
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}});
    vec![
        (
            "/apis/apps/v1/namespaces/default/statefulsets",
            json!({"selector": selector, "serviceName": "web", "template": pod_template()}),
            vec!["this cluster has no StatefulSet controller: no pods are created"],
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            job.clone(),
            vec!["this cluster has no Job controller"],
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            json!({"schedule": "* * * * *", "jobTemplate": {"spec": job}}),
            vec!["this cluster has no CronJob controller"],
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}),
            vec!["this cluster has no HorizontalPodAutoscaler controller"],
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
            vec!["this cluster has no volume controller"],
        ),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            json!({"selector": {"app": "web"}, "template": pod_template()}),
            vec!["this cluster has no ReplicationController controller"],
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"}}),
            vec![
                "this cluster has no load balancers",
                "this cluster has no EndpointSlice controller",
            ],
        ),
        (
            "/api/v1/namespaces/default/resourcequotas",
            json!({"hard": {"pods": "1"}}),
            vec!["this cluster does not enforce quotas"],
        ),
        (
            "/api/v1/namespaces/default/limitranges",
            json!({"limits": [{"type": "Container", "default": {"cpu": "1"}}]}),
            vec!["this cluster does not enforce limit ranges"],
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
            json!({"podSelector": {}}),
            vec!["this cluster has no network between pods: nothing is allowed or denied"],
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            json!({"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}),
            vec!["this cluster has no Ingress controller: the Ingress gets no address"],
        ),
        (
            "/api/v1/namespaces/default/pods",
            together["spec"].clone(),
            vec!["the scheduler of this cluster ignores pod anti-affinity and topology spread constraints"],
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"selector": selector, "template": together}),
            vec!["the scheduler of this cluster ignores pod anti-affinity and topology spread constraints"],
        ),
        // Kinds that have their controller, and pods whose constraints are considered.
        (
            "/api/v1/namespaces/default/pods",
            on_linux["spec"].clone(),
            vec![],
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"selector": selector, "template": pod_template()}),
            vec![],
        ),
        (
            "/apis/apps/v1/namespaces/default/daemonsets",
            json!({"selector": selector, "template": pod_template()}),
            vec![],
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"ports": [{"port": 80}]}),
            vec![],
        ),
    ]
}

fn assert_warnings(found: &[String], expected: &[&str], about: &str) {
    let matches = found.len() == expected.len()
        && found
            .iter()
            .zip(expected)
            .all(|(found, expected)| found.starts_with(expected));
    assert!(matches, "{about}: found {found:?}, expected {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn kinds_without_a_controller_are_announced_once() -> Result<()> {
    let cluster = Cluster::embedded().controllers().start().await?;
    for (index, (path, spec, expected)) in kinds_without_controller().into_iter().enumerate() {
        let object = json!({"metadata": {"name": format!("o-{index}")}, "spec": spec});
        let (code, warnings) = send(&cluster, "POST", path, &object).await?;
        assert_eq!(code, 201, "{path}");
        assert_warnings(&warnings, &expected, path);
        // A later change is not announced again.
        let change = json!({"metadata": {"labels": {"a": "b"}}});
        let (code, warnings) = send(&cluster, "PATCH", &format!("{path}/o-{index}"), &change).await?;
        assert_eq!((code, &warnings[..]), (200, &[][..]), "{path}");
    }
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn service_that_becomes_a_load_balancer_is_announced() -> Result<()> {
    let cluster = Cluster::embedded().controllers().start().await?;
    let path = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(send(&cluster, "POST", path, &service).await?, (201, vec![]));
    let change = json!({"spec": {"type": "LoadBalancer"}});
    let (_, warnings) = send(&cluster, "PATCH", &format!("{path}/web"), &change).await?;
    assert_warnings(&warnings, &["this cluster has no load balancers"], path);
    cluster.stop().await;
    Ok(())
}

/// A real controller manager may run there.
#[tokio::test(start_paused = true)]
async fn cluster_without_controllers_does_not_announce_their_absence() -> Result<()> {
    let cluster = Cluster::embedded().start().await?;
    for (index, (path, spec, _)) in kinds_without_controller().into_iter().enumerate() {
        let object = json!({"metadata": {"name": format!("o-{index}")}, "spec": spec});
        assert_eq!(
            send(&cluster, "POST", path, &object).await?,
            (201, vec![]),
            "{path}"
        );
    }
    cluster.stop().await;
    Ok(())
}

/// Rules, policies and webhooks are enforced; APIs that another server would serve are not.
#[tokio::test(start_paused = true)]
async fn only_aggregated_apis_are_announced() -> Result<()> {
    let cluster = Cluster::embedded().start().await?;
    let client = json!({"url": "https://example.com/"});
    let rules = json!([{"rule": "self.size > 0"}]);
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}}, "x-kubernetes-validations": rules});
    let definition = json!({"metadata": {"name": "boxes.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
        "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": spec},
        }}}],
    }});
    let webhook = json!({
        "name": "a.example.com", "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    let webhooks = json!({"metadata": {"name": "a"}, "webhooks": [webhook]});
    let service = json!({"metadata": {"name": "v1.example.io"}, "spec": {
        "group": "example.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
        "service": {"namespace": "default", "name": "a"},
    }});
    let not_served = "this server does not forward requests to other API servers: the API is not served";
    let admission = "admissionregistration.k8s.io/v1";
    for (path, object, expected) in [
        (
            "apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            &definition,
            None,
        ),
        (
            format!("{admission}/validatingwebhookconfigurations"),
            &webhooks,
            None,
        ),
        (
            format!("{admission}/mutatingwebhookconfigurations"),
            &webhooks,
            None,
        ),
        (
            "apiregistration.k8s.io/v1/apiservices".to_owned(),
            &service,
            Some(not_served),
        ),
    ] {
        let (code, warnings) = send(&cluster, "POST", &format!("/apis/{path}"), object).await?;
        assert_eq!(code, 201, "{path}");
        assert_warnings(&warnings, &Vec::from_iter(expected), &path);
    }
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn connections_to_pods_and_nodes_get_a_clear_error() -> Result<()> {
    let cluster = Cluster::embedded().nodes(1).start().await?;
    let pod = json!({"metadata": {"name": "web"}, "spec": pod_template()["spec"]});
    send(&cluster, "POST", "/api/v1/namespaces/default/pods", &pod).await?;
    let pod = "/api/v1/namespaces/default/pods/web";
    for (method, path, what) in [
        ("POST", format!("{pod}/exec?command=ls"), "pods/exec"),
        ("GET", format!("{pod}/exec?command=ls"), "pods/exec"),
        ("POST", format!("{pod}/attach"), "pods/attach"),
        ("POST", format!("{pod}/portforward"), "pods/portforward"),
        ("GET", format!("{pod}/proxy"), "pods/proxy"),
        ("GET", format!("{pod}/proxy/healthz"), "pods/proxy"),
        (
            "GET",
            "/api/v1/nodes/node-1/proxy/metrics".to_owned(),
            "nodes/proxy",
        ),
    ] {
        let request = Request::builder().method(method).uri(&path).body(Body::empty())?;
        let response = cluster.client().send(request).await?;
        assert_eq!(response.status(), 501, "{method} {path}");
        let body = response.into_body().collect_bytes().await?;
        let status: Value = serde_json::from_slice(&body)?;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with(&format!("{what} is not available: ")),
            "{message}"
        );
    }
    let (code, _) = send(
        &cluster,
        "POST",
        "/api/v1/namespaces/default/pods/none/exec",
        &Value::Null,
    )
    .await?;
    assert_eq!(code, 404, "a pod that does not exist");
    cluster.stop().await;
    Ok(())
}
