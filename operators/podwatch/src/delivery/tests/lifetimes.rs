//! Random process lifetimes: sinks fail, hang and recover, pods are created and deleted, and the process crashes.
//!
//! Each lifetime has its own runtime, whose drop simulates a crash: every task stops where it awaits. The cluster, the sinks and
//! the state file survive.

use std::{collections::BTreeMap, num::NonZeroUsize, path::Path, time::Duration};

use proptest::prelude::*;

use super::fixture::{Behavior, Pods, Received, RunningHub, ScriptedSink, advance, limits};
use crate::{delivery::Limits, journal::Journal, notice::EventType};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const QUEUE: usize = 2;
/// The same queue, with every change and two deliveries at a time.
const CONCURRENT: Limits = Limits {
    rate: None,
    queue: NonZeroUsize::new(QUEUE).expect("not zero"),
    every_change: true,
    retries: None,
    concurrency: NonZeroUsize::new(2).expect("not zero"),
};

#[derive(Clone, Debug)]
enum Op {
    Set(usize),
    Delete(usize),
    SetBehavior(usize, u8),
    /// Milliseconds.
    Advance(u64),
    Yield,
}

/// One lifetime: what happens to the cluster before and during it, and whether it stops gracefully.
#[derive(Clone, Debug)]
struct Lifetime {
    before: Vec<Op>,
    ops: Vec<Op>,
    stops: bool,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let name = 0..NAMES.len();
    let op = prop_oneof![
        4 => name.clone().prop_map(Op::Set),
        2 => name.prop_map(Op::Delete),
        1 => (0..2_usize, 0..6_u8).prop_map(|(sink, mood)| Op::SetBehavior(sink, mood)),
        2 => (0..4000_u64).prop_map(Op::Advance),
        2 => Just(Op::Yield),
    ];
    prop::collection::vec(op, 0..25)
}

fn lifetimes() -> impl Strategy<Value = Vec<Lifetime>> {
    let life = (ops(), ops(), any::<bool>()).prop_map(|(before, ops, stops)| Lifetime { before, ops, stops });
    prop::collection::vec(life, 1..5)
}

fn behavior(number: u8) -> Behavior {
    match number {
        0 => Behavior::Works,
        1 => Behavior::Slow(Duration::from_millis(300)),
        2 => Behavior::Unavailable(None),
        3 => Behavior::Fails(vec!["a".to_owned(), "b".to_owned()]),
        4 => Behavior::FailsToCommit,
        _ => Behavior::Hangs,
    }
}

struct Simulation<'a> {
    pods: Pods,
    probes: [ScriptedSink; 2],
    path: &'a Path,
}

impl Simulation<'_> {
    fn run_lifetime(&self, life: &Lifetime) {
        for op in &life.before {
            match op {
                Op::Set(name) => drop(self.pods.set(NAMES[*name])),
                Op::Delete(name) => drop(self.pods.delete(NAMES[*name])),
                Op::SetBehavior(..) | Op::Advance(_) | Op::Yield => {}
            }
        }
        self.in_process(async |running| {
            for op in &life.ops {
                match op {
                    Op::Set(name) => running.set(NAMES[*name]),
                    Op::Delete(name) => running.delete(NAMES[*name]),
                    Op::SetBehavior(sink, number) => self.probes[*sink].set_behavior(behavior(*number)),
                    Op::Advance(time) => advance(Duration::from_millis(*time)).await,
                    Op::Yield => tokio::task::yield_now().await,
                }
                for (name, stats) in running.hub.stats() {
                    assert!(stats.queued <= QUEUE, "{name} holds {}", stats.queued);
                }
            }
            if life.stops {
                running.stop().await.expect("a good end");
            }
        });
        self.assert_confirmed_was_delivered();
    }

    /// Drops all tasks when the future returns.
    fn in_process(&self, live: impl AsyncFnOnce(RunningHub)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let [one, two] = &self.probes;
            let sinks: [(&str, Limits, &ScriptedSink); 2] =
                [("one", limits(QUEUE), one), ("two", CONCURRENT, two)];
            let journal = Journal::open(self.path).expect("never torn, and free");
            live(RunningHub::start(&self.pods, &sinks, Some(journal))).await;
        });
    }

    fn assert_confirmed_was_delivered(&self) {
        let journal = Journal::open(self.path).expect("never torn, and free");
        for (name, probe) in ["one", "two"].into_iter().zip(&self.probes) {
            let Some(progress) = journal
                .initial_contents()
                .get("v1/Pod in default")
                .and_then(|sinks| sinks.get(name))
            else {
                continue;
            };
            let got = probe.received();
            for version in progress.objects.values() {
                let delivered = got.iter().any(|got| {
                    got.event != EventType::Deleted
                        && got.name == version.key.name()
                        && got.pod.1 == version.resource_version
                });
                assert!(delivered, "{name} has confirmed {version:?} and got {got:?}");
            }
        }
    }

    fn assert_sinks_have_current_state(&self) {
        let there = self.pods.0.lock().pods.clone();
        for (place, probe) in self.probes.iter().enumerate() {
            let mut last: BTreeMap<String, Received> = BTreeMap::new();
            for got in probe.received() {
                last.insert(got.name.clone(), got);
            }
            for (name, pod) in &there {
                let got = last
                    .get(name)
                    .unwrap_or_else(|| panic!("sink {place} never received {name}"));
                assert_eq!(
                    (got.pod, got.event == EventType::Deleted),
                    (*pod, false),
                    "sink {place}: {got:?}"
                );
            }
            for (name, got) in last.iter().filter(|(name, _)| !there.contains_key(*name)) {
                assert_eq!(
                    got.event,
                    EventType::Deleted,
                    "sink {place} did not receive the deletion of {name}: {got:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn working_sinks_get_the_latest_state_and_confirm_only_deliveries(lives in lifetimes()) {
        let folder = tempfile::tempdir().expect("a folder");
        let checked = Simulation { pods: Pods::default(), probes: Default::default(), path: &folder.path().join("state") };
        for life in &lives {
            checked.run_lifetime(life);
        }
        for probe in &checked.probes {
            probe.set_behavior(Behavior::Works);
        }
        checked.in_process(async |running| {
            advance(Duration::from_secs(200)).await;
            checked.assert_sinks_have_current_state();
            running.stop().await.expect("a good end");
        });
        // Everything is confirmed: another lifetime delivers nothing.
        let before: Vec<_> = checked.probes.iter().map(|probe| probe.received().len()).collect();
        checked.in_process(async |running| {
            advance(Duration::from_secs(200)).await;
            running.stop().await.expect("a good end");
        });
        let after: Vec<_> = checked.probes.iter().map(|probe| probe.received().len()).collect();
        prop_assert_eq!(before, after);
    }
}
