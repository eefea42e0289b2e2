//! The simplest implementation of the queue's behaviour: a map and linear searches. Time is in milliseconds.

use std::collections::BTreeMap;

pub(crate) struct Model {
    max_skips: Option<u32>,
    max_retries: u32,
    now: u64,
    closed: bool,
    keys: BTreeMap<u8, Key>,
    /// Counts events, to order them.
    events: u64,
    /// How often in a row the oldest key was skipped.
    skips: u32,
}

#[derive(Default)]
struct Key {
    pending: Pending,
    running: bool,
    failures: u32,
}

#[derive(Default, Clone, Copy, PartialEq, Debug)]
enum Pending {
    #[default]
    No,
    /// `since` is the event that queued it.
    Now {
        priority: i32,
        since: u64,
    },
    Later {
        priority: i32,
        at: u64,
        since: u64,
    },
}

pub(crate) enum Decision {
    Retry(u64),
    Dropped(u32),
    Closed,
}

impl Model {
    pub(crate) fn new(max_skips: Option<u32>, max_retries: u32) -> Self {
        Self {
            max_skips,
            max_retries,
            now: 0,
            closed: false,
            keys: BTreeMap::new(),
            events: 0,
            skips: 0,
        }
    }

    pub(crate) fn add(&mut self, key: u8, priority: i32, delay: u64, replace: bool) {
        if !self.closed {
            self.schedule(key, priority, delay, replace);
        }
    }

    fn schedule(&mut self, key: u8, priority: i32, delay: u64, replace: bool) {
        self.events += 1;
        let (since, at) = (self.events, self.now + delay);
        let key = self.keys.entry(key).or_default();
        key.pending = match (key.pending, delay) {
            (Pending::No, 0) => Pending::Now { priority, since },
            (Pending::No, _) => Pending::Later { priority, at, since },
            (Pending::Now { priority: old, .. }, _) if old < priority => Pending::Now { priority, since },
            (Pending::Now { .. }, _) => key.pending,
            (Pending::Later { priority: old, .. }, 0) => Pending::Now {
                priority: old.max(priority),
                since,
            },
            (
                Pending::Later {
                    priority: old,
                    at: due,
                    ..
                },
                _,
            ) if at < due || replace => Pending::Later {
                priority: old.max(priority),
                at,
                since,
            },
            (
                Pending::Later {
                    priority: old,
                    at,
                    since,
                },
                _,
            ) => Pending::Later {
                priority: old.max(priority),
                at,
                since,
            },
        };
    }

    pub(crate) fn add_rate_limited(&mut self, key: u8) {
        if !self.closed {
            let delay = self.count_failure(key);
            self.schedule(key, 0, delay, false);
        }
    }

    fn count_failure(&mut self, key: u8) -> u64 {
        let key = self.keys.entry(key).or_default();
        key.failures += 1;
        (5 << (key.failures - 1).min(30)).min(1_000_000)
    }

    pub(crate) fn cancel_delay(&mut self, key: u8) -> bool {
        let Some(found) = self.keys.get_mut(&key) else {
            return false;
        };
        let delayed = matches!(found.pending, Pending::Later { .. });
        if delayed {
            found.pending = Pending::No;
        }
        self.remove_idle_keys();
        delayed
    }

    pub(crate) fn forget(&mut self, key: u8) {
        if let Some(key) = self.keys.get_mut(&key) {
            key.failures = 0;
        }
    }

    /// Checks that the key handed out is the right one; returns its expected priority.
    pub(crate) fn start_run(&mut self, key: u8) -> i32 {
        let oldest = self
            .queued()
            .min_by_key(|(_, _, since)| *since)
            .expect("there is a key")
            .0;
        let first = self
            .queued()
            .min_by_key(|(_, priority, since)| (-priority, *since))
            .expect("there is a key")
            .0;
        let (_, priority, _) = self
            .queued()
            .find(|(queued, ..)| *queued == key)
            .expect("it is queued");
        self.skips = if key == oldest { 0 } else { self.skips + 1 };
        match self.max_skips {
            None => assert_eq!(key, first, "without ageing, priorities are strict"),
            Some(0) => assert_eq!(key, oldest, "without skips, the oldest goes first"),
            Some(limit) => {
                assert!(
                    key == first || key == oldest,
                    "{key} is neither the most urgent nor the oldest"
                );
                assert!(self.skips <= limit, "the oldest, {oldest}, was skipped too often");
            }
        }
        let found = self.keys.get_mut(&key).expect("it is queued");
        found.pending = Pending::No;
        found.running = true;
        priority
    }

    /// The queued keys: key, priority, and the event that queued them.
    fn queued(&self) -> impl Iterator<Item = (u8, i32, u64)> {
        self.keys
            .iter()
            .filter(|(_, key)| !key.running)
            .filter_map(|(name, key)| match key.pending {
                Pending::Now { priority, since } => Some((*name, priority, since)),
                _ => None,
            })
    }

    /// Ends the run of a key; a pending key is queued now.
    fn end_run(&mut self, key: u8) -> &mut Key {
        self.events += 1;
        let found = self.keys.get_mut(&key).expect("it is running");
        found.running = false;
        if let Pending::Now { since, .. } = &mut found.pending {
            *since = self.events;
        }
        found
    }

    pub(crate) fn done(&mut self, key: u8) {
        self.end_run(key).failures = 0;
        self.remove_idle_keys();
    }

    pub(crate) fn requeue(&mut self, key: u8, priority: i32, delay: u64) {
        self.end_run(key).failures = 0;
        if !self.closed {
            self.schedule(key, priority, delay, false);
        }
        self.remove_idle_keys();
    }

    /// Returns the delay of the key.
    pub(crate) fn back_off(&mut self, key: u8, priority: i32) -> Option<u64> {
        let closed = self.closed;
        let found = self.end_run(key);
        if found.failures > 0 && !closed && !matches!(found.pending, Pending::Now { .. }) {
            found.failures -= 1;
            let delay = self.count_failure(key);
            self.schedule(key, priority, delay, false);
        }
        let delay = match self.keys[&key].pending {
            Pending::Later { at, .. } => Some(at - self.now),
            _ => None,
        };
        self.remove_idle_keys();
        delay
    }

    pub(crate) fn fail(&mut self, key: u8, priority: i32) -> Decision {
        let (max_retries, closed) = (self.max_retries, self.closed);
        let found = self.end_run(key);
        let outcome = if found.failures >= max_retries {
            let failures = found.failures + 1;
            found.failures = 0;
            Decision::Dropped(failures)
        } else if let Pending::Now { .. } = found.pending {
            found.failures += 1;
            self.schedule(key, priority, 0, false);
            Decision::Retry(0)
        } else if closed {
            Decision::Closed
        } else {
            let delay = self.count_failure(key);
            self.schedule(key, priority, delay, false);
            match self.keys[&key].pending {
                Pending::Later { at, .. } => Decision::Retry(at - self.now),
                _ => Decision::Retry(0),
            }
        };
        self.remove_idle_keys();
        outcome
    }

    pub(crate) fn advance(&mut self, millis: u64) {
        self.now += millis;
        let mut due: Vec<_> = self
            .keys
            .iter()
            .filter_map(|(name, key)| match key.pending {
                Pending::Later { priority, at, since } if at <= self.now => {
                    Some((at, since, *name, priority))
                }
                _ => None,
            })
            .collect();
        due.sort_unstable();
        for (_, _, key, priority) in due {
            self.schedule(key, priority, 0, false);
        }
    }

    pub(crate) fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            for key in self.keys.values_mut() {
                if let Pending::Later { .. } = key.pending {
                    key.pending = Pending::No;
                }
            }
            self.remove_idle_keys();
        }
    }

    fn remove_idle_keys(&mut self) {
        self.keys
            .retain(|_, key| key.running || key.pending != Pending::No);
    }

    pub(crate) fn len(&self) -> usize {
        self.queued().count()
    }

    pub(crate) fn delayed(&self) -> usize {
        self.keys
            .values()
            .filter(|key| matches!(key.pending, Pending::Later { .. }))
            .count()
    }

    pub(crate) fn failures(&self, key: u8) -> u32 {
        self.keys.get(&key).map_or(0, |key| key.failures)
    }

    pub(crate) fn is_queued_again(&self, key: u8) -> bool {
        matches!(self.keys[&key].pending, Pending::Now { .. })
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.closed && self.keys.values().all(|key| key.pending == Pending::No)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.keys.is_empty()
    }
}
