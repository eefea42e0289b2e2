//! Replicas against an embedded API server on a paused clock, with the registration of their webhooks.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    core::v1::{ConfigMap, Namespace},
};
use kube::api::{DeleteParams, Patch, PatchParams};
use tokio::{task::JoinHandle, time::Instant};
use windlass_apiserver::Server;

use super::*;
use crate::{
    Webhooks,
    certificates::bundle::Bundle,
    install::InstallPhase,
    test_client::{Fate, client},
    validate,
};

const DAY: Duration = Duration::from_hours(24);
const SECRET: &str = "hooks-webhook-certificates";

fn address() -> WebhookAddress {
    WebhookAddress::service("system", "hooks")
}

fn webhooks() -> Webhooks {
    Webhooks::new("hooks").with(validate::<ConfigMap, _>(|_, _| ()))
}

fn installer(client: &Client, webhooks: &Webhooks, address: &WebhookAddress) -> Installer {
    let started = Clock::system().now().as_second();
    Installer::new(
        client.clone(),
        "hooks",
        address,
        &webhooks.configurations(address),
        started,
    )
}

/// A replica that runs until dropped.
struct Replica {
    slot: Arc<CertificateSlot>,
    ready: Readiness,
    requests: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Replica {
    /// A replica that registers its webhooks.
    fn start(server: &Server, fate: Fate) -> Self {
        Self::start_with(server, fate, &webhooks(), Vec::new())
    }

    fn start_with(server: &Server, fate: Fate, webhooks: &Webhooks, crds: Vec<BundleTarget>) -> Self {
        let (client, requests) = client(server, fate);
        let (slot, ready) = (Arc::new(CertificateSlot::default()), Readiness::new());
        let installer = installer(&client, webhooks, &address());
        let mut targets = vec![BundleTarget {
            kind: TargetKind::Validating(vec!["validate.configmaps.hooks".to_owned()]),
            name: "hooks".to_owned(),
        }];
        targets.extend(crds);
        let (certificate, readiness) = (slot.clone(), ready.clone());
        let task = tokio::spawn(async move {
            let certificates = Certificates {
                client,
                store: SecretStore::Secret {
                    namespace: "system".to_owned(),
                    name: SECRET.to_owned(),
                },
                address: address(),
                started: Clock::system().now().as_second(),
                program: "hooks".to_owned(),
                hosts: vec!["hooks.system.svc".to_owned()],
                targets,
                slot: certificate,
                ready: readiness,
                check: Arc::new(Notify::new()),
                installer: Some(&installer),
            };
            certificates.run(std::future::pending()).await;
        });
        Self {
            slot,
            ready,
            requests,
            task,
        }
    }

    fn count(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn server() -> (Server, Client) {
    let server = Server::builder().build();
    let client = Client::new(server.clone(), "default");
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "system"}})).expect("valid");
    let namespaces = Api::all(client.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .expect("created");
    (server, client)
}

fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), "system")
}

fn configurations(client: &Client) -> Api<ValidatingWebhookConfiguration> {
    Api::all(client.clone())
}

/// Whether the registered bundle trusts what a replica serves.
async fn is_trusted(client: &Client, replica: &Replica) -> bool {
    let configuration = configurations(client).get("hooks").await.expect("registered");
    let webhooks = configuration.webhooks.unwrap_or_default();
    let now = Clock::system().now().as_second();
    let chain = replica.slot.chain();
    webhooks.iter().all(|webhook| {
        let bundle = webhook.client_config.ca_bundle.clone().unwrap_or_default();
        Bundle::parse(&bundle.0)
            .trusts(&chain, &["hooks.system.svc".to_owned()], now)
            .is_ok()
    })
}

/// Lets the replicas work, and checks at each moment that what a ready one serves is trusted.
async fn settle(client: &Client, replicas: &[&Replica]) {
    let end = Instant::now() + Duration::from_secs(22);
    let mut pause = Duration::from_millis(1);
    while Instant::now() < end {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(3));
        for replica in replicas {
            if replica.ready.get().is_ok() {
                assert!(is_trusted(client, replica).await, "an untrusted chain is served");
            }
        }
    }
    for replica in replicas {
        assert_eq!(replica.ready.get(), Ok(()));
    }
}

/// The CA that signs.
async fn authority(client: &Client) -> String {
    let secret = secrets(client).get(SECRET).await.expect("a Secret");
    let authorities: Value =
        serde_json::from_slice(&secret.data.expect("data")["authorities.json"].0).expect("JSON");
    authorities["signing"]["certificate"]
        .as_str()
        .expect("PEM")
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn two_replicas_survive_the_death_of_a_third_at_any_request() {
    let mut longest = 0;
    for is_last_sent in [false, true] {
        for last in 0..40 {
            let (server, client) = server().await;
            let fate = Fate {
                last: Some(last),
                is_last_sent,
                fails: false,
            };
            // It makes the first certificate and registers the webhooks, as far as it comes.
            let victim = Replica::start(&server, fate);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let is_complete = victim.count() <= last;
            longest = longest.max(victim.count());
            drop(victim);
            let heirs = [
                Replica::start(&server, Fate::default()),
                Replica::start(&server, Fate::default()),
            ];
            settle(&client, &[&heirs[0], &heirs[1]]).await;
            assert_eq!(heirs[0].slot.chain(), heirs[1].slot.chain(), "killed at {last}");
            if is_complete {
                break;
            }
        }
    }
    assert!(longest > 8, "{longest} requests");
}

#[tokio::test(start_paused = true)]
async fn authority_is_rotated_though_a_replica_dies_at_any_request() {
    for is_last_sent in [false, true] {
        for last in 0..40 {
            let (server, client) = server().await;
            let replicas = [
                Replica::start(&server, Fate::default()),
                Replica::start(&server, Fate::default()),
            ];
            settle(&client, &[&replicas[0], &replicas[1]]).await;
            let [witness, old] = replicas;
            let first = authority(&client).await;
            // The leaf is renewed on the way.
            for _ in 0..4 {
                tokio::time::advance(DAY * 60).await;
                settle(&client, &[&witness, &old]).await;
            }
            drop(old);
            tokio::time::advance(DAY * 4).await;
            let fate = Fate {
                last: Some(last),
                is_last_sent,
                fails: false,
            };
            let victim = Replica::start(&server, fate);
            tokio::time::sleep(Duration::from_millis(1)).await;
            let is_complete = victim.count() <= last;
            drop(victim);
            settle(&client, &[&witness]).await;
            assert_ne!(authority(&client).await, first, "killed at {last}");
            if is_complete {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn missing_crds_and_temporary_registrations_do_not_cause_a_hot_loop() {
    let (server, client) = server().await;
    let absent = BundleTarget {
        kind: TargetKind::Crd,
        name: "cones.example.com".to_owned(),
    };
    let replica = Replica::start_with(&server, Fate::default(), &webhooks(), vec![absent]);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let laptop = WebhookAddress::Url("https://127.0.0.1:1".to_owned());
    let standing_in = installer(&client, &webhooks(), &laptop);
    let bundle = secrets(&client)
        .get(SECRET)
        .await
        .expect("a Secret")
        .data
        .expect("data");
    let bundle = String::from_utf8(bundle["ca.crt"].0.clone()).expect("PEM");
    standing_in
        .install(CaBundle::Initial(&bundle), InstallPhase::Start)
        .await
        .expect("registered");
    let before = replica.count();
    tokio::time::sleep(Duration::from_mins(10)).await;
    let requests = replica.count() - before;
    assert!(
        (60..=61 * 7).contains(&requests),
        "{requests} requests in ten minutes"
    );
    assert_eq!(replica.ready.get(), Err("CustomResourceDefinition cones.example.com does not exist, or does not have all of these webhooks: apply it, or start with `--install`".to_owned()));
    // The program on the laptop stays registered.
    let configuration = configurations(&client).get("hooks").await.expect("registered");
    assert!(
        configuration.webhooks.expect("webhooks")[0]
            .client_config
            .url
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn refused_writes_of_the_secret_are_repeated_with_pauses() {
    let (server, client) = server().await;
    let immutable = json!({
        "metadata": {"name": SECRET, "labels": {"app": "hooks"}}, "immutable": true, "type": "Opaque",
    });
    let immutable = serde_json::from_value(immutable).expect("a Secret");
    secrets(&client)
        .create(&PostParams::default(), &immutable)
        .await
        .expect("created");
    let replica = Replica::start(&server, Fate::default());
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(
        replica.count() < 200,
        "{} requests in ten minutes",
        replica.count()
    );
    let why = replica.ready.get().unwrap_err();
    assert!(why.contains("immutable"), "{why}");
    // One that was made so that the program needs no right to create it keeps its type and metadata.
    secrets(&client)
        .delete(SECRET, &DeleteParams::default())
        .await
        .expect("deleted");
    let empty = json!({"metadata": {"name": SECRET, "labels": {"app": "hooks"}}, "type": "Opaque"});
    let empty = serde_json::from_value(empty).expect("a Secret");
    secrets(&client)
        .create(&PostParams::default(), &empty)
        .await
        .expect("created");
    settle(&client, &[&replica]).await;
    tokio::time::advance(DAY * 61).await;
    settle(&client, &[&replica]).await;
    let secret = secrets(&client).get(SECRET).await.expect("a Secret");
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    assert_eq!(secret.metadata.labels.expect("labels")["app"], "hooks");
}

#[tokio::test(start_paused = true)]
async fn replica_that_starts_during_a_rotation_does_not_take_a_new_authority_out() {
    let (server, client) = server().await;
    let replica = Replica::start(&server, Fate::default());
    settle(&client, &[&replica]).await;
    // Another replica has added a CA to the bundle.
    let configuration = configurations(&client).get("hooks").await.expect("registered");
    let mut webhooks = configuration.webhooks.expect("webhooks");
    let bundle = webhooks[0].client_config.ca_bundle.get_or_insert_default();
    let other = crate::certificates::authority::Authority::generate("x", Clock::system().now().as_second());
    bundle.0.extend(other.expect("a CA").certificate.into_bytes());
    let wanted = bundle.clone();
    let patch = Patch::Merge(json!({"webhooks": webhooks}));
    drop(replica);
    configurations(&client)
        .patch("hooks", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    installer(&client, &self::webhooks(), &address())
        .install(CaBundle::Initial("old"), InstallPhase::Start)
        .await
        .expect("registered");
    let configuration = configurations(&client).get("hooks").await.expect("registered");
    assert_eq!(
        configuration.webhooks.expect("webhooks")[0]
            .client_config
            .ca_bundle,
        Some(wanted)
    );
}
