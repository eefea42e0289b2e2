//! The rights that webhooks need, by the names of what they touch.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::{Webhooks, options::WebhookOptions};

/// The rights that [`Webhooks`] need, from [`Webhooks::rights`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WebhookRights {
    /// For a Role in the namespace of the Service.
    pub namespaced: Vec<PolicyRule>,
    /// For a `ClusterRole`.
    pub cluster: Vec<PolicyRule>,
}

impl Webhooks {
    /// The rights to keep the certificates, and, with `installs`, to register the webhooks too; for manifests. The rights to
    /// [read](Self::reads) other objects are not among them.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass_webhook::{WebhookOptions, Webhooks, validate};
    ///
    /// let webhooks = Webhooks::new("quota").with(validate::<ConfigMap, _>(|_, _| ()));
    /// let rights = webhooks.rights(&WebhookOptions::default(), false);
    /// let names = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| rule.resource_names.clone().unwrap_or_default();
    /// assert_eq!(names(&rights.namespaced[1]), ["quota-webhook-certificates"]);
    /// assert_eq!(names(&rights.cluster[0]), ["quota"]);
    /// ```
    pub fn rights(&self, options: &WebhookOptions, installs: bool) -> WebhookRights {
        let rule = |group: &str, resources: &[&str], verbs: &[&str], names: Vec<String>| {
            let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
            PolicyRule {
                api_groups: Some(owned(&[group])),
                resources: Some(owned(resources)),
                verbs: owned(verbs),
                resource_names: (!names.is_empty()).then_some(names),
                ..PolicyRule::default()
            }
        };
        let mut rights = WebhookRights::default();
        if options.certificates.is_none() {
            let secret = vec![options.secret_name(&self.name)];
            // The name of what is created is not known to the authorizer.
            rights
                .namespaced
                .push(rule("", &["secrets"], &["create"], Vec::new()));
            rights
                .namespaced
                .push(rule("", &["secrets"], &["get", "update"], secret));
        } else if !installs {
            return rights;
        }
        let group = "admissionregistration.k8s.io";
        let (mut present, mut absent) = (Vec::new(), Vec::new());
        for (stage, resource) in [
            (
                crate::admission::Stage::Validating,
                "validatingwebhookconfigurations",
            ),
            (crate::admission::Stage::Mutating, "mutatingwebhookconfigurations"),
        ] {
            let list = if self.of_stage(stage).next().is_some() {
                &mut present
            } else {
                &mut absent
            };
            list.push(resource);
        }
        let name = || vec![self.name.clone()];
        if !present.is_empty() {
            rights
                .cluster
                .push(rule(group, &present, &["get", "patch"], name()));
        }
        if installs && !present.is_empty() {
            rights
                .cluster
                .push(rule(group, &present, &["create"], Vec::new()));
        }
        if installs && !absent.is_empty() {
            // What an earlier version of the program has registered.
            rights
                .cluster
                .push(rule(group, &absent, &["get", "delete"], name()));
        }
        let crds: Vec<_> = self
            .conversions
            .iter()
            .map(crate::conversion::Converter::crd_name)
            .collect();
        if !crds.is_empty() {
            let resource = ["customresourcedefinitions"];
            rights
                .cluster
                .push(rule("apiextensions.k8s.io", &resource, &["get", "patch"], crds));
        }
        rights
    }
}
