//! One hand per key, adds that collapse, order of arrival.

use tokio::time::timeout;
use windlass_workqueue::WorkQueue;

use crate::{ms, take_all};

/// 6, 29.
#[tokio::test(start_paused = true)]
async fn many_adds_before_a_take_are_one_take() {
    let queue = WorkQueue::new();
    for _ in 0..5 {
        queue.add("a");
    }
    assert_eq!(take_all(&queue), ["a"]);
}

/// 4.
#[test]
fn the_length_counts_a_key_once_and_only_while_it_can_be_taken() {
    let queue = WorkQueue::new();
    assert!(queue.is_empty());
    for key in ["a", "b", "a"] {
        queue.add(key);
    }
    assert_eq!((queue.len(), queue.running()), (2, 0));
    let taken = queue.try_take().unwrap();
    queue.add("a");
    assert_eq!((queue.len(), queue.running()), (1, 1));
    taken.done();
    assert_eq!((queue.len(), queue.running()), (2, 0));
}

/// 5, 28, 30.
#[tokio::test(start_paused = true)]
async fn an_add_during_work_runs_again_after_it() {
    let queue = WorkQueue::new();
    queue.add("a");
    let first = queue.take().await.unwrap();
    queue.add("a");
    assert!(queue.try_take().is_none(), "a key must not be in two hands");
    first.done();
    let second = queue
        .try_take()
        .expect("the add during the work must not be lost");
    second.done();
    assert!(queue.try_take().is_none());
}

/// 7.
#[tokio::test(start_paused = true)]
async fn many_adds_during_work_are_one_more_run_and_other_workers_wait_for_it() {
    let queue = WorkQueue::new();
    queue.add("a");
    let first = queue.take().await.unwrap();
    queue.add("a");
    queue.add("a");
    let other = tokio::spawn({
        let queue = queue.clone();
        async move { queue.take().await.unwrap().done() }
    });
    tokio::time::sleep(ms(1000)).await;
    assert!(!other.is_finished());
    first.done();
    timeout(ms(1), other)
        .await
        .expect("the end of the work must wake the other worker")
        .unwrap();
    assert!(queue.try_take().is_none());
}

/// 3.
#[tokio::test(start_paused = true)]
async fn a_worker_may_add_the_key_in_its_own_hand() {
    let queue = WorkQueue::new();
    queue.add("a");
    for _ in 0..3 {
        let taken = queue.take().await.unwrap();
        queue.add(*taken.key());
        taken.done();
    }
    assert_eq!(queue.len(), 1);
}

/// 2.
#[tokio::test(start_paused = true)]
async fn adds_to_a_closed_queue_are_never_delivered() {
    let queue = WorkQueue::new();
    queue.add("before");
    queue.close();
    queue.add("after");
    queue.add_after("after", ms(1));
    queue.add_rate_limited("after");
    assert_eq!(take_all(&queue), ["before"]);
    assert!(queue.take().await.is_none());
    assert_eq!(queue.delayed(), 0);
}

/// 27.
#[test]
fn keys_come_in_the_order_of_their_first_add() {
    let queue = WorkQueue::new();
    for key in [3, 1, 2, 1, 3] {
        queue.add(key);
    }
    assert_eq!(take_all(&queue), [3, 1, 2]);
}

#[test]
fn a_key_added_during_work_goes_behind_those_that_waited_meanwhile() {
    let queue = WorkQueue::new();
    queue.add("a");
    let taken = queue.try_take().unwrap();
    queue.add("a");
    queue.add("b");
    taken.done();
    assert_eq!(take_all(&queue), ["b", "a"]);
}

/// 14: there is nothing to stop, because nothing was started.
#[tokio::test(start_paused = true)]
async fn a_queue_owns_no_task() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(5));
    queue.add_rate_limited("b");
    queue.take().await.unwrap().done();
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[test]
fn a_queue_can_be_shown() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let taken = queue.try_take().unwrap();
    assert_eq!(
        format!("{queue:?}"),
        "WorkQueue { queued: 1, delayed: 0, running: 1, closed: false }"
    );
    assert_eq!(
        format!("{taken:?}"),
        r#"Taken { key: "a", priority: Priority(0), .. }"#
    );
    taken.done();
}
