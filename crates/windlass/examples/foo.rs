//! Kubernetes' sample controller: a Foo asks for a Deployment, and tells how much of it is available.

use windlass::{k8s_openapi::api::apps::v1::Deployment, prelude::*};

/// Asks for a Deployment.
#[windlass::resource(group = "example.com", version = "v1alpha1")]
#[kube(kind = "Foo", namespaced, status = "FooStatus")]
struct FooSpec {
    deployment_name: String,
    #[schemars(range(min = 1, max = 10))]
    replicas: Option<i32>,
}

#[windlass::part]
struct FooStatus {
    available_replicas: i32,
}

async fn desired(foo: Arc<Foo>, ctx: Context) -> Result<Desired, Error> {
    let labels = json!({ "app": "nginx", "controller": foo.name_any() });
    let deployment: Deployment = from_value(json!({
        "metadata": { "name": foo.spec.deployment_name },
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "nginx", "image": "nginx:latest" }] },
            },
        },
    }))?;
    let there = ctx.get::<Deployment>(&foo.spec.deployment_name)?;
    let available = there.and_then(|there| there.status.as_ref()?.available_replicas);
    let available_replicas = available.unwrap_or(0);
    let desired = Desired::new().child(deployment);
    let desired = desired.status(FooStatus { available_replicas });
    Ok(desired.event("Synced", "Foo synced successfully"))
}

fn main() -> std::process::ExitCode {
    let foos = Controller::<Foo>::new("foo").owns::<Deployment>();
    launch("foo", [Foo::crd()], |manager| {
        manager.controller(foos.declare(desired))
    })
}
