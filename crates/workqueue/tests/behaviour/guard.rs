//! A key in a hand, and the ways in which it leaves it.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep, timeout};
use windlass_workqueue::{DelayedOnClose, Outcome, Priority, WorkQueue};

use crate::{at, ms, take_all};

/// [196].
#[tokio::test(start_paused = true)]
async fn a_worker_can_see_that_its_key_was_added_again() {
    let queue = WorkQueue::new();
    queue.add("a");
    let taken = queue.take().await.unwrap();
    assert!(!taken.is_queued_again());
    queue.add("b");
    queue.add_after("a", ms(10));
    assert!(
        !taken.is_queued_again(),
        "another key, or a later time, is not it"
    );
    queue.add("a");
    assert!(taken.is_queued_again());
    taken.done();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_has_failed() {
    let queue = WorkQueue::new();
    queue.add("a");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _taken = queue.take().await.unwrap();
            panic!("a bug in the worker");
        }
    });
    assert!(worker.await.unwrap_err().is_panic());
    assert_eq!(
        (queue.running(), queue.delayed(), queue.failures(&"a")),
        (0, 1, 1)
    );
    let start = Instant::now();
    queue.take().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(5));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_cancelled_has_failed() {
    let queue = WorkQueue::new();
    queue.add("a");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let taken = queue.take().await.unwrap();
            sleep(Duration::from_hours(1)).await;
            taken.done();
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
async fn a_key_that_comes_back_keeps_its_priority() {
    let queue = WorkQueue::new();
    queue.add_with("fails", at(-7));
    let _ = queue.try_take().unwrap().fail();
    queue.add_with("again", at(-8));
    queue.try_take().unwrap().requeue_after(ms(5));
    queue.add_with("again at once", at(-9));
    queue.try_take().unwrap().requeue_after(Duration::ZERO);
    queue.add_with("dropped", at(-10));
    let dropped = std::iter::from_fn(|| queue.try_take()).find(|taken| *taken.key() == "dropped");
    drop(dropped.unwrap());
    advance(ms(10)).await;
    for expected in [
        ("fails", -7),
        ("again", -8),
        ("again at once", -9),
        ("dropped", -10),
    ] {
        let taken = queue.take().await.unwrap();
        assert_eq!((*taken.key(), taken.priority().value()), expected);
        taken.done();
    }
}

#[test]
fn a_worker_can_send_its_key_back_at_another_priority() {
    let queue = WorkQueue::new();
    queue.add("a");
    let mut taken = queue.try_take().unwrap();
    taken.set_priority(Priority::LOW);
    taken.requeue_after(Duration::ZERO);
    assert_eq!(
        queue.try_take().map(|taken| (taken.priority(), taken.done()).0),
        Some(Priority::LOW)
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_can_be_asked_for_again_after_a_time() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add("a");
    queue.take().await.unwrap().requeue_after(ms(300));
    assert_eq!((queue.running(), queue.delayed()), (0, 1));
    queue.take().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(300));
}

#[tokio::test(start_paused = true)]
async fn of_the_worker_s_time_and_one_asked_for_meanwhile_the_earlier_counts() {
    for (meanwhile, own) in [(20, 300), (300, 20)] {
        let queue = WorkQueue::new();
        let start = Instant::now();
        queue.add("a");
        let taken = queue.take().await.unwrap();
        queue.add_after("a", ms(meanwhile));
        taken.requeue_after(ms(own));
        queue.take().await.unwrap().done();
        assert_eq!(start.elapsed(), ms(20));
        assert!(timeout(ms(1000), queue.take()).await.is_err());
    }
}

/// However the run ends, an add that came meanwhile is served at once, and once.
#[tokio::test(start_paused = true)]
async fn an_add_during_work_is_served_at_once_however_the_work_ends() {
    let ends: [fn(windlass_workqueue::Taken<&'static str>); 5] = [
        windlass_workqueue::Taken::done,
        windlass_workqueue::Taken::terminal,
        |taken| taken.requeue_after(ms(50)),
        |taken| {
            let _ = taken.fail();
        },
        drop,
    ];
    for end in ends {
        let queue = WorkQueue::new();
        queue.add("a");
        let taken = queue.take().await.unwrap();
        queue.add("a");
        end(taken);
        assert_eq!(take_all(&queue), ["a"]);
        sleep(ms(100)).await;
        assert_eq!(take_all(&queue), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_closed_queue_nothing_comes_back() {
    for fate in [DelayedOnClose::Drop, DelayedOnClose::RunNow, DelayedOnClose::Wait] {
        let queue = WorkQueue::builder().delayed_on_close(fate).build();
        for key in ["fails", "again"] {
            queue.add(key);
        }
        let (fails, again) = (queue.try_take().unwrap(), queue.try_take().unwrap());
        queue.close();
        assert_eq!(fails.fail(), Outcome::Closed);
        again.requeue_after(ms(1));
        assert!(queue.take().await.is_none());
    }
}

#[test]
fn a_key_is_read_through_the_guard() {
    let queue = WorkQueue::new();
    queue.add("name".to_owned());
    let taken = queue.try_take().unwrap();
    assert_eq!((taken.len(), taken.key().as_str()), (4, "name"));
    taken.done();
}
