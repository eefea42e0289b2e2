//! Fixture: a set of pods, and scripted sinks.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};
use windlass::{
    cache::{ObjectKey, Uid},
    runtime::Clock,
};

use crate::{
    delivery::{CurrentState, Feed, Hub, HubError, Limits, ObjectVersion, SinkStats, testing},
    journal::Journal,
    notice::{EventType, Notice, Observer},
    sinks::{DeliveryError, Sink},
};

/// The current pods.
#[derive(Clone, Default)]
pub(super) struct Pods(pub(super) Arc<Mutex<Content>>);

#[derive(Default)]
pub(super) struct Content {
    /// Name to UID tag and version.
    pub(super) pods: BTreeMap<String, (u64, u64)>,
    pub(super) version: u64,
    uids: u64,
    /// The event types to report; empty: all.
    pub(super) wanted: Vec<EventType>,
}

pub(super) fn notice(name: &str, (tag, version): (u64, u64), what: EventType) -> Arc<Notice> {
    Arc::new(testing::pod(name, &tag.to_string(), version).what(what).build())
}

impl Pods {
    /// Creates or updates a pod.
    pub(super) fn set(&self, name: &str) -> Arc<Notice> {
        let mut content = self.0.lock();
        content.version += 1;
        let version = content.version;
        if let Some(pod) = content.pods.get_mut(name) {
            pod.1 = version;
            return notice(name, *pod, EventType::Updated);
        }
        content.uids += 1;
        let pod = (content.uids, version);
        content.pods.insert(name.to_owned(), pod);
        notice(name, pod, EventType::Added)
    }

    pub(super) fn delete(&self, name: &str) -> Option<Arc<Notice>> {
        let mut content = self.0.lock();
        let pod = content.pods.remove(name)?;
        content.version += 1;
        Some(notice(name, pod, EventType::Deleted))
    }
}

impl CurrentState for Pods {
    fn versions(&self) -> Vec<ObjectVersion> {
        let content = self.0.lock();
        let version = |(name, (tag, version)): (&String, &(u64, u64))| ObjectVersion {
            key: ObjectKey::namespaced("default", &**name),
            uid: Uid::from(&*testing::uid(&tag.to_string())),
            resource_version: *version,
        };
        content.pods.iter().map(version).collect()
    }

    fn read(&self, key: &ObjectKey) -> Option<Arc<Notice>> {
        let content = self.0.lock();
        content
            .pods
            .get(key.name())
            .map(|pod| notice(key.name(), *pod, EventType::Synced))
    }

    fn accepts(&self, notice: &Notice) -> bool {
        let wanted = &self.0.lock().wanted;
        wanted.is_empty() || wanted.contains(&notice.event)
    }
}

/// A notice that a sink received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) name: String,
    pub(super) event: EventType,
    pub(super) inferred: bool,
    pub(super) coalesced: u64,
    /// The UID tag and the version.
    pub(super) pod: (u64, u64),
}

impl Received {
    fn from_notice(notice: &Notice) -> Self {
        let uid = notice.uid.as_deref().expect("a uid");
        Self {
            name: notice.key.name().to_owned(),
            event: notice.event,
            inferred: notice.inferred,
            coalesced: notice.coalesced,
            pod: (
                uid[24..].parse().expect("digits"),
                notice
                    .resource_version
                    .as_deref()
                    .map_or(0, |version| version.parse().expect("digits")),
            ),
        }
    }

    /// As in `added a`, or `deleted a (inferred)`.
    pub(super) fn text(&self) -> String {
        let inferred = if self.inferred { " (inferred)" } else { "" };
        format!("{} {}{inferred}", self.event, self.name)
    }
}

/// How a sink behaves.
#[derive(Clone, Debug)]
pub(super) enum Behavior {
    Works,
    /// Takes this long before it has the notice, and again before it returns.
    Slow(Duration),
    Unavailable(Option<Duration>),
    /// Fails for these names.
    Fails(Vec<String>),
    Rejects(Vec<String>),
    /// Takes this long, and fails the first attempt for every seventh name.
    Flaky(Duration),
    Hangs,
    /// Accepts everything, but fails to commit.
    FailsToCommit,
}

/// A scripted sink; it survives a restart.
#[derive(Clone)]
pub(super) struct ScriptedSink(Arc<Mutex<SinkLog>>);

struct SinkLog {
    behavior: Behavior,
    received: Vec<Received>,
    attempts: Vec<Instant>,
    /// The names that are being delivered.
    in_flight: HashSet<String>,
    max_in_flight: usize,
    attempted: HashSet<String>,
}

/// Removes the name when its delivery ends or is cancelled.
struct InFlight<'a>(&'a ScriptedSink, String);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.0.lock().in_flight.remove(&self.1);
    }
}

impl Default for ScriptedSink {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(SinkLog {
            behavior: Behavior::Works,
            received: Vec::new(),
            attempts: Vec::new(),
            in_flight: HashSet::new(),
            max_in_flight: 0,
            attempted: HashSet::new(),
        })))
    }
}

impl ScriptedSink {
    pub(super) fn set_behavior(&self, mood: Behavior) {
        self.0.lock().behavior = mood;
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.0.lock().received.clone()
    }

    /// Takes the notices received since the last call, as texts.
    pub(super) fn take_texts(&self) -> Vec<String> {
        let got = std::mem::take(&mut self.0.lock().received);
        got.iter().map(Received::text).collect()
    }

    pub(super) fn max_in_flight(&self) -> usize {
        self.0.lock().max_in_flight
    }

    pub(super) fn attempts(&self) -> Vec<Instant> {
        self.0.lock().attempts.clone()
    }
}

impl Sink for ScriptedSink {
    fn deliver<'a>(&'a self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), DeliveryError>> {
        async {
            let name = notice.key.name();
            let (mood, is_first) = {
                let mut seen = self.0.lock();
                seen.attempts.push(Instant::now());
                assert!(
                    seen.in_flight.insert(name.to_owned()),
                    "two notices of {name} at a time"
                );
                seen.max_in_flight = seen.max_in_flight.max(seen.in_flight.len());
                let is_first = seen.attempted.insert(name.to_owned());
                (seen.behavior.clone(), is_first)
            };
            let _in_flight = InFlight(self, name.to_owned());
            let reason = "does not answer: check the server".to_owned();
            match mood {
                Behavior::Hangs => std::future::pending().await,
                Behavior::Unavailable(retry_after) => {
                    return Err(DeliveryError::Unavailable { reason, retry_after });
                }
                Behavior::Fails(names) if names.iter().any(|it| it == name) => {
                    return Err(DeliveryError::Failed { reason });
                }
                Behavior::Rejects(names) if names.iter().any(|it| it == name) => {
                    return Err(DeliveryError::Rejected { reason });
                }
                Behavior::Flaky(time) => {
                    tokio::time::sleep(time).await;
                    let number = name.trim_start_matches(|c: char| !c.is_ascii_digit());
                    if is_first && number.parse::<u32>().is_ok_and(|number| number % 7 == 0) {
                        return Err(DeliveryError::Failed { reason });
                    }
                }
                Behavior::Slow(time) => {
                    tokio::time::sleep(time).await;
                    self.0.lock().received.push(Received::from_notice(notice));
                    tokio::time::sleep(time).await;
                    return Ok(());
                }
                _ => {}
            }
            self.0.lock().received.push(Received::from_notice(notice));
            Ok(())
        }
        .boxed()
    }

    fn commit(&self) -> BoxFuture<'_, Result<(), DeliveryError>> {
        async {
            match self.0.lock().behavior {
                Behavior::FailsToCommit => Err(DeliveryError::Unavailable {
                    reason: "cannot be synced".to_owned(),
                    retry_after: None,
                }),
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

pub(super) struct RunningHub {
    pub(super) hub: Arc<Hub>,
    pub(super) feed: Feed,
    pub(super) pods: Pods,
    stop: Option<oneshot::Sender<()>>,
    run: JoinHandle<Result<(), HubError>>,
}

pub(super) fn limits(queue: usize) -> Limits {
    Limits {
        queue: queue.try_into().expect("not zero"),
        ..Limits::default()
    }
}

/// Limits with this many concurrent deliveries.
pub(super) fn concurrent(deliveries: usize) -> Limits {
    Limits {
        concurrency: deliveries.try_into().expect("not zero"),
        ..Limits::default()
    }
}

impl RunningHub {
    /// Starts a hub with these sinks, and reports the current pods.
    pub(super) fn start(
        pods: &Pods,
        sinks: &[(&str, Limits, &ScriptedSink)],
        journal: Option<Journal>,
    ) -> Self {
        let sinks = sinks.iter().map(|(name, limits, probe)| {
            let sink: Box<dyn Sink> = Box::new((*probe).clone());
            ((*name).to_owned(), *limits, sink)
        });
        let clock = Clock::starting_at("2026-01-02T03:04:05Z".parse().expect("a time"));
        let hub = Arc::new(Hub::new(sinks.collect(), journal, clock).expect("good sinks"));
        let feed = hub.add_feed("v1/Pod in default", &testing::pods(), Arc::new(pods.clone()));
        let (stop, stopped) = oneshot::channel();
        let run = tokio::spawn({
            let hub = Arc::clone(&hub);
            async move {
                hub.run(async {
                    let _ = stopped.await;
                })
                .await
            }
        });
        for version in pods.versions() {
            let _ = feed.notify(pods.read(&version.key).expect("there"));
        }
        feed.initial_list_done();
        Self {
            hub,
            feed,
            pods: pods.clone(),
            stop: Some(stop),
            run,
        }
    }

    pub(super) fn set(&self, name: &str) {
        let _ = self.feed.notify(self.pods.set(name));
    }

    pub(super) fn delete(&self, name: &str) {
        if let Some(notice) = self.pods.delete(name) {
            let _ = self.feed.notify(notice);
        }
    }

    pub(super) fn stats(&self, sink: &str) -> SinkStats {
        let stats = self.hub.stats().into_iter().find(|(name, _)| name == sink);
        stats.expect("a sink of this name").1
    }

    /// Simulates a crash.
    pub(super) async fn kill(self) {
        self.run.abort();
        let _ = self.run.await;
        drop((self.feed, self.hub));
        // The runtime drops its workers when it polls them next.
        run_ready_tasks().await;
    }

    pub(super) async fn stop(mut self) -> Result<(), HubError> {
        drop(self.stop.take());
        let ended = self.run.await.expect("no panic");
        drop((self.feed, self.hub));
        ended
    }
}

/// Advances the paused clock.
pub(super) async fn advance(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Lets all ready tasks run.
pub(super) async fn run_ready_tasks() {
    advance(Duration::from_millis(1)).await;
}
