//! Failures, rate limits, and giving up.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, advance, sleep};
use windlass_workqueue::{
    Add, Capped, DefaultRateLimiter, Exponential, FastSlow, MaxOf, Outcome, RateLimiter, TokenBucket,
    WorkQueue,
};

use crate::ms;

/// What a limiter says to the failures of one key, from the first on.
fn delays(mut limiter: impl RateLimiter<()>, failures: std::ops::Range<u32>) -> Vec<Duration> {
    let now = Instant::now();
    failures
        .map(|failures| limiter.delay(&(), failures, now))
        .collect()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// 20.
#[tokio::test(start_paused = true)]
async fn each_failure_doubles_the_delay_and_forgetting_starts_over() {
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

/// 21.
#[test]
fn the_exponential_never_overflows() {
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
        assert!(
            all.is_sorted(),
            "never shorter again, as a wrapped number would be"
        );
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
fn jitter_adds_up_to_its_fraction_and_spreads_keys_at_the_limit_too() {
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
        "a seed makes it repeatable"
    );
    assert_eq!(delays(Exponential::default().jitter(f64::NAN), 0..1), [ms(5)]);
    assert_eq!(delays(Exponential::default().jitter(-1.0), 0..1), [ms(5)]);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_lets_a_burst_through_and_then_gives_out_turns() {
    let mut bucket = TokenBucket::new(10.0, 3);
    let mut ask = || bucket.delay(&"any key", 0, Instant::now());
    assert_eq!([ask(), ask(), ask(), ask(), ask()], [0, 0, 0, 100, 200].map(ms));
    advance(ms(250)).await;
    // Two and a half tokens have grown; two of them pay for the turns that were given out.
    assert_eq!([ask(), ask()], [ms(50), ms(150)]);
    advance(secs(3600)).await;
    assert_eq!(
        [ask(), ask(), ask(), ask()],
        [0, 0, 0, 100].map(ms),
        "it never holds more than the burst"
    );
}

#[test]
fn a_bucket_takes_any_rate() {
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
    // Turns given out for more years than a clock holds.
    let mut bucket = TokenBucket::new(0.0, u32::MAX);
    let now = Instant::now();
    let last = (0..100_000).map(|_| bucket.delay(&(), 0, now)).last();
    assert_eq!(last, Some(Duration::ZERO));
}

/// 22.
#[test]
fn fast_for_the_first_failures_and_slow_from_then_on() {
    assert_eq!(
        delays(FastSlow::new(ms(5), secs(10), 3), 0..5),
        [ms(5), ms(5), ms(5), secs(10), secs(10)]
    );
}

/// 23.
#[test]
fn the_larger_of_two_limits_counts() {
    let both = MaxOf(
        FastSlow::new(ms(5), secs(3), 3),
        Exponential::new(ms(1), secs(100)),
    );
    assert_eq!(delays(both, 0..5), [ms(5), ms(5), ms(5), secs(3), secs(3)]);
}

/// 24.
#[test]
fn a_cap_limits_another_limiter() {
    assert_eq!(
        delays(Capped(Exponential::new(ms(1), secs(100)), ms(6)), 0..5),
        [1, 2, 4, 6, 6].map(ms)
    );
}

#[test]
fn the_default_is_client_go_s() {
    let mut limiter = DefaultRateLimiter::default();
    let now = Instant::now();
    let first: Vec<_> = (0..102).map(|key| limiter.delay(&key, 0, now)).collect();
    assert!(first[..100].iter().all(|delay| *delay == ms(5)));
    assert_eq!(first[100..], [ms(100), ms(200)]);
    assert_eq!(limiter.delay(&0, 20, now), secs(1000));
}

/// 25.
#[tokio::test(start_paused = true)]
async fn a_rate_limited_add_waits_as_long_as_the_limiter_says() {
    let queue = WorkQueue::builder()
        .rate_limiter(FastSlow::new(ms(30), ms(70), 1))
        .build();
    let start = Instant::now();
    queue.add_rate_limited("a");
    let taken = queue.take().await.unwrap();
    assert_eq!(start.elapsed(), ms(30));
    assert_eq!(taken.fail(), Outcome::Retry { after: ms(70) });
    queue.take().await.unwrap().done();
    assert_eq!(start.elapsed(), ms(100));
}

#[tokio::test(start_paused = true)]
async fn of_a_delay_and_a_rate_limit_the_shorter_counts() {
    for (after, expected) in [(10, 10), (50, 30), (0, 30)] {
        let queue = WorkQueue::builder()
            .rate_limiter(FastSlow::new(ms(30), ms(30), 0))
            .build();
        let start = Instant::now();
        queue.add_with(
            "a",
            Add {
                after: ms(after),
                rate_limited: true,
                ..Add::default()
            },
        );
        queue.take().await.unwrap().done();
        assert_eq!(start.elapsed(), ms(expected));
    }
}

/// 43.
#[tokio::test(start_paused = true)]
async fn the_limits_of_keys_are_independent() {
    let queue = WorkQueue::builder()
        .rate_limiter(Exponential::new(ms(10), secs(10)))
        .build();
    for _ in 0..3 {
        queue.add_rate_limited("often");
        drop(queue.take().await.unwrap());
    }
    let start = Instant::now();
    queue.add_rate_limited("once");
    let taken = queue.take().await.unwrap();
    assert_eq!((*taken.key(), start.elapsed()), ("once", ms(10)));
    taken.done();
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_backs_off_and_success_starts_over() {
    let queue = WorkQueue::new();
    queue.add("a");
    for delay in [5, 10, 20, 40] {
        assert_eq!(
            queue.take().await.unwrap().fail(),
            Outcome::Retry { after: ms(delay) }
        );
    }
    assert_eq!(queue.failures(&"a"), 4);
    queue.take().await.unwrap().done();
    assert_eq!(queue.failures(&"a"), 0);
    queue.add("a");
    assert_eq!(
        queue.take().await.unwrap().fail(),
        Outcome::Retry { after: ms(5) }
    );
}

/// [194], and the same for a planned requeue.
#[tokio::test(start_paused = true)]
async fn a_terminal_end_and_a_planned_requeue_clear_the_failures() {
    let queue = WorkQueue::new();
    queue.add("a");
    let _ = queue.take().await.unwrap().fail();
    let _ = queue.take().await.unwrap().fail();
    queue.take().await.unwrap().terminal();
    assert_eq!((queue.failures(&"a"), queue.delayed(), queue.len()), (0, 0, 0));
    queue.add("a");
    let _ = queue.take().await.unwrap().fail();
    queue.take().await.unwrap().requeue_after(ms(1));
    assert_eq!((queue.failures(&"a"), queue.delayed()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_failure_during_which_the_key_was_added_still_counts() {
    let queue = WorkQueue::new();
    queue.add("a");
    let taken = queue.take().await.unwrap();
    queue.add("a");
    assert_eq!(
        taken.fail(),
        Outcome::Retry {
            after: Duration::ZERO
        }
    );
    assert_eq!(queue.failures(&"a"), 1);
    assert_eq!(
        queue.take().await.unwrap().fail(),
        Outcome::Retry { after: ms(10) }
    );
}

#[tokio::test(start_paused = true)]
async fn success_forgets_the_failures_of_a_key_that_was_added_meanwhile() {
    let queue = WorkQueue::new();
    queue.add("a");
    let _ = queue.take().await.unwrap().fail();
    let taken = queue.take().await.unwrap();
    queue.add("a");
    taken.done();
    assert_eq!((queue.len(), queue.failures(&"a")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_earlier_time_asked_for_during_work_is_the_time_of_the_retry() {
    let queue = WorkQueue::new();
    queue.add("a");
    let taken = queue.take().await.unwrap();
    queue.add_after("a", ms(3));
    assert_eq!(taken.fail(), Outcome::Retry { after: ms(3) });
}

/// Seed 003's `handleErr`: five retries, then the key is dropped, reported and forgotten.
#[tokio::test(start_paused = true)]
async fn after_the_last_retry_a_key_is_dropped_reported_and_forgotten() {
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
            let outcome = queue.take().await.unwrap().fail();
            assert_eq!(
                outcome,
                Outcome::Retry {
                    after: ms(5 << retry)
                },
                "a later add starts afresh"
            );
        }
        assert_eq!(
            queue.take().await.unwrap().fail(),
            Outcome::Dropped { failures: 6 }
        );
        assert_eq!((queue.len(), queue.delayed(), queue.failures(&"a")), (0, 0, 0));
    }
    assert_eq!(*reported.lock(), [("a", 6), ("a", 6)]);

    queue.add("b");
    for _ in 0..6 {
        drop(queue.take().await.unwrap());
    }
    sleep(secs(3600)).await;
    assert_eq!((queue.len(), queue.delayed()), (0, 0));
    assert_eq!(
        reported.lock().last(),
        Some(&("b", 6)),
        "also if nobody sees the outcome"
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_added_during_its_last_try_is_not_lost() {
    let queue = WorkQueue::builder().max_retries(0).build();
    queue.add("a");
    let taken = queue.take().await.unwrap();
    queue.add("a");
    assert_eq!(taken.fail(), Outcome::Dropped { failures: 1 });
    assert_eq!((queue.len(), queue.failures(&"a")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_retry_forgets_the_key() {
    let queue = WorkQueue::new();
    queue.add("a");
    let _ = queue.take().await.unwrap().fail();
    assert!(queue.cancel_delay(&"a"));
    assert_eq!((queue.failures(&"a"), queue.delayed()), (0, 0));
}
