//! Stopping the event writer: what is still written, how long that takes, and that no task is left.

use std::time::Duration;

use tokio::time::Instant;
use windlass_runtime::events::{DropReason, RecorderOptions};

use crate::events::recorded_server::{Fault, RecordedServer, Running, config_map, failure, seconds, settle};

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn stop_writes_queued_events() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    for n in 0..100 {
        running
            .recorder
            .normal(&config_map(&format!("a-{n}")), "Synced", "it works");
    }
    let started = Instant::now();
    let recorder = running.stop().await;
    assert_eq!(server.events("default").await.len(), 100);
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(recorder.counts().dropped(DropReason::Stopped), 0);
}

/// Including held counts.
#[tokio::test(start_paused = true)]
async fn stop_writes_the_last_count_of_every_series() {
    let server = RecordedServer::new();
    let running = Running::start(&server);
    for _ in 0..40 {
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        settle().await;
    }
    assert_eq!(server.events("default").await[0].count, Some(25));
    running.stop().await;
    assert_eq!(server.events("default").await[0].count, Some(40));
}

/// Whatever the rate limit.
#[tokio::test(start_paused = true)]
async fn stop_during_a_request_writes_events_recorded_since() {
    let server = RecordedServer::new();
    server.fault(|_| Fault::Slow(Duration::from_secs(1)));
    let running = Running::with(
        &server,
        RecorderOptions::default().burst(1, Duration::from_hours(24)),
    );
    for _ in 0..3 {
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        settle().await;
    }
    let recorder = running.stop().await;
    assert_eq!(server.methods(), ["POST", "PATCH"]);
    assert_eq!(server.events("default").await[0].count, Some(3));
    assert_eq!(recorder.counts().dropped(DropReason::Stopped), 0);
}

/// An event that waits for a retry is attempted once more.
#[tokio::test(start_paused = true)]
async fn stop_does_not_wait_for_retries() {
    for (fault, written) in [
        (Fault::None, 1),
        (Fault::NoConnection, 0),
        (failure(500, "InternalError"), 0),
    ] {
        let server = RecordedServer::new();
        server.fault(|_| Fault::NoConnection);
        let running = Running::start(&server);
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        settle().await;
        server.fault(move |_| fault.clone());
        let started = Instant::now();
        let recorder = running.stop().await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert_eq!(server.sent().len(), 2);
        assert_eq!(recorder.counts().written(), written);
        assert_eq!(recorder.counts().dropped(DropReason::Stopped), 1 - written);
    }
}

/// The remaining events are dropped after the flush timeout, and no task is left.
#[tokio::test(start_paused = true)]
async fn stop_ends_in_time_with_an_unreachable_server() {
    let tasks = alive_tasks();
    let server = RecordedServer::new();
    server.fault(|_| Fault::Hangs);
    let running = Running::with(
        &server,
        RecorderOptions::default().flush_timeout(Duration::from_secs(3)),
    );
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
async fn recorder_drops_and_counts_events_after_a_stop() {
    let server = RecordedServer::new();
    let recorder = Running::start(&server).stop().await;
    for _ in 0..3 {
        recorder.normal(&config_map("a"), "Synced", "it works");
    }
    seconds(3600).await;
    assert_eq!(server.sent().len(), 0);
    assert_eq!(recorder.counts().dropped(DropReason::Stopped), 3);
}

#[tokio::test(start_paused = true)]
async fn dropped_writer_ends_at_once() {
    let tasks = alive_tasks();
    let server = RecordedServer::new();
    let running = Running::start(&server);
    for _ in 0..30 {
        running.recorder.normal(&config_map("a"), "Synced", "it works");
        settle().await;
    }
    let requests = server.sent().len();
    let recorder = running.abort().await;
    assert_eq!(alive_tasks(), tasks);
    recorder.normal(&config_map("a"), "Synced", "it works");
    seconds(3600).await;
    assert_eq!(server.sent().len(), requests);
    // Five held events, and one after the drop.
    assert_eq!(recorder.counts().dropped(DropReason::Stopped), 6);
}

#[tokio::test(start_paused = true)]
async fn events_recorded_before_the_writer_runs_are_written() {
    let server = RecordedServer::new();
    let (recorder, writer) = RecorderOptions::default().channel(server.client(), "test");
    recorder.normal(&config_map("a"), "Synced", "it works");
    seconds(60).await;
    assert_eq!(server.sent().len(), 0);
    let running = Running::run(recorder, writer);
    settle().await;
    assert_eq!(server.sent().len(), 1);
    running.stop().await;
}
