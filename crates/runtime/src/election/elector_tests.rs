//! Tests of the elector without a driver.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use tokio::time::Instant;

use super::{
    config::ElectionConfig,
    elector::{Elector, LeaseRequest, LeaseResponse, Step},
    record::LeaderElectionRecord,
    status::{Epoch, Leadership},
};

const SECOND: Duration = Duration::from_secs(1);

/// One candidate with a manual clock.
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

    fn advance(&mut self, time: Duration) {
        self.now += time;
    }

    fn next(&mut self) -> Step {
        self.elector.next(self.now, stamp(1000))
    }

    fn answer(&mut self, answer: LeaseResponse) {
        self.elector.handle_response(self.now, answer);
    }

    /// Waits as long as the elector wants, and returns its next request.
    fn ask(&mut self) -> LeaseRequest {
        loop {
            match self.next() {
                Step::Wait(until) => self.now = until,
                Step::Send(ask) => return ask,
            }
        }
    }

    /// Expects the next request to be a get, and answers it.
    fn answer_get(&mut self, answer: LeaseResponse) {
        let ask = self.ask();
        assert!(matches!(ask, LeaseRequest::Get), "{ask:?}");
        self.answer(answer);
    }

    /// Expects the next request to be a write, accepts it, and returns the lease.
    fn accept_write(&mut self) -> Lease {
        let (LeaseRequest::Create(lease) | LeaseRequest::Update(lease)) = self.ask() else {
            panic!("expected a write, got a get");
        };
        self.answer(LeaseResponse::Lease(lease.clone()));
        *lease
    }

    fn become_leader(&mut self) -> Lease {
        self.answer_get(LeaseResponse::Absent);
        self.accept_write()
    }

    fn epoch(&self) -> Option<u64> {
        self.elector.leadership().epoch().map(|Epoch(epoch)| epoch)
    }
}

fn stamp(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

fn record(holder: &str, seconds: u64) -> LeaderElectionRecord {
    LeaderElectionRecord {
        holder: holder.to_owned(),
        duration: Some(Duration::from_secs(seconds)),
        transitions: 4,
        acquired: Some(stamp(10)),
        renewed: Some(stamp(20)),
    }
}

fn lease(record: &LeaderElectionRecord) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.resource_version = Some("1".to_owned());
    record.write_into(&mut lease, &BTreeMap::new());
    lease
}

fn found(record: &LeaderElectionRecord) -> LeaseResponse {
    LeaseResponse::Lease(Box::new(lease(record)))
}

#[test]
fn lease_without_a_holder_is_taken_at_once() {
    let empty_spec = Lease {
        spec: Some(k8s_openapi::api::coordination::v1::LeaseSpec::default()),
        ..Lease::default()
    };
    let cases = [
        ("no lease", LeaseResponse::Absent, 0),
        ("no spec", LeaseResponse::Lease(Box::default()), 1),
        ("an empty spec", LeaseResponse::Lease(Box::new(empty_spec)), 1),
        ("an empty holder", found(&record("", 60)), 5),
    ];
    for (case, answer, expected) in cases {
        let mut bench = Bench::new();
        bench.answer_get(answer);
        let written = LeaderElectionRecord::from_lease(&bench.accept_write());
        assert_eq!(written.holder, "me", "{case}");
        assert_eq!(written.transitions, expected, "{case}");
        assert_eq!(
            (written.acquired, written.renewed),
            (Some(stamp(1000)), Some(stamp(1000)))
        );
        assert_eq!(bench.epoch(), u64::try_from(expected).ok(), "{case}");
    }
}

/// The holder's own duration counts, not the candidate's.
#[test]
fn lease_is_taken_after_the_holders_duration_without_renewal() {
    for seconds in [3, 60] {
        let mut bench = Bench::new();
        let old = record("other", seconds);
        bench.answer_get(found(&old));
        let seen = bench.now;
        loop {
            let ask = bench.ask();
            if let LeaseRequest::Update(lease) = ask {
                assert_eq!(LeaderElectionRecord::from_lease(&lease).transitions, 5);
                break;
            }
            bench.answer(found(&old));
        }
        let waited = bench.now - seen;
        let stated = Duration::from_secs(seconds);
        assert!(waited >= stated && waited <= stated + SECOND * 5, "{waited:?}");
    }
}

/// The holder's wall clock does not matter: its times may be years ago.
#[test]
fn renewed_lease_is_never_taken() {
    let mut bench = Bench::new();
    for second in 0..100 {
        let renewed = Some(stamp(second));
        bench.answer_get(found(&LeaderElectionRecord {
            renewed,
            ..record("other", 15)
        }));
    }
    let holder = Some("other".to_owned());
    assert_eq!(bench.elector.leadership(), Leadership::Follower { holder });
}

#[test]
fn lease_without_a_duration_expires_after_ours() {
    let mut bench = Bench::new();
    let old = LeaderElectionRecord {
        duration: None,
        ..record("other", 1)
    };
    bench.answer_get(found(&old));
    bench.advance(SECOND * 14);
    bench.answer_get(found(&old));
    assert!(matches!(bench.next(), Step::Wait(_)));
    bench.advance(SECOND * 15);
    bench.answer_get(found(&old));
    bench.accept_write();
    assert_eq!(bench.epoch(), Some(5));
}

/// A renewal is an update without a get.
#[test]
fn renewal_keeps_the_term_and_its_acquire_time() {
    let mut bench = Bench::new();
    bench.answer_get(found(&record("", 1)));
    let first = LeaderElectionRecord::from_lease(&bench.accept_write());
    let before = bench.now;
    let second = LeaderElectionRecord::from_lease(&bench.accept_write());
    assert_eq!(bench.now - before, SECOND * 2);
    assert_eq!((second.transitions, second.acquired), (5, first.acquired));
    assert!(
        second.renewed > first.renewed,
        "even though the wall clock did not advance"
    );
    assert_eq!(bench.elector.slow_paths(), 0);
}

#[test]
fn failed_renewal_reads_the_lease_and_retries() {
    let mut bench = Bench::new();
    let mut held = bench.become_leader();
    assert!(matches!(bench.ask(), LeaseRequest::Update(_)));
    bench.answer(LeaseResponse::Conflict);
    held.metadata.resource_version = Some("9".to_owned());
    bench.answer_get(LeaseResponse::Lease(Box::new(held)));
    let written = bench.accept_write();
    assert_eq!(written.metadata.resource_version.as_deref(), Some("9"));
    assert_eq!((bench.epoch(), bench.elector.slow_paths()), (Some(0), 1));
}

#[test]
fn leader_recreates_a_deleted_lease_for_the_same_term() {
    let mut bench = Bench::new();
    bench.answer_get(found(&record("", 1)));
    let acquired = LeaderElectionRecord::from_lease(&bench.accept_write()).acquired;
    assert!(matches!(bench.ask(), LeaseRequest::Update(_)));
    bench.answer(LeaseResponse::Absent);
    bench.answer_get(LeaseResponse::Absent);
    let LeaseRequest::Create(lease) = bench.ask() else {
        panic!("expected a create")
    };
    let created = LeaderElectionRecord::from_lease(&lease);
    assert_eq!((created.transitions, created.acquired), (5, acquired));
}

#[test]
fn leader_that_finds_another_holder_stops_at_once() {
    let mut bench = Bench::new();
    bench.become_leader();
    assert!(matches!(bench.ask(), LeaseRequest::Update(_)));
    bench.answer(LeaseResponse::Conflict);
    bench.answer_get(found(&record("other", 15)));
    assert_eq!((bench.epoch(), bench.elector.grant()), (None, None));
}

/// All renewals fail: the leader leads for the retry period and the renew deadline, and its writes are allowed until the
/// lease, less the clock drift, expires.
#[test]
fn leader_that_cannot_renew_steps_down_before_its_lease_expires() {
    let mut bench = Bench::new();
    bench.become_leader();
    let won = bench.now;
    loop {
        let step = bench.next();
        if !bench.elector.is_leading() {
            break;
        }
        match step {
            Step::Wait(until) => bench.now = until,
            Step::Send(_) => bench.answer(LeaseResponse::Failed),
        }
    }
    assert_eq!(bench.now - won, SECOND * 12);
    let grant = bench.elector.grant().expect("writes are still allowed");
    assert_eq!(grant.valid_until - won, Duration::from_millis(14_250));
}

/// The validity of a lease counts from before the request, however late the response.
#[test]
fn lease_validity_counts_from_before_the_request() {
    let mut bench = Bench::new();
    bench.answer_get(LeaseResponse::Absent);
    let asked = bench.now;
    let LeaseRequest::Create(lease) = bench.ask() else {
        panic!("expected a create")
    };
    bench.advance(SECOND * 4);
    bench.answer(LeaseResponse::Lease(lease.clone()));
    let grant = bench.elector.grant().expect("the candidate leads");
    assert_eq!(grant.valid_until - asked, Duration::from_millis(14_250));

    let mut late = Bench::new();
    late.answer_get(LeaseResponse::Absent);
    late.ask();
    late.advance(SECOND * 15);
    late.answer(LeaseResponse::Lease(lease));
    assert_eq!((late.epoch(), late.elector.grant()), (None, None));
}

#[test]
fn lease_taken_by_a_write_without_response_is_used_in_that_term() {
    let mut bench = Bench::new();
    bench.answer_get(found(&record("", 1)));
    let LeaseRequest::Update(lost) = bench.ask() else {
        panic!("expected an update")
    };
    bench.answer(LeaseResponse::Failed);
    let acquired = LeaderElectionRecord::from_lease(&lost).acquired;
    bench.answer_get(LeaseResponse::Lease(lost));
    let written = LeaderElectionRecord::from_lease(&bench.accept_write());
    assert_eq!((written.transitions, written.acquired), (5, acquired));
    assert_eq!(bench.epoch(), Some(5));
}

/// Even if no other process led in between.
#[test]
fn lost_lease_is_won_again_in_a_new_term() {
    let mut bench = Bench::new();
    let held = bench.become_leader();
    bench.advance(SECOND * 13);
    assert!(matches!(bench.next(), Step::Wait(_)), "the leader stepped down");
    bench.answer_get(LeaseResponse::Lease(Box::new(held)));
    assert_eq!(
        LeaderElectionRecord::from_lease(&bench.accept_write()).transitions,
        1
    );
    assert_eq!(bench.epoch(), Some(1));
}

#[test]
fn deleted_lease_is_not_taken_before_it_would_have_expired() {
    let mut bench = Bench::new();
    bench.answer_get(found(&record("other", 15)));
    let seen = bench.now;
    while let LeaseRequest::Get = bench.ask() {
        bench.answer(LeaseResponse::Absent);
    }
    assert!(bench.now - seen >= SECOND * 15);
    bench.elector.handle_response(bench.now, LeaseResponse::Failed);
    bench.answer_get(LeaseResponse::Absent);
    assert_eq!(
        LeaderElectionRecord::from_lease(&bench.accept_write()).transitions,
        5,
        "epochs keep increasing"
    );
}

#[test]
fn lease_at_the_maximum_of_transitions_is_not_taken() {
    let mut bench = Bench::new();
    bench.answer_get(found(&LeaderElectionRecord {
        transitions: i32::MAX,
        ..record("", 1)
    }));
    assert!(matches!(bench.next(), Step::Wait(_)));
    assert_eq!(bench.epoch(), None);
}

#[test]
fn candidates_retry_after_one_to_two_point_two_retry_periods() {
    let mut bench = Bench::new();
    let mut waits = Vec::new();
    for second in 0..1000 {
        let renewed = Some(stamp(second));
        bench.answer_get(found(&LeaderElectionRecord {
            renewed,
            ..record("other", 15)
        }));
        let Step::Wait(until) = bench.next() else {
            panic!("expected a wait")
        };
        waits.push(until - bench.now);
    }
    let (shortest, longest) = (waits.iter().min(), waits.iter().max());
    assert!(shortest.is_some_and(|wait| *wait >= SECOND * 2 && *wait < SECOND * 21 / 10));
    assert!(longest.is_some_and(|wait| *wait > SECOND * 43 / 10 && *wait <= SECOND * 44 / 10));
}

/// Everything but the holder and the times is kept.
#[test]
fn only_our_own_lease_is_released() {
    let mut bench = Bench::new();
    assert_eq!(
        bench
            .elector
            .released_lease(lease(&record("other", 15)), stamp(1)),
        None
    );
    let released = bench.elector.released_lease(lease(&record("me", 15)), stamp(30));
    let released = LeaderElectionRecord::from_lease(&released.expect("the lease is ours"));
    let expected = LeaderElectionRecord {
        acquired: Some(stamp(30)),
        renewed: Some(stamp(30)),
        ..record("", 1)
    };
    assert_eq!(released, expected);
}
