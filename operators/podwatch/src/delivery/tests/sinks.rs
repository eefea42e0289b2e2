//! Several sinks: they are independent, and memory is bounded.

use std::time::Duration;

use tokio::time::Instant;
use windlass::runtime::metrics::{Format, Metrics};

use super::fixture::{
    Behavior, Pods, RunningHub, ScriptedSink, advance, concurrent, limits, run_ready_tasks,
};
use crate::{
    delivery::{Hub, Limits},
    notice::EventType,
};

#[tokio::test(start_paused = true)]
async fn dead_sink_does_not_delay_others() {
    let (pods, living, hanging, down) = (
        Pods::default(),
        ScriptedSink::default(),
        ScriptedSink::default(),
        ScriptedSink::default(),
    );
    hanging.set_behavior(Behavior::Hangs);
    down.set_behavior(Behavior::Unavailable(None));
    let sinks = [
        ("hanging", limits(10), &hanging),
        ("down", limits(10), &down),
        ("living", Limits::default(), &living),
    ];
    let running = RunningHub::start(&pods, &sinks, None);
    run_ready_tasks().await;
    let start = Instant::now();
    for round in 0..20 {
        for pod in 0..100 {
            running.set(&format!("pod-{round}-{pod}"));
        }
        run_ready_tasks().await;
    }
    assert!(
        start.elapsed() < Duration::from_millis(30),
        "{:?}",
        start.elapsed()
    );
    let got = living.received();
    assert_eq!(got.len(), 2000);
    assert!(
        got.iter()
            .all(|got| got.event == EventType::Added && !got.inferred)
    );
    assert!(hanging.received().is_empty() && down.received().is_empty());
    for dead in ["hanging", "down"] {
        let stats = running.stats(dead);
        assert_eq!((stats.queued, stats.delivered), (10, 0), "{dead}");
        assert_eq!(stats.dropped_full, 1990, "{dead}");
    }
    assert_eq!(running.stats("living").dropped_full, 0);

    // When it recovers, it gets every current pod.
    down.set_behavior(Behavior::Works);
    advance(Duration::from_secs(90)).await;
    let mut names: Vec<_> = down.received().into_iter().map(|got| got.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2000);
    assert_eq!(running.stats("down").queued, 0);
}

#[tokio::test(start_paused = true)]
async fn notices_beyond_the_queue_limit_reach_a_working_sink() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    for pod in 0..200 {
        pods.set(&format!("pod-{pod}"));
    }
    let running = RunningHub::start(&pods, &[("sink", limits(7), &probe)], None);
    assert_eq!(running.stats("sink").queued, 7);
    run_ready_tasks().await;
    let mut names: Vec<_> = probe
        .received()
        .into_iter()
        .map(|got| (got.name, got.event))
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 200);
    assert!(names.iter().all(|(_, what)| *what == EventType::Synced));
    assert_eq!(probe.received().len(), 200, "nothing twice");
}

#[tokio::test(start_paused = true)]
async fn changes_coalesce_while_a_sink_is_down() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let running = RunningHub::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("a");
    run_ready_tasks().await;
    probe.set_behavior(Behavior::Unavailable(None));
    for _ in 0..100 {
        running.set("a");
    }
    advance(Duration::from_secs(10)).await;
    let stats = running.stats("sink");
    assert_eq!((stats.queued, stats.coalesced), (1, 99));
    probe.set_behavior(Behavior::Works);
    advance(Duration::from_secs(20)).await;
    assert_eq!(probe.take_texts(), ["added a", "updated a"]);
}

#[tokio::test(start_paused = true)]
async fn every_change_waits_for_a_failing_sink_up_to_its_queue() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let limits = Limits {
        every_change: true,
        ..limits(10)
    };
    let running = RunningHub::start(&pods, &[("sink", limits, &probe)], None);
    probe.set_behavior(Behavior::Unavailable(None));
    for _ in 0..5 {
        running.set("a");
    }
    running.delete("a");
    advance(Duration::from_secs(10)).await;
    assert_eq!(running.stats("sink").coalesced, 0);
    probe.set_behavior(Behavior::Works);
    advance(Duration::from_secs(20)).await;
    let updated = ["updated a"; 4];
    assert_eq!(
        probe.take_texts(),
        [&["added a"], &updated[..], &["deleted a"]].concat()
    );

    probe.set_behavior(Behavior::Unavailable(None));
    for _ in 0..100 {
        running.set("b");
    }
    run_ready_tasks().await;
    let stats = running.stats("sink");
    // One is in flight while the others are added.
    assert!((89..=90).contains(&stats.coalesced), "{stats:?}");
    probe.set_behavior(Behavior::Works);
    advance(Duration::from_secs(20)).await;
    let received = probe.received();
    assert_eq!(received.len() as u64, 100 - stats.coalesced);
    let reported: u64 = received.iter().map(|got| got.coalesced).sum();
    assert_eq!(reported, stats.coalesced, "the notices say how many they include");
    assert_eq!(
        received.last().map(|got| got.pod.1),
        Some(106),
        "the latest state"
    );
    assert!(received.is_sorted_by_key(|got| got.pod.1));
}

#[tokio::test(start_paused = true)]
async fn recreated_object_is_reported_in_order() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let running = RunningHub::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("a");
    run_ready_tasks().await;
    probe.set_behavior(Behavior::Unavailable(None));
    running.delete("a");
    running.set("a");
    run_ready_tasks().await;
    running.delete("a");
    running.set("a");
    running.set("a");
    probe.set_behavior(Behavior::Works);
    advance(Duration::from_secs(5)).await;
    let got = probe.received();
    let steps: Vec<_> = got.iter().map(|got| (got.event, got.pod)).collect();
    assert_eq!(
        steps,
        [
            (EventType::Added, (1, 1)),
            (EventType::Deleted, (1, 1)),
            (EventType::Added, (3, 6))
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn dropped_deletion_is_reported_if_the_sink_knew_the_object() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let running = RunningHub::start(&pods, &[("sink", limits(2), &probe)], None);
    running.set("a");
    run_ready_tasks().await;
    probe.set_behavior(Behavior::Unavailable(None));
    for name in ["x", "y", "fleeting"] {
        running.set(name);
    }
    running.delete("a");
    running.delete("fleeting");
    run_ready_tasks().await;
    probe.set_behavior(Behavior::Works);
    advance(Duration::from_secs(5)).await;
    let mut texts = probe.take_texts();
    texts.sort_unstable();
    assert_eq!(texts, ["added a", "added x", "added y", "deleted a (inferred)"]);
}

#[tokio::test(start_paused = true)]
async fn stop_flushes_working_sinks_and_does_not_wait_for_dead_ones() {
    let (pods, slow, down, hanging) = (
        Pods::default(),
        ScriptedSink::default(),
        ScriptedSink::default(),
        ScriptedSink::default(),
    );
    slow.set_behavior(Behavior::Slow(Duration::from_millis(500)));
    let sinks = [
        ("slow", Limits::default(), &slow),
        ("down", Limits::default(), &down),
    ];
    let running = RunningHub::start(&pods, &sinks, None);
    run_ready_tasks().await;
    down.set_behavior(Behavior::Unavailable(None));
    for name in ["a", "b", "c"] {
        running.set(name);
    }
    run_ready_tasks().await;
    running.delete("a");
    running.set("a");
    advance(Duration::from_millis(10)).await;
    let start = Instant::now();
    running.stop().await.expect("a good end");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // `a` was in flight when it was deleted, so all three notices are delivered.
    assert_eq!(
        slow.take_texts(),
        ["added a", "deleted a", "added a", "added b", "added c"]
    );
    assert!(down.take_texts().is_empty());

    hanging.set_behavior(Behavior::Hangs);
    let running = RunningHub::start(&pods, &[("hanging", Limits::default(), &hanging)], None);
    let start = Instant::now();
    running.stop().await.expect("a good end");
    assert_eq!(start.elapsed().as_secs(), 20, "the flush timeout");
}

#[tokio::test(start_paused = true)]
async fn stop_flushes_all_notices_of_an_object_in_flight() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    probe.set_behavior(Behavior::Slow(Duration::from_millis(100)));
    let limits = Limits {
        every_change: true,
        ..concurrent(4)
    };
    let running = RunningHub::start(&pods, &[("sink", limits, &probe)], None);
    for _ in 0..3 {
        running.set("a");
    }
    running.delete("a");
    running.set("b");
    run_ready_tasks().await;
    running.stop().await.expect("a good end");
    let texts = probe.take_texts();
    let about_a: Vec<_> = texts.iter().filter(|text| text.ends_with('a')).collect();
    assert_eq!(about_a, ["added a", "updated a", "updated a", "deleted a"]);
    assert!(texts.contains(&"added b".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn notice_after_the_stop_is_dropped_and_counted() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    probe.set_behavior(Behavior::Slow(Duration::from_secs(1)));
    let running = RunningHub::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("a");
    run_ready_tasks().await;
    let hub = std::sync::Arc::clone(&running.hub);
    let late = pods.set("late");
    let (stopped, ()) = tokio::join!(running.stop(), async {
        run_ready_tasks().await;
        let feed = hub.add_feed(
            "another",
            &crate::delivery::testing::pods(),
            std::sync::Arc::new(pods.clone()),
        );
        let outcome = crate::notice::Observer::notify(&feed, late);
        assert_eq!(outcome, crate::notice::NotifyOutcome::Dropped);
    });
    stopped.expect("a good end");
    assert_eq!(hub.stats()[0].1.dropped_stopped, 1);
    assert_eq!(probe.take_texts(), ["added a"]);
    hub.run(std::future::ready(())).await.expect_err("only once");
}

#[tokio::test(start_paused = true)]
async fn metrics_cover_each_sink() {
    let (pods, living, down) = (Pods::default(), ScriptedSink::default(), ScriptedSink::default());
    down.set_behavior(Behavior::Unavailable(None));
    let sinks = [("living", Limits::default(), &living), ("down", limits(1), &down)];
    let running = RunningHub::start(&pods, &sinks, None);
    let metrics = Metrics::new();
    running.hub.register_metrics(&metrics);
    running.set("a");
    running.set("b");
    advance(Duration::from_secs(3)).await;
    let text = metrics.scrape(Format::Prometheus);
    for line in [
        "windlass_podwatch_sink_queued{sink=\"down\"} 1.0",
        "windlass_podwatch_sink_queued{sink=\"living\"} 0.0",
        "windlass_podwatch_sink_up{sink=\"down\"} 0.0",
        "windlass_podwatch_sink_up{sink=\"living\"} 1.0",
        "windlass_podwatch_sink_delivered_total{sink=\"living\"} 2",
        "windlass_podwatch_sink_dropped_total{reason=\"queue_full\",sink=\"down\"} 1",
        "windlass_podwatch_sink_dropped_total{reason=\"queue_full\",sink=\"living\"} 0",
        "windlass_podwatch_sink_oldest_seconds{sink=\"down\"} 3.0",
    ] {
        let line = line.replace(".0", "");
        assert!(
            text.lines()
                .any(|found| found.trim_end_matches(".0").starts_with(&line)),
            "no `{line}` in\n{text}"
        );
    }
    assert!(
        text.contains("windlass_podwatch_sink_retried_total{sink=\"down\"} "),
        "{text}"
    );
}

#[test]
fn duplicate_or_missing_sinks_are_rejected() {
    let specs = ["stdout", "stdout:json"].map(|text| text.parse().expect("a sink"));
    let error = Hub::open(&specs, None, windlass::runtime::Clock::system(), None)
        .err()
        .expect("the same name");
    assert_eq!(
        error.to_string(),
        "two sinks are named `stdout`: rename one of them, as in `--sink …,name=NAME`"
    );
    let error = Hub::open(&[], None, windlass::runtime::Clock::system(), None)
        .err()
        .expect("none");
    assert_eq!(error.to_string(), "no sink: add one with --sink");
    let specs = ["file:/no/such/folder/log".parse().expect("a sink")];
    let error = Hub::open(&specs, None, windlass::runtime::Clock::system(), None)
        .err()
        .expect("no folder")
        .to_string();
    assert!(
        error.starts_with("sink `file:/no/such/folder/log`: cannot append to"),
        "{error}"
    );
}
