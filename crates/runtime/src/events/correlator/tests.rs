//! Correlator tests without a server: tables, and a property over random histories.

use std::{cell::Cell, collections::HashMap, time::Duration};

use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use proptest::prelude::*;

use super::*;

const BURST: usize = 25;
const COMBINE_FROM: usize = 10;

/// A correlator with a manual clock, and a server that accepts every request at once.
struct Bench {
    correlator: Correlator,
    now: Moment,
    /// The count of each event on the server, by name.
    server: HashMap<String, u32>,
    /// The last request.
    last_write: Option<Write>,
}

/// Result of the last call.
#[derive(Debug, PartialEq)]
enum CallResult {
    Written { count: u32, message: String },
    Unwritten,
}

impl Bench {
    fn new(options: RecorderOptions) -> Self {
        Self {
            correlator: Correlator::new(options),
            now: Moment {
                instant: Instant::now(),
                time: Timestamp::UNIX_EPOCH,
            },
            server: HashMap::new(),
            last_write: None,
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now.instant += time;
        self.now.time += time;
    }

    fn observe(&mut self, call: &Call) -> Observation {
        self.correlator
            .observe(call.similar(), call.message.clone(), Naming::Unique, self.now)
    }

    /// Records the event, and sends the resulting request.
    fn record(&mut self, call: &Call) -> CallResult {
        let observed = self.observe(call);
        match observed.decision {
            Decision::Create(key) | Decision::Patch { key, .. } => {
                self.write(&key);
                let write = self.last_write.as_ref().expect("a request was sent");
                let message = write.event().message.expect("every event has a message");
                CallResult::Written {
                    count: write.count,
                    message,
                }
            }
            _ => CallResult::Unwritten,
        }
    }

    fn write(&mut self, key: &Arc<SeriesKey>) -> Option<Next> {
        let Due::Write(write) = self.correlator.due(key, self.now.instant) else {
            return None;
        };
        self.server.insert(write.name.clone(), write.count);
        let next = self.correlator.on_written(&write, self.now.instant);
        self.last_write = Some(write);
        Some(next)
    }
}

#[derive(Clone, Debug)]
struct Call {
    object: String,
    field: Option<String>,
    kind: EventType,
    reason: String,
    message: String,
}

impl Call {
    fn similar(&self) -> AggregateKey {
        let about = ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some("n".to_owned()),
            name: Some(self.object.clone()),
            field_path: self.field.clone(),
            ..ObjectReference::default()
        };
        AggregateKey::new("test".into(), about, self.kind, &self.reason)
    }
}

fn call(reason: &str, message: &str) -> Call {
    Call {
        object: "a".to_owned(),
        field: None,
        kind: EventType::Normal,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// Events that differ only in their message.
fn similar(count: usize) -> Vec<Call> {
    (0..count)
        .map(|n| call("Similar", &format!("message {n}")))
        .collect()
}

/// client-go's nine scenarios.
#[test]
fn events_are_counted_combined_or_dropped() {
    let again = call("Again", "me again");
    let one_more = call("Similar", "one more");
    let elsewhere = Call {
        field: Some("spec.containers{b}".to_owned()),
        ..one_more.clone()
    };
    let unique = (0..30).map(|n| Call {
        object: format!("pod-{n}"),
        ..call(&format!("Reason{n}"), &format!("message {n}"))
    });
    let written = |count, message: &str| CallResult::Written {
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
            CallResult::Unwritten,
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
        let mut bench = Bench::new(RecorderOptions::default());
        for call in before {
            bench.record(&call);
            bench.wait(Duration::from_secs(seconds));
        }
        assert_eq!(bench.record(last), expected, "{what}");
    }
}

#[test]
fn rate_limit_applies_per_object_or_per_reason() {
    let other_reason = call("Other", "me again");
    let other_message = call("Original", "me again");
    let table = [
        (Budget::PerObject, &other_reason, false),
        (Budget::PerReason, &other_reason, true),
        (Budget::PerReason, &other_message, false),
    ];
    for (budget, second, is_written) in table {
        let options = RecorderOptions::default()
            .burst(1, Duration::from_mins(5))
            .budget(budget);
        let mut bench = Bench::new(options);
        bench.record(&call("Original", "i am first"));
        let result = bench.record(second);
        assert_eq!(
            result != CallResult::Unwritten,
            is_written,
            "{budget:?} {second:?}"
        );
    }
}

#[test]
fn normal_events_do_not_use_the_rate_limit_of_warnings() {
    let mut bench = Bench::new(RecorderOptions::default());
    let normal = call("Again", "me again");
    while bench.record(&normal) != CallResult::Unwritten {}
    let warning = Call {
        kind: EventType::Warning,
        ..normal
    };
    assert_ne!(bench.record(&warning), CallResult::Unwritten);
}

#[test]
fn rate_limit_refills_one_token_at_a_time() {
    let mut bench = Bench::new(RecorderOptions::default());
    let again = call("Again", "me again");
    let written = |bench: &mut Bench| {
        (0..100)
            .filter(|_| bench.record(&again) != CallResult::Unwritten)
            .count()
    };
    assert_eq!(written(&mut bench), BURST);
    bench.wait(Duration::from_secs(299));
    assert_eq!(written(&mut bench), 0);
    bench.wait(Duration::from_secs(1));
    assert_eq!(written(&mut bench), 1);
    bench.wait(Duration::from_mins(10));
    assert_eq!(written(&mut bench), 2);
    // Unwritten events are counted too.
    assert_eq!(bench.server.into_values().collect::<Vec<_>>(), [302]);
}

#[test]
fn rate_limit_accepts_extreme_values() {
    for (burst, refill) in [(u32::MAX, Duration::MAX), (u32::MAX, Duration::ZERO)] {
        let mut bench = Bench::new(RecorderOptions::default().burst(burst, refill));
        for _ in 0..3 {
            assert_ne!(bench.record(&call("Again", "me again")), CallResult::Unwritten);
        }
    }
    let mut never = Bench::new(RecorderOptions::default().burst(0, Duration::MAX));
    assert_eq!(never.record(&call("Again", "me again")), CallResult::Unwritten);
}

#[test]
fn first_messages_keep_their_event_when_others_are_combined() {
    let mut bench = Bench::new(RecorderOptions::default());
    for call in similar(COMBINE_FROM + 3) {
        bench.record(&call);
    }
    let first = call("Similar", "message 0");
    let expected = CallResult::Written {
        count: 2,
        message: "message 0".to_owned(),
    };
    assert_eq!(bench.record(&first), expected);
    // Nine single events, and one aggregate.
    assert_eq!(bench.server.len(), COMBINE_FROM);
}

#[test]
fn full_queue_drops_new_events_and_counts_known_ones() {
    let mut bench = Bench::new(RecorderOptions::default().max_queued(2));
    let (a, b, c) = (call("A", "x"), call("B", "x"), call("C", "x"));
    bench.record(&c);
    let Decision::Create(queued) = bench.observe(&a).decision else {
        panic!("the queue is not full");
    };
    assert!(matches!(bench.observe(&b).decision, Decision::Create(_)));
    let refused = bench.observe(&call("D", "x")).decision;
    assert_eq!(refused, Decision::Drop(DropReason::QueueFull));
    assert_eq!(bench.observe(&a).decision, Decision::Counted);
    assert!(matches!(bench.observe(&c).decision, Decision::Hold(..)));
    bench.write(&queued);
    assert_eq!(bench.last_write.as_ref().map(|write| write.count), Some(2));
    assert!(matches!(
        bench.observe(&call("D", "x")).decision,
        Decision::Create(_)
    ));
}

#[test]
fn simultaneous_events_have_different_names() {
    let mut bench = Bench::new(RecorderOptions::default());
    bench.record(&call("A", "x"));
    bench.record(&call("B", "x"));
    assert_eq!(bench.server.len(), 2);
}

#[test]
fn late_response_does_not_affect_a_newer_series() {
    let mut bench = Bench::new(RecorderOptions::default().max_series(1));
    let (a, b) = (call("A", "x"), call("B", "x"));
    let Decision::Create(key) = bench.observe(&a).decision else {
        panic!("the event is new");
    };
    let Due::Write(old) = bench.correlator.due(&key, bench.now.instant) else {
        panic!("the series is due");
    };
    // The series is evicted, and starts again.
    let forgotten = bench.observe(&b).forgotten;
    assert_eq!(forgotten, Some((key, 1)));
    let Decision::Create(key) = bench.observe(&a).decision else {
        panic!("the event is new again");
    };
    assert_eq!(
        bench.correlator.on_written(&old, bench.now.instant),
        Next::Nothing
    );
    bench.correlator.on_given_up(&old);
    bench.write(&key);
    assert_eq!(bench.server.into_values().collect::<Vec<_>>(), [1]);
}

#[derive(Clone, Debug)]
enum Step {
    Record {
        object: u8,
        kind: bool,
        reason: u8,
        message: u8,
    },
    Wait(u16),
    /// Takes a key from the queue, by index; the server's response.
    Take(usize, Answer),
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Accept,
    GiveUp,
    /// Events are recorded during the request.
    AcceptAfter(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let record =
        (0u8..3, any::<bool>(), 0u8..2, 0u8..14).prop_map(|(object, kind, reason, message)| Step::Record {
            object,
            kind,
            reason,
            message,
        });
    let answer = prop_oneof![
        5 => Just(Answer::Accept),
        1 => Just(Answer::GiveUp),
        2 => (1u8..4).prop_map(Answer::AcceptAfter),
    ];
    let take = (any::<usize>(), answer).prop_map(|(key, answer)| Step::Take(key, answer));
    prop::collection::vec(
        prop_oneof![6 => record, 1 => (0u16..700).prop_map(Step::Wait), 5 => take],
        0..400,
    )
}

proptest! {
    /// Every event is on the server or counted as dropped; rate and memory limits hold at every step.
    #[test]
    fn every_event_is_written_or_counted_as_dropped(steps in steps(), remembered in 1usize..40, queued in 1usize..20, burst in 1u32..6) {
        let options = RecorderOptions::default()
            .burst(burst, Duration::from_mins(5))
            .combine(4, Duration::from_mins(10))
            .max_series(remembered)
            .max_queued(queued);
        let mut bench = Bench::new(options);
        let started = bench.now.instant;
        let (mut calls, mut dropped, mut given_up) = (0u64, 0u64, 0u64);
        let paid = Cell::new(0u64);
        // The queued keys; taking one that is not due is harmless.
        let mut keys: Vec<Arc<SeriesKey>> = Vec::new();
        let mut record = |bench: &mut Bench, keys: &mut Vec<Arc<SeriesKey>>, call: &Call, room: usize| {
            calls += 1;
            let Observation { decision, forgotten } = bench.observe(call);
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
                Step::Record { object, kind, reason, message } => {
                    let call = Call {
                        object: format!("o{object}"),
                        kind: if kind { EventType::Normal } else { EventType::Warning },
                        ..call(&format!("R{reason}"), &format!("m{message}"))
                    };
                    let room = queued.saturating_sub(bench.correlator.queued);
                    record(&mut bench, &mut keys, &call, room);
                }
                Step::Wait(seconds) => bench.wait(Duration::from_secs(seconds.into())),
                Step::Take(at, answer) if !keys.is_empty() => {
                    let key = Arc::clone(&keys[at % keys.len()]);
                    let Due::Write(write) = bench.correlator.due(&key, bench.now.instant) else { continue };
                    if let Answer::AcceptAfter(times) = answer {
                        let call = Call {
                            object: key.aggregate.object.name.clone(),
                            kind: key.aggregate.kind,
                            ..call(&key.aggregate.reason, key.message.as_deref().unwrap_or("m13"))
                        };
                        for _ in 0..times {
                            let room = queued.saturating_sub(bench.correlator.queued);
                            record(&mut bench, &mut keys, &call, room);
                        }
                    }
                    if let Answer::GiveUp = answer {
                        let before = bench.correlator.unwritten();
                        bench.correlator.on_given_up(&write);
                        given_up += before - bench.correlator.unwritten();
                        continue;
                    }
                    bench.server.insert(write.name.clone(), write.count);
                    match bench.correlator.on_written(&write, bench.now.instant) {
                        Next::Again => paid.set(paid.get() + 1),
                        Next::Later(_) | Next::Nothing => {}
                    }
                }
                Step::Take(..) => {}
            }
            let correlator = &bench.correlator;
            let phases = correlator.series.values().filter(|series| series.phase == Phase::Queued).count();
            prop_assert_eq!(correlator.queued, phases);
            prop_assert!(correlator.series.len() <= remembered);
            prop_assert!(correlator.aggregates.len() <= remembered && correlator.budgets.len() <= remembered);
            // Three objects of two types; an evicted bucket starts full.
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
        // A series that gave up stays unwritten until its next event; all others are written.
        let held = bench.correlator.series.values().filter(|series| series.phase != Phase::Settled).count();
        prop_assert_eq!(held, 0);
    }
}
