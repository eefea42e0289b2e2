//! Registers webhooks with the API server, and takes a temporary registration back.
//!
//! It is done after the certificate is there, and with its `caBundle`, so that no request is refused for the want of one.

use http::{HeaderValue, Method, Request, header};
use kube::Client;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use crate::registration::Configurations;

/// Names the writes in managed fields.
const FIELD_MANAGER: &str = "windlass-webhook";

/// The label of registered configurations: the webhooks' name. One that is not declared any more is deleted by it.
pub const WEBHOOKS_LABEL: &str = "windlass.dev/webhooks";
/// The annotation of a registration that ends with its program.
const TEMPORARY_ANNOTATION: &str = "windlass.dev/temporary-webhooks";

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Registers the webhooks of a program.
pub(crate) struct Installer {
    client: Client,
    name: String,
    /// By path; `None` if nothing must be there.
    objects: Vec<(String, Option<Value>)>,
    /// The CRDs' paths, and what their `spec.conversion` becomes.
    conversions: Vec<(String, Value)>,
    is_temporary: bool,
    /// What a temporary registration has replaced.
    replaced: Mutex<Vec<Replaced>>,
}

/// What was there before a temporary registration.
#[derive(Clone, Debug, PartialEq)]
enum Replaced {
    /// A configuration, or that there was none.
    Configuration { path: String, webhooks: Option<Value> },
    /// The `spec.conversion` of a CRD.
    Conversion { path: String, conversion: Value },
}

impl Installer {
    pub(crate) fn new(
        client: Client,
        name: &str,
        configurations: &Configurations,
        is_temporary: bool,
    ) -> Self {
        let object = |collection: &str, kind: &str, configuration: Option<Value>| {
            let object = configuration.map(|mut object| {
                object["apiVersion"] = "admissionregistration.k8s.io/v1".into();
                object["kind"] = kind.into();
                object["metadata"]["labels"] = json!({WEBHOOKS_LABEL: name});
                if is_temporary {
                    object["metadata"]["annotations"] = json!({TEMPORARY_ANNOTATION: "true"});
                }
                object
            });
            (format!("{collection}/{name}"), object)
        };
        let conversions = configurations.conversions.iter().map(|(crd, conversion)| {
            let mut conversion = to_json(conversion);
            // A merge patch keeps what it does not name, and a client has either a service or a URL.
            let client = &mut conversion["webhook"]["clientConfig"];
            for absent in ["service", "url"] {
                if client[absent].is_null() {
                    client[absent] = Value::Null;
                }
            }
            (format!("{CRDS}/{crd}"), conversion)
        });
        Self {
            client,
            name: name.to_owned(),
            objects: vec![
                object(
                    VALIDATING,
                    "ValidatingWebhookConfiguration",
                    configurations.validating.as_ref().map(to_json),
                ),
                object(
                    MUTATING,
                    "MutatingWebhookConfiguration",
                    configurations.mutating.as_ref().map(to_json),
                ),
            ],
            conversions: conversions.collect(),
            is_temporary,
            replaced: Mutex::default(),
        }
    }

    /// Registers all webhooks with this bundle. When it is called `again`, a program on a laptop may stand in for this one
    /// meanwhile, and is left alone.
    pub(crate) async fn install(&self, bundle: Option<&str>, again: bool) -> Result<(), kube::Error> {
        let bundle = bundle.map_or(Value::Null, |bundle| {
            json!(k8s_openapi::ByteString(bundle.as_bytes().to_vec()))
        });
        for (path, object) in &self.objects {
            let before = self.get(path).await?;
            let Some(object) = object else {
                self.delete_stale(path, before).await?;
                continue;
            };
            let mut object = object.clone();
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                if !bundle.is_null() {
                    webhook["clientConfig"]["caBundle"] = bundle.clone();
                }
            }
            if self.is_displaced(before.as_ref(), again) {
                continue;
            }
            let exists = before.is_some();
            let webhooks = before.filter(|before| !is_temporary(before));
            self.remember(Replaced::Configuration {
                path: path.clone(),
                webhooks: webhooks.map(|mut before| before["webhooks"].take()),
            });
            if exists {
                // Replaces the webhooks as a whole: an apply would keep what others have set, such as a service beside a URL.
                self.merge(path, &object).await?;
            } else {
                let collection = path
                    .rsplit_once('/')
                    .map_or(path.as_str(), |(collection, _)| collection);
                let path = format!("{collection}?fieldManager={FIELD_MANAGER}");
                self.send(Method::POST, &path, "application/json", &object)
                    .await?;
            }
        }
        for (path, conversion) in &self.conversions {
            // Without its CRD there is nothing to convert: it is tried again.
            let Some(mut before) = self.get(path).await? else {
                continue;
            };
            if self.is_displaced(Some(&before), again) {
                continue;
            }
            let mut conversion = conversion.clone();
            if !bundle.is_null() {
                conversion["webhook"]["clientConfig"]["caBundle"] = bundle.clone();
            }
            let replaced = if is_temporary(&before) {
                json!({"strategy": "None"})
            } else {
                before["spec"]["conversion"].take()
            };
            self.remember(Replaced::Conversion {
                path: path.clone(),
                conversion: replaced,
            });
            let annotation = if self.is_temporary {
                json!("true")
            } else {
                Value::Null
            };
            let patch = json!({
                "metadata": {"annotations": {TEMPORARY_ANNOTATION: annotation}},
                "spec": {"conversion": conversion},
            });
            self.merge(path, &patch).await?;
        }
        tracing::info!(
            webhooks = self.name,
            is_temporary = self.is_temporary,
            "registered the webhooks"
        );
        Ok(())
    }

    fn is_displaced(&self, before: Option<&Value>, again: bool) -> bool {
        again && !self.is_temporary && before.is_some_and(is_temporary)
    }

    /// Restores what a temporary registration has replaced. Failures are logged: the next start repairs them.
    pub(crate) async fn take_back(&self) {
        let replaced = std::mem::take(&mut *self.replaced.lock());
        for replaced in replaced {
            let (path, done) = match replaced {
                Replaced::Configuration { path, webhooks: None } => {
                    let done = self
                        .send(Method::DELETE, &path, "application/json", &json!({}))
                        .await;
                    (path, done)
                }
                Replaced::Configuration {
                    path,
                    webhooks: Some(webhooks),
                } => {
                    let annotations = json!({TEMPORARY_ANNOTATION: null});
                    let patch = json!({"metadata": {"annotations": annotations}, "webhooks": webhooks});
                    let done = self.merge(&path, &patch).await;
                    (path, done)
                }
                Replaced::Conversion { path, conversion } => {
                    let mut patch = json!({
                        "metadata": {"annotations": {TEMPORARY_ANNOTATION: null}},
                        "spec": {"conversion": {"webhook": null}},
                    });
                    for (key, value) in conversion.as_object().into_iter().flatten() {
                        patch["spec"]["conversion"][key] = value.clone();
                    }
                    if let Some(Value::Object(client)) =
                        patch.pointer_mut("/spec/conversion/webhook/clientConfig")
                    {
                        for absent in ["service", "url"] {
                            client.entry(absent).or_insert(Value::Null);
                        }
                    }
                    let done = self.merge(&path, &patch).await;
                    (path, done)
                }
            };
            match done {
                Ok(_) => tracing::info!(path, "took the registration of the webhooks back"),
                Err(error) => {
                    tracing::warn!(path, %error, "could not take the registration of the webhooks back");
                }
            }
        }
    }

    /// Deletes our configuration of webhooks that are not declared any more: the API server would still call them.
    async fn delete_stale(&self, path: &str, before: Option<Value>) -> Result<(), kube::Error> {
        let is_ours = before.is_some_and(|object| object["metadata"]["labels"][WEBHOOKS_LABEL] == *self.name);
        if is_ours {
            self.send(Method::DELETE, path, "application/json", &json!({}))
                .await?;
            tracing::info!(
                path,
                "deleted the configuration of webhooks that are not declared any more"
            );
        }
        Ok(())
    }

    /// Keeps what was there before the first registration of this process.
    fn remember(&self, replaced: Replaced) {
        if !self.is_temporary {
            return;
        }
        let path = |replaced: &Replaced| match replaced {
            Replaced::Configuration { path, .. } | Replaced::Conversion { path, .. } => path.clone(),
        };
        let mut known = self.replaced.lock();
        if !known.iter().any(|known| path(known) == path(&replaced)) {
            known.push(replaced);
        }
    }

    async fn get(&self, path: &str) -> Result<Option<Value>, kube::Error> {
        match self
            .send(Method::GET, path, "application/json", &Value::Null)
            .await
        {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn merge(&self, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.send(Method::PATCH, &path, "application/merge-patch+json", body)
            .await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        media_type: &'static str,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap_or_default();
        let media_type = HeaderValue::from_static(media_type);
        request.headers_mut().insert(header::CONTENT_TYPE, media_type);
        self.client.request(request).await
    }
}

fn is_temporary(object: &Value) -> bool {
    object["metadata"]["annotations"][TEMPORARY_ANNOTATION] == "true"
}

/// A typed object as JSON.
fn to_json(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
