//! The end of a writer: what is written still, how long that takes, and that nothing is left.

use std::time::Duration;

use tokio::time::Instant;
use windlass_runtime::events::{DropReason, Options};

use crate::wire::{Fault, Running, Wire, config_map, failure, seconds, settle};

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Statement 126: a stop writes what is queued, and ends.
#[tokio::test(start_paused = true)]
async fn what_was_said_before_a_stop_is_written() {
    let wire = Wire::new();
    let running = Running::start(&wire);
    for n in 0..100 {
        running
            .recorder
            .normal(&config_map(&format!("a-{n}")), "Synced", "it works");
    }
    let started = Instant::now();
    let recorder = running.stop().await;
    assert_eq!(wire.events("default").await.len(), 100);
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(recorder.counts().dropped(DropReason::Stopped), 0);
}

/// Statement 126: counts that were only held are written too.
#[tokio::test(start_paused = true)]
async fn a_stop_writes_the_last_count_of_every_series() {
    let wire = Wire::new();
    let running = Running::start(&wire);
    for _ in 0..40 {
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        settle().await;
    }
    assert_eq!(wire.events("default").await[0].count, Some(25));
    running.stop().await;
    assert_eq!(wire.events("default").await[0].count, Some(40));
}

/// Statement 126: what was said while a request was under way is written too, whatever the allowance.
#[tokio::test(start_paused = true)]
async fn a_stop_during_a_request_writes_what_was_said_since() {
    let wire = Wire::new();
    wire.fault(|_| Fault::Slow(Duration::from_secs(1)));
    let running = Running::with(&wire, Options::default().burst(1, Duration::from_hours(24)));
    for _ in 0..3 {
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        settle().await;
    }
    let recorder = running.stop().await;
    assert_eq!(wire.methods(), ["POST", "PATCH"]);
    assert_eq!(wire.events("default").await[0].count, Some(3));
    assert_eq!(recorder.counts().dropped(DropReason::Stopped), 0);
}

/// Statement 126: what waits for its next try is tried once more, and not again.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_retries() {
    for (fault, written) in [
        (Fault::None, 1),
        (Fault::NoConnection, 0),
        (failure(500, "InternalError"), 0),
    ] {
        let wire = Wire::new();
        wire.fault(|_| Fault::NoConnection);
        let running = Running::start(&wire);
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        settle().await;
        wire.fault(move |_| fault.clone());
        let started = Instant::now();
        let recorder = running.stop().await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert_eq!(wire.sent().len(), 2);
        assert_eq!(recorder.counts().written(), written);
        assert_eq!(recorder.counts().dropped(DropReason::Stopped), 1 - written);
    }
}

/// Statement 126: with a dead server the rest is dropped, within a limit, and nothing is left running.
#[tokio::test(start_paused = true)]
async fn a_stop_ends_in_time_although_the_server_is_dead() {
    let tasks = alive_tasks();
    let wire = Wire::new();
    wire.fault(|_| Fault::Hangs);
    let running = Running::with(&wire, Options::default().flush_within(Duration::from_secs(3)));
    for n in 0..100 {
        running
            .recorder
            .normal(&config_map(&format!("a-{n}")), "Synced", "it works");
    }
    running.recorder.normal(&config_map("a-0"), "Synced", "it works");
    settle().await;
    let started = Instant::now();
    let recorder = running.stop().await;
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    assert_eq!(recorder.counts().dropped(DropReason::Stopped), 101);
    assert_eq!(alive_tasks(), tasks);
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_a_recorder_does_nothing_and_says_so() {
    let wire = Wire::new();
    let recorder = Running::start(&wire).stop().await;
    for _ in 0..3 {
        recorder.normal(&config_map("a"), "Synced", "it works");
    }
    seconds(3600).await;
    assert_eq!(wire.sent().len(), 0);
    assert_eq!(recorder.counts().dropped(DropReason::Stopped), 3);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_dropped_ends_at_once() {
    let tasks = alive_tasks();
    let wire = Wire::new();
    let running = Running::start(&wire);
    for _ in 0..30 {
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        settle().await;
    }
    let requests = wire.sent().len();
    let recorder = running.abort().await;
    assert_eq!(alive_tasks(), tasks);
    recorder.normal(&config_map("a"), "Synced", "it works");
    seconds(3600).await;
    assert_eq!(wire.sent().len(), requests);
    // Five that were held, and one that came too late.
    assert_eq!(recorder.counts().dropped(DropReason::Stopped), 6);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_before_the_writer_runs_is_written_when_it_does() {
    let wire = Wire::new();
    let (recorder, writer) = Options::default().channel(wire.client(), "test");
    recorder.normal(&config_map("a"), "Synced", "it works");
    seconds(60).await;
    assert_eq!(wire.sent().len(), 0);
    let running = Running::run(recorder, writer);
    settle().await;
    assert_eq!(wire.sent().len(), 1);
    running.stop().await;
}
