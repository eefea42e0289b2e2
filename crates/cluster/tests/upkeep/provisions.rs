//! What every namespace has.

use anyhow::{Context as _, Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    config::Kubeconfig,
};
use serde_json::json;
use windlass_suite::Context;

use crate::witness::eventually;

const CERTIFICATE: &str = "kube-root-ca.crt";

pub(crate) async fn every_namespace_has_its_account_and_certificate(ctx: Context) -> Result<()> {
    let accounts = ctx.api::<ServiceAccount>();
    let account = eventually("the account", async || Ok(accounts.get_opt("default").await?)).await?;
    assert_eq!(account.managed_fields(), [], "nothing in it is owned");
    accounts.delete("default", &DeleteParams::default()).await?;
    let back = eventually("the account", async || Ok(accounts.get_opt("default").await?)).await?;
    ensure!(back.uid() != account.uid());

    let certificates = ctx.api::<ConfigMap>();
    let first = eventually("the certificate", async || {
        Ok(certificates.get_opt(CERTIFICATE).await?)
    })
    .await?;
    let data = first.data.clone().context("it has data")?;
    assert_eq!(data.keys().collect::<Vec<_>>(), ["ca.crt"]);
    ensure!(data["ca.crt"].starts_with("-----BEGIN CERTIFICATE-----\n"));
    ensure!(first.annotations()["kubernetes.io/description"].starts_with("Contains a CA bundle"));
    let author = first.managed_fields()[0].manager.as_deref();
    assert_eq!(author, Some("kube-controller-manager"));

    let meddle = json!({"data": {"ca.crt": "mine", "more": "too"}});
    certificates
        .patch(CERTIFICATE, &PatchParams::default(), &Patch::Merge(meddle))
        .await?;
    eventually("the certificate's return", async || {
        let now = certificates.get(CERTIFICATE).await?;
        Ok((now.data.as_ref() == Some(&data)).then_some(()))
    })
    .await?;
    certificates.delete(CERTIFICATE, &DeleteParams::default()).await?;
    eventually("the certificate", async || {
        let now = certificates.get_opt(CERTIFICATE).await?;
        Ok(now.filter(|now| now.uid() != first.uid()))
    })
    .await?;
    Ok(())
}

pub(crate) async fn the_certificate_is_the_authoritys(ctx: Context) -> Result<()> {
    let certificates = ctx.api::<ConfigMap>();
    let certificate = eventually("the certificate", async || {
        Ok(certificates.get_opt(CERTIFICATE).await?)
    })
    .await?;
    let kubeconfig = Kubeconfig::read_from(ctx.cluster().kubeconfig()?)?;
    let cluster = kubeconfig.clusters[0]
        .cluster
        .clone()
        .context("it has a cluster")?;
    let authority = cluster
        .certificate_authority_data
        .context("it says whom to trust")?;
    let authority = String::from_utf8(STANDARD.decode(authority)?)?;
    let data = certificate.data.context("it has data")?;
    assert_eq!(data["ca.crt"].trim(), authority.trim());
    Ok(())
}
