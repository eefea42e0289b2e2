//! Sinks side by side: nobody waits for anybody, and memory is bounded.

use std::time::Duration;

use tokio::time::Instant;
use windlass::runtime::metrics::{Format, Metrics};

use super::world::{Mood, Pods, Probe, Running, limits, pass, settle};
use crate::{
    delivery::{Hub, Limits},
    notice::What,
};

#[tokio::test(start_paused = true)]
async fn a_dead_sink_delays_nobody() {
    let (pods, living, hanging, down) = (
        Pods::default(),
        Probe::default(),
        Probe::default(),
        Probe::default(),
    );
    hanging.mood(Mood::Hangs);
    down.mood(Mood::Down(None));
    let sinks = [
        ("hanging", limits(10), &hanging),
        ("down", limits(10), &down),
        ("living", Limits::default(), &living),
    ];
    let running = Running::start(&pods, &sinks, None);
    settle().await;
    let start = Instant::now();
    for round in 0..20 {
        for pod in 0..100 {
            running.set(&format!("pod-{round}-{pod}"));
        }
        settle().await;
    }
    assert!(
        start.elapsed() < Duration::from_millis(30),
        "{:?}",
        start.elapsed()
    );
    let got = living.got();
    assert_eq!(got.len(), 2000);
    assert!(got.iter().all(|got| got.what == What::Added && !got.inferred));
    assert!(hanging.got().is_empty() && down.got().is_empty());
    for dead in ["hanging", "down"] {
        let figures = running.figures(dead);
        assert_eq!((figures.queued, figures.delivered), (10, 0), "{dead}");
        assert_eq!(figures.dropped_full, 1990, "{dead}");
    }
    assert_eq!(running.figures("living").dropped_full, 0);

    // It comes back, and hears of everything that there is.
    down.mood(Mood::Works);
    pass(Duration::from_secs(90)).await;
    let mut names: Vec<_> = down.got().into_iter().map(|got| got.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2000);
    assert_eq!(running.figures("down").queued, 0);
}

#[tokio::test(start_paused = true)]
async fn more_than_there_is_room_for_reaches_a_living_sink_all_the_same() {
    let (pods, probe) = (Pods::default(), Probe::default());
    for pod in 0..200 {
        pods.set(&format!("pod-{pod}"));
    }
    let running = Running::start(&pods, &[("sink", limits(7), &probe)], None);
    assert_eq!(running.figures("sink").queued, 7);
    settle().await;
    let mut names: Vec<_> = probe.got().into_iter().map(|got| (got.name, got.what)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 200);
    assert!(names.iter().all(|(_, what)| *what == What::Synced));
    assert_eq!(probe.got().len(), 200, "nothing twice");
}

#[tokio::test(start_paused = true)]
async fn many_changes_while_a_sink_is_away_are_one() {
    let (pods, probe) = (Pods::default(), Probe::default());
    let running = Running::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("a");
    settle().await;
    probe.mood(Mood::Down(None));
    for _ in 0..100 {
        running.set("a");
    }
    pass(Duration::from_secs(10)).await;
    let figures = running.figures("sink");
    assert_eq!((figures.queued, figures.coalesced), (1, 99));
    probe.mood(Mood::Works);
    pass(Duration::from_secs(20)).await;
    assert_eq!(probe.texts(), ["added a", "updated a"]);
}

#[tokio::test(start_paused = true)]
async fn what_came_and_went_under_one_name_is_told_in_order() {
    let (pods, probe) = (Pods::default(), Probe::default());
    let running = Running::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("a");
    settle().await;
    probe.mood(Mood::Down(None));
    running.delete("a");
    running.set("a");
    settle().await;
    running.delete("a");
    running.set("a");
    running.set("a");
    probe.mood(Mood::Works);
    pass(Duration::from_secs(5)).await;
    let got = probe.got();
    let steps: Vec<_> = got.iter().map(|got| (got.what, got.pod)).collect();
    assert_eq!(
        steps,
        [
            (What::Added, (1, 1)),
            (What::Deleted, (1, 1)),
            (What::Added, (3, 6))
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_there_was_no_room_for_and_is_gone_is_told_if_the_sink_knew_it() {
    let (pods, probe) = (Pods::default(), Probe::default());
    let running = Running::start(&pods, &[("sink", limits(2), &probe)], None);
    running.set("a");
    settle().await;
    probe.mood(Mood::Down(None));
    for name in ["x", "y", "fleeting"] {
        running.set(name);
    }
    running.delete("a");
    running.delete("fleeting");
    settle().await;
    probe.mood(Mood::Works);
    pass(Duration::from_secs(5)).await;
    let mut texts = probe.texts();
    texts.sort_unstable();
    assert_eq!(texts, ["added a", "added x", "added y", "deleted a (inferred)"]);
}

#[tokio::test(start_paused = true)]
async fn at_the_stop_what_waits_is_delivered_and_a_dead_sink_does_not_hold_it_up() {
    let (pods, slow, down, hanging) = (
        Pods::default(),
        Probe::default(),
        Probe::default(),
        Probe::default(),
    );
    slow.mood(Mood::Slow(Duration::from_millis(500)));
    let sinks = [
        ("slow", Limits::default(), &slow),
        ("down", Limits::default(), &down),
    ];
    let running = Running::start(&pods, &sinks, None);
    settle().await;
    down.mood(Mood::Down(None));
    for name in ["a", "b", "c"] {
        running.set(name);
    }
    settle().await;
    running.delete("a");
    running.set("a");
    pass(Duration::from_millis(10)).await;
    let start = Instant::now();
    running.stop().await.expect("a good end");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // `a` was with the sink when it went, so all three steps are told.
    assert_eq!(
        slow.texts(),
        ["added a", "deleted a", "added a", "added b", "added c"]
    );
    assert!(down.texts().is_empty());

    hanging.mood(Mood::Hangs);
    let running = Running::start(&pods, &[("hanging", Limits::default(), &hanging)], None);
    let start = Instant::now();
    running.stop().await.expect("a good end");
    assert_eq!(start.elapsed().as_secs(), 20, "the time to flush");
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_the_stop_is_counted() {
    let (pods, probe) = (Pods::default(), Probe::default());
    probe.mood(Mood::Slow(Duration::from_secs(1)));
    let running = Running::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("a");
    settle().await;
    let hub = std::sync::Arc::clone(&running.hub);
    let late = pods.set("late");
    let (stopped, ()) = tokio::join!(running.stop(), async {
        settle().await;
        let feed = hub.feed(
            "another",
            &crate::delivery::testing::pods(),
            std::sync::Arc::new(pods.clone()),
        );
        let told = crate::notice::Observer::tell(&feed, late);
        assert_eq!(told, crate::notice::Told::Dropped);
    });
    stopped.expect("a good end");
    assert_eq!(hub.figures()[0].1.dropped_stopped, 1);
    assert_eq!(probe.texts(), ["added a"]);
    hub.run(std::future::ready(())).await.expect_err("only once");
}

#[tokio::test(start_paused = true)]
async fn a_scrape_shows_each_sink() {
    let (pods, living, down) = (Pods::default(), Probe::default(), Probe::default());
    down.mood(Mood::Down(None));
    let sinks = [("living", Limits::default(), &living), ("down", limits(1), &down)];
    let running = Running::start(&pods, &sinks, None);
    let metrics = Metrics::new();
    running.hub.show(&metrics);
    running.set("a");
    running.set("b");
    pass(Duration::from_secs(3)).await;
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
fn two_sinks_of_one_name_and_none_at_all_are_refused() {
    let specs = ["stdout", "stdout:json"].map(|text| text.parse().expect("a sink"));
    let error = Hub::open(&specs, None, windlass::runtime::Clock::system())
        .err()
        .expect("the same name");
    assert_eq!(
        error.to_string(),
        "two sinks are named `stdout`: give one of them another name, as in `--sink …,name=NAME`"
    );
    let error = Hub::open(&[], None, windlass::runtime::Clock::system())
        .err()
        .expect("none");
    assert_eq!(error.to_string(), "there is no sink: name one with --sink");
    let specs = ["file:/no/such/folder/log".parse().expect("a sink")];
    let error = Hub::open(&specs, None, windlass::runtime::Clock::system())
        .err()
        .expect("no folder")
        .to_string();
    assert!(
        error.starts_with("sink `file:/no/such/folder/log`: cannot append to"),
        "{error}"
    );
}
