//! Our contender: the webhooks of a program with a manager. `rivals/go/webhook.go` has the same ones.

use std::{convert::Infallible, net::SocketAddr, path::Path};

use http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use tower::service_fn;
use windlass_runtime::Manager;
use windlass_webhook::{Change, FieldErrors, ManagerExt, WebhookOptions, Webhooks, mutate, validate};

fn check(change: Change<'_, Pod>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = change.new_object().and_then(|pod| pod.spec.as_ref());
    for (index, container) in spec.into_iter().flat_map(|spec| &spec.containers).enumerate() {
        let field = format_args!("spec.containers[{index}]");
        let image = container.image.as_deref().unwrap_or_default();
        if !image.starts_with("registry.example.com/") {
            errors.invalid(
                format_args!("{field}.image"),
                image,
                "must be of registry.example.com",
            );
        }
        let limits = container
            .resources
            .as_ref()
            .and_then(|resources| resources.limits.as_ref());
        if limits.is_none_or(|limits| !limits.contains_key("memory")) {
            errors.required(format_args!("{field}.resources.limits.memory"), "");
        }
    }
    errors
}

/// Serves the webhooks until the process is killed. They read nothing, so there is no API server.
pub(crate) async fn serve(address: SocketAddr, certificates: &Path) -> anyhow::Result<()> {
    let webhooks = Webhooks::new("bench")
        .with(validate::<Pod, _>(|change, _| check(change)).name("validate"))
        .with(
            mutate::<Pod, _>(|pod, _| {
                let labels = pod.metadata.labels.get_or_insert_default();
                labels.insert("checked".to_owned(), "yes".to_owned());
            })
            .name("mutate"),
        );
    let nowhere = service_fn(async |_: Request<Body>| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = http::StatusCode::NOT_FOUND;
        Ok::<_, Infallible>(response)
    });
    let client = kube::Client::new(nowhere, "default");
    let mut options = WebhookOptions::default();
    options.listen = Some(address);
    options.service = Some("bench/bench".to_owned());
    options.certificates = Some(certificates.to_owned());
    Ok(Manager::new(client)
        .quiet()
        .webhooks(webhooks, options)
        .run()
        .await?)
}
