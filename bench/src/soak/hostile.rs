//! One client that means harm: a user with rights in a namespace of its own, who sends what once brought the server down.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, sync::watch, time::timeout};

use super::wire::{Protocol, Wire};

/// The namespace in which the hostile user may do what the role `admin` allows.
pub(crate) const NAMESPACE: &str = "hostile";

/// How long connections that do not go on are held.
const HELD: Duration = Duration::from_secs(5);

/// A request that costs its sender little.
struct Attack {
    name: &'static str,
    method: &'static str,
    target: String,
    content_type: &'static str,
    body: Bytes,
}

/// How often each attack was made, by what was answered.
pub(crate) type Tally = BTreeMap<String, BTreeMap<String, u64>>;

/// Attacks until it is told to stop. `progress` has the names of the last attack and of the one that is under way.
pub(crate) async fn attack(
    wire: Wire,
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
                outcome = send(&wire, attack) => note(attack.name, outcome),
                _ = stop.wait_for(|stop| *stop) => return tally,
            }
        }
        for (name, held) in [
            ("silent connections", Held::Silent),
            ("slow headers", Held::Headers),
            ("half a body", Held::Body),
        ] {
            begin(name);
            tokio::select! {
                outcome = hold(&wire, held) => note(name, outcome),
                _ = stop.wait_for(|stop| *stop) => return tally,
            }
        }
        begin("stream resets");
        tokio::select! {
            outcome = reset(&wire) => note("stream resets", outcome),
            _ = stop.wait_for(|stop| *stop) => return tally,
        }
        for attack in &clean_up() {
            begin(attack.name);
            tokio::select! {
                outcome = send(&wire, attack) => note(attack.name, outcome),
                _ = stop.wait_for(|stop| *stop) => return tally,
            }
        }
    }
}

async fn send(wire: &Wire, attack: &Attack) -> String {
    let answer = async {
        let mut line = wire.connect(Protocol::Http1).await?;
        line.send(
            attack.method,
            &attack.target,
            attack.content_type,
            attack.body.clone(),
        )
        .await
    };
    match answer.await {
        Ok(answer) => answer.code.to_string(),
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
        post("a role that is a product", roles, product()),
        post("40,000 warnings", format!("{}?dryRun=All", core("configmaps")), unknown_fields(40_000)),
    ]
}

/// Deletes what the attacks of a round created. What a tenant stores is bounded by its administrator (a ResourceQuota), not by the server, so
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

/// Each operation makes the tree one level deeper.
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

fn product() -> String {
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

/// Where a connection stops.
#[derive(Clone, Copy)]
enum Held {
    Silent,
    Headers,
    Body,
}

/// Fifty connections that do not go on, for a few seconds.
async fn hold(wire: &Wire, held: Held) -> String {
    let mut tcp = Vec::new();
    let mut tls = Vec::new();
    for _ in 0..50 {
        if let Held::Silent = held {
            tcp.extend(wire.tcp().await.ok());
            continue;
        }
        let Ok(mut stream) = wire.tls(Protocol::Http1).await else {
            continue;
        };
        let Ok(text) = wire.head("POST", "/api/v1/namespaces/hostile/configmaps", 1_000_000) else {
            continue;
        };
        let sent = match held {
            Held::Headers => &text.as_bytes()[..text.len() / 2],
            _ => text.as_bytes(),
        };
        if stream.write_all(sent).await.is_ok() && stream.flush().await.is_ok() {
            tls.push(stream);
        }
    }
    let opened = tcp.len() + tls.len();
    for _ in 0..5 {
        tokio::time::sleep(HELD / 5).await;
        for stream in &mut tls {
            let more: &[u8] = if matches!(held, Held::Headers) { b"x" } else { b" " };
            timeout(Duration::from_millis(50), stream.write_all(more))
                .await
                .ok();
        }
    }
    format!("{opened} of 50 opened")
}

/// A thousand requests on one connection of HTTP/2, each taken back at once.
async fn reset(wire: &Wire) -> String {
    let work = async {
        let line = wire.connect(Protocol::Http2).await?;
        let sender = line.multiplexed().context("HTTP/2")?;
        let mut reset = 0;
        for _ in 0..1_000 {
            let target = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
            let mut request = wire.request("GET", &target, "", Bytes::new())?;
            request.headers_mut().remove("host");
            let mut sender = sender.clone();
            if sender.ready().await.is_err() {
                break;
            }
            let answer = sender.send_request(request.map(|body: Full<Bytes>| body));
            // Polled once, so that it is sent, and dropped.
            timeout(Duration::from_micros(200), answer).await.ok();
            reset += 1;
        }
        anyhow::Ok(reset)
    };
    match timeout(Duration::from_mins(1), work).await {
        Ok(Ok(1_000)) => "all of 1,000".to_owned(),
        Ok(Ok(_)) => "cut off".to_owned(),
        Ok(Err(error)) => format!("{error:#}").chars().take(60).collect(),
        Err(_) => "no end within a minute".to_owned(),
    }
}
