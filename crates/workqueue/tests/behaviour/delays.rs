//! Delayed adds.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep, timeout};
use windlass_workqueue::{AddOptions, Priority, WorkQueue};

use crate::behaviour::{ms, process_all};

fn after(delay: Duration, priority: i32) -> AddOptions {
    AddOptions {
        after: delay,
        priority: Priority::new(priority),
        ..AddOptions::default()
    }
}

fn replacing(delay: Duration) -> AddOptions {
    AddOptions {
        after: delay,
        replace_delay: true,
        ..AddOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn delayed_key_is_processed_once_when_due() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(50));
    assert!(timeout(ms(49), queue.next()).await.is_err(), "not early");
    queue.next().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(50));
    assert!(
        timeout(Duration::from_mins(1), queue.next()).await.is_err(),
        "only once"
    );
}

#[tokio::test(start_paused = true)]
async fn later_delay_does_not_postpone_an_earlier_one() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(10));
    queue.add_after("a", ms(500));
    queue.next().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(10));
    sleep(ms(1000)).await;
    assert!(queue.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn earlier_delay_replaces_a_later_one() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(500));
    queue.add_after("a", ms(10));
    queue.next().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(10));
    sleep(ms(1000)).await;
    assert!(queue.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn replace_delay_lets_a_later_delay_win() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(10));
    queue.add_with("a", replacing(ms(500)));
    queue.next().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(500));
    assert_eq!(queue.delayed(), 0);
}

#[test]
fn delayed_add_does_not_unqueue_a_queued_key() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add_with("a", replacing(ms(500)));
    queue.add_after("a", ms(5));
    assert_eq!((process_all(&queue), queue.delayed()), (vec!["a"], 0));
}

#[tokio::test(start_paused = true)]
async fn plain_add_ends_a_delay() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(100));
    queue.add("a");
    assert_eq!((process_all(&queue), queue.delayed()), (vec!["a"], 0));
    sleep(ms(200)).await;
    assert!(queue.try_next().is_none(), "the delayed add is used up");
}

#[tokio::test(start_paused = true)]
async fn cancel_delay_removes_a_delayed_key() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(100));
    assert!(queue.cancel_delay(&"a"));
    assert!(!queue.cancel_delay(&"a"), "already cancelled");
    assert!(!queue.cancel_delay(&"unknown"));
    assert_eq!(queue.delayed(), 0);
    sleep(ms(200)).await;
    assert!(queue.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn cancel_delay_ignores_queued_and_due_keys() {
    let queue = WorkQueue::new();
    queue.add("queued");
    queue.add_after("due", ms(100));
    advance(ms(100)).await;
    assert!(!queue.cancel_delay(&"queued"));
    assert!(!queue.cancel_delay(&"due"));
    assert_eq!(process_all(&queue), ["queued", "due"]);
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_are_processed_in_order_of_deadline() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    for key in [30, 10, 20, 50, 40] {
        queue.add_after(key, ms(key));
    }
    for due in [10, 20, 30, 40, 50] {
        let item = queue.next().await.unwrap();
        assert_eq!((*item.key(), start.elapsed()), (due, ms(due)));
        item.done();
    }
}

#[tokio::test(start_paused = true)]
async fn keys_with_equal_deadlines_keep_the_order_of_their_adds() {
    let queue = WorkQueue::new();
    for key in [5, 1, 4, 2, 3] {
        queue.add_after(key, ms(10));
    }
    advance(ms(10)).await;
    assert_eq!(process_all(&queue), [5, 1, 4, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn earlier_delay_shortens_a_running_wait() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("later", ms(500));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move {
            let item = queue.next().await.unwrap();
            let key = *item.key();
            item.done();
            (key, start.elapsed())
        }
    });
    sleep(ms(5)).await;
    queue.add_after("sooner", ms(20));
    assert_eq!(waiting.await.unwrap(), ("sooner", ms(25)));
}

#[tokio::test(start_paused = true)]
async fn waiter_follows_replaced_and_cancelled_delays() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("a", ms(50));
    queue.add_after("b", ms(60));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move {
            for _ in 0..2 {
                queue.next().await.unwrap().done();
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

#[tokio::test(start_paused = true)]
async fn len_counts_delayed_keys_only_when_due() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(10));
    assert_eq!((queue.len(), queue.delayed()), (0, 1));
    advance(ms(9)).await;
    assert_eq!((queue.len(), queue.delayed()), (0, 1));
    advance(ms(1)).await;
    assert_eq!((queue.len(), queue.delayed()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn delayed_key_keeps_highest_priority_and_earliest_deadline() {
    let queue = WorkQueue::new();
    queue.add_with("a", after(ms(10), 0));
    queue.add_with("a", after(ms(500), 10));
    queue.add_with("a", after(ms(400), -5));
    advance(ms(10)).await;
    let item = queue.try_next().unwrap();
    assert_eq!((*item.key(), item.priority().value()), ("a", 10));
    item.done();
}

#[test]
fn zero_delay_queues_immediately() {
    let queue = WorkQueue::new();
    queue.add_after("a", Duration::ZERO);
    assert_eq!(process_all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn delay_beyond_the_clock_range_does_not_panic() {
    let queue = WorkQueue::new();
    queue.add_after("never", Duration::MAX);
    queue.add_after("soon", ms(1));
    let item = queue.next().await.unwrap();
    assert_eq!(*item.key(), "soon");
    item.done();
    assert!(timeout(Duration::from_hours(8760), queue.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn due_key_goes_before_a_later_add_without_a_timer() {
    let queue = WorkQueue::new();
    queue.add_after("due", ms(10));
    advance(ms(20)).await;
    queue.add("later");
    assert_eq!(process_all(&queue), ["due", "later"]);
}

#[tokio::test(start_paused = true)]
async fn delay_added_during_processing_counts_from_the_add() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add("a");
    let item = queue.next().await.unwrap();
    queue.add_after("a", ms(30));
    sleep(ms(20)).await;
    item.done();
    assert_eq!((queue.len(), queue.delayed()), (0, 1));
    queue.next().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(30));
}

#[tokio::test(start_paused = true)]
async fn delay_ending_during_processing_runs_again_afterwards() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.next().await.unwrap();
    queue.add_after("a", ms(30));
    sleep(ms(40)).await;
    assert!(item.is_queued_again());
    assert!(queue.try_next().is_none());
    item.done();
    assert_eq!(process_all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn cancel_delay_during_processing_keeps_the_run() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.next().await.unwrap();
    queue.add_after("a", ms(30));
    assert!(queue.cancel_delay(&"a"));
    assert_eq!(queue.running(), 1);
    item.done();
    sleep(ms(100)).await;
    assert!(queue.try_next().is_none());
}
