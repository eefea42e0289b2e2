//! How often a sink is tried: rests, rates, retries, and what people are told.

use std::time::Duration;

use tokio::time::Instant;

use super::world::{Mood, Pods, Probe, Running, limits, pass, settle};
use crate::delivery::{Limits, Rate};

/// How many attempts each minute saw.
fn per_minute(attempts: &[Instant], start: Instant) -> Vec<usize> {
    let mut minutes = vec![0; 10];
    for attempt in attempts {
        let minute = usize::try_from(attempt.duration_since(start).as_secs() / 60).expect("small");
        minutes[minute] += 1;
    }
    minutes
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_down_is_tried_about_once_a_minute_however_much_waits_and_changes() {
    for mood in [
        Mood::Down(None),
        Mood::Fails((0..50).map(|pod| format!("pod-{pod}")).collect()),
    ] {
        let (pods, probe) = (Pods::default(), Probe::default());
        probe.mood(mood.clone());
        let running = Running::start(&pods, &[("webhook:h", Limits::default(), &probe)], None);
        let start = Instant::now();
        for _ in 0..595 {
            for pod in 0..50 {
                running.set(&format!("pod-{pod}"));
            }
            pass(Duration::from_secs(1)).await;
        }
        let minutes = per_minute(&probe.attempts(), start);
        assert!(minutes[0] <= 10, "{mood:?}: {minutes:?}");
        assert!(
            minutes[1..].iter().all(|attempts| (0..=2).contains(attempts)),
            "{mood:?}: {minutes:?}"
        );
        assert!(minutes.iter().sum::<usize>() >= 12, "{mood:?}: {minutes:?}");
        assert_eq!(
            running.hub.troubles(),
            [("webhook:h".to_owned(), "does not answer: is it there?".to_owned())]
        );
        probe.mood(Mood::Works);
        pass(Duration::from_secs(80)).await;
        assert_eq!(probe.got().len(), 50, "{mood:?}");
        assert!(running.hub.troubles().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_cannot_keep_what_it_gets_is_not_told_the_same_in_a_loop() {
    let (pods, probe) = (Pods::default(), Probe::default());
    for pod in 0..20 {
        pods.set(&format!("pod-{pod}"));
    }
    probe.mood(Mood::Forgets);
    let running = Running::start(&pods, &[("sink", limits(2), &probe)], None);
    let start = Instant::now();
    pass(Duration::from_secs(595)).await;
    let minutes = per_minute(&probe.attempts(), start);
    assert!(minutes[0] <= 30, "{minutes:?}");
    assert!(minutes[1..].iter().all(|attempts| *attempts <= 4), "{minutes:?}");
    probe.mood(Mood::Works);
    pass(Duration::from_secs(80)).await;
    let mut names: Vec<_> = probe.got().into_iter().map(|got| got.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), running.figures("sink").queued), (20, 0));
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_says_when_is_left_alone_until_then() {
    let (pods, probe) = (Pods::default(), Probe::default());
    probe.mood(Mood::Down(Some(Duration::from_secs(37))));
    let running = Running::start(&pods, &[("sink", Limits::default(), &probe)], None);
    for name in ["a", "b", "c"] {
        running.set(name);
    }
    settle().await;
    probe.mood(Mood::Works);
    pass(Duration::from_secs(36)).await;
    assert_eq!(probe.attempts().len(), 1);
    pass(Duration::from_secs(2)).await;
    let mut texts = probe.texts();
    texts.sort_unstable();
    assert_eq!(texts, ["added a", "added b", "added c"]);
}

#[tokio::test(start_paused = true)]
async fn one_notice_that_always_fails_does_not_stop_the_others() {
    let (pods, probe) = (Pods::default(), Probe::default());
    probe.mood(Mood::Fails(vec!["poison".to_owned()]));
    let running = Running::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("poison");
    pass(Duration::from_mins(5)).await;
    let start = Instant::now();
    for pod in 0..20 {
        running.set(&format!("pod-{pod}"));
        settle().await;
    }
    assert_eq!(probe.got().len(), 20);
    assert!(
        start.elapsed() < Duration::from_millis(30),
        "{:?}",
        start.elapsed()
    );
    let failed = probe.attempts().len() - 20;
    assert!((5..=15).contains(&failed), "{failed} attempts in five minutes");
    assert_eq!(running.figures("sink").queued, 1);
}

#[tokio::test(start_paused = true)]
async fn a_notice_is_given_up_after_as_many_retries_as_allowed() {
    let (pods, probe) = (Pods::default(), Probe::default());
    probe.mood(Mood::Fails(vec!["a".to_owned()]));
    let limits = Limits {
        retries: Some(2),
        ..Limits::default()
    };
    let running = Running::start(&pods, &[("sink", limits, &probe)], None);
    running.set("a");
    pass(Duration::from_mins(1)).await;
    assert_eq!(probe.attempts().len(), 3);
    let figures = running.figures("sink");
    assert_eq!(
        (figures.queued, figures.dropped_retries, figures.retried),
        (0, 1, 2)
    );
    running.set("a");
    pass(Duration::from_mins(1)).await;
    assert_eq!(probe.attempts().len(), 6, "what comes next starts afresh");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_not_tried_again_and_delays_nothing() {
    let (pods, probe) = (Pods::default(), Probe::default());
    probe.mood(Mood::Refuses(vec!["bad".to_owned()]));
    let running = Running::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("bad");
    running.set("good");
    pass(Duration::from_mins(1)).await;
    assert_eq!(probe.attempts().len(), 2);
    assert_eq!(probe.texts(), ["added good"]);
    let figures = running.figures("sink");
    assert_eq!((figures.refused, figures.queued, figures.retried), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_kept() {
    let (pods, probe) = (Pods::default(), Probe::default());
    let limits = Limits {
        rate: Some(Rate {
            notices: 10,
            every: Duration::from_secs(1),
        }),
        ..Limits::default()
    };
    let running = Running::start(&pods, &[("sink", limits, &probe)], None);
    for pod in 0..100 {
        running.set(&format!("pod-{pod}"));
    }
    pass(Duration::from_millis(5050)).await;
    let got = probe.got().len();
    assert!(
        (58..=61).contains(&got),
        "ten at once and ten a second, not {got}"
    );
    pass(Duration::from_secs(5)).await;
    assert_eq!(probe.got().len(), 100);
}
