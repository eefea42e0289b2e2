//! Failing servers, and namespaces that refuse writes.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use http::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use windlass::{
    k8s_openapi::api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        core::v1::{ConfigMap, ResourceQuota, Secret},
    },
    kube::{
        self, Api,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
    serde_json::Value,
};
use windlass_cluster::Backend;
use windlass_secretsync::{SecretSync, api::SYNC_ANNOTATION};
use windlass_suite::{CapturedLog, Context as Case, NetworkLink, RecordedRequest, RunningManager};

use crate::secretsync::test_cluster::{CANARY, HOME, TestCluster, condition, namespace_of, secret};

/// One namespace that refuses writes, three that do not, and a sync that reports it.
async fn prepare(case: &Case) -> anyhow::Result<TestCluster> {
    let env = TestCluster::new(case).await?;
    env.consenting(&["bad", "one", "two", "three"]).await?;
    env.in_namespace(HOME).create(secret("token", "1")).await?;
    env.sync(HOME, "shared", json!({ "names": ["token"] })).await?;
    Ok(env)
}

/// The others are synced at once; the failing one is reported, and retried with growing delays.
async fn assert_only_one_fails(env: &TestCluster, says: &str) -> anyhow::Result<()> {
    let others = async {
        for namespace in ["one", "two", "three"] {
            env.wait_for_copy(namespace, "token", "1").await?;
        }
        Ok(())
    };
    env.within_two_seconds("the others", others).await?;
    let observed = env
        .wait_for_status(HOME, "shared", |status| {
            status.failed == 1 && status.synced == 3 && condition(status, "Ready", "False")
        })
        .await?;
    let status = observed.status.clone().unwrap_or_default();
    let [failure] = &status.failures[..] else {
        anyhow::bail!("one failure: {status:?}")
    };
    assert_eq!((&*failure.namespace, &*failure.name), ("bad", "token"));
    assert!(failure.message.contains(says), "{failure:?}");
    // A change reaches the others as quickly, however long the failing one has been failing.
    env.let_time_pass().await;
    let tries = env
        .copy_writes()
        .into_iter()
        .filter(|write| write.ends_with(" bad/token"));
    let tries = tries.count();
    assert!((2..100).contains(&tries), "{tries} tries");
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    let others = async {
        for namespace in ["one", "two", "three"] {
            env.wait_for_copy(namespace, "token", "2").await?;
        }
        Ok(())
    };
    env.within_two_seconds("the others, later", others).await?;
    Ok(())
}

async fn assert_recovers(env: &TestCluster) -> anyhow::Result<()> {
    // It is retried periodically, without a watch event.
    env.let_time_pass().await;
    env.wait_for_copy("bad", "token", "2").await?;
    env.wait_for_status(HOME, "shared", |status| {
        status.failed == 0 && status.synced == 4 && condition(status, "Ready", "True")
    })
    .await?;
    Ok(())
}

fn refused(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}

fn bad_until(healed: &Arc<AtomicBool>) -> impl Fn(&RecordedRequest) -> bool + Send + 'static {
    let healed = Arc::clone(healed);
    move |sent| is_bad(sent) && !healed.load(Ordering::Relaxed)
}

fn is_bad(sent: &RecordedRequest) -> bool {
    sent.is_write() && sent.resource() == "secrets" && namespace_of(sent) == "bad"
}

/// A full quota, with the message of a real server, and on one.
pub(crate) async fn full_quota_in_one_namespace_does_not_delay_others(case: Case) -> anyhow::Result<()> {
    let env = prepare(&case).await?;
    let (real, healed) = (case.cluster().backend() != Backend::Embedded, Arc::default());
    let quotas = env.in_namespace("bad").case().api::<ResourceQuota>();
    let message = "secrets \"token\" is forbidden: exceeded quota: none, requested: secrets=1, used: secrets=0, limited: secrets=0";
    if real {
        let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "secrets": "0" } } });
        quotas.create(&PostParams::default(), &from_value(quota)?).await?;
        // No quota controller runs here, so the test sets the status.
        let status = json!({ "status": { "hard": { "secrets": "0" }, "used": { "secrets": "0" } } });
        quotas
            .patch_status("none", &PatchParams::default(), &Patch::Merge(status))
            .await?;
    } else {
        let refused = refused(403, "Forbidden", message);
        env.proxy().respond(usize::MAX, refused, bad_until(&healed));
    }
    let running = env.start().await?;
    assert_only_one_fails(&env, "exceeded quota: none").await?;
    healed.store(true, Ordering::Relaxed);
    if real {
        quotas.delete("none", &DeleteParams::default()).await?;
    }
    assert_recovers(&env).await?;
    running.stop().await
}

/// A webhook that does not answer, with the message of a real server, and on one.
pub(crate) async fn failing_webhook_in_one_namespace_does_not_delay_others(case: Case) -> anyhow::Result<()> {
    let env = prepare(&case).await?;
    let (real, healed) = (case.cluster().backend() != Backend::Embedded, Arc::default());
    let hooks = Api::<ValidatingWebhookConfiguration>::all(case.client());
    let message = "Internal error occurred: failed calling webhook \"fails.example.com\": failed to call webhook: Post \"https://127.0.0.1:1/x?timeout=1s\": dial tcp 127.0.0.1:1: connect: connection refused";
    if real {
        let hook = json!({ "metadata": { "name": "fails" }, "webhooks": [{
            "name": "fails.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": { "url": "https://127.0.0.1:1/x" }, "failurePolicy": "Fail", "timeoutSeconds": 1,
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "bad" } },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"] }],
        }] });
        hooks.create(&PostParams::default(), &from_value(hook)?).await?;
        // A server takes a moment to load its webhooks.
        let probe = secret("probe", "1");
        for _ in 0..100 {
            let probed = env.in_namespace("bad").create(probe.clone()).await;
            if probed.is_err() {
                break;
            }
            let _ = env.in_namespace("bad").delete::<Secret>("probe").await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    } else {
        let refused = refused(500, "InternalError", message);
        env.proxy().respond(usize::MAX, refused, bad_until(&healed));
    }
    let running = env.start().await?;
    assert_only_one_fails(&env, "failed calling webhook").await?;
    healed.store(true, Ordering::Relaxed);
    if real {
        hooks.delete("fails", &DeleteParams::default()).await?;
    }
    assert_recovers(&env).await?;
    running.stop().await
}

/// A refusal may quote the values. The reported message does not contain them.
pub(crate) async fn values_quoted_by_a_refusal_are_hidden(case: Case) -> anyhow::Result<()> {
    let env = prepare(&case).await?;
    let quoted = format!(
        "admission webhook \"strict\" denied the request: password {CANARY}1 is weak, and so is YzRuNHJ5YzRuNHJ5MQ=="
    );
    env.proxy()
        .respond(usize::MAX, refused(400, "BadRequest", &quoted), is_bad);
    let running = env.start().await?;
    env.wait_for_status(HOME, "shared", |status| status.failed == 1)
        .await?;
    assert_no_value_leaked(&env, "a creation").await?;
    running.stop().await
}

/// A refused update may quote the old object, and a refused deletion content that was never read here.
pub(crate) async fn old_values_quoted_by_a_refusal_are_hidden(case: Case) -> anyhow::Result<()> {
    let env = prepare(&case).await?;
    let running = env.start().await?;
    for namespace in ["bad", "one", "two", "three"] {
        env.wait_for_copy(namespace, "token", "1").await?;
    }
    env.settle().await;
    let quoted = format!("admission webhook \"strict\" denied the request: it was {CANARY}1 before");
    env.proxy()
        .respond(usize::MAX, refused(400, "BadRequest", &quoted), is_bad);
    let changed = json!({ "data": { "password": "bmV3IHZhbHVl" } });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    env.wait_for_status(HOME, "shared", |status| status.failed == 1)
        .await?;
    assert_no_value_leaked(&env, "a change").await?;
    env.patch_namespace("bad", json!({ "annotations": { SYNC_ANNOTATION: "false" } }))
        .await?;
    let observed = env
        .wait_for_status(HOME, "shared", |status| status.failed == 1 && status.targets == 3)
        .await?;
    let failures = &observed.status.as_ref().expect("it has a status").failures;
    assert!(failures[0].message.contains("denied the request"), "{failures:?}");
    assert_no_value_leaked(&env, "a deletion").await?;
    running.stop().await
}

async fn assert_no_value_leaked(env: &TestCluster, after: &str) -> anyhow::Result<()> {
    env.settle().await;
    let observed =
        windlass::serde_json::to_string(&env.in_namespace(HOME).get::<SecretSync>("shared").await?)?;
    let events = windlass::serde_json::to_string(&env.events().await?)?;
    for text in [observed, events] {
        assert!(
            !text.contains(CANARY) && !text.contains("YzRuNHJ5"),
            "after {after}: {text}"
        );
    }
    Ok(())
}

/// A SecretSync stays until its copies are gone, and reports what blocks its deletion.
pub(crate) async fn blocked_deletion_of_a_sync_reports_its_reason(case: Case) -> anyhow::Result<()> {
    let env = prepare(&case).await?;
    let running = env.start().await?;
    for namespace in ["bad", "one", "two", "three"] {
        env.wait_for_copy(namespace, "token", "1").await?;
    }
    env.settle().await;
    let healed = Arc::default();
    let denied = refused(403, "Forbidden", "admission webhook \"keep\" denied the request");
    env.proxy().respond(usize::MAX, denied, bad_until(&healed));
    env.in_namespace(HOME).delete::<SecretSync>("shared").await?;
    for namespace in ["one", "two", "three"] {
        env.in_namespace(namespace)
            .wait_until_deleted::<Secret>("token")
            .await?;
    }
    let observed = env
        .wait_for_status(HOME, "shared", |status| {
            status.failed == 1 && status.synced == 0 && condition(status, "Ready", "False")
        })
        .await?;
    let failures = &observed.status.as_ref().expect("it has a status").failures;
    assert!(
        failures.len() == 1 && failures[0].namespace == "bad" && failures[0].message.contains("\"keep\""),
        "{failures:?}"
    );
    env.settle().await;
    env.in_namespace(HOME).get::<SecretSync>("shared").await?;
    healed.store(true, Ordering::Relaxed);
    env.let_time_pass().await;
    env.in_namespace("bad")
        .wait_until_deleted::<Secret>("token")
        .await?;
    env.in_namespace(HOME)
        .wait_until_deleted::<SecretSync>("shared")
        .await?;
    running.stop().await
}

/// Nothing is written to a terminating namespace, and no failure is reported.
pub(crate) async fn terminating_namespace_is_skipped_without_errors(case: Case) -> anyhow::Result<()> {
    let env = prepare(&case).await?;
    let hold = json!({ "metadata": { "name": "hold", "finalizers": ["example.com/hold"] } });
    env.in_namespace("bad")
        .create::<ConfigMap>(from_value(hold)?)
        .await?;
    let namespaces = Api::<windlass::k8s_openapi::api::core::v1::Namespace>::all(case.client());
    namespaces.delete("bad", &DeleteParams::background()).await?;
    let running = env.start().await?;
    for namespace in ["one", "two", "three"] {
        env.wait_for_copy(namespace, "token", "1").await?;
    }
    let ready = |env: &TestCluster, synced: u32| {
        let env = env.another_process();
        async move {
            env.wait_for_status(HOME, "shared", |status| {
                status.failed == 0 && status.synced == synced && condition(status, "Ready", "True")
            })
            .await
        }
    };
    ready(&env, 3).await?;
    env.settle().await;
    let tries = env
        .copy_writes()
        .into_iter()
        .filter(|write| write.ends_with(" bad/token"));
    assert_eq!(tries.count(), 0, "it is known to be terminating");
    // One that terminates at the last moment: the server reports it before the watch does.
    let message = "secrets \"fresh\" is forbidden: unable to create new content in namespace one because it is being terminated";
    let mut status = refused(403, "Forbidden", message);
    status["details"] = json!({ "name": "fresh", "kind": "secrets", "causes": [{
        "reason": "NamespaceTerminating", "message": "namespace one is being terminated", "field": "metadata.namespace" }] });
    let to_one = |sent: &RecordedRequest| {
        sent.is_write() && sent.resource() == "secrets" && namespace_of(sent) == "one"
    };
    env.proxy().respond(1, status, to_one);
    env.source("fresh", "1").await?;
    env.wait_for_copy("two", "fresh", "1").await?;
    ready(&env, 3).await?;
    env.settle().await;
    assert_eq!(env.warnings().await?, []);
    running.stop().await
}

/// All requests fail for a while, watches end, and resource versions expire.
pub(crate) async fn request_and_watch_failures_are_recovered(case: Case) -> anyhow::Result<()> {
    let env = prepare(&case).await?;
    let line = NetworkLink::new(env.proxy().client());
    let running = RunningManager::start(env.new_manager_with(line.client()).await?);
    for namespace in ["bad", "one", "two", "three"] {
        env.wait_for_copy(namespace, "token", "1").await?;
    }
    env.settle().await;
    let embedded = case.cluster().backend() == Backend::Embedded;
    // The retry delays have grown to minutes, which pass at once with simulated time.
    let (storm, rounds) = if embedded { (40, 3) } else { (4, 1) };
    for round in 0..rounds {
        line.disconnect();
        let value = format!("{round}-new");
        let changed = json!({ "data": secret("token", &value).data });
        env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
        env.in_namespace("two").delete::<Secret>("token").await?;
        let extra = format!("extra-{round}");
        env.source(&extra, "1").await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        env.proxy()
            .reject(storm, StatusCode::SERVICE_UNAVAILABLE, |_| true);
        env.proxy()
            .reject(storm / 2, StatusCode::GONE, |sent| sent.access.verb == "watch");
        env.proxy()
            .reject(storm / 2, StatusCode::TOO_MANY_REQUESTS, |_| true);
        line.reconnect();
        if embedded {
            // Requests to a failing server get less frequent.
            tokio::time::sleep(Duration::from_mins(10)).await;
        }
        for namespace in ["bad", "one", "two", "three"] {
            env.wait_for_copy(namespace, "token", &value).await?;
            env.wait_for_copy(namespace, &extra, "1").await?;
        }
        env.in_namespace(HOME).delete::<Secret>(&extra).await?;
        env.in_namespace("three")
            .wait_until_deleted::<Secret>(&extra)
            .await?;
    }
    env.settle().await;
    for namespace in ["bad", "one", "two", "three"] {
        assert_eq!(env.names::<Secret>(namespace).await?, ["token"]);
    }
    env.in_namespace(HOME).delete::<SecretSync>("shared").await?;
    for namespace in ["bad", "one", "two", "three"] {
        env.in_namespace(namespace)
            .wait_until_deleted::<Secret>("token")
            .await?;
    }
    running.stop().await
}

/// While the server cannot be reached, nothing is wrong with the copies: one line in the log says so, and neither the status
/// nor an event, nor a line for each copy. What was due is done afterwards.
pub(crate) async fn outage_is_neither_a_failure_nor_a_flood(case: Case) -> anyhow::Result<()> {
    let log = CapturedLog::start();
    let env = TestCluster::new(&case).await?;
    let all: Vec<_> = (0..12).map(|number| format!("ns-{number:02}")).collect();
    // All cases of the process share the log.
    let name = format!("outage-{}", case.namespace());
    for namespace in &all {
        env.consenting(&[namespace]).await?;
        // Conflicts are looked at every half minute.
        env.in_namespace(namespace).create(secret(&name, "own")).await?;
    }
    env.source(&name, "1").await?;
    let is_down = Arc::new(AtomicBool::new(false));
    let client = failing_while(&env.proxy().client(), &is_down);
    let running = RunningManager::start(env.new_manager_with(client).await?);
    let shown = format!("secret.{name}");
    env.wait_for_status(HOME, &shown, |status| status.conflicts == 12)
        .await?;
    env.settle().await;
    let before = env.in_namespace(HOME).get::<SecretSync>(&shown).await?.status;
    let (logged, warnings) = (log.text().len(), env.warnings().await?.len());
    is_down.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(5)).await;
    is_down.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(10)).await;
    let text = log.text();
    let lines = text[logged..]
        .lines()
        .filter(|line| (line.contains(" WARN ") || line.contains(" ERROR ")) && line.contains(&*name))
        // It says that the server cannot be reached, less and less often.
        .filter(|line| !line.contains("connection_log"));
    assert_eq!(lines.collect::<Vec<_>>(), [""; 0]);
    assert_eq!(
        env.in_namespace(HOME).get::<SecretSync>(&shown).await?.status,
        before
    );
    assert_eq!(env.warnings().await?.len(), warnings);
    // Nothing is stuck.
    for namespace in &all {
        env.in_namespace(namespace).delete::<Secret>(&name).await?;
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    for namespace in &all {
        env.wait_for_copy(namespace, &name, "1").await?;
    }
    running.stop().await
}

/// What is missing at the start is said by the manager, once and then less and less often.
pub(crate) async fn missing_right_is_left_to_the_report_of_the_start(case: Case) -> anyhow::Result<()> {
    let log = CapturedLog::start();
    let env = TestCluster::new(&case).await?;
    env.consenting(&["asks"]).await?;
    env.source("token", "1").await?;
    let is_down = Arc::new(AtomicBool::new(true));
    let still_down = Arc::clone(&is_down);
    let forbidden = refused(
        403,
        "Forbidden",
        "secretsyncs.secretsync.windlass.dev is forbidden",
    );
    env.proxy().respond(usize::MAX, forbidden, move |sent| {
        sent.resource() == "secretsyncs" && !sent.is_write() && still_down.load(Ordering::Relaxed)
    });
    let logged = log.text().len();
    let running = env.start().await?;
    tokio::time::sleep(Duration::from_secs(25)).await;
    let text = log.text();
    let mut lines = text[logged..].lines();
    let line = lines.find(|line| line.contains(" WARN ") && line.contains("windlass_secretsync::watches"));
    assert_eq!(line, None);
    is_down.store(false, Ordering::Relaxed);
    env.wait_for_copy("asks", "token", "1").await?;
    running.stop().await
}

/// Before the server can be reached for the first time, secretsync adds nothing to the line of the connection.
pub(crate) async fn start_without_a_server_is_silent(case: Case) -> anyhow::Result<()> {
    let log = CapturedLog::start();
    let env = TestCluster::new(&case).await?;
    env.consenting(&["asks"]).await?;
    env.source("token", "1").await?;
    let logged = log.text().len();
    let is_down = Arc::new(AtomicBool::new(true));
    let client = failing_while(&env.proxy().client(), &is_down);
    let running = RunningManager::start(env.new_manager_with(client).await?);
    tokio::time::sleep(Duration::from_mins(2)).await;
    is_down.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(2)).await;
    env.wait_for_copy("asks", "token", "1").await?;
    let text = log.text();
    let mut lines = text[logged..].lines();
    let line = lines.find(|line| line.contains(" WARN ") && line.contains("windlass_secretsync::watches"));
    assert_eq!(line, None);
    running.stop().await
}

/// A client whose requests get no response while `is_down`.
fn failing_while(inner: &Client, is_down: &Arc<AtomicBool>) -> Client {
    let (inner, is_down) = (inner.clone(), Arc::clone(is_down));
    let namespace = inner.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (inner, is_down) = (inner.clone(), Arc::clone(&is_down));
        async move {
            if is_down.load(Ordering::Relaxed) {
                let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                return Err(Box::<dyn std::error::Error + Send + Sync>::from(refused));
            }
            Ok(inner.send(request).await?)
        }
    });
    Client::new(service, namespace)
}

/// A write that is never answered must not stop the operator silently.
pub(crate) async fn stall_fails_the_health_check(case: Case) -> anyhow::Result<()> {
    let env = prepare(&case)
        .await?
        .with_arguments(|arguments| arguments.stall_seconds = 2);
    let free = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = free.local_addr()?.to_string();
    drop(free);
    let running = RunningManager::start(env.new_manager().await?.listen(address.clone()));
    for namespace in ["bad", "one", "two", "three"] {
        env.wait_for_copy(namespace, "token", "1").await?;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    let health = health(&address).await?;
    assert!(
        health.contains("200 OK") && health.contains("[+]secretsync-stall"),
        "{health}"
    );
    env.proxy().delay(usize::MAX, Duration::from_hours(1), is_bad);
    let changed = json!({ "data": secret("token", "2").data });
    env.in_namespace(HOME).patch::<Secret>("token", changed).await?;
    env.wait_for_copy("three", "token", "2").await?;
    let mut last = String::new();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        last = self::health(&address).await?;
        if last.contains("[-]secretsync-stall") {
            running.kill().await;
            return Ok(());
        }
    }
    anyhow::bail!("the stall was not reported: {last}")
}

/// The response of `/healthz`, with headers.
async fn health(address: &str) -> anyhow::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = "GET /healthz?verbose HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}
