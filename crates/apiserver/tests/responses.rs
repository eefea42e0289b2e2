//! The same response in every form: JSON, YAML and tables, whole and in chunks, plain and compressed, fresh and not
//! modified.

use std::io::Read;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::{Server, storage::Memory};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const YAML_TABLE: &str = "application/yaml;as=Table;g=meta.k8s.io;v=v1";

struct Response {
    status: StatusCode,
    headers: HeaderMap,
    bytes: Bytes,
}

impl Response {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("JSON")
    }

    fn yaml(&self) -> Value {
        serde_yaml_ng::from_slice(&self.bytes).expect("YAML")
    }

    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

async fn send(server: &Server, request: Request<Full<Bytes>>) -> Response {
    let response = server.clone().oneshot(request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("never fails").to_bytes();
    Response {
        status: parts.status,
        headers: parts.headers,
        bytes,
    }
}

async fn get(server: &Server, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(server, request.body(Full::default()).expect("a request")).await
}

async fn post(server: &Server, path: &str, object: &Value) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Full::from(object.to_string()))
        .expect("a request");
    assert_eq!(send(server, request).await.status, 201);
}

/// Creates a server with more ConfigMaps than fit into one chunk of a list.
async fn server_with_many_config_maps() -> Server {
    let server = Server::new();
    for n in 0..300 {
        let data = json!({"text": "yes\n".repeat(n), "word": "0x1f", "empty": ""});
        post(
            &server,
            CONFIG_MAPS,
            &json!({"metadata": {"name": format!("m{n}")}, "data": data}),
        )
        .await;
    }
    server
}

#[tokio::test]
async fn list_is_the_same_in_every_encoding() {
    let server = server_with_many_config_maps().await;
    let list = get(&server, CONFIG_MAPS, &[]).await.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(300));
    let as_yaml = get(&server, CONFIG_MAPS, &[("accept", "application/yaml")]).await;
    assert_eq!(as_yaml.header("content-type"), "application/yaml");
    assert_eq!(as_yaml.yaml(), list);

    let table = get(&server, CONFIG_MAPS, &[("accept", TABLE)]).await.json();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"].as_array().map(Vec::len), Some(300));
    assert_eq!(
        table["rows"][7]["object"]["metadata"],
        list["items"][7]["metadata"]
    );
    let as_yaml = get(&server, CONFIG_MAPS, &[("accept", YAML_TABLE)]).await.yaml();
    assert_eq!(as_yaml["rows"][7]["object"], table["rows"][7]["object"]);
    assert_eq!(as_yaml["columnDefinitions"], table["columnDefinitions"]);

    let nothing = format!("{CONFIG_MAPS}?labelSelector=none");
    let empty = get(&server, &nothing, &[("accept", "application/yaml")]).await;
    assert_eq!(empty.yaml()["items"], json!([]));
}

// Tables contain ages, so the clock is paused: no second may pass between two responses.
#[tokio::test(start_paused = true)]
async fn compressed_list_decompresses_to_the_plain_list() {
    let server = server_with_many_config_maps().await;
    for accept in ["application/json", "application/yaml", TABLE] {
        let plain = get(&server, CONFIG_MAPS, &[("accept", accept)]).await;
        let compressed = get(
            &server,
            CONFIG_MAPS,
            &[("accept", accept), ("accept-encoding", "gzip")],
        )
        .await;
        assert_eq!(compressed.header("content-encoding"), "gzip", "{accept}");
        assert!(
            compressed.bytes.len() < plain.bytes.len() / 5,
            "{}",
            compressed.bytes.len()
        );
        let mut decompressed = Vec::new();
        flate2::read::GzDecoder::new(&compressed.bytes[..])
            .read_to_end(&mut decompressed)
            .expect("gzip");
        assert_eq!(decompressed, plain.bytes, "{accept}");
    }
    let small = get(
        &server,
        &format!("{CONFIG_MAPS}?limit=1"),
        &[("accept-encoding", "gzip")],
    )
    .await;
    assert_eq!(small.header("content-encoding"), "");
}

#[tokio::test]
async fn openapi_document_is_not_modified_until_a_crd_changes_it() {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let server = Server::new();
    let json = get(&server, "/openapi/v2", &[]).await;
    let protobuf = get(&server, "/openapi/v2", &[("accept", PROTOBUF)]).await;
    let tag = json.header("etag").to_owned();
    assert!(tag.starts_with('"') && tag.len() > 20, "{tag}");
    assert_eq!(protobuf.header("etag"), tag);
    assert_eq!(
        protobuf.header("content-type"),
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    );
    for accept in ["application/json", PROTOBUF] {
        let known = get(
            &server,
            "/openapi/v2",
            &[("accept", accept), ("if-none-match", &tag)],
        )
        .await;
        assert_eq!((known.status.as_u16(), known.bytes.len()), (304, 0));
    }
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    post(
        &server,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &definition,
    )
    .await;
    let changed = get(&server, "/openapi/v2", &[("if-none-match", &tag)]).await;
    assert_eq!(changed.status, 200);
    assert!(changed.json()["definitions"]["com.example.v1.Foo"].is_object());
    assert_ne!(changed.header("etag"), tag);
}

#[tokio::test]
async fn expired_continue_token_returns_410_with_a_token_for_the_current_state() {
    let server = Server::builder().storage(Memory::new(10)).build();
    let create = |name: &'static str| {
        let object = json!({"metadata": {"name": name}});
        let server = server.clone();
        async move { post(&server, CONFIG_MAPS, &object).await }
    };
    for name in ["a", "b", "c"] {
        create(name).await;
    }
    let page = get(&server, &format!("{CONFIG_MAPS}?limit=1"), &[]).await.json();
    let next = |list_page: &Value| list_page["metadata"]["continue"].as_str().map(str::to_owned);
    let token = next(&page).expect("there is more");
    for name in ["d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"] {
        create(name).await;
    }
    let expired = get(&server, &format!("{CONFIG_MAPS}?limit=1&continue={token}"), &[]).await;
    assert_eq!(expired.status, 410);
    let token = next(&expired.json()).expect("another token");
    let rest = get(&server, &format!("{CONFIG_MAPS}?continue={token}"), &[])
        .await
        .json();
    let names: Vec<_> = rest["items"].as_array().into_iter().flatten().collect();
    assert_eq!(names.len(), 14, "all but the first");
    assert_eq!(names[0]["metadata"]["name"], "b");
}
