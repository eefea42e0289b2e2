//! Controllers whose keys are not objects, and custom sources with dynamic watches, on a paused clock.

use crate::harness;
use crate::model;

use std::collections::HashMap;

use harness::{Log, Running, SECRETS, done, recording, server, settle};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use model::{CONFIG_MAPS, config_map, key};
use serde_json::json;
use windlass_cache::{Change, WatchScope};
use windlass_runtime::{
    Action, ChangedObject, Context, Controller, Error, Manager, ManagerError, ObjectKey, Request,
    SourceContext, SourceEvent, WatchHandle,
};
use windlass_workqueue::Priority;

/// A key for each word of the ConfigMap's text.
fn words(map: &ConfigMap) -> Vec<ObjectKey> {
    let text = map.data.as_ref().and_then(|data| data.get("text"));
    let words = text.into_iter().flat_map(|text| text.split(' '));
    words.map(|word| ObjectKey::namespaced("n", word)).collect()
}

#[tokio::test(start_paused = true)]
async fn keyed_controller_accepts_arbitrary_keys() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "hello world"));
    let controller = Controller::keyed("words")
        .watches::<ConfigMap>(words)
        .reconcile(recording(&log, done));
    let running = Running::start(Manager::new(server.client()).controller(controller));
    settle().await;
    server.put(CONFIG_MAPS, config_map("a", "goodbye"));
    settle().await;
    assert_eq!(*log.lock(), ["hello", "world", "hello", "world", "goodbye"]);
    running.stop().await.expect("stops cleanly");
}

/// Each ConfigMap adds a watch of the Secrets in the namespace of its name.
fn watch_secrets(source: &SourceContext) -> impl FnMut(SourceEvent<ConfigMap>) + Send + 'static {
    let (source, mut open) = (source.clone(), HashMap::<String, WatchHandle>::new());
    move |event| match event {
        SourceEvent::Change(Change::Deleted { last, .. }) => drop(open.remove(last.key().name())),
        SourceEvent::Change(Change::Applied { new, .. }) => {
            let room = new.key().name().to_owned();
            let secrets = source
                .caches()
                .get::<Secret>(&WatchScope::all().namespace(room.as_str()));
            let keys = source.clone();
            let watch = source.watch(&secrets, move |event| {
                if let SourceEvent::Change(change) = event {
                    keys.add(change.key().clone(), Priority::NORMAL);
                }
            });
            open.insert(room, watch);
        }
        SourceEvent::Synced => source.mark_ready(),
    }
}

async fn custom_source(source: SourceContext) -> Result<(), Error> {
    let maps = source.caches().get::<ConfigMap>(source.scope());
    source.watch(&maps, watch_secrets(&source)).ended().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn custom_source_opens_and_closes_watches() {
    let (server, log) = (server(), Log::default());
    server.install("/api/v1/namespaces/room/secrets");
    let secret = |name: &str| json!({ "metadata": { "namespace": "room", "name": name } });
    let controller = Controller::keyed("rooms")
        .source(custom_source)
        .reconcile(recording(&log, done));
    let running = Running::start(Manager::new(server.client()).controller(controller));
    settle().await;
    server.put(SECRETS, secret("unseen"));
    settle().await;
    assert_eq!(*log.lock(), [""; 0], "no watch yet");
    let before = server.watches();
    server.put(CONFIG_MAPS, config_map("room", ""));
    settle().await;
    assert_eq!(server.watches(), before + 1);
    server.delete(CONFIG_MAPS, &key("room"));
    settle().await;
    assert_eq!(server.watches(), before, "the watch was closed");
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn source_can_say_which_change_it_adds_a_key_for() {
    let server = server();
    let triggers = Log::default();
    let seen = triggers.clone();
    let controller = Controller::keyed("all")
        .source(|source: SourceContext| async move {
            let maps = source.caches().get::<ConfigMap>(source.scope());
            let keys = source.clone();
            let mut watch = source.watch(&maps, move |event| match event {
                SourceEvent::Change(change) => match ChangedObject::of(&"ConfigMap".into(), &change) {
                    Some(changed) => keys.add_changed(key("all"), Priority::NORMAL, &changed.into()),
                    None => keys.add(key("all"), Priority::NORMAL),
                },
                SourceEvent::Synced => keys.mark_ready(),
            });
            watch.ended().await;
            Ok(())
        })
        .reconcile(move |_: Request, ctx: Context| {
            seen.lock().push(ctx.trigger().to_string());
            std::future::ready(Ok(Action::done()))
        });
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let running = Running::start(Manager::new(server.client()).controller(controller));
    settle().await;
    server.put(CONFIG_MAPS, config_map("a", "2"));
    settle().await;
    assert_eq!(*triggers.lock(), ["source", "ConfigMap n/a updated"]);
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn reconciles_wait_for_the_source_and_start_by_priority() {
    let (server, log) = (server(), Log::default());
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let controller = Controller::keyed("slow")
        .source(|source: SourceContext| async move {
            for (name, priority) in [
                ("a", Priority::LOW),
                ("b", Priority::NORMAL),
                ("c", Priority::HIGH),
            ] {
                source.add(key(name), priority);
            }
            released.await?;
            source.mark_ready();
            std::future::pending().await
        })
        .reconcile(recording(&log, done));
    let running = Running::start(Manager::new(server.client()).controller(controller));
    settle().await;
    assert_eq!(*log.lock(), [""; 0]);
    release.send(()).expect("the source waits");
    settle().await;
    assert_eq!(*log.lock(), ["c", "b", "a"]);
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn controller_fails_if_its_source_returns() {
    let (server, log) = (server(), Log::default());
    let controller = Controller::keyed("brief")
        .source(|_| async { Err("no more".into()) })
        .reconcile(recording(&log, done));
    let ended = Manager::new(server.client()).controller(controller).run().await;
    assert!(
        matches!(&ended, Err(ManagerError::Controller { controller, .. }) if controller == "brief"),
        "{ended:?}"
    );
}
