//! Writes the journal: soon if a worker waits for it, else periodically after confirmations.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};

use super::sink_queue::SinkQueue;
use crate::journal::{Journal, JournalContents, JournalError};

/// The minimum time between writes of confirmations.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum time between writes when a worker waits. In addition, writing may take at most a tenth of the time.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(100);

/// Writes the journal. Owned by the hub; only [`run`](Self::run) writes.
pub(super) struct JournalWriter {
    journal: Option<Arc<Journal>>,
    queues: Vec<Arc<SinkQueue>>,
    confirmed: Arc<Notify>,
    /// How many writes workers have requested.
    requested: watch::Sender<u64>,
    /// How many of those requests are served.
    completed: watch::Sender<u64>,
}

impl JournalWriter {
    pub(super) fn new(
        journal: Option<Arc<Journal>>,
        queues: Vec<Arc<SinkQueue>>,
        confirmed: Arc<Notify>,
    ) -> Self {
        Self {
            journal,
            queues,
            confirmed,
            requested: watch::Sender::new(0),
            completed: watch::Sender::new(0),
        }
    }

    /// Waits until the current state has been written. Also returns if the write failed, with a warning: delivery goes on when
    /// the disk is full.
    pub(super) async fn wait_until_written(&self) {
        let mut mine = 0;
        self.requested.send_modify(|asked| {
            *asked += 1;
            mine = *asked;
        });
        // An error means that the writer was dropped, and this future with it.
        let _ = self.completed.subscribe().wait_for(|done| *done >= mine).await;
    }

    /// Writes whenever it is due, and a last time after `end`.
    ///
    /// Cancellation does not stop a write in progress; the next one waits for it.
    pub(super) async fn run(&self, end: impl Future<Output = ()>) -> Result<(), JournalError> {
        let mut end = std::pin::pin!(end);
        let mut asked = self.requested.subscribe();
        // The first write is due immediately.
        let (mut soonest, mut again) = (Instant::now(), Instant::now());
        loop {
            let waits_for_it = |asked: &u64| *asked > *self.completed.borrow();
            let due = async {
                tokio::select! {
                    _ = asked.wait_for(waits_for_it) => {}
                    () = async {
                        self.confirmed.notified().await;
                        sleep_until(again).await;
                    } => {}
                }
                sleep_until(soonest).await;
            };
            tokio::select! {
                () = due => {}
                () = &mut end => return self.write().await,
            }
            let asked = *self.requested.borrow();
            let start = Instant::now();
            if let Err(error) = self.write().await {
                tracing::warn!(%error, "cannot write the state file: after a crash, sinks get confirmed notices again and may miss deletions");
                self.confirmed.notify_one();
            }
            let now = Instant::now();
            (soonest, again) = (
                now + MIN_WRITE_INTERVAL.max(start.elapsed() * 9),
                now + WRITE_INTERVAL,
            );
            self.completed.send_replace(asked);
        }
    }

    /// Writes the current state.
    async fn write(&self) -> Result<(), JournalError> {
        let Some(journal) = self.journal.clone() else {
            return Ok(());
        };
        let queues = self.queues.clone();
        let write = move || {
            journal.write(|| {
                // Keeps the scopes and sinks that this run does not use.
                let mut record: JournalContents = journal.initial_contents().clone();
                for queue in &queues {
                    for (scope, progress) in queue.progress() {
                        let sinks = record.entry(scope.to_string()).or_default();
                        sinks.insert(queue.name.clone(), progress);
                    }
                }
                record
            })
        };
        tokio::task::spawn_blocking(write)
            .await
            .expect("writing does not panic")
    }
}
