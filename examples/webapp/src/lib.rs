//! A controller for web applications.
//!
//! ```text
//!   WebApp ──► ConfigMap, Deployment, Service, and with a host an Ingress
//!     │            ▲
//!     │            └── the version of the Secret that it names: a new one restarts the pods
//!     ├──► status: ready replicas, URL, the condition Ready
//!     ├──► with ttlSeconds, deletes itself
//!     └──► on deletion, the data that the application has stored elsewhere (`DataService`)
//! ```

#![allow(
    unreachable_pub,
    reason = "kube's derive of a schema with rules has such an item inside of a function"
)]

mod data_service;

use std::{collections::BTreeMap, time::Duration};

pub use data_service::DataService;
use windlass::{
    k8s_openapi::{
        api::{
            apps::v1::Deployment,
            core::v1::{ConfigMap, Secret, Service},
            networking::v1::Ingress,
        },
        apimachinery::pkg::apis::meta::v1::Condition,
    },
    prelude::*,
    serde_json::Value,
};

/// Annotation of the pods with the version of the Secret that they use. Not a hash of its data, from which a weak password
/// could be guessed.
pub const SECRET_VERSION_ANNOTATION: &str = "example.com/secret-version";

/// Deletes the data of a WebApp before the WebApp is deleted.
pub const FINALIZER: &str = "webapps.example.com/data";

/// Desired state of a [`WebApp`].
#[windlass::resource(
    group = "example.com",
    version = "v1",
    kind = "WebApp",
    namespaced,
    status = "WebAppStatus"
)]
#[kube(printcolumn(
    name = "Ready",
    type_ = "string",
    json_path = ".status.conditions[?(@.type==\"Ready\")].status"
))]
#[x_kube(validation = Rule::new("!has(self.ttlSeconds) || self.replicas == 1")
    .message("a WebApp with ttlSeconds is a preview and has one replica"))]
pub struct WebAppSpec {
    /// The image of the application.
    pub image: String,
    /// The number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 50))]
    pub replicas: i32,
    /// The port that the application listens on.
    #[serde(default = "http_port")]
    #[schemars(range(min = 1, max = 65535))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("port is immutable"))]
    pub port: i32,
    /// Environment variables.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// A Secret with further environment variables. The pods restart when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// The host name of an Ingress. Without it there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Seconds from creation to deletion, for previews. Without it the WebApp stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub ttl_seconds: Option<u32>,
}

fn one() -> i32 {
    1
}

fn http_port() -> i32 {
    8080
}

/// Observed state of a [`WebApp`].
#[windlass::api_type]
#[derive(Default)]
pub struct WebAppStatus {
    /// The generation of the WebApp that this status is about. Set by the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Where the application is reachable from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `Ready`: whether all pods are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "windlass::schemas::conditions")]
    pub conditions: Vec<Condition>,
}

/// The desired children and status of a WebApp.
pub async fn desired(app: Arc<WebApp>, ctx: Context) -> Result<Desired, Error> {
    let left = time_left(&app, &ctx);
    if left.is_some_and(|left| left.is_zero()) {
        ctx.writer().delete(&*app).await?;
        // Nothing is applied to a deleted object. Its children are garbage collected, after the data is deleted.
        return Ok(Desired::new());
    }
    let until_the_end = |desired: Desired| match left {
        Some(left) => desired.requeue_after(left),
        None => desired,
    };
    let secret_version = match &app.spec.secret_name {
        None => None,
        Some(name) => match ctx.get::<Secret>(name)? {
            Some(secret) => secret.resource_version(),
            // The children stay as they are. The Secret is watched, so this runs again when there is one.
            None => {
                let message = format!("Secret {name} does not exist: create it");
                let undecided = Desired::undecided("SecretMissing", message);
                return Ok(until_the_end(undecided));
            }
        },
    };
    let ingress = app.spec.host.as_deref().map(|host| ingress(&app, host));
    let desired = Desired::new()
        .child(config_map(&app)?)
        .child(deployment(&app, secret_version.as_deref())?)
        .child(service(&app)?)
        // None without a host: an Ingress that exists is deleted.
        .optional_child(ingress.transpose()?);
    let (status, ready) = status(&app, ctx.get::<Deployment>(&app.name_any())?.as_deref());
    Ok(until_the_end(desired.status(status).condition(ready)))
}

/// The time until a preview is deleted; `None` if it has no time-to-live.
fn time_left(app: &WebApp, ctx: &Context) -> Option<Duration> {
    let ttl = Duration::from_secs(app.spec.ttl_seconds?.into());
    let age = ctx.now().duration_since(app.creation_timestamp()?.0);
    Some(ttl.saturating_sub(age.try_into().unwrap_or_default()))
}

fn labels(app: &WebApp) -> Value {
    json!({ "app.kubernetes.io/name": "webapp", "app.kubernetes.io/instance": app.name_any() })
}

fn config_map(app: &WebApp) -> Result<ConfigMap, Error> {
    Ok(from_value(json!({
        "metadata": { "name": app.name_any(), "labels": labels(app) },
        "data": app.spec.config,
    }))?)
}

fn deployment(app: &WebApp, secret_version: Option<&str>) -> Result<Deployment, Error> {
    let (name, labels, spec) = (app.name_any(), labels(app), &app.spec);
    let mut sources = vec![json!({ "configMapRef": { "name": name } })];
    sources.extend(
        spec.secret_name
            .iter()
            .map(|name| json!({ "secretRef": { "name": name } })),
    );
    let annotations = secret_version.map(|version| json!({ SECRET_VERSION_ANNOTATION: version }));
    let container = json!({
        "name": "web",
        "image": spec.image,
        "ports": [{ "name": "http", "containerPort": spec.port }],
        "env": [{ "name": "DATA_ID", "value": app.uid() }],
        "envFrom": sources,
    });
    Ok(from_value(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "replicas": spec.replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels, "annotations": annotations },
                "spec": { "containers": [container] },
            },
        },
    }))?)
}

fn service(app: &WebApp) -> Result<Service, Error> {
    Ok(from_value(json!({
        "metadata": { "name": app.name_any(), "labels": labels(app) },
        "spec": { "selector": labels(app), "ports": [{ "name": "http", "port": 80, "targetPort": "http" }] },
    }))?)
}

fn ingress(app: &WebApp, host: &str) -> Result<Ingress, Error> {
    let backend = json!({ "service": { "name": app.name_any(), "port": { "name": "http" } } });
    let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
    Ok(from_value(json!({
        "metadata": { "name": app.name_any(), "labels": labels(app) },
        "spec": { "rules": [{ "host": host, "http": { "paths": [path] } }] },
    }))?)
}

/// The status, and its condition `Ready`.
fn status(app: &WebApp, deployment: Option<&Deployment>) -> (WebAppStatus, ConditionUpdate) {
    let deployment = deployment.cloned().unwrap_or_default();
    let running = deployment.status.unwrap_or_default();
    let ready_replicas = running.ready_replicas.unwrap_or(0);
    // Ready replicas with an earlier image do not count. Which ones are ready is unknown: all that are not may be new ones.
    let is_observed = running.observed_generation >= deployment.metadata.generation;
    let updated = running.updated_replicas.filter(|_| is_observed);
    let unready = running.replicas.unwrap_or(0) - ready_replicas;
    let current = (updated.unwrap_or(0) - unready).max(0);
    let ready = if current >= app.spec.replicas {
        ConditionUpdate::true_("Ready", "AllReplicasReady")
    } else {
        ConditionUpdate::false_("Ready", "ReplicasNotReady")
    };
    let status = WebAppStatus {
        ready_replicas,
        url: app.spec.host.as_ref().map(|host| format!("http://{host}/")),
        ..WebAppStatus::default()
    };
    let message = format!("{current} of {} replicas are ready", app.spec.replicas);
    (status, ready.message(message))
}

/// The controller, to be run by a [`Manager`].
pub fn controller(data: DataService) -> Controller<WebApp, impl Reconciler> {
    Controller::<WebApp>::new("webapp")
        .owns::<ConfigMap>()
        .owns::<Deployment>()
        .owns::<Service>()
        .owns::<Ingress>()
        .watches_by_index(
            Watch::<Secret>::new(),
            |app| app.spec.secret_name.iter().cloned().collect(),
            |secret| vec![secret.name_any()],
        )
        .declare(desired)
        .cleanup(FINALIZER, move |app, _ctx| {
            let data = data.clone();
            async move { data.delete(&app).await }
        })
}
