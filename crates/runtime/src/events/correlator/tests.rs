//! What becomes of calls, without a server: tables, and a law that holds for every history.

use std::{cell::Cell, collections::HashMap, time::Duration};

use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use proptest::prelude::*;

use super::*;

const BURST: usize = 25;
const COMBINE_FROM: usize = 10;

/// A correlator with a clock that the test moves, and a server that takes everything at once.
struct Bench {
    correlator: Correlator,
    now: Moment,
    /// The count of each event on the server, by name.
    server: HashMap<String, u32>,
    /// The last one written.
    shown: Option<Write>,
}

/// What the last call came to.
#[derive(Debug, PartialEq)]
enum Came {
    Written { count: u32, message: String },
    Unwritten,
}

impl Bench {
    fn new(options: Options) -> Self {
        Self {
            correlator: Correlator::new(options),
            now: Moment {
                instant: Instant::now(),
                time: Timestamp::UNIX_EPOCH,
            },
            server: HashMap::new(),
            shown: None,
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now.instant += time;
        self.now.time += time;
    }

    fn observe(&mut self, said: &Said) -> Observed {
        self.correlator
            .observe(said.similar(), said.message.clone(), self.now)
    }

    /// Says it, and writes what comes of it.
    fn say(&mut self, said: &Said) -> Came {
        let observed = self.observe(said);
        match observed.decision {
            Decision::Create(key) | Decision::Patch { key, .. } => {
                self.write(&key);
                let write = self.shown.as_ref().expect("it was written just now");
                let message = write.event().message.expect("every event has one");
                Came::Written {
                    count: write.count,
                    message,
                }
            }
            _ => Came::Unwritten,
        }
    }

    fn write(&mut self, key: &Arc<Key>) -> Option<Next> {
        let Due::Write(write) = self.correlator.due(key, self.now.instant) else {
            return None;
        };
        self.server.insert(write.name.clone(), write.count);
        let next = self.correlator.wrote(&write, self.now.instant);
        self.shown = Some(write);
        Some(next)
    }
}

#[derive(Clone, Debug)]
struct Said {
    object: String,
    field: Option<String>,
    kind: Type,
    reason: String,
    message: String,
}

impl Said {
    fn similar(&self) -> Similar {
        let about = ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some("n".to_owned()),
            name: Some(self.object.clone()),
            field_path: self.field.clone(),
            ..ObjectReference::default()
        };
        Similar::new("test".into(), about, self.kind, &self.reason)
    }
}

fn said(reason: &str, message: &str) -> Said {
    Said {
        object: "a".to_owned(),
        field: None,
        kind: Type::Normal,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// So many that differ in their message only.
fn similar(count: usize) -> Vec<Said> {
    (0..count)
        .map(|n| said("Similar", &format!("message {n}")))
        .collect()
}

/// Statement 122, its nine scenarios.
#[test]
fn what_is_said_is_counted_combined_or_not_written() {
    let again = said("Again", "me again");
    let one_more = said("Similar", "one more");
    let elsewhere = Said {
        field: Some("spec.containers{b}".to_owned()),
        ..one_more.clone()
    };
    let unique = (0..30).map(|n| Said {
        object: format!("pod-{n}"),
        ..said(&format!("Reason{n}"), &format!("message {n}"))
    });
    let written = |count, message: &str| Came::Written {
        count,
        message: message.to_owned(),
    };
    let combined = "(combined from similar events): one more";
    let table = [
        ("a single one", vec![], 5, &again, written(1, "me again")),
        ("the same", vec![again.clone()], 5, &again, written(2, "me again")),
        (
            "the same, more often than different ones are combined",
            vec![again.clone(); COMBINE_FROM],
            30,
            &again,
            written(11, "me again"),
        ),
        (
            "the same, too often",
            vec![again.clone(); BURST + 1],
            1,
            &again,
            Came::Unwritten,
        ),
        ("unique ones", unique.collect(), 5, &again, written(1, "me again")),
        (
            "similar ones",
            similar(COMBINE_FROM - 1),
            5,
            &one_more,
            written(1, combined),
        ),
        (
            "many similar ones",
            similar(COMBINE_FROM),
            5,
            &one_more,
            written(2, combined),
        ),
        (
            "another container",
            vec![elsewhere],
            5,
            &one_more,
            written(1, "one more"),
        ),
        (
            "similar, long ago",
            similar(COMBINE_FROM - 1),
            601,
            &one_more,
            written(1, "one more"),
        ),
    ];
    for (what, before, seconds, last, expected) in table {
        let mut bench = Bench::new(Options::default());
        for said in before {
            bench.say(&said);
            bench.wait(Duration::from_secs(seconds));
        }
        assert_eq!(bench.say(last), expected, "{what}");
    }
}

/// Statement 123: what shares an allowance is an option.
#[test]
fn an_allowance_is_for_an_object_or_for_each_reason() {
    let other_reason = said("Other", "me again");
    let other_message = said("Original", "me again");
    let table = [
        (Budget::PerObject, &other_reason, false),
        (Budget::PerReason, &other_reason, true),
        (Budget::PerReason, &other_message, false),
    ];
    for (budget, second, is_written) in table {
        let options = Options::default().burst(1, Duration::from_mins(5)).budget(budget);
        let mut bench = Bench::new(options);
        bench.say(&said("Original", "i am first"));
        let came = bench.say(second);
        assert_eq!(came != Came::Unwritten, is_written, "{budget:?} {second:?}");
    }
}

#[test]
fn normal_events_do_not_use_up_the_allowance_of_warnings() {
    let mut bench = Bench::new(Options::default());
    let normal = said("Again", "me again");
    while bench.say(&normal) != Came::Unwritten {}
    let warning = Said {
        kind: Type::Warning,
        ..normal
    };
    assert_ne!(bench.say(&warning), Came::Unwritten);
}

#[test]
fn an_allowance_grows_back_one_by_one() {
    let mut bench = Bench::new(Options::default());
    let again = said("Again", "me again");
    let written = |bench: &mut Bench| (0..100).filter(|_| bench.say(&again) != Came::Unwritten).count();
    assert_eq!(written(&mut bench), BURST);
    bench.wait(Duration::from_secs(299));
    assert_eq!(written(&mut bench), 0);
    bench.wait(Duration::from_secs(1));
    assert_eq!(written(&mut bench), 1);
    bench.wait(Duration::from_mins(10));
    assert_eq!(written(&mut bench), 2);
    // What was not written is counted nevertheless.
    assert_eq!(bench.server.into_values().collect::<Vec<_>>(), [302]);
}

#[test]
fn no_allowance_is_too_large_or_too_slow() {
    for (burst, refill) in [(u32::MAX, Duration::MAX), (u32::MAX, Duration::ZERO)] {
        let mut bench = Bench::new(Options::default().burst(burst, refill));
        for _ in 0..3 {
            assert_ne!(bench.say(&said("Again", "me again")), Came::Unwritten);
        }
    }
    let mut never = Bench::new(Options::default().burst(0, Duration::MAX));
    assert_eq!(never.say(&said("Again", "me again")), Came::Unwritten);
}

#[test]
fn the_messages_that_came_first_keep_their_event() {
    let mut bench = Bench::new(Options::default());
    for said in similar(COMBINE_FROM + 3) {
        bench.say(&said);
    }
    let first = said("Similar", "message 0");
    let expected = Came::Written {
        count: 2,
        message: "message 0".to_owned(),
    };
    assert_eq!(bench.say(&first), expected);
    // Nine of their own, and one for all others.
    assert_eq!(bench.server.len(), COMBINE_FROM);
}

#[test]
fn a_full_queue_takes_nothing_new_and_still_counts_what_it_has() {
    let mut bench = Bench::new(Options::default().queued(2));
    let (a, b, c) = (said("A", "x"), said("B", "x"), said("C", "x"));
    bench.say(&c);
    let Decision::Create(queued) = bench.observe(&a).decision else {
        panic!("there is room");
    };
    assert!(matches!(bench.observe(&b).decision, Decision::Create(_)));
    let refused = bench.observe(&said("D", "x")).decision;
    assert_eq!(refused, Decision::Drop(DropReason::QueueFull));
    assert_eq!(bench.observe(&a).decision, Decision::Counted);
    assert!(matches!(bench.observe(&c).decision, Decision::Hold(..)));
    bench.write(&queued);
    assert_eq!(bench.shown.as_ref().map(|write| write.count), Some(2));
    assert!(matches!(
        bench.observe(&said("D", "x")).decision,
        Decision::Create(_)
    ));
}

#[test]
fn two_events_at_the_same_moment_have_different_names() {
    let mut bench = Bench::new(Options::default());
    bench.say(&said("A", "x"));
    bench.say(&said("B", "x"));
    assert_eq!(bench.server.len(), 2);
}

#[test]
fn a_late_answer_is_not_taken_for_that_of_a_newer_event() {
    let mut bench = Bench::new(Options::default().remembered(1));
    let (a, b) = (said("A", "x"), said("B", "x"));
    let Decision::Create(key) = bench.observe(&a).decision else {
        panic!("it is new");
    };
    let Due::Write(old) = bench.correlator.due(&key, bench.now.instant) else {
        panic!("it is due");
    };
    // The event is forgotten, and begins anew.
    let forgotten = bench.observe(&b).forgotten;
    assert_eq!(forgotten, Some((key, 1)));
    let Decision::Create(key) = bench.observe(&a).decision else {
        panic!("it is new again");
    };
    assert_eq!(bench.correlator.wrote(&old, bench.now.instant), Next::Nothing);
    bench.correlator.gave_up(&old);
    bench.write(&key);
    assert_eq!(bench.server.into_values().collect::<Vec<_>>(), [1]);
}

#[derive(Clone, Debug)]
enum Step {
    Say {
        object: u8,
        kind: bool,
        reason: u8,
        message: u8,
    },
    Wait(u16),
    /// The turn of a key, by number; what the server makes of it.
    Turn(usize, Answer),
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Yes,
    GiveUp,
    /// More is said while the request is under way.
    YesAfter(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let say =
        (0u8..3, any::<bool>(), 0u8..2, 0u8..14).prop_map(|(object, kind, reason, message)| Step::Say {
            object,
            kind,
            reason,
            message,
        });
    let answer = prop_oneof![
        5 => Just(Answer::Yes),
        1 => Just(Answer::GiveUp),
        2 => (1u8..4).prop_map(Answer::YesAfter),
    ];
    let turn = (any::<usize>(), answer).prop_map(|(key, answer)| Step::Turn(key, answer));
    prop::collection::vec(
        prop_oneof![6 => say, 1 => (0u16..700).prop_map(Step::Wait), 5 => turn],
        0..400,
    )
}

proptest! {
    /// Every call is on the server, or accounted for; the allowance and the limits hold at every step.
    #[test]
    fn no_call_is_lost_without_account(steps in steps(), remembered in 1usize..40, queued in 1usize..20, burst in 1u32..6) {
        let options = Options::default()
            .burst(burst, Duration::from_mins(5))
            .combine(4, Duration::from_mins(10))
            .remembered(remembered)
            .queued(queued);
        let mut bench = Bench::new(options);
        let started = bench.now.instant;
        let (mut calls, mut dropped, mut given_up) = (0u64, 0u64, 0u64);
        let paid = Cell::new(0u64);
        // Those that were handed to the queue; a turn for one that needs none is harmless.
        let mut keys: Vec<Arc<Key>> = Vec::new();
        let mut say = |bench: &mut Bench, keys: &mut Vec<Arc<Key>>, said: &Said, room: usize| {
            calls += 1;
            let Observed { decision, forgotten } = bench.observe(said);
            dropped += forgotten.map_or(0, |(_, unwritten)| u64::from(unwritten));
            match decision {
                Decision::Create(key) | Decision::Patch { key, .. } => {
                    assert!(room > 0, "the queue was full");
                    paid.set(paid.get() + 1);
                    keys.push(key);
                }
                Decision::Hold(key, _) => keys.push(key),
                Decision::Counted => {}
                Decision::Drop(_) => dropped += 1,
            }
        };
        for step in steps {
            match step {
                Step::Say { object, kind, reason, message } => {
                    let said = Said {
                        object: format!("o{object}"),
                        kind: if kind { Type::Normal } else { Type::Warning },
                        ..said(&format!("R{reason}"), &format!("m{message}"))
                    };
                    let room = queued.saturating_sub(bench.correlator.queued);
                    say(&mut bench, &mut keys, &said, room);
                }
                Step::Wait(seconds) => bench.wait(Duration::from_secs(seconds.into())),
                Step::Turn(at, answer) if !keys.is_empty() => {
                    let key = Arc::clone(&keys[at % keys.len()]);
                    let Due::Write(write) = bench.correlator.due(&key, bench.now.instant) else { continue };
                    if let Answer::YesAfter(times) = answer {
                        let said = Said {
                            object: key.similar.object.name.clone(),
                            kind: key.similar.kind,
                            ..said(&key.similar.reason, key.message.as_deref().unwrap_or("m13"))
                        };
                        for _ in 0..times {
                            let room = queued.saturating_sub(bench.correlator.queued);
                            say(&mut bench, &mut keys, &said, room);
                        }
                    }
                    if let Answer::GiveUp = answer {
                        let before = bench.correlator.unwritten();
                        bench.correlator.gave_up(&write);
                        given_up += before - bench.correlator.unwritten();
                        continue;
                    }
                    bench.server.insert(write.name.clone(), write.count);
                    match bench.correlator.wrote(&write, bench.now.instant) {
                        Next::Again => paid.set(paid.get() + 1),
                        Next::Later(_) | Next::Nothing => {}
                    }
                }
                Step::Turn(..) => {}
            }
            let correlator = &bench.correlator;
            let phases = correlator.series.values().filter(|series| series.phase == Phase::Queued).count();
            prop_assert_eq!(correlator.queued, phases);
            prop_assert!(correlator.series.len() <= remembered);
            prop_assert!(correlator.groups.len() <= remembered && correlator.budgets.len() <= remembered);
            // Three objects of two types; an allowance that was forgotten starts afresh.
            if remembered >= 6 {
                let refilled = (bench.now.instant - started).as_secs() / 300 + 1;
                prop_assert!(paid.get() <= 6 * (u64::from(burst) + refilled));
            }
        }
        bench.correlator.close();
        for key in keys {
            while bench.write(&key) == Some(Next::Again) {}
        }
        let on_server: u64 = bench.server.values().map(|count| u64::from(*count)).sum();
        prop_assert_eq!(calls, on_server + dropped + given_up + bench.correlator.unwritten());
        // What gave up stays unwritten until it is said again; all else is written.
        let held = bench.correlator.series.values().filter(|series| series.phase != Phase::Settled).count();
        prop_assert_eq!(held, 0);
    }
}
