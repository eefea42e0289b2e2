//! What a reconcile knows about why it runs.

use crate::harness;
use crate::model;

use std::{sync::Arc, time::Duration};

use futures::stream;
use harness::{DEPLOYMENTS, Running, controller, run, server, settle};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use model::{CONFIG_MAPS, config_map, key};
use parking_lot::Mutex;
use serde_json::json;
use windlass_runtime::{Action, Context, Controller, Error, Manager, Request};

/// The triggers of all reconciles, by name of the reconciled object.
type Triggers = Arc<Mutex<Vec<String>>>;

fn take(triggers: &Triggers) -> Vec<String> {
    std::mem::take(&mut triggers.lock())
}

fn record(triggers: &Triggers, request: &Request, ctx: &Context) {
    let line = format!("{}: {}", request.key.name(), ctx.trigger());
    triggers.lock().push(line);
}

#[tokio::test(start_paused = true)]
async fn trigger_names_the_start_and_each_change() {
    let (server, triggers) = (server(), Triggers::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let seen = Arc::clone(&triggers);
    let (running, _) = run(
        &server,
        controller().reconcile(move |request: Request, ctx: Context| {
            record(&seen, &request, &ctx);
            std::future::ready(Ok(Action::done()))
        }),
    );
    settle().await;
    assert_eq!(take(&triggers), ["a: start"]);
    server.put(CONFIG_MAPS, config_map("a", "2"));
    server.put(CONFIG_MAPS, config_map("b", "1"));
    settle().await;
    assert_eq!(
        take(&triggers),
        ["a: ConfigMap n/a updated", "b: ConfigMap n/b created"]
    );
    server.delete(CONFIG_MAPS, &key("a"));
    settle().await;
    assert_eq!(take(&triggers), ["a: ConfigMap n/a deleted"]);
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn trigger_of_an_owner_names_its_child() {
    let (server, triggers) = (server(), Triggers::default());
    server.put(
        DEPLOYMENTS,
        json!({ "metadata": { "namespace": "n", "name": "web" } }),
    );
    let seen = Arc::clone(&triggers);
    let owner = Controller::<Deployment>::new("owner")
        .owns::<ConfigMap>()
        .reconcile(move |request: Request, ctx: Context| {
            record(&seen, &request, &ctx);
            std::future::ready(Ok(Action::done()))
        });
    let running = Running::start(Manager::new(server.client()).controller(owner));
    settle().await;
    assert_eq!(take(&triggers), ["web: start"]);
    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": true,
    }]);
    let mut child = config_map("child", "1");
    child["metadata"]["ownerReferences"] = owner;
    server.put(CONFIG_MAPS, child);
    settle().await;
    assert_eq!(take(&triggers), ["web: ConfigMap n/child created"]);
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn trigger_names_retries_requeues_and_streams() {
    let (server, triggers) = (server(), Triggers::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let seen = Arc::clone(&triggers);
    let failing_twice = move |request: Request, ctx: Context| {
        record(&seen, &request, &ctx);
        let runs = seen.lock().len();
        std::future::ready(match runs {
            1 | 2 => Err(Error::from("not yet")),
            3 => Ok(Action::requeue_after(Duration::from_mins(1))),
            _ => Ok(Action::done()),
        })
    };
    // A key of a stream after everything else.
    let later = stream::once(async {
        tokio::time::sleep(Duration::from_mins(10)).await;
        key("a")
    });
    let controller = controller().triggered_by(later).reconcile(failing_twice);
    let (running, _) = run(&server, controller);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(
        *triggers.lock(),
        ["a: start", "a: retry 1", "a: retry 2", "a: requeue"]
    );
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(triggers.lock().last().map(String::as_str), Some("a: source"));
    running.stop().await.expect("stops cleanly");
}

/// A change that arrives during the backoff is why the object runs; the retry is not.
#[tokio::test(start_paused = true)]
async fn change_during_the_backoff_is_the_trigger() {
    let (server, triggers) = (server(), Triggers::default());
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let seen = Arc::clone(&triggers);
    let (running, _) = run(
        &server,
        controller().reconcile(move |request: Request, ctx: Context| {
            record(&seen, &request, &ctx);
            std::future::ready(Err::<Action, _>(Error::from("never")))
        }),
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    take(&triggers);
    server.put(CONFIG_MAPS, config_map("a", "2"));
    settle().await;
    assert_eq!(take(&triggers), ["a: ConfigMap n/a updated (queued 2 times)"]);
    running.stop().await.expect("stops cleanly");
}
