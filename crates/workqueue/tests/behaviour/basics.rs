//! Deduplication, one worker per key, order of arrival.

use tokio::time::timeout;
use windlass_workqueue::WorkQueue;

use crate::behaviour::{ms, process_all};

#[tokio::test(start_paused = true)]
async fn repeated_adds_are_processed_once() {
    let queue = WorkQueue::new();
    for _ in 0..5 {
        queue.add("a");
    }
    assert_eq!(process_all(&queue), ["a"]);
}

#[test]
fn len_counts_each_queued_key_once() {
    let queue = WorkQueue::new();
    assert!(queue.is_empty());
    for key in ["a", "b", "a"] {
        queue.add(key);
    }
    assert_eq!((queue.len(), queue.running()), (2, 0));
    let item = queue.try_next().unwrap();
    queue.add("a");
    assert_eq!((queue.len(), queue.running()), (1, 1));
    item.done();
    assert_eq!((queue.len(), queue.running()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn add_during_processing_runs_again_afterwards() {
    let queue = WorkQueue::new();
    queue.add("a");
    let first = queue.next().await.unwrap();
    queue.add("a");
    assert!(
        queue.try_next().is_none(),
        "two workers must not process the same key"
    );
    first.done();
    let second = queue
        .try_next()
        .expect("an add during processing must not be lost");
    second.done();
    assert!(queue.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn repeated_adds_during_processing_run_once_more() {
    let queue = WorkQueue::new();
    queue.add("a");
    let first = queue.next().await.unwrap();
    queue.add("a");
    queue.add("a");
    let other = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await.unwrap().done() }
    });
    tokio::time::sleep(ms(1000)).await;
    assert!(!other.is_finished());
    first.done();
    timeout(ms(1), other)
        .await
        .expect("the end of the run must wake the other worker")
        .unwrap();
    assert!(queue.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn worker_may_add_the_key_it_processes() {
    let queue = WorkQueue::new();
    queue.add("a");
    for _ in 0..3 {
        let item = queue.next().await.unwrap();
        queue.add(*item.key());
        item.done();
    }
    assert_eq!(queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn closed_queue_ignores_adds() {
    let queue = WorkQueue::new();
    queue.add("before");
    queue.close();
    queue.add("after");
    queue.add_after("after", ms(1));
    queue.add_rate_limited("after");
    assert_eq!(process_all(&queue), ["before"]);
    assert!(queue.next().await.is_none());
    assert_eq!(queue.delayed(), 0);
}

#[test]
fn keys_are_processed_in_order_of_first_add() {
    let queue = WorkQueue::new();
    for key in [3, 1, 2, 1, 3] {
        queue.add(key);
    }
    assert_eq!(process_all(&queue), [3, 1, 2]);
}

#[test]
fn key_added_during_processing_goes_to_the_end() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.try_next().unwrap();
    queue.add("a");
    queue.add("b");
    item.done();
    assert_eq!(process_all(&queue), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn queue_spawns_no_tasks() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(5));
    queue.add_rate_limited("b");
    queue.next().await.unwrap().done();
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[test]
fn debug_output_shows_state() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let item = queue.try_next().unwrap();
    assert_eq!(
        format!("{queue:?}"),
        "WorkQueue { queued: 1, delayed: 0, running: 1, closed: false }"
    );
    assert_eq!(
        format!("{item:?}"),
        r#"WorkItem { key: "a", priority: Priority(0), .. }"#
    );
    item.done();
}
