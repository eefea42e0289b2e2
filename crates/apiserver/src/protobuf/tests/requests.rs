//! Responses to protobuf requests.

use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{MAGIC, MEDIA_TYPE, body, field, named, number};
use crate::Server;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn send(server: &Server, method: &str, path: &str, kind: &str, body: Vec<u8>) -> (StatusCode, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, kind)
        .header(header::ACCEPT, format!("{MEDIA_TYPE},application/json"))
        .body(http_body_util::Full::<bytes::Bytes>::from(body))
        .expect("a request");
    let response = server.clone().oneshot(request).await.expect("never fails");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    let status = response.status();
    let bytes = response
        .into_body()
        .collect()
        .await
        .expect("never fails")
        .to_bytes();
    (status, serde_json::from_slice(&bytes).expect("JSON"))
}

async fn send_protobuf(server: &Server, method: &str, path: &str, body: Vec<u8>) -> (u16, Value) {
    let (status, value) = send(server, method, path, MEDIA_TYPE, body).await;
    (status.as_u16(), value)
}

fn config_map(value: &str) -> Vec<u8> {
    let entry = [field(1, "k"), field(2, value)].concat();
    body("v1", "ConfigMap", &[named("a"), field(2, entry)])
}

#[tokio::test]
async fn objects_are_created_updated_and_deleted_in_protobuf() {
    let server = Server::new();
    let (code, created) = send_protobuf(&server, "POST", CONFIG_MAPS, config_map("v")).await;
    assert_eq!((code, &created["data"]), (201, &json!({"k": "v"})));
    let one = format!("{CONFIG_MAPS}/a");
    let (code, updated) = send_protobuf(&server, "PUT", &one, config_map("w")).await;
    assert_eq!((code, &updated["data"]), (200, &json!({"k": "w"})));
    assert_eq!(updated["metadata"]["uid"], created["metadata"]["uid"]);
    // client-go sends a uid precondition: another uid must prevent the deletion.
    let options = |uid: &str| body("v1", "DeleteOptions", &[field(2, field(1, uid))]);
    let (code, refused) = send_protobuf(&server, "DELETE", &one, options("other")).await;
    assert_eq!(code, 409, "{refused}");
    let uid = created["metadata"]["uid"].as_str().expect("set");
    let (code, answer) = send_protobuf(&server, "DELETE", &one, options(uid)).await;
    assert_eq!(code, 200, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn protobuf_and_json_create_the_same_object() {
    let container = [field(1, "c"), field(2, "image")].concat();
    let template = [
        field(1, field(11, [field(1, "app"), field(2, "a")].concat())),
        field(2, field(2, container)),
    ];
    let selector = field(1, [field(1, "app"), field(2, "a")].concat());
    let spec = [number(1, 0), field(2, selector), field(3, template.concat())].concat();
    let bytes = body("apps/v1", "Deployment", &[named("d"), field(2, spec)]);
    let tree = super::decode(&bytes, "", "").expect("well formed");
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let epoch = jiff::Timestamp::UNIX_EPOCH;
    let server = || Server::seeded(1).epoch(epoch).build();
    let json = tree.to_string().into_bytes();
    let from_json = send(&server(), "POST", path, "application/json", json).await;
    let from_protobuf = send(&server(), "POST", path, MEDIA_TYPE, bytes).await;
    assert_eq!(from_protobuf.0, 201);
    assert_eq!(from_protobuf.1["spec"]["replicas"], 0);
    assert_eq!(from_json, from_protobuf);
}

#[tokio::test]
async fn invalid_body_is_a_bad_request_with_the_real_servers_message() {
    let server = Server::new();
    for (bytes, message) in [
        (
            vec![],
            "the object provided is unrecognized (must be of type ConfigMap): empty data (<empty>)",
        ),
        (
            MAGIC.to_vec(),
            "the object provided is unrecognized (must be of type ConfigMap): empty body (6b387300)",
        ),
        (
            b"{\"a\":1}".to_vec(),
            "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a \
             protobuf message, expected prefix [107 56 115 0] ({\"a\":1})",
        ),
        (
            body("v1", "ConfigMap", &[vec![0x12, 0x50]]),
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: unexpected EOF",
        ),
        (
            body("v1", "Secret", &[named("a")]),
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): \
             unknown conversion",
        ),
        (
            body("v1", "Foo", &[named("a")]),
            "Foo in version \"v1\" cannot be handled as a ConfigMap: no kind \"Foo\" is registered for version \"v1\" \
             in scheme \"pkg/runtime/scheme.go:111\"",
        ),
    ] {
        let (code, status) = send_protobuf(&server, "POST", CONFIG_MAPS, bytes).await;
        assert_eq!((code, &status["message"]), (400, &json!(message)));
    }
    for (bytes, message) in [
        (body("v1", "DeleteOptions", &[vec![8]]), "unexpected EOF"),
        (
            body("v1", "ConfigMap", &[]),
            "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
    ] {
        let path = format!("{CONFIG_MAPS}/a");
        let (code, status) = send_protobuf(&server, "DELETE", &path, bytes).await;
        assert_eq!((code, &status["message"]), (400, &json!(message)));
    }
}

#[tokio::test]
async fn custom_resources_reject_protobuf_except_delete_options() {
    let server = Server::new();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let json = "application/json";
    let (status, answer) = send(&server, "POST", crds, json, crd.to_string().into_bytes()).await;
    assert_eq!(status, 201, "{answer}");
    let foos = "/apis/example.com/v1/namespaces/default/foos";
    let (code, status) = send_protobuf(
        &server,
        "POST",
        foos,
        body("example.com/v1", "Foo", &[named("f")]),
    )
    .await;
    assert_eq!((code, &status["reason"]), (415, &json!("UnsupportedMediaType")));
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}});
    let (status, answer) = send(&server, "POST", foos, json, foo.to_string().into_bytes()).await;
    assert_eq!(status, 201, "{answer}");
    let options = body("example.com/v1", "DeleteOptions", &[field(4, "Foreground")]);
    let (code, answer) = send_protobuf(&server, "DELETE", &format!("{foos}/f"), options).await;
    assert_eq!(
        (code, &answer["metadata"]["finalizers"]),
        (200, &json!(["foregroundDeletion"]))
    );
}

#[tokio::test]
async fn unsupported_content_type_lists_protobuf_as_accepted() {
    let (status, answer) = send(&Server::new(), "POST", CONFIG_MAPS, "application/xml", vec![]).await;
    let message = "the body of the request was in an unknown format - accepted media types include: \
                   application/json, application/yaml, application/vnd.kubernetes.protobuf";
    assert_eq!((status.as_u16(), &answer["message"]), (415, &json!(message)));
}
