//! Controllers whose keys are no objects, and feeders whose watches come and go, on a clock that the test holds.

mod harness;
#[path = "../../cache/tests/model/mod.rs"]
mod model;

use std::collections::HashMap;

use harness::{Log, Running, SECRETS, done, noting, server, settle};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use model::{CONFIG_MAPS, config_map, key};
use serde_json::json;
use windlass_cache::{Change, Selection};
use windlass_runtime::{Controller, Error, Feed, Manager, ManagerError, ObjectKey, Told, Watching};
use windlass_workqueue::Priority;

/// A key for each word that it says.
fn words(map: &ConfigMap) -> Vec<ObjectKey> {
    let text = map.data.as_ref().and_then(|data| data.get("text"));
    let words = text.into_iter().flat_map(|text| text.split(' '));
    words.map(|word| ObjectKey::namespaced("n", word)).collect()
}

#[tokio::test(start_paused = true)]
async fn keys_may_be_anything() {
    let (server, log) = (server(), Log::default());
    server.put(CONFIG_MAPS, config_map("a", "hello world"));
    let controller = Controller::keyed("words")
        .watches::<ConfigMap>(words)
        .reconcile(noting(&log, done));
    let running = Running::start(Manager::new(server.client()).controller(controller));
    settle().await;
    server.put(CONFIG_MAPS, config_map("a", "goodbye"));
    settle().await;
    assert_eq!(*log.lock(), ["hello", "world", "hello", "world", "goodbye"]);
    running.stop().await.expect("it stops when asked");
}

/// Each ConfigMap asks for a watch of the Secrets in the namespace of its name.
fn rooms(feed: &Feed) -> impl FnMut(Told<ConfigMap>) + Send + 'static {
    let (feed, mut open) = (feed.clone(), HashMap::<String, Watching>::new());
    move |told| match told {
        Told::Change(Change::Deleted { last, .. }) => drop(open.remove(last.key().name())),
        Told::Change(Change::Applied { new, .. }) => {
            let room = new.key().name().to_owned();
            let secrets = feed
                .caches()
                .get::<Secret>(&Selection::all().namespace(room.as_str()));
            let keys = feed.clone();
            let watching = feed.watch(&secrets, move |told| {
                if let Told::Change(change) = told {
                    keys.add(change.key().clone(), Priority::NORMAL);
                }
            });
            open.insert(room, watching);
        }
        Told::Complete => feed.ready(),
    }
}

async fn feeder(feed: Feed) -> Result<(), Error> {
    let maps = feed.caches().get::<ConfigMap>(feed.within());
    feed.watch(&maps, rooms(&feed)).ended().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn watches_come_and_go_while_it_runs() {
    let (server, log) = (server(), Log::default());
    server.install("/api/v1/namespaces/room/secrets");
    let secret = |name: &str| json!({ "metadata": { "namespace": "room", "name": name } });
    let controller = Controller::keyed("rooms")
        .fed_by(feeder)
        .reconcile(noting(&log, done));
    let running = Running::start(Manager::new(server.client()).controller(controller));
    settle().await;
    server.put(SECRETS, secret("unseen"));
    settle().await;
    assert_eq!(*log.lock(), [""; 0], "nobody asked");
    let before = server.watches();
    server.put(CONFIG_MAPS, config_map("room", ""));
    settle().await;
    assert_eq!(server.watches(), before + 1);
    server.delete(CONFIG_MAPS, &key("room"));
    settle().await;
    assert_eq!(server.watches(), before, "nobody asks any more");
    running.stop().await.expect("it stops when asked");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_before_the_feed_is_ready_and_urgent_keys_go_first() {
    let (server, log) = (server(), Log::default());
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let controller = Controller::keyed("slow")
        .fed_by(|feed: Feed| async move {
            for (name, priority) in [
                ("a", Priority::LOW),
                ("b", Priority::NORMAL),
                ("c", Priority::HIGH),
            ] {
                feed.add(key(name), priority);
            }
            gone.await?;
            feed.ready();
            std::future::pending().await
        })
        .reconcile(noting(&log, done));
    let running = Running::start(Manager::new(server.client()).controller(controller));
    settle().await;
    assert_eq!(*log.lock(), [""; 0]);
    go.send(()).expect("it waits");
    settle().await;
    assert_eq!(*log.lock(), ["c", "b", "a"]);
    running.stop().await.expect("it stops when asked");
}

#[tokio::test(start_paused = true)]
async fn a_feeder_that_ends_stops_the_controller() {
    let (server, log) = (server(), Log::default());
    let controller = Controller::keyed("brief")
        .fed_by(|_| async { Err("no more".into()) })
        .reconcile(noting(&log, done));
    let ended = Manager::new(server.client()).controller(controller).run().await;
    assert!(
        matches!(&ended, Err(ManagerError::Controller { controller, .. }) if controller == "brief"),
        "{ended:?}"
    );
}
