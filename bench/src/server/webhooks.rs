//! What an admission webhook costs: creates of the same pods without one, with one over HTTPS, and with one in the process of
//! the embedded server.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use windlass_bench::{
    allow::{HOST, HttpsWebhook, LABEL_PATH},
    pods,
    report::{Report, Unit},
};

use super::{
    contenders::{Contender, RIVAL},
    loads::Load,
};

/// The pods that each measurement creates.
const PODS: usize = 1_000;

/// Namespaces, and which webhook sees what is created there.
const CASES: [(&str, &str); 4] = [
    ("asks-none", "no webhook"),
    ("asks-https", "a webhook over HTTPS"),
    ("asks-inside", "a webhook in the process"),
    ("asks-mutating", "a mutating webhook in the process"),
];

pub(super) async fn measure(
    rounds: usize,
    contenders: &[Contender],
    report: &mut Report,
) -> anyhow::Result<()> {
    let webhook = HttpsWebhook::start()?;
    for contender in contenders {
        let load = contender.load();
        for (namespace, _) in cases_of(contender) {
            load.namespace(namespace).await?;
        }
        load.configure(&webhook, contender.name != RIVAL).await?;
    }
    for round in 0..rounds {
        let names = pods::names(round, PODS);
        for contender in contenders {
            let load = contender.load();
            for (namespace, title) in cases_of(contender) {
                for (names, at_once) in [(&names[..PODS / 5], 1), (&names[PODS / 5..], 16)] {
                    let throughput = load.create(namespace, names, at_once).await?;
                    let case = format!("webhooks: creates with {title}, {at_once} at a time");
                    report.add(&case, contender.name, Unit::PerSecond, throughput.per_second);
                }
            }
        }
    }
    Ok(())
}

/// kube-apiserver calls no webhooks in its process.
fn cases_of(contender: &Contender) -> impl Iterator<Item = (&'static str, &'static str)> {
    let inside = contender.name != RIVAL;
    CASES
        .into_iter()
        .filter(move |(_, title)| inside || !title.ends_with("in the process"))
}

impl Load {
    async fn configure(&self, webhook: &HttpsWebhook, inside: bool) -> anyhow::Result<()> {
        let over_https = json!({
            "url": format!("https://{}/allow", webhook.address),
            "caBundle": STANDARD.encode(&webhook.certificate),
        });
        let in_process = |path: &str| json!({"url": format!("https://{HOST}{path}")});
        let validating = "validatingwebhookconfigurations";
        self.configuration(validating, "asks-https", over_https).await?;
        if inside {
            self.configuration(validating, "asks-inside", in_process("/allow"))
                .await?;
            let mutating = "mutatingwebhookconfigurations";
            self.configuration(mutating, "asks-mutating", in_process(LABEL_PATH))
                .await?;
        }
        Ok(())
    }

    async fn configuration(&self, plural: &str, namespace: &str, client: Value) -> anyhow::Result<()> {
        let kind = match plural {
            "mutatingwebhookconfigurations" => "MutatingWebhookConfiguration",
            _ => "ValidatingWebhookConfiguration",
        };
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": namespace},
            "webhooks": [{
                "name": format!("{namespace}.bench.example.com"),
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": client,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            }],
        });
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
        self.post(&path, &configuration).await
    }
}
