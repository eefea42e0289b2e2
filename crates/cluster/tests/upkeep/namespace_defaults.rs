//! The service account and the root CA of every namespace.

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

use crate::upkeep::recorded_watch::eventually;

const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";

pub(crate) async fn every_namespace_has_service_account_and_root_ca(ctx: Context) -> Result<()> {
    let accounts = ctx.api::<ServiceAccount>();
    let account = eventually("the account", async || Ok(accounts.get_opt("default").await?)).await?;
    assert_eq!(account.managed_fields(), [], "no managed fields");
    accounts.delete("default", &DeleteParams::default()).await?;
    let back = eventually("the account", async || Ok(accounts.get_opt("default").await?)).await?;
    ensure!(back.uid() != account.uid());

    let certificates = ctx.api::<ConfigMap>();
    let first = eventually("the certificate", async || {
        Ok(certificates.get_opt(ROOT_CA_CONFIG_MAP).await?)
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
        .patch(ROOT_CA_CONFIG_MAP, &PatchParams::default(), &Patch::Merge(meddle))
        .await?;
    eventually("the certificate's return", async || {
        let now = certificates.get(ROOT_CA_CONFIG_MAP).await?;
        Ok((now.data.as_ref() == Some(&data)).then_some(()))
    })
    .await?;
    certificates
        .delete(ROOT_CA_CONFIG_MAP, &DeleteParams::default())
        .await?;
    eventually("the certificate", async || {
        let now = certificates.get_opt(ROOT_CA_CONFIG_MAP).await?;
        Ok(now.filter(|now| now.uid() != first.uid()))
    })
    .await?;
    Ok(())
}

pub(crate) async fn root_ca_is_the_ca_of_the_kubeconfig(ctx: Context) -> Result<()> {
    let certificates = ctx.api::<ConfigMap>();
    let certificate = eventually("the certificate", async || {
        Ok(certificates.get_opt(ROOT_CA_CONFIG_MAP).await?)
    })
    .await?;
    let kubeconfig = Kubeconfig::read_from(ctx.cluster().kubeconfig()?)?;
    let cluster = kubeconfig.clusters[0]
        .cluster
        .clone()
        .context("it has a cluster")?;
    let authority = cluster
        .certificate_authority_data
        .context("it has a CA certificate")?;
    let authority = String::from_utf8(STANDARD.decode(authority)?)?;
    let data = certificate.data.context("it has data")?;
    assert_eq!(data["ca.crt"].trim(), authority.trim());
    Ok(())
}
