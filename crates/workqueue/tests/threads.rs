//! Real threads, real time: what the paused clock cannot show is the lock, the wakers and the atomics of the guard.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use windlass_workqueue::{Add, Priority, WorkQueue};

const KEYS: usize = 200;
const PRODUCERS: usize = 50;
const WORKERS: usize = 10;
const ADDS_EACH: usize = 10_000;

/// What the test knows about one key.
#[derive(Default)]
struct Key {
    in_a_hand: AtomicBool,
    /// Counts the adds; a worker that succeeds takes the count to zero before it works.
    owed: AtomicU32,
}

/// 1: fifty producers, ten workers, some of which fail or let go of their key: nothing is lost, nothing is in two hands,
/// and the queue is empty in the end.
#[test]
fn nothing_is_lost_and_nothing_is_in_two_hands() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let queue = WorkQueue::<usize>::builder()
        .rate_limiter(windlass_workqueue::FastSlow::new(
            Duration::from_micros(50),
            Duration::from_millis(1),
            3,
        ))
        .build();
    let keys: Arc<Vec<Key>> = Arc::new((0..KEYS).map(|_| Key::default()).collect());

    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (queue, keys) = (queue.clone(), Arc::clone(&keys));
            runtime.spawn(async move {
                let mut turn = worker;
                loop {
                    turn += 1;
                    // Now and then a take is given up, perhaps just when it is woken.
                    let taken = if turn.is_multiple_of(7) {
                        match tokio::time::timeout(Duration::from_micros(20), queue.take()).await {
                            Ok(taken) => taken,
                            Err(_) => continue,
                        }
                    } else {
                        queue.take().await
                    };
                    let Some(taken) = taken else { break };
                    let key = &keys[*taken];
                    assert!(!key.in_a_hand.swap(true, Ordering::SeqCst), "a key in two hands");
                    // What fails still owes its adds, so the intake does not close before the retry.
                    let fails = turn % 11 < 2;
                    if !fails {
                        key.owed.store(0, Ordering::SeqCst);
                    }
                    if turn.is_multiple_of(5) {
                        tokio::task::yield_now().await;
                    }
                    key.in_a_hand.store(false, Ordering::SeqCst);
                    match turn % 11 {
                        0 => drop(taken),
                        1 => {
                            let _ = taken.fail();
                        }
                        _ => taken.done(),
                    }
                }
            })
        })
        .collect();

    let start = Arc::new(Barrier::new(PRODUCERS));
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let (queue, keys, start) = (queue.clone(), Arc::clone(&keys), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                for n in 0..ADDS_EACH {
                    let key = (producer * 31 + n * 17) % KEYS;
                    keys[key].owed.fetch_add(1, Ordering::SeqCst);
                    let priority = Priority::new(i32::try_from(n % 3).unwrap());
                    let after = Duration::from_micros(if n.is_multiple_of(10) { 30 } else { 0 });
                    queue.add_with(
                        key,
                        Add {
                            priority,
                            after,
                            ..Add::default()
                        },
                    );
                }
            })
        })
        .collect();
    for producer in producers {
        producer.join().unwrap();
    }
    // Delays and retries must run out before the intake closes, since closing drops them.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while keys.iter().any(|key| key.owed.load(Ordering::SeqCst) > 0) {
        assert!(std::time::Instant::now() < deadline, "keys are stuck: {queue:?}");
        std::thread::yield_now();
    }
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(20), queue.drain())
            .await
            .expect("the drain ends");
        for worker in workers {
            tokio::time::timeout(Duration::from_secs(20), worker)
                .await
                .expect("every worker ends")
                .unwrap();
        }
    });
    assert_eq!((queue.len(), queue.delayed(), queue.running()), (0, 0, 0));
    for (name, key) in keys.iter().enumerate() {
        assert_eq!(key.owed.load(Ordering::SeqCst), 0, "an add of {name} was lost");
    }
}
