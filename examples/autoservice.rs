//! A Service for every Deployment that carries an annotation: convenient in a development cluster.
//!
//! ```text
//!   Deployment (example.com/autoservice: "true") ── selector, container ports ──► Service of the same name
//!        ▲                                                                             │
//!        └─────────────────────────────── owner reference ─────────────────────────────┘
//! ```
//!
//! The Service follows the Deployment's container ports, is restored when it drifts or is deleted, and is deleted with the
//! annotation, the last port or the Deployment. A Service that the Deployment does not own is never touched: a warning event
//! reports it. Nothing depends on events that the controller might miss while it is down: each reconcile compares the
//! desired with the actual state. `autoservice.rbac.yaml` has the rights it needs.
//!
//! ```sh
//! cargo run -p windlass-examples --bin autoservice -- --embedded   # plays `demo` on an embedded cluster
//! cargo run -p windlass-examples --bin autoservice                 # runs on the kubeconfig's cluster
//! kubectl annotate deployment web example.com/autoservice=true
//! ```

use std::collections::BTreeMap;

use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Service},
    prelude::*,
    serde_json::Value,
};
use windlass_examples::{User, example};

/// The annotation: `"true"` requests a Service; `"false"` is the same as none.
pub(crate) const ANNOTATION: &str = "example.com/autoservice";

pub(crate) fn controller() -> Controller<Deployment, impl Reconciler> {
    // The generation of a Deployment changes with its spec and its annotations, but not with its status.
    let deployments = Watch::<Deployment>::new().filter(Predicate::generation_changed());
    Controller::from_watch("autoservice", deployments)
        .owns::<Service>()
        .declare(desired)
}

async fn desired(deployment: Arc<Deployment>, ctx: Context) -> Result<Desired, Error> {
    match deployment.annotations().get(ANNOTATION).map(String::as_str) {
        // An existing Service of ours is deleted.
        None | Some("false") => return Ok(Desired::new().without::<Service>()),
        Some("true") => {}
        // Reported as a warning event, and not retried. An existing Service is left alone.
        Some(other) => {
            let message = format!("invalid annotation {ANNOTATION}={other:?}: must be \"true\" or \"false\"");
            return Err(Error::terminal(message));
        }
    }
    let ports = service_ports(&deployment);
    if ports.is_empty() {
        let message = "no container of the pod template has a port: a Service needs at least one";
        ctx.recorder().lasting().warning(&*deployment, "NoPorts", message);
        return Ok(Desired::new().without::<Service>());
    }
    let service: Service = from_value(json!({
        "metadata": { "name": deployment.name_any() },
        "spec": { "selector": selector(&deployment)?, "ports": ports },
    }))?;
    Ok(Desired::new().child(service))
}

/// The labels of the Deployment's pods. A Service cannot express `matchExpressions`.
fn selector(deployment: &Deployment) -> Result<&BTreeMap<String, String>, Error> {
    let selector = deployment.spec.as_ref().map(|spec| &spec.selector);
    let only_labels = selector.filter(|selector| selector.match_expressions.is_none());
    let labels = only_labels.and_then(|selector| selector.match_labels.as_ref());
    labels.ok_or_else(|| {
        Error::terminal("spec.selector has matchExpressions: a Service needs matchLabels only")
    })
}

/// A Service port for each container port, under the same number.
fn service_ports(deployment: &Deployment) -> Vec<Value> {
    let spec = deployment.spec.as_ref();
    let pod = spec.and_then(|spec| spec.template.spec.as_ref());
    let containers = pod.into_iter().flat_map(|pod| &pod.containers);
    let mut ports = BTreeMap::new(); // a Service has each port and protocol once
    for port in containers.flat_map(|container| container.ports.iter().flatten()) {
        let (number, protocol) = (port.container_port, port.protocol.as_deref().unwrap_or("TCP"));
        // Names of container ports are optional, and unique only within their container.
        let name = format!("{}-{number}", protocol.to_lowercase());
        let port = json!({ "name": name, "port": number, "protocol": protocol, "targetPort": number });
        ports.insert((number, protocol), port);
    }
    ports.into_values().collect()
}

fn main() -> std::process::ExitCode {
    let setup = |manager: Manager| manager.controller(controller());
    example("autoservice", [], setup, demo)
}

async fn demo(user: User) -> Result<(), Error> {
    let container = json!({ "name": "web", "image": "nginx", "ports": [{ "containerPort": 80 }] });
    let web = json!({
        "metadata": { "name": "web", "annotations": { ANNOTATION: "true" } },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [container] } },
        },
    });
    user.create::<Deployment>(web).await?;
    let service = user.wait_for::<Service>("web", |_| true).await?;
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ports: Vec<_> = ports.map(|port| port.port).collect();
    println!("the Service web has the ports {ports:?}");
    let disable = json!({ "metadata": { "annotations": { ANNOTATION: null } } });
    user.patch::<Deployment>("web", disable).await?;
    user.wait_until_deleted::<Service>("web").await?;
    println!("without the annotation, it is deleted");
    Ok(())
}
