//! Secrets are never logged. In a process of its own, because kube logs from its own tasks.

mod request_log;

use std::{future::ready, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use request_log::recorded_with;
use serde_json::json;
use tracing_subscriber::{Layer, layer::SubscriberExt};
use windlass_apiserver::Server;
use windlass_runtime::{JsonLines, Options, Writer};

/// kube prints a whole response that it cannot decode, at `warn`.
#[tokio::test(start_paused = true)]
async fn undecodable_secret_is_not_logged_at_any_level() {
    const MARK: &str = "c2VjcmV0LW1hcms=";
    let lines = tempfile::NamedTempFile::new().expect("temporary file");
    let mut options = Options::default();
    options.logging.level = Some("trace".to_owned());
    let layer = JsonLines::new(lines.reopen().map(Arc::new).expect("temporary file"))
        .with_filter(options.logging.filter().expect("valid level"));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).expect("the only subscriber");

    let odd = json!({ "kind": "Secret", "apiVersion": "v1", "metadata": 5, "data": { "password": MARK } });
    let (client, _) = recorded_with(Server::new(), move |_| ready(Some((200, odd.clone()))));
    let error = Api::<Secret>::default_namespaced(client.clone())
        .get("a")
        .await
        .expect_err("undecodable");
    tracing::error!(%error, "as a reconcile's error is logged");
    let mut secret = Secret::default();
    secret.metadata.name = Some("a".to_owned());
    secret.metadata.namespace = Some("default".to_owned());
    let error = Writer::new(client, "test")
        .apply(&secret)
        .await
        .expect_err("undecodable");
    tracing::error!(%error, whole = ?error, "as a reconcile's error is logged");

    let text = std::fs::read_to_string(lines.path()).expect("text");
    assert!(
        text.contains("cannot apply Secret default/a"),
        "the log works: {text}"
    );
    assert!(!text.contains(MARK), "{text}");
}
