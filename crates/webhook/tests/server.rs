//! The embedded server of the tests, with the webhooks registered as they declare.

use kube::{Api, Client, api::PostParams};
use windlass_apiserver::{InProcessWebhook, Server};
use windlass_cache::CacheSet;
use windlass_webhook::{WebhookAddress, Webhooks};

/// A server that calls these webhooks as the service `hooks` in `system`.
pub(crate) async fn with(webhooks: Webhooks) -> Client {
    let configurations = webhooks.configurations(&WebhookAddress::service("system", "hooks"));
    serve(webhooks.service(), &configurations).await
}

async fn serve(
    service: windlass_webhook::WebhookService,
    configurations: &windlass_webhook::Configurations,
) -> Client {
    let server = Server::builder()
        .webhook("hooks.system.svc", InProcessWebhook::new(service))
        .build();
    let client = client(server);
    let params = PostParams::default();
    if let Some(validating) = &configurations.validating {
        let api = Api::all(client.clone());
        api.create(&params, validating)
            .await
            .expect("the configuration is valid");
    }
    if let Some(mutating) = &configurations.mutating {
        let api = Api::all(client.clone());
        api.create(&params, mutating)
            .await
            .expect("the configuration is valid");
    }
    client
}

/// A server whose webhooks read from caches of the server itself.
pub(crate) async fn with_reads(webhooks: Webhooks) -> (Client, CacheSet) {
    let configurations = webhooks.configurations(&WebhookAddress::service("system", "hooks"));
    // The caches need the server, and the server needs the service.
    let backend = client(Server::builder().build());
    let caches = CacheSet::new(backend.clone());
    let service = webhooks.service_with(&caches);
    let front = serve(service, &configurations).await;
    drop(backend);
    (front, caches)
}

pub(crate) fn client(server: Server) -> Client {
    Client::new(server, "default")
}
