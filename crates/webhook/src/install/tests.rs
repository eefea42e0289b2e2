//! Registrations against an embedded API server, of programs that are killed at every request.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use windlass_apiserver::Server;

use super::*;
use crate::{
    Webhooks, mutate,
    test_client::{Fate, client},
    validate,
};

const CRD: &str = "cones.example.com";

/// A CA.
static BUNDLE: LazyLock<String> = LazyLock::new(|| {
    let certified = rcgen::generate_simple_self_signed(["a".to_owned()]);
    certified.expect("a certificate").cert.pem()
});

fn service() -> WebhookAddress {
    WebhookAddress::service("system", "hooks")
}

fn laptop(port: u16) -> WebhookAddress {
    WebhookAddress::Url(format!("https://127.0.0.1:{port}"))
}

fn webhooks() -> Webhooks {
    Webhooks::new("hooks").with(validate::<ConfigMap, _>(|_, _| ()))
}

/// Other ones, which have a configuration of each kind.
fn more_webhooks() -> Webhooks {
    webhooks().with(mutate::<ConfigMap, _>(|_, _| ()))
}

/// The configurations of these webhooks, and of a conversion.
fn configurations(webhooks: &Webhooks, address: &WebhookAddress) -> Configurations {
    let mut configurations = webhooks.configurations(address);
    let client = match address {
        WebhookAddress::Service { .. } => {
            json!({"service": {"namespace": "system", "name": "hooks", "path": "/c", "port": 443}})
        }
        WebhookAddress::Url(url) => json!({"url": format!("{url}/c")}),
    };
    let conversion = json!({
        "strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
    });
    let conversion = serde_json::from_value(conversion).expect("a conversion");
    configurations.conversions.push((CRD.to_owned(), conversion));
    configurations
}

struct Program {
    installer: Installer,
    client: Client,
}

impl Program {
    fn new(server: &Server, webhooks: &Webhooks, address: &WebhookAddress, started: Seconds) -> Self {
        Self::with_client(Client::new(server.clone(), "default"), webhooks, address, started)
    }

    /// A program whose process ends with its request of this number: before it is sent, or before its answer is read.
    fn killed(
        server: &Server,
        webhooks: &Webhooks,
        address: &WebhookAddress,
        after: usize,
        is_sent: bool,
    ) -> (Self, Arc<AtomicUsize>) {
        let fate = Fate {
            last: Some(after),
            is_last_sent: is_sent,
            fails: true,
        };
        let (client, requests) = client(server, fate);
        (Self::with_client(client, webhooks, address, 0), requests)
    }

    fn with_client(client: Client, webhooks: &Webhooks, address: &WebhookAddress, started: Seconds) -> Self {
        let configurations = configurations(webhooks, address);
        let installer = Installer::new(client.clone(), "hooks", address, &configurations, started);
        Self { installer, client }
    }

    async fn start(&self) -> Result<bool, InstallError> {
        self.installer
            .install(CaBundle::Initial(&BUNDLE), InstallPhase::Start)
            .await
    }

    async fn repair(&self) -> Result<bool, InstallError> {
        self.installer
            .install(CaBundle::Initial(&BUNDLE), InstallPhase::Repair)
            .await
    }
}

/// What matters of all objects: the webhooks, the conversion, and our annotations.
async fn state(server: &Server) -> Value {
    let program = Program::new(server, &webhooks(), &service(), 0);
    let mut all = Vec::new();
    for path in [
        format!("{VALIDATING}/hooks"),
        format!("{MUTATING}/hooks"),
        format!("{CRDS}/{CRD}"),
    ] {
        let object = program
            .installer
            .send(Method::GET, &path, &Value::Null)
            .await
            .unwrap_or_default();
        let annotation = &object["metadata"]["annotations"][temporary::ANNOTATION];
        all.push(json!([
            object["webhooks"],
            object["spec"]["conversion"],
            annotation
        ]));
    }
    all.into()
}

async fn create(server: &Server, path: &str, object: &Value) {
    let program = Program::new(server, &webhooks(), &service(), 0);
    program
        .installer
        .send(Method::POST, path, object)
        .await
        .expect("created");
}

async fn patch(server: &Server, path: &str, change: &Value) {
    let program = Program::new(server, &webhooks(), &service(), 0);
    program
        .installer
        .send(Method::PATCH, path, change)
        .await
        .expect("patched");
}

async fn create_crd(server: &Server, versions: &[&str], conversion: &Value) {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let versions = versions
        .iter()
        .enumerate()
        .map(|(index, name)| json!({"name": name, "served": true, "storage": index == 0, "schema": schema}));
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": CRD},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": versions.collect::<Vec<_>>(),
            "names": {"plural": "cones", "singular": "cone", "kind": "Cone", "listKind": "ConeList"},
            "conversion": conversion,
        },
    });
    create(server, CRDS, &crd).await;
}

/// A cluster that has a registration of manifests, without the label.
async fn cluster() -> Server {
    let server = Server::builder().build();
    let registered = configurations(&webhooks(), &service());
    let mut validating = to_json(&registered.validating);
    validating["webhooks"][0]["clientConfig"]["caBundle"] = json!(ByteString(b"old".to_vec()));
    create(&server, VALIDATING, &validating).await;
    create_crd(&server, &["v1", "v2"], &to_json(&registered.conversions[0].1)).await;
    server
}

#[tokio::test]
async fn program_killed_at_any_request_is_taken_back_by_the_next_run() {
    for is_sent in [false, true] {
        for after in 0.. {
            let server = cluster().await;
            let before = state(&server).await;
            let (victim, requests) = Program::killed(&server, &more_webhooks(), &laptop(1), after, is_sent);
            victim.start().await.ok();
            victim.installer.take_back().await;
            let next = Program::new(&server, &webhooks(), &laptop(2), 0);
            next.start().await.expect("registered");
            next.installer.take_back().await;
            // The mutating webhooks of the first program are not declared by the next one.
            let after_all = state(&server).await;
            assert_eq!(
                after_all, before,
                "killed after {after} requests, sent: {is_sent}"
            );
            if requests.load(Ordering::Relaxed) <= after {
                assert_eq!(after, 12, "three objects are registered and taken back");
                break;
            }
        }
    }
}

#[tokio::test]
async fn take_back_leaves_what_others_have_registered() {
    let server = cluster().await;
    let before = state(&server).await;
    let first = Program::new(&server, &webhooks(), &laptop(1), 0);
    first.start().await.expect("registered");
    // Another laptop stands in for the first one, which leaves it alone.
    let second = Program::new(&server, &webhooks(), &laptop(2), 0);
    second.start().await.expect("registered");
    let during = state(&server).await;
    assert!(!first.repair().await.expect("nothing to do"));
    first.installer.take_back().await;
    assert_eq!(state(&server).await, during);
    // An upgrade writes the webhooks of the cluster, and keeps annotations that it does not know.
    let path = format!("{VALIDATING}/hooks");
    let mut webhooks = before[0][0].clone();
    webhooks[0]["timeoutSeconds"] = 7.into();
    patch(&server, &path, &json!({"webhooks": webhooks})).await;
    second.installer.take_back().await;
    let after = state(&server).await;
    assert_eq!(after[0], json!([webhooks, null, null]));
    assert_eq!(after[2], before[2]);
}

#[tokio::test]
async fn kind_with_several_versions_is_never_left_without_conversion() {
    for (versions, wanted) in [(&["v1"][..], "None"), (&["v1", "v2"], "Webhook")] {
        let server = Server::builder().build();
        create_crd(&server, versions, &json!({"strategy": "None"})).await;
        let program = Program::new(&server, &webhooks(), &laptop(1), 0);
        program.start().await.expect("registered");
        program.installer.take_back().await;
        let after = state(&server).await;
        assert_eq!(after[2][1]["strategy"], wanted, "{after}");
        assert_eq!(after[0][0], Value::Null, "the configuration is deleted");
        let url = after[2][1]["webhook"]["clientConfig"]["url"]
            .as_str()
            .unwrap_or_default();
        assert_eq!(url.contains("not-registered-yet"), wanted == "Webhook", "{url}");
    }
}

#[tokio::test]
async fn configuration_of_another_program_is_not_replaced() {
    let server = cluster().await;
    let foreign = json!({"webhooks": [{
        "name": "a.b.c", "clientConfig": {"service": {"namespace": "x", "name": "y"}}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }]});
    let path = format!("{VALIDATING}/hooks");
    patch(&server, &path, &foreign).await;
    let before = state(&server).await;
    let program = Program::new(&server, &webhooks(), &laptop(1), 0);
    let error = program.start().await.expect_err("another program's");
    assert!(
        error.to_string().contains("windlass.dev/webhooks=hooks"),
        "{error}"
    );
    let after = state(&server).await;
    assert_eq!(after[0], before[0]);
    assert_ne!(after[2], before[2], "the conversion is registered nevertheless");
    patch(
        &server,
        &path,
        &json!({"metadata": {"labels": {WEBHOOKS_LABEL: "hooks"}}}),
    )
    .await;
    program.start().await.expect("registered");
}

#[tokio::test]
async fn old_replicas_do_not_register_again_what_a_rollout_has_changed() {
    let server = cluster().await;
    let two = |name: &str| {
        let secrets = validate::<Secret, _>(|_, _| ()).name(name);
        webhooks().with(secrets)
    };
    let old = Program::new(&server, &two("old.example.com"), &service(), 1);
    let new = Program::new(&server, &two("new.example.com"), &service(), 2);
    assert!(old.start().await.expect("registered"));
    assert!(
        !old.start().await.expect("nothing to do"),
        "a restart writes nothing"
    );
    assert!(new.start().await.expect("registered"));
    let registered = state(&server).await;
    for _ in 0..2 {
        assert!(!old.repair().await.expect("nothing to do"));
        assert!(!new.repair().await.expect("nothing to do"));
    }
    assert_eq!(state(&server).await, registered);
    // An old replica brings back what was deleted, and the new one corrects it.
    let path = format!("{VALIDATING}/hooks");
    new.installer
        .send(Method::DELETE, &path, &json!({}))
        .await
        .expect("deleted");
    assert!(old.repair().await.expect("registered"));
    assert!(new.repair().await.expect("registered"));
    assert!(!old.repair().await.expect("nothing to do"));
    let names = |state: &Value| {
        items(&state[0][0])
            .map(|webhook| webhook["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&state(&server).await), names(&registered));
}

#[tokio::test]
async fn bundle_of_an_entry_that_calls_us_is_kept() {
    let server = cluster().await;
    let before = state(&server).await;
    let program = Program::new(&server, &webhooks(), &service(), 1);
    program.start().await.expect("registered");
    let bundle = |state: &Value| state[0][0][0]["clientConfig"]["caBundle"].clone();
    let after = state(&server).await;
    assert_eq!(
        bundle(&after),
        bundle(&before),
        "the rotation keeps it up to date"
    );
    // Except for one from a file.
    let file = format!("{}{}", *BUNDLE, *BUNDLE);
    let from_file = CaBundle::File(&file);
    for phase in [InstallPhase::Repair, InstallPhase::Start] {
        program
            .installer
            .install(from_file, phase)
            .await
            .expect("registered");
        let bundle = bundle(&state(&server).await);
        assert_eq!(bundle, json!(ByteString(file.clone().into_bytes())));
    }
}

#[tokio::test]
async fn write_of_an_object_that_has_changed_since_is_repeated() {
    let server = cluster().await;
    let program = Program::new(&server, &webhooks(), &service(), 1);
    let path = format!("{CRDS}/{CRD}");
    let reads = AtomicUsize::new(0);
    let changed = program.installer.change(&path, |before| {
        reads.fetch_add(1, Ordering::Relaxed);
        let mut before = before.expect("a CRD").clone();
        if reads.load(Ordering::Relaxed) == 1 {
            before["metadata"]["resourceVersion"] = "1".into();
        }
        Ok(Some(merge(
            &path,
            &before,
            json!({"metadata": {"labels": {"a": "b"}}}),
        )))
    });
    assert!(changed.await.expect("changed"));
    assert_eq!(reads.into_inner(), 2);
    let never = program.installer.change(&path, |before| {
        let mut before = before.expect("a CRD").clone();
        before["metadata"]["resourceVersion"] = "1".into();
        Ok(Some(merge(
            &path,
            &before,
            json!({"metadata": {"labels": {"a": "c"}}}),
        )))
    });
    assert!(matches!(never.await, Err(InstallError::Contended { .. })));
    drop(program.client);
}
