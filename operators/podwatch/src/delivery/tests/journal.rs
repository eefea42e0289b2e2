//! What a sink receives after a restart.

use std::{sync::Arc, time::Duration};

use super::fixture::{Behavior, Pods, RunningHub, ScriptedSink, advance, limits};
use crate::{
    delivery::{CurrentState, Limits, ObjectVersion},
    journal::Journal,
    notice::EventType,
};

fn journal(folder: &tempfile::TempDir) -> Journal {
    Journal::open(folder.path().join("state")).expect("a journal")
}

/// Long enough for several writes of the journal.
async fn a_while() {
    advance(Duration::from_secs(1)).await;
}

fn sorted(probe: &ScriptedSink) -> Vec<String> {
    let mut texts = probe.take_texts();
    texts.sort_unstable();
    texts
}

#[tokio::test(start_paused = true)]
async fn restart_reports_only_the_changes_since() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    for name in ["stays", "changes", "goes", "is-replaced"] {
        pods.set(name);
    }
    let sinks = [("sink", Limits::default(), &probe)];
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert_eq!(
        sorted(&probe),
        [
            "synced changes",
            "synced goes",
            "synced is-replaced",
            "synced stays"
        ]
    );
    running.stop().await.expect("a good end");

    pods.set("changes");
    pods.set("comes");
    pods.delete("goes");
    pods.delete("is-replaced");
    pods.set("is-replaced");
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    let expected = [
        "added comes (inferred)",
        "added is-replaced (inferred)",
        "deleted goes (inferred)",
        "deleted is-replaced (inferred)",
        "updated changes (inferred)",
    ];
    let got = probe.received();
    assert_eq!(sorted(&probe), expected);
    let replaced: Vec<_> = got
        .iter()
        .filter(|got| got.name == "is-replaced")
        .map(|got| (got.event, got.pod.0))
        .collect();
    assert_eq!(
        replaced,
        [(EventType::Deleted, 4), (EventType::Added, 6)],
        "in order, with different UIDs"
    );
    running.stop().await.expect("a good end");

    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    advance(Duration::from_secs(5)).await;
    assert!(probe.take_texts().is_empty(), "nothing happened");
    running.stop().await.expect("a good end");
}

#[tokio::test(start_paused = true)]
async fn each_sink_receives_only_unconfirmed_notices_after_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, living, down) = (Pods::default(), ScriptedSink::default(), ScriptedSink::default());
    let sinks = [
        ("living", Limits::default(), &living),
        ("down", Limits::default(), &down),
    ];
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    running.set("a");
    a_while().await;
    down.set_behavior(Behavior::Unavailable(None));
    running.set("b");
    a_while().await;
    running.stop().await.expect("a good end");
    assert_eq!((living.take_texts().len(), down.take_texts().len()), (2, 1));

    down.set_behavior(Behavior::Works);
    let fresh = ScriptedSink::default();
    let sinks = [sinks[0], sinks[1], ("fresh", Limits::default(), &fresh)];
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert!(living.take_texts().is_empty());
    assert_eq!(down.take_texts(), ["added b (inferred)"]);
    assert_eq!(
        fresh.take_texts(),
        ["synced a", "synced b"],
        "a new sink gets everything"
    );
    running.stop().await.expect("a good end");
}

#[tokio::test(start_paused = true)]
async fn interrupted_initial_list_continues_after_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    for name in ["a", "b"] {
        pods.set(name);
    }
    probe.set_behavior(Behavior::Rejects(vec!["b".to_owned()]));
    let sinks = [("sink", limits(1), &probe)];
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    running.stop().await.expect("a good end");
    probe.set_behavior(Behavior::Works);
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert_eq!(
        probe.take_texts(),
        ["synced a", "synced b"],
        "a rejected notice is tried again after a restart"
    );
    running.stop().await.expect("a good end");
}

#[tokio::test(start_paused = true)]
async fn uncommitted_delivery_is_not_confirmed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let sinks = [("sink", Limits::default(), &probe)];
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    probe.set_behavior(Behavior::FailsToCommit);
    running.set("a");
    advance(Duration::from_secs(5)).await;
    let mut sent = probe.take_texts();
    assert_eq!(sent.remove(0), "added a");
    assert!(
        !sent.is_empty() && sent.iter().all(|text| text == "added a (inferred)"),
        "{sent:?}"
    );
    running.stop().await.expect("a good end");
    probe.take_texts();
    let journal = journal(&folder);
    let objects = &journal.initial_contents()["v1/Pod in default"]["sink"].objects;
    assert!(objects.is_empty(), "{objects:?}");
    probe.set_behavior(Behavior::Works);
    let running = RunningHub::start(&pods, &sinks, Some(journal));
    a_while().await;
    assert_eq!(probe.take_texts(), ["added a (inferred)"]);
    running.stop().await.expect("a good end");
}

#[tokio::test(start_paused = true)]
async fn journal_is_written_periodically() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let running = RunningHub::start(
        &pods,
        &[("sink", Limits::default(), &probe)],
        Some(journal(&folder)),
    );
    let mut files = std::collections::HashSet::new();
    for _ in 0..100 {
        running.set("a");
        advance(Duration::from_millis(100)).await;
        if let Ok(text) = std::fs::read_to_string(&path) {
            files.insert(text);
        }
    }
    assert!((8..=13).contains(&files.len()), "{} in ten seconds", files.len());
    running.stop().await.expect("a good end");
    let text = std::fs::read_to_string(&path).expect("text");
    assert!(text.contains("@100\""), "the last version: {text}");
}

#[tokio::test(start_paused = true)]
async fn unused_sinks_stay_in_the_journal() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    pods.set("a");
    let running = RunningHub::start(
        &pods,
        &[("one", Limits::default(), &probe)],
        Some(journal(&folder)),
    );
    a_while().await;
    running.stop().await.expect("a good end");
    let running = RunningHub::start(
        &pods,
        &[("two", Limits::default(), &probe)],
        Some(journal(&folder)),
    );
    a_while().await;
    running.stop().await.expect("a good end");
    probe.take_texts();
    let journal = journal(&folder);
    let sinks: Vec<_> = journal.initial_contents()["v1/Pod in default"].keys().collect();
    assert_eq!(sinks, ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_unreported_object_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    pods.0.lock().wanted = vec![EventType::Deleted];
    for name in ["old", "stays"] {
        pods.set(name);
    }
    let sinks = [("sink", Limits::default(), &probe)];
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    // An addition and an update that are not reported.
    let added = ObjectVersion::from_notice(&pods.set("new"));
    running.feed.skip(&added.key, None, Some(&added));
    let changed = ObjectVersion::from_notice(&pods.set("new"));
    running.feed.skip(&added.key, Some(&added), Some(&changed));
    a_while().await;
    running.stop().await.expect("a good end");
    assert!(probe.take_texts().is_empty());

    pods.delete("old");
    pods.delete("new");
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert_eq!(
        sorted(&probe),
        ["deleted new (inferred)", "deleted old (inferred)"]
    );
    running.stop().await.expect("a good end");
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert!(probe.take_texts().is_empty());
    running.stop().await.expect("a good end");
}

#[tokio::test(start_paused = true)]
async fn skipped_change_does_not_confirm_an_undelivered_one() {
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let running = RunningHub::start(&pods, &[("sink", limits(1), &probe)], None);
    probe.set_behavior(Behavior::Unavailable(None));
    running.set("first");
    a_while().await;
    let lost = pods.set("lost");
    let _ = crate::notice::Observer::notify(&running.feed, Arc::clone(&lost));
    let heartbeat = ObjectVersion::from_notice(&pods.set("lost"));
    running.feed.skip(
        &heartbeat.key,
        Some(&ObjectVersion::from_notice(&lost)),
        Some(&heartbeat),
    );
    probe.set_behavior(Behavior::Works);
    advance(Duration::from_secs(5)).await;
    assert_eq!(probe.take_texts(), ["added first", "synced lost"]);
    assert_eq!(pods.versions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn restart_retries_rejected_states_but_not_deletions() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let sinks = [("sink", Limits::default(), &probe)];
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    running.set("gone");
    running.set("kept");
    a_while().await;
    probe.set_behavior(Behavior::Rejects(vec![
        "gone".to_owned(),
        "kept".to_owned(),
        "fleeting".to_owned(),
    ]));
    running.set("fleeting");
    running.set("kept");
    running.delete("gone");
    a_while().await;
    running.delete("fleeting");
    a_while().await;
    running.stop().await.expect("a good end");
    assert_eq!(probe.take_texts(), ["added gone", "added kept"]);

    probe.set_behavior(Behavior::Works);
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert_eq!(probe.take_texts(), ["updated kept (inferred)"]);
    running.stop().await.expect("a good end");
    probe.take_texts();
    let journal = journal(&folder);
    let progress = &journal.initial_contents()["v1/Pod in default"]["sink"];
    assert_eq!(
        (progress.objects.len(), progress.offered.len()),
        (1, 0),
        "nothing piles up"
    );
}

#[tokio::test(start_paused = true)]
async fn deletion_is_reported_although_the_addition_was_not_confirmed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), ScriptedSink::default());
    let sinks = [("sink", Limits::default(), &probe)];
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    // The sink receives the notice, and the process crashes before the confirmation.
    probe.set_behavior(Behavior::Slow(Duration::from_secs(5)));
    running.set("a");
    advance(Duration::from_secs(6)).await;
    assert_eq!(probe.take_texts(), ["added a"]);
    running.kill().await;
    pods.delete("a");
    probe.set_behavior(Behavior::Works);
    let running = RunningHub::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert_eq!(probe.take_texts(), ["deleted a (inferred)"]);
    running.stop().await.expect("a good end");
}
