//! The objects that register webhooks with an API server, made from their declarations.

use std::time::Duration;

use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
        ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceConversion, ServiceReference as CrdServiceReference,
        WebhookClientConfig as CrdClientConfig, WebhookConversion,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta},
};

use serde_json::Value;

use crate::{
    Webhooks,
    admission::{Declaration, FailurePolicy, SideEffects, Stage},
};

/// The label of a namespace with its own name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Where the API server finds the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAddress {
    /// A Service in the cluster.
    Service {
        /// Its namespace, which is that of the program. Webhooks do not see what happens there, unless they
        /// [ask](crate::AdmissionWebhook::in_system_namespaces).
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// A URL that the API server can reach, such as `https://192.0.2.7:9443`: for a program on a laptop.
    Url(String),
}

impl WebhookAddress {
    /// A Service with port 443.
    pub fn service(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self::Service {
            namespace: namespace.into(),
            name: name.into(),
            port: 443,
        }
    }

    /// Whether a `clientConfig` calls this address.
    pub(crate) fn is_called_by(&self, client: &Value) -> bool {
        let service = &client["service"];
        match self {
            Self::Service { namespace, name, .. } => {
                service["namespace"] == **namespace && service["name"] == **name
            }
            Self::Url(base) => {
                let rest = client["url"]
                    .as_str()
                    .and_then(|url| url.strip_prefix(base.trim_end_matches('/')));
                rest.is_some_and(|rest| rest.starts_with('/'))
            }
        }
    }

    fn admission_client(&self, path: &str) -> WebhookClientConfig {
        match self {
            Self::Service {
                namespace,
                name,
                port,
            } => WebhookClientConfig {
                service: Some(ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: Some(format!("/{path}")),
                    port: Some(i32::from(*port)),
                }),
                ..WebhookClientConfig::default()
            },
            Self::Url(base) => WebhookClientConfig {
                url: Some(url(base, path)),
                ..WebhookClientConfig::default()
            },
        }
    }

    fn conversion_client(&self, path: &str) -> CrdClientConfig {
        match self {
            Self::Service {
                namespace,
                name,
                port,
            } => CrdClientConfig {
                service: Some(CrdServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: Some(format!("/{path}")),
                    port: Some(i32::from(*port)),
                }),
                ..CrdClientConfig::default()
            },
            Self::Url(base) => CrdClientConfig {
                url: Some(url(base, path)),
                ..CrdClientConfig::default()
            },
        }
    }
}

fn url(base: &str, path: &str) -> String {
    format!("{}/{path}", base.trim_end_matches('/'))
}

/// The objects that register webhooks, from [`Webhooks::configurations`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Configurations {
    /// The validating webhooks, if there are any.
    pub validating: Option<ValidatingWebhookConfiguration>,
    /// The mutating webhooks, if there are any.
    pub mutating: Option<MutatingWebhookConfiguration>,
    /// The name of each converted CRD, and its `spec.conversion`.
    pub conversions: Vec<(String, CustomResourceConversion)>,
}

impl Configurations {
    pub(crate) fn new(webhooks: &Webhooks, address: &WebhookAddress) -> Self {
        let metadata = ObjectMeta {
            name: Some(webhooks.name.clone()),
            ..ObjectMeta::default()
        };
        let entry = |declared: &Declaration| Entry::new(declared, &webhooks.name, address);
        let validating: Vec<_> = webhooks
            .of_stage(Stage::Validating)
            .map(|declared| entry(declared).validating())
            .collect();
        let mutating: Vec<_> = webhooks
            .of_stage(Stage::Mutating)
            .map(|declared| entry(declared).mutating(declared.is_reinvoked))
            .collect();
        let conversions = webhooks.conversions.iter().map(|converter| {
            let conversion = CustomResourceConversion {
                strategy: "Webhook".to_owned(),
                webhook: Some(WebhookConversion {
                    client_config: Some(address.conversion_client(&converter.path())),
                    conversion_review_versions: vec!["v1".to_owned()],
                }),
            };
            (converter.crd_name(), conversion)
        });
        Self {
            validating: (!validating.is_empty()).then(|| ValidatingWebhookConfiguration {
                metadata: metadata.clone(),
                webhooks: Some(validating),
            }),
            mutating: (!mutating.is_empty()).then_some(MutatingWebhookConfiguration {
                metadata,
                webhooks: Some(mutating),
            }),
            conversions: conversions.collect(),
        }
    }
}

/// What both kinds of webhooks have.
struct Entry {
    name: String,
    client: WebhookClientConfig,
    rules: Vec<RuleWithOperations>,
    failure_policy: String,
    side_effects: String,
    timeout: i32,
    match_policy: String,
    match_conditions: Option<Vec<MatchCondition>>,
    namespace_selector: Option<LabelSelector>,
    object_selector: Option<LabelSelector>,
}

impl Entry {
    fn new(declared: &Declaration, server: &str, address: &WebhookAddress) -> Self {
        let name = declared.full_name(server);
        let target = &declared.target;
        let match_conditions = declared
            .match_conditions
            .iter()
            .map(|(name, expression)| MatchCondition {
                name: name.clone(),
                expression: expression.clone(),
            });
        let match_conditions: Vec<_> = match_conditions.collect();
        Self {
            client: address.admission_client(&name),
            rules: vec![RuleWithOperations {
                api_groups: Some(vec![target.group.clone()]),
                api_versions: Some(vec![target.version.clone()]),
                resources: Some(vec![target.resource()]),
                operations: Some(
                    declared
                        .operations
                        .iter()
                        .map(|operation| operation.name().to_owned())
                        .collect(),
                ),
                scope: Some(target.scope().to_owned()),
            }],
            failure_policy: match declared.failure_policy {
                FailurePolicy::Fail => "Fail",
                FailurePolicy::Ignore => "Ignore",
            }
            .to_owned(),
            side_effects: match declared.side_effects {
                SideEffects::None => "None",
                SideEffects::NoneOnDryRun => "NoneOnDryRun",
            }
            .to_owned(),
            timeout: whole_seconds(declared.timeout),
            match_policy: if declared.matches_exactly {
                "Exact"
            } else {
                "Equivalent"
            }
            .to_owned(),
            match_conditions: (!match_conditions.is_empty()).then_some(match_conditions),
            namespace_selector: namespace_selector(declared, address),
            object_selector: declared.object_selector.clone(),
            name,
        }
    }

    fn validating(self) -> ValidatingWebhook {
        ValidatingWebhook {
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client,
            failure_policy: Some(self.failure_policy),
            match_conditions: self.match_conditions,
            match_policy: Some(self.match_policy),
            name: self.name,
            namespace_selector: self.namespace_selector,
            object_selector: self.object_selector,
            rules: Some(self.rules),
            side_effects: self.side_effects,
            timeout_seconds: Some(self.timeout),
        }
    }

    fn mutating(self, is_reinvoked: bool) -> MutatingWebhook {
        MutatingWebhook {
            admission_review_versions: vec!["v1".to_owned()],
            client_config: self.client,
            failure_policy: Some(self.failure_policy),
            match_conditions: self.match_conditions,
            match_policy: Some(self.match_policy),
            name: self.name,
            namespace_selector: self.namespace_selector,
            object_selector: self.object_selector,
            reinvocation_policy: Some(if is_reinvoked { "IfNeeded" } else { "Never" }.to_owned()),
            rules: Some(self.rules),
            side_effects: self.side_effects,
            timeout_seconds: Some(self.timeout),
        }
    }
}

fn whole_seconds(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis().div_ceil(1000)).unwrap_or(30)
}

/// The declared selector, without the namespaces whose change could prevent the repair of the webhook.
fn namespace_selector(declared: &Declaration, address: &WebhookAddress) -> Option<LabelSelector> {
    let selector = declared.namespace_selector.clone();
    if declared.is_in_system_namespaces {
        return selector;
    }
    let mut selector = selector.unwrap_or_default();
    let mut left_out = vec!["kube-system".to_owned()];
    if let WebhookAddress::Service { namespace, .. } = address
        && namespace != "kube-system"
    {
        left_out.push(namespace.clone());
    }
    selector
        .match_expressions
        .get_or_insert_default()
        .push(LabelSelectorRequirement {
            key: NAMESPACE_NAME_LABEL.to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(left_out),
        });
    Some(selector)
}
