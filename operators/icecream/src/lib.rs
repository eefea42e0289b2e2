//! An [`Icecream`] owns a Deployment, and its status tells where its pods are and what they ask for.
//!
//! ```text
//!   Icecream ── deploymentName, replicas ──► Deployment ──► Pod ─┐ labelled icecream=<name>, and
//!     ▲   └──── flavor ──────────────────────────────────► Pod ─┤ ice-cream-flavor=<flavor>
//!     └──────── status ◄──── pods by label, from an index ◄─────┘
//! ```
//!
//! It is the example for the imperative style: [`controller`] says what to look at, and a function reconciles one
//! Icecream step by step. Start it with `icecream --install`, or `windlass run icecream`; `rbac.yaml` has the rights
//! that it needs, and `example.yaml` an Icecream to begin with.
//!
//! # Which pods are its own
//!
//! * With a `flavor`: the pods of its namespace with that value in the label [`FLAVOR`]. Those of its Deployment have
//!   it, and others may; two Icecreams of one flavor count the same pods.
//! * Without one, and an empty one is none: the pods with its name in the label [`ICECREAM`], by which its Deployment
//!   selects.
//!
//! Pods that have finished (`Succeeded`, `Failed`) are nobody's: they are on no node and use nothing. Of the others, the
//! requests of the containers are added up, exactly. Init containers are not counted: they are over when the others run.
//!
//! # When it looks again
//!
//! When the Icecream or its Deployment changes; when a pod comes, goes, or changes in its labels or in what the status
//! tells of it, for whom it belonged to before and for whom it belongs to now; and when a Deployment goes that had the
//! name it wants. The status is written when it differs: a write leads to one more look, and then to silence.
//!
//! # What can be wrong
//!
//! | what | what is told | what happens |
//! |---|---|---|
//! | `replicas` not from 1 to 10 | the server refuses the Icecream | nothing |
//! | `deploymentName`, `flavor` or its own name cannot be used | Warning `ErrInvalid`, with the rule | nothing, until it changes |
//! | a Deployment of somebody else has the name | Warning `ErrResourceExists` | nothing, until the name is free |
//!
//! Whatever is wrong, what is there stays: a typing error takes down no Deployment.

mod tally;

use windlass::{
    cache::{IndexBy, Stored},
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod},
    prelude::*,
    runtime::names::{InvalidName, check_label_value, check_name},
    tracing::info,
};

/// The label of all pods of a flavor.
pub const FLAVOR: &str = "ice-cream-flavor";

/// The label of the pods of an Icecream's Deployment: the Icecream's name.
pub const ICECREAM: &str = "icecream";

/// Asks for a Deployment with this name and size, and for an account of its pods.
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
    /// How many replicas. Left out: one at first, and then whatever somebody sets on the Deployment.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
    /// Which pods are its own: those with this value in the label `ice-cream-flavor`. Left out or empty: those of its
    /// Deployment.
    pub flavor: Option<String>,
}

/// Where its pods are, and what they ask for. Lists are sorted, and nothing is in one twice.
#[windlass::part]
#[derive(Default)]
#[serde(default)]
pub struct IcecreamStatus {
    /// The nodes that its pods are on.
    pub node_names: Vec<String>,
    /// The names of its pods.
    pub pod_names: Vec<String>,
    /// The addresses of its pods.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<String>,
    /// How much CPU the containers of its pods request together, for example `500m`.
    #[serde(rename = "totalAllocatedCPU")]
    pub total_allocated_cpu: String,
    /// How much memory the containers of its pods request together, for example `128Mi`.
    pub total_allocated_memory: String,
}

/// The controller, ready to be run by a [`Manager`]. It writes and speaks under upstream's name.
pub fn controller() -> Controller<Icecream, impl Reconciler> {
    let moved = Predicate::labels_changed().or(Predicate::new(|old, new| old.map(told) != Some(told(new))));
    // A Deployment that goes always passes; no other change of one that is not ours matters.
    let goes = Predicate::new(|_, _| false);
    Controller::<Icecream>::new("icecream")
        .component("nicole-controller")
        .owns::<Deployment>()
        .joins(
            Watch::<Deployment>::new().when(goes),
            |icecream| vec![icecream.spec.deployment_name.clone()],
            |deployment| vec![deployment.name_any()],
        )
        .joins(
            Watch::<Pod>::new().when(moved),
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

/// What a status would tell of this pod alone.
fn told(pod: &Stored<Pod>) -> Option<IcecreamStatus> {
    IcecreamStatus::of(&[pod.object().ok()?]).ok()
}

async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
    let Some(icecream) = ctx.lister::<Icecream>()?.get(&request.key) else {
        return Ok(Action::done()); // it is gone, and what it owns goes with it
    };
    if icecream.meta().deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    if let Err(wrong) = icecream.check() {
        let wrong = format!("Icecream {}: {wrong}", request.key);
        ctx.recorder().warning(&*icecream, "ErrInvalid", wrong.as_str());
        return Err(Error::terminal(wrong)); // no retry mends it, a change may
    }
    let wanted = Desired::new().child(icecream.deployment()?);
    let next = ctx.bring_about(&*icecream, wanted).await?;

    let [label, value] = icecream.label();
    let pods = ctx.lister::<Pod>()?;
    let labelled = pods.cache().index(IndexBy::label(label));
    let own = Query::all()
        .indexed(&labelled, &value)
        .namespace(request.key.namespace().unwrap_or_default());
    let status = IcecreamStatus::of(&pods.try_list(&own)?)?;
    if icecream.status.as_ref() != Some(&status) {
        let mut told = Icecream::clone(&icecream);
        told.status = Some(status.clone());
        ctx.writer().apply_status(&told).await?;
    }
    ctx.recorder()
        .normal(&*icecream, "Synced", "Icecream synced successfully");
    info!(nodes = ?status.node_names, "synced");
    Ok(next)
}

impl Icecream {
    /// The label that its pods have, and its value.
    fn label(&self) -> [String; 2] {
        match self.spec.flavor.as_deref() {
            None | Some("") => [ICECREAM.to_owned(), self.name_any()],
            Some(flavor) => [FLAVOR.to_owned(), flavor.to_owned()],
        }
    }

    /// Whether the server would take what is made of it. If not, which field is wrong, and the rule.
    fn check(&self) -> Result<(), String> {
        let at = |field: &'static str| move |wrong: InvalidName| format!("{field}: {wrong}");
        check_label_value(&self.name_any()).map_err(at("metadata.name"))?;
        check_name(&self.spec.deployment_name).map_err(at("spec.deploymentName"))?;
        check_label_value(&self.label()[1]).map_err(at("spec.flavor"))
    }

    fn deployment(&self) -> Result<Deployment, Error> {
        let [label, value] = self.label();
        let selector = json!({ ICECREAM: self.name_any() });
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
