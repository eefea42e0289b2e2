//! What a queue is, said as plainly as possible: a map, searched from end to end. Time is in milliseconds.

use std::collections::BTreeMap;

pub(crate) struct Model {
    passes: Option<u32>,
    max_retries: u32,
    now: u64,
    closed: bool,
    keys: BTreeMap<u8, Key>,
    /// Counts everything that happens, to tell what came first.
    events: u64,
    /// How often in a row the oldest key was passed over.
    passed_over: u32,
}

#[derive(Default)]
struct Key {
    wanted: Wanted,
    running: bool,
    failures: u32,
}

#[derive(Default, Clone, Copy, PartialEq, Debug)]
enum Wanted {
    #[default]
    No,
    /// `since` is when it took its place in the queue.
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

pub(crate) enum Failed {
    Retry(u64),
    Dropped(u32),
    Closed,
}

impl Model {
    pub(crate) fn new(passes: Option<u32>, max_retries: u32) -> Self {
        Self {
            passes,
            max_retries,
            now: 0,
            closed: false,
            keys: BTreeMap::new(),
            events: 0,
            passed_over: 0,
        }
    }

    pub(crate) fn add(&mut self, key: u8, priority: i32, delay: u64, replace: bool) {
        if !self.closed {
            self.want(key, priority, delay, replace);
        }
    }

    fn want(&mut self, key: u8, priority: i32, delay: u64, replace: bool) {
        self.events += 1;
        let (since, at) = (self.events, self.now + delay);
        let key = self.keys.entry(key).or_default();
        key.wanted = match (key.wanted, delay) {
            (Wanted::No, 0) => Wanted::Now { priority, since },
            (Wanted::No, _) => Wanted::Later { priority, at, since },
            (Wanted::Now { priority: old, .. }, _) if old < priority => Wanted::Now { priority, since },
            (Wanted::Now { .. }, _) => key.wanted,
            (Wanted::Later { priority: old, .. }, 0) => Wanted::Now {
                priority: old.max(priority),
                since,
            },
            (
                Wanted::Later {
                    priority: old,
                    at: due,
                    ..
                },
                _,
            ) if at < due || replace => Wanted::Later {
                priority: old.max(priority),
                at,
                since,
            },
            (
                Wanted::Later {
                    priority: old,
                    at,
                    since,
                },
                _,
            ) => Wanted::Later {
                priority: old.max(priority),
                at,
                since,
            },
        };
    }

    pub(crate) fn add_rate_limited(&mut self, key: u8) {
        if !self.closed {
            let delay = self.count_failure(key);
            self.want(key, 0, delay, false);
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
        let delayed = matches!(found.wanted, Wanted::Later { .. });
        if delayed {
            found.wanted = Wanted::No;
        }
        self.tidy();
        delayed
    }

    pub(crate) fn forget(&mut self, key: u8) {
        if let Some(key) = self.keys.get_mut(&key) {
            key.failures = 0;
        }
    }

    /// The queue handed this key out: was it the right one? Returns the priority it should have.
    pub(crate) fn take(&mut self, key: u8) -> i32 {
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
            .expect("it can be taken");
        self.passed_over = if key == oldest { 0 } else { self.passed_over + 1 };
        match self.passes {
            None => assert_eq!(key, first, "without ageing, priorities are strict"),
            Some(0) => assert_eq!(key, oldest, "with no passes, age is all"),
            Some(limit) => {
                assert!(
                    key == first || key == oldest,
                    "{key} is neither the most urgent nor the oldest"
                );
                assert!(
                    self.passed_over <= limit,
                    "the oldest, {oldest}, was passed over too often"
                );
            }
        }
        let found = self.keys.get_mut(&key).expect("it is queued");
        found.wanted = Wanted::No;
        found.running = true;
        priority
    }

    /// What can be taken: key, priority, and when it took its place.
    fn queued(&self) -> impl Iterator<Item = (u8, i32, u64)> {
        self.keys
            .iter()
            .filter(|(_, key)| !key.running)
            .filter_map(|(name, key)| match key.wanted {
                Wanted::Now { priority, since } => Some((*name, priority, since)),
                _ => None,
            })
    }

    /// The key leaves its hand: one that is wanted takes its place in the queue now.
    fn let_go(&mut self, key: u8) -> &mut Key {
        self.events += 1;
        let found = self.keys.get_mut(&key).expect("it is in a hand");
        found.running = false;
        if let Wanted::Now { since, .. } = &mut found.wanted {
            *since = self.events;
        }
        found
    }

    pub(crate) fn done(&mut self, key: u8) {
        self.let_go(key).failures = 0;
        self.tidy();
    }

    pub(crate) fn requeue(&mut self, key: u8, priority: i32, delay: u64) {
        self.let_go(key).failures = 0;
        if !self.closed {
            self.want(key, priority, delay, false);
        }
        self.tidy();
    }

    pub(crate) fn fail(&mut self, key: u8, priority: i32) -> Failed {
        let (max_retries, closed) = (self.max_retries, self.closed);
        let found = self.let_go(key);
        let outcome = if found.failures >= max_retries {
            let failures = found.failures + 1;
            found.failures = 0;
            Failed::Dropped(failures)
        } else if let Wanted::Now { .. } = found.wanted {
            found.failures += 1;
            self.want(key, priority, 0, false);
            Failed::Retry(0)
        } else if closed {
            Failed::Closed
        } else {
            let delay = self.count_failure(key);
            self.want(key, priority, delay, false);
            match self.keys[&key].wanted {
                Wanted::Later { at, .. } => Failed::Retry(at - self.now),
                _ => Failed::Retry(0),
            }
        };
        self.tidy();
        outcome
    }

    pub(crate) fn advance(&mut self, millis: u64) {
        self.now += millis;
        let mut due: Vec<_> = self
            .keys
            .iter()
            .filter_map(|(name, key)| match key.wanted {
                Wanted::Later { priority, at, since } if at <= self.now => Some((at, since, *name, priority)),
                _ => None,
            })
            .collect();
        due.sort_unstable();
        for (_, _, key, priority) in due {
            self.want(key, priority, 0, false);
        }
    }

    pub(crate) fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            for key in self.keys.values_mut() {
                if let Wanted::Later { .. } = key.wanted {
                    key.wanted = Wanted::No;
                }
            }
            self.tidy();
        }
    }

    fn tidy(&mut self) {
        self.keys.retain(|_, key| key.running || key.wanted != Wanted::No);
    }

    pub(crate) fn len(&self) -> usize {
        self.queued().count()
    }

    pub(crate) fn delayed(&self) -> usize {
        self.keys
            .values()
            .filter(|key| matches!(key.wanted, Wanted::Later { .. }))
            .count()
    }

    pub(crate) fn failures(&self, key: u8) -> u32 {
        self.keys.get(&key).map_or(0, |key| key.failures)
    }

    pub(crate) fn is_queued_again(&self, key: u8) -> bool {
        matches!(self.keys[&key].wanted, Wanted::Now { .. })
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.closed && self.keys.values().all(|key| key.wanted == Wanted::No)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.keys.is_empty()
    }
}
