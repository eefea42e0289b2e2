//! A sink that records its notices.

use std::sync::Arc;

use anyhow::Context as _;
use futures::future::{BoxFuture, FutureExt, ready};
use tokio::{sync::watch, time::timeout};
use windlass::prelude::{Client, Manager};
use windlass_podwatch::{
    EventType, Kind, Notice, NoticeOptions, Scope,
    delivery::{Hub, Limits},
    journal::Journal,
    sinks::{DeliveryError, Sink},
    watch,
};
use windlass_suite::{RunningManager, STEP_TIMEOUT};

/// Records notices. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct RecordingSink(Arc<watch::Sender<Vec<Arc<Notice>>>>);

impl Sink for RecordingSink {
    fn deliver<'a>(&'a self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), DeliveryError>> {
        self.0.send_modify(|notices| notices.push(Arc::clone(notice)));
        ready(Ok(())).boxed()
    }
}

impl RecordingSink {
    pub(crate) fn notices(&self) -> Vec<Arc<Notice>> {
        self.0.borrow().clone()
    }

    /// A short summary of each recorded notice.
    pub(crate) fn summaries(&self) -> Vec<String> {
        self.notices().iter().map(|notice| summary(notice)).collect()
    }

    /// Waits until the condition holds.
    pub(crate) async fn wait(&self, mut holds: impl FnMut(&[Arc<Notice>]) -> bool) -> anyhow::Result<()> {
        let mut notices = self.0.subscribe();
        let held = timeout(STEP_TIMEOUT, notices.wait_for(|notices| holds(notices)))
            .await
            .is_ok();
        held.then_some(())
            .with_context(|| format!("timed out; received so far: {:#?}", self.summaries()))
    }

    /// Waits until exactly these notices are recorded.
    pub(crate) async fn wait_for_exactly(&self, expected: &[&str]) -> anyhow::Result<()> {
        let same = |notices: &[Arc<Notice>]| {
            notices
                .iter()
                .map(|notice| summary(notice))
                .eq(expected.iter().copied())
        };
        self.wait(same)
            .await
            .with_context(|| format!("expected: {expected:#?}"))
    }

    /// Waits for a notice of this event type and object name.
    pub(crate) async fn wait_for(&self, what: EventType, name: &str) -> anyhow::Result<Arc<Notice>> {
        let fits = |notice: &Arc<Notice>| notice.event == what && notice.key.name() == name;
        self.wait(|notices| notices.iter().any(fits)).await?;
        self.notices().into_iter().find(fits).context("it was just there")
    }
}

fn summary(notice: &Notice) -> String {
    let inferred = if notice.inferred { " (inferred)" } else { "" };
    let changes: Vec<_> = notice.changes.iter().map(|change| change.path.as_str()).collect();
    let changes = if changes.is_empty() {
        String::new()
    } else {
        format!(" {}", changes.join(" "))
    };
    format!(
        "{} {} {}{inferred}{changes}",
        notice.event,
        notice.kind.kind,
        notice.key.name()
    )
}

/// A configured watch to start.
pub(crate) struct WatchConfig {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) scope: Scope,
    pub(crate) options: NoticeOptions,
    pub(crate) journal: Option<Journal>,
}

impl WatchConfig {
    pub(crate) fn new(kinds: Vec<Kind>, scope: Scope) -> Self {
        Self {
            kinds,
            scope,
            options: NoticeOptions::default(),
            journal: None,
        }
    }

    pub(crate) fn add_to(self, manager: Manager, sink: &RecordingSink) -> Manager {
        let limits = Limits {
            every_change: self.options.every_change,
            ..Limits::default()
        };
        let sinks = vec![("recording".to_owned(), limits, Box::new(sink.clone()) as _)];
        let hub = Hub::new(sinks, self.journal, self.options.clock).expect("there is a sink");
        watch(manager, self.kinds, &self.scope, self.options, &Arc::new(hub))
    }

    pub(crate) fn start(self, client: Client, sink: &RecordingSink) -> RunningManager {
        RunningManager::start(self.add_to(Manager::new(client), sink))
    }
}
