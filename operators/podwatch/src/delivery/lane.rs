//! One sink's state: what waits for it, and what it has confirmed.
//!
//! ```text
//!                    ┌─ waiting: at most `queue` objects ─┐
//!   tell ──► judge ──┤                                    ├──► worker ──► sink
//!              ▲     └─ full: counted, `behind` ──┐       │                 │
//!              │                                  ▼       │                 ▼
//!              └─────────────── catch up: compare `confirmed` with what there is ◄── confirmed (uid, version)
//! ```
//!
//! Falling behind, being down and having been restarted are the same: what there is now is compared with what the sink has
//! confirmed, and the difference is told. So nothing needs to be kept of what there was no room for.
//!
//! Owned by the hub, changed by those who tell and by the lane's worker, under one lock that is never held while anything
//! is read, written or awaited.

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

use super::{Limits, Present, figures::Counts, known::Known, pace, steps::Steps};
use crate::{
    journal::{Progress, Version},
    notice::{Notice, Told, What},
};

/// An object that something waits for: its feed's number, and its key.
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

/// One sink's room.
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) counts: Counts,
    /// Holds a target exactly while `waiting` does: ready, pausing after a failure, or in the worker's hand.
    pub(super) queue: WorkQueue<Target>,
    /// The worker should look whether it can catch up.
    pub(super) nudge: Notify,
    state: Mutex<State>,
    clock: Clock,
    /// Told when something was confirmed.
    confirmed: Arc<Notify>,
    /// There is a journal: what a sink may hear of is in it before.
    offers: bool,
}

#[derive(Default)]
struct State {
    /// Never more than `limits.queue`.
    waiting: HashMap<Target, Waiting>,
    feeds: Vec<Feed>,
    /// No more is taken.
    closed: bool,
    /// Why the sink cannot be delivered to at present.
    trouble: Option<String>,
}

struct Waiting {
    steps: Steps,
    /// Is with the sink at this moment.
    flying: Option<Arc<Notice>>,
    since: Instant,
}

/// What a lane knows of one feed.
struct Feed {
    scope: Arc<str>,
    kind: Arc<ApiResource>,
    present: Arc<dyn Present>,
    known: Known,
    /// All initial objects were told.
    listed: bool,
    /// Something was not taken, or went unseen: compare.
    behind: bool,
}

/// What is to be done next for a target.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing waits.
    Nothing,
    /// A notice can be delivered.
    Notice,
    /// The journal must be written first.
    Offered,
}

/// What to compare when a lane catches up.
pub(super) struct CatchUp {
    feed: usize,
    kind: Arc<ApiResource>,
    present: Arc<dyn Present>,
}

impl Lane {
    pub(super) fn new(
        name: String,
        limits: Limits,
        clock: Clock,
        confirmed: Arc<Notify>,
        offers: bool,
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
            counts: Counts::default(),
            queue: queue.build(),
            nudge: Notify::new(),
            state: Mutex::default(),
            clock,
            confirmed,
            offers,
        }
    }

    /// Another kind and selection is told of from now on; `progress` is what the sink has confirmed of it before.
    pub(super) fn feed(
        &self,
        scope: Arc<str>,
        kind: Arc<ApiResource>,
        present: Arc<dyn Present>,
        progress: Progress,
    ) {
        self.state.lock().feeds.push(Feed {
            scope,
            kind,
            present,
            known: Known::new(progress),
            listed: false,
            behind: false,
        });
    }

    /// Takes a notice, unless the sink has confirmed it before.
    pub(super) fn tell(&self, feed: usize, notice: &Arc<Notice>) -> Told {
        self.take(&mut self.state.lock(), feed, notice)
    }

    /// The same for what was found by comparing: what was told meanwhile is newer.
    fn tell_unless_waiting(&self, feed: usize, notice: &Arc<Notice>) -> Told {
        let mut state = self.state.lock();
        if state.waiting.contains_key(&Target::of(feed, notice)) {
            return Told::Taken;
        }
        self.take(&mut state, feed, notice)
    }

    fn take(&self, state: &mut State, feed: usize, notice: &Arc<Notice>) -> Told {
        if state.closed {
            self.counts.stopped();
            return Told::Dropped;
        }
        let target = Target::of(feed, notice);
        if state.waiting.contains_key(&target) {
            return self.push(state, &target, Arc::clone(notice));
        }
        for notice in state.feeds[feed].known.judge(notice).into_iter().flatten() {
            // What was seen is known to be wanted.
            let is_found = notice.inferred || notice.what == What::Synced;
            if !is_found || state.feeds[feed].present.wants(&notice) {
                if self.push(state, &target, notice) == Told::Dropped {
                    return Told::Dropped;
                }
            } else if !state.waiting.contains_key(&target) {
                let now = (notice.what != What::Deleted).then(|| Version::of(&notice));
                if state.feeds[feed].known.unwanted(&notice.key, now.as_ref()) {
                    self.confirmed.notify_one();
                }
            }
        }
        Told::Taken
    }

    /// A change that is not to be told counts as confirmed, if what was before it is.
    pub(super) fn pass(&self, feed: usize, key: &ObjectKey, old: Option<&Version>, new: Option<&Version>) {
        let mut state = self.state.lock();
        let target = Target {
            feed,
            key: key.clone(),
        };
        if !state.waiting.contains_key(&target) && state.feeds[feed].known.pass(key, old, new) {
            self.confirmed.notify_one();
        }
    }

    fn push(&self, state: &mut State, target: &Target, notice: Arc<Notice>) -> Told {
        let is_full = state.waiting.len() >= self.limits.queue.get();
        match state.waiting.entry(target.clone()) {
            Entry::Occupied(mut entry) => {
                let entry = entry.get_mut();
                if entry.steps.push(notice) {
                    self.counts.coalesced();
                }
            }
            Entry::Vacant(_) if is_full => {
                state.feeds[target.feed].behind = true;
                self.counts.full();
                return Told::Dropped;
            }
            Entry::Vacant(entry) => {
                let mut steps = Steps::default();
                steps.push(notice);
                entry.insert(Waiting {
                    steps,
                    flying: None,
                    since: Instant::now(),
                });
                // Only the first: another add would end the pause after a failure.
                self.queue.add(target.clone());
            }
        }
        Told::Taken
    }

    /// All initial objects of the feed were told: what else was confirmed is gone, or has to be looked at.
    pub(super) fn listed(&self, feed: usize) {
        let mut state = self.state.lock();
        let feed = &mut state.feeds[feed];
        (feed.listed, feed.behind) = (true, true);
        drop(state);
        self.nudge.notify_one();
    }

    /// Whether something waits for a target, and whether its object has to be offered before.
    pub(super) fn next(&self, target: &Target) -> Next {
        let mut state = self.state.lock();
        let Some(next) = state.waiting.get(target).and_then(|waiting| waiting.steps.next()) else {
            return Next::Nothing;
        };
        if !self.offers || state.feeds[target.feed].known.needs_offer(next).is_none() {
            return Next::Notice;
        }
        // With it all others that will need it: they share one write.
        let State { waiting, feeds, .. } = &mut *state;
        for (target, waiting) in waiting {
            let known = &mut feeds[target.feed].known;
            if let Some(uid) = waiting.steps.next().and_then(|next| known.needs_offer(next)) {
                known.offer(target.key.clone(), uid);
            }
        }
        Next::Offered
    }

    /// The next notice of a target, now with the sink.
    pub(super) fn begin(&self, target: &Target) -> Option<Arc<Notice>> {
        let mut state = self.state.lock();
        let waiting = state.waiting.get_mut(target)?;
        let notice = waiting.steps.pop();
        waiting.flying.clone_from(&notice);
        notice
    }

    /// The sink has it. Counts as confirmed with the next [`settled`](Self::settled).
    pub(super) fn delivered(&self, target: &Target, notice: &Notice) {
        self.counts.delivered();
        let mut state = self.state.lock();
        state.trouble = None;
        state.feeds[target.feed].known.delivered(notice);
        self.landed(&mut state, target);
    }

    /// It is not to be tried again. A state is not confirmed by that: a restart tries once more.
    pub(super) fn given_up(&self, target: &Target, notice: &Notice) {
        let mut state = self.state.lock();
        state.feeds[target.feed].known.given_up(notice);
        self.landed(&mut state, target);
    }

    fn landed(&self, state: &mut State, target: &Target) {
        let Entry::Occupied(mut waiting) = state.waiting.entry(target.clone()) else {
            return;
        };
        waiting.get_mut().flying = None;
        if waiting.get().steps.is_empty() {
            waiting.remove();
        } else {
            waiting.get_mut().since = Instant::now();
            self.queue.add(target.clone());
        }
    }

    /// The sink does not have it; it waits again, or what came meanwhile in its place.
    pub(super) fn failed(&self, target: &Target, why: &str) {
        let mut state = self.state.lock();
        state.trouble = Some(why.to_owned());
        if let Some(waiting) = state.waiting.get_mut(target)
            && let Some(notice) = waiting.flying.take()
            && waiting.steps.put_back(notice)
        {
            self.counts.coalesced();
        }
    }

    /// The sink is back: what pauses after a failure is tried at once.
    pub(super) fn wake_all(&self) {
        let targets: Vec<_> = self.state.lock().waiting.keys().cloned().collect();
        for target in targets {
            self.queue.add(target);
        }
    }

    /// How many were delivered and are not confirmed.
    pub(super) fn unsettled(&self) -> usize {
        self.state.lock().unsettled()
    }

    /// What was delivered stays so: it is confirmed.
    pub(super) fn settled(&self) {
        let mut state = self.state.lock();
        for feed in &mut state.feeds {
            feed.known.settled();
        }
        state.complete();
        drop(state);
        self.confirmed.notify_one();
    }

    /// What was delivered may not stay: it counts as not confirmed.
    pub(super) fn unsettle(&self, why: &str) {
        let mut state = self.state.lock();
        state.trouble = Some(why.to_owned());
        for feed in &mut state.feeds {
            feed.known.unsettle();
        }
    }

    /// What to compare now, if something is to be and there is room. Says that it is done; a notice that finds no room says
    /// otherwise again.
    pub(super) fn wants_to_catch_up(&self) -> Vec<CatchUp> {
        let mut state = self.state.lock();
        if state.closed || state.waiting.len() > self.limits.queue.get() / 2 {
            return Vec::new();
        }
        let feeds = state.feeds.iter_mut().enumerate();
        feeds
            .filter(|(_, feed)| feed.listed && feed.behind)
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

    /// Tells the difference between what there is and what was confirmed, as far as there is room. Gives way now and then.
    pub(super) async fn catch_up(&self, CatchUp { feed, kind, present }: CatchUp) {
        let versions = present.versions();
        let (changed, gone) = self.state.lock().feeds[feed].known.differences(&versions);
        let time = self.clock.now();
        let gone = gone.into_iter().map(|known| {
            Some(Arc::new(Notice {
                what: What::Deleted,
                inferred: true,
                kind: Arc::clone(&kind),
                uid: Some(known.uid.to_string()),
                resource_version: known.resource_version_text(),
                key: known.key,
                time,
                object: None,
                changes: Vec::new(),
            }))
        });
        let changed = changed.into_iter().map(|key| present.read(&key));
        for (place, notice) in gone.chain(changed).enumerate() {
            if let Some(notice) = notice
                && self.tell_unless_waiting(feed, &notice) == Told::Dropped
            {
                return;
            }
            if place % 64 == 63 {
                tokio::task::yield_now().await;
            }
        }
        self.state.lock().complete();
        self.confirmed.notify_one();
    }

    /// Nothing more is taken; what waits can still be delivered.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.queue.close();
    }

    /// How many objects wait, and for how long the first of them has.
    pub(super) fn backlog(&self) -> (usize, Duration) {
        let state = self.state.lock();
        let oldest = state.waiting.values().map(|waiting| waiting.since).min();
        (
            state.waiting.len(),
            oldest.map_or(Duration::ZERO, |since| since.elapsed()),
        )
    }

    /// Why the sink cannot be delivered to at present.
    pub(super) fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.clone()
    }

    /// What the sink has confirmed, by scope.
    pub(super) fn progress(&self) -> Vec<(Arc<str>, Progress)> {
        let state = self.state.lock();
        let feeds = state.feeds.iter();
        feeds
            .map(|feed| (Arc::clone(&feed.scope), feed.known.progress().clone()))
            .collect()
    }
}

impl State {
    fn unsettled(&self) -> usize {
        self.feeds.iter().map(|feed| feed.known.unsettled()).sum()
    }

    /// Notes which feeds the sink has heard all of.
    fn complete(&mut self) {
        if self.waiting.is_empty() && self.unsettled() == 0 {
            for feed in self.feeds.iter_mut().filter(|feed| feed.listed && !feed.behind) {
                feed.known.complete();
            }
        }
    }
}
