//! An [`Icecream`] owns a Deployment, and reports the nodes, addresses and requests of its pods in its status.
//!
//! ```text
//!   Icecream ── deploymentName, replicas ──► Deployment ──► Pod ─┐ labelled icecream=<name>, and
//!     ▲   └──── flavor ──────────────────────────────────► Pod ─┤ ice-cream-flavor=<flavor>
//!     └──────── status ◄──── pods by label, from an index ◄─────┘
//! ```
//!
//! It is the example for the imperative style: [`controller`] declares the watches, and a function reconciles one Icecream step
//! by step. Start it with `icecream --install` or `windlass run icecream`; `rbac.yaml` has the rights it needs, and `example.yaml`
//! is a first Icecream.
//!
//! # Its pods
//!
//! * With a `flavor`: the pods of its namespace with that value in the label [`FLAVOR_LABEL`]. Those of its Deployment have
//!   it, and others may; two Icecreams of one flavor count the same pods.
//! * Without one, or with an empty one: the pods with its name in the label [`ICECREAM_LABEL`], its Deployment's selector.
//!
//! Finished pods (`Succeeded`, `Failed`) are not counted: they use no resources. The requests of the other pods' containers are
//! added up exactly. Init containers are not counted: they have ended when the others run.
//!
//! # When it reconciles
//!
//! When the Icecream or its Deployment changes; when a pod is added, deleted, or changes its labels or a field that the status
//! reports, for the Icecreams it matched before and those it matches now; and when a Deployment with the wanted name is deleted.
//! The status is written only when it differs: a write causes one more reconcile, which writes nothing.
//!
//! # Errors
//!
//! | cause | report | effect |
//! |---|---|---|
//! | `replicas` not from 1 to 10 | the server rejects the Icecream | none |
//! | invalid `deploymentName`, `flavor` or name | Warning `ErrInvalid`, with the rule | none, until it changes |
//! | the name's Deployment has another owner | Warning `ErrResourceExists` | none, until the name is free |
//!
//! No error changes existing objects: a typo deletes no Deployment.
//!
//! # Webhooks
//!
//! With `--install --webhooks` the API server asks the program before it stores an Icecream: one without a `deploymentName` gets its own
//! name, and what is invalid is refused at once. Then Icecreams can be written as [`v1beta1`], too; they are stored as
//! `v1alpha1`.

mod status;
mod webhooks;

pub use webhooks::{add_webhooks, crd, v1beta1};

use windlass::{
    api::naming::{InvalidName, check_label_value, check_name},
    cache::{CachedObject, Indexer},
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod},
    prelude::*,
    tracing::info,
};

/// The label with a pod's flavor.
pub const FLAVOR_LABEL: &str = "ice-cream-flavor";

/// The label of the pods of an Icecream's Deployment. Its value is the Icecream's name.
pub const ICECREAM_LABEL: &str = "icecream";

/// Desired state of an [`Icecream`]: its Deployment, and the pods to report.
#[windlass::resource(group = "controller.nicoleh.io", version = "v1alpha1")]
#[kube(kind = "Icecream", namespaced, status = "IcecreamStatus")]
#[kube(printcolumn = r#"{"name": "Deployment", "type": "string", "jsonPath": ".spec.deploymentName"}"#)]
#[kube(printcolumn = r#"{"name": "Flavor", "type": "string", "jsonPath": ".spec.flavor"}"#)]
#[kube(printcolumn = r#"{"name": "CPU", "type": "string", "jsonPath": ".status.totalAllocatedCPU"}"#)]
#[kube(printcolumn = r#"{"name": "Memory", "type": "string", "jsonPath": ".status.totalAllocatedMemory"}"#)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
pub struct IcecreamSpec {
    /// The name of the Deployment, in the Icecream's namespace.
    #[serde(default)]
    pub deployment_name: String,
    /// The number of replicas. Default: one at creation; later changes to the Deployment are kept.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
    /// Reports the pods with this value in the label `ice-cream-flavor`. Default, also if empty: the pods of its Deployment.
    pub flavor: Option<String>,
}

/// Observed state of an [`Icecream`]: its pods. Lists are sorted and without duplicates.
#[windlass::api_type]
#[derive(Default)]
#[serde(default)]
pub struct IcecreamStatus {
    /// The nodes of its pods.
    pub node_names: Vec<String>,
    /// The names of its pods.
    pub pod_names: Vec<String>,
    /// The IP addresses of its pods.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<String>,
    /// The total CPU request of its pods' containers, for example `500m`.
    #[serde(rename = "totalAllocatedCPU")]
    pub total_allocated_cpu: String,
    /// The total memory request of its pods' containers, for example `128Mi`.
    pub total_allocated_memory: String,
}

/// The controller, to be run by a [`Manager`]. Its field manager and event source have the upstream controller's name.
pub fn controller() -> Controller<Icecream, impl Reconciler> {
    let reported_changed = Predicate::labels_changed().or(Predicate::new(|old, new| {
        old.map(reported_fields) != Some(reported_fields(new))
    }));
    // Deletions always pass a filter; other changes of Deployments that it does not own do not matter.
    let deletions_only = Predicate::new(|_, _| false);
    Controller::<Icecream>::new("icecream")
        .field_manager("nicole-controller")
        .owns::<Deployment>()
        .watches_by_index(
            Watch::<Deployment>::new().filter(deletions_only),
            |icecream| vec![icecream.spec.deployment_name.clone()],
            |deployment| vec![deployment.name_any()],
        )
        .watches_by_index(
            Watch::<Pod>::new().filter(reported_changed),
            |icecream| vec![icecream.label().join("=")],
            |pod| {
                pod.labels()
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect()
            },
        )
        .reconcile(reconcile)
}

fn reported_fields(pod: &CachedObject<Pod>) -> Option<IcecreamStatus> {
    IcecreamStatus::from_pods(&[pod.object().ok()?]).ok()
}

async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
    let Some(icecream) = ctx.lister::<Icecream>()?.get(&request.key) else {
        return Ok(Action::done()); // deleted: the garbage collector deletes its Deployment
    };
    if icecream.meta().deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    if let Some((field, error)) = icecream.invalid_fields().next() {
        let message = format!("Icecream {}: {field}: {error}", request.key);
        ctx.recorder().warning(&*icecream, "ErrInvalid", message.as_str());
        return Err(Error::terminal(message)); // a retry cannot help, a change can
    }
    let desired = Desired::new().child(icecream.deployment()?);
    let next = ctx.apply_desired(&*icecream, desired).await?;

    let [label, value] = icecream.label();
    let pods = ctx.lister::<Pod>()?;
    let labelled = pods.cache().index(Indexer::label(label));
    let own = Query::all()
        .indexed(&labelled, &value)
        .namespace(request.key.namespace().unwrap_or_default());
    let status = IcecreamStatus::from_pods(&pods.try_list(&own)?)?;
    if icecream.status.as_ref() != Some(&status) {
        let mut updated = Icecream::clone(&icecream);
        updated.status = Some(status.clone());
        ctx.writer().apply_status(&updated).await?;
    }
    ctx.recorder()
        .normal(&*icecream, "Synced", "Icecream synced successfully");
    info!(nodes = ?status.node_names, "synced");
    Ok(next)
}

impl Icecream {
    /// The label of its pods: name and value.
    fn label(&self) -> [String; 2] {
        match self.spec.flavor.as_deref() {
            None | Some("") => [ICECREAM_LABEL.to_owned(), self.name_any()],
            Some(flavor) => [FLAVOR_LABEL.to_owned(), flavor.to_owned()],
        }
    }

    /// Checks the fields that become names and labels: each invalid field, and the rule.
    fn invalid_fields(&self) -> impl Iterator<Item = (&'static str, InvalidName)> {
        [
            ("metadata.name", check_label_value(&self.name_any())),
            ("spec.deploymentName", check_name(&self.spec.deployment_name)),
            ("spec.flavor", check_label_value(&self.label()[1])),
        ]
        .into_iter()
        .filter_map(|(field, checked)| Some((field, checked.err()?)))
    }

    fn deployment(&self) -> Result<Deployment, Error> {
        let [label, value] = self.label();
        let selector = json!({ ICECREAM_LABEL: self.name_any() });
        let mut labels = selector.clone();
        labels[label] = json!(value);
        let requests = json!({ "cpu": "250m", "memory": "64Mi" });
        let nginx =
            json!({ "name": "nginx", "image": "nginx:latest", "resources": { "requests": requests } });
        Ok(from_value(json!({
            "metadata": { "name": self.spec.deployment_name },
            "spec": {
                "replicas": self.spec.replicas,
                "selector": { "matchLabels": selector },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [nginx] } },
            },
        }))?)
    }
}
