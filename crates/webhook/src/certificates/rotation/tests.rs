//! Rotation against a small API server: replicas that are killed at every request, that rotate at once, whose clock jumps, and
//! users who delete objects.
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
    /// How many entries of the first target are missing.
    missing: usize,
    is_absent: bool,
    writes: usize,
}

impl Server {
    fn new() -> Self {
        Self {
            targets: [vec![None, None], vec![None]],
            ..Self::default()
        }
    }

    fn answer(&mut self, request: Request) -> Response {
        self.version += 1;
        match request {
            Request::GetSecret => Response::Secret(self.secret.clone()),
            Request::CreateSecret(_) if self.secret.is_some() => Response::Conflict,
            Request::UpdateSecret { version, .. }
                if self
                    .secret
                    .as_ref()
                    .is_none_or(|(current, _)| *current != version) =>
            {
                Response::Conflict
            }
            Request::CreateSecret(data) | Request::UpdateSecret { data, .. } => {
                self.writes += 1;
                self.secret = Some((self.version.to_string(), data));
                Response::Written
            }
            Request::GetTarget(0) if self.is_absent => Response::Target(TargetState::Absent),
            Request::GetTarget(index) => Response::Target(TargetState::Present {
                is_complete: index != 0 || self.missing == 0,
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
                    return Response::Conflict;
                }
                self.writes += 1;
                self.target_versions[index] = self.version;
                self.targets[index].fill(Some(bundle));
                Response::Written
            }
        }
    }

    fn stored(&self) -> Stored {
        Stored::parse(&self.secret.as_ref().expect("a Secret").1).expect("certificates")
    }

    fn trusts(&self, chain: &str, now: Seconds) -> bool {
        let targets = self.targets.iter().skip(usize::from(self.is_absent));
        let mut bundles = targets.flatten();
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

/// Runs a replica until it waits. The law holds at each step.
fn settle(replica: &mut Rotation, server: &mut Server, now: Seconds) {
    settle_checked(replica, server, now, check);
}

/// Like `settle`, after damage: the law holds again at the end.
fn heal(replica: &mut Rotation, server: &mut Server, now: Seconds) {
    settle_checked(replica, server, now, |_, _, _| ());
}

fn settle_checked(
    replica: &mut Rotation,
    server: &mut Server,
    now: Seconds,
    check: fn(&Rotation, &Server, Seconds),
) {
    replica.waited();
    for requests in 0.. {
        assert!(requests < 60, "the replica does not come to rest: {replica:?}");
        match replica.next(now) {
            Step::Send(request) => {
                let response = server.answer(request);
                replica.handle(response);
                check(replica, server, now);
            }
            Step::Wait(_) => return,
        }
    }
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
                    let response = server.answer(request);
                    victim.handle(response);
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
                let response = server.answer(request);
                replicas[turn].handle(response);
            } else if let Step::Send(request) = replicas[1 - turn].next(now) {
                let response = server.answer(request);
                replicas[1 - turn].handle(response);
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

/// Changes the CAs in the Secret.
fn edit_authorities(server: &mut Server, change: impl FnOnce(&mut serde_json::Value)) {
    let (_, data) = server.secret.as_mut().expect("a Secret");
    let mut value = serde_json::from_slice(&data["authorities.json"]).expect("JSON");
    change(&mut value);
    data.insert("authorities.json".to_owned(), value.to_string().into_bytes());
}

#[test]
fn damage_heals_by_itself() {
    type Damage = fn(&mut Server);
    let damages: [(&str, Damage); 11] = [
        ("key that is none", |server| {
            edit_authorities(server, |value| value["signing"]["key"] = "x".into());
        }),
        ("key of another CA", |server| {
            let other = Authority::generate("x", START).expect("a CA");
            let other = serde_json::to_value(other).expect("JSON");
            edit_authorities(server, |value| value["signing"]["key"] = other["key"].clone());
        }),
        ("other subject", |server| {
            edit_authorities(server, |value| value["signing"]["subject"] = "x".into());
        }),
        ("damaged next CA", |server| {
            let next = serde_json::json!({"subject": "x", "certificate": "x", "key": "x"});
            edit_authorities(server, |value| value["next"] = next);
        }),
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
        // The next leaf can be signed.
        for day in [70, 140, 260] {
            settle(&mut new, &mut server, START + day * DAY);
            assert_eq!(new.readiness(START + day * DAY), Ok(()), "{name}");
        }
    }
}

#[test]
fn secret_is_read_after_the_bundles() {
    // A bundle that is written is that of a Secret which is at least as new as the bundle that it replaces.
    let (mut replica, mut server) = (replica(), Server::new());
    settle(&mut replica, &mut server, START);
    replica.waited();
    let mut requests = Vec::new();
    while let Step::Send(request) = replica.next(START) {
        requests.push(request.clone());
        replica.handle(server.answer(request));
    }
    assert_eq!(
        requests,
        [Request::GetTarget(0), Request::GetTarget(1), Request::GetSecret]
    );
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
fn missing_configuration_blocks_the_first_readiness_only() {
    let (mut replica, mut server) = (replica(), Server::new());
    server.is_absent = true;
    settle(&mut replica, &mut server, START);
    let why = replica.readiness(START).unwrap_err();
    assert!(why.starts_with("a does not exist"), "{why}");
    assert!(replica.is_target_incomplete());
    server.is_absent = false;
    settle(&mut replica, &mut server, START);
    assert_eq!(replica.readiness(START), Ok(()));
    // Deleted in an emergency: the conversions behind the same Service go on.
    server.is_absent = true;
    settle(&mut replica, &mut server, START + 61 * DAY);
    assert_eq!(replica.readiness(START + 61 * DAY), Ok(()));
}

#[test]
fn incomplete_configuration_keeps_its_bundle_up_to_date() {
    let (mut replica, mut server) = (replica(), Server::new());
    settle(&mut replica, &mut server, START);
    server.missing = 1;
    // Past the renewal of the leaf, and a rotation of the CA.
    for day in (10..=260).step_by(10) {
        let now = START + day * DAY;
        settle(&mut replica, &mut server, now);
        assert_eq!(replica.readiness(now), Ok(()), "day {day}");
    }
    // A wiped bundle of the entry that is there is healed.
    server.targets[0][0] = None;
    let now = START + 261 * DAY;
    heal(&mut replica, &mut server, now);
    assert!(server.trusts(replica.served().expect("a chain").0, now));
    // One that starts names what is missing.
    let mut new = Rotation::new("hooks", hosts(), vec!["a".to_owned(), "b".to_owned()]);
    settle(&mut new, &mut server, now);
    let why = new.readiness(now).unwrap_err();
    assert!(why.contains("does not have all of these webhooks"), "{why}");
}

#[test]
fn writes_that_are_undone_are_repeated_with_growing_pauses() {
    let (mut replica, mut server) = (replica(), Server::new());
    settle(&mut replica, &mut server, START);
    replica.waited();
    let (mut pauses, mut requests) = (Vec::new(), 0);
    while pauses.len() < 9 {
        match replica.next(START) {
            Step::Send(request) => {
                requests += 1;
                assert!(requests < 300, "a hot loop");
                let response = server.answer(request);
                replica.handle(response);
                // Such as the CA injector of cert-manager.
                server.targets[0][0] = Some(b"x".to_vec());
            }
            Step::Wait(pause) => {
                pauses.push(pause.as_millis());
                replica.waited();
            }
        }
    }
    assert_eq!(pauses.remove(0), 10_000, "there was nothing to write");
    assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
    assert!(replica.is_contended());
}

#[test]
fn replicas_of_two_services_share_a_leaf_for_both() {
    let mut server = Server::new();
    let targets = || vec!["a".to_owned(), "b".to_owned()];
    let mut old = Rotation::new("hooks", vec!["old.system.svc".to_owned()], targets());
    let mut new = Rotation::new("hooks", vec!["new.system.svc".to_owned()], targets());
    for minute in 0..10 {
        heal(&mut old, &mut server, START + minute * 60);
        heal(&mut new, &mut server, START + minute * 60);
    }
    // The Secret and two bundles, and a leaf for both.
    assert_eq!(server.writes, 4);
    assert_eq!(old.served(), new.served());
}

#[test]
fn long_random_schedules_with_damage_never_untrust_a_served_chain() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..12 {
        let mut replicas = [replica(), replica(), replica()];
        let (mut server, mut now) = (Server::new(), START);
        for _ in 0..400 {
            let replica = &mut replicas[random.usize(..3)];
            // Many steps of one replica between two steps of another.
            for _ in 0..random.usize(..24) {
                match replica.next(now) {
                    Step::Send(request) => {
                        let is_write = !matches!(request, Request::GetSecret | Request::GetTarget(_));
                        let before = server.clone();
                        let response = server.answer(request);
                        if is_write && response == Response::Written {
                            check_write(&before, &server, now);
                        }
                        replica.handle(response);
                    }
                    Step::Wait(_) => {
                        replica.waited();
                        break;
                    }
                }
            }
            match random.u32(..40) {
                0 => server.secret = None,
                1 => {
                    server.version += 1;
                    server.targets[0][1] = None;
                    server.target_versions[0] = server.version;
                }
                2 => now += random.i64(0..100) * DAY,
                _ => now += 10,
            }
        }
        for replica in &mut replicas {
            heal(replica, &mut server, now);
        }
        for replica in &mut replicas {
            heal(replica, &mut server, now);
            assert_eq!(replica.readiness(now), Ok(()));
            check(replica, &server, now);
        }
    }
}

/// A write of a bundle does not take out a CA that the Secret has, if it was in.
fn check_write(before: &Server, after: &Server, now: Seconds) {
    let Some(stored) = after.secret.as_ref().and_then(|(_, data)| Stored::parse(data)) else {
        return;
    };
    let is_valid = |authority: &Authority| {
        authority
            .validity()
            .is_some_and(|validity| validity.includes(now))
    };
    for authority in [
        Some(&stored.authorities.signing),
        stored.authorities.next.as_ref(),
    ] {
        let Some(authority) = authority.filter(|authority| is_valid(authority)) else {
            continue;
        };
        for (old, new) in before
            .targets
            .iter()
            .flatten()
            .zip(after.targets.iter().flatten())
        {
            let contains = |bundle: &Option<Vec<u8>>| {
                Bundle::parse(bundle.as_deref().unwrap_or_default()).contains(&authority.certificate)
            };
            assert!(
                !contains(old) || contains(new),
                "a CA in use was taken out of a bundle"
            );
        }
    }
}

#[test]
fn failed_requests_are_repeated_with_growing_pauses_and_readiness_stays() {
    let (mut replica, mut server) = (replica(), Server::new());
    settle(&mut replica, &mut server, START);
    replica.waited();
    let mut pauses = Vec::new();
    for _ in 0..20 {
        match replica.next(START) {
            Step::Send(_) => replica.handle(Response::Failed("no".to_owned())),
            Step::Wait(pause) => {
                pauses.push(pause.as_millis());
                replica.waited();
            }
        }
    }
    assert_eq!(pauses[..7], [250, 500, 1000, 2000, 4000, 8000, 10_000]);
    assert_eq!(replica.readiness(START), Ok(()));
}
