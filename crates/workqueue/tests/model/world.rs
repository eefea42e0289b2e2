//! A queue, its model, and takes and hands that the test holds.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use windlass_workqueue::{Add, Ageing, Exponential, Outcome, Priority, Taken, WorkQueue};

use crate::KEYS;
use crate::model::{Failed, Model};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Add {
        key: u8,
        priority: i32,
    },
    AddAfter {
        key: u8,
        priority: i32,
        millis: u64,
        replace: bool,
    },
    AddRateLimited {
        key: u8,
    },
    CancelDelay {
        key: u8,
    },
    Forget {
        key: u8,
    },
    /// Polls a take, which is begun if it is not there.
    Poll {
        take: usize,
    },
    DropTake {
        take: usize,
    },
    TryTake,
    End {
        hand: usize,
        end: End,
    },
    Advance {
        millis: u64,
    },
    Close,
}

#[derive(Clone, Debug)]
pub(crate) enum End {
    Done,
    Fail,
    Drop,
    Terminal,
    RequeueAfter { millis: u64 },
}

pub(crate) struct World {
    queue: WorkQueue<u8>,
    model: Model,
    takes: [Option<Take>; 4],
    hands: Vec<Taken<u8>>,
}

/// A take that waits.
struct Take {
    future: Pin<Box<dyn Future<Output = Option<Taken<u8>>>>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const MAX_RETRIES: u32 = 3;

impl World {
    pub(crate) fn new(passes: Option<u32>) -> Self {
        let queue = WorkQueue::builder()
            .ageing(passes.map_or(Ageing::off(), Ageing::passes))
            .rate_limiter(Exponential::default())
            .max_retries(MAX_RETRIES)
            .build();
        Self {
            queue,
            model: Model::new(passes, MAX_RETRIES),
            takes: Default::default(),
            hands: Vec::new(),
        }
    }

    /// Does a step on both sides and compares them. Returns false if there was nothing to do.
    pub(crate) async fn step(&mut self, step: &Step) -> bool {
        let done = self.step_unseen(step).await;
        self.compare();
        done
    }

    /// Does a step without a look at the queue afterwards, which could put things right that were wrong.
    pub(crate) async fn step_unseen(&mut self, step: &Step) -> bool {
        match *step {
            Step::Add { key, priority } => {
                self.queue.add_with(
                    key,
                    Add {
                        priority: Priority::new(priority),
                        ..Add::default()
                    },
                );
                self.model.add(key, priority, 0, false);
            }
            Step::AddAfter {
                key,
                priority,
                millis,
                replace,
            } => {
                let after = Duration::from_millis(millis);
                let priority_ = Priority::new(priority);
                self.queue.add_with(
                    key,
                    Add {
                        priority: priority_,
                        after,
                        replace_delay: replace,
                        ..Add::default()
                    },
                );
                self.model.add(key, priority, millis, replace);
            }
            Step::AddRateLimited { key } => {
                self.queue.add_rate_limited(key);
                self.model.add_rate_limited(key);
            }
            Step::CancelDelay { key } => {
                assert_eq!(self.queue.cancel_delay(&key), self.model.cancel_delay(key));
            }
            Step::Forget { key } => {
                self.queue.forget(&key);
                self.model.forget(key);
            }
            Step::Poll { take } => self.poll(take),
            Step::DropTake { take } => {
                if self.takes[take].take().is_none() {
                    return false;
                }
            }
            Step::TryTake => match self.queue.try_take() {
                Some(taken) => self.got(taken),
                None => assert_eq!(self.model.len(), 0),
            },
            Step::End { hand, ref end } => {
                if self.hands.is_empty() {
                    return false;
                }
                let hand = self.hands.swap_remove(hand % self.hands.len());
                self.end(hand, end);
            }
            Step::Advance { millis } => {
                tokio::time::advance(Duration::from_millis(millis)).await;
                tokio::task::yield_now().await;
                self.model.advance(millis);
            }
            Step::Close => {
                if self.queue.is_closed() {
                    return false;
                }
                self.queue.close();
                self.model.close();
            }
        }
        true
    }

    fn poll(&mut self, at: usize) {
        let take = self.takes[at].get_or_insert_with(|| {
            let queue = self.queue.clone();
            Take {
                future: Box::pin(async move { queue.take().await }),
                woken: Arc::default(),
            }
        });
        take.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&take.woken));
        match take.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => {
                assert_eq!(self.model.len(), 0, "a take waits although there is a key");
                assert!(
                    !self.model.is_exhausted(),
                    "a take waits although nothing can come"
                );
            }
            Poll::Ready(taken) => {
                self.takes[at] = None;
                match taken {
                    Some(taken) => self.got(taken),
                    None => assert!(
                        self.model.is_exhausted(),
                        "a take ends although something may come"
                    ),
                }
            }
        }
    }

    fn got(&mut self, taken: Taken<u8>) {
        assert!(
            self.hands.iter().all(|other| other.key() != taken.key()),
            "a key in two hands"
        );
        let priority = self.model.take(*taken.key());
        assert_eq!(taken.priority().value(), priority);
        self.hands.push(taken);
    }

    fn end(&mut self, hand: Taken<u8>, end: &End) {
        let key = *hand.key();
        let priority = hand.priority().value();
        match *end {
            End::Done => {
                hand.done();
                self.model.done(key);
            }
            End::Terminal => {
                hand.terminal();
                self.model.done(key);
            }
            End::RequeueAfter { millis } => {
                hand.requeue_after(Duration::from_millis(millis));
                self.model.requeue(key, priority, millis);
            }
            End::Drop => {
                drop(hand);
                self.model.fail(key, priority);
            }
            End::Fail => {
                let expected = match self.model.fail(key, priority) {
                    Failed::Retry(millis) => Outcome::Retry {
                        after: Duration::from_millis(millis),
                    },
                    Failed::Dropped(failures) => Outcome::Dropped { failures },
                    Failed::Closed => Outcome::Closed,
                };
                assert_eq!(hand.fail(), expected);
            }
        }
    }

    fn compare(&self) {
        // First, before any look at the queue could settle what is due.
        self.no_wake_up_is_lost();
        assert_eq!(self.queue.len(), self.model.len());
        assert_eq!(self.queue.delayed(), self.model.delayed());
        assert_eq!(self.queue.running(), self.hands.len());
        for key in 0..KEYS {
            assert_eq!(
                self.queue.failures(&key),
                self.model.failures(key),
                "failures of {key}"
            );
        }
        for hand in &self.hands {
            assert_eq!(hand.is_queued_again(), self.model.is_queued_again(*hand.key()));
            assert_eq!(self.queue.is_wanted(hand.key()), hand.is_queued_again());
        }
        self.no_wake_up_is_lost();
    }

    fn no_wake_up_is_lost(&self) {
        let waiting = self.takes.iter().flatten().count();
        let woken = self
            .takes
            .iter()
            .flatten()
            .filter(|take| take.woken.0.load(Ordering::Relaxed))
            .count();
        if self.model.is_exhausted() {
            assert_eq!(woken, waiting, "everybody must learn that nothing comes any more");
        }
        // A deadline wakes one; it wakes the others when it is polled.
        let needed = waiting.min(self.model.len()).min(1);
        assert!(
            woken >= needed,
            "{} keys can be taken, {waiting} takes wait, {woken} are woken",
            self.model.len()
        );
    }

    /// Closes the queue and sees that all that is left comes out, to takes that are only polled when they are woken.
    pub(crate) async fn finish(mut self) {
        self.step(&Step::Close).await;
        for take in 0..self.takes.len() {
            self.poll(take);
        }
        while !self.model.is_idle() {
            while let Some(hand) = self.hands.pop() {
                self.end(hand, &End::Done);
            }
            for take in 0..self.takes.len() {
                if self.takes[take]
                    .as_ref()
                    .is_none_or(|take| take.woken.0.load(Ordering::Relaxed))
                {
                    self.poll(take);
                }
            }
            self.compare();
        }
        let drain = tokio::time::timeout(Duration::from_secs(1), self.queue.drain());
        drain.await.expect("an idle queue is drained");
    }
}
