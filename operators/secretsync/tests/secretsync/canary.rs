//! No value leaks: into logs, events, statuses, metrics, or the metadata of copies.

use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Secret},
    kube::{Api, api::ListParams},
    prelude::{Resource, ResourceExt, json},
    serde::{Serialize, de::DeserializeOwned},
    serde_json::{self, Value},
};
use windlass_secretsync::{SecretSync, api::SYNC_ANNOTATION};
use windlass_suite::{CapturedLog, Context as Case, RecordedRequest};

use crate::secretsync::test_cluster::{CANARY, HOME, TestCluster, namespace_of, secret};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The canary as it is, in base64 at any offset, in hexadecimal, and as Rust formats bytes.
fn canary_forms() -> Vec<String> {
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

/// Whether a text contains the canary, in any form.
pub(crate) fn find_canary(text: &str) -> Option<String> {
    canary_forms().into_iter().find(|trace| text.contains(trace))
}

/// A scenario with all kinds of failures and trace logging, followed by a check of every output.
pub(crate) async fn no_value_leaks_into_any_output(case: Case) -> anyhow::Result<()> {
    let log = CapturedLog::start();
    let env = TestCluster::new(&case).await?;
    env.consenting(&["one", "two", "foreign", "bad"]).await?;
    env.namespace("wrong", crate::secretsync::test_cluster::consent("No Name!"))
        .await?;
    env.in_namespace("foreign").create(secret("token", "own")).await?;
    let bad = |sent: &RecordedRequest| sent.is_write() && namespace_of(sent) == "bad";
    env.proxy()
        .reject(usize::MAX, http::StatusCode::UNPROCESSABLE_ENTITY, bad);
    // As `kubectl apply` leaves them: with all values repeated in an annotation.
    for (name, annotation) in [("token", SYNC_ANNOTATION), ("selected", "note")] {
        let mut source = secret(name, "1");
        let applied = format!("{{\"stringData\":{CANARY}1}}");
        let annotations = [(annotation, String::new()), (LAST_APPLIED, applied)];
        source
            .annotations_mut()
            .extend(annotations.map(|(name, value)| (name.to_owned(), value)));
        env.in_namespace(HOME).create(source).await?;
    }
    env.sync(
        HOME,
        "shared",
        json!({ "names": ["selected"], "adoptionPolicy": "IfIdentical" }),
    )
    .await?;
    let running = env.start().await?;
    for namespace in ["one", "two"] {
        env.wait_for_copy(namespace, "token", "1").await?;
        env.wait_for_copy(namespace, "selected", "1").await?;
    }
    let drift = json!({ "data": secret("token", "drift").data });
    env.in_namespace("one").patch::<Secret>("token", drift).await?;
    env.wait_for_copy("one", "token", "1").await?;
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    env.wait_for_copy("one", "token", "2").await?;
    env.in_namespace(HOME).delete::<Secret>("token").await?;
    env.in_namespace("one")
        .wait_until_deleted::<Secret>("token")
        .await?;
    env.wait_for_status(HOME, "shared", |status| status.failed == 1)
        .await?;
    env.settle().await;

    let metrics = env.scrape();
    let outputs = [
        ("log", log.text(), "secretsync"),
        ("metrics", metrics, "windlass_secretsync_writes_total"),
        (
            "events",
            text::<windlass::k8s_openapi::api::core::v1::Event>(&case).await?,
            "token",
        ),
        ("syncs", text::<SecretSync>(&case).await?, "selected"),
        ("config maps", text::<ConfigMap>(&case).await?, ""),
        (
            "secrets",
            around(&case).await?,
            "secretsync.windlass.dev/synced-by",
        ),
    ];
    for (what, text, must) in outputs {
        assert!(text.contains(must), "{what} must contain `{must}`: {text}");
        if let Some(trace) = find_canary(&text) {
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

/// All Secrets without their data.
async fn around(case: &Case) -> anyhow::Result<String> {
    let all = Api::<Secret>::all(case.client())
        .list(&ListParams::default())
        .await?;
    let mut around = Vec::new();
    for mut secret in all.items {
        secret.data = None;
        // The sources are not written by secretsync.
        if secret.namespace().as_deref() == Some(HOME) {
            secret.annotations_mut().remove(LAST_APPLIED);
        }
        around.push(json!({ "name": secret.name_any(), "rest": serde_json::to_value(secret)? }));
    }
    Ok(Value::Array(around).to_string())
}
