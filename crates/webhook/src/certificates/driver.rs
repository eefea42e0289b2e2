//! Sends the requests of a [`Rotation`] to the API server.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use futures::FutureExt;
use http::{HeaderValue, Method, header};
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio::sync::Notify;
use windlass_clock::Clock;

use windlass_api::status::StatusClass;

use crate::{
    install::{CaBundle, InstallPhase, Installer, is_temporary_of_another, was_registered_before},
    registration::WebhookAddress,
};

use super::{
    CertificateSlot, Readiness, Seconds,
    rotation::{Entry, Request, Response, Rotation, Step, TargetState},
    stored::SecretData,
};

/// The shortest pause between two cycles.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// Names the writes in managed fields.
const FIELD_MANAGER: &str = "windlass-webhook";

/// An object that has the `caBundle` of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BundleTarget {
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

impl BundleTarget {
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
    /// When the program started.
    pub(crate) started: Seconds,
    pub(crate) program: String,
    pub(crate) hosts: Vec<String>,
    pub(crate) targets: Vec<BundleTarget>,
    pub(crate) slot: Arc<CertificateSlot>,
    pub(crate) ready: Readiness,
    /// Notified when a client refused the certificate, which is a reason to look at once.
    pub(crate) check: Arc<Notify>,
    /// Registers the webhooks once there is a certificate.
    pub(crate) installer: Option<&'a Installer>,
}

/// The Secret as it was last read or, without one, what it would have.
#[derive(Default)]
struct StoreState {
    memory: Option<SecretData>,
    secret: Option<Secret>,
}

impl Certificates<'_> {
    /// Runs until `stop` completes, and then ends after the request that is under way.
    pub(crate) async fn run(&self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let targets = self.targets.iter().map(BundleTarget::describe).collect();
        let mut rotation = Rotation::new(&self.program, self.hosts.clone(), targets);
        let mut state = StoreState::default();
        let mut phase = InstallPhase::Start;
        // What is registered is read back at once, but not again and again.
        let mut is_read_back = false;
        while stop.as_mut().now_or_never().is_none() {
            let now = Clock::system().now().as_second();
            match rotation.next(now) {
                Step::Send(request) => {
                    let response = self.send(request, &mut state).await;
                    if let Response::Failed(why) = &response {
                        tracing::warn!(why, "the certificates of the webhooks cannot be checked");
                    }
                    rotation.handle(response);
                }
                Step::Wait(pause) => {
                    self.publish(&rotation);
                    if rotation.is_contended() {
                        tracing::warn!(
                            "another program changes the certificates or the caBundle of the webhooks again and again"
                        );
                    }
                    if self.install(&rotation, &mut phase).await && !is_read_back {
                        is_read_back = true;
                        rotation.waited();
                        continue;
                    }
                    is_read_back = false;
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.asked() => {}
                        () = &mut stop => return,
                    }
                    rotation.waited();
                }
            }
            self.publish(&rotation);
        }
    }

    /// Registers the webhooks after a complete cycle, so that the bundle is what the Secret has: at the start, and later if
    /// something of them is missing. Returns whether something was written.
    async fn install(&self, rotation: &Rotation, phase: &mut InstallPhase) -> bool {
        let (Some(installer), Some(bundle)) = (self.installer, rotation.settled_bundle()) else {
            return false;
        };
        if *phase == InstallPhase::Repair && !rotation.is_target_incomplete() {
            return false;
        }
        match installer.install(CaBundle::Initial(bundle), *phase).await {
            Ok(is_written) => {
                *phase = InstallPhase::Repair;
                is_written
            }
            Err(error) => {
                tracing::warn!(%error, "cannot register the webhooks");
                false
            }
        }
    }

    /// Completes when a client has refused the certificate, but not at once: any client can do that.
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

    async fn send(&self, request: Request, state: &mut StoreState) -> Response {
        let sent = match (&self.store, request) {
            (SecretStore::Memory, Request::GetSecret) => {
                let version = "0".to_owned();
                Ok(Response::Secret(state.memory.clone().map(|data| (version, data))))
            }
            (SecretStore::Memory, Request::CreateSecret(data) | Request::UpdateSecret { data, .. }) => {
                state.memory = Some(data);
                Ok(Response::Written)
            }
            (_, Request::GetTarget(index)) => {
                let sent = self.get_target(index).await;
                sent.map_err(|error| (error, self.describe(index)))
            }
            (
                _,
                Request::PatchTarget {
                    index,
                    version,
                    paths,
                    bundle,
                },
            ) => {
                let sent = self.patch_target(index, &version, &paths, bundle).await;
                sent.map_err(|error| (error, self.describe(index)))
            }
            (SecretStore::Secret { namespace, name }, request) => {
                let secrets = Api::namespaced(self.client.clone(), namespace);
                let sent = send_secret(&secrets, name, request, &mut state.secret).await;
                sent.map_err(|error| (error, format!("Secret {namespace}/{name}")))
            }
        };
        sent.unwrap_or_else(|(error, object)| match &error {
            kube::Error::Api(status) if is_conflict(status) => Response::Conflict,
            _ => Response::Failed(format!("{object}: {error}")),
        })
    }

    fn describe(&self, index: usize) -> String {
        self.targets
            .get(index)
            .map(BundleTarget::describe)
            .unwrap_or_default()
    }

    async fn get_target(&self, index: usize) -> Result<Response, kube::Error> {
        let Some(target) = self.targets.get(index) else {
            return Ok(Response::Target(TargetState::Absent));
        };
        let found = match self
            .client
            .request::<Value>(request(Method::GET, &target.path(), Vec::new()))
            .await
        {
            Ok(object) => self.state(target, &object),
            Err(kube::Error::Api(status)) if StatusClass::of(&status) == StatusClass::NotFound => {
                TargetState::Absent
            }
            Err(error) => return Err(error),
        };
        Ok(Response::Target(found))
    }

    /// Writes the bundle into our entries, and nothing else, if the object still has this version.
    async fn patch_target(
        &self,
        index: usize,
        version: &str,
        paths: &[String],
        bundle: Vec<u8>,
    ) -> Result<Response, kube::Error> {
        let Some(target) = self.targets.get(index) else {
            return Ok(Response::Conflict);
        };
        let bundle = ByteString(bundle);
        // The version as part of the object: a conflict (409) if it is another one now. A failed `test` would be 422, like an
        // object that is refused.
        let mut operations =
            vec![json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version})];
        for path in paths {
            operations.push(json!({"op": "add", "path": format!("{path}/caBundle"), "value": bundle}));
        }
        let path = format!("{}?fieldManager={FIELD_MANAGER}", target.path());
        let body = Value::from(operations).to_string().into_bytes();
        self.client
            .request::<Value>(request(Method::PATCH, &path, body))
            .await?;
        tracing::info!(object = target.describe(), "wrote the caBundle");
        Ok(Response::Written)
    }
}

impl Certificates<'_> {
    fn state(&self, target: &BundleTarget, object: &Value) -> TargetState {
        let entries = entries(target, &self.address, object);
        let is_complete = match &target.kind {
            TargetKind::Validating(names) | TargetKind::Mutating(names) => {
                entries.len() >= names.len()
                    && !(was_registered_before(object, self.started) && self.has_others(names, object))
            }
            TargetKind::Crd => !entries.is_empty(),
        };
        let version = object["metadata"]["resourceVersion"].as_str();
        TargetState::Present {
            version: version.unwrap_or_default().to_owned(),
            entries,
            // A program on a laptop that stands in for this one has its own bundle.
            is_complete: is_complete || is_temporary_of_another(&self.address, object),
        }
    }

    /// Whether webhooks of other names call us, which an older program has declared.
    fn has_others(&self, names: &[String], object: &Value) -> bool {
        let mut webhooks = object["webhooks"].as_array().into_iter().flatten();
        webhooks.any(|webhook| {
            let is_declared = webhook["name"]
                .as_str()
                .is_some_and(|name| names.iter().any(|own| own == name));
            !is_declared && self.address.is_called_by(&webhook["clientConfig"])
        })
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
fn entries(target: &BundleTarget, address: &WebhookAddress, object: &Value) -> Vec<Entry> {
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

/// Whether an object was changed, made or deleted since it was read.
fn is_conflict(status: &kube::core::Status) -> bool {
    matches!(
        StatusClass::of(status),
        StatusClass::Conflict | StatusClass::AlreadyExists | StatusClass::UidMismatch
    )
}

/// Sends a request for the Secret. `read` is the Secret that was last read: what is not ours in it stays.
async fn send_secret(
    secrets: &Api<Secret>,
    name: &str,
    request: Request,
    read: &mut Option<Secret>,
) -> Result<Response, kube::Error> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let to_data = |data: SecretData| data.into_iter().map(|(key, value)| (key, ByteString(value)));
    match request {
        Request::GetSecret => {
            read.clone_from(&secrets.get_opt(name).await?);
            Ok(Response::Secret(read.as_ref().map(|secret| {
                let data = secret.data.iter().flatten();
                let data = data.map(|(key, value)| (key.clone(), value.0.clone()));
                let version = secret.metadata.resource_version.clone();
                (version.unwrap_or_default(), data.collect())
            })))
        }
        Request::CreateSecret(data) => {
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    ..ObjectMeta::default()
                },
                data: Some(to_data(data).collect()),
                type_: Some("kubernetes.io/tls".to_owned()),
                ..Secret::default()
            };
            secrets.create(&params, &secret).await?;
            tracing::info!(secret = name, "made a certificate");
            Ok(Response::Written)
        }
        Request::UpdateSecret { version, data } => {
            let mut secret = read.clone().unwrap_or_default();
            if secret.immutable == Some(true) {
                return Ok(Response::Failed(format!(
                    "the Secret {name} is immutable, so its certificates cannot be renewed: delete it"
                )));
            }
            secret.metadata.resource_version = Some(version);
            secret.data.get_or_insert_default().extend(to_data(data));
            secrets.replace(name, &params, &secret).await?;
            tracing::info!(secret = name, "renewed the certificate");
            Ok(Response::Written)
        }
        Request::GetTarget(_) | Request::PatchTarget { .. } => Ok(Response::Conflict),
    }
}

#[cfg(test)]
mod tests;
