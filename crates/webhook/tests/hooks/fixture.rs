//! A program with webhooks, which see only the namespace of their case.

use std::{net::SocketAddr, time::Duration};

use k8s_openapi::{
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::Api;
use serde_json::{Value, json};
use windlass_runtime::{CrdInstaller, Manager};
use windlass_suite::{Context, RunningManager};
use windlass_webhook::{AdmissionWebhook, ManagerExt, WebhookOptions, Webhooks};

/// Limits a webhook to the namespace of a case.
pub(super) fn only<S>(ctx: &Context, webhook: AdmissionWebhook<S>) -> AdmissionWebhook<S> {
    let labels = [(
        "kubernetes.io/metadata.name".to_owned(),
        ctx.namespace().to_owned(),
    )];
    webhook.namespace_selector(LabelSelector {
        match_labels: Some(labels.into()),
        ..LabelSelector::default()
    })
}

/// Runs webhooks, and waits until the API server calls them: until `is_called` is true.
pub(super) async fn run(
    ctx: &Context,
    webhooks: Webhooks,
    is_called: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<RunningManager> {
    let mut options = WebhookOptions::default();
    options.listen = Some(free_address()?);
    let manager = Manager::new(ctx.client())
        .quiet()
        .webhooks(webhooks, options)
        .install(CrdInstaller::new([]).apply());
    let running = RunningManager::start(manager);
    eventually("the webhooks are called", is_called).await?;
    Ok(running)
}

pub(super) fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Waits until something is true: a real API server learns of configurations after a while.
pub(super) async fn eventually(
    what: &str,
    test: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + windlass_suite::STEP_TIMEOUT;
    loop {
        let tested = test().await;
        if matches!(tested, Ok(true)) {
            return Ok(());
        }
        anyhow::ensure!(
            tokio::time::Instant::now() < deadline,
            "not in time: {what}: {tested:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A request as JSON: its status, the warnings, and the body.
pub(super) async fn send(
    ctx: &Context,
    method: &str,
    path: &str,
    body: &Value,
) -> anyhow::Result<(u16, Vec<String>, Value)> {
    let media_type = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media_type)
        .body(kube::client::Body::from(body.to_string().into_bytes()))?;
    let (parts, body) = ctx.client().send(request).await?.into_parts();
    let body = http_body_util::BodyExt::collect(body).await?.to_bytes();
    let warnings = parts.headers.get_all("warning").iter();
    let warnings = warnings.filter_map(|warning| Some(warning.to_str().ok()?.to_owned()));
    Ok((
        parts.status.as_u16(),
        warnings.collect(),
        serde_json::from_slice(&body)?,
    ))
}

/// The path of ConfigMaps in the namespace of a case.
pub(super) fn maps(ctx: &Context) -> String {
    format!("/api/v1/namespaces/{}/configmaps", ctx.namespace())
}

pub(super) fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// Whether a ConfigMap of this name is refused, without creating one.
pub(super) async fn is_refused(ctx: &Context, name: &str) -> anyhow::Result<bool> {
    let path = format!("{}?dryRun=All", maps(ctx));
    let (code, _, body) = send(ctx, "POST", &path, &map(name, &json!({}))).await?;
    let message = body["message"].as_str().unwrap_or_default();
    anyhow::ensure!(code < 300 || message.contains("denied the request"), "{body}");
    Ok(code >= 400)
}

pub(super) fn configurations(ctx: &Context) -> Api<ValidatingWebhookConfiguration> {
    Api::all(ctx.client())
}

pub(super) fn name_of(map: &ConfigMap) -> &str {
    map.metadata.name.as_deref().unwrap_or_default()
}
