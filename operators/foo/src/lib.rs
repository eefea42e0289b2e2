//! The sample controller: a [`Foo`] owns a Deployment.
//!
//! ```text
//!   Foo ──spec.deploymentName, spec.replicas──► Deployment (controlled by the Foo, by UID)
//!    ▲                                              │
//!    └──────── status.availableReplicas ────────────┘
//! ```
//!
//! It does what Kubernetes' own sample-controller does, under the same names, so that the two can be exchanged; and
//! better where that one is known to be weak: every field that it sets is kept, not only the number of replicas; the
//! Deployment of a former name is removed; nothing is written when nothing differs.

#![allow(
    clippy::disallowed_names,
    reason = "here, foo is not a placeholder: it is what the kind is called"
)]

use windlass::{k8s_openapi::api::apps::v1::Deployment, prelude::*};

/// Asks for a Deployment with this name and size.
#[windlass::resource(group = "samplecontroller.k8s.io", version = "v1alpha1")]
#[kube(kind = "Foo", namespaced, status = "FooStatus")]
// The server refuses CRDs in this group without it.
#[kube(annotation(
    "api-approved.kubernetes.io",
    "unapproved, experimental-only; please get an approval from Kubernetes API reviewers if you're trying to develop a CRD in the *.k8s.io or *.kubernetes.io groups"
))]
pub struct FooSpec {
    /// The name of the Deployment, in the Foo's namespace. Empty: nothing is done but to say so.
    #[serde(default)]
    pub deployment_name: String,
    /// How many replicas. Left out: one at first, and then whatever somebody sets on the Deployment.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
}

/// What is there.
#[windlass::part]
pub struct FooStatus {
    /// How many replicas of the Deployment are available.
    #[serde(default)]
    pub available_replicas: i32,
}

/// What a Foo asks for: its Deployment, and how much of that is available.
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

/// The controller, ready to be run by a [`Manager`]. It writes and speaks under upstream's name.
pub fn controller() -> Controller<Foo, impl Reconciler> {
    let foos = Controller::<Foo>::new("foo").workers::<2>();
    let foos = foos.component("sample-controller");
    foos.owns::<Deployment>().declare(desired)
}
