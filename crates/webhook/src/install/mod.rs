//! Registers webhooks with the API server.
//!
//! ```text
//!   each object: GET ─► plan ─► nothing to do
//!                 ▲      └────► write, of the version that was read ─┐
//!                 └────────────────── conflict ◄─────────────────────┘
//! ```
//!
//! It is done after the certificate is there, and with its `caBundle`, so that no request fails between the two. A program
//! that starts registers what it declares; later it only brings back what was deleted, or replaced by a program that started
//! before it: during a rollout the old replicas do not write the old declaration over the new one.
//!
//! A [`temporary`] registration keeps what it has replaced in an annotation, and restores it at the end.

mod temporary;

pub(crate) use self::temporary::is_temporary_of_another;

use http::{HeaderValue, Method, Request, header};
use k8s_openapi::ByteString;
use kube::Client;
use serde::Serialize;
use serde_json::{Map, Value, json};
use windlass_api::status::StatusClass;

use self::temporary::Temporary;
use crate::{
    certificates::Seconds,
    registration::{Configurations, WebhookAddress},
};

/// Names the writes in managed fields.
const FIELD_MANAGER: &str = "windlass-webhook";

/// The label of registered configurations: the webhooks' name. One that is not declared any more is deleted by it.
pub const WEBHOOKS_LABEL: &str = "windlass.dev/webhooks";
/// The annotation of a registration: when its program started, in seconds since 1970.
const STARTED_ANNOTATION: &str = "windlass.dev/webhooks-started";

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// How often a write is repeated if the object was changed between the read and the write.
const ATTEMPTS: usize = 5;

/// Registers the webhooks of a program.
pub(crate) struct Installer {
    client: Client,
    name: String,
    address: WebhookAddress,
    /// When the program started.
    started: Seconds,
    registrations: Vec<Registration>,
}

/// One object, and what it should have.
#[derive(Clone, Debug)]
struct Registration {
    path: String,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// A configuration.
    Configuration(Value),
    /// No webhooks are declared: a configuration of this program is deleted.
    NoConfiguration,
    /// The `spec.conversion` of a CRD.
    Conversion(Value),
}

/// Where the `caBundle` of a registration comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CaBundle<'a> {
    /// [`Certificates`](crate::certificates::Certificates) keep it up to date. This one is for entries that have none.
    Initial(&'a str),
    /// A file, which has the only right one.
    File(&'a str),
    /// Another program, such as cert-manager, writes it.
    Injected,
}

/// When an installation happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstallPhase {
    /// The program has started.
    Start,
    /// It has registered its webhooks before.
    Repair,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error(
        "{path} belongs to another program: rename one of the two, or label it `{WEBHOOKS_LABEL}={name}` if it is to be replaced"
    )]
    Foreign { path: String, name: String },
    #[error("{path} is changed by others all the time")]
    Contended { path: String },
    #[error(
        "{path} has too many webhooks to keep them while this program runs: choose another name for its webhooks"
    )]
    TooLarge { path: String },
}

/// A write of an object.
#[derive(Clone, Debug, PartialEq)]
struct Write {
    method: Method,
    path: String,
    body: Value,
}

impl Installer {
    pub(crate) fn new(
        client: Client,
        name: &str,
        address: &WebhookAddress,
        configurations: &Configurations,
        started: Seconds,
    ) -> Self {
        let configuration = |collection: &str, kind: &str, configuration: Option<Value>| Registration {
            path: format!("{collection}/{name}"),
            content: configuration.map_or(Content::NoConfiguration, |mut object| {
                object["apiVersion"] = "admissionregistration.k8s.io/v1".into();
                object["kind"] = kind.into();
                Content::Configuration(object)
            }),
        };
        let mut registrations = vec![
            configuration(
                VALIDATING,
                "ValidatingWebhookConfiguration",
                configurations.validating.as_ref().map(to_json),
            ),
            configuration(
                MUTATING,
                "MutatingWebhookConfiguration",
                configurations.mutating.as_ref().map(to_json),
            ),
        ];
        registrations.extend(
            configurations
                .conversions
                .iter()
                .map(|(crd, conversion)| Registration {
                    path: format!("{CRDS}/{crd}"),
                    content: Content::Conversion(to_json(conversion)),
                }),
        );
        Self {
            client,
            name: name.to_owned(),
            address: address.clone(),
            started,
            registrations,
        }
    }

    /// Registers all webhooks. Returns whether something was written.
    pub(crate) async fn install(
        &self,
        bundle: CaBundle<'_>,
        phase: InstallPhase,
    ) -> Result<bool, InstallError> {
        let (mut is_written, mut failed) = (false, None);
        for registration in &self.registrations {
            let plan = |before: Option<&Value>| self.plan(registration, before, bundle, phase);
            match self.change(&registration.path, plan).await {
                Ok(changed) => is_written |= changed,
                // One that cannot be registered does not prevent the others.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if is_written {
            tracing::info!(
                webhooks = self.name,
                is_temporary = self.is_temporary(),
                "registered the webhooks"
            );
        }
        failed.map_or(Ok(is_written), Err)
    }

    /// Reads an object and writes what the plan says, until it was not changed in between. Returns whether there was
    /// something to write.
    async fn change(
        &self,
        path: &str,
        plan: impl Fn(Option<&Value>) -> Result<Option<Write>, InstallError>,
    ) -> Result<bool, InstallError> {
        for _ in 0..ATTEMPTS {
            let before = match self.send(Method::GET, path, &Value::Null).await {
                Ok(object) => Some(object),
                Err(error) if class(&error) == Some(StatusClass::NotFound) => None,
                Err(error) => return Err(error.into()),
            };
            let Some(write) = plan(before.as_ref())? else {
                return Ok(false);
            };
            match self.send(write.method, &write.path, &write.body).await {
                Ok(_) => return Ok(true),
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(InstallError::Contended {
            path: path.to_owned(),
        })
    }

    fn plan(
        &self,
        registration: &Registration,
        before: Option<&Value>,
        bundle: CaBundle<'_>,
        phase: InstallPhase,
    ) -> Result<Option<Write>, InstallError> {
        let path = &registration.path;
        if phase == InstallPhase::Repair && before.is_some_and(|before| self.is_displaced(before)) {
            return Ok(None);
        }
        match &registration.content {
            Content::Configuration(wanted) => self.plan_configuration(path, wanted, before, bundle, phase),
            Content::NoConfiguration => self.plan_removal(path, before, phase),
            Content::Conversion(wanted) => self.plan_conversion(path, wanted, before, bundle, phase),
        }
    }

    fn plan_configuration(
        &self,
        path: &str,
        wanted: &Value,
        before: Option<&Value>,
        bundle: CaBundle<'_>,
        phase: InstallPhase,
    ) -> Result<Option<Write>, InstallError> {
        let mut wanted = wanted.clone();
        let Some(before) = before else {
            set_bundles(&mut wanted["webhooks"], |_| new_bundle(bundle, None));
            wanted["metadata"]["labels"] = json!({WEBHOOKS_LABEL: self.name});
            wanted["metadata"]["annotations"] = self.annotations(path, None, || Value::Null)?;
            let collection = path.rsplit_once('/').map_or(path, |(collection, _)| collection);
            return Ok(Some(Write {
                method: Method::POST,
                path: format!("{collection}?fieldManager={FIELD_MANAGER}"),
                body: wanted,
            }));
        };
        if !self.owns(&wanted, before) {
            return Err(InstallError::Foreign {
                path: path.to_owned(),
                name: self.name.clone(),
            });
        }
        let existing = |name: &Value| items(&before["webhooks"]).find(|webhook| webhook["name"] == *name);
        set_bundles(&mut wanted["webhooks"], |webhook| {
            let client = existing(&webhook["name"]).map(|webhook| &webhook["clientConfig"]);
            new_bundle(bundle, client.filter(|client| self.address.is_called_by(client)))
        });
        let is_listed = items(&wanted["webhooks"]).all(|webhook| {
            existing(&webhook["name"])
                .is_some_and(|existing| self.address.is_called_by(&existing["clientConfig"]))
        });
        if phase == InstallPhase::Repair && !self.is_newer_than(before) {
            if !is_listed || !matches!(bundle, CaBundle::File(_)) {
                return Ok(None);
            }
            // What another program of this name declares stays as it is; the bundle of a file does not.
            let mut webhooks = before["webhooks"].clone();
            set_bundles(&mut webhooks, |webhook| {
                let client = &webhook["clientConfig"];
                let is_ours = self.address.is_called_by(client);
                new_bundle(if is_ours { bundle } else { CaBundle::Injected }, Some(client))
            });
            let is_same = webhooks == before["webhooks"];
            return Ok((!is_same).then(|| merge(path, before, json!({"webhooks": webhooks}))));
        }
        let is_same = items(&wanted["webhooks"]).count() == items(&before["webhooks"]).count()
            && contains(&before["webhooks"], &wanted["webhooks"])
            && before["metadata"]["labels"][WEBHOOKS_LABEL] == *self.name
            && self.is_marked(before);
        if is_same {
            return Ok(None);
        }
        let annotations = self.annotations(path, Some(before), || before["webhooks"].clone())?;
        // Replaces the webhooks as a whole: an apply would keep what others have set, such as a service beside a URL.
        let change = json!({
            "metadata": {"labels": {WEBHOOKS_LABEL: self.name}, "annotations": annotations},
            "webhooks": wanted["webhooks"],
        });
        Ok(Some(merge(path, before, change)))
    }

    /// Our configuration of webhooks that are not declared any more: the API server would still call them.
    fn plan_removal(
        &self,
        path: &str,
        before: Option<&Value>,
        phase: InstallPhase,
    ) -> Result<Option<Write>, InstallError> {
        let is_ours = |before: &&Value| before["metadata"]["labels"][WEBHOOKS_LABEL] == *self.name;
        let Some(before) = before.filter(is_ours).filter(|_| phase == InstallPhase::Start) else {
            return Ok(None);
        };
        if !self.is_temporary() {
            return Ok(Some(delete(path, before)));
        }
        if items(&before["webhooks"]).next().is_none() && self.is_marked(before) {
            return Ok(None);
        }
        let annotations = self.annotations(path, Some(before), || before["webhooks"].clone())?;
        let change = json!({"metadata": {"annotations": annotations}, "webhooks": []});
        Ok(Some(merge(path, before, change)))
    }

    fn plan_conversion(
        &self,
        path: &str,
        wanted: &Value,
        before: Option<&Value>,
        bundle: CaBundle<'_>,
        phase: InstallPhase,
    ) -> Result<Option<Write>, InstallError> {
        // Without its CRD there is nothing to convert.
        let Some(before) = before else {
            return Ok(None);
        };
        let client = &before["spec"]["conversion"]["webhook"]["clientConfig"];
        let is_called = self.address.is_called_by(client);
        let is_other_service = !is_called && !client["service"].is_null();
        if phase == InstallPhase::Repair && is_other_service && !self.is_newer_than(before) {
            return Ok(None);
        }
        let mut wanted = wanted.clone();
        let wanted_client = &mut wanted["webhook"]["clientConfig"];
        if let Some(bundle) = new_bundle(bundle, Some(client).filter(|_| is_called)) {
            wanted_client["caBundle"] = bundle;
        }
        if contains(&before["spec"]["conversion"], &wanted) && self.is_marked(before) {
            return Ok(None);
        }
        let annotations = self.annotations(path, Some(before), || before["spec"]["conversion"].clone())?;
        let change = json!({
            "metadata": {"annotations": annotations},
            "spec": {"conversion": exact_client(wanted)},
        });
        Ok(Some(merge(path, before, change)))
    }

    /// Whether a configuration of our name is ours: by its label, by the names of its webhooks, or because it calls us. Those of
    /// manifests have no label.
    fn owns(&self, wanted: &Value, before: &Value) -> bool {
        let mut webhooks = items(&before["webhooks"]).peekable();
        before["metadata"]["labels"][WEBHOOKS_LABEL] == *self.name
            || Temporary::of(before).is_some()
            || webhooks.peek().is_none()
            || webhooks.any(|webhook| {
                self.address.is_called_by(&webhook["clientConfig"])
                    || items(&wanted["webhooks"]).any(|wanted| wanted["name"] == webhook["name"])
            })
    }

    /// Whether our program started after the one that has registered its webhooks.
    fn is_newer_than(&self, before: &Value) -> bool {
        self.is_temporary() || was_registered_before(before, self.started)
    }

    /// The annotations of a registration. `replaced` is what a temporary one replaces, if that is not temporary itself.
    fn annotations(
        &self,
        path: &str,
        before: Option<&Value>,
        replaced: impl FnOnce() -> Value,
    ) -> Result<Value, InstallError> {
        let mut annotations = Map::new();
        if let WebhookAddress::Url(url) = &self.address {
            let replaced = match before.and_then(Temporary::of) {
                // Of a program that was killed.
                Some(temporary) => temporary.replaced,
                None => Some(replaced()).filter(|replaced| !replaced.is_null()),
            };
            let temporary = Temporary {
                url: url.clone(),
                replaced,
            };
            annotations.extend([temporary
                .into_annotation()
                .ok_or_else(|| InstallError::TooLarge {
                    path: path.to_owned(),
                })?]);
        } else {
            annotations.insert(STARTED_ANNOTATION.to_owned(), self.started.to_string().into());
            if before.is_some() {
                annotations.insert(temporary::ANNOTATION.to_owned(), Value::Null);
            }
        }
        Ok(annotations.into())
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let media_type = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        // The names are those of objects, which are valid in paths.
        *request.uri_mut() = path.parse().unwrap_or_default();
        let media_type = HeaderValue::from_static(media_type);
        request.headers_mut().insert(header::CONTENT_TYPE, media_type);
        self.client.request(request).await
    }
}

/// Whether the program that has registered an object started before this time.
pub(crate) fn was_registered_before(object: &Value, started: Seconds) -> bool {
    let annotation = object["metadata"]["annotations"][STARTED_ANNOTATION].as_str();
    annotation
        .and_then(|at| at.parse::<Seconds>().ok())
        .is_some_and(|at| at < started)
}

/// A merge patch of an object that has not changed since it was read.
fn merge(path: &str, before: &Value, mut change: Value) -> Write {
    change["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    Write {
        method: Method::PATCH,
        path: format!("{path}?fieldManager={FIELD_MANAGER}"),
        body: change,
    }
}

/// The deletion of an object that has not changed since it was read.
fn delete(path: &str, before: &Value) -> Write {
    let metadata = &before["metadata"];
    Write {
        method: Method::DELETE,
        path: path.to_owned(),
        body: json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        }),
    }
}

/// The `caBundle` of a `clientConfig`, which is ours if it exists already.
fn new_bundle(bundle: CaBundle<'_>, client: Option<&Value>) -> Option<Value> {
    let existing = client
        .map(|client| &client["caBundle"])
        .filter(|bundle| !bundle.is_null());
    let encode = |pem: &str| json!(ByteString(pem.as_bytes().to_vec()));
    match bundle {
        CaBundle::Initial(pem) => Some(existing.cloned().unwrap_or_else(|| encode(pem))),
        CaBundle::File(pem) => Some(encode(pem)),
        CaBundle::Injected => existing.cloned(),
    }
}

fn set_bundles(webhooks: &mut Value, bundle: impl Fn(&Value) -> Option<Value>) {
    for webhook in webhooks.as_array_mut().into_iter().flatten() {
        if let Some(bundle) = bundle(webhook) {
            webhook["clientConfig"]["caBundle"] = bundle;
        }
    }
}

/// A conversion for a merge patch, which keeps what it does not name: a client has either a service or a URL.
fn exact_client(mut conversion: Value) -> Value {
    if let Some(Value::Object(client)) = conversion.pointer_mut("/webhook/clientConfig") {
        for absent in ["service", "url", "caBundle"] {
            client.entry(absent).or_insert(Value::Null);
        }
    }
    conversion
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Whether a value has all that is wanted: the API server adds defaults.
fn contains(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            let value = value.get(key).unwrap_or(&Value::Null);
            contains(value, wanted)
        }),
        (Value::Array(value), Value::Array(wanted)) => {
            value.len() == wanted.len()
                && value
                    .iter()
                    .zip(wanted)
                    .all(|(value, wanted)| contains(value, wanted))
        }
        (value, wanted) => value == wanted,
    }
}

fn class(error: &kube::Error) -> Option<StatusClass> {
    match error {
        kube::Error::Api(status) => Some(StatusClass::of(status)),
        _ => None,
    }
}

/// Whether the object was changed, made or deleted since it was read.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(
        class(error),
        Some(
            StatusClass::Conflict
                | StatusClass::AlreadyExists
                | StatusClass::UidMismatch
                | StatusClass::NotFound
        )
    )
}

/// A typed object as JSON.
fn to_json(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

#[cfg(test)]
mod tests;
