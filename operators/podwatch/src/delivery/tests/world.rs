//! A small cluster of pods, and sinks that do as they are told.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};
use windlass::{
    cache::{ObjectKey, Uid},
    runtime::Clock,
};

use crate::{
    delivery::{Feed, Figures, Hub, HubError, Limits, Present, Version, testing},
    journal::Journal,
    notice::{Notice, Observer, What},
    sinks::{Sink, Trouble},
};

/// The pods that there are: name to UID's tag and version.
#[derive(Clone, Default)]
pub(super) struct Pods(pub(super) Arc<Mutex<Content>>);

#[derive(Default)]
pub(super) struct Content {
    pub(super) pods: BTreeMap<String, (u64, u64)>,
    pub(super) version: u64,
    uids: u64,
    /// Only these are wanted, if any are named.
    pub(super) wanted: Vec<What>,
}

pub(super) fn notice(name: &str, (tag, version): (u64, u64), what: What) -> Arc<Notice> {
    Arc::new(testing::pod(name, &tag.to_string(), version).what(what).build())
}

impl Pods {
    /// Creates or changes it.
    pub(super) fn set(&self, name: &str) -> Arc<Notice> {
        let mut content = self.0.lock();
        content.version += 1;
        let version = content.version;
        if let Some(pod) = content.pods.get_mut(name) {
            pod.1 = version;
            return notice(name, *pod, What::Updated);
        }
        content.uids += 1;
        let pod = (content.uids, version);
        content.pods.insert(name.to_owned(), pod);
        notice(name, pod, What::Added)
    }

    pub(super) fn delete(&self, name: &str) -> Option<Arc<Notice>> {
        let mut content = self.0.lock();
        let pod = content.pods.remove(name)?;
        content.version += 1;
        Some(notice(name, pod, What::Deleted))
    }
}

impl Present for Pods {
    fn versions(&self) -> Vec<Version> {
        let content = self.0.lock();
        let version = |(name, (tag, version)): (&String, &(u64, u64))| Version {
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
            .map(|pod| notice(key.name(), *pod, What::Synced))
    }

    fn wants(&self, notice: &Notice) -> bool {
        let wanted = &self.0.lock().wanted;
        wanted.is_empty() || wanted.contains(&notice.what)
    }
}

/// What a sink got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) name: String,
    pub(super) what: What,
    pub(super) inferred: bool,
    /// The UID's tag and the version.
    pub(super) pod: (u64, u64),
}

impl Got {
    fn of(notice: &Notice) -> Self {
        let uid = notice.uid.as_deref().expect("a uid");
        Self {
            name: notice.key.name().to_owned(),
            what: notice.what,
            inferred: notice.inferred,
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
        format!("{} {}{inferred}", self.what, self.name)
    }
}

/// How a sink answers.
#[derive(Clone, Debug)]
pub(super) enum Mood {
    Works,
    /// Takes so long, once before it has the notice and once before it says so.
    Slow(Duration),
    Down(Option<Duration>),
    /// Fails for these names.
    Fails(Vec<String>),
    Refuses(Vec<String>),
    Hangs,
    /// Takes everything, but cannot say that it stays.
    Forgets,
}

/// A sink as the test sees it; it outlives the process.
#[derive(Clone)]
pub(super) struct Probe(Arc<Mutex<Seen>>);

struct Seen {
    mood: Mood,
    got: Vec<Got>,
    attempts: Vec<Instant>,
}

impl Default for Probe {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Seen {
            mood: Mood::Works,
            got: Vec::new(),
            attempts: Vec::new(),
        })))
    }
}

impl Probe {
    pub(super) fn mood(&self, mood: Mood) {
        self.0.lock().mood = mood;
    }

    pub(super) fn got(&self) -> Vec<Got> {
        self.0.lock().got.clone()
    }

    /// What it got since it was last asked, as texts.
    pub(super) fn texts(&self) -> Vec<String> {
        let got = std::mem::take(&mut self.0.lock().got);
        got.iter().map(Got::text).collect()
    }

    pub(super) fn attempts(&self) -> Vec<Instant> {
        self.0.lock().attempts.clone()
    }
}

impl Sink for Probe {
    fn deliver<'a>(&'a mut self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), Trouble>> {
        async {
            let mood = {
                let mut seen = self.0.lock();
                seen.attempts.push(Instant::now());
                seen.mood.clone()
            };
            let name = notice.key.name();
            let why = "does not answer: is it there?".to_owned();
            match mood {
                Mood::Hangs => std::future::pending().await,
                Mood::Down(after) => return Err(Trouble::Down { why, after }),
                Mood::Fails(names) if names.iter().any(|it| it == name) => {
                    return Err(Trouble::Failed { why });
                }
                Mood::Refuses(names) if names.iter().any(|it| it == name) => {
                    return Err(Trouble::Refused { why });
                }
                Mood::Slow(time) => {
                    tokio::time::sleep(time).await;
                    self.0.lock().got.push(Got::of(notice));
                    tokio::time::sleep(time).await;
                    return Ok(());
                }
                _ => {}
            }
            self.0.lock().got.push(Got::of(notice));
            Ok(())
        }
        .boxed()
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<(), Trouble>> {
        async {
            match self.0.lock().mood {
                Mood::Forgets => Err(Trouble::Down {
                    why: "cannot be synced".to_owned(),
                    after: None,
                }),
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

/// A hub that runs.
pub(super) struct Running {
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

impl Running {
    /// Starts with these sinks, and tells what there is.
    pub(super) fn start(pods: &Pods, sinks: &[(&str, Limits, &Probe)], journal: Option<Journal>) -> Self {
        let sinks = sinks.iter().map(|(name, limits, probe)| {
            let sink: Box<dyn Sink> = Box::new((*probe).clone());
            ((*name).to_owned(), *limits, sink)
        });
        let clock = Clock::starting_at("2026-01-02T03:04:05Z".parse().expect("a time"));
        let hub = Arc::new(Hub::new(sinks.collect(), journal, clock).expect("good sinks"));
        let feed = hub.feed("v1/Pod in default", &testing::pods(), Arc::new(pods.clone()));
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
            let _ = feed.tell(pods.read(&version.key).expect("there"));
        }
        feed.listed();
        Self {
            hub,
            feed,
            pods: pods.clone(),
            stop: Some(stop),
            run,
        }
    }

    pub(super) fn set(&self, name: &str) {
        let _ = self.feed.tell(self.pods.set(name));
    }

    pub(super) fn delete(&self, name: &str) {
        if let Some(notice) = self.pods.delete(name) {
            let _ = self.feed.tell(notice);
        }
    }

    pub(super) fn figures(&self, sink: &str) -> Figures {
        let figures = self.hub.figures().into_iter().find(|(name, _)| name == sink);
        figures.expect("a sink of this name").1
    }

    /// Drops everything where it is.
    pub(super) async fn kill(self) {
        self.run.abort();
        let _ = self.run.await;
        drop((self.feed, self.hub));
        // Its workers end when the runtime comes to them.
        settle().await;
    }

    pub(super) async fn stop(mut self) -> Result<(), HubError> {
        drop(self.stop.take());
        let ended = self.run.await.expect("no panic");
        drop((self.feed, self.hub));
        ended
    }
}

/// Lets everything happen that happens within this time.
pub(super) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Lets everything happen that needs no time.
pub(super) async fn settle() {
    pass(Duration::from_millis(1)).await;
}
