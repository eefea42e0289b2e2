//! Memory use and allocations. A single test, so that no other test allocates at the same time.

use std::alloc::System;
use std::sync::{Arc, Weak};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use windlass_workqueue::{AddOptions, Exponential, Priority, WorkQueue};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[tokio::test(start_paused = true)]
async fn memory() {
    removed_keys_are_dropped();
    shrinking_queue_frees_its_memory().await;
    steady_state_does_not_allocate().await;
}

fn removed_keys_are_dropped() {
    let queue = WorkQueue::new();
    let key = |name: &str| -> (Arc<str>, Weak<str>) {
        let key: Arc<str> = name.into();
        let weak = Arc::downgrade(&key);
        (key, weak)
    };
    let (done, done_weak) = key("done");
    queue.add(done);
    queue.try_next().unwrap().done();
    assert!(done_weak.upgrade().is_none());

    let (cancelled, cancelled_weak) = key("cancelled");
    queue.add_after(Arc::clone(&cancelled), std::time::Duration::from_mins(1));
    queue.add_rate_limited(Arc::clone(&cancelled));
    assert!(queue.cancel_delay(&cancelled));
    drop(cancelled);
    assert!(
        cancelled_weak.upgrade().is_none(),
        "its failures do not keep it either"
    );

    let (duplicate, duplicate_weak) = key("duplicate");
    queue.add("duplicate".into());
    queue.add(duplicate);
    assert!(
        duplicate_weak.upgrade().is_none(),
        "the first copy of a key is enough"
    );

    let (closed, closed_weak) = key("closed");
    queue.add_after(closed, std::time::Duration::from_mins(1));
    queue.close();
    assert!(closed_weak.upgrade().is_none());
}

async fn shrinking_queue_frees_its_memory() {
    const KEYS: u32 = 200_000;
    let queue = WorkQueue::<u32>::new();
    let region = Region::new(ALLOCATOR);
    let held = || {
        let change = region.change();
        isize::try_from(change.bytes_allocated).unwrap() + change.bytes_reallocated
            - isize::try_from(change.bytes_deallocated).unwrap()
    };
    for key in 0..KEYS {
        let priority = if key % 2 == 0 {
            Priority::NORMAL
        } else {
            Priority::LOW
        };
        let after = std::time::Duration::from_secs(u64::from(key % 5));
        queue.add_with(
            key,
            AddOptions {
                priority,
                after,
                ..AddOptions::default()
            },
        );
    }
    let full = held();
    // A few keys that stay: one running, one delayed, one queued.
    let hand = queue.try_next().unwrap();
    queue.add_after(KEYS, std::time::Duration::from_hours(1));
    for _ in 0..KEYS - 1 {
        queue.next().await.unwrap().done();
    }
    queue.add(KEYS + 1);
    let left = held();
    assert!(full > 10_000_000, "the allocator's statistics work: {full}");
    assert!(left < full / 20, "{left} of {full} bytes are still held");
    // Compaction kept their states.
    assert_eq!((queue.len(), queue.delayed(), queue.running()), (1, 1, 1));
    hand.done();
    for expected in [KEYS + 1, KEYS] {
        let item = queue.next().await.unwrap();
        assert_eq!(*item, expected);
        item.done();
    }
}

async fn steady_state_does_not_allocate() {
    let queue = WorkQueue::<u64>::builder()
        .rate_limiter(Exponential::default())
        .build();
    let round = async || {
        for key in 0..1000 {
            let priority = if key % 3 == 0 {
                Priority::LOW
            } else {
                Priority::NORMAL
            };
            queue.add_with(
                key,
                AddOptions {
                    priority,
                    ..AddOptions::default()
                },
            );
        }
        for key in 0..1000 {
            let item = queue.next().await.unwrap();
            match key % 4 {
                0 => {
                    let _ = item.fail();
                }
                1 => item.requeue_after(std::time::Duration::from_millis(3)),
                _ => item.done(),
            }
        }
        for _ in 0..500 {
            queue.next().await.unwrap().done();
        }
        assert_eq!(queue.delayed(), 0);
    };
    round().await;
    round().await;
    let region = Region::new(ALLOCATOR);
    round().await;
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");
}
