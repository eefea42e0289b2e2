//! Simulates candidates for one lease, under thousands of random schedules.
//!
//! True time is in nanoseconds. Each candidate has a clock of its own that starts anywhere and runs up to 2.5 % fast or slow.
//! It may pause at any time for up to three lease durations and then act on stale state. Requests and responses are
//! delayed, reordered, or lost after the server has processed them. Candidates crash, or stop and release the lease, and
//! restart with a new identity.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use tokio::time::Instant;

use super::{
    config::Timing,
    elector::{Elector, LeaseRequest, LeaseResponse, Step},
    status::Epoch,
};

const LEASE: u64 = 15_000_000_000;
/// How long faults are injected.
const FAULT_PERIOD: u64 = 12 * LEASE;
/// Maximum delay of a message, and maximum pause of a process.
const MAX_DELAY: u64 = 3 * LEASE;
const TIMING: Timing = Timing {
    lease: Duration::from_nanos(LEASE),
    renew: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// The server: one lease with compare-and-swap by resource version.
#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

impl Server {
    fn handle(&mut self, ask: LeaseRequest) -> LeaseResponse {
        let written = match (ask, &self.lease) {
            (LeaseRequest::Get, Some(lease)) => return LeaseResponse::Lease(Box::new(lease.clone())),
            (LeaseRequest::Get | LeaseRequest::Update(_), None) => return LeaseResponse::Absent,
            (LeaseRequest::Create(lease), None) => lease,
            (LeaseRequest::Update(lease), Some(stored))
                if lease.metadata.resource_version == stored.metadata.resource_version =>
            {
                lease
            }
            (LeaseRequest::Create(_) | LeaseRequest::Update(_), Some(_)) => return LeaseResponse::Conflict,
        };
        self.version += 1;
        let mut lease = written;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(*lease.clone());
        LeaseResponse::Lease(lease)
    }
}

struct Candidate {
    elector: Elector,
    /// This clock at true time zero.
    origin: Instant,
    rate: f64,
    pending_request: Option<u64>,
    /// Paused until this true time.
    paused_until: u64,
    /// The next timer; earlier timers are stale.
    wakes_at: u64,
}

impl Candidate {
    fn clock(&self, now: u64) -> Instant {
        self.origin + Duration::from_nanos(now).mul_f64(self.rate)
    }

    /// The true time at which this clock reaches `instant`, rounded up.
    fn true_time(&self, instant: Instant) -> u64 {
        let local = instant.saturating_duration_since(self.origin);
        nanoseconds(local.div_f64(self.rate)) + 1000
    }

    fn may_write(&self, now: u64) -> bool {
        self.elector
            .grant()
            .is_some_and(|grant| grant.is_open(self.clock(now)))
    }
}

enum Event {
    Wake(usize),
    /// A request reaches the server; `None` if its response is not awaited.
    Arrive(usize, Option<u64>, Box<LeaseRequest>),
    Answered(usize, u64, Box<LeaseResponse>),
    /// A candidate crashes, or releases the lease and stops.
    Leave(usize, Departure),
}

#[derive(Clone, Copy)]
enum Departure {
    Crash,
    Release,
}

struct Simulation {
    rng: fastrand::Rng,
    now: u64,
    server: Server,
    candidates: Vec<Candidate>,
    /// Time and id of the scheduled events, in order.
    schedule: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    scheduled: u64,
    /// The last term of any leader.
    epoch: Option<Epoch>,
    /// The candidate that believes to lead in it.
    leader: Option<usize>,
    terms: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut simulation = Self {
            rng: fastrand::Rng::with_seed(seed),
            now: 0,
            server: Server::default(),
            candidates: Vec::new(),
            schedule: BinaryHeap::new(),
            events: BTreeMap::new(),
            scheduled: 0,
            epoch: None,
            leader: None,
            terms: 0,
        };
        for at in 0..simulation.rng.usize(2..=5) {
            let candidate = simulation.new_candidate();
            simulation.candidates.push(candidate);
            simulation.schedule_event(0, Event::Wake(at));
        }
        simulation
    }

    fn new_candidate(&mut self) -> Candidate {
        let identity = format!("candidate-{}", self.rng.u64(..));
        let rng = self.rng.fork();
        let started = Duration::from_secs(self.rng.u64(0..1_000_000));
        Candidate {
            elector: Elector::new(identity, BTreeMap::new(), TIMING, rng),
            origin: Instant::now() + started,
            rate: if self.rng.bool() {
                *self.rng.choice(&[0.975, 1.025]).expect("two rates")
            } else {
                0.975 + 0.05 * self.rng.f64()
            },
            pending_request: None,
            paused_until: 0,
            wakes_at: 0,
        }
    }

    fn schedule_event(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.schedule.push(Reverse((at.max(self.now), self.scheduled)));
        self.events.insert(self.scheduled, event);
    }

    fn has_faults(&self) -> bool {
        self.now < FAULT_PERIOD
    }

    /// Runs until this true time.
    fn run(&mut self, end: u64) {
        while let Some(Reverse((at, id))) = self.schedule.pop() {
            if at > end {
                self.schedule.push(Reverse((at, id)));
                break;
            }
            self.now = at;
            let event = self.events.remove(&id).expect("every event is scheduled once");
            self.handle_event(event);
        }
        self.now = end;
    }

    fn handle_event(&mut self, event: Event) {
        let (Event::Wake(who) | Event::Answered(who, ..) | Event::Leave(who, _)) = event else {
            let Event::Arrive(who, waits, ask) = event else {
                unreachable!()
            };
            let answer = self.server.handle(*ask);
            if let Some(request) = waits
                && let Some(delay) = self.delay()
            {
                self.schedule_event(self.now + delay, Event::Answered(who, request, Box::new(answer)));
            }
            return;
        };
        if self.now < self.candidates[who].paused_until {
            return self.schedule_event(self.candidates[who].paused_until, event);
        }
        if self.has_faults() && self.rng.u32(0..100) < 3 {
            let pause = self.rng.u64(0..MAX_DELAY);
            self.candidates[who].paused_until = self.now + pause;
            return self.schedule_event(self.now + pause, event);
        }
        match event {
            Event::Wake(_) if self.candidates[who].wakes_at <= self.now => self.wake(who),
            Event::Answered(_, request, answer) if self.candidates[who].pending_request == Some(request) => {
                self.answered(who, *answer);
            }
            Event::Leave(_, departure) => self.leave(who, departure),
            _ => {}
        }
    }

    /// Handles a candidate's timer: a pending request has timed out.
    fn wake(&mut self, who: usize) {
        if self.candidates[who].pending_request.is_some() {
            return self.answered(who, LeaseResponse::Failed);
        }
        let wall = Timestamp::from_second(i64::from(self.rng.u32(..))).expect("in range");
        let candidate = &mut self.candidates[who];
        let clock = candidate.clock(self.now);
        let step = candidate.elector.next(clock, wall);
        if !candidate.elector.is_leading() {
            self.term_ends(who);
        }
        let candidate = &mut self.candidates[who];
        let ask = match step {
            Step::Wait(until) => return self.wake_at(who, until),
            Step::Send(ask) => ask,
        };
        let deadline = clock + TIMING.request_timeout();
        let until = candidate
            .elector
            .step_down_at()
            .map_or(deadline, |at| at.min(deadline));
        let request = self.scheduled + 1;
        candidate.pending_request = Some(request);
        self.wake_at(who, until);
        if let Some(delay) = self.delay() {
            self.schedule_event(self.now + delay, Event::Arrive(who, Some(request), Box::new(ask)));
        }
        if self.has_faults() && self.rng.u32(0..200) == 0 {
            let departure = *self
                .rng
                .choice(&[Departure::Crash, Departure::Release])
                .expect("two");
            let after = self.rng.u64(0..LEASE);
            self.schedule_event(self.now + after, Event::Leave(who, departure));
        }
    }

    fn wake_at(&mut self, who: usize, instant: Instant) {
        let at = self.candidates[who].true_time(instant).max(self.now + 1000);
        self.candidates[who].wakes_at = at;
        self.schedule_event(at, Event::Wake(who));
    }

    fn answered(&mut self, who: usize, answer: LeaseResponse) {
        let clock = self.candidates[who].clock(self.now);
        let candidate = &mut self.candidates[who];
        candidate.pending_request = None;
        candidate.elector.handle_response(clock, answer);
        candidate.wakes_at = self.now;
        self.check_single_writer(who);
        self.schedule_event(self.now, Event::Wake(who));
    }

    fn leave(&mut self, who: usize, departure: Departure) {
        self.term_ends(who);
        let newcomer = self.new_candidate();
        let mut left = std::mem::replace(&mut self.candidates[who], newcomer);
        self.schedule_event(self.now, Event::Wake(who));
        if let Departure::Release = departure
            && let Some(lease) = self.server.lease.clone()
        {
            // The lease may have changed when the release arrives.
            left.elector.resign();
            if let Some(released) = left.elector.released_lease(lease, Timestamp::UNIX_EPOCH)
                && let Some(delay) = self.delay()
            {
                let ask = Box::new(LeaseRequest::Update(Box::new(released)));
                self.schedule_event(self.now + delay, Event::Arrive(who, None, ask));
            }
        }
    }

    /// Checks that at most one fence is open. A fence opens or is extended only when a response arrives, so checking then
    /// suffices.
    fn check_single_writer(&mut self, who: usize) {
        let candidate = &self.candidates[who];
        let may_write = candidate.may_write(self.now);
        let leads = candidate.elector.leadership().epoch().filter(|_| may_write);
        if may_write {
            let writers = self.candidates.iter().filter(|other| other.may_write(self.now));
            assert_eq!(
                writers.count(),
                1,
                "two writers at {} s",
                self.now / 1_000_000_000
            );
        }
        let Some(epoch) = leads else {
            return self.term_ends(who);
        };
        if self.leader != Some(who) {
            assert!(self.epoch < Some(epoch), "term {epoch} after {:?}", self.epoch);
            self.terms += 1;
        }
        (self.leader, self.epoch) = (Some(who), Some(epoch));
    }

    fn term_ends(&mut self, who: usize) {
        if self.leader == Some(who) {
            self.leader = None;
        }
    }

    /// Delay of a message; `None` if it is lost.
    fn delay(&mut self) -> Option<u64> {
        let short = self.rng.u64(0..20_000_000);
        if !self.has_faults() {
            return Some(short);
        }
        match self.rng.u32(0..100) {
            0..8 => None,
            8..16 => Some(self.rng.u64(0..MAX_DELAY)),
            16..24 => Some(self.rng.u64(0..LEASE / 4)),
            _ => Some(short),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a simulation is short")
}

/// No two processes may write at the same true time, epochs increase, and after the faults end there is soon a leader.
#[test]
fn every_schedule_has_at_most_one_writer_and_elects_a_leader() {
    let seeds = match std::env::var("ELECTION_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("ELECTION_SEED is a number");
            seed..=seed
        }
        Err(_) => 1..=2000,
    };
    let mut terms = 0;
    for seed in seeds {
        let schedule = std::panic::AssertUnwindSafe(|| {
            let mut simulation = Simulation::new(seed);
            simulation.run(FAULT_PERIOD);
            // Delayed messages arrive, paused processes resume, the last record expires, and candidates retry.
            simulation.run(FAULT_PERIOD + 2 * MAX_DELAY + 2 * LEASE);
            let leaders = simulation
                .candidates
                .iter()
                .filter(|one| one.elector.is_leading());
            assert_eq!(leaders.count(), 1, "leaders after all faults ended");
            simulation.terms
        });
        let Ok(more) = std::panic::catch_unwind(schedule) else {
            panic!("repeat this schedule with ELECTION_SEED={seed}");
        };
        terms += more;
    }
    assert!(terms > 5, "the schedules must contain changes of leaders");
}
