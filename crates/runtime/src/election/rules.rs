//! The rules of an election, one by one, on the elector alone.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use tokio::time::Instant;

use super::{
    config::ElectionConfig,
    elector::{Answer, Ask, Elector, Step},
    record::Record,
    status::{Epoch, Leadership},
};

const SECOND: Duration = Duration::from_secs(1);

/// One candidate, its clock, and the lease that it talks about.
struct Bench {
    elector: Elector,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let timing = ElectionConfig::new("lease").timing;
        let rng = fastrand::Rng::with_seed(7);
        Self {
            elector: Elector::new("me".to_owned(), BTreeMap::new(), timing, rng),
            now: Instant::now(),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn next(&mut self) -> Step {
        self.elector.next(self.now, stamp(1000))
    }

    fn answer(&mut self, answer: Answer) {
        self.elector.answer(self.now, answer);
    }

    /// Waits as long as the elector wants to, and returns what it then asks.
    fn ask(&mut self) -> Ask {
        loop {
            match self.next() {
                Step::Wait(until) => self.now = until,
                Step::Ask(ask) => return ask,
            }
        }
    }

    /// The next question is a look, and this is what it finds.
    fn looks(&mut self, answer: Answer) {
        let ask = self.ask();
        assert!(matches!(ask, Ask::Get), "{ask:?}");
        self.answer(answer);
    }

    /// The next question is a write, which works; returns what was written.
    fn writes(&mut self) -> Lease {
        let (Ask::Create(lease) | Ask::Update(lease)) = self.ask() else {
            panic!("it looks instead of writing");
        };
        self.answer(Answer::Lease(lease.clone()));
        *lease
    }

    fn leads(&mut self) -> Lease {
        self.looks(Answer::Absent);
        self.writes()
    }

    fn epoch(&self) -> Option<u64> {
        self.elector.leadership().epoch().map(|Epoch(epoch)| epoch)
    }
}

fn stamp(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

fn record(holder: &str, seconds: u64) -> Record {
    Record {
        holder: holder.to_owned(),
        duration: Some(Duration::from_secs(seconds)),
        transitions: 4,
        acquired: Some(stamp(10)),
        renewed: Some(stamp(20)),
    }
}

fn lease(record: &Record) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.resource_version = Some("1".to_owned());
    record.write_into(&mut lease, &BTreeMap::new());
    lease
}

fn found(record: &Record) -> Answer {
    Answer::Lease(Box::new(lease(record)))
}

/// 112: a lease that is not there or that nobody holds is taken at once.
#[test]
fn a_lease_without_a_holder_is_taken_at_once() {
    let empty_spec = Lease {
        spec: Some(k8s_openapi::api::coordination::v1::LeaseSpec::default()),
        ..Lease::default()
    };
    let cases = [
        ("no lease", Answer::Absent, 0),
        ("no spec", Answer::Lease(Box::default()), 1),
        ("an empty spec", Answer::Lease(Box::new(empty_spec)), 1),
        ("an empty holder", found(&record("", 60)), 5),
    ];
    for (case, answer, expected) in cases {
        let mut bench = Bench::new();
        bench.looks(answer);
        let written = Record::of(&bench.writes());
        assert_eq!(written.holder, "me", "{case}");
        assert_eq!(written.transitions, expected, "{case}");
        assert_eq!(
            (written.acquired, written.renewed),
            (Some(stamp(1000)), Some(stamp(1000)))
        );
        assert_eq!(bench.epoch(), u64::try_from(expected).ok(), "{case}");
    }
}

/// 112, 115: a holder that was silent for its own lease duration is replaced, whatever ours is.
#[test]
fn a_silent_holder_keeps_the_lease_for_the_duration_that_it_stated() {
    for seconds in [3, 60] {
        let mut bench = Bench::new();
        let old = record("other", seconds);
        bench.looks(found(&old));
        let seen = bench.now;
        loop {
            let ask = bench.ask();
            if let Ask::Update(lease) = ask {
                assert_eq!(Record::of(&lease).transitions, 5);
                break;
            }
            bench.answer(found(&old));
        }
        let waited = bench.now - seen;
        let stated = Duration::from_secs(seconds);
        assert!(waited >= stated && waited <= stated + SECOND * 5, "{waited:?}");
    }
}

/// 113: a holder that renews is left alone, and its clock has no say: its times may be years ago.
#[test]
fn a_holder_that_renews_is_never_replaced() {
    let mut bench = Bench::new();
    for second in 0..100 {
        let renewed = Some(stamp(second));
        bench.looks(found(&Record {
            renewed,
            ..record("other", 15)
        }));
    }
    let holder = Some("other".to_owned());
    assert_eq!(bench.elector.leadership(), Leadership::Follower { holder });
}

#[test]
fn a_holder_that_states_no_duration_is_given_ours() {
    let mut bench = Bench::new();
    let old = Record {
        duration: None,
        ..record("other", 1)
    };
    bench.looks(found(&old));
    bench.pass(SECOND * 14);
    bench.looks(found(&old));
    assert!(matches!(bench.next(), Step::Wait(_)));
    bench.pass(SECOND * 15);
    bench.looks(found(&old));
    bench.writes();
    assert_eq!(bench.epoch(), Some(5));
}

/// 114, 118: a renewal is an update without a look, and keeps the term and when it began.
#[test]
fn a_renewal_keeps_the_term_and_when_it_began() {
    let mut bench = Bench::new();
    bench.looks(found(&record("", 1)));
    let first = Record::of(&bench.writes());
    let before = bench.now;
    let second = Record::of(&bench.writes());
    assert_eq!(bench.now - before, SECOND * 2);
    assert_eq!((second.transitions, second.acquired), (5, first.acquired));
    assert!(
        second.renewed > first.renewed,
        "even though the wall clock stood still"
    );
    assert_eq!(bench.elector.slow_paths(), 0);
}

/// 118: a renewal that fails looks, and then updates what it found.
#[test]
fn a_failed_renewal_looks_and_tries_again() {
    let mut bench = Bench::new();
    let mut held = bench.leads();
    assert!(matches!(bench.ask(), Ask::Update(_)));
    bench.answer(Answer::Conflict);
    held.metadata.resource_version = Some("9".to_owned());
    bench.looks(Answer::Lease(Box::new(held)));
    let written = bench.writes();
    assert_eq!(written.metadata.resource_version.as_deref(), Some("9"));
    assert_eq!((bench.epoch(), bench.elector.slow_paths()), (Some(0), 1));
}

#[test]
fn a_leader_whose_lease_was_deleted_makes_it_again_for_the_same_term() {
    let mut bench = Bench::new();
    bench.looks(found(&record("", 1)));
    let acquired = Record::of(&bench.writes()).acquired;
    assert!(matches!(bench.ask(), Ask::Update(_)));
    bench.answer(Answer::Absent);
    bench.looks(Answer::Absent);
    let Ask::Create(lease) = bench.ask() else {
        panic!("it creates the lease")
    };
    let created = Record::of(&lease);
    assert_eq!((created.transitions, created.acquired), (5, acquired));
}

#[test]
fn a_leader_that_finds_another_holder_stops_at_once() {
    let mut bench = Bench::new();
    bench.leads();
    assert!(matches!(bench.ask(), Ask::Update(_)));
    bench.answer(Answer::Conflict);
    bench.looks(found(&record("other", 15)));
    assert_eq!((bench.epoch(), bench.elector.grant()), (None, None));
}

/// The renewals of a leader fail from its first second: it leads for the retry period and the renew deadline, and
/// its writes may go on until the lease, less the drift of clocks, is over.
#[test]
fn a_leader_that_cannot_renew_steps_down_before_its_lease_ends() {
    let mut bench = Bench::new();
    bench.leads();
    let won = bench.now;
    loop {
        let step = bench.next();
        if !bench.elector.is_leading() {
            break;
        }
        match step {
            Step::Wait(until) => bench.now = until,
            Step::Ask(_) => bench.answer(Answer::Failed),
        }
    }
    assert_eq!(bench.now - won, SECOND * 12);
    let grant = bench.elector.grant().expect("its writes may still finish");
    assert_eq!(grant.valid_until - won, Duration::from_millis(14_250));
}

/// The validity of a lease counts from before the request, even if the answer takes long.
#[test]
fn a_lease_is_valid_from_before_it_was_asked_for() {
    let mut bench = Bench::new();
    bench.looks(Answer::Absent);
    let asked = bench.now;
    let Ask::Create(lease) = bench.ask() else {
        panic!("it creates the lease")
    };
    bench.pass(SECOND * 4);
    bench.answer(Answer::Lease(lease.clone()));
    let grant = bench.elector.grant().expect("it leads");
    assert_eq!(grant.valid_until - asked, Duration::from_millis(14_250));

    let mut late = Bench::new();
    late.looks(Answer::Absent);
    late.ask();
    late.pass(SECOND * 15);
    late.answer(Answer::Lease(lease));
    assert_eq!((late.epoch(), late.elector.grant()), (None, None));
}

#[test]
fn a_lease_that_was_won_without_an_answer_is_used_in_that_term() {
    let mut bench = Bench::new();
    bench.looks(found(&record("", 1)));
    let Ask::Update(lost) = bench.ask() else {
        panic!("it takes the lease")
    };
    bench.answer(Answer::Failed);
    let acquired = Record::of(&lost).acquired;
    bench.looks(Answer::Lease(lost));
    let written = Record::of(&bench.writes());
    assert_eq!((written.transitions, written.acquired), (5, acquired));
    assert_eq!(bench.epoch(), Some(5));
}

/// 192: who lost the lease and wins it again leads in a new term, even if nobody else led between.
#[test]
fn an_own_lease_that_was_lost_is_won_again_in_a_new_term() {
    let mut bench = Bench::new();
    let held = bench.leads();
    bench.pass(SECOND * 13);
    assert!(matches!(bench.next(), Step::Wait(_)), "it stepped down");
    bench.looks(Answer::Lease(Box::new(held)));
    assert_eq!(Record::of(&bench.writes()).transitions, 1);
    assert_eq!(bench.epoch(), Some(1));
}

#[test]
fn a_deleted_lease_is_not_taken_before_its_last_holder_is_silent_for_long_enough() {
    let mut bench = Bench::new();
    bench.looks(found(&record("other", 15)));
    let seen = bench.now;
    while let Ask::Get = bench.ask() {
        bench.answer(Answer::Absent);
    }
    assert!(bench.now - seen >= SECOND * 15);
    bench.elector.answer(bench.now, Answer::Failed);
    bench.looks(Answer::Absent);
    assert_eq!(
        Record::of(&bench.writes()).transitions,
        5,
        "terms go on increasing"
    );
}

#[test]
fn a_lease_that_counts_no_further_is_not_taken() {
    let mut bench = Bench::new();
    bench.looks(found(&Record {
        transitions: i32::MAX,
        ..record("", 1)
    }));
    assert!(matches!(bench.next(), Step::Wait(_)));
    assert_eq!(bench.epoch(), None);
}

#[test]
fn candidates_come_back_after_one_to_two_point_two_retry_periods() {
    let mut bench = Bench::new();
    let mut waits = Vec::new();
    for second in 0..1000 {
        let renewed = Some(stamp(second));
        bench.looks(found(&Record {
            renewed,
            ..record("other", 15)
        }));
        let Step::Wait(until) = bench.next() else {
            panic!("it waits")
        };
        waits.push(until - bench.now);
    }
    let (shortest, longest) = (waits.iter().min(), waits.iter().max());
    assert!(shortest.is_some_and(|wait| *wait >= SECOND * 2 && *wait < SECOND * 21 / 10));
    assert!(longest.is_some_and(|wait| *wait > SECOND * 43 / 10 && *wait <= SECOND * 44 / 10));
}

/// 116: only an own lease is released; everything but the holder and the times stays.
#[test]
fn only_an_own_lease_is_released() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.elector.released(lease(&record("other", 15)), stamp(1)),
        None
    );
    let released = bench.elector.released(lease(&record("me", 15)), stamp(30));
    let released = Record::of(&released.expect("it is ours"));
    let expected = Record {
        acquired: Some(stamp(30)),
        renewed: Some(stamp(30)),
        ..record("", 1)
    };
    assert_eq!(released, expected);
}
