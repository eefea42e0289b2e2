//! Failures, rate limits, and retry limits.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, advance, sleep};
use windlass_workqueue::{
    AddOptions, DefaultRateLimiter, Exponential, FastSlow, MaxDelay, MaxOf, RateLimiter, RetryDecision,
    TokenBucket, WorkQueue,
};

use crate::behaviour::ms;

/// The limiter's delays for these failure counts of one key.
fn delays(mut limiter: impl RateLimiter<()>, failures: std::ops::Range<u32>) -> Vec<Duration> {
    let now = Instant::now();
    failures
        .map(|failures| limiter.delay(&(), failures, now))
        .collect()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn failures_double_the_delay_and_forget_resets_them() {
    let limiter = Exponential::new(ms(1), secs(1));
    assert_eq!(delays(limiter.clone(), 0..5), [1, 2, 4, 8, 16].map(ms));

    let queue = WorkQueue::builder().rate_limiter(limiter).build();
    for _ in 0..5 {
        queue.add_rate_limited("a");
    }
    queue.add_rate_limited("b");
    assert_eq!(
        (queue.failures(&"a"), queue.failures(&"b"), queue.failures(&"c")),
        (5, 1, 0)
    );
    queue.forget(&"a");
    queue.forget(&"unknown");
    assert_eq!((queue.failures(&"a"), queue.failures(&"b")), (0, 1));
}

/// An add ends the backoff; a worker that finds nothing to do restores it.
#[tokio::test(start_paused = true)]
async fn back_off_waits_again_without_counting_a_failure() {
    let queue = WorkQueue::builder()
        .rate_limiter(Exponential::new(secs(1), secs(60)))
        .max_retries(2)
        .build();
    queue.add("a");
    for _ in 0..2 {
        queue.next().await.expect("a key").fail();
    }
    queue.add("a");
    let item = queue.try_next().expect("the add ends the backoff");
    assert_eq!(item.back_off(), Some(secs(2)));
    assert_eq!(queue.failures(&"a"), 2);
    let start = Instant::now();
    let item = queue.next().await.expect("a key");
    assert_eq!(start.elapsed(), secs(2));
    assert!(item.is_last_attempt());
    item.fail();
    queue.add("a");
    let item = queue.try_next().expect("a key");
    assert_eq!(
        item.back_off(),
        None,
        "it was dropped, and its failures forgotten"
    );
    assert!(!queue.is_pending(&"a"));
}

#[test]
fn exponential_never_overflows() {
    let default = delays(Exponential::default(), 0..2000);
    assert_eq!(default[..4], [5, 10, 20, 40].map(ms));
    assert_eq!(
        (default[17], default[18], default[1999]),
        (ms(655_360), secs(1000), secs(1000))
    );
    for limiter in [
        Exponential::new(Duration::from_nanos(1), Duration::MAX),
        Exponential::new(Duration::MAX, Duration::MAX).jitter(1e300),
        Exponential::new(secs(60), secs(5)),
    ] {
        let all = delays(limiter, 0..2000);
        assert!(all.is_sorted(), "a delay that shrinks has overflowed");
    }
    assert_eq!(
        delays(Exponential::new(Duration::ZERO, secs(5)), 0..3),
        [Duration::ZERO; 3]
    );
    assert_eq!(delays(Exponential::new(secs(60), secs(5)), 0..1), [secs(5)]);
    assert_eq!(
        delays(Exponential::default(), u32::MAX - 1..u32::MAX),
        [secs(1000)]
    );
}

#[test]
fn jitter_adds_up_to_its_fraction_also_at_the_maximum() {
    let limiter = Exponential::new(secs(1), secs(8)).jitter(0.5);
    let (first, second) = (
        delays(limiter.clone().seed(1), 0..100),
        delays(limiter.clone().seed(2), 0..100),
    );
    for (n, delay) in first.iter().enumerate() {
        let plain = secs(1 << n.min(3));
        assert!((plain..plain * 3 / 2).contains(delay), "{delay:?}");
    }
    let distinct: std::collections::HashSet<_> = first[3..].iter().collect();
    assert!(distinct.len() > 90);
    assert_ne!(first, second);
    assert_eq!(
        first,
        delays(limiter.seed(1), 0..100),
        "a seed makes it reproducible"
    );
    assert_eq!(delays(Exponential::default().jitter(f64::NAN), 0..1), [ms(5)]);
    assert_eq!(delays(Exponential::default().jitter(-1.0), 0..1), [ms(5)]);
}

#[tokio::test(start_paused = true)]
async fn token_bucket_allows_a_burst_then_a_steady_rate() {
    let mut bucket = TokenBucket::new(10.0, 3);
    let mut ask = || bucket.delay(&"any key", 0, Instant::now());
    assert_eq!([ask(), ask(), ask(), ask(), ask()], [0, 0, 0, 100, 200].map(ms));
    advance(ms(250)).await;
    // Two and a half tokens were refilled; two of them pay for the turns assigned above.
    assert_eq!([ask(), ask()], [ms(50), ms(150)]);
    advance(secs(3600)).await;
    assert_eq!(
        [ask(), ask(), ask(), ask()],
        [0, 0, 0, 100].map(ms),
        "it never holds more than the burst"
    );
}

#[test]
fn token_bucket_accepts_any_rate() {
    assert_eq!(
        delays(TokenBucket::new(f64::INFINITY, 0), 0..2),
        [Duration::ZERO; 2]
    );
    for never in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
        let all = delays(TokenBucket::new(never, 1), 0..3);
        assert_eq!(all[0], Duration::ZERO);
        assert!(
            all[1] > secs(3_000_000_000) && all[2] > all[1],
            "{never}: {all:?}"
        );
    }
    // Turns assigned beyond the clock's range.
    let mut bucket = TokenBucket::new(0.0, u32::MAX);
    let now = Instant::now();
    let last = (0..100_000).map(|_| bucket.delay(&(), 0, now)).last();
    assert_eq!(last, Some(Duration::ZERO));
}

#[test]
fn fast_slow_switches_after_the_first_failures() {
    assert_eq!(
        delays(FastSlow::new(ms(5), secs(10), 3), 0..5),
        [ms(5), ms(5), ms(5), secs(10), secs(10)]
    );
}

#[test]
fn max_of_uses_the_longer_delay() {
    let both = MaxOf(
        FastSlow::new(ms(5), secs(3), 3),
        Exponential::new(ms(1), secs(100)),
    );
    assert_eq!(delays(both, 0..5), [ms(5), ms(5), ms(5), secs(3), secs(3)]);
}

#[test]
fn max_delay_limits_another_limiter() {
    assert_eq!(
        delays(MaxDelay(Exponential::new(ms(1), secs(100)), ms(6)), 0..5),
        [1, 2, 4, 6, 6].map(ms)
    );
}

#[test]
fn default_rate_limiter_matches_client_go() {
    let mut limiter = DefaultRateLimiter::default();
    let now = Instant::now();
    let first: Vec<_> = (0..102).map(|key| limiter.delay(&key, 0, now)).collect();
    assert!(first[..100].iter().all(|delay| *delay == ms(5)));
    assert_eq!(first[100..], [ms(100), ms(200)]);
    assert_eq!(limiter.delay(&0, 20, now), secs(1000));
}

#[tokio::test(start_paused = true)]
async fn rate_limited_add_waits_for_the_limiter_delay() {
    let queue = WorkQueue::builder()
        .rate_limiter(FastSlow::new(ms(30), ms(70), 1))
        .build();
    let start = Instant::now();
    queue.add_rate_limited("a");
    let item = queue.next().await.unwrap();
    assert_eq!(start.elapsed(), ms(30));
    assert_eq!(item.fail(), RetryDecision::Retry { after: ms(70) });
    queue.next().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(100));
}

#[tokio::test(start_paused = true)]
async fn delay_and_rate_limit_use_the_shorter_one() {
    for (after, expected) in [(10, 10), (50, 30), (0, 30)] {
        let queue = WorkQueue::builder()
            .rate_limiter(FastSlow::new(ms(30), ms(30), 0))
            .build();
        let start = Instant::now();
        queue.add_with(
            "a",
            AddOptions {
                after: ms(after),
                rate_limited: true,
                ..AddOptions::default()
            },
        );
        queue.next().await.unwrap().done();
        assert_eq!(start.elapsed(), ms(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn keys_back_off_independently() {
    let queue = WorkQueue::builder()
        .rate_limiter(Exponential::new(ms(10), secs(10)))
        .build();
    for _ in 0..3 {
        queue.add_rate_limited("often");
        drop(queue.next().await.unwrap());
    }
    let start = Instant::now();
    queue.add_rate_limited("once");
    let item = queue.next().await.unwrap();
    assert_eq!((*item.key(), start.elapsed()), ("once", ms(10)));
    item.done();
}

#[tokio::test(start_paused = true)]
async fn failing_key_backs_off_until_success() {
    let queue = WorkQueue::new();
    queue.add("a");
    for delay in [5, 10, 20, 40] {
        assert_eq!(
            queue.next().await.unwrap().fail(),
            RetryDecision::Retry { after: ms(delay) }
        );
    }
    assert_eq!(queue.failures(&"a"), 4);
    queue.next().await.unwrap().done();
    assert_eq!(queue.failures(&"a"), 0);
    queue.add("a");
    assert_eq!(
        queue.next().await.unwrap().fail(),
        RetryDecision::Retry { after: ms(5) }
    );
}

#[tokio::test(start_paused = true)]
async fn give_up_and_requeue_reset_the_failures() {
    let queue = WorkQueue::new();
    queue.add("a");
    let _ = queue.next().await.unwrap().fail();
    let _ = queue.next().await.unwrap().fail();
    queue.next().await.unwrap().give_up();
    assert_eq!((queue.failures(&"a"), queue.delayed(), queue.len()), (0, 0, 0));
    queue.add("a");
    let _ = queue.next().await.unwrap().fail();
    queue.next().await.unwrap().requeue_after(ms(1));
    assert_eq!((queue.failures(&"a"), queue.delayed()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn failure_counts_if_the_key_was_added_meanwhile() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.next().await.unwrap();
    queue.add("a");
    assert_eq!(
        item.fail(),
        RetryDecision::Retry {
            after: Duration::ZERO
        }
    );
    assert_eq!(queue.failures(&"a"), 1);
    assert_eq!(
        queue.next().await.unwrap().fail(),
        RetryDecision::Retry { after: ms(10) }
    );
}

#[tokio::test(start_paused = true)]
async fn success_resets_failures_of_a_key_added_meanwhile() {
    let queue = WorkQueue::new();
    queue.add("a");
    let _ = queue.next().await.unwrap().fail();
    let item = queue.next().await.unwrap();
    queue.add("a");
    item.done();
    assert_eq!((queue.len(), queue.failures(&"a")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn earlier_delayed_add_sets_the_retry_time() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = queue.next().await.unwrap();
    queue.add_after("a", ms(3));
    assert_eq!(item.fail(), RetryDecision::Retry { after: ms(3) });
}

/// As `handleErr` of client-go's workqueue example: five retries, then the key is dropped, reported and forgotten.
#[tokio::test(start_paused = true)]
async fn key_is_dropped_reported_and_forgotten_after_max_retries() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let queue = WorkQueue::builder()
        .max_retries(5)
        .on_dropped({
            let reported = Arc::clone(&reported);
            move |key: &&str, failures| reported.lock().push((*key, failures))
        })
        .build();
    for _ in 0..2 {
        queue.add("a");
        for retry in 0..5 {
            let outcome = queue.next().await.unwrap().fail();
            assert_eq!(
                outcome,
                RetryDecision::Retry {
                    after: ms(5 << retry)
                },
                "a later add starts at zero failures"
            );
        }
        assert_eq!(
            queue.next().await.unwrap().fail(),
            RetryDecision::Dropped { failures: 6 }
        );
        assert_eq!((queue.len(), queue.delayed(), queue.failures(&"a")), (0, 0, 0));
    }
    assert_eq!(*reported.lock(), [("a", 6), ("a", 6)]);

    queue.add("b");
    for _ in 0..6 {
        drop(queue.next().await.unwrap());
    }
    sleep(secs(3600)).await;
    assert_eq!((queue.len(), queue.delayed()), (0, 0));
    assert_eq!(
        reported.lock().last(),
        Some(&("b", 6)),
        "also if the guard is dropped"
    );
}

#[tokio::test(start_paused = true)]
async fn key_added_during_its_last_retry_is_not_lost() {
    let queue = WorkQueue::builder().max_retries(0).build();
    queue.add("a");
    let item = queue.next().await.unwrap();
    queue.add("a");
    assert_eq!(item.fail(), RetryDecision::Dropped { failures: 1 });
    assert_eq!((queue.len(), queue.failures(&"a")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_retry_forgets_the_failures() {
    let queue = WorkQueue::new();
    queue.add("a");
    let _ = queue.next().await.unwrap().fail();
    assert!(queue.cancel_delay(&"a"));
    assert_eq!((queue.failures(&"a"), queue.delayed()), (0, 0));
}
