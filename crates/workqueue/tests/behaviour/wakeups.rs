//! Wake-ups of waiters. The `next` calls are polled manually, each with a waker that counts.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::time::sleep;
use windlass_workqueue::{WorkItem, WorkQueue};

use crate::behaviour::ms;

/// A `next` call, and how often it was woken.
struct NextCall {
    future: Pin<Box<dyn Future<Output = Option<WorkItem<u8>>>>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl NextCall {
    /// A call that has been polled once and waits.
    fn waiting(queue: &WorkQueue<u8>) -> Self {
        let queue = queue.clone();
        let mut take = Self {
            future: Box::pin(async move { queue.next().await }),
            wakes: Arc::default(),
        };
        assert!(take.poll().is_pending());
        take
    }

    fn poll(&mut self) -> Poll<Option<WorkItem<u8>>> {
        self.future
            .as_mut()
            .poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.wakes))))
    }

    /// Polls the call; returns whether it got a key, which is then done.
    fn gets_a_key(&mut self) -> bool {
        match self.poll() {
            Poll::Ready(Some(item)) => {
                item.done();
                true
            }
            Poll::Ready(None) | Poll::Pending => false,
        }
    }

    fn wakes(&self) -> u32 {
        self.wakes.0.load(Ordering::Relaxed)
    }
}

fn wakes(takes: &[NextCall]) -> Vec<u32> {
    takes.iter().map(NextCall::wakes).collect()
}

#[test]
fn each_add_wakes_one_waiter_in_order() {
    let queue = WorkQueue::new();
    let takes: Vec<_> = (0..4).map(|_| NextCall::waiting(&queue)).collect();
    queue.add(1);
    assert_eq!(wakes(&takes), [1, 0, 0, 0]);
    queue.add(1);
    assert_eq!(wakes(&takes), [1, 0, 0, 0], "the key is queued already");
    queue.add(2);
    assert_eq!(wakes(&takes), [1, 1, 0, 0]);
}

#[test]
fn wake_up_of_a_dropped_waiter_goes_to_the_next() {
    let queue = WorkQueue::new();
    let mut takes: Vec<_> = (0..3).map(|_| NextCall::waiting(&queue)).collect();
    queue.add(1);
    drop(takes.remove(0));
    assert_eq!(wakes(&takes), [1, 0]);
    drop(takes.remove(0));
    assert_eq!(wakes(&takes), [1]);
    assert!(takes[0].gets_a_key());
}

#[test]
fn woken_waiter_without_a_key_waits_again() {
    let queue = WorkQueue::new();
    let mut take = NextCall::waiting(&queue);
    queue.add(1);
    queue.try_next().expect("faster than the woken waiter").done();
    assert!(take.poll().is_pending());
    queue.add(2);
    assert_eq!(take.wakes(), 2);
    assert!(take.gets_a_key());
}

#[test]
fn waiter_wakes_the_task_that_polled_last() {
    let queue = WorkQueue::new();
    let mut take = NextCall::waiting(&queue);
    let before = std::mem::take(&mut take.wakes);
    assert!(take.poll().is_pending());
    queue.add(1);
    assert_eq!((before.0.load(Ordering::Relaxed), take.wakes()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn deadline_wakes_only_one_waiter() {
    let queue = WorkQueue::new();
    queue.add_after(1, ms(10));
    let mut takes: Vec<_> = (0..4).map(|_| NextCall::waiting(&queue)).collect();
    sleep(ms(11)).await;
    assert_eq!(wakes(&takes), [1, 0, 0, 0]);
    assert!(takes[0].gets_a_key());
    assert_eq!(wakes(&takes)[1..], [0, 0, 0], "no deadline is left");
}

#[tokio::test(start_paused = true)]
async fn keys_due_together_wake_one_waiter_each() {
    let queue = WorkQueue::new();
    for key in 0..3 {
        queue.add_after(key, ms(10));
    }
    let mut takes: Vec<_> = (0..5).map(|_| NextCall::waiting(&queue)).collect();
    sleep(ms(11)).await;
    assert!(takes[0].gets_a_key());
    assert_eq!(wakes(&takes), [1, 1, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn another_waiter_replaces_a_dropped_timekeeper() {
    let queue = WorkQueue::new();
    queue.add_after(1, ms(10));
    let mut takes: Vec<_> = (0..3).map(|_| NextCall::waiting(&queue)).collect();
    // When it is dropped, the next one is woken to replace it.
    drop(takes.remove(0));
    assert_eq!(wakes(&takes), [1, 0]);
    assert!(takes[0].poll().is_pending());
    // An add wakes the timekeeper only if there is no other waiter.
    queue.add(2);
    assert_eq!(wakes(&takes), [1, 1]);
    assert!(takes.pop().unwrap().gets_a_key());
    sleep(ms(11)).await;
    assert_eq!(wakes(&takes), [2]);
    assert!(takes[0].gets_a_key());
}

#[tokio::test(start_paused = true)]
async fn single_timekeeper_serves_adds_and_deadlines() {
    let queue = WorkQueue::new();
    queue.add_after(1, ms(10));
    let mut first = NextCall::waiting(&queue);
    queue.add(2);
    assert_eq!(first.wakes(), 1);
    assert!(first.gets_a_key());
    let mut second = NextCall::waiting(&queue);
    sleep(ms(11)).await;
    assert_eq!(second.wakes(), 1);
    assert!(second.gets_a_key());
}

#[tokio::test(start_paused = true)]
async fn end_of_run_wakes_a_waiter_only_for_a_pending_key() {
    let queue = WorkQueue::new();
    queue.add(1);
    queue.add(2);
    let (once, again) = (queue.try_next().unwrap(), queue.try_next().unwrap());
    let take = NextCall::waiting(&queue);
    queue.add(2);
    once.done();
    assert_eq!(take.wakes(), 0);
    again.done();
    assert_eq!(take.wakes(), 1);
}
