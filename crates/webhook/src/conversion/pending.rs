//! A CRD whose conversion is not registered yet.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, WebhookClientConfig, WebhookConversion,
};

/// Where nothing listens. Its path is part of the message that users of the other versions get.
const NOWHERE: &str = "https://127.0.0.1:1/the-conversion-webhook-is-not-registered-yet";

/// Lets requests in versions that are not stored fail until a [`Conversion`](super::Conversion) is registered. Without it, the
/// API server stores what is written in another version as it is, between the installation of the CRD and the registration:
/// fields with other names are lost from view.
///
/// A registration replaces it. [`CrdInstaller`](windlass_runtime::CrdInstaller) leaves a conversion that is there as it is, so a
/// restart does not bring it back.
///
/// ```
/// use kube::core::crd::merge_crds;
/// use windlass_webhook::await_conversion;
///
/// # fn crd(v1: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition, v2: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition) -> Result<(), kube::core::crd::MergeError> {
/// let crd = await_conversion(merge_crds(vec![v1, v2], "v2")?);
/// # Ok(()) }
/// ```
pub fn await_conversion(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.conversion = Some(pending_conversion());
    crd
}

/// The conversion of a CRD whose conversion is not registered: every call of it fails.
pub(crate) fn pending_conversion() -> CustomResourceConversion {
    CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(WebhookClientConfig {
                url: Some(NOWHERE.to_owned()),
                ..WebhookClientConfig::default()
            }),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    }
}
