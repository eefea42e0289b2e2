//! No more intake, and waiting for what is left.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use windlass_workqueue::{DelayedOnClose, WorkQueue};

use crate::{ms, take_all};

/// A worker that needs 10 ms for each key.
fn worker(queue: &WorkQueue<&'static str>) -> tokio::task::JoinHandle<Vec<&'static str>> {
    let queue = queue.clone();
    tokio::spawn(async move {
        let mut worked = Vec::new();
        while let Some(taken) = queue.take().await {
            sleep(ms(10)).await;
            worked.push(*taken.key());
            taken.done();
        }
        worked
    })
}

/// A drain that fails, rather than hangs, if its end is never told.
async fn drained(queue: &WorkQueue<&'static str>) {
    timeout(Duration::from_hours(24), queue.drain())
        .await
        .expect("the drain ends");
}

/// 8, [179].
#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_is_queued_and_what_is_in_hand() {
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

/// [179]: also if nobody has taken anything yet.
#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_queued_keys_that_no_worker_has_taken() {
    let queue = WorkQueue::new();
    queue.add("a");
    assert!(timeout(ms(1000), queue.drain()).await.is_err());
    assert_eq!(take_all(&queue), ["a"]);
    timeout(ms(1), queue.drain()).await.expect("now it is idle");
}

/// 9.
#[tokio::test(start_paused = true)]
async fn closing_does_not_wait() {
    let queue = WorkQueue::new();
    queue.add("a");
    let taken = queue.take().await.unwrap();
    queue.close();
    assert!(queue.is_closed());
    assert!(
        queue.take().await.is_none(),
        "a take does not wait for others' work"
    );
    taken.done();
}

/// 10, bettered: in client-go a second shutdown cuts a drain short. Here the one who waits decides, by dropping it.
#[tokio::test(start_paused = true)]
async fn a_drain_that_is_given_up_leaves_the_queue_closed_and_intact() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let taken = queue.take().await.unwrap();
    assert!(timeout(ms(100), queue.drain()).await.is_err());
    assert!(queue.is_closed());
    taken.done();
    assert_eq!(take_all(&queue), ["b"]);
}

/// 11.
#[tokio::test(start_paused = true)]
async fn a_key_added_during_work_is_handed_out_once_more_before_the_end() {
    let queue = WorkQueue::new();
    queue.add("a");
    let taken = queue.take().await.unwrap();
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
        "a worker must not leave while a key will come back"
    );
    taken.done();
    assert_eq!(other.await.unwrap(), ["a"]);
    timeout(ms(1), draining).await.unwrap().unwrap();
}

/// [179].
#[tokio::test(start_paused = true)]
async fn closing_and_draining_again_is_harmless() {
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

/// 36.
#[tokio::test(start_paused = true)]
async fn closing_wakes_every_take_that_waits() {
    let queue = WorkQueue::<u8>::new();
    // One of them watches the clock for this one.
    queue.add_after(1, Duration::from_hours(1));
    let takes: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.take().await.is_none() })
        })
        .collect();
    sleep(ms(1)).await;
    queue.close();
    for take in takes {
        assert!(timeout(ms(1), take).await.expect("woken").unwrap());
    }
}

/// 45.
#[tokio::test(start_paused = true)]
async fn closing_while_keys_are_handed_out_ends_every_worker() {
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
async fn delayed_keys_have_the_fate_that_the_option_says() {
    for (fate, expected, elapsed) in [
        (DelayedOnClose::Drop, vec!["now"], 10),
        (DelayedOnClose::RunNow, vec!["now", "soon", "late"], 30),
        (DelayedOnClose::Wait, vec!["now", "soon", "late"], 510),
    ] {
        let queue = WorkQueue::builder().delayed_on_close(fate).build();
        queue.add("now");
        queue.add_after("late", ms(500));
        queue.add_after("soon", ms(100));
        let start = Instant::now();
        let worker = worker(&queue);
        drained(&queue).await;
        assert_eq!(
            (worker.await.unwrap(), start.elapsed()),
            (expected, ms(elapsed)),
            "{fate:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_asked_for_during_work_has_the_same_fate() {
    for (fate, expected) in [
        (DelayedOnClose::Drop, 0),
        (DelayedOnClose::RunNow, 1),
        (DelayedOnClose::Wait, 1),
    ] {
        let queue = WorkQueue::builder().delayed_on_close(fate).build();
        queue.add("a");
        let taken = queue.take().await.unwrap();
        queue.add_after("a", ms(100));
        queue.close();
        taken.done();
        assert_eq!(worker(&queue).await.unwrap().len(), expected, "{fate:?}");
        drained(&queue).await;
    }
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_last_delay_of_a_closed_queue_ends_the_drain_and_the_workers() {
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
async fn the_last_hand_ends_the_drain_also_by_a_panic() {
    let queue = WorkQueue::new();
    queue.add("a");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _taken = queue.take().await;
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
