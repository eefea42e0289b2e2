//! Rotation against a small API server: replicas that are killed at every request, that rotate at once, whose clock jumps, and
//! people who delete things.
//!
//! At every moment the one law holds: a chain that a ready replica serves is trusted by every bundle.

use super::*;

const DAY: Seconds = 86_400;
const START: Seconds = 1_800_000_000;

/// The API server: a Secret, and the bundles of two objects, of which one has two entries.
#[derive(Clone, Debug, Default)]
struct Server {
    version: u64,
    secret: Option<(String, SecretData)>,
    targets: [Vec<Option<Vec<u8>>>; 2],
    target_versions: [u64; 2],
    writes: usize,
}

impl Server {
    fn new() -> Self {
        Self {
            targets: [vec![None, None], vec![None]],
            ..Self::default()
        }
    }

    fn answer(&mut self, request: Request) -> Reply {
        self.version += 1;
        match request {
            Request::GetSecret => Reply::Secret(self.secret.clone()),
            Request::CreateSecret(_) if self.secret.is_some() => Reply::Conflict,
            Request::UpdateSecret { version, .. }
                if self
                    .secret
                    .as_ref()
                    .is_none_or(|(current, _)| *current != version) =>
            {
                Reply::Conflict
            }
            Request::CreateSecret(data) | Request::UpdateSecret { data, .. } => {
                self.writes += 1;
                self.secret = Some((self.version.to_string(), data));
                Reply::Written
            }
            Request::GetTarget(index) => Reply::Target(TargetState::Present {
                version: self.target_versions[index].to_string(),
                entries: self.targets[index]
                    .iter()
                    .enumerate()
                    .map(|(entry, bundle)| Entry {
                        path: entry.to_string(),
                        bundle: bundle.clone(),
                    })
                    .collect(),
            }),
            Request::PatchTarget {
                index,
                version,
                bundle,
                ..
            } => {
                if self.target_versions[index].to_string() != version {
                    return Reply::Conflict;
                }
                self.writes += 1;
                self.target_versions[index] = self.version;
                self.targets[index].fill(Some(bundle));
                Reply::Written
            }
        }
    }

    fn stored(&self) -> Stored {
        Stored::parse(&self.secret.as_ref().expect("a Secret").1).expect("certificates")
    }

    fn trusts(&self, chain: &str, now: Seconds) -> bool {
        let mut bundles = self.targets.iter().flatten();
        bundles.all(|bundle| {
            Bundle::parse(bundle.as_deref().unwrap_or_default())
                .trusts(chain, &hosts(), now)
                .is_ok()
        })
    }
}

fn hosts() -> Vec<String> {
    vec!["hooks.system.svc".to_owned(), "127.0.0.1".to_owned()]
}

fn replica() -> Rotation {
    Rotation::new("hooks", hosts(), vec!["a".to_owned(), "b".to_owned()])
}

/// Runs a replica until it waits, and returns the number of its requests.
fn settle(replica: &mut Rotation, server: &mut Server, now: Seconds) -> usize {
    replica.waited();
    for requests in 0.. {
        assert!(requests < 60, "the replica does not come to rest: {replica:?}");
        match replica.next(now) {
            Step::Send(request) => {
                let reply = server.answer(request);
                replica.handle(reply);
                check(replica, server, now);
            }
            Step::Wait(_) => return requests,
        }
    }
    0
}

/// The law.
fn check(replica: &Rotation, server: &Server, now: Seconds) {
    if replica.readiness(now).is_ok() {
        let (chain, _) = replica.served().expect("a ready replica serves something");
        assert!(server.trusts(chain, now), "an untrusted chain is served at {now}");
    }
}

#[test]
fn first_replica_makes_a_certificate_and_is_ready_once_it_is_trusted() {
    let (mut replica, mut server) = (replica(), Server::new());
    assert!(replica.readiness(START).is_err());
    settle(&mut replica, &mut server, START);
    assert_eq!(replica.readiness(START), Ok(()));
    assert_eq!(server.writes, 3, "the Secret and two bundles");
    // Nothing more to do.
    settle(&mut replica, &mut server, START + DAY);
    assert_eq!(server.writes, 3);
}

#[test]
fn leaf_is_renewed_at_two_thirds_and_the_authority_with_overlap() {
    let (mut replica, mut server) = (replica(), Server::new());
    let (mut leaves, mut authorities) = (Vec::new(), Vec::new());
    for day in 0..800 {
        let now = START + day * DAY;
        settle(&mut replica, &mut server, now);
        assert_eq!(replica.readiness(now), Ok(()), "day {day}");
        let stored = server.stored();
        let leaf = stored.leaf.clone().expect("a leaf");
        if leaves.last().is_none_or(|(_, last)| *last != leaf) {
            leaves.push((day, leaf));
        }
        let signing = stored.authorities.signing.clone();
        if authorities.last().is_none_or(|(_, last)| *last != signing) {
            authorities.push((day, signing));
        }
        let bundle = Bundle::parse(stored.bundle().as_bytes());
        // Whatever leaf a replica may have read is trusted until it expires.
        for (_, leaf) in &leaves {
            if leaf.validity().is_some_and(|validity| validity.includes(now)) {
                assert_eq!(bundle.trusts(&leaf.chain, &hosts(), now), Ok(()), "day {day}");
            }
        }
        assert!(stored.bundle().matches("BEGIN").count() <= 3);
    }
    let days: Vec<_> = authorities.iter().map(|(day, _)| *day).collect();
    assert_eq!(days, [0, 244, 488, 732]);
    let days: Vec<_> = leaves.iter().map(|(day, _)| *day).collect();
    assert_eq!(days[..6], [0, 60, 120, 180, 240, 244]);
    assert!(leaves.len() < 18, "{}", leaves.len());
}

#[test]
fn killed_at_every_request_another_replica_finishes() {
    // Once from nothing, and once in the middle of a rotation of the CA.
    for start in [START, START + 244 * DAY] {
        let (mut old, mut old_server) = (replica(), Server::new());
        for day in (30..=240).step_by(30).filter(|_| start != START) {
            settle(&mut old, &mut old_server, START + day * DAY);
        }
        for killed_after in 0..14 {
            for is_answered in [false, true] {
                let (mut witness, mut server) = (old.clone(), old_server.clone());
                let mut victim = replica();
                for _ in 0..killed_after {
                    let Step::Send(request) = victim.next(start) else {
                        break;
                    };
                    let reply = server.answer(request);
                    victim.handle(reply);
                    check(&victim, &server, start);
                }
                // The last request may or may not reach the server.
                if is_answered && let Step::Send(request) = victim.next(start) {
                    server.answer(request);
                }
                let mut heir = replica();
                settle(&mut heir, &mut server, start);
                settle(&mut witness, &mut server, start);
                for replica in [&heir, &witness] {
                    assert_eq!(replica.readiness(start), Ok(()), "after {killed_after}");
                    check(replica, &server, start);
                }
            }
        }
    }
}

#[test]
fn two_replicas_rotate_at_once_without_fighting() {
    // Every interleaving of two replicas in which one of two takes the next step, by the bits of a number.
    let (mut old, mut old_server) = ([replica(), replica()], Server::new());
    for day in (30..=240).step_by(30) {
        let past = START + day * DAY;
        for replica in &mut old {
            settle(replica, &mut old_server, past);
        }
    }
    for schedule in (0..512_u32).step_by(7) {
        // Half of the time, both begin from nothing.
        let (mut replicas, mut server) = if schedule % 2 == 0 {
            (old.clone(), old_server.clone())
        } else {
            ([replica(), replica()], Server::new())
        };
        let now = START + 244 * DAY + 30 * DAY;
        replicas.iter_mut().for_each(Rotation::waited);
        let before = server.writes;
        for step in 0..200 {
            let turn = usize::from(schedule >> (step % 9) & 1 == 1);
            if let Step::Send(request) = replicas[turn].next(now) {
                let reply = server.answer(request);
                replicas[turn].handle(reply);
            } else if let Step::Send(request) = replicas[1 - turn].next(now) {
                let reply = server.answer(request);
                replicas[1 - turn].handle(reply);
            } else {
                break;
            }
            for replica in &replicas {
                check(replica, &server, now);
            }
        }
        for replica in &mut replicas {
            settle(replica, &mut server, now);
            assert_eq!(replica.readiness(now), Ok(()));
        }
        assert!(server.writes - before <= 9, "{} writes", server.writes - before);
        assert_eq!(replicas[0].served(), replicas[1].served());
    }
}

#[test]
fn damage_heals_by_itself() {
    type Damage = fn(&mut Server);
    let damages: [(&str, Damage); 7] = [
        ("wiped caBundle", |server| {
            server.targets[0][1] = None;
            server.target_versions[0] += 1;
        }),
        ("other caBundle", |server| {
            server.targets[1][0] = Some(b"x".to_vec());
        }),
        ("deleted Secret", |server| server.secret = None),
        ("emptied Secret", |server| {
            server.secret = Some(("x".to_owned(), SecretData::new()));
        }),
        ("half-written leaf", |server| {
            let (_, data) = server.secret.as_mut().expect("a Secret");
            data.insert("tls.key".to_owned(), b"-----BEGIN PRIVATE KEY-----".to_vec());
        }),
        ("no leaf", |server| {
            let (_, data) = server.secret.as_mut().expect("a Secret");
            data.remove("tls.crt");
        }),
        ("damaged CAs", |server| {
            let (_, data) = server.secret.as_mut().expect("a Secret");
            data.insert("authorities.json".to_owned(), b"{\"signing\":1}".to_vec());
        }),
    ];
    for (name, damage) in damages {
        let (mut old, mut server) = (replica(), Server::new());
        settle(&mut old, &mut server, START);
        let before = old.served().map(|(chain, _)| chain.to_owned()).expect("a chain");
        damage(&mut server);
        let mut new = replica();
        settle(&mut new, &mut server, START + DAY);
        assert_eq!(new.readiness(START + DAY), Ok(()), "{name}");
        // The chain that another replica still serves stays trusted.
        if name != "other caBundle" {
            assert!(server.trusts(&before, START + DAY), "{name}");
        }
        settle(&mut old, &mut server, START + DAY);
        assert_eq!(old.readiness(START + DAY), Ok(()), "{name}");
        check(&old, &server, START + DAY);
        assert_eq!(old.served(), new.served(), "{name}");
    }
}

#[test]
fn clock_jumps_end_with_a_trusted_certificate() {
    let (mut replica, mut server) = (replica(), Server::new());
    for jump in [0, 400, -10, 3_000, 0, -3_000, 90, 365, -1] {
        let now = START + jump * DAY;
        settle(&mut replica, &mut server, now);
        assert_eq!(replica.readiness(now), Ok(()), "{jump}");
        assert!(server.stored().authorities.retired.len() <= MAX_RETIRED);
    }
}

#[test]
fn missing_configuration_is_named() {
    let mut replica = Rotation::new(
        "hooks",
        hosts(),
        vec!["ValidatingWebhookConfiguration hooks".to_owned()],
    );
    let mut server = Server::new();
    for _ in 0..6 {
        if let Step::Send(request) = replica.next(START) {
            let reply = match request {
                Request::GetTarget(_) => Reply::Target(TargetState::Missing),
                request => server.answer(request),
            };
            replica.handle(reply);
        }
    }
    let why = replica.readiness(START).unwrap_err();
    assert!(
        why.starts_with("ValidatingWebhookConfiguration hooks does not exist"),
        "{why}"
    );
}

#[test]
fn failed_requests_are_repeated_with_growing_pauses_and_readiness_stays() {
    let (mut replica, mut server) = (replica(), Server::new());
    settle(&mut replica, &mut server, START);
    replica.waited();
    let mut pauses = Vec::new();
    for _ in 0..20 {
        match replica.next(START) {
            Step::Send(_) => replica.handle(Reply::Failed("no".to_owned())),
            Step::Wait(pause) => {
                pauses.push(pause.as_millis());
                replica.waited();
            }
        }
    }
    assert_eq!(pauses[..7], [250, 500, 1000, 2000, 4000, 8000, 10_000]);
    assert_eq!(replica.readiness(START), Ok(()));
}
