//! The queue of one sink: what waits for it, and what it has confirmed.
//!
//! ```text
//!                          ┌─ waiting: at most `limits.queue` objects ─┐
//!   notify ──► translate ──┤                                           ├──► worker ──► sink
//!                 ▲        └─ full: counted, `behind` ──┐              │                 │
//!                 │                                     ▼              │                 ▼
//!                 └──────────── catch up: compare confirmed with current versions ◄── confirmed (uid, version)
//! ```
//!
//! A full queue, an unavailable sink and a restart are handled alike: the current objects are compared with what the sink has
//! confirmed, and the difference is sent. So a dropped notice leaves nothing to store.
//!
//! Owned by the hub, changed by the feeds and by the sink's worker under one lock, which is never held across I/O or an await.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use windlass::{
    cache::ObjectKey,
    kube::core::ApiResource,
    runtime::Clock,
    workqueue::{DelayedOnClose, WorkQueue},
};

use super::{
    CurrentState, Limits, pace,
    pending::{PendingNotices, Room},
    sink_view::SinkView,
    stats::SinkCounters,
};
use crate::{
    journal::{ObjectVersion, Progress},
    notice::{EventType, Notice, NotifyOutcome},
};

/// An object with waiting notices: its feed's index, and its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    feed: usize,
    key: ObjectKey,
}

impl Target {
    fn of(feed: usize, notice: &Notice) -> Self {
        Self {
            feed,
            key: notice.key.clone(),
        }
    }
}

pub(super) struct SinkQueue {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) counts: SinkCounters,
    /// Holds a target exactly while `waiting` does: ready, backing off after a failure, or processed by the worker.
    pub(super) workqueue: WorkQueue<Target>,
    /// Asks the worker to check whether it can catch up.
    pub(super) catch_up_requested: Notify,
    state: Mutex<State>,
    clock: Clock,
    /// Notified when something was confirmed.
    confirmed: Arc<Notify>,
    /// Whether a new object must be in the journal before it is sent.
    has_journal: bool,
    /// The number of coalesced changes when it was last logged, and when.
    overflow_logged: Mutex<(u64, Option<Instant>)>,
}

/// How often an overflow is logged.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Default)]
struct State {
    /// At most `limits.queue` entries.
    waiting: HashMap<Target, Waiting>,
    /// How many notices the entries have, without those in flight.
    notices: usize,
    feeds: Vec<FeedState>,
    /// Whether new notices are dropped.
    closed: bool,
    /// The error of the last delivery, if it failed.
    last_error: Option<String>,
}

struct Waiting {
    notices: PendingNotices,
    /// Being delivered.
    in_flight: Option<Arc<Notice>>,
    since: Instant,
}

/// One sink's state of one feed.
struct FeedState {
    scope: Arc<str>,
    kind: Arc<ApiResource>,
    present: Arc<dyn CurrentState>,
    view: SinkView,
    /// Whether all initial objects were reported.
    initial_list_done: bool,
    /// Whether a comparison is due, because a notice was dropped or a deletion may have been missed.
    behind: bool,
}

/// What to do next for a target.
pub(super) enum Next {
    /// Nothing: no notice waits.
    Nothing,
    /// Deliver this notice.
    Deliver(Arc<Notice>),
    /// Write the journal, then ask again.
    WriteJournal,
}

/// A feed whose current objects are to be compared with what the sink has confirmed.
pub(super) struct CatchUp {
    feed: usize,
    kind: Arc<ApiResource>,
    present: Arc<dyn CurrentState>,
}

impl SinkQueue {
    pub(super) fn new(
        name: String,
        limits: Limits,
        clock: Clock,
        confirmed: Arc<Notify>,
        has_journal: bool,
    ) -> Self {
        let mut queue = WorkQueue::builder()
            .rate_limiter(pace::backoff())
            .delayed_on_close(DelayedOnClose::RunNow);
        if let Some(retries) = limits.retries {
            queue = queue.max_retries(retries);
        }
        Self {
            name,
            limits,
            counts: SinkCounters::default(),
            workqueue: queue.build(),
            catch_up_requested: Notify::new(),
            state: Mutex::default(),
            clock,
            confirmed,
            has_journal,
            overflow_logged: Mutex::default(),
        }
    }

    /// Adds a feed; `progress` is what the sink has confirmed of it before.
    pub(super) fn add_feed(
        &self,
        scope: Arc<str>,
        kind: Arc<ApiResource>,
        present: Arc<dyn CurrentState>,
        progress: Progress,
    ) {
        self.state.lock().feeds.push(FeedState {
            scope,
            kind,
            present,
            view: SinkView::new(progress),
            initial_list_done: false,
            behind: false,
        });
    }

    /// Queues a notice, unless the sink has confirmed it before.
    pub(super) fn notify(&self, feed: usize, notice: &Arc<Notice>) -> NotifyOutcome {
        let outcome = self.accept(&mut self.state.lock(), feed, notice);
        if self.limits.every_change {
            self.log_overflow();
        }
        outcome
    }

    /// Says how many changes were coalesced although every change was asked for, at most once a minute.
    fn log_overflow(&self) {
        let coalesced = self.stats().coalesced;
        let mut logged = self.overflow_logged.lock();
        let (total, at) = *logged;
        if coalesced > total && at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            *logged = (coalesced, Some(Instant::now()));
            drop(logged);
            tracing::warn!(
                sink = %self.name, coalesced,
                "changes were not reported on their own, because the sink's queue was full: `queue=` sets the limit"
            );
        }
    }

    /// Queues a notice found by comparing, unless a newer one of its object already waits.
    fn notify_unless_waiting(&self, feed: usize, notice: &Arc<Notice>) -> NotifyOutcome {
        let mut state = self.state.lock();
        if state.waiting.contains_key(&Target::of(feed, notice)) {
            return NotifyOutcome::Accepted;
        }
        self.accept(&mut state, feed, notice)
    }

    fn accept(&self, state: &mut State, feed: usize, notice: &Arc<Notice>) -> NotifyOutcome {
        if state.closed {
            self.counts.stopped();
            return NotifyOutcome::Dropped;
        }
        let target = Target::of(feed, notice);
        if state.waiting.contains_key(&target) {
            return self.push(state, &target, Arc::clone(notice));
        }
        for notice in state.feeds[feed].view.translate(notice).into_iter().flatten() {
            // Observed events have passed the filter already.
            let is_found = notice.inferred || notice.event == EventType::Synced;
            if !is_found || state.feeds[feed].present.accepts(&notice) {
                if self.push(state, &target, notice) == NotifyOutcome::Dropped {
                    return NotifyOutcome::Dropped;
                }
            } else if !state.waiting.contains_key(&target) {
                let now = (notice.event != EventType::Deleted).then(|| ObjectVersion::from_notice(&notice));
                if state.feeds[feed]
                    .view
                    .confirm_unreported(&notice.key, now.as_ref())
                {
                    self.confirmed.notify_one();
                }
            }
        }
        NotifyOutcome::Accepted
    }

    /// Counts a change that is not reported as confirmed, if the state before it is.
    pub(super) fn skip(
        &self,
        feed: usize,
        key: &ObjectKey,
        old: Option<&ObjectVersion>,
        new: Option<&ObjectVersion>,
    ) {
        let mut state = self.state.lock();
        let target = Target {
            feed,
            key: key.clone(),
        };
        if !state.waiting.contains_key(&target) && state.feeds[feed].view.skip(key, old, new) {
            self.confirmed.notify_one();
        }
    }

    fn push(&self, state: &mut State, target: &Target, notice: Arc<Notice>) -> NotifyOutcome {
        let is_full = state.waiting.len() >= self.limits.queue.get();
        let room = self.room(state);
        match state.waiting.entry(target.clone()) {
            Entry::Occupied(mut entry) => {
                let notices = &mut entry.get_mut().notices;
                let before = notices.len();
                if notices.push(notice, room) {
                    self.counts.coalesced();
                }
                state.notices += notices.len() - before;
            }
            Entry::Vacant(_) if is_full => {
                state.feeds[target.feed].behind = true;
                self.counts.full();
                return NotifyOutcome::Dropped;
            }
            Entry::Vacant(entry) => {
                let mut notices = PendingNotices::default();
                notices.push(notice, room);
                state.notices += 1;
                entry.insert(Waiting {
                    notices,
                    in_flight: None,
                    since: Instant::now(),
                });
                // Only for the first notice: another add would cut the backoff after a failure short.
                self.workqueue.add(target.clone());
            }
        }
        NotifyOutcome::Accepted
    }

    /// Whether a notice may wait beside others of its object.
    fn room(&self, state: &State) -> Room {
        if self.limits.every_change && state.notices < self.limits.queue.get() {
            Room::Queue
        } else {
            Room::Coalesce
        }
    }

    /// Marks the end of the feed's initial objects, which makes a comparison due.
    pub(super) fn initial_list_done(&self, feed: usize) {
        let mut state = self.state.lock();
        let feed = &mut state.feeds[feed];
        (feed.initial_list_done, feed.behind) = (true, true);
        drop(state);
        self.catch_up_requested.notify_one();
    }

    /// Takes the next notice of a target for delivery. If its object has to be offered first, offers it instead.
    pub(super) fn start_delivery(&self, target: &Target) -> Next {
        let mut state = self.state.lock();
        let State {
            waiting,
            feeds,
            notices,
            ..
        } = &mut *state;
        let Some(next) = waiting.get(target).and_then(|waiting| waiting.notices.next()) else {
            return Next::Nothing;
        };
        if self.has_journal && feeds[target.feed].view.needs_offer(next).is_some() {
            // Together with all others that need it, so that they share one write.
            for (target, waiting) in waiting {
                let known = &mut feeds[target.feed].view;
                if let Some(uid) = waiting.notices.next().and_then(|next| known.needs_offer(next)) {
                    known.offer(target.key.clone(), uid);
                }
            }
            return Next::WriteJournal;
        }
        let waiting = waiting.get_mut(target).expect("it has a next notice");
        let notice = waiting.notices.pop().expect("it has a next notice");
        waiting.in_flight = Some(Arc::clone(&notice));
        *notices -= 1;
        Next::Deliver(notice)
    }

    /// Records a delivery, which the next [`committed`](Self::committed) confirms. Returns whether more notices of the
    /// target wait.
    pub(super) fn delivered(&self, target: &Target, notice: &Notice) -> bool {
        self.counts.delivered();
        let mut state = self.state.lock();
        state.last_error = None;
        state.feeds[target.feed].view.delivered(notice);
        state.finish_delivery(target)
    }

    /// Records that a notice will not be retried. A state stays unconfirmed: it is tried again after a restart. Returns
    /// whether more notices of the target wait.
    pub(super) fn give_up(&self, target: &Target, notice: &Notice) -> bool {
        let mut state = self.state.lock();
        state.feeds[target.feed].view.give_up(notice);
        state.finish_delivery(target)
    }

    /// Records a failed delivery. The notice waits again, coalesced with newer ones.
    pub(super) fn failed(&self, target: &Target, reason: &str) {
        let mut state = self.state.lock();
        state.last_error = Some(reason.to_owned());
        let room = self.room(&state);
        let State { waiting, notices, .. } = &mut *state;
        if let Some(waiting) = waiting.get_mut(target)
            && let Some(notice) = waiting.in_flight.take()
        {
            let before = waiting.notices.len();
            if waiting.notices.put_back(notice, room) {
                self.counts.coalesced();
            }
            *notices += waiting.notices.len() - before;
        }
    }

    /// Queues a target whose next notice waits. Returns false if the queue is closed.
    pub(super) fn requeue(&self, target: &Target) -> bool {
        self.workqueue.add(target.clone());
        // Asked afterwards: a closed queue ignores what is added.
        !self.workqueue.is_closed()
    }

    /// Ends the backoff of all targets, because the sink works again.
    pub(super) fn end_all_backoffs(&self) {
        let targets: Vec<_> = self.state.lock().waiting.keys().cloned().collect();
        for target in targets {
            self.workqueue.add(target);
        }
    }

    /// The number of deliveries that are not confirmed.
    pub(super) fn uncommitted(&self) -> usize {
        self.state.lock().unsettled()
    }

    /// Confirms all deliveries, after the sink committed them.
    pub(super) fn committed(&self) {
        let mut state = self.state.lock();
        for feed in &mut state.feeds {
            feed.view.committed();
        }
        state.mark_complete();
        drop(state);
        self.confirmed.notify_one();
    }

    /// Discards the unconfirmed deliveries, after the sink failed to commit them. A comparison makes them due again.
    pub(super) fn discard_uncommitted(&self, reason: &str) {
        let mut state = self.state.lock();
        state.last_error = Some(reason.to_owned());
        for feed in &mut state.feeds {
            feed.behind |= feed.view.uncommitted() > 0;
            feed.view.discard_uncommitted();
        }
        drop(state);
        self.catch_up_requested.notify_one();
    }

    /// Takes the feeds whose comparison is due, if there is room. Clears their `behind`; a dropped notice sets it again.
    pub(super) fn take_due_catch_ups(&self) -> Vec<CatchUp> {
        let mut state = self.state.lock();
        if state.closed || state.waiting.len() > self.limits.queue.get() / 2 {
            return Vec::new();
        }
        let feeds = state.feeds.iter_mut().enumerate();
        feeds
            .filter(|(_, feed)| feed.initial_list_done && feed.behind)
            .map(|(number, feed)| {
                feed.behind = false;
                CatchUp {
                    feed: number,
                    kind: Arc::clone(&feed.kind),
                    present: Arc::clone(&feed.present),
                }
            })
            .collect()
    }

    /// Queues the difference between the current and the confirmed objects, as far as there is room. Yields regularly.
    pub(super) async fn catch_up(&self, CatchUp { feed, kind, present }: CatchUp) {
        let versions = present.versions();
        let (changed, gone) = self.state.lock().feeds[feed].view.differences(&versions);
        let time = self.clock.now();
        let gone = gone.into_iter().map(|known| {
            Some(Arc::new(Notice {
                event: EventType::Deleted,
                inferred: true,
                kind: Arc::clone(&kind),
                uid: Some(known.uid.to_string()),
                resource_version: known.resource_version_text(),
                key: known.key,
                time,
                object: None,
                changes: Vec::new(),
                coalesced: 0,
            }))
        });
        let changed = changed.into_iter().map(|key| present.read(&key));
        for (place, notice) in gone.chain(changed).enumerate() {
            if let Some(notice) = notice
                && self.notify_unless_waiting(feed, &notice) == NotifyOutcome::Dropped
            {
                return;
            }
            if place % 64 == 63 {
                tokio::task::yield_now().await;
            }
        }
        self.state.lock().mark_complete();
        self.confirmed.notify_one();
    }

    /// Drops new notices from now on; what waits can still be delivered.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.workqueue.close();
    }

    /// The number of waiting objects, and how long the oldest has waited.
    pub(super) fn backlog(&self) -> (usize, Duration) {
        let state = self.state.lock();
        let oldest = state.waiting.values().map(|waiting| waiting.since).min();
        (
            state.waiting.len(),
            oldest.map_or(Duration::ZERO, |since| since.elapsed()),
        )
    }

    /// The error of the last delivery, if it failed.
    pub(super) fn last_error(&self) -> Option<String> {
        self.state.lock().last_error.clone()
    }

    /// The sink's progress, by scope.
    pub(super) fn progress(&self) -> Vec<(Arc<str>, Progress)> {
        let state = self.state.lock();
        let feeds = state.feeds.iter();
        feeds
            .map(|feed| (Arc::clone(&feed.scope), feed.view.progress().clone()))
            .collect()
    }
}

impl State {
    fn finish_delivery(&mut self, target: &Target) -> bool {
        let Entry::Occupied(mut waiting) = self.waiting.entry(target.clone()) else {
            return false;
        };
        if waiting.get().notices.is_empty() {
            waiting.remove();
            return false;
        }
        let waiting = waiting.get_mut();
        waiting.in_flight = None;
        waiting.since = Instant::now();
        true
    }

    fn unsettled(&self) -> usize {
        self.feeds.iter().map(|feed| feed.view.uncommitted()).sum()
    }

    /// Marks the feeds as complete, if the sink has confirmed everything.
    fn mark_complete(&mut self) {
        if self.waiting.is_empty() && self.unsettled() == 0 {
            for feed in self
                .feeds
                .iter_mut()
                .filter(|feed| feed.initial_list_done && !feed.behind)
            {
                feed.view.mark_complete();
            }
        }
    }
}
