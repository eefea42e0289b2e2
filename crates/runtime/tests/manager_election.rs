//! Managers with leader election on one embedded server: which one reconciles, and what a leader that is cut off can
//! still write.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event},
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};
use tower::{ServiceExt, service_fn};
use windlass_apiserver::Server;
use windlass_runtime::{
    Action, Context, Controller, ElectionConfig, Epoch, Error, Manager, ManagerError, OnLoss, Reconciler,
    Request as Key, is_fenced,
};

fn server() -> Server {
    Server::builder().without_service_accounts().build()
}

fn direct(server: &Server) -> Client {
    Client::new(server.clone(), "default")
}

/// A client whose lease requests get no response while the flag is set.
fn cut_off(server: &Server) -> (Client, Arc<AtomicBool>) {
    let (server, cut) = (server.clone(), Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&cut);
    let service = service_fn(move |request: Request<Body>| {
        let (server, cut) = (server.clone(), Arc::clone(&flag));
        async move {
            if cut.load(Ordering::Relaxed) && request.uri().path().contains("/leases") {
                std::future::pending::<()>().await;
            }
            let answer: Response<_> = server.oneshot(request).await?;
            Ok::<_, Infallible>(answer)
        }
    });
    (Client::new(service, "default"), cut)
}

async fn touch(client: &Client, text: &str) {
    let configs = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let patch = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "text": text } });
    let params = PatchParams::apply("test").force();
    configs
        .patch("a", &params, &Patch::Apply(patch))
        .await
        .expect("accepted");
}

/// Which manager reconciled, in which term.
type Log = Arc<Mutex<Vec<(&'static str, Option<Epoch>)>>>;

fn recording(name: &'static str, log: &Log) -> impl Reconciler {
    let log = Arc::clone(log);
    move |_: Key, ctx: Context| {
        log.lock().push((name, ctx.epoch()));
        std::future::ready(Ok(Action::done()))
    }
}

fn election() -> ElectionConfig {
    ElectionConfig::new("test")
}

struct Running {
    stop: oneshot::Sender<()>,
    manager: JoinHandle<Result<(), ManagerError>>,
}

impl Running {
    fn start(manager: Manager) -> Self {
        let (stop, stopped) = oneshot::channel();
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        Self { stop, manager }
    }

    async fn stop(self) -> Result<(), ManagerError> {
        let _ = self.stop.send(());
        self.manager.await.expect("no panic")
    }
}

fn manager(client: Client, name: &'static str, log: &Log) -> Manager {
    let configs = Controller::<ConfigMap>::new("configs").reconcile(recording(name, log));
    Manager::new(client)
        .namespace("default")
        .controller(configs)
        .elect(election().identity(name))
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The follower has warm caches, and takes over as soon as the leader has ended its work and released the lease.
#[tokio::test(start_paused = true)]
async fn follower_takes_over_as_soon_as_the_lease_is_released() {
    let (server, log) = (server(), Log::default());
    touch(&direct(&server), "1").await;
    let first = Running::start(manager(direct(&server), "first", &log));
    seconds(5).await;
    let second = Running::start(manager(direct(&server), "second", &log));
    seconds(5).await;
    touch(&direct(&server), "2").await;
    seconds(5).await;
    assert_eq!(
        log.lock().iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["first", "first"]
    );
    let led = log.lock()[0].1.expect("a term");
    first.stop().await.expect("stops cleanly");
    // The lease is free: the follower retries every two seconds, with jitter.
    seconds(5).await;
    let (name, epoch) = *log.lock().last().expect("a manager reconciled");
    assert_eq!(
        (name, log.lock().len()),
        ("second", 3),
        "every object is reconciled again"
    );
    assert!(
        epoch.is_some_and(|epoch| epoch > led),
        "later leaders have greater epochs"
    );
    second.stop().await.expect("stops cleanly");
    let leases = Api::<Lease>::namespaced(direct(&server), "default");
    let lease = leases.get("test").await.expect("exists").spec.expect("a spec");
    assert_eq!(
        lease.holder_identity.as_deref().unwrap_or_default(),
        "",
        "released"
    );
}

/// Writes of a reconcile that ignores the loss fail after its lease, although it can reach the API.
#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_writes_nothing_after_lease_expiry() {
    let server = server();
    touch(&direct(&server), "1").await;
    let writes = Arc::new(Mutex::new(Vec::new()));
    let (client, cut) = cut_off(&server);
    let noted = Arc::clone(&writes);
    let unresponsive = move |_: Key, ctx: Context| {
        let noted = Arc::clone(&noted);
        // Continues in a spawned task, which is not cancelled.
        tokio::spawn(async move {
            let configs = Api::<ConfigMap>::namespaced(ctx.client().clone(), "default");
            for count in 0.. {
                let patch = Patch::Merge(json!({ "data": { "count": format!("{count}") } }));
                let written = configs.patch("a", &PatchParams::default(), &patch).await;
                noted.lock().push((
                    Instant::now(),
                    written.map(drop).map_err(|error| is_fenced(&error)),
                ));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        std::future::pending::<Result<Action, Error>>()
    };
    let configs = Controller::<ConfigMap>::new("configs").reconcile(unresponsive);
    let running = Running::start(
        Manager::new(client)
            .controller(configs)
            .elect(election())
            .grace_period(Duration::ZERO),
    );
    seconds(30).await;
    cut.store(true, Ordering::Relaxed);
    let cut_at = Instant::now();
    seconds(60).await;
    let written = writes.lock().clone();
    let last = written
        .iter()
        .filter(|(_, outcome)| outcome.is_ok())
        .map(|(at, _)| *at)
        .max()
        .expect("a write succeeded");
    assert!(last > cut_at, "writes are allowed while the lease is valid");
    assert!(last < cut_at + Duration::from_secs(15), "{:?}", last - cut_at);
    let refused: Vec<_> = written
        .iter()
        .filter(|(at, _)| *at > last)
        .map(|(_, outcome)| outcome)
        .collect();
    assert!(refused.len() > 100 && refused.iter().all(|outcome| **outcome == Err(true)));
    drop(running.stop().await);
}

/// Events are writes too: those of a term are written while the lease is valid, and not after it.
#[tokio::test(start_paused = true)]
async fn events_of_a_term_are_written_in_it_or_dropped() {
    let server = server();
    touch(&direct(&server), "1").await;
    let (client, cut) = cut_off(&server);
    let talks = move |_: Key, ctx: Context| {
        let config = ctx.get::<ConfigMap>("a");
        async move {
            let Some(config) = config? else {
                return Ok(Action::done());
            };
            // Continues in a spawned task, which is not cancelled.
            tokio::spawn(async move {
                for count in 0.. {
                    ctx.recorder()
                        .normal(&*config, &format!("Event{count}"), "message");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
            Ok(Action::done())
        }
    };
    let configs = Controller::<ConfigMap>::new("configs").reconcile(talks);
    let running = Running::start(
        Manager::new(client)
            .namespace("default")
            .controller(configs)
            .elect(election().identity("talker"))
            .grace_period(Duration::ZERO),
    );
    seconds(8).await;
    cut.store(true, Ordering::Relaxed);
    // The lease lasts for 15 s.
    seconds(15).await;
    let event_count = || async {
        let events = Api::<Event>::namespaced(direct(&server), "default");
        let events = events
            .list(&ListParams::default())
            .await
            .expect("events are listed");
        events
            .items
            .iter()
            .filter(|event| event.reason.as_deref().is_some_and(|r| r.starts_with("Event")))
            .count()
    };
    let at_the_end = event_count().await;
    assert!(
        at_the_end > 8,
        "events are written while the lease is valid: {at_the_end}"
    );
    seconds(30).await;
    assert_eq!(event_count().await, at_the_end);
    drop(running.stop().await);
    assert_eq!(event_count().await, at_the_end);
}

/// After a loss it may be elected again, with another epoch, or the process exits.
#[tokio::test(start_paused = true)]
async fn leader_that_lost_its_lease_stands_by_or_exits() {
    for exits in [false, true] {
        let (server, log) = (server(), Log::default());
        touch(&direct(&server), "1").await;
        let (client, cut) = cut_off(&server);
        let on_loss = if exits { OnLoss::Exit } else { OnLoss::Standby };
        let configs = Controller::<ConfigMap>::new("configs").reconcile(recording("it", &log));
        let manager = Manager::new(client)
            .namespace("default")
            .controller(configs)
            .elect(election().on_loss(on_loss));
        let running = Running::start(manager);
        seconds(5).await;
        assert_eq!(log.lock().len(), 1);
        cut.store(true, Ordering::Relaxed);
        seconds(60).await;
        touch(&direct(&server), "2").await;
        seconds(5).await;
        assert_eq!(log.lock().len(), 1, "not leading");
        if exits {
            let error = running
                .manager
                .await
                .expect("no panic")
                .expect_err("the lease was lost");
            assert!(matches!(error, ManagerError::Election(_)), "{error}");
            continue;
        }
        cut.store(false, Ordering::Relaxed);
        seconds(30).await;
        let terms: Vec<_> = log
            .lock()
            .iter()
            .map(|(_, epoch)| epoch.expect("a term"))
            .collect();
        assert_eq!(terms.len(), 2, "leads again");
        assert!(terms[1] > terms[0]);
        running.stop().await.expect("stops cleanly");
    }
}

/// A reconcile of an earlier term cannot write in a later one of the same process.
#[tokio::test(start_paused = true)]
async fn work_of_an_earlier_term_cannot_write_in_a_later_one() {
    let server = server();
    touch(&direct(&server), "1").await;
    let (client, cut) = cut_off(&server);
    let kept = Arc::new(Mutex::new(Vec::<Context>::new()));
    let keep = Arc::clone(&kept);
    let keeping = move |_: Key, ctx: Context| {
        keep.lock().push(ctx);
        std::future::ready(Ok(Action::done()))
    };
    let configs = Controller::<ConfigMap>::new("configs").reconcile(keeping);
    let running = Running::start(
        Manager::new(client)
            .namespace("default")
            .controller(configs)
            .elect(election()),
    );
    seconds(5).await;
    cut.store(true, Ordering::Relaxed);
    seconds(60).await;
    cut.store(false, Ordering::Relaxed);
    seconds(30).await;
    let (old, new) = {
        let kept = kept.lock();
        (
            kept.first().expect("the first term").clone(),
            kept.last().expect("the second term").clone(),
        )
    };
    assert!(old.epoch() < new.epoch());
    let write = |ctx: Context| async move {
        let configs = Api::<ConfigMap>::namespaced(ctx.client().clone(), "default");
        let object = ConfigMap {
            metadata: kube::api::ObjectMeta {
                generate_name: Some("x-".into()),
                ..Default::default()
            },
            ..ConfigMap::default()
        };
        configs.create(&PostParams::default(), &object).await
    };
    assert!(is_fenced(&write(old).await.expect_err("its term is over")));
    write(new).await.expect("its term is current");
    running.stop().await.expect("stops cleanly");
}

/// `on_every_replica` controllers run on every replica; a leader task runs once in each term.
#[tokio::test(start_paused = true)]
async fn replica_controllers_run_everywhere_and_leader_tasks_once_per_term() {
    let (server, everywhere, tasks) = (server(), Log::default(), Log::default());
    touch(&direct(&server), "1").await;
    let start = |name: &'static str| {
        let configs = Controller::<ConfigMap>::new("everywhere")
            .on_every_replica()
            .reconcile(recording(name, &everywhere));
        let tasks = Arc::clone(&tasks);
        let manager = Manager::new(direct(&server))
            .namespace("default")
            .controller(configs)
            .leader_task("task", move |ctx| {
                tasks.lock().push((name, ctx.epoch()));
                async move {
                    ctx.stopping().await;
                    Ok(())
                }
            })
            .elect(election().identity(name));
        Running::start(manager)
    };
    let first = start("first");
    seconds(5).await;
    let second = start("second");
    seconds(5).await;
    assert_eq!(
        everywhere
            .lock()
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>(),
        ["first", "second"]
    );
    assert!(everywhere.lock().iter().all(|(_, epoch)| epoch.is_none()));
    let names = || tasks.lock().iter().map(|(name, _)| *name).collect::<Vec<_>>();
    assert_eq!(names(), ["first"]);
    first.stop().await.expect("stops cleanly");
    seconds(5).await;
    assert_eq!(names(), ["first", "second"]);
    let terms: Vec<_> = tasks.lock().iter().map(|(_, epoch)| *epoch).collect();
    assert!(terms[0] < terms[1]);
    second.stop().await.expect("stops cleanly");
}

/// The lease is held until the last reconcile has ended and its events are written, so no other process starts before.
#[tokio::test(start_paused = true)]
async fn lease_is_released_after_the_last_reconcile() {
    let (server, log) = (server(), Log::default());
    touch(&direct(&server), "1").await;
    let ended = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&ended);
    let slow = move |_: Key, ctx: Context| {
        let noted = Arc::clone(&noted);
        async move {
            ctx.stopping().await;
            tokio::time::sleep(Duration::from_secs(20)).await;
            *noted.lock() = Some(Instant::now());
            if let Some(config) = ctx.get::<ConfigMap>("a")? {
                ctx.recorder().normal(&*config, "Ended", "last event");
            }
            Ok(Action::done())
        }
    };
    let configs = Controller::<ConfigMap>::new("configs").reconcile(slow);
    let first = Running::start(
        Manager::new(direct(&server))
            .namespace("default")
            .controller(configs)
            .elect(election().identity("first")),
    );
    seconds(5).await;
    let taken = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&taken);
    let second = manager(direct(&server), "second", &log).leader_task("when", move |_| {
        *noted.lock() = Some(Instant::now());
        std::future::ready(Ok(()))
    });
    let second = Running::start(second);
    seconds(5).await;
    first.stop().await.expect("stops cleanly");
    seconds(5).await;
    let (ended, taken) = (
        ended.lock().expect("it ended"),
        taken.lock().expect("it was taken"),
    );
    assert!(ended < taken && taken - ended < Duration::from_secs(5));
    let events = Api::<Event>::namespaced(direct(&server), "default");
    let events = events
        .list(&ListParams::default())
        .await
        .expect("events are listed");
    assert!(
        events
            .items
            .iter()
            .any(|event| event.reason.as_deref() == Some("Ended"))
    );
    second.stop().await.expect("stops cleanly");
}
