//! A queue and its model, with the `next` calls and work items that the test holds.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use windlass_workqueue::{AddOptions, Ageing, Exponential, Priority, RetryDecision, WorkItem, WorkQueue};

use crate::model::KEYS;
use crate::model::reference::{Decision, Model};

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
    /// Polls a `next` call, which is started if there is none.
    Poll {
        take: usize,
    },
    DropCall {
        take: usize,
    },
    TryNext,
    End {
        item: usize,
        end: Ending,
    },
    Advance {
        millis: u64,
    },
    Close,
}

#[derive(Clone, Debug)]
pub(crate) enum Ending {
    Done,
    Fail,
    Drop,
    GiveUp,
    BackOff,
    RequeueAfter { millis: u64 },
}

pub(crate) struct Harness {
    queue: WorkQueue<u8>,
    model: Model,
    calls: [Option<NextCall>; 4],
    items: Vec<WorkItem<u8>>,
}

/// A `next` call that waits.
struct NextCall {
    future: Pin<Box<dyn Future<Output = Option<WorkItem<u8>>>>>,
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

impl Harness {
    pub(crate) fn new(passes: Option<u32>) -> Self {
        let queue = WorkQueue::builder()
            .ageing(passes.map_or(Ageing::off(), Ageing::max_skips))
            .rate_limiter(Exponential::default())
            .max_retries(MAX_RETRIES)
            .build();
        Self {
            queue,
            model: Model::new(passes, MAX_RETRIES),
            calls: Default::default(),
            items: Vec::new(),
        }
    }

    /// Runs a step on the queue and the model and compares them. Returns false if there was nothing to do.
    pub(crate) async fn step(&mut self, step: &Step) -> bool {
        let done = self.step_without_compare(step).await;
        self.compare();
        done
    }

    /// Runs a step without reading the queue afterwards: reading promotes due keys and could hide an error.
    pub(crate) async fn step_without_compare(&mut self, step: &Step) -> bool {
        match *step {
            Step::Add { key, priority } => {
                self.queue.add_with(
                    key,
                    AddOptions {
                        priority: Priority::new(priority),
                        ..AddOptions::default()
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
                    AddOptions {
                        priority: priority_,
                        after,
                        replace_delay: replace,
                        ..AddOptions::default()
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
            Step::DropCall { take } => {
                if self.calls[take].take().is_none() {
                    return false;
                }
            }
            Step::TryNext => match self.queue.try_next() {
                Some(item) => self.start(item),
                None => assert_eq!(self.model.len(), 0),
            },
            Step::End { item: hand, ref end } => {
                if self.items.is_empty() {
                    return false;
                }
                let hand = self.items.swap_remove(hand % self.items.len());
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
        let take = self.calls[at].get_or_insert_with(|| {
            let queue = self.queue.clone();
            NextCall {
                future: Box::pin(async move { queue.next().await }),
                woken: Arc::default(),
            }
        });
        take.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&take.woken));
        match take.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => {
                assert_eq!(self.model.len(), 0, "`next` waits although a key is queued");
                assert!(
                    !self.model.is_exhausted(),
                    "`next` waits although the queue is exhausted"
                );
            }
            Poll::Ready(item) => {
                self.calls[at] = None;
                match item {
                    Some(item) => self.start(item),
                    None => assert!(
                        self.model.is_exhausted(),
                        "`next` ends although the queue is not exhausted"
                    ),
                }
            }
        }
    }

    fn start(&mut self, item: WorkItem<u8>) {
        assert!(
            self.items.iter().all(|other| other.key() != item.key()),
            "two workers process the same key"
        );
        let priority = self.model.start_run(*item.key());
        assert_eq!(item.priority().value(), priority);
        self.items.push(item);
    }

    fn end(&mut self, hand: WorkItem<u8>, end: &Ending) {
        let key = *hand.key();
        let priority = hand.priority().value();
        match *end {
            Ending::Done => {
                hand.done();
                self.model.done(key);
            }
            Ending::GiveUp => {
                hand.give_up();
                self.model.done(key);
            }
            Ending::BackOff => {
                let delay = self.model.back_off(key, priority);
                assert_eq!(hand.back_off(), delay.map(Duration::from_millis));
            }
            Ending::RequeueAfter { millis } => {
                hand.requeue_after(Duration::from_millis(millis));
                self.model.requeue(key, priority, millis);
            }
            Ending::Drop => {
                drop(hand);
                self.model.fail(key, priority);
            }
            Ending::Fail => {
                let expected = match self.model.fail(key, priority) {
                    Decision::Retry(millis) => RetryDecision::Retry {
                        after: Duration::from_millis(millis),
                    },
                    Decision::Dropped(failures) => RetryDecision::Dropped { failures },
                    Decision::Closed => RetryDecision::Closed,
                };
                assert_eq!(hand.fail(), expected);
            }
        }
    }

    fn compare(&self) {
        // First, before reading the queue promotes due keys.
        self.assert_no_lost_wake_up();
        assert_eq!(self.queue.len(), self.model.len());
        assert_eq!(self.queue.delayed(), self.model.delayed());
        assert_eq!(self.queue.running(), self.items.len());
        for key in 0..KEYS {
            assert_eq!(
                self.queue.failures(&key),
                self.model.failures(key),
                "failures of {key}"
            );
        }
        for hand in &self.items {
            assert_eq!(hand.is_queued_again(), self.model.is_queued_again(*hand.key()));
            assert_eq!(self.queue.is_pending(hand.key()), hand.is_queued_again());
        }
        self.assert_no_lost_wake_up();
    }

    fn assert_no_lost_wake_up(&self) {
        let waiting = self.calls.iter().flatten().count();
        let woken = self
            .calls
            .iter()
            .flatten()
            .filter(|take| take.woken.0.load(Ordering::Relaxed))
            .count();
        if self.model.is_exhausted() {
            assert_eq!(
                woken, waiting,
                "all waiters must be woken when the queue is exhausted"
            );
        }
        // A deadline wakes one waiter, which wakes the others when it is polled.
        let needed = waiting.min(self.model.len()).min(1);
        assert!(
            woken >= needed,
            "{} keys are queued, {waiting} calls wait, {woken} are woken",
            self.model.len()
        );
    }

    /// Closes the queue and checks that the remaining keys reach waiters that are polled only when woken.
    pub(crate) async fn finish(mut self) {
        self.step(&Step::Close).await;
        for take in 0..self.calls.len() {
            self.poll(take);
        }
        while !self.model.is_idle() {
            while let Some(hand) = self.items.pop() {
                self.end(hand, &Ending::Done);
            }
            for take in 0..self.calls.len() {
                if self.calls[take]
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
