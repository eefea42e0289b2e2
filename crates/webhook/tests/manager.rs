//! Webhooks beside a manager, called by an API server over TLS.

use std::{net::SocketAddr, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    core::v1::{ConfigMap, Namespace, Secret},
};
use kube::{
    Api, Client, CustomResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::oneshot, task::JoinHandle};
use windlass_apiserver::Server;
use windlass_runtime::{
    CrdInstaller, Manager, ManagerError,
    metrics::{Format, Metrics},
};
use windlass_webhook::{ManagerExt, Verdict, WebhookOptions, Webhooks, mutate, validate};

use crate::server;

const REFUSED: &str = "admission webhook \"validate.configmaps.hooks\" denied the request: no";

pub(crate) fn webhooks() -> Webhooks {
    Webhooks::new("hooks")
        .with(validate::<ConfigMap, _>(|change, _| {
            let name = change.object().metadata.name.as_deref();
            if name == Some("bad") {
                Verdict::deny("no")
            } else {
                Verdict::allow()
            }
        }))
        .with(mutate::<ConfigMap, _>(|map, _| {
            map.data
                .get_or_insert_default()
                .insert("seen".to_owned(), "yes".to_owned());
        }))
}

/// An unused port.
pub(crate) fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

pub(crate) struct Running {
    pub(crate) metrics: Metrics,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ManagerError>>,
}

impl Running {
    pub(crate) fn start(client: &Client, options: WebhookOptions) -> Self {
        let manager = Manager::new(client.clone())
            .install(CrdInstaller::new([]).apply())
            .webhooks(webhooks(), options);
        let metrics = manager.metrics();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(manager.run_until(async {
            stopped.await.ok();
        }));
        Self { metrics, stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("the manager runs");
        self.task.await.expect("no panic").expect("no failure");
    }
}

pub(crate) fn service_options(address: SocketAddr) -> WebhookOptions {
    let mut options = WebhookOptions::default();
    options.listen = Some(address);
    options.service = Some("system/hooks".to_owned());
    options
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).expect("a ConfigMap")
}

/// Waits until an attempt succeeds, in real time: TLS and sockets do not follow a paused clock.
pub(crate) async fn eventually<T>(mut attempt: impl AsyncFnMut() -> Result<T, String>) -> T {
    let mut last = String::new();
    for _ in 0..600 {
        match attempt().await {
            Ok(done) => return done,
            Err(why) => last = why,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not after 30 s: {last}");
}

/// Completes when the webhooks answer.
pub(crate) async fn refuses(client: &Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    eventually(async || {
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match maps.create(&params, &map("bad")).await {
            Err(kube::Error::Api(status)) if status.message == REFUSED => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

pub(crate) async fn namespace(client: &Client) {
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "system"}})).expect("valid");
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .expect("created");
}

#[tokio::test]
async fn certificates_are_made_trusted_and_healed() {
    let address = free_address();
    let client = server::client(
        Server::builder()
            .webhook_address("hooks.system.svc", address)
            .build(),
    );
    namespace(&client).await;
    let replicas = [
        Running::start(&client, service_options(address)),
        // Its port is another one, and it shares the Secret.
        Running::start(&client, service_options(free_address())),
    ];
    refuses(&client).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let good = maps
        .create(&PostParams::default(), &map("good"))
        .await
        .expect("allowed");
    assert_eq!(good.data.expect("data")["seen"], "yes");

    let text = replicas[0].metrics.scrape(Format::Prometheus);
    for line in [
        "controller_runtime_webhook_requests_total{code=\"200\",webhook=\"/validate.configmaps.hooks\"}",
        "controller_runtime_webhook_latency_seconds_bucket{webhook=\"/mutate.configmaps.hooks\",le=\"0.005\"}",
        "controller_runtime_webhook_requests_in_flight{webhook=\"/mutate.configmaps.hooks\"} 0",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }

    // A user wipes the bundle, and deletes the Secret.
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let wipe = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
    let request =
        http::Request::patch("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hooks")
            .header("content-type", "application/json-patch+json")
            .body(wipe.to_string().into_bytes())
            .expect("a request");
    client
        .request::<serde_json::Value>(request)
        .await
        .expect("patched");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "system");
    secrets
        .delete("hooks-webhook-certificates", &DeleteParams::default())
        .await
        .expect("deleted");
    refuses(&client).await;
    eventually(async || {
        secrets
            .get("hooks-webhook-certificates")
            .await
            .map_err(|error| error.to_string())
    })
    .await;

    // A configuration that is deleted comes back.
    configurations
        .delete("hooks", &DeleteParams::default())
        .await
        .expect("deleted");
    eventually(async || {
        configurations
            .get("hooks")
            .await
            .map_err(|error| error.to_string())
    })
    .await;
    refuses(&client).await;
    for replica in replicas {
        replica.stop().await;
    }
    configurations
        .get("hooks")
        .await
        .expect("what runs in a cluster stays registered");
}

#[tokio::test]
async fn registration_of_a_laptop_is_taken_back() {
    let client = server::client(Server::builder().build());
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    // The cluster has webhooks of this name already, whose pods are gone.
    let existing = webhooks().configurations(&windlass_webhook::WebhookAddress::service("system", "hooks"));
    let existing = existing.validating.expect("one");
    configurations
        .create(&PostParams::default(), &existing)
        .await
        .expect("created");

    let mut options = WebhookOptions::default();
    options.listen = Some(free_address());
    let running = Running::start(&client, options);
    refuses(&client).await;
    let during = configurations
        .get("hooks")
        .await
        .expect("one")
        .webhooks
        .expect("one");
    assert!(during[0].client_config.url.is_some());
    assert_eq!(during[0].client_config.service, None);
    running.stop().await;

    let after = configurations
        .get("hooks")
        .await
        .expect("one")
        .webhooks
        .expect("one");
    assert_eq!(
        after[0].client_config,
        existing.webhooks.expect("one")[0].client_config
    );
    let mutating: Api<k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration> =
        Api::all(client);
    assert!(mutating.get_opt("hooks").await.expect("an answer").is_none());
}

#[tokio::test]
async fn names_that_no_object_can_have_are_errors() {
    let wrong = validate::<ConfigMap, _>(|_, _| Verdict::allow()).name("sizes");
    for (webhooks, shown) in [
        (Webhooks::new("My_App"), "invalid name \"My_App\""),
        (Webhooks::new("hooks").with(wrong), "at least three parts"),
    ] {
        let client = server::client(Server::builder().build());
        let manager = Manager::new(client).webhooks(webhooks, WebhookOptions::default());
        let error = manager.run_until(std::future::pending()).await;
        let error = error.expect_err("the name is invalid").to_string();
        assert!(error.contains(shown), "{error}");
    }
}

#[tokio::test]
async fn remote_server_needs_a_url_and_nothing_is_registered_without_install() {
    let client = server::client(Server::builder().build());
    let remote = || Manager::new(client.clone()).server_url("https://10.0.0.1:6443");
    // The order of `install` and `webhooks` does not matter.
    let manager = remote()
        .webhooks(webhooks(), WebhookOptions::default())
        .install(CrdInstaller::new([]).apply());
    let error = manager.run_until(std::future::pending()).await;
    let error = error.expect_err("the server is remote").to_string();
    assert!(error.contains("--webhook-url"), "{error}");
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = remote().webhooks(webhooks(), WebhookOptions::default());
    let task = tokio::spawn(manager.run_until(async {
        stopped.await.ok();
    }));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    assert!(
        configurations
            .get_opt("hooks")
            .await
            .expect("an answer")
            .is_none()
    );
    stop.send(()).expect("it runs");
    task.await.expect("no panic").expect("no failure");
}

#[tokio::test]
async fn port_in_use_is_an_error_that_names_the_flag() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = server::client(Server::builder().build());
    let options = service_options(listener.local_addr().expect("an address"));
    let manager = Manager::new(client).webhooks(webhooks(), options);
    let error = manager
        .run_until(std::future::pending())
        .await
        .expect_err("the port is in use");
    assert!(error.to_string().contains("--webhook-listen"), "{error}");
}

#[tokio::test]
async fn webhooks_are_not_ready_without_their_configuration() {
    let client = server::client(Server::builder().build());
    namespace(&client).await;
    let http = free_address();
    let manager = Manager::new(client.clone())
        .listen(http.to_string())
        .webhooks(webhooks(), service_options(free_address()));
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(manager.run_until(async {
        stopped.await.ok();
    }));
    let get = async || {
        let answer = crate::socket::plain_get(http, "/readyz").await;
        answer.map_err(|error| error.to_string())
    };
    eventually(async || {
        let body = get().await?;
        let is_waiting = body.contains("[+]controllers ok") && body.contains("[-]webhooks failed");
        if is_waiting { Ok(()) } else { Err(body) }
    })
    .await;
    let existing = webhooks().configurations(&windlass_webhook::WebhookAddress::service("system", "hooks"));
    Api::all(client.clone())
        .create(&PostParams::default(), &existing.validating.expect("one"))
        .await
        .expect("created");
    Api::all(client.clone())
        .create(&PostParams::default(), &existing.mutating.expect("one"))
        .await
        .expect("created");
    eventually(async || {
        let body = get().await?;
        if body.contains("200 OK") {
            Ok(())
        } else {
            Err(body)
        }
    })
    .await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    Api::<ValidatingWebhookConfiguration>::all(client)
        .patch("hooks", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    stop.send(()).expect("it runs");
    task.await.expect("no panic").expect("no failure");
}

#[tokio::test]
async fn webhooks_are_not_ready_before_the_caches_of_their_handlers() {
    let client = server::client(Server::builder().build());
    namespace(&client).await;
    let http = free_address();
    let manager = Manager::new(client.clone())
        .listen(http.to_string())
        .install(CrdInstaller::new([]).apply())
        .webhooks(
            webhooks().reads::<crate::conversion::v1::Cone>(),
            service_options(free_address()),
        );
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(manager.run_until(async {
        stopped.await.ok();
    }));
    let wait_for = async |text: &str| {
        eventually(async || {
            let answer = crate::socket::plain_get(http, "/readyz/webhooks?verbose").await;
            let body = answer.map_err(|error| error.to_string())?;
            if body.contains(text) { Ok(()) } else { Err(body) }
        })
        .await;
    };
    // The kind is not served yet.
    wait_for("the caches that the handlers read have not synced").await;
    Api::all(client)
        .create(&PostParams::default(), &crate::conversion::v1::Cone::crd())
        .await
        .expect("the CRD is valid");
    wait_for("200 OK").await;
    stop.send(()).expect("it runs");
    task.await.expect("no panic").expect("no failure");
}

/// The caches of a controller need conversions of a webhook in the same process.
#[tokio::test]
async fn informer_of_a_converted_kind_syncs_with_its_own_webhook() {
    use crate::conversion::{v1, v2};

    let address = free_address();
    let builder = Server::builder().webhook_address("cones.system.svc", address);
    let client = server::client(builder.build());
    namespace(&client).await;
    let mut crd =
        kube::core::crd::merge_crds(vec![v1::Cone::crd(), v2::Cone::crd()], "v1").expect("one kind");
    let cones = || Webhooks::new("cones").with(windlass_webhook::convert::<v2::Cone>().version::<v1::Cone>());
    let at = windlass_webhook::WebhookAddress::service("system", "cones");
    crd.spec.conversion = Some(cones().configurations(&at).conversions.remove(0).1);
    let params = PostParams::default();
    Api::all(client.clone())
        .create(&params, &crd)
        .await
        .expect("the CRD is valid");
    let old: Api<v1::Cone> = Api::default_namespaced(client.clone());
    let spec = v1::ConeSpec {
        balls: 4,
        ..v1::ConeSpec::default()
    };
    old.create(&params, &v1::Cone::new("a", spec))
        .await
        .expect("created");
    // The conversion webhook does not run yet.
    let new: Api<v2::Cone> = Api::default_namespaced(client.clone());
    new.get("a").await.expect_err("no webhook");

    let (seen, mut reconciled) = tokio::sync::mpsc::channel(4);
    let controller = windlass_runtime::Controller::<v2::Cone>::new("cones").reconcile(
        move |request: windlass_runtime::Request, ctx: windlass_runtime::Context| {
            let seen = seen.clone();
            async move {
                let cone = ctx.lister::<v2::Cone>()?.get(&request.key);
                seen.send(cone.map(|cone| cone.spec.scoops)).await.ok();
                Ok(windlass_runtime::Action::done())
            }
        },
    );
    let mut options = WebhookOptions::default();
    options.listen = Some(address);
    options.service = Some("system/cones".to_owned());
    let manager = Manager::new(client)
        .controller(controller)
        .webhooks(cones(), options);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(manager.run_until(async {
        stopped.await.ok();
    }));
    let scoops = tokio::time::timeout(Duration::from_secs(30), reconciled.recv()).await;
    assert_eq!(scoops.expect("in time"), Some(Some(4)));
    stop.send(()).expect("it runs");
    task.await.expect("no panic").expect("no failure");
}
