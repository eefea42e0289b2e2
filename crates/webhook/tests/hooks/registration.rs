//! Registration and certificates.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use windlass_runtime::{CrdInstaller, Manager};
use windlass_suite::{Context, ManifestRoles, RunningManager};
use windlass_webhook::{ManagerExt, Verdict, WebhookOptions, Webhooks, validate};

use super::fixture::{configurations, eventually, free_address, is_refused, name_of, only, run};

pub(super) async fn wiped_bundle_heals_and_the_registration_is_taken_back(
    ctx: Context,
) -> anyhow::Result<()> {
    let name = "suite-registration";
    let guard = validate::<ConfigMap, _>(|change, _| {
        if name_of(change.object()) == "never" {
            Verdict::deny("no")
        } else {
            Verdict::allow()
        }
    });
    let webhooks = Webhooks::new(name).with(only(
        &ctx,
        guard.match_condition("named", "object.metadata.name != ''"),
    ));
    let running = run(&ctx, webhooks, async || is_refused(&ctx, "never").await).await?;

    let path = format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{name}");
    let wipe = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="}]);
    let request = http::Request::patch(path)
        .header("content-type", "application/json-patch+json")
        .body(wipe.to_string().into_bytes())?;
    ctx.client().request::<serde_json::Value>(request).await?;
    eventually("the bundle is healed", async || {
        let webhooks = configurations(&ctx).get(name).await?.webhooks.unwrap_or_default();
        let bundle = webhooks
            .first()
            .and_then(|webhook| webhook.client_config.ca_bundle.clone());
        Ok(bundle.is_some_and(|bundle| bundle.0.starts_with(b"-----BEGIN CERTIFICATE-----")))
    })
    .await?;
    eventually("the webhook is called again", async || {
        is_refused(&ctx, "never").await
    })
    .await?;

    running.stop().await?;
    assert!(configurations(&ctx).get_opt(name).await?.is_none());
    eventually("the webhook is not called any more", async || {
        Ok(!is_refused(&ctx, "never").await?)
    })
    .await
}

pub(super) async fn documented_rights_suffice(ctx: Context) -> anyhow::Result<()> {
    let name = format!("suite-rights-{}", ctx.namespace());
    let webhooks = || {
        let guard = validate::<ConfigMap, _>(|_, _| Verdict::allow()).fail_open();
        Webhooks::new(name.clone()).with(only(&ctx, guard))
    };
    let mut options = WebhookOptions::default();
    options.listen = Some(free_address()?);
    options.service = Some(format!("{}/hooks", ctx.namespace()));
    let rights = webhooks().rights(&options, true);
    let role = |kind: &str, rules: &[k8s_openapi::api::rbac::v1::PolicyRule]| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "hooks"}, "rules": rules});
    let roles = ManifestRoles::parse(&format!(
        "{}\n---\n{}\n",
        role("Role", &rights.namespaced),
        role("ClusterRole", &rights.cluster)
    ))?;
    let manager = Manager::new(roles.client(&ctx).await?)
        .quiet()
        .install(CrdInstaller::new([]).apply())
        .webhooks(webhooks(), options);
    let running = RunningManager::start(manager);
    let bundle = async || {
        let webhooks = configurations(&ctx)
            .get(&name)
            .await?
            .webhooks
            .unwrap_or_default();
        let bundle = webhooks
            .first()
            .and_then(|webhook| webhook.client_config.ca_bundle.clone());
        anyhow::Ok(bundle.map(|bundle| bundle.0).unwrap_or_default())
    };
    eventually("the bundle is there", async || Ok(!bundle().await?.is_empty())).await?;
    // Healed, and made again, with the same rights.
    let secrets = ctx.api::<Secret>();
    let secret = format!("{name}-webhook-certificates");
    let old = bundle().await?;
    let emptied = kube::api::Patch::Merge(json!({"data": {"authorities.json": null}}));
    secrets
        .patch(&secret, &kube::api::PatchParams::default(), &emptied)
        .await?;
    eventually("the bundle is another one", async || Ok(bundle().await? != old)).await?;
    running.stop().await?;
    configurations(&ctx)
        .delete(&name, &kube::api::DeleteParams::default())
        .await?;
    assert_eq!(roles.forbidden(), [""; 0]);
    // Nothing of an earlier version was there to delete.
    let unused: Vec<_> = roles.unused().iter().map(|rule| format!("{rule:?}")).collect();
    assert!(
        unused
            .iter()
            .all(|rule| rule.contains("delete") && !rule.contains("patch")),
        "{unused:?}"
    );
    Ok(())
}
