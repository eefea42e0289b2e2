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
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use windlass::{
    cache::{ObjectKey, Uid},
    kube::core::ApiResource,
    runtime::Clock,
    workqueue::{DelayedOnClose, WorkQueue},
};

use super::{Limits, Present, figures::Counts, pace, steps::Steps};
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
}

#[derive(Default)]
struct State {
    /// Never more than `limits.queue`.
    waiting: HashMap<Target, Waiting>,
    feeds: Vec<Feed>,
    /// Delivered, but the sink has not said yet that it will stay so.
    unsettled: Vec<(Target, Confirmation)>,
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
    progress: Progress,
    /// All initial objects were told.
    listed: bool,
    /// Something was not taken, or went unseen: compare.
    behind: bool,
}

enum Confirmation {
    There(Version),
    Gone(Option<Uid>),
}

/// What to compare when a lane catches up.
pub(super) struct CatchUp {
    feed: usize,
    kind: Arc<ApiResource>,
    present: Arc<dyn Present>,
}

impl Lane {
    pub(super) fn new(name: String, limits: Limits, clock: Clock) -> Self {
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
            progress,
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
        let is_waiting = state.waiting.contains_key(&target);
        let judged = state.feeds[feed].judge(notice, is_waiting);
        for notice in judged.into_iter().flatten() {
            if self.push(state, &target, notice) == Told::Dropped {
                return Told::Dropped;
            }
        }
        Told::Taken
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
        let version = Version::of(notice);
        let confirmation = match notice.what {
            What::Deleted => Confirmation::Gone(notice.uid.as_ref().map(|_| version.uid)),
            _ => Confirmation::There(version),
        };
        let mut state = self.state.lock();
        state.trouble = None;
        state.unsettled.push((target.clone(), confirmation));
        self.landed(&mut state, target);
    }

    /// It is not to be tried again. It is not confirmed either: a restart tries once more.
    pub(super) fn given_up(&self, target: &Target) {
        self.landed(&mut self.state.lock(), target);
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
        self.state.lock().unsettled.len()
    }

    /// What was delivered stays so: it is confirmed.
    pub(super) fn settled(&self) {
        let mut state = self.state.lock();
        let State { feeds, unsettled, .. } = &mut *state;
        for (target, confirmation) in unsettled.drain(..) {
            let objects = &mut feeds[target.feed].progress.objects;
            match confirmation {
                Confirmation::There(version) => {
                    objects.insert(target.key, version);
                }
                // The end of another object of this name says nothing about the one that was confirmed.
                Confirmation::Gone(uid) => {
                    let is_it = objects
                        .get(&target.key)
                        .is_some_and(|known| uid.is_none_or(|uid| uid == known.uid));
                    if is_it {
                        objects.remove(&target.key);
                    }
                }
            }
        }
        state.complete();
    }

    /// What was delivered may not stay: it counts as not confirmed.
    pub(super) fn unsettle(&self, why: &str) {
        let mut state = self.state.lock();
        state.trouble = Some(why.to_owned());
        state.unsettled.clear();
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
        let (changed, gone) = self.state.lock().differences(feed, &versions);
        let time = self.clock.now();
        let gone = gone.into_iter().map(|(key, version)| {
            Some(Arc::new(Notice {
                what: What::Deleted,
                inferred: true,
                kind: Arc::clone(&kind),
                key,
                uid: Some(version.uid.to_string()),
                resource_version: Some(version.resource_version.to_string()),
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
            .map(|feed| (Arc::clone(&feed.scope), feed.progress.clone()))
            .collect()
    }
}

impl State {
    /// Objects whose state the sink has not confirmed, and confirmed ones that are not there. What waits is on its way.
    fn differences(&self, feed: usize, versions: &[Version]) -> (Vec<ObjectKey>, Vec<(ObjectKey, Version)>) {
        let confirmed = &self.feeds[feed].progress.objects;
        let waits = |key: &ObjectKey| {
            let key = key.clone();
            self.waiting.contains_key(&Target { feed, key })
        };
        let changed = versions
            .iter()
            .filter(|now| {
                !confirmed.get(&now.key).is_some_and(|known| known.is_same(now)) && !waits(&now.key)
            })
            .map(|now| now.key.clone())
            .collect();
        let there: HashSet<_> = versions.iter().map(|now| &now.key).collect();
        let gone = confirmed
            .iter()
            .filter(|(key, _)| !there.contains(key) && !waits(key))
            .map(|(key, version)| (key.clone(), version.clone()))
            .collect();
        (changed, gone)
    }

    /// Notes which feeds the sink has heard all of.
    fn complete(&mut self) {
        if self.waiting.is_empty() && self.unsettled.is_empty() {
            for feed in self.feeds.iter_mut().filter(|feed| feed.listed && !feed.behind) {
                feed.progress.complete = true;
            }
        }
    }
}

impl Feed {
    /// What a notice is to a sink that has confirmed what this one has: nothing, one step or two.
    fn judge(&self, notice: &Arc<Notice>, is_waiting: bool) -> [Option<Arc<Notice>>; 2] {
        let as_it_is = [Some(Arc::clone(notice)), None];
        if is_waiting || notice.what == What::Deleted {
            return as_it_is;
        }
        let now = Version::of(notice);
        let inferred = |what| {
            Some(Arc::new(Notice {
                what,
                inferred: true,
                ..Notice::clone(notice)
            }))
        };
        match self.progress.objects.get(&notice.key) {
            Some(known) if known.is_same(&now) => [None, None],
            _ if notice.what != What::Synced => as_it_is,
            Some(known) if known.uid == now.uid => [inferred(What::Updated), None],
            Some(known) => [
                Some(Arc::new(Notice {
                    what: What::Deleted,
                    inferred: true,
                    uid: Some(known.uid.to_string()),
                    resource_version: Some(known.resource_version.to_string()),
                    object: None,
                    ..Notice::clone(notice)
                })),
                inferred(What::Added),
            ],
            None if self.progress.complete => [inferred(What::Added), None],
            None => as_it_is,
        }
    }
}
