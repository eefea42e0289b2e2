//! The sample controller: a [`Foo`] owns a Deployment.
//!
//! ```text
//!   Foo ──spec.deploymentName, spec.replicas──► Deployment (controlled by the Foo, by UID)
//!    ▲                                              │
//!    └──────── status.availableReplicas ────────────┘
//! ```
//!
//! A drop-in replacement for Kubernetes' sample-controller, with the same names, that fixes its known weaknesses: it corrects
//! drift in every field it sets, not only the replicas; it removes the old Deployment after a rename; and it writes nothing when
//! nothing differs.

#![allow(
    clippy::disallowed_names,
    reason = "here, foo is not a placeholder: it is what the kind is called"
)]

use windlass::{k8s_openapi::api::apps::v1::Deployment, prelude::*};

/// Desired state of a [`Foo`]: its Deployment's name and size.
#[windlass::resource(group = "samplecontroller.k8s.io", version = "v1alpha1")]
#[kube(kind = "Foo", namespaced, status = "FooStatus")]
// The server rejects CRDs in this group without it.
#[kube(annotation(
    "api-approved.kubernetes.io",
    "unapproved, experimental-only; please get an approval from Kubernetes API reviewers if you're trying to develop a CRD in the *.k8s.io or *.kubernetes.io groups"
))]
pub struct FooSpec {
    /// The name of the Deployment, in the Foo's namespace. If it is empty, the Foo is only reported as invalid.
    #[serde(default)]
    pub deployment_name: String,
    /// The number of replicas. Default: one at creation; later changes to the Deployment are kept.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
}

/// Observed state of a [`Foo`].
#[windlass::api_type]
pub struct FooStatus {
    /// The number of available replicas of the Deployment.
    #[serde(default)]
    pub available_replicas: i32,
}

/// The desired Deployment of a Foo, and its status.
pub async fn desired(foo: Arc<Foo>, ctx: Context) -> Result<Desired, Error> {
    if foo.spec.deployment_name.is_empty() {
        return Err(Error::terminal("spec.deploymentName is empty: set it"));
    }
    let labels = json!({ "app": "nginx", "controller": foo.name_any() });
    let nginx = json!({ "name": "nginx", "image": "nginx:latest" });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [nginx] } });
    let web: Deployment = from_value(json!({
        "metadata": { "name": foo.spec.deployment_name },
        "spec": { "replicas": foo.spec.replicas, "selector": { "matchLabels": labels }, "template": template },
    }))?;
    let there = ctx.get::<Deployment>(&foo.spec.deployment_name)?;
    let available = there.and_then(|there| there.status.as_ref()?.available_replicas);
    let available_replicas = available.unwrap_or(0);
    let desired = Desired::new().child(web).status(FooStatus { available_replicas });
    Ok(desired.event("Synced", "Foo synced successfully"))
}

/// The controller, to be run by a [`Manager`]. Its field manager and event source have the upstream controller's name.
pub fn controller() -> Controller<Foo, impl Reconciler> {
    let foos = Controller::<Foo>::new("foo").workers::<2>();
    let foos = foos.field_manager("sample-controller");
    foos.owns::<Deployment>().declare(desired)
}
