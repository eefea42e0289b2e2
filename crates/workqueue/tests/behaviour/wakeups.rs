//! Who is woken, and by what. The takes are polled by hand, each with a waker that counts.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::time::sleep;
use windlass_workqueue::{Taken, WorkQueue};

use crate::ms;

/// A take, and how often it was woken.
struct Take {
    future: Pin<Box<dyn Future<Output = Option<Taken<u8>>>>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Take {
    /// A take that has been polled once and waits.
    fn waiting(queue: &WorkQueue<u8>) -> Self {
        let queue = queue.clone();
        let mut take = Self {
            future: Box::pin(async move { queue.take().await }),
            wakes: Arc::default(),
        };
        assert!(take.poll().is_pending());
        take
    }

    fn poll(&mut self) -> Poll<Option<Taken<u8>>> {
        self.future
            .as_mut()
            .poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.wakes))))
    }

    /// It gets a key, and works on it with success.
    fn gets_a_key(&mut self) -> bool {
        match self.poll() {
            Poll::Ready(Some(taken)) => {
                taken.done();
                true
            }
            Poll::Ready(None) | Poll::Pending => false,
        }
    }

    fn wakes(&self) -> u32 {
        self.wakes.0.load(Ordering::Relaxed)
    }
}

fn wakes(takes: &[Take]) -> Vec<u32> {
    takes.iter().map(Take::wakes).collect()
}

#[test]
fn each_add_wakes_one_take_in_the_order_in_which_they_came() {
    let queue = WorkQueue::new();
    let takes: Vec<_> = (0..4).map(|_| Take::waiting(&queue)).collect();
    queue.add(1);
    assert_eq!(wakes(&takes), [1, 0, 0, 0]);
    queue.add(1);
    assert_eq!(wakes(&takes), [1, 0, 0, 0], "the same key is no new work");
    queue.add(2);
    assert_eq!(wakes(&takes), [1, 1, 0, 0]);
}

#[test]
fn a_wake_up_for_a_take_that_is_dropped_goes_to_the_next() {
    let queue = WorkQueue::new();
    let mut takes: Vec<_> = (0..3).map(|_| Take::waiting(&queue)).collect();
    queue.add(1);
    drop(takes.remove(0));
    assert_eq!(wakes(&takes), [1, 0]);
    drop(takes.remove(0));
    assert_eq!(wakes(&takes), [1]);
    assert!(takes[0].gets_a_key());
}

#[test]
fn a_take_that_finds_its_key_gone_waits_again_and_is_woken_again() {
    let queue = WorkQueue::new();
    let mut take = Take::waiting(&queue);
    queue.add(1);
    queue.try_take().expect("quicker than the woken one").done();
    assert!(take.poll().is_pending());
    queue.add(2);
    assert_eq!(take.wakes(), 2);
    assert!(take.gets_a_key());
}

#[test]
fn a_take_that_is_polled_from_another_task_wakes_that_one() {
    let queue = WorkQueue::new();
    let mut take = Take::waiting(&queue);
    let before = std::mem::take(&mut take.wakes);
    assert!(take.poll().is_pending());
    queue.add(1);
    assert_eq!((before.0.load(Ordering::Relaxed), take.wakes()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_wakes_one_take_and_not_all_of_them() {
    let queue = WorkQueue::new();
    queue.add_after(1, ms(10));
    let mut takes: Vec<_> = (0..4).map(|_| Take::waiting(&queue)).collect();
    sleep(ms(11)).await;
    assert_eq!(wakes(&takes), [1, 0, 0, 0]);
    assert!(takes[0].gets_a_key());
    assert_eq!(wakes(&takes)[1..], [0, 0, 0], "nothing is left to watch for");
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_due_together_wake_as_many_takes() {
    let queue = WorkQueue::new();
    for key in 0..3 {
        queue.add_after(key, ms(10));
    }
    let mut takes: Vec<_> = (0..5).map(|_| Take::waiting(&queue)).collect();
    sleep(ms(11)).await;
    assert!(takes[0].gets_a_key());
    assert_eq!(wakes(&takes), [1, 1, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn when_the_timekeeper_goes_another_take_watches_the_clock() {
    let queue = WorkQueue::new();
    queue.add_after(1, ms(10));
    let mut takes: Vec<_> = (0..3).map(|_| Take::waiting(&queue)).collect();
    // By being dropped: the next one is woken to take over.
    drop(takes.remove(0));
    assert_eq!(wakes(&takes), [1, 0]);
    assert!(takes[0].poll().is_pending());
    // By having got a key: not the timekeeper is woken for that, as long as there is somebody else.
    queue.add(2);
    assert_eq!(wakes(&takes), [1, 1]);
    assert!(takes.pop().unwrap().gets_a_key());
    sleep(ms(11)).await;
    assert_eq!(wakes(&takes), [2]);
    assert!(takes[0].gets_a_key());
}

#[tokio::test(start_paused = true)]
async fn a_timekeeper_that_is_alone_serves_adds_and_deadlines() {
    let queue = WorkQueue::new();
    queue.add_after(1, ms(10));
    let mut first = Take::waiting(&queue);
    queue.add(2);
    assert_eq!(first.wakes(), 1);
    assert!(first.gets_a_key());
    let mut second = Take::waiting(&queue);
    sleep(ms(11)).await;
    assert_eq!(second.wakes(), 1);
    assert!(second.gets_a_key());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_work_wakes_a_take_only_if_the_key_was_added_again() {
    let queue = WorkQueue::new();
    queue.add(1);
    queue.add(2);
    let (once, again) = (queue.try_take().unwrap(), queue.try_take().unwrap());
    let take = Take::waiting(&queue);
    queue.add(2);
    once.done();
    assert_eq!(take.wakes(), 0);
    again.done();
    assert_eq!(take.wakes(), 1);
}
