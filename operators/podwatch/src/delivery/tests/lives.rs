//! Random lives of the process: sinks fail, hang and come back, pods come and go, and everything is dropped in between.
//!
//! Each life has a runtime of its own, so that its end is like the end of a process: whatever it was doing stops where it
//! waits. What outlives it is the cluster, the sinks and the state file.

use std::{collections::BTreeMap, path::Path, time::Duration};

use proptest::prelude::*;

use super::world::{Got, Mood, Pods, Probe, Running, limits, pass};
use crate::{delivery::Limits, journal::Journal, notice::What};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const QUEUE: usize = 2;

#[derive(Clone, Debug)]
enum Op {
    Set(usize),
    Delete(usize),
    Mood(usize, u8),
    /// Milliseconds.
    Pass(u64),
    Yield,
}

/// What happens to the cluster while the process is away, what while it lives, and whether it is asked to stop.
#[derive(Clone, Debug)]
struct Life {
    away: Vec<Op>,
    ops: Vec<Op>,
    stops: bool,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let name = 0..NAMES.len();
    let op = prop_oneof![
        4 => name.clone().prop_map(Op::Set),
        2 => name.prop_map(Op::Delete),
        1 => (0..2_usize, 0..6_u8).prop_map(|(sink, mood)| Op::Mood(sink, mood)),
        2 => (0..4000_u64).prop_map(Op::Pass),
        2 => Just(Op::Yield),
    ];
    prop::collection::vec(op, 0..25)
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let life = (ops(), ops(), any::<bool>()).prop_map(|(away, ops, stops)| Life { away, ops, stops });
    prop::collection::vec(life, 1..5)
}

fn mood(number: u8) -> Mood {
    match number {
        0 => Mood::Works,
        1 => Mood::Slow(Duration::from_millis(300)),
        2 => Mood::Down(None),
        3 => Mood::Fails(vec!["a".to_owned(), "b".to_owned()]),
        4 => Mood::Forgets,
        _ => Mood::Hangs,
    }
}

struct Checked<'a> {
    pods: Pods,
    probes: [Probe; 2],
    path: &'a Path,
}

impl Checked<'_> {
    fn live(&self, life: &Life) {
        for op in &life.away {
            match op {
                Op::Set(name) => drop(self.pods.set(NAMES[*name])),
                Op::Delete(name) => drop(self.pods.delete(NAMES[*name])),
                Op::Mood(..) | Op::Pass(_) | Op::Yield => {}
            }
        }
        self.within_a_process(async |running| {
            for op in &life.ops {
                match op {
                    Op::Set(name) => running.set(NAMES[*name]),
                    Op::Delete(name) => running.delete(NAMES[*name]),
                    Op::Mood(sink, number) => self.probes[*sink].mood(mood(*number)),
                    Op::Pass(time) => pass(Duration::from_millis(*time)).await,
                    Op::Yield => tokio::task::yield_now().await,
                }
                for (name, figures) in running.hub.figures() {
                    assert!(figures.queued <= QUEUE, "{name} holds {}", figures.queued);
                }
            }
            if life.stops {
                running.stop().await.expect("a good end");
            }
        });
        self.nothing_was_confirmed_before_it_was_delivered();
    }

    /// When the future ends, everything else ends where it is.
    fn within_a_process(&self, live: impl AsyncFnOnce(Running)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let [one, two] = &self.probes;
            let sinks: [(&str, Limits, &Probe); 2] =
                [("one", limits(QUEUE), one), ("two", limits(QUEUE), two)];
            let journal = Journal::open(self.path).expect("never torn, and free");
            live(Running::start(&self.pods, &sinks, Some(journal))).await;
        });
    }

    fn nothing_was_confirmed_before_it_was_delivered(&self) {
        let journal = Journal::open(self.path).expect("never torn, and free");
        for (name, probe) in ["one", "two"].into_iter().zip(&self.probes) {
            let Some(progress) = journal
                .record()
                .get("v1/Pod in default")
                .and_then(|sinks| sinks.get(name))
            else {
                continue;
            };
            let got = probe.got();
            for version in progress.objects.values() {
                let delivered = got.iter().any(|got| {
                    got.what != What::Deleted
                        && got.name == version.key.name()
                        && got.pod.1 == version.resource_version
                });
                assert!(delivered, "{name} has confirmed {version:?} and got {got:?}");
            }
        }
    }

    fn every_sink_knows_what_there_is(&self) {
        let there = self.pods.0.lock().pods.clone();
        for (place, probe) in self.probes.iter().enumerate() {
            let mut last: BTreeMap<String, Got> = BTreeMap::new();
            for got in probe.got() {
                last.insert(got.name.clone(), got);
            }
            for (name, pod) in &there {
                let got = last
                    .get(name)
                    .unwrap_or_else(|| panic!("sink {place} never heard of {name}"));
                assert_eq!(
                    (got.pod, got.what == What::Deleted),
                    (*pod, false),
                    "sink {place}: {got:?}"
                );
            }
            for (name, got) in last.iter().filter(|(name, _)| !there.contains_key(*name)) {
                assert_eq!(
                    got.what,
                    What::Deleted,
                    "sink {place} was not told that {name} is gone: {got:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_living_sink_learns_the_latest_state_and_nothing_is_confirmed_too_early(lives in lives()) {
        let folder = tempfile::tempdir().expect("a folder");
        let checked = Checked { pods: Pods::default(), probes: Default::default(), path: &folder.path().join("state") };
        for life in &lives {
            checked.live(life);
        }
        for probe in &checked.probes {
            probe.mood(Mood::Works);
        }
        checked.within_a_process(async |running| {
            pass(Duration::from_secs(200)).await;
            checked.every_sink_knows_what_there_is();
            running.stop().await.expect("a good end");
        });
        // And then all of it is known: another life has nothing to tell.
        let before: Vec<_> = checked.probes.iter().map(|probe| probe.got().len()).collect();
        checked.within_a_process(async |running| {
            pass(Duration::from_secs(200)).await;
            running.stop().await.expect("a good end");
        });
        let after: Vec<_> = checked.probes.iter().map(|probe| probe.got().len()).collect();
        prop_assert_eq!(before, after);
    }
}
