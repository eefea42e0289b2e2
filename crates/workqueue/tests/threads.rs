//! Real threads and real time, for what a paused clock cannot test: the lock, the wakers and the guard's atomics.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use windlass_workqueue::{AddOptions, Priority, WorkQueue};

const KEYS: usize = 200;
const PRODUCERS: usize = 50;
const WORKERS: usize = 10;
const ADDS_EACH: usize = 10_000;

/// The test's state of one key.
#[derive(Default)]
struct Key {
    processing: AtomicBool,
    /// Adds not yet processed; a worker that will succeed sets it to zero before it starts.
    unprocessed_adds: AtomicU32,
}

/// Fifty producers, ten workers, some of which fail or drop their guard: no key is lost, no key is processed twice at
/// the same time, and the queue is empty in the end.
#[test]
fn concurrent_workers_lose_no_key_and_share_none() {
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
            runtime.spawn(work(worker, queue, keys))
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
                    keys[key].unprocessed_adds.fetch_add(1, Ordering::SeqCst);
                    let priority = Priority::new(i32::try_from(n % 3).unwrap());
                    let after = Duration::from_micros(if n.is_multiple_of(10) { 30 } else { 0 });
                    queue.add_with(
                        key,
                        AddOptions {
                            priority,
                            after,
                            ..AddOptions::default()
                        },
                    );
                }
            })
        })
        .collect();
    for producer in producers {
        producer.join().unwrap();
    }
    // Delays and retries must end before the queue is closed, since closing drops them.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while keys
        .iter()
        .any(|key| key.unprocessed_adds.load(Ordering::SeqCst) > 0)
    {
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
        assert_eq!(
            key.unprocessed_adds.load(Ordering::SeqCst),
            0,
            "an add of {name} was lost"
        );
    }
}

/// Processes keys until the queue is drained. Some `next` calls are cancelled, some runs fail, some guards are dropped.
async fn work(worker: usize, queue: WorkQueue<usize>, keys: Arc<Vec<Key>>) {
    let mut turn = worker;
    loop {
        turn += 1;
        // Some `next` calls are cancelled, perhaps just when they are woken.
        let item = if turn.is_multiple_of(7) {
            match tokio::time::timeout(Duration::from_micros(20), queue.next()).await {
                Ok(item) => item,
                Err(_) => continue,
            }
        } else {
            queue.next().await
        };
        let Some(item) = item else { break };
        let key = &keys[*item];
        assert!(
            !key.processing.swap(true, Ordering::SeqCst),
            "two workers process the same key"
        );
        // A failed run leaves its adds unprocessed, so the queue is not closed before the retry.
        let fails = turn % 11 < 2;
        if !fails {
            key.unprocessed_adds.store(0, Ordering::SeqCst);
        }
        if turn.is_multiple_of(5) {
            tokio::task::yield_now().await;
        }
        key.processing.store(false, Ordering::SeqCst);
        match turn % 11 {
            0 => drop(item),
            1 => {
                let _ = item.fail();
            }
            _ => item.done(),
        }
    }
}
