//! Adds that wait for a time.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep, timeout};
use windlass_workqueue::{Add, Priority, WorkQueue};

use crate::{ms, take_all};

fn after(delay: Duration, priority: i32) -> Add {
    Add {
        after: delay,
        priority: Priority::new(priority),
        ..Add::default()
    }
}

fn replacing(delay: Duration) -> Add {
    Add {
        after: delay,
        replace_delay: true,
        ..Add::default()
    }
}

/// 15, 40.
#[tokio::test(start_paused = true)]
async fn a_delayed_key_comes_when_it_is_due_and_then_only_once() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(50));
    assert!(timeout(ms(49), queue.take()).await.is_err(), "not a moment early");
    queue.take().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(50));
    assert!(
        timeout(Duration::from_mins(1), queue.take()).await.is_err(),
        "only once"
    );
}

/// 16.
#[tokio::test(start_paused = true)]
async fn a_later_delay_does_not_move_an_earlier_one() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(10));
    queue.add_after("a", ms(500));
    queue.take().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(10));
    sleep(ms(1000)).await;
    assert!(queue.try_take().is_none());
}

/// 17, 34.
#[tokio::test(start_paused = true)]
async fn an_earlier_delay_moves_a_later_one() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(500));
    queue.add_after("a", ms(10));
    queue.take().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(10));
    sleep(ms(1000)).await;
    assert!(queue.try_take().is_none());
}

/// [176].
#[tokio::test(start_paused = true)]
async fn a_later_delay_replaces_an_earlier_one_on_request() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(10));
    queue.add_with("a", replacing(ms(500)));
    queue.take().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(500));
    assert_eq!(queue.delayed(), 0);
}

#[test]
fn a_queued_key_stays_queued_whatever_delay_is_asked_for() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add_with("a", replacing(ms(500)));
    queue.add_after("a", ms(5));
    assert_eq!((take_all(&queue), queue.delayed()), (vec!["a"], 0));
}

/// [176], 37.
#[tokio::test(start_paused = true)]
async fn a_plain_add_supersedes_a_pending_delay() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(100));
    queue.add("a");
    assert_eq!((take_all(&queue), queue.delayed()), (vec!["a"], 0));
    sleep(ms(200)).await;
    assert!(queue.try_take().is_none(), "the delayed add is used up");
}

/// [177].
#[tokio::test(start_paused = true)]
async fn a_delay_can_be_cancelled() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(100));
    assert!(queue.cancel_delay(&"a"));
    assert!(!queue.cancel_delay(&"a"), "there is none any more");
    assert!(!queue.cancel_delay(&"unknown"));
    assert_eq!(queue.delayed(), 0);
    sleep(ms(200)).await;
    assert!(queue.try_take().is_none());
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_delay_leaves_a_queued_key_and_one_that_is_due_alone() {
    let queue = WorkQueue::new();
    queue.add("queued");
    queue.add_after("due", ms(100));
    advance(ms(100)).await;
    assert!(!queue.cancel_delay(&"queued"));
    assert!(!queue.cancel_delay(&"due"));
    assert_eq!(take_all(&queue), ["queued", "due"]);
}

/// 18, 42.
#[tokio::test(start_paused = true)]
async fn delayed_keys_come_in_the_order_in_which_they_are_due() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    for key in [30, 10, 20, 50, 40] {
        queue.add_after(key, ms(key));
    }
    for due in [10, 20, 30, 40, 50] {
        let taken = queue.take().await.unwrap();
        assert_eq!((*taken.key(), start.elapsed()), (due, ms(due)));
        taken.done();
    }
}

#[tokio::test(start_paused = true)]
async fn keys_due_at_the_same_time_come_in_the_order_of_their_adds() {
    let queue = WorkQueue::new();
    for key in [5, 1, 4, 2, 3] {
        queue.add_after(key, ms(10));
    }
    advance(ms(10)).await;
    assert_eq!(take_all(&queue), [5, 1, 4, 2, 3]);
}

/// 19.
#[tokio::test(start_paused = true)]
async fn a_new_delay_shortens_the_wait_of_a_take_that_waits_already() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("later", ms(500));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move {
            let taken = queue.take().await.unwrap();
            let key = *taken.key();
            taken.done();
            (key, start.elapsed())
        }
    });
    sleep(ms(5)).await;
    queue.add_after("sooner", ms(20));
    assert_eq!(waiting.await.unwrap(), ("sooner", ms(25)));
}

#[tokio::test(start_paused = true)]
async fn a_take_that_waits_follows_a_delay_that_is_replaced_or_cancelled() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(50));
    queue.add_after("b", ms(60));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move {
            for _ in 0..2 {
                queue.take().await.unwrap().done();
            }
            start.elapsed()
        }
    });
    sleep(ms(5)).await;
    queue.add_with("a", replacing(ms(100)));
    assert!(queue.cancel_delay(&"b"));
    queue.add_after("c", ms(200));
    assert_eq!(waiting.await.unwrap(), ms(205));
}

/// 35.
#[tokio::test(start_paused = true)]
async fn delayed_keys_are_not_in_the_length_until_they_are_due() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(10));
    assert_eq!((queue.len(), queue.delayed()), (0, 1));
    advance(ms(9)).await;
    assert_eq!((queue.len(), queue.delayed()), (0, 1));
    advance(ms(1)).await;
    assert_eq!((queue.len(), queue.delayed()), (1, 0));
}

/// 38.
#[tokio::test(start_paused = true)]
async fn a_delayed_key_keeps_the_highest_priority_and_the_earliest_time() {
    let queue = WorkQueue::new();
    queue.add_with("a", after(ms(10), 0));
    queue.add_with("a", after(ms(500), 10));
    queue.add_with("a", after(ms(400), -5));
    advance(ms(10)).await;
    let taken = queue.try_take().unwrap();
    assert_eq!((*taken.key(), taken.priority().value()), ("a", 10));
    taken.done();
}

#[test]
fn a_delay_of_zero_is_no_delay() {
    let queue = WorkQueue::new();
    queue.add_after("a", Duration::ZERO);
    assert_eq!(take_all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_clock_is_a_very_long_one() {
    let queue = WorkQueue::new();
    queue.add_after("never", Duration::MAX);
    queue.add_after("soon", ms(1));
    let taken = queue.take().await.unwrap();
    assert_eq!(*taken.key(), "soon");
    taken.done();
    assert!(timeout(Duration::from_hours(8760), queue.take()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_came_due_unseen_goes_before_one_that_is_added_later() {
    let queue = WorkQueue::new();
    queue.add_after("due", ms(10));
    advance(ms(20)).await;
    queue.add("later");
    assert_eq!(take_all(&queue), ["due", "later"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_asked_for_during_work_counts_from_then() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add("a");
    let taken = queue.take().await.unwrap();
    queue.add_after("a", ms(30));
    sleep(ms(20)).await;
    taken.done();
    assert_eq!((queue.len(), queue.delayed()), (0, 1));
    queue.take().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(30));
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_ends_during_work_runs_again_after_it() {
    let queue = WorkQueue::new();
    queue.add("a");
    let taken = queue.take().await.unwrap();
    queue.add_after("a", ms(30));
    sleep(ms(40)).await;
    assert!(taken.is_queued_again());
    assert!(queue.try_take().is_none());
    taken.done();
    assert_eq!(take_all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_asked_for_during_work_can_be_cancelled_without_touching_the_work() {
    let queue = WorkQueue::new();
    queue.add("a");
    let taken = queue.take().await.unwrap();
    queue.add_after("a", ms(30));
    assert!(queue.cancel_delay(&"a"));
    assert_eq!(queue.running(), 1);
    taken.done();
    sleep(ms(100)).await;
    assert!(queue.try_take().is_none());
}
