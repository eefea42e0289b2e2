//! A hostile client: a user with permissions in its own namespace, who sends requests that once brought the server
//! down.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, sync::watch, time::timeout};

use super::endpoint::{Endpoint, Protocol};

/// The namespace in which the hostile user has the role `admin`.
pub(crate) const NAMESPACE: &str = "hostile";

/// How long stalled connections are held open.
const STALL_TIME: Duration = Duration::from_secs(5);

/// A request that is cheap for its sender.
struct Attack {
    name: &'static str,
    method: &'static str,
    target: String,
    content_type: &'static str,
    body: Bytes,
}

/// Number of attacks by name and response.
pub(crate) type Tally = BTreeMap<String, BTreeMap<String, u64>>;

/// Attacks until `stop` is set. `progress` has the names of the last and the current attack.
pub(crate) async fn attack(
    endpoint: Endpoint,
    progress: watch::Sender<[&'static str; 2]>,
    mut stop: watch::Receiver<bool>,
) -> Tally {
    let attacks = requests();
    let begin = |name| progress.send_modify(|[last, now]| *last = std::mem::replace(now, name));
    let mut tally = Tally::new();
    let mut note = |name: &str, outcome: String| {
        *tally
            .entry(name.to_owned())
            .or_default()
            .entry(outcome)
            .or_default() += 1;
    };
    loop {
        for attack in &attacks {
            begin(attack.name);
            tokio::select! {
                outcome = send(&endpoint, attack) => note(attack.name, outcome),
                _ = stop.wait_for(|stop| *stop) => return tally,
            }
        }
        for (name, stall) in [
            ("silent connections", Stall::Silent),
            ("slow headers", Stall::Headers),
            ("half a body", Stall::Body),
        ] {
            begin(name);
            tokio::select! {
                outcome = stall_connections(&endpoint, stall) => note(name, outcome),
                _ = stop.wait_for(|stop| *stop) => return tally,
            }
        }
        begin("stream resets");
        tokio::select! {
            outcome = reset_streams(&endpoint) => note("stream resets", outcome),
            _ = stop.wait_for(|stop| *stop) => return tally,
        }
        for attack in &clean_up() {
            begin(attack.name);
            tokio::select! {
                outcome = send(&endpoint, attack) => note(attack.name, outcome),
                _ = stop.wait_for(|stop| *stop) => return tally,
            }
        }
    }
}

async fn send(endpoint: &Endpoint, attack: &Attack) -> String {
    let response = async {
        let mut connection = endpoint.connect(Protocol::Http1).await?;
        connection
            .send(
                attack.method,
                &attack.target,
                attack.content_type,
                attack.body.clone(),
            )
            .await
    };
    match response.await {
        Ok(response) => response.code.to_string(),
        Err(error) => format!("{error:#}").chars().take(60).collect(),
    }
}

fn requests() -> Vec<Attack> {
    let core = |plural: &str| format!("/api/v1/namespaces/{NAMESPACE}/{plural}");
    let json = "application/json";
    let post = |name, target: String, body: String| Attack {
        name,
        method: "POST",
        target,
        content_type: json,
        body: body.into(),
    };
    let patch = |name, content_type, body: String| Attack {
        name,
        method: "PATCH",
        target: core("configmaps/victim"),
        content_type,
        body: body.into(),
    };
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
    let roles = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles");
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    vec![
        post("the victim", core("configmaps"), json!({"metadata": {"name": "victim"}, "data": {"a": "b"}}).to_string()),
        post("deep JSON", core("configmaps"), "{\"a\":".repeat(200_000) + "1" + &"}".repeat(200_000)),
        patch(
            "deep JSON patch",
            "application/json-patch+json",
            format!(r#"[{{"op":"add","path":"/metadata/annotations","value":{}}}]"#, nested(130_000)),
        ),
        patch("JSON patch that moves into itself", "application/json-patch+json", moves()),
        patch(
            "finalizers in a strategic merge patch",
            "application/strategic-merge-patch+json",
            json!({"metadata": {"finalizers": (0..20_000).map(|n| format!("a.io/f{n}")).collect::<Vec<_>>()}}).to_string(),
        ),
        post("duplicate keys", reviews, duplicates(100_000)),
        post("managed fields", core("configmaps"), managed_fields(12_000)),
        post("16,000 ports", core("services"), ports(16_000)),
        post("volumes with mounts", core("pods"), volumes(6_000)),
        post("a role that is a product", roles, large_role()),
        post("40,000 warnings", format!("{}?dryRun=All", core("configmaps")), unknown_fields(40_000)),
    ]
}

/// Deletes what the attacks of a round created. A namespace may store up to half of `Limits::stored_bytes`, a gigabyte, so
/// objects that pile up would hide a leak. The victim keeps its finalizers.
fn clean_up() -> Vec<Attack> {
    let core = format!("/api/v1/namespaces/{NAMESPACE}");
    let roles = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles");
    [
        format!("{core}/configmaps?fieldSelector=metadata.name!%3Dvictim"),
        format!("{core}/services"),
        format!("{core}/pods?gracePeriodSeconds=0"),
        roles,
    ]
    .into_iter()
    .map(|target| Attack {
        name: "deletion of its objects",
        method: "DELETE",
        target,
        content_type: "application/json",
        body: Bytes::new(),
    })
    .collect()
}

/// Each operation nests the tree one level deeper.
fn moves() -> String {
    let mut operations = vec![json!({"op": "add", "path": "/data", "value": {"x": {}}})];
    for _ in 0..3_000 {
        operations.push(json!({"op": "add", "path": "/y", "value": {}}));
        operations.push(json!({"op": "move", "from": "/data", "path": "/y/d"}));
        operations.push(json!({"op": "move", "from": "/y", "path": "/data"}));
    }
    Value::from(operations).to_string()
}

fn duplicates(count: usize) -> String {
    let mut body = r#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"get"}}"#.to_owned();
    for number in 0..count {
        write!(body, r#","k{number}":1,"k{number}":2"#).expect("text");
    }
    body + "}"
}

fn managed_fields(count: usize) -> String {
    let fields: serde_json::Map<String, Value> = (0..count)
        .map(|number| (format!("f:key-{number}"), json!({})))
        .collect();
    let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": fields}});
    json!({"metadata": {"generateName": "managed-", "managedFields": [entry]}}).to_string()
}

fn ports(count: usize) -> String {
    let ports: Vec<Value> = (1..=count)
        .map(|number| json!({"name": format!("p{number}"), "port": number}))
        .collect();
    json!({"metadata": {"generateName": "ports-"}, "spec": {"ports": ports}}).to_string()
}

fn volumes(count: usize) -> String {
    let volumes: Vec<Value> = (0..count)
        .map(|number| json!({"name": format!("v{number}"), "emptyDir": {}}))
        .collect();
    let mounts: Vec<Value> = (0..count)
        .map(|number| json!({"name": format!("v{number}"), "mountPath": format!("/m/{number}")}))
        .collect();
    let container = json!({"name": "c", "image": "i", "volumeMounts": mounts});
    json!({"metadata": {"generateName": "volumes-"}, "spec": {"containers": [container], "volumes": volumes}})
        .to_string()
}

fn large_role() -> String {
    let list = |prefix: &str| {
        (0..400)
            .map(|number| format!("{prefix}{number}"))
            .collect::<Vec<_>>()
    };
    let rule = json!({"apiGroups": list("g"), "resources": list("r"), "verbs": list("v"), "resourceNames": list("n")});
    json!({"metadata": {"generateName": "product-"}, "rules": [rule]}).to_string()
}

fn unknown_fields(count: usize) -> String {
    let mut body = r#"{"metadata":{"generateName":"warnings-"}"#.to_owned();
    for number in 0..count {
        write!(body, r#","u{number}":1"#).expect("text");
    }
    body + "}"
}

/// Where a connection stalls.
#[derive(Clone, Copy)]
enum Stall {
    Silent,
    Headers,
    Body,
}

/// Opens fifty connections that stall for a few seconds.
async fn stall_connections(endpoint: &Endpoint, stall: Stall) -> String {
    let mut tcp = Vec::new();
    let mut tls = Vec::new();
    for _ in 0..50 {
        if let Stall::Silent = stall {
            tcp.extend(endpoint.tcp().await.ok());
            continue;
        }
        let Ok(mut stream) = endpoint.tls(Protocol::Http1).await else {
            continue;
        };
        let Ok(text) = endpoint.head("POST", "/api/v1/namespaces/hostile/configmaps", 1_000_000) else {
            continue;
        };
        let sent = match stall {
            Stall::Headers => &text.as_bytes()[..text.len() / 2],
            _ => text.as_bytes(),
        };
        if stream.write_all(sent).await.is_ok() && stream.flush().await.is_ok() {
            tls.push(stream);
        }
    }
    let opened = tcp.len() + tls.len();
    for _ in 0..5 {
        tokio::time::sleep(STALL_TIME / 5).await;
        for stream in &mut tls {
            let more: &[u8] = if matches!(stall, Stall::Headers) {
                b"x"
            } else {
                b" "
            };
            timeout(Duration::from_millis(50), stream.write_all(more))
                .await
                .ok();
        }
    }
    format!("{opened} of 50 opened")
}

/// Sends a thousand requests on one HTTP/2 connection and resets each immediately.
async fn reset_streams(endpoint: &Endpoint) -> String {
    let work = async {
        let connection = endpoint.connect(Protocol::Http2).await?;
        let sender = connection.multiplexed().context("HTTP/2")?;
        let mut resets = 0;
        for _ in 0..1_000 {
            let target = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
            let mut request = endpoint.request("GET", &target, "", Bytes::new())?;
            request.headers_mut().remove("host");
            let mut sender = sender.clone();
            if sender.ready().await.is_err() {
                break;
            }
            let response = sender.send_request(request.map(|body: Full<Bytes>| body));
            // Poll once, so that the request is sent, then drop it.
            timeout(Duration::from_micros(200), response).await.ok();
            resets += 1;
        }
        anyhow::Ok(resets)
    };
    match timeout(Duration::from_mins(1), work).await {
        Ok(Ok(1_000)) => "all of 1,000".to_owned(),
        Ok(Ok(_)) => "cut off".to_owned(),
        Ok(Err(error)) => format!("{error:#}").chars().take(60).collect(),
        Err(_) => "no end within a minute".to_owned(),
    }
}
