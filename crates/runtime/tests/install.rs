//! CRD installation at start.

use crate::request_log;

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use parking_lot::Mutex;
use request_log::{recorded, recorded_with};
use serde_json::json;
use tokio::time::Instant;
use windlass_apiserver::Server;
use windlass_runtime::{CrdInstaller, InstallError, Writer};

/// A CRD with these versions; the last one is the storage version.
fn crd(plural: &str, versions: &[&str]) -> CustomResourceDefinition {
    let versions: Vec<_> = versions
        .iter()
        .map(|name| {
            json!({
                "name": name, "served": true, "storage": versions.last() == Some(name),
                "schema": { "openAPIV3Schema": { "type": "object" } },
            })
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": { "name": format!("{plural}.example.com") },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": { "plural": plural, "singular": plural, "kind": "Foo", "listKind": "FooList" },
        },
    }))
    .expect("valid CRD")
}

fn other(plural: &str, kind: &str) -> CustomResourceDefinition {
    let mut other = crd(plural, &["v1"]);
    kind.clone_into(&mut other.spec.names.kind);
    other.spec.names.list_kind = Some(format!("{kind}List"));
    other
}

fn installer(client: &Client) -> Writer {
    Writer::new(client.clone(), "installer")
}

async fn install(
    client: &Client,
    crds: impl IntoIterator<Item = CustomResourceDefinition>,
) -> Result<(), InstallError> {
    CrdInstaller::new(crds).apply().run(&installer(client)).await
}

async fn live(client: &Client, name: &str) -> Option<CustomResourceDefinition> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.get_opt(name).await.expect("the server answers")
}

#[tokio::test(start_paused = true)]
async fn installed_crds_are_served_when_run_returns() {
    let (client, log) = recorded();
    let both = [crd("foos", &["v1", "v2"]), other("others", "Other")];
    install(&client, both.clone()).await.expect("installed");
    let applied: Vec<_> = log
        .take()
        .into_iter()
        .filter(|sent| sent.method == "PATCH")
        .collect();
    assert_eq!(applied.len(), 2, "one write each");
    for version in ["v1", "v2"] {
        let served = client
            .list_api_group_resources(&format!("example.com/{version}"))
            .await
            .expect("served");
        assert!(served.resources.iter().any(|resource| resource.name == "foos"));
    }

    let before = live(&client, "foos.example.com")
        .await
        .expect("exists")
        .metadata
        .resource_version;
    install(&client, both).await.expect("installed");
    assert_eq!(
        live(&client, "foos.example.com")
            .await
            .expect("exists")
            .metadata
            .resource_version,
        before,
        "nothing new"
    );
}

#[tokio::test(start_paused = true)]
async fn installer_without_apply_waits_and_writes_nothing() {
    let (client, log) = recorded();
    let installs = installer(&client);
    let waiting = tokio::spawn(async move { CrdInstaller::new([crd("foos", &["v1"])]).run(&installs).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!waiting.is_finished());
    assert!(log.take().iter().all(|sent| sent.method == "GET"));
    install(&client, [crd("foos", &["v1"])]).await.expect("installed");
    waiting.await.expect("no panic").expect("served now");
}

#[tokio::test(start_paused = true)]
async fn deadline_error_names_each_crd_and_what_is_missing() {
    let (client, _) = recorded();
    install(&client, [crd("foos", &["v1"])]).await.expect("installed");
    let started = Instant::now();
    let wanted = [crd("foos", &["v1", "v2"]), other("others", "Other")];
    let waits = CrdInstaller::new(wanted).deadline(Duration::from_secs(7));
    let error = waits
        .run(&installer(&client))
        .await
        .expect_err("the CRDs are not installed");
    assert_eq!(started.elapsed(), Duration::from_secs(7));
    assert_eq!(
        error.to_string(),
        "not served after 7 s: CRD foos.example.com: the server does not serve example.com/v2; \
         CRD others.example.com: it is not installed: install it, or start with --install"
    );
}

#[tokio::test(start_paused = true)]
async fn manifest_without_a_stored_version_is_rejected_before_any_write() {
    let (client, log) = recorded();
    for versions in [&["v1"][..], &["v1", "v2"], &["v1", "v2", "v3"]] {
        install(&client, [crd("foos", versions)])
            .await
            .expect("an upgrade");
    }
    log.take();
    // The first CRD is new; it is not written either.
    let older = [other("others", "Other"), crd("foos", &["v1"])];
    let error = install(&client, older).await.expect_err("a downgrade");
    assert!(
        matches!(&error, InstallError::DropsStoredVersions { stored, .. } if *stored == ["v2", "v3"]),
        "{error:?}"
    );
    let text = error.to_string();
    for word in [
        "foos.example.com",
        "stored in v2, v3",
        "has only v1",
        "status.storedVersions",
    ] {
        assert!(text.contains(word), "{text}");
    }
    assert!(
        log.take().iter().all(|sent| sent.method == "GET"),
        "nothing was written"
    );

    // A version that was never stored may be removed, and a stored one may stop being served.
    for versions in [&["v1beta1", "v1"][..], &["v1"]] {
        let mut fewer = other("others", "Other");
        fewer.spec.versions = crd("others", versions).spec.versions;
        let installed = install(&client, [fewer]).await;
        installed.expect("nothing is stored in v1beta1");
    }
    let mut shrunk = crd("foos", &["v1", "v2", "v3"]);
    shrunk.spec.versions[0].served = false;
    install(&client, [shrunk]).await.expect("it can still be read");
}

#[tokio::test(start_paused = true)]
async fn crd_that_changes_after_the_check_is_checked_again() {
    let server = Server::new();
    let rival = Client::new(server.clone(), "default");
    install(&rival, [crd("foos", &["v1"])]).await.expect("installed");
    let newer = Arc::new(Mutex::new(Some(rival)));
    let (client, log) = recorded_with(server, move |sent| {
        // Between the check and the write, a newer program installs its CRD.
        let rival = (sent.method == "PATCH").then(|| newer.lock().take()).flatten();
        async move {
            if let Some(rival) = rival {
                let manifest = crd("foos", &["v1", "v2"]);
                let written = installer(&rival).apply(&manifest).await;
                written.expect("the newer program writes first");
            }
            None
        }
    });
    let error = install(&client, [crd("foos", &["v1"])]).await;
    assert!(
        matches!(error, Err(InstallError::DropsStoredVersions { .. })),
        "{error:?}"
    );
    let writes = log
        .take()
        .into_iter()
        .filter(|sent| sent.method == "PATCH")
        .collect::<Vec<_>>();
    assert_eq!(writes.len(), 1, "the rejected write");
    assert!(writes[0].body["metadata"]["resourceVersion"].is_string());
}

#[tokio::test(start_paused = true)]
async fn conflicting_names_are_an_error_with_the_servers_message() {
    let (client, _) = recorded();
    install(&client, [crd("foos", &["v1"])]).await.expect("installed");
    let started = Instant::now();
    let clash = install(&client, [crd("foes", &["v1"])]).await;
    let error = clash.expect_err("the kind is taken");
    assert!(
        matches!(error, InstallError::NamesNotAccepted { .. }),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains("foes.example.com: \"FooList\" is already in use"),
        "{error}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "it does not wait for the deadline"
    );
}

#[tokio::test(start_paused = true)]
async fn dry_run_installs_nothing() {
    let (client, _) = recorded();
    CrdInstaller::new([crd("foos", &["v1"])])
        .apply()
        .run(&installer(&client).dry_run())
        .await
        .expect("valid manifest");
    assert!(live(&client, "foos.example.com").await.is_none());
    let mut wrong = crd("foos", &["v1"]);
    wrong.spec.scope = "Sideways".to_owned();
    let error = CrdInstaller::new([wrong])
        .apply()
        .run(&installer(&client).dry_run())
        .await
        .expect_err("no such scope");
    assert!(
        error
            .to_string()
            .starts_with("cannot apply CustomResourceDefinition foos.example.com: "),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn transient_server_errors_are_retried() {
    let asked = Arc::new(AtomicU32::new(0));
    let (client, _) = recorded_with(Server::new(), move |_| {
        let first = asked.fetch_add(1, Ordering::Relaxed) < 3;
        ready(first.then(|| {
            (
                503,
                json!({ "kind": "Status", "status": "Failure", "code": 503, "message": "not yet" }),
            )
        }))
    });
    install(&client, [crd("foos", &["v1"])]).await.expect("installed");

    let (client, _) = recorded_with(Server::new(), |_| {
        ready(Some((
            403,
            json!({ "kind": "Status", "status": "Failure", "code": 403, "message": "no rights" }),
        )))
    });
    let error = CrdInstaller::new([crd("foos", &["v1"])])
        .run(&installer(&client))
        .await
        .expect_err("waiting does not help");
    assert_eq!(error.to_string(), "cannot read CRD foos.example.com: no rights");
}
