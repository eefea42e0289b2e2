//! `/metrics`: requests, latencies, watches, stored objects and requests in flight, under kube-apiserver's names.

use crate::client::{read, send};

use http_body_util::BodyExt as _;
use serde_json::json;
use windlass_apiserver::Server;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The lines of `/metrics`.
async fn scrape(server: &Server) -> Vec<String> {
    let response = send(server, "GET", "/metrics", None, "").await;
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8(body.to_vec()).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[track_caller]
fn assert_has(lines: &[String], expected: &str) {
    let name = expected.split('{').next().unwrap_or_default();
    let alike: Vec<_> = lines.iter().filter(|line| line.starts_with(name)).collect();
    assert!(
        alike.iter().any(|line| *line == expected),
        "{expected}: {alike:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_verb_resource_scope_and_code() {
    let server = Server::new();
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}}).to_string();
    for (method, path, content_type, body, code) in [
        ("POST", MAPS.to_owned(), None, &*map, 201),
        ("POST", MAPS.to_owned(), None, &*map, 409),
        ("POST", format!("{MAPS}?dryRun=All"), None, &*map, 409),
        ("GET", format!("{MAPS}/a"), None, "", 200),
        ("GET", format!("{MAPS}/none"), None, "", 404),
        ("GET", MAPS.to_owned(), None, "", 200),
        ("GET", "/api/v1/configmaps".to_owned(), None, "", 200),
        ("PATCH", format!("{MAPS}/a"), None, r#"{"data": {"k": "w"}}"#, 200),
        (
            "PATCH",
            format!("{MAPS}/a?fieldManager=m&force=true"),
            Some("application/apply-patch+yaml"),
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "x"}}"#,
            200,
        ),
        ("DELETE", format!("{MAPS}/a"), None, "", 200),
        ("GET", "/readyz".to_owned(), None, "", 200),
    ] {
        let (found, answer) = read(send(&server, method, &path, content_type, body.to_owned()).await).await;
        assert_eq!(found, code, "{method} {path}: {answer}");
    }
    let lines = scrape(&server).await;
    let total = |code: u16, scope: &str, verb: &str, count: u64, dry_run: &str| {
        format!(
            "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"{dry_run}\",group=\"\",\
             resource=\"configmaps\",scope=\"{scope}\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}} {count}"
        )
    };
    for line in [
        total(201, "namespace", "POST", 1, ""),
        total(409, "namespace", "POST", 1, ""),
        total(409, "namespace", "POST", 1, "All"),
        total(200, "resource", "GET", 1, ""),
        total(404, "resource", "GET", 1, ""),
        total(200, "namespace", "LIST", 1, ""),
        total(200, "cluster", "LIST", 1, ""),
        total(200, "resource", "PATCH", 1, ""),
        total(200, "resource", "APPLY", 1, ""),
        total(200, "resource", "DELETE", 1, ""),
    ] {
        assert_has(&lines, &line);
    }
    assert_has(
        &lines,
        "apiserver_request_total{code=\"200\",component=\"\",dry_run=\"\",group=\"\",resource=\"\",scope=\"\",\
         subresource=\"/readyz\",verb=\"GET\",version=\"\"} 1",
    );
    // The two GETs of an object are one histogram.
    let labels = "component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"resource\",subresource=\"\",\
                  verb=\"GET\",version=\"v1\"";
    for line in [
        format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.005\"}} 2"),
        format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
        format!("apiserver_request_duration_seconds_sum{{{labels}}} 0"),
        format!("apiserver_request_duration_seconds_count{{{labels}}} 2"),
    ] {
        assert_has(&lines, &line);
    }
}

#[tokio::test]
async fn open_watches_stored_objects_and_requests_in_flight_are_gauges() {
    let server = Server::new();
    let labels = "component=\"apiserver\",group=\"\",resource=\"configmaps\",scope=\"namespace\",subresource=\"\",\
                  verb=\"WATCH\",version=\"v1\"";
    let watch = send(&server, "GET", &format!("{MAPS}?watch=true"), None, "").await;
    let lines = scrape(&server).await;
    assert_has(&lines, &format!("apiserver_longrunning_requests{{{labels}}} 1"));
    assert_has(
        &lines,
        "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1",
    );
    assert_has(
        &lines,
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0",
    );
    assert_has(
        &lines,
        "apiserver_resource_objects{group=\"\",resource=\"namespaces\"} 4",
    );
    assert_has(&lines, "apiserver_storage_objects{resource=\"namespaces\"} 4");
    assert_has(
        &lines,
        "apiserver_storage_objects{resource=\"deployments.apps\"} 0",
    );
    drop(watch);
    let lines = scrape(&server).await;
    assert!(
        !lines
            .iter()
            .any(|line| line.starts_with("apiserver_longrunning_requests{"))
    );
}

/// Names and paths of clients must not become labels: they could make more and more of them.
#[tokio::test]
async fn text_of_requests_is_no_label() {
    let server = Server::new();
    let count = async || {
        let lines = scrape(&server).await;
        lines
            .iter()
            .filter(|line| line.starts_with("apiserver_request_total"))
            .count()
    };
    // The first scrape counts itself in the second.
    count().await;
    send(&server, "GET", "/nowhere", None, "").await;
    send(&server, "GET", &format!("{MAPS}/nowhere"), None, "").await;
    send(&server, "GET", "/api/v1/nowhere", None, "").await;
    let before = count().await;
    for number in 0..100 {
        for path in [
            format!("/nowhere-{number}"),
            format!("{MAPS}/a-{number}"),
            format!("/api/v1/namespaces/ns-{number}/configmaps/a"),
            format!("/api/v1/nowhere-{number}"),
        ] {
            send(&server, "GET", &path, None, "").await;
        }
    }
    assert_eq!(count().await, before);
}

#[tokio::test]
async fn deleted_kubernetes_service_comes_back() {
    let server = Server::builder().kubernetes_service(6443).build();
    let path = "/api/v1/namespaces/default/services/kubernetes";
    let (_, before) = read(send(&server, "GET", path, None, "").await).await;
    assert_eq!(read(send(&server, "DELETE", path, None, "").await).await.0, 200);
    let (code, after) = read(send(&server, "GET", path, None, "").await).await;
    assert_eq!(code, 200);
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    for field in [
        "/spec/clusterIP",
        "/spec/ports/0/targetPort",
        "/metadata/labels/component",
    ] {
        assert_eq!(before.pointer(field), after.pointer(field), "{field}");
        assert!(after.pointer(field).is_some(), "{field}");
    }
    // Without one, it stays away.
    let server = Server::new();
    assert_eq!(read(send(&server, "GET", path, None, "").await).await.0, 404);
}

#[tokio::test]
async fn explained_fields_have_descriptions() {
    let server = Server::new();
    let (code, document) = read(send(&server, "GET", "/openapi/v3/apis/apps/v1", None, "").await).await;
    assert_eq!(code, 200);
    let schemas = &document["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    let text = deployment["description"].as_str().unwrap_or_default();
    assert!(
        text.starts_with("Keeps a number of equal pods running")
            && text.contains("https://kubernetes.io/docs/"),
        "{text}"
    );
    let spec = &schemas["io.k8s.api.apps.v1.DeploymentSpec"];
    assert_eq!(
        spec["properties"]["replicas"]["description"],
        "The number of pods. Default: 1."
    );
    // Beside a reference too.
    assert_eq!(
        spec["properties"]["template"]["description"],
        "The pods to create."
    );
    assert!(spec["properties"]["template"]["allOf"].is_array());
}
