//! Writes the journal: soon when somebody waits for it, now and then when something was confirmed.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};

use super::lane::Lane;
use crate::journal::{Journal, JournalError, Record};

/// What was confirmed is written at most as often.
const EVERY: Duration = Duration::from_secs(1);

/// If a worker waits for it, at most as often; and writing takes at most a tenth of the time.
const SOONEST: Duration = Duration::from_millis(100);

/// Keeps the journal. Owned by the hub; its [`run`](Self::run) is the only one that writes, until it has ended.
pub(super) struct Keeper {
    journal: Option<Arc<Journal>>,
    lanes: Vec<Arc<Lane>>,
    confirmed: Arc<Notify>,
    /// How many writes workers have asked for.
    asked: watch::Sender<u64>,
    /// How many of those are done.
    done: watch::Sender<u64>,
}

impl Keeper {
    pub(super) fn new(journal: Option<Arc<Journal>>, lanes: Vec<Arc<Lane>>, confirmed: Arc<Notify>) -> Self {
        Self {
            journal,
            lanes,
            confirmed,
            asked: watch::Sender::new(0),
            done: watch::Sender::new(0),
        }
    }

    /// Returns when all that is known now was written. If that cannot be, it returns as well: a full disk is no reason to tell
    /// nobody, and the warning says what is lost.
    pub(super) async fn written(&self) {
        let mut mine = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            mine = *asked;
        });
        // An error means that the keeper is gone, and with it who waits here.
        let _ = self.done.subscribe().wait_for(|done| *done >= mine).await;
    }

    /// Writes whenever it is due, and a last time after `end`. Then nobody has the journal any more.
    ///
    /// Cancellation leaves a write that has begun to itself; the next one waits for it.
    pub(super) async fn run(&self, end: impl Future<Output = ()>) -> Result<(), JournalError> {
        let mut end = std::pin::pin!(end);
        let mut asked = self.asked.subscribe();
        // The first one is due at once.
        let (mut soonest, mut again) = (Instant::now(), Instant::now());
        loop {
            let waits_for_it = |asked: &u64| *asked > *self.done.borrow();
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
            let asked = *self.asked.borrow();
            let start = Instant::now();
            if let Err(error) = self.write().await {
                tracing::warn!(%error, "what the sinks confirmed is not remembered: after a crash they are told of it again, and may miss an end");
                self.confirmed.notify_one();
            }
            let now = Instant::now();
            (soonest, again) = (now + SOONEST.max(start.elapsed() * 9), now + EVERY);
            self.done.send_replace(asked);
        }
    }

    /// Writes what is known now.
    async fn write(&self) -> Result<(), JournalError> {
        let Some(journal) = self.journal.clone() else {
            return Ok(());
        };
        let lanes = self.lanes.clone();
        let write = move || {
            journal.write(|| {
                // What this run does not tell of stays as it was.
                let mut record: Record = journal.record().clone();
                for lane in &lanes {
                    for (scope, progress) in lane.progress() {
                        let sinks = record.entry(scope.to_string()).or_default();
                        sinks.insert(lane.name.clone(), progress);
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
