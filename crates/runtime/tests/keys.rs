//! Controllers with keys of their own type, on a paused clock.

use crate::harness;
use crate::model;

use std::{fmt, future::ready, sync::Arc, time::Duration};

use harness::{Running, SECRETS, server, settle};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use model::{CONFIG_MAPS, config_map, key};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use windlass_cache::{CacheSet, Query, WatchScope};
use windlass_runtime::{
    Action, Context, Controller, Keyed, Manager, ObjectKey, Reconciler, Request, SourceContext, SourceEvent,
    Watch,
};
use windlass_workqueue::Priority;

/// Two kinds of work, from two kinds of objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Job {
    Word { namespace: Arc<str>, word: Arc<str> },
    Rotate(ObjectKey),
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word { namespace, word } => write!(f, "{word} in {namespace}"),
            Self::Rotate(secret) => write!(f, "rotate {secret}"),
        }
    }
}

fn word(word: &str) -> Job {
    Job::Word {
        namespace: "n".into(),
        word: word.into(),
    }
}

/// A key for each word of the ConfigMap's text.
fn words(map: &ConfigMap) -> Vec<Job> {
    let text = map.data.as_ref().and_then(|data| data.get("text"));
    text.into_iter()
        .flat_map(|text| text.split(' '))
        .map(word)
        .collect()
}

type JobLog = Arc<Mutex<Vec<(Job, Instant)>>>;

/// Reconciles words, of which `bad` ones always fail, and secrets.
fn jobs(log: &JobLog) -> Controller<Keyed<Job>, impl Reconciler<Job> + use<>> {
    let log = Arc::clone(log);
    Controller::keyed("jobs")
        .watches::<ConfigMap>(words)
        .watch(Watch::<Secret>::new().map_key(|key| Job::Rotate(key.clone())))
        .reconcile(move |request: Request<Job>, _: Context<Job>| {
            let is_bad = request.key == word("bad");
            log.lock().push((request.key, Instant::now()));
            ready(if is_bad {
                Err("no such word".into())
            } else {
                Ok(Action::done())
            })
        })
}

#[tokio::test(start_paused = true)]
async fn typed_keys_are_mapped_deduplicated_and_retried() {
    let (server, log) = (server(), JobLog::default());
    server.put(CONFIG_MAPS, config_map("a", "good bad"));
    server.put(CONFIG_MAPS, config_map("b", "good"));
    let running = Running::start(Manager::new(server.client()).controller(jobs(&log)));
    settle().await;
    let taken = || -> Vec<Job> {
        std::mem::take(&mut *log.lock())
            .into_iter()
            .map(|(job, _)| job)
            .collect()
    };
    assert_eq!(taken(), [word("good"), word("bad")], "each key once");

    server.put(
        SECRETS,
        json!({ "metadata": { "namespace": "n", "name": "tls" } }),
    );
    settle().await;
    assert_eq!(taken(), [Job::Rotate(key("tls"))]);

    tokio::time::sleep(Duration::from_millis(70)).await;
    let times: Vec<_> = std::mem::take(&mut *log.lock())
        .into_iter()
        .map(|(job, at)| {
            assert_eq!(job, word("bad"), "only the failed key is retried");
            at
        })
        .collect();
    let gaps: Vec<_> = times
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_millis())
        .collect();
    assert_eq!(gaps, [10, 20], "exponential backoff, after the first 5 ms");
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn status_shows_typed_keys_by_their_display() {
    let (server, log) = (server(), JobLog::default());
    server.put(CONFIG_MAPS, config_map("a", "bad good"));
    let manager = Manager::new(server.client()).controller(jobs(&log));
    let controllers = manager.controllers();
    assert_eq!(
        controllers.status()[0].last,
        None,
        "a status before the start has no keys"
    );
    let running = Running::start(manager);
    settle().await;
    let page = serde_json::to_value(&controllers.status()[0]).expect("JSON");
    assert_eq!(page["last"]["key"], "good in n");
    assert_eq!(page["failing"][0]["key"], "bad in n");
    assert_eq!(page["failing"][0]["lastError"], "no such word");
    assert_eq!(page["delayed"], 1);
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn typed_key_shows_while_it_is_reconciled() {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "slow"));
    let controller = Controller::keyed("jobs").watches::<ConfigMap>(words).reconcile(
        |_: Request<Job>, ctx: Context<Job>| async move {
            ctx.stopping().await;
            Ok(Action::done())
        },
    );
    let manager = Manager::new(server.client()).controller(controller);
    let controllers = manager.controllers();
    let running = Running::start(manager);
    settle().await;
    assert_eq!(controllers.status()[0].running[0].key, "slow in n");
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn keyed_controller_reads_a_kind_without_being_triggered_by_it() {
    let server = server();
    server.put(
        SECRETS,
        json!({ "metadata": { "namespace": "n", "name": "tls" } }),
    );
    server.put(CONFIG_MAPS, config_map("a", "count"));
    let counts = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&counts);
    let controller = Controller::keyed("jobs")
        .watches::<ConfigMap>(words)
        .read(Watch::<Secret>::new())
        .reconcile(move |_: Request<Job>, ctx: Context<Job>| {
            let secrets = ctx
                .lister::<Secret>()
                .map(|secrets| secrets.list(&Query::all()).len());
            log.lock().push(secrets.expect("a declared kind"));
            ready(Ok(Action::done()))
        });
    let running = Running::start(Manager::new(server.client()).controller(controller));
    settle().await;
    server.put(SECRETS, json!({ "metadata": { "namespace": "n", "name": "ca" } }));
    settle().await;
    assert_eq!(*counts.lock(), [1], "a new Secret triggers nothing");
    running.stop().await.expect("stops cleanly");
}

/// An object in one of several clusters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClusterKey {
    cluster: Arc<str>,
    object: ObjectKey,
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cluster, self.object)
    }
}

#[tokio::test(start_paused = true)]
async fn key_can_name_the_cluster_of_an_object() {
    let (home, east, west) = (server(), server(), server());
    east.put(CONFIG_MAPS, config_map("same", "from the east"));
    west.put(CONFIG_MAPS, config_map("same", "from the west"));
    let clusters: Vec<(Arc<str>, CacheSet)> = vec![
        ("east".into(), CacheSet::new(east.client())),
        ("west".into(), CacheSet::new(west.client())),
    ];
    let (watched, read) = (clusters.clone(), clusters.clone());
    let texts = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&texts);
    let controller = Controller::keyed("clusters")
        .source(move |source: SourceContext<ClusterKey>| async move {
            let open_watches: Vec<_> = watched
                .iter()
                .map(|(cluster, caches)| {
                    let (keys, cluster) = (source.clone(), Arc::clone(cluster));
                    source.watch(&caches.get::<ConfigMap>(&WatchScope::all()), move |event| {
                        if let SourceEvent::Change(change) = event {
                            let (cluster, object) = (Arc::clone(&cluster), change.key().clone());
                            keys.add(ClusterKey { cluster, object }, Priority::NORMAL);
                        }
                    })
                })
                .collect();
            source.mark_ready();
            std::future::pending::<()>().await;
            drop(open_watches);
            Ok(())
        })
        .reconcile(move |request: Request<ClusterKey>, _: Context<ClusterKey>| {
            let (log, read, key) = (Arc::clone(&log), read.clone(), request.key);
            async move {
                let (_, caches) = read
                    .iter()
                    .find(|(name, _)| *name == key.cluster)
                    .ok_or("unknown cluster")?;
                let maps = caches.get::<ConfigMap>(&WatchScope::all());
                let map = maps.synced(Duration::from_secs(1)).await?.get(&key.object);
                let text = map.and_then(|map| map.data.clone()?.remove("text"));
                log.lock().push(format!("{key} {}", text.unwrap_or_default()));
                Ok(Action::done())
            }
        });
    let running = Running::start(Manager::new(home.client()).controller(controller));
    settle().await;
    texts.lock().sort();
    assert_eq!(
        *texts.lock(),
        ["east: n/same from the east", "west: n/same from the west"]
    );
    running.stop().await.expect("stops cleanly");
    for (_, caches) in clusters {
        caches.close().await;
    }
}
