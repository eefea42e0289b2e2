//! A server in trouble, and namespaces that take nothing.

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
        Api,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
    serde_json::Value,
};
use windlass_cluster::Backend;
use windlass_secretsync::{SecretSync, api::SYNC};
use windlass_suite::{Context as Case, Line, Running, Sent};

use crate::world::{CANARY, HOME, World, condition, namespace_of, secret};

/// One namespace that takes nothing, and three that do; and a sync that says so.
async fn stage(case: &Case) -> anyhow::Result<World> {
    let world = World::new(case).await?;
    world.consenting(&["bad", "one", "two", "three"]).await?;
    world.within(HOME).create(secret("token", "1")).await?;
    world.sync(HOME, "shared", json!({ "names": ["token"] })).await?;
    Ok(world)
}

/// Others have theirs at once; the bad one is reported, and tried ever more seldom.
async fn assert_only_one_suffers(world: &World, says: &str) -> anyhow::Result<()> {
    let others = async {
        for namespace in ["one", "two", "three"] {
            world.copied(namespace, "token", "1").await?;
        }
        Ok(())
    };
    world.soon("the others", others).await?;
    let told = world
        .says(HOME, "shared", |status| {
            status.failed == 1 && status.synced == 3 && condition(status, "Ready", "False")
        })
        .await?;
    let status = told.status.clone().unwrap_or_default();
    let [failure] = &status.failures[..] else {
        anyhow::bail!("one failure: {status:?}")
    };
    assert_eq!((&*failure.namespace, &*failure.name), ("bad", "token"));
    assert!(failure.message.contains(says), "{failure:?}");
    // A change is with the others as quickly, however long the bad one has been bad.
    world.a_while().await;
    let tries = world
        .copying()
        .into_iter()
        .filter(|write| write.ends_with(" bad/token"));
    let tries = tries.count();
    assert!((2..100).contains(&tries), "{tries} tries");
    let changed = json!({ "data": secret("token", "2").data });
    world.within(HOME).patch::<Secret>("token", changed).await?;
    let others = async {
        for namespace in ["one", "two", "three"] {
            world.copied(namespace, "token", "2").await?;
        }
        Ok(())
    };
    world.soon("the others, later", others).await?;
    Ok(())
}

async fn assert_recovers(world: &World) -> anyhow::Result<()> {
    // It is tried again after a while, whether or not anybody tells that it would work.
    world.a_while().await;
    world.copied("bad", "token", "2").await?;
    world
        .says(HOME, "shared", |status| {
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

fn bad_until(healed: &Arc<AtomicBool>) -> impl Fn(&Sent) -> bool + Send + 'static {
    let healed = Arc::clone(healed);
    move |sent| is_bad(sent) && !healed.load(Ordering::Relaxed)
}

fn is_bad(sent: &Sent) -> bool {
    sent.is_write() && sent.resource() == "secrets" && namespace_of(sent) == "bad"
}

/// Demand 9: a full quota. In the words of a real server, and by one.
pub(crate) async fn a_namespace_with_a_full_quota_holds_nobody_up(case: Case) -> anyhow::Result<()> {
    let world = stage(&case).await?;
    let (real, healed) = (case.cluster().backend() != Backend::Embedded, Arc::default());
    let quotas = world.within("bad").case().api::<ResourceQuota>();
    let message = "secrets \"token\" is forbidden: exceeded quota: none, requested: secrets=1, used: secrets=0, limited: secrets=0";
    if real {
        let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "secrets": "0" } } });
        quotas.create(&PostParams::default(), &from_value(quota)?).await?;
        // Nobody counts here, so the test does.
        let status = json!({ "status": { "hard": { "secrets": "0" }, "used": { "secrets": "0" } } });
        quotas
            .patch_status("none", &PatchParams::default(), &Patch::Merge(status))
            .await?;
    } else {
        let refused = refused(403, "Forbidden", message);
        world.wire().answer(usize::MAX, refused, bad_until(&healed));
    }
    let running = world.start().await?;
    assert_only_one_suffers(&world, "exceeded quota: none").await?;
    healed.store(true, Ordering::Relaxed);
    if real {
        quotas.delete("none", &DeleteParams::default()).await?;
    }
    assert_recovers(&world).await?;
    running.stop().await
}

/// Demand 9: a webhook that does not answer. In the words of a real server, and by one.
pub(crate) async fn a_webhook_that_fails_for_one_namespace_holds_nobody_up(case: Case) -> anyhow::Result<()> {
    let world = stage(&case).await?;
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
        // A server takes a moment to know its webhooks.
        let probe = secret("probe", "1");
        for _ in 0..100 {
            let probed = world.within("bad").create(probe.clone()).await;
            if probed.is_err() {
                break;
            }
            let _ = world.within("bad").delete::<Secret>("probe").await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    } else {
        let refused = refused(500, "InternalError", message);
        world.wire().answer(usize::MAX, refused, bad_until(&healed));
    }
    let running = world.start().await?;
    assert_only_one_suffers(&world, "failed calling webhook").await?;
    healed.store(true, Ordering::Relaxed);
    if real {
        hooks.delete("fails", &DeleteParams::default()).await?;
    }
    assert_recovers(&world).await?;
    running.stop().await
}

/// Whoever refuses may quote what it refuses. What it says is told without it.
pub(crate) async fn a_refusal_that_quotes_the_values_is_told_without_them(case: Case) -> anyhow::Result<()> {
    let world = stage(&case).await?;
    let quoted = format!(
        "admission webhook \"strict\" denied the request: password {CANARY}1 is weak, and so is YzRuNHJ5YzRuNHJ5MQ=="
    );
    world
        .wire()
        .answer(usize::MAX, refused(400, "BadRequest", &quoted), is_bad);
    let running = world.start().await?;
    world.says(HOME, "shared", |status| status.failed == 1).await?;
    assert_nothing_told(&world, "a creation").await?;
    running.stop().await
}

/// Who refuses a change sees what was there before, and who refuses a deletion sees what nobody here has read.
pub(crate) async fn a_refusal_that_quotes_older_values_is_told_without_them(
    case: Case,
) -> anyhow::Result<()> {
    let world = stage(&case).await?;
    let running = world.start().await?;
    for namespace in ["bad", "one", "two", "three"] {
        world.copied(namespace, "token", "1").await?;
    }
    world.settle().await;
    let quoted = format!("admission webhook \"strict\" denied the request: it was {CANARY}1 before");
    world
        .wire()
        .answer(usize::MAX, refused(400, "BadRequest", &quoted), is_bad);
    let changed = json!({ "data": { "password": "bmV3IHZhbHVl" } });
    world.within(HOME).patch::<Secret>("token", changed).await?;
    world.says(HOME, "shared", |status| status.failed == 1).await?;
    assert_nothing_told(&world, "a change").await?;
    world
        .patch_namespace("bad", json!({ "annotations": { SYNC: "nobody" } }))
        .await?;
    let told = world
        .says(HOME, "shared", |status| status.failed == 1 && status.targets == 3)
        .await?;
    let failures = &told.status.as_ref().expect("it was just there").failures;
    assert!(failures[0].message.contains("denied the request"), "{failures:?}");
    assert_nothing_told(&world, "a deletion").await?;
    running.stop().await
}

async fn assert_nothing_told(world: &World, after: &str) -> anyhow::Result<()> {
    world.settle().await;
    let told = windlass::serde_json::to_string(&world.within(HOME).get::<SecretSync>("shared").await?)?;
    let events = windlass::serde_json::to_string(&world.events().await?)?;
    for text in [told, events] {
        assert!(
            !text.contains(CANARY) && !text.contains("YzRuNHJ5"),
            "after {after}: {text}"
        );
    }
    Ok(())
}

/// A SecretSync stays until its copies are gone, and says what keeps it.
pub(crate) async fn a_sync_that_cannot_go_says_why(case: Case) -> anyhow::Result<()> {
    let world = stage(&case).await?;
    let running = world.start().await?;
    for namespace in ["bad", "one", "two", "three"] {
        world.copied(namespace, "token", "1").await?;
    }
    world.settle().await;
    let healed = Arc::default();
    let denied = refused(403, "Forbidden", "admission webhook \"keep\" denied the request");
    world.wire().answer(usize::MAX, denied, bad_until(&healed));
    world.within(HOME).delete::<SecretSync>("shared").await?;
    for namespace in ["one", "two", "three"] {
        world.within(namespace).wait_gone::<Secret>("token").await?;
    }
    let told = world
        .says(HOME, "shared", |status| {
            status.failed == 1 && status.synced == 0 && condition(status, "Ready", "False")
        })
        .await?;
    let failures = &told.status.as_ref().expect("it was just there").failures;
    assert!(
        failures.len() == 1 && failures[0].namespace == "bad" && failures[0].message.contains("\"keep\""),
        "{failures:?}"
    );
    world.settle().await;
    world.within(HOME).get::<SecretSync>("shared").await?;
    healed.store(true, Ordering::Relaxed);
    world.a_while().await;
    world.within("bad").wait_gone::<Secret>("token").await?;
    world.within(HOME).wait_gone::<SecretSync>("shared").await?;
    running.stop().await
}

/// Demand 9: a namespace that is going has nothing to be done in, and nothing went wrong.
pub(crate) async fn a_namespace_that_is_going_is_done(case: Case) -> anyhow::Result<()> {
    let world = stage(&case).await?;
    let hold = json!({ "metadata": { "name": "hold", "finalizers": ["example.com/hold"] } });
    world.within("bad").create::<ConfigMap>(from_value(hold)?).await?;
    let namespaces = Api::<windlass::k8s_openapi::api::core::v1::Namespace>::all(case.client());
    namespaces.delete("bad", &DeleteParams::background()).await?;
    let running = world.start().await?;
    for namespace in ["one", "two", "three"] {
        world.copied(namespace, "token", "1").await?;
    }
    let ready = |world: &World, synced: u32| {
        let world = world.beside();
        async move {
            world
                .says(HOME, "shared", |status| {
                    status.failed == 0 && status.synced == synced && condition(status, "Ready", "True")
                })
                .await
        }
    };
    ready(&world, 3).await?;
    world.settle().await;
    let tries = world
        .copying()
        .into_iter()
        .filter(|write| write.ends_with(" bad/token"));
    assert_eq!(tries.count(), 0, "it says that it is going");
    // And one that goes at the last moment: the server says so before the watch does.
    let message = "secrets \"fresh\" is forbidden: unable to create new content in namespace one because it is being terminated";
    let mut status = refused(403, "Forbidden", message);
    status["details"] = json!({ "name": "fresh", "kind": "secrets", "causes": [{
        "reason": "NamespaceTerminating", "message": "namespace one is being terminated", "field": "metadata.namespace" }] });
    let to_one = |sent: &Sent| sent.is_write() && sent.resource() == "secrets" && namespace_of(sent) == "one";
    world.wire().answer(1, status, to_one);
    world.source("fresh", "1").await?;
    world.copied("two", "fresh", "1").await?;
    ready(&world, 3).await?;
    world.settle().await;
    assert_eq!(world.events().await?, []);
    running.stop().await
}

/// Demand 9: everything is refused for a while, watches end, and where they were is forgotten.
pub(crate) async fn storms_pass(case: Case) -> anyhow::Result<()> {
    let world = stage(&case).await?;
    let line = Line::new(world.wire().client());
    let running = Running::start(world.whole_on(line.client()).await?);
    for namespace in ["bad", "one", "two", "three"] {
        world.copied(namespace, "token", "1").await?;
    }
    world.settle().await;
    let embedded = case.cluster().backend() == Backend::Embedded;
    // Who is refused so often waits for minutes, which are over at once where time is the test's.
    let (storm, rounds) = if embedded { (40, 3) } else { (4, 1) };
    for round in 0..rounds {
        line.cut();
        let value = format!("{round}-new");
        let changed = json!({ "data": secret("token", &value).data });
        world.within(HOME).patch::<Secret>("token", changed).await?;
        world.within("two").delete::<Secret>("token").await?;
        let extra = format!("extra-{round}");
        world.source(&extra, "1").await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        world
            .wire()
            .refuse(storm, StatusCode::SERVICE_UNAVAILABLE, |_| true);
        world
            .wire()
            .refuse(storm / 2, StatusCode::GONE, |sent| sent.access.verb == "watch");
        world
            .wire()
            .refuse(storm / 2, StatusCode::TOO_MANY_REQUESTS, |_| true);
        line.mend();
        if embedded {
            // A server that refuses for long is asked ever more seldom.
            tokio::time::sleep(Duration::from_mins(10)).await;
        }
        for namespace in ["bad", "one", "two", "three"] {
            world.copied(namespace, "token", &value).await?;
            world.copied(namespace, &extra, "1").await?;
        }
        world.within(HOME).delete::<Secret>(&extra).await?;
        world.within("three").wait_gone::<Secret>(&extra).await?;
    }
    world.settle().await;
    for namespace in ["bad", "one", "two", "three"] {
        assert_eq!(world.names::<Secret>(namespace).await?, ["token"]);
    }
    world.within(HOME).delete::<SecretSync>("shared").await?;
    for namespace in ["bad", "one", "two", "three"] {
        world.within(namespace).wait_gone::<Secret>("token").await?;
    }
    running.stop().await
}

/// Demand 9: a write that is never answered does not stop it silently.
pub(crate) async fn a_stall_is_told_by_its_health(case: Case) -> anyhow::Result<()> {
    let world = stage(&case)
        .await?
        .told_to(|arguments| arguments.stall_seconds = 2);
    let free = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = free.local_addr()?.to_string();
    drop(free);
    let running = Running::start(world.whole().await?.listen(address.clone()));
    for namespace in ["bad", "one", "two", "three"] {
        world.copied(namespace, "token", "1").await?;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    let health = health(&address).await?;
    assert!(
        health.contains("200 OK") && health.contains("[+]secretsync-stall"),
        "{health}"
    );
    world.wire().delay(usize::MAX, Duration::from_hours(1), is_bad);
    let changed = json!({ "data": secret("token", "2").data });
    world.within(HOME).patch::<Secret>("token", changed).await?;
    world.copied("three", "token", "2").await?;
    let mut last = String::new();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        last = self::health(&address).await?;
        if last.contains("[-]secretsync-stall") {
            running.kill().await;
            return Ok(());
        }
    }
    anyhow::bail!("nobody would notice: {last}")
}

/// What `/healthz` says, with its head.
async fn health(address: &str) -> anyhow::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = "GET /healthz?verbose HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}
