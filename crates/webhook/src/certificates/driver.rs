//! Sends the requests of a [`Rotation`] to the API server.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{HeaderValue, Method, header};
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio::sync::Notify;
use windlass_clock::Clock;

use crate::{install::Installer, registration::WebhookAddress};

use super::{
    CertificateSlot, Readiness,
    rotation::{Entry, Reply, Request, Rotation, Step, TargetState},
    stored::SecretData,
};

/// The shortest pause between two cycles.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// Names the writes in managed fields.
const FIELD_MANAGER: &str = "windlass-webhook";

/// An object that has the `caBundle` of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: TargetKind,
    /// The object's name.
    pub(crate) name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetKind {
    /// The names of our webhooks in it; others are not touched.
    Validating(Vec<String>),
    Mutating(Vec<String>),
    /// A CRD with a conversion webhook.
    Crd,
}

impl Target {
    fn path(&self) -> String {
        let collection = match self.kind {
            TargetKind::Validating(_) => "admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            TargetKind::Mutating(_) => "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            TargetKind::Crd => "apiextensions.k8s.io/v1/customresourcedefinitions",
        };
        format!("/apis/{collection}/{}", self.name)
    }

    fn describe(&self) -> String {
        let kind = match self.kind {
            TargetKind::Validating(_) => "ValidatingWebhookConfiguration",
            TargetKind::Mutating(_) => "MutatingWebhookConfiguration",
            TargetKind::Crd => "CustomResourceDefinition",
        };
        format!("{kind} {}", self.name)
    }
}

/// Where the certificates are kept.
#[derive(Clone, Debug)]
pub(crate) enum SecretStore {
    /// A Secret, which all replicas share.
    Secret { namespace: String, name: String },
    /// The memory of this process: for a program on a laptop.
    Memory,
}

/// Keeps the certificates of a replica up to date.
pub(crate) struct Certificates<'a> {
    pub(crate) client: Client,
    pub(crate) store: SecretStore,
    /// Where the API server calls the webhooks.
    pub(crate) address: WebhookAddress,
    pub(crate) program: String,
    pub(crate) hosts: Vec<String>,
    pub(crate) targets: Vec<Target>,
    pub(crate) slot: Arc<CertificateSlot>,
    pub(crate) ready: Readiness,
    /// Notified when a client refused the certificate, which is a reason to look at once.
    pub(crate) check: Arc<Notify>,
    /// Registers the webhooks once there is a certificate.
    pub(crate) installer: Option<&'a Installer>,
}

impl Certificates<'_> {
    /// Runs until dropped. It may be dropped at any time.
    pub(crate) async fn run(&self) {
        let targets = self.targets.iter().map(Target::describe).collect();
        let mut rotation = Rotation::new(&self.program, self.hosts.clone(), targets);
        let (mut memory, mut is_installed) = (None, false);
        loop {
            let now = Clock::system().now().as_second();
            match rotation.next(now) {
                Step::Send(request) => {
                    let reply = self.send(request, &mut memory).await;
                    if let Reply::Failed(why) = &reply {
                        tracing::warn!(why, "the certificates of the webhooks cannot be checked");
                    }
                    rotation.handle(reply);
                }
                Step::Wait(pause) => {
                    self.publish(&rotation);
                    // Also later, if a configuration was deleted.
                    if let (Some(installer), Some(bundle)) = (self.installer, rotation.bundle())
                        && (!is_installed || rotation.is_target_missing())
                    {
                        match installer.install(Some(bundle), is_installed).await {
                            Ok(()) => {
                                is_installed = true;
                                rotation.waited();
                                continue;
                            }
                            Err(error) => tracing::warn!(%error, "cannot register the webhooks"),
                        }
                    }
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.asked() => {}
                    }
                    rotation.waited();
                }
            }
            self.publish(&rotation);
        }
    }

    /// Completes when somebody asks for a check, but not at once: any client can refuse a certificate.
    async fn asked(&self) {
        self.check.notified().await;
        tokio::time::sleep(SHORTEST_PAUSE).await;
    }

    fn publish(&self, rotation: &Rotation) {
        if let Some((chain, key)) = rotation.served()
            && let Err(why) = self.slot.serve(chain, key)
        {
            self.ready.set(Err(why));
            return;
        }
        let now = Clock::system().now().as_second();
        self.ready.set(rotation.readiness(now).map_err(ToOwned::to_owned));
    }

    async fn send(&self, request: Request, memory: &mut Option<SecretData>) -> Reply {
        let sent = match (&self.store, request) {
            (SecretStore::Memory, Request::GetSecret) => {
                let version = "0".to_owned();
                Ok(Reply::Secret(memory.clone().map(|data| (version, data))))
            }
            (SecretStore::Memory, Request::CreateSecret(data) | Request::UpdateSecret { data, .. }) => {
                *memory = Some(data);
                Ok(Reply::Written)
            }
            (_, Request::GetTarget(index)) => self.get_target(index).await,
            (
                _,
                Request::PatchTarget {
                    index,
                    version,
                    paths,
                    bundle,
                },
            ) => self.patch_target(index, &version, &paths, bundle).await,
            (SecretStore::Secret { namespace, name }, request) => {
                let secrets = Api::namespaced(self.client.clone(), namespace);
                send_secret(&secrets, name, request).await
            }
        };
        sent.unwrap_or_else(|error| match error {
            // 422: the test of the version in a patch has failed.
            kube::Error::Api(status) if matches!(status.code, 409 | 422) => Reply::Conflict,
            error => Reply::Failed(error.to_string()),
        })
    }

    async fn get_target(&self, index: usize) -> Result<Reply, kube::Error> {
        let Some(target) = self.targets.get(index) else {
            return Ok(Reply::Target(TargetState::Missing));
        };
        let found = match self
            .client
            .request::<Value>(request(Method::GET, &target.path(), Vec::new()))
            .await
        {
            Ok(object) => state(target, &self.address, &object),
            Err(kube::Error::Api(status)) if status.code == 404 => TargetState::Missing,
            Err(error) => return Err(error),
        };
        Ok(Reply::Target(found))
    }

    /// Writes the bundle into our entries, and nothing else, if nobody has written since `version`.
    async fn patch_target(
        &self,
        index: usize,
        version: &str,
        paths: &[String],
        bundle: Vec<u8>,
    ) -> Result<Reply, kube::Error> {
        let Some(target) = self.targets.get(index) else {
            return Ok(Reply::Conflict);
        };
        let bundle = ByteString(bundle);
        let mut operations =
            vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
        for path in paths {
            operations.push(json!({"op": "add", "path": format!("{path}/caBundle"), "value": bundle}));
        }
        let path = format!("{}?fieldManager={FIELD_MANAGER}", target.path());
        let body = Value::from(operations).to_string().into_bytes();
        self.client
            .request::<Value>(request(Method::PATCH, &path, body))
            .await?;
        tracing::info!(object = target.describe(), "wrote the caBundle");
        Ok(Reply::Written)
    }
}

fn request(method: Method, path: &str, body: Vec<u8>) -> http::Request<Vec<u8>> {
    let mut request = http::Request::new(body);
    *request.method_mut() = method;
    // The names are those of objects, which are valid in paths.
    *request.uri_mut() = path.parse().unwrap_or_default();
    request.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json-patch+json"),
    );
    request
}

/// The entries of ours in an object: of our names, and with our address. Others may be those of a program on a laptop, or of
/// the cluster that it stands in for.
fn entries(target: &Target, address: &WebhookAddress, object: &Value) -> Vec<Entry> {
    let entry = |path: String, client: &Value| {
        let bundle: Option<ByteString> = serde_json::from_value(client["caBundle"].clone()).ok().flatten();
        Entry {
            path,
            bundle: bundle.map(|bundle| bundle.0),
        }
    };
    match &target.kind {
        TargetKind::Validating(names) | TargetKind::Mutating(names) => {
            let webhooks = object["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
            let ours = webhooks.iter().enumerate().filter(|(_, webhook)| {
                let name = webhook["name"].as_str();
                name.is_some_and(|name| names.iter().any(|own| own == name))
                    && address.is_called_by(&webhook["clientConfig"])
            });
            ours.map(|(index, webhook)| {
                entry(
                    format!("/webhooks/{index}/clientConfig"),
                    &webhook["clientConfig"],
                )
            })
            .collect()
        }
        TargetKind::Crd => {
            let client = &object["spec"]["conversion"]["webhook"]["clientConfig"];
            if address.is_called_by(client) {
                vec![entry("/spec/conversion/webhook/clientConfig".to_owned(), client)]
            } else {
                Vec::new()
            }
        }
    }
}

fn state(target: &Target, address: &WebhookAddress, object: &Value) -> TargetState {
    let entries = entries(target, address, object);
    let expected = match &target.kind {
        TargetKind::Validating(names) | TargetKind::Mutating(names) => names.len(),
        TargetKind::Crd => 1,
    };
    if entries.len() < expected {
        return TargetState::Missing;
    }
    let version = object["metadata"]["resourceVersion"].as_str();
    TargetState::Present {
        version: version.unwrap_or_default().to_owned(),
        entries,
    }
}

async fn send_secret(secrets: &Api<Secret>, name: &str, request: Request) -> Result<Reply, kube::Error> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let secret = |data: SecretData, version: Option<String>| Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: version,
            ..ObjectMeta::default()
        },
        data: Some(
            data.into_iter()
                .map(|(key, value)| (key, ByteString(value)))
                .collect(),
        ),
        type_: Some("kubernetes.io/tls".to_owned()),
        ..Secret::default()
    };
    match request {
        Request::GetSecret => {
            let found = secrets.get_opt(name).await?;
            Ok(Reply::Secret(found.map(|secret| {
                let data: BTreeMap<_, _> = secret.data.unwrap_or_default();
                let data = data.into_iter().map(|(key, value)| (key, value.0)).collect();
                (secret.metadata.resource_version.unwrap_or_default(), data)
            })))
        }
        Request::CreateSecret(data) => {
            secrets.create(&params, &secret(data, None)).await?;
            tracing::info!(secret = name, "made a certificate");
            Ok(Reply::Written)
        }
        Request::UpdateSecret { version, data } => {
            secrets
                .replace(name, &params, &secret(data, Some(version)))
                .await?;
            tracing::info!(secret = name, "renewed the certificate");
            Ok(Reply::Written)
        }
        Request::GetTarget(_) | Request::PatchTarget { .. } => Ok(Reply::Conflict),
    }
}
