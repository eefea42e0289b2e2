//! The guard of a key being processed, and its outcomes.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep, timeout};
use windlass_workqueue::{DelayedOnClose, Priority, RetryDecision, WorkQueue};

use crate::behaviour::{ms, process_all, with_priority};

#[tokio::test(start_paused = true)]
async fn is_queued_again_reports_adds_during_processing() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.next().await.unwrap();
    assert!(!item.is_queued_again());
    queue.add("b");
    queue.add_after("a", ms(10));
    assert!(
        !item.is_queued_again(),
        "neither another key nor a delayed add counts"
    );
    queue.add("a");
    assert!(item.is_queued_again());
    item.done();
}

#[tokio::test(start_paused = true)]
async fn panicking_worker_counts_as_failure() {
    let queue = WorkQueue::new();
    queue.add("a");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _taken = queue.next().await.unwrap();
            panic!("a bug in the worker");
        }
    });
    assert!(worker.await.unwrap_err().is_panic());
    assert_eq!(
        (queue.running(), queue.delayed(), queue.failures(&"a")),
        (0, 1, 1)
    );
    let start = Instant::now();
    queue.next().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(5));
}

#[tokio::test(start_paused = true)]
async fn cancelled_worker_counts_as_failure() {
    let queue = WorkQueue::new();
    queue.add("a");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let item = queue.next().await.unwrap();
            sleep(Duration::from_hours(1)).await;
            item.done();
        }
    });
    sleep(ms(1)).await;
    assert_eq!(queue.running(), 1);
    worker.abort();
    assert!(worker.await.unwrap_err().is_cancelled());
    assert_eq!(
        (queue.running(), queue.delayed(), queue.failures(&"a")),
        (0, 1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn retries_and_requeues_keep_the_priority() {
    let queue = WorkQueue::new();
    queue.add_with("fails", with_priority(-7));
    let _ = queue.try_next().unwrap().fail();
    queue.add_with("again", with_priority(-8));
    queue.try_next().unwrap().requeue_after(ms(5));
    queue.add_with("again at once", with_priority(-9));
    queue.try_next().unwrap().requeue_after(Duration::ZERO);
    queue.add_with("dropped", with_priority(-10));
    let dropped = std::iter::from_fn(|| queue.try_next()).find(|item| *item.key() == "dropped");
    drop(dropped.unwrap());
    advance(ms(10)).await;
    for expected in [
        ("fails", -7),
        ("again", -8),
        ("again at once", -9),
        ("dropped", -10),
    ] {
        let item = queue.next().await.unwrap();
        assert_eq!((*item.key(), item.priority().value()), expected);
        item.done();
    }
}

#[test]
fn set_priority_applies_to_requeue() {
    let queue = WorkQueue::new();
    queue.add("a");
    let mut item = queue.try_next().unwrap();
    item.set_priority(Priority::LOW);
    item.requeue_after(Duration::ZERO);
    assert_eq!(
        queue.try_next().map(|item| (item.priority(), item.done()).0),
        Some(Priority::LOW)
    );
}

#[tokio::test(start_paused = true)]
async fn requeue_after_delays_the_key() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add("a");
    queue.next().await.unwrap().requeue_after(ms(300));
    assert_eq!((queue.running(), queue.delayed()), (0, 1));
    queue.next().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(300));
}

#[tokio::test(start_paused = true)]
async fn requeue_after_and_delayed_add_keep_the_earlier_deadline() {
    for (meanwhile, own) in [(20, 300), (300, 20)] {
        let queue = WorkQueue::new();
        let start = Instant::now();
        queue.add("a");
        let item = queue.next().await.unwrap();
        queue.add_after("a", ms(meanwhile));
        item.requeue_after(ms(own));
        queue.next().await.unwrap().done();
        assert_eq!(start.elapsed(), ms(20));
        assert!(timeout(ms(1000), queue.next()).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn add_during_processing_runs_immediately_for_every_outcome() {
    let ends: [fn(windlass_workqueue::WorkItem<&'static str>); 5] = [
        windlass_workqueue::WorkItem::done,
        windlass_workqueue::WorkItem::give_up,
        |item| item.requeue_after(ms(50)),
        |item| {
            let _ = item.fail();
        },
        drop,
    ];
    for end in ends {
        let queue = WorkQueue::new();
        queue.add("a");
        let item = queue.next().await.unwrap();
        queue.add("a");
        end(item);
        assert_eq!(process_all(&queue), ["a"]);
        sleep(ms(100)).await;
        assert_eq!(process_all(&queue), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn closed_queue_neither_retries_nor_requeues() {
    for policy in [DelayedOnClose::Drop, DelayedOnClose::RunNow, DelayedOnClose::Wait] {
        let queue = WorkQueue::builder().delayed_on_close(policy).build();
        for key in ["fails", "again"] {
            queue.add(key);
        }
        let (fails, again) = (queue.try_next().unwrap(), queue.try_next().unwrap());
        queue.close();
        assert_eq!(fails.fail(), RetryDecision::Closed);
        again.requeue_after(ms(1));
        assert!(queue.next().await.is_none());
    }
}

#[test]
fn work_item_derefs_to_the_key() {
    let queue = WorkQueue::new();
    queue.add("name".to_owned());
    let item = queue.try_next().unwrap();
    assert_eq!((item.len(), item.key().as_str()), (4, "name"));
    item.done();
}
