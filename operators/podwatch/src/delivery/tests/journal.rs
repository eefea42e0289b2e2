//! What a sink is told after a restart.

use std::{sync::Arc, time::Duration};

use super::world::{Mood, Pods, Probe, Running, limits, pass};
use crate::{
    delivery::{Limits, Present, Version},
    journal::Journal,
    notice::What,
};

fn journal(folder: &tempfile::TempDir) -> Journal {
    Journal::open(folder.path().join("state")).expect("a journal")
}

/// Long enough for the journal to be written some times.
async fn a_while() {
    pass(Duration::from_secs(1)).await;
}

fn sorted(probe: &Probe) -> Vec<String> {
    let mut texts = probe.texts();
    texts.sort_unstable();
    texts
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_sink_is_told_what_came_changed_and_went_meanwhile_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), Probe::default());
    for name in ["stays", "changes", "goes", "is-replaced"] {
        pods.set(name);
    }
    let sinks = [("sink", Limits::default(), &probe)];
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
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
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    let expected = [
        "added comes (inferred)",
        "added is-replaced (inferred)",
        "deleted goes (inferred)",
        "deleted is-replaced (inferred)",
        "updated changes (inferred)",
    ];
    let got = probe.got();
    assert_eq!(sorted(&probe), expected);
    let replaced: Vec<_> = got
        .iter()
        .filter(|got| got.name == "is-replaced")
        .map(|got| (got.what, got.pod.0))
        .collect();
    assert_eq!(
        replaced,
        [(What::Deleted, 4), (What::Added, 6)],
        "in order, and told apart by uid"
    );
    running.stop().await.expect("a good end");

    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    pass(Duration::from_secs(5)).await;
    assert!(probe.texts().is_empty(), "nothing happened");
    running.stop().await.expect("a good end");
}

#[tokio::test(start_paused = true)]
async fn each_sink_is_told_only_what_it_has_not_confirmed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, living, down) = (Pods::default(), Probe::default(), Probe::default());
    let sinks = [
        ("living", Limits::default(), &living),
        ("down", Limits::default(), &down),
    ];
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    running.set("a");
    a_while().await;
    down.mood(Mood::Down(None));
    running.set("b");
    a_while().await;
    running.stop().await.expect("a good end");
    assert_eq!((living.texts().len(), down.texts().len()), (2, 1));

    down.mood(Mood::Works);
    let fresh = Probe::default();
    let sinks = [sinks[0], sinks[1], ("fresh", Limits::default(), &fresh)];
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert!(living.texts().is_empty());
    assert_eq!(down.texts(), ["added b (inferred)"]);
    assert_eq!(fresh.texts(), ["synced a", "synced b"], "it never heard of any");
    running.stop().await.expect("a good end");
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_was_interrupted_at_its_first_list_goes_on_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), Probe::default());
    for name in ["a", "b"] {
        pods.set(name);
    }
    probe.mood(Mood::Refuses(vec!["b".to_owned()]));
    let sinks = [("sink", limits(1), &probe)];
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    running.stop().await.expect("a good end");
    probe.mood(Mood::Works);
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert_eq!(
        probe.texts(),
        ["synced a", "synced b"],
        "what was refused is tried once more"
    );
    running.stop().await.expect("a good end");
}

#[tokio::test(start_paused = true)]
async fn what_a_sink_cannot_keep_is_not_confirmed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), Probe::default());
    let sinks = [("sink", Limits::default(), &probe)];
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    probe.mood(Mood::Forgets);
    running.set("a");
    pass(Duration::from_secs(5)).await;
    assert_eq!(probe.texts(), ["added a"]);
    running.stop().await.expect("a good end");
    let journal = journal(&folder);
    let objects = &journal.record()["v1/Pod in default"]["sink"].objects;
    assert!(objects.is_empty(), "{objects:?}");
    probe.mood(Mood::Works);
    let running = Running::start(&pods, &sinks, Some(journal));
    a_while().await;
    assert_eq!(probe.texts(), ["added a (inferred)"]);
    running.stop().await.expect("a good end");
}

#[tokio::test(start_paused = true)]
async fn the_journal_is_written_while_it_runs_but_not_for_every_notice() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let (pods, probe) = (Pods::default(), Probe::default());
    let running = Running::start(
        &pods,
        &[("sink", Limits::default(), &probe)],
        Some(journal(&folder)),
    );
    let mut files = std::collections::HashSet::new();
    for _ in 0..100 {
        running.set("a");
        pass(Duration::from_millis(100)).await;
        if let Ok(text) = std::fs::read_to_string(&path) {
            files.insert(text);
        }
    }
    assert!((8..=13).contains(&files.len()), "{} in ten seconds", files.len());
    running.stop().await.expect("a good end");
    let text = std::fs::read_to_string(&path).expect("text");
    assert!(text.contains("@100\""), "the last one: {text}");
}

#[tokio::test(start_paused = true)]
async fn what_this_run_does_not_tell_of_stays_in_the_journal() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), Probe::default());
    pods.set("a");
    let running = Running::start(
        &pods,
        &[("one", Limits::default(), &probe)],
        Some(journal(&folder)),
    );
    a_while().await;
    running.stop().await.expect("a good end");
    let running = Running::start(
        &pods,
        &[("two", Limits::default(), &probe)],
        Some(journal(&folder)),
    );
    a_while().await;
    running.stop().await.expect("a good end");
    let journal = journal(&folder);
    let sinks: Vec<_> = journal.record()["v1/Pod in default"].keys().collect();
    assert_eq!(sinks, ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_wanted_is_known_and_its_end_is_told_if_that_is_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), Probe::default());
    pods.0.lock().wanted = vec![What::Deleted];
    for name in ["old", "stays"] {
        pods.set(name);
    }
    let sinks = [("sink", Limits::default(), &probe)];
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    // An addition and a change that nobody wants to hear of.
    let added = Version::of(&pods.set("new"));
    running.feed.pass(&added.key, None, Some(&added));
    let changed = Version::of(&pods.set("new"));
    running.feed.pass(&added.key, Some(&added), Some(&changed));
    a_while().await;
    running.stop().await.expect("a good end");
    assert!(probe.texts().is_empty());

    pods.delete("old");
    pods.delete("new");
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert_eq!(
        sorted(&probe),
        ["deleted new (inferred)", "deleted old (inferred)"]
    );
    running.stop().await.expect("a good end");
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert!(probe.texts().is_empty());
    running.stop().await.expect("a good end");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_told_does_not_hide_one_that_was_not_delivered() {
    let (pods, probe) = (Pods::default(), Probe::default());
    let running = Running::start(&pods, &[("sink", limits(1), &probe)], None);
    probe.mood(Mood::Down(None));
    running.set("first");
    a_while().await;
    let lost = pods.set("lost");
    let _ = crate::notice::Observer::tell(&running.feed, Arc::clone(&lost));
    let heartbeat = Version::of(&pods.set("lost"));
    running
        .feed
        .pass(&heartbeat.key, Some(&Version::of(&lost)), Some(&heartbeat));
    probe.mood(Mood::Works);
    pass(Duration::from_secs(5)).await;
    assert_eq!(probe.texts(), ["added first", "synced lost"]);
    assert_eq!(pods.versions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_state_that_was_refused_is_tried_again_after_a_restart_but_an_end_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), Probe::default());
    let sinks = [("sink", Limits::default(), &probe)];
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    running.set("gone");
    running.set("kept");
    a_while().await;
    probe.mood(Mood::Refuses(vec![
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
    assert_eq!(probe.texts(), ["added gone", "added kept"]);

    probe.mood(Mood::Works);
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert_eq!(probe.texts(), ["updated kept (inferred)"]);
    running.stop().await.expect("a good end");
    let journal = journal(&folder);
    let progress = &journal.record()["v1/Pod in default"]["sink"];
    assert_eq!(
        (progress.objects.len(), progress.offered.len()),
        (1, 0),
        "nothing piles up"
    );
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_object_is_told_although_its_beginning_was_not_confirmed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pods, probe) = (Pods::default(), Probe::default());
    let sinks = [("sink", Limits::default(), &probe)];
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    // It takes the notice and dies with us before it says so.
    probe.mood(Mood::Slow(Duration::from_secs(5)));
    running.set("a");
    pass(Duration::from_secs(6)).await;
    assert_eq!(probe.texts(), ["added a"]);
    running.kill().await;
    pods.delete("a");
    probe.mood(Mood::Works);
    let running = Running::start(&pods, &sinks, Some(journal(&folder)));
    a_while().await;
    assert_eq!(probe.texts(), ["deleted a (inferred)"]);
    running.stop().await.expect("a good end");
}
