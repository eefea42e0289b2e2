//! Kubernetes' sample controller: a Foo owns a Deployment and reports its available replicas.

use windlass::{k8s_openapi::api::apps::v1::Deployment, prelude::*};

/// Desired state of a [`Foo`]: its Deployment's name and size.
#[windlass::resource(group = "example.com", version = "v1alpha1")]
#[kube(kind = "Foo", namespaced, status = "FooStatus")]
struct FooSpec {
    #[serde(default)]
    deployment_name: String,
    #[schemars(range(min = 1, max = 10))]
    replicas: Option<i32>,
}

/// Observed state of a [`Foo`].
#[windlass::api_type]
struct FooStatus {
    #[serde(default)]
    available_replicas: i32,
}

/// The desired Deployment of a Foo, and its status.
async fn desired(foo: Arc<Foo>, ctx: Context) -> Result<Desired, Error> {
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

fn controller() -> Controller<Foo, impl Reconciler> {
    let foos = Controller::<Foo>::new("foo").workers::<2>();
    let foos = foos.field_manager("sample-controller");
    foos.owns::<Deployment>().declare(desired)
}

fn main() -> std::process::ExitCode {
    launch("foo", [Foo::crd()], |manager| manager.controller(controller()))
}
