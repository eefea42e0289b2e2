//! Closing and draining.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use windlass_workqueue::{DelayedOnClose, WorkQueue};

use crate::behaviour::{ms, process_all};

/// Spawns a worker that needs 10 ms for each key.
fn worker(queue: &WorkQueue<&'static str>) -> tokio::task::JoinHandle<Vec<&'static str>> {
    let queue = queue.clone();
    tokio::spawn(async move {
        let mut worked = Vec::new();
        while let Some(item) = queue.next().await {
            sleep(ms(10)).await;
            worked.push(*item.key());
            item.done();
        }
        worked
    })
}

/// Drains the queue; fails, rather than hangs, if the drain never ends.
async fn drained(queue: &WorkQueue<&'static str>) {
    timeout(Duration::from_hours(24), queue.drain())
        .await
        .expect("the drain ends");
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_queued_and_running_keys() {
    let queue = WorkQueue::new();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    let start = Instant::now();
    let worker = worker(&queue);
    drained(&queue).await;
    assert_eq!(start.elapsed(), ms(30));
    assert_eq!(worker.await.unwrap(), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn drain_without_workers_waits_for_queued_keys() {
    let queue = WorkQueue::new();
    queue.add("a");
    assert!(timeout(ms(1000), queue.drain()).await.is_err());
    assert_eq!(process_all(&queue), ["a"]);
    timeout(ms(1), queue.drain()).await.expect("the queue is idle");
}

#[tokio::test(start_paused = true)]
async fn close_does_not_wait_for_running_keys() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.next().await.unwrap();
    queue.close();
    assert!(queue.is_closed());
    assert!(
        queue.next().await.is_none(),
        "`next` does not wait for other workers"
    );
    item.done();
}

/// In client-go a second shutdown ends a drain early. Here the caller ends it by dropping the future.
#[tokio::test(start_paused = true)]
async fn cancelled_drain_leaves_the_queue_closed_and_intact() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let item = queue.next().await.unwrap();
    assert!(timeout(ms(100), queue.drain()).await.is_err());
    assert!(queue.is_closed());
    item.done();
    assert_eq!(process_all(&queue), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn close_still_hands_out_keys_added_during_processing() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.next().await.unwrap();
    queue.add("a");
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { drained(&queue).await }
    });
    let other = worker(&queue);
    sleep(ms(100)).await;
    assert!(!draining.is_finished());
    assert!(
        !other.is_finished(),
        "a worker must not stop while a key will be queued again"
    );
    item.done();
    assert_eq!(other.await.unwrap(), ["a"]);
    timeout(ms(1), draining).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn close_and_drain_are_idempotent() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.close();
    queue.close();
    let worker = worker(&queue);
    tokio::join!(drained(&queue), drained(&queue), async { queue.close() });
    drained(&queue).await;
    queue.close();
    assert_eq!(worker.await.unwrap(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn close_wakes_all_waiters() {
    let queue = WorkQueue::<u8>::new();
    // One of the waiters has a timer for this key.
    queue.add_after(1, Duration::from_hours(1));
    let takes: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.next().await.is_none() })
        })
        .collect();
    sleep(ms(1)).await;
    queue.close();
    for take in takes {
        assert!(timeout(ms(1), take).await.expect("woken").unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn drain_at_any_time_ends_every_worker() {
    for closed_after in 0..20 {
        let queue = WorkQueue::new();
        let workers: Vec<_> = (0..3).map(|_| worker(&queue)).collect();
        for key in ["a", "b", "c", "d", "e", "f"] {
            queue.add(key);
            queue.add_after(key, ms(5));
        }
        sleep(ms(closed_after)).await;
        timeout(Duration::from_secs(1), queue.drain())
            .await
            .expect("no deadlock");
        let mut worked = Vec::new();
        for worker in workers {
            worked.extend(worker.await.unwrap());
        }
        worked.sort_unstable();
        worked.dedup();
        assert_eq!(worked, ["a", "b", "c", "d", "e", "f"]);
    }
}

#[tokio::test(start_paused = true)]
async fn delayed_on_close_decides_about_delayed_keys() {
    for (policy, expected, elapsed) in [
        (DelayedOnClose::Drop, vec!["now"], 10),
        (DelayedOnClose::RunNow, vec!["now", "soon", "late"], 30),
        (DelayedOnClose::Wait, vec!["now", "soon", "late"], 510),
    ] {
        let queue = WorkQueue::builder().delayed_on_close(policy).build();
        queue.add("now");
        queue.add_after("late", ms(500));
        queue.add_after("soon", ms(100));
        let start = Instant::now();
        let worker = worker(&queue);
        drained(&queue).await;
        assert_eq!(
            (worker.await.unwrap(), start.elapsed()),
            (expected, ms(elapsed)),
            "{policy:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn delayed_on_close_applies_to_delays_added_during_processing() {
    for (policy, expected) in [
        (DelayedOnClose::Drop, 0),
        (DelayedOnClose::RunNow, 1),
        (DelayedOnClose::Wait, 1),
    ] {
        let queue = WorkQueue::builder().delayed_on_close(policy).build();
        queue.add("a");
        let item = queue.next().await.unwrap();
        queue.add_after("a", ms(100));
        queue.close();
        item.done();
        assert_eq!(worker(&queue).await.unwrap().len(), expected, "{policy:?}");
        drained(&queue).await;
    }
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_last_delay_ends_drain_and_workers() {
    let queue = WorkQueue::builder()
        .delayed_on_close(DelayedOnClose::Wait)
        .build();
    queue.add_after("a", Duration::from_hours(1));
    let worker = worker(&queue);
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { drained(&queue).await }
    });
    sleep(ms(1)).await;
    assert!(!draining.is_finished() && !worker.is_finished());
    assert!(queue.cancel_delay(&"a"));
    timeout(ms(1), draining).await.unwrap().unwrap();
    assert!(timeout(ms(1), worker).await.unwrap().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn panic_of_the_last_worker_ends_the_drain() {
    let queue = WorkQueue::new();
    queue.add("a");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _taken = queue.next().await;
            sleep(ms(10)).await;
            panic!("a bug in the worker");
        }
    });
    sleep(ms(1)).await;
    timeout(ms(10), queue.drain())
        .await
        .expect("the failed key is not retried on a closed queue");
    assert!(worker.await.unwrap_err().is_panic());
}
