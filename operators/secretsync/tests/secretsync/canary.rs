//! No value gets out: not into the log, events, status, metrics, nor what is written around the data.

use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Secret},
    kube::{Api, api::ListParams},
    prelude::{Resource, ResourceExt, json},
    serde::{Serialize, de::DeserializeOwned},
    serde_json::{self, Value},
};
use windlass_secretsync::{SecretSync, api::SYNC};
use windlass_suite::{Context as Case, Log, Sent};

use crate::world::{CANARY, HOME, World, namespace_of, secret};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The canary as it is, in base64 wherever it may begin, in hexadecimal, and as Rust shows bytes.
fn traces() -> Vec<String> {
    let hex: Vec<String> = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
    let bytes: Vec<String> = CANARY.bytes().map(|byte| byte.to_string()).collect();
    vec![
        CANARY.to_owned(),
        "YzRuNHJ5YzRuNHJ5".to_owned(),
        "M0bjRyeWM0bjRye".to_owned(),
        "jNG40cnljNG40cn".to_owned(),
        hex.concat(),
        bytes.join(", "),
    ]
}

/// Whether a text has the canary in it, in any form.
pub(crate) fn trace_in(text: &str) -> Option<String> {
    traces().into_iter().find(|trace| text.contains(trace))
}

/// A life with every trouble there is, at the most talkative, and then every output.
pub(crate) async fn no_value_gets_out(case: Case) -> anyhow::Result<()> {
    let log = Log::begin();
    let world = World::new(&case).await?;
    world.consenting(&["one", "two", "foreign", "bad"]).await?;
    world
        .namespace("wrong", crate::world::consent("No Name!"))
        .await?;
    world.within("foreign").create(secret("token", "own")).await?;
    let bad = |sent: &Sent| sent.is_write() && namespace_of(sent) == "bad";
    world
        .wire()
        .refuse(usize::MAX, http::StatusCode::UNPROCESSABLE_ENTITY, bad);
    // As `kubectl apply` leaves them: with all values once more, in an annotation.
    for (name, annotation) in [("token", SYNC), ("selected", "note")] {
        let mut source = secret(name, "1");
        let applied = format!("{{\"stringData\":{CANARY}1}}");
        let annotations = [(annotation, String::new()), (LAST_APPLIED, applied)];
        source
            .annotations_mut()
            .extend(annotations.map(|(name, value)| (name.to_owned(), value)));
        world.within(HOME).create(source).await?;
    }
    world
        .sync(
            HOME,
            "shared",
            json!({ "names": ["selected"], "adoptionPolicy": "IfIdentical" }),
        )
        .await?;
    let running = world.start().await?;
    for namespace in ["one", "two"] {
        world.copied(namespace, "token", "1").await?;
        world.copied(namespace, "selected", "1").await?;
    }
    let drift = json!({ "data": secret("token", "drift").data });
    world.within("one").patch::<Secret>("token", drift).await?;
    world.copied("one", "token", "1").await?;
    let changed = json!({ "data": secret("token", "2").data });
    world.within(HOME).patch::<Secret>("token", changed).await?;
    world.copied("one", "token", "2").await?;
    world.within(HOME).delete::<Secret>("token").await?;
    world.within("one").wait_gone::<Secret>("token").await?;
    world.says(HOME, "shared", |status| status.failed == 1).await?;
    world.settle().await;

    let metrics = world.scrape();
    let outputs = [
        ("log", log.text(), "secretsync"),
        ("metrics", metrics, "secretsync_writes_total"),
        (
            "events",
            text::<windlass::k8s_openapi::api::core::v1::Event>(&case).await?,
            "token",
        ),
        ("syncs", text::<SecretSync>(&case).await?, "selected"),
        ("config maps", text::<ConfigMap>(&case).await?, ""),
        ("secrets", around(&case).await?, "secretsync.windlass.dev/hash"),
    ];
    for (what, text, must) in outputs {
        assert!(text.contains(must), "{what} is what it should be: {text}");
        if let Some(trace) = trace_in(&text) {
            let at = text.find(&trace).unwrap_or_default();
            let (from, to) = (at.saturating_sub(300), (at + 100).min(text.len()));
            anyhow::bail!(
                "{trace} in {what}: {}",
                String::from_utf8_lossy(&text.as_bytes()[from..to])
            );
        }
    }
    running.stop().await
}

/// All objects of a kind, as text.
async fn text<K>(case: &Case) -> anyhow::Result<String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let all = Api::<K>::all(case.client()).list(&ListParams::default()).await?;
    Ok(serde_json::to_string(&all.items)?)
}

/// Everything of all Secrets but their data.
async fn around(case: &Case) -> anyhow::Result<String> {
    let all = Api::<Secret>::all(case.client())
        .list(&ListParams::default())
        .await?;
    let mut around = Vec::new();
    for mut secret in all.items {
        secret.data = None;
        // The sources are not ours.
        if secret.namespace().as_deref() == Some(HOME) {
            secret.annotations_mut().remove(LAST_APPLIED);
        }
        around.push(json!({ "name": secret.name_any(), "rest": serde_json::to_value(secret)? }));
    }
    Ok(Value::Array(around).to_string())
}
