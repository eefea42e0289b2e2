//! Backoff, rate limits, retries, and the errors reported for a sink.

use std::time::Duration;

use tokio::time::Instant;

use super::fixture::{
    Behavior, Pods, RunningHub, ScriptedSink, advance, concurrent, limits, run_ready_tasks,
};
use crate::delivery::{Limits, Rate};

/// The number of attempts in each minute.
fn per_minute(attempts: &[Instant], start: Instant) -> Vec<usize> {
    let mut minutes = vec![0; 10];
    for attempt in attempts {
        let minute = usize::try_from(attempt.duration_since(start).as_secs() / 60).expect("small");
        minutes[minute] += 1;
    }
    minutes
}

#[tokio::test(start_paused = true)]
async fn unavailable_sink_is_tried_about_once_a_minute() {
    for mood in [
        Behavior::Unavailable(None),
        Behavior::Fails((0..50).map(|pod| format!("pod-{pod}")).collect()),
    ] {
        let (pods, probe) = (Pods::default(), ScriptedSink::default());
        probe.set_behavior(mood.clone());
        let running = RunningHub::start(&pods, &[("webhook:h", Limits::default(), &probe)], None);
        let start = Instant::now();
        for _ in 0..595 {
            for pod in 0..50 {
                running.set(&format!("pod-{pod}"));
            }
            advance(Duration::from_secs(1)).await;
        }
        let minutes = per_minute(&probe.attempts(), start);
        // Five notices that fail on their own, and then pauses that double.
        assert!(minutes[0] <= 13, "{mood:?}: {minutes:?}");
        assert!(
            minutes[1..].iter().all(|attempts| (0..=2).contains(attempts)),
            "{mood:?}: {minutes:?}"
        );
        assert!(minutes.iter().sum::<usize>() >= 12, "{mood:?}: {minutes:?}");
        assert_eq!(
            running.hub.last_errors(),
            [(
                "webhook:h".to_owned(),
                "does not answer: check the server".to_owned()
            )]
        );
        probe.set_behavior(Behavior::Works);
        advance(Duration::from_secs(80)).await;
        assert_eq!(probe.received().len(), 50, "{mood:?}");
        assert!(running.hub.last_errors().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn failed_commit_does_not_resend_in_a_loop() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    for pod in 0..20 {
        pods.set(&format!("pod-{pod}"));
    }
    probe.set_behavior(Behavior::FailsToCommit);
    let running = RunningHub::start(&pods, &[("sink", limits(2), &probe)], None);
    let start = Instant::now();
    advance(Duration::from_secs(595)).await;
    let minutes = per_minute(&probe.attempts(), start);
    assert!(minutes[0] <= 30, "{minutes:?}");
    assert!(minutes[1..].iter().all(|attempts| *attempts <= 4), "{minutes:?}");
    probe.set_behavior(Behavior::Works);
    advance(Duration::from_secs(80)).await;
    let mut names: Vec<_> = probe.received().into_iter().map(|got| got.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), running.stats("sink").queued), (20, 0));
}

#[tokio::test(start_paused = true)]
async fn failed_commit_is_repeated_without_another_change() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let running = RunningHub::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("stays");
    running.set("goes");
    advance(Duration::from_secs(5)).await;
    assert_eq!(probe.take_texts().len(), 2);
    probe.set_behavior(Behavior::FailsToCommit);
    running.set("new");
    running.delete("goes");
    advance(Duration::from_secs(1)).await;
    probe.take_texts();
    probe.set_behavior(Behavior::Works);
    advance(Duration::from_secs(80)).await;
    let mut texts = probe.take_texts();
    texts.sort_unstable();
    assert_eq!(texts, ["added new (inferred)", "deleted goes (inferred)"]);
    assert_eq!(running.stats("sink").queued, 0);
}

#[tokio::test(start_paused = true)]
async fn sink_is_not_tried_before_its_retry_after() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    probe.set_behavior(Behavior::Unavailable(Some(Duration::from_secs(37))));
    let running = RunningHub::start(&pods, &[("sink", Limits::default(), &probe)], None);
    for name in ["a", "b", "c"] {
        running.set(name);
    }
    run_ready_tasks().await;
    probe.set_behavior(Behavior::Works);
    advance(Duration::from_secs(36)).await;
    assert_eq!(probe.attempts().len(), 1);
    advance(Duration::from_secs(2)).await;
    let mut texts = probe.take_texts();
    texts.sort_unstable();
    assert_eq!(texts, ["added a", "added b", "added c"]);
}

#[tokio::test(start_paused = true)]
async fn failing_notice_does_not_delay_others() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    probe.set_behavior(Behavior::Fails(vec!["poison".to_owned()]));
    let running = RunningHub::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("poison");
    advance(Duration::from_mins(5)).await;
    let start = Instant::now();
    for pod in 0..20 {
        running.set(&format!("pod-{pod}"));
        run_ready_tasks().await;
    }
    assert_eq!(probe.received().len(), 20);
    assert!(
        start.elapsed() < Duration::from_millis(30),
        "{:?}",
        start.elapsed()
    );
    let failed = probe.attempts().len() - 20;
    assert!((5..=15).contains(&failed), "{failed} attempts in five minutes");
    assert_eq!(running.stats("sink").queued, 1);
}

#[tokio::test(start_paused = true)]
async fn every_seventh_notice_failing_delays_no_other() {
    for deliveries in [1, 16] {
        let (pods, probe) = (Pods::default(), ScriptedSink::default());
        probe.set_behavior(Behavior::Flaky(Duration::from_millis(16)));
        let running = RunningHub::start(&pods, &[("sink", concurrent(deliveries), &probe)], None);
        let start = Instant::now();
        for pod in 0..700 {
            running.set(&format!("pod-{pod}"));
        }
        while probe.received().len() < 600 {
            run_ready_tasks().await;
        }
        let all_that_work = start.elapsed();
        while probe.received().len() < 700 {
            run_ready_tasks().await;
        }
        // 700 attempts of 16 ms, and then the retries of 100 notices, after the first backoff.
        let alone = Duration::from_millis(700 * 17) / u32::try_from(deliveries).expect("small");
        assert!(
            all_that_work <= alone + Duration::from_millis(100),
            "{deliveries}: {all_that_work:?} of {alone:?}"
        );
        assert!(
            start.elapsed() <= alone + alone / 6 + Duration::from_millis(700),
            "{deliveries}: {:?} of {alone:?}",
            start.elapsed()
        );
        assert_eq!(running.stats("sink").retried, 100);
        assert_eq!(probe.max_in_flight(), deliveries);
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_deliveries_keep_the_order_of_each_object() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    probe.set_behavior(Behavior::Slow(Duration::from_millis(7)));
    let running = RunningHub::start(&pods, &[("sink", concurrent(4), &probe)], None);
    for round in 0..200 {
        for pod in 0..6 {
            match (round + pod) % 9 {
                8 => running.delete(&format!("pod-{pod}")),
                _ => running.set(&format!("pod-{pod}")),
            }
        }
        advance(Duration::from_millis(5)).await;
    }
    running.stop().await.expect("a good end");
    let received = probe.received();
    for pod in 0..6 {
        let name = format!("pod-{pod}");
        let versions: Vec<_> = received
            .iter()
            .filter(|got| got.name == name)
            .map(|got| got.pod)
            .collect();
        assert!(versions.len() > 40, "{name}: {}", versions.len());
        assert!(versions.is_sorted(), "{name}: {versions:?}");
    }
    assert_eq!(probe.max_in_flight(), 4);
}

#[tokio::test(start_paused = true)]
async fn recovering_sink_gets_one_delivery_at_a_time_until_one_succeeds() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    probe.set_behavior(Behavior::Unavailable(None));
    let running = RunningHub::start(&pods, &[("sink", concurrent(16), &probe)], None);
    for pod in 0..100 {
        running.set(&format!("pod-{pod}"));
    }
    run_ready_tasks().await;
    let at_once = probe.attempts().len();
    assert!(at_once <= 16, "{at_once}");
    advance(Duration::from_millis(700)).await;
    assert_eq!(
        probe.attempts().len(),
        at_once + 1,
        "one probe after the first pause"
    );
    probe.set_behavior(Behavior::Works);
    advance(Duration::from_secs(2)).await;
    assert_eq!(probe.received().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn notice_is_dropped_after_max_retries() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    probe.set_behavior(Behavior::Fails(vec!["a".to_owned()]));
    let limits = Limits {
        retries: Some(2),
        ..Limits::default()
    };
    let running = RunningHub::start(&pods, &[("sink", limits, &probe)], None);
    running.set("a");
    advance(Duration::from_mins(1)).await;
    assert_eq!(probe.attempts().len(), 3);
    let stats = running.stats("sink");
    assert_eq!((stats.queued, stats.dropped_retries, stats.retried), (0, 1, 2));
    running.set("a");
    advance(Duration::from_mins(1)).await;
    assert_eq!(probe.attempts().len(), 6, "the next notice has its own retries");
}

#[tokio::test(start_paused = true)]
async fn rejected_notice_is_not_retried_and_delays_nothing() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    probe.set_behavior(Behavior::Rejects(vec!["bad".to_owned()]));
    let running = RunningHub::start(&pods, &[("sink", Limits::default(), &probe)], None);
    running.set("bad");
    running.set("good");
    advance(Duration::from_mins(1)).await;
    assert_eq!(probe.attempts().len(), 2);
    assert_eq!(probe.take_texts(), ["added good"]);
    let stats = running.stats("sink");
    assert_eq!((stats.rejected, stats.queued, stats.retried), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn rate_limit_is_respected() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let limits = Limits {
        rate: Some(Rate {
            notices: 10,
            period: Duration::from_secs(1),
        }),
        ..Limits::default()
    };
    let running = RunningHub::start(&pods, &[("sink", limits, &probe)], None);
    for pod in 0..100 {
        running.set(&format!("pod-{pod}"));
    }
    advance(Duration::from_millis(5050)).await;
    let got = probe.received().len();
    assert!(
        (58..=61).contains(&got),
        "ten at once and ten a second, not {got}"
    );
    advance(Duration::from_secs(5)).await;
    assert_eq!(probe.received().len(), 100);
}
