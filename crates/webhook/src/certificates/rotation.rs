//! Decides what to do about the certificates. It does no I/O: it returns requests, and takes their results.
//!
//! ```text
//!   GetTarget, each ─► GetSecret ─► what should the Secret have? ─ differs ─► write it ─┐
//!       ▲                              │ nothing                                        │
//!       │                              ▼                                                │
//!       │                           bundles that differ ─► PatchTarget, each ───────────┤
//!       │                              │ none                                           │
//!       └── wait ◄─────────────────────┘            at once, to read what was written ◄─┘
//! ```
//!
//! Every cycle begins with reading, and every write names the version that was read. So a replica may end after any request,
//! and another one, or itself, continues from what is stored. The Secret is read last: a bundle that is written is never older
//! than the one that it replaces.

use std::time::Duration;

use super::{
    Seconds,
    authority::{Authority, Leaf},
    bundle::Bundle,
    stored::{Authorities, Retired, SecretData, Stored},
};

/// How long a damage may last before it is found.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The first pause after a failed request, and the longest.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// How long CAs whose keys are lost stay trusted. The Secret may have been deleted to end their use, so this is short.
const OVERLAP_AFTER_LOSS: Seconds = 3_600;
/// Retired CAs that are kept at most; more are only made by a clock that jumps.
const MAX_RETIRED: usize = 8;
/// Hosts of a leaf at most, if those of several declarations are collected.
const MAX_HOSTS: usize = 16;
/// How many cycles follow each other without a pause. A rotation of the CA takes four, and those of other replicas may come
/// between them; more of them mean that another program undoes what is written.
const MAX_RESTARTS: u32 = 10;

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    GetSecret,
    /// Creates the Secret; a conflict if it exists.
    CreateSecret(SecretData),
    /// Replaces the data of the Secret if it still has this version.
    UpdateSecret {
        version: String,
        data: SecretData,
    },
    /// Reads the bundles of a target, by its index.
    GetTarget(usize),
    /// Writes the bundle of all entries of a target, if it still has this version.
    PatchTarget {
        index: usize,
        version: String,
        /// The entries' paths.
        paths: Vec<String>,
        bundle: Vec<u8>,
    },
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// The Secret, if there is one: its version and data.
    Secret(Option<(String, SecretData)>),
    Target(TargetState),
    /// The write is done.
    Written,
    /// The object was changed, made or deleted since it was read.
    Conflict,
    /// The request failed.
    Failed(String),
}

/// What is known of a configuration or a CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetState {
    /// It does not exist.
    Absent,
    Present {
        version: String,
        /// The webhooks that call us.
        entries: Vec<Entry>,
        /// Whether these are all.
        is_complete: bool,
    },
}

/// A `clientConfig` that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// A JSON pointer: `/webhooks/0/clientConfig`.
    pub(crate) path: String,
    /// Its `caBundle`.
    pub(crate) bundle: Option<Vec<u8>>,
}

impl TargetState {
    fn is_complete(&self) -> bool {
        matches!(
            self,
            Self::Present {
                is_complete: true,
                ..
            }
        )
    }

    fn bundles(&self) -> impl Iterator<Item = &[u8]> {
        let entries = match self {
            Self::Absent => &[][..],
            Self::Present { entries, .. } => entries,
        };
        entries.iter().filter_map(|entry| entry.bundle.as_deref())
    }
}

impl Entry {
    fn bundle(&self) -> Bundle {
        Bundle::parse(self.bundle.as_deref().unwrap_or_default())
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send(Request),
    Wait(Duration),
}

/// The state of one replica.
#[derive(Clone, Debug)]
pub(crate) struct Rotation {
    program: String,
    /// The names and addresses that the leaf is for.
    hosts: Vec<String>,
    /// The targets' names, for messages.
    targets: Vec<String>,
    phase: Phase,
    /// The pause after the last failure since there was nothing to write.
    retry: Option<Duration>,
    served: Option<Leaf>,
    bundle: Option<String>,
    /// Whether the last cycle has found nothing to write.
    is_settled: bool,
    is_target_incomplete: bool,
    /// Cycles without a pause since there was nothing to write.
    restarts: u32,
    /// Why the replica is not ready.
    not_ready: Option<String>,
    /// Whether it was ready before.
    was_ready: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The next cycle begins, after a pause.
    Start,
    /// The next cycle begins at once.
    Restart,
    /// Reads the targets, in order, and then the Secret.
    Reading { states: Vec<TargetState> },
    /// Everything was read.
    Read {
        secret: Box<Secret>,
        states: Vec<TargetState>,
    },
    /// Patches the targets that differ, in reverse order.
    Patching { patches: Vec<Request> },
    /// A request is under way.
    Sent(Box<Phase>),
    /// Nothing to do until the next check.
    Idle(Duration),
}

/// The Secret that was read.
#[derive(Clone, Debug)]
struct Secret {
    /// `None` if there is none.
    version: Option<String>,
    stored: Option<Stored>,
    /// The bundle in a Secret whose CAs are damaged.
    old_bundle: Option<Vec<u8>>,
}

impl Rotation {
    pub(crate) fn new(program: &str, hosts: Vec<String>, targets: Vec<String>) -> Self {
        Self {
            program: program.to_owned(),
            hosts,
            targets,
            phase: Phase::Start,
            retry: None,
            served: None,
            bundle: None,
            is_settled: false,
            is_target_incomplete: false,
            restarts: 0,
            was_ready: false,
            not_ready: Some("the certificate has not been read yet".to_owned()),
        }
    }

    /// The chain and the key to serve, as PEM.
    pub(crate) fn served(&self) -> Option<(&str, &str)> {
        self.served
            .as_ref()
            .map(|leaf| (leaf.chain.as_str(), leaf.key.as_str()))
    }

    /// Whether the served chain is trusted by every bundle, or why not.
    pub(crate) fn readiness(&self, now: Seconds) -> Result<(), &str> {
        if let Some(why) = &self.not_ready {
            return Err(why);
        }
        // The clock may have jumped since the last cycle.
        let validity = self.served.as_ref().and_then(Leaf::validity);
        if validity.is_some_and(|validity| validity.includes(now)) {
            Ok(())
        } else {
            Err("the served certificate is not valid at this time")
        }
    }

    /// The CAs to trust, right after a cycle that has found nothing to write.
    pub(crate) fn settled_bundle(&self) -> Option<&str> {
        self.bundle.as_deref().filter(|_| self.is_settled)
    }

    /// Whether a target was absent or incomplete when it was last read.
    pub(crate) fn is_target_incomplete(&self) -> bool {
        self.is_target_incomplete
    }

    /// Whether writes are undone again and again.
    pub(crate) fn is_contended(&self) -> bool {
        self.restarts >= MAX_RESTARTS
    }

    /// What to do next. After [`Step::Wait`] it begins a new cycle.
    pub(crate) fn next(&mut self, now: Seconds) -> Step {
        match std::mem::replace(&mut self.phase, Phase::Start) {
            // Sent, but the response was lost with the request: the cycle starts again.
            Phase::Restart | Phase::Sent(_) => self.restart_cycle(),
            Phase::Start => self.read(Vec::new()),
            Phase::Reading { states } => self.read(states),
            Phase::Read { secret, states } => self.decide(*secret, &states, now),
            Phase::Patching { mut patches } => match patches.pop() {
                Some(patch) => self.send(Phase::Patching { patches }, patch),
                // What was written is read back at once.
                None => self.restart_cycle(),
            },
            Phase::Idle(pause) => Step::Wait(pause),
        }
    }

    fn restart_cycle(&mut self) -> Step {
        self.restarts += 1;
        let Some(excess) = self.restarts.checked_sub(MAX_RESTARTS) else {
            return self.read(Vec::new());
        };
        let pause = (FIRST_RETRY * 2_u32.pow(excess.min(10))).min(LONGEST_RETRY);
        self.phase = Phase::Idle(pause);
        Step::Wait(pause)
    }

    fn read(&mut self, states: Vec<TargetState>) -> Step {
        self.is_settled = false;
        let request = if states.len() < self.targets.len() {
            Request::GetTarget(states.len())
        } else {
            Request::GetSecret
        };
        self.send(Phase::Reading { states }, request)
    }

    fn send(&mut self, then: Phase, request: Request) -> Step {
        self.phase = Phase::Sent(Box::new(then));
        Step::Send(request)
    }

    /// The result of the last request.
    pub(crate) fn handle(&mut self, response: Response) {
        let Phase::Sent(phase) = std::mem::replace(&mut self.phase, Phase::Restart) else {
            return;
        };
        if let Response::Failed(why) = response {
            let pause = self
                .retry
                .map_or(FIRST_RETRY, |pause| (pause * 2).min(LONGEST_RETRY));
            self.retry = Some(pause);
            self.phase = Phase::Idle(pause);
            // A certificate that was trusted probably still is.
            if self.served.is_none() {
                self.not_ready = Some(why);
            }
            return;
        }
        self.phase = match (*phase, response) {
            (Phase::Reading { mut states }, Response::Target(state)) => {
                states.push(state);
                Phase::Reading { states }
            }
            (Phase::Reading { states }, Response::Secret(found)) => Phase::Read {
                secret: Box::new(Secret::new(found)),
                states,
            },
            (Phase::Patching { patches }, Response::Written | Response::Conflict) => {
                Phase::Patching { patches }
            }
            // A write of the Secret, by this replica or another: it is read again.
            _ => Phase::Restart,
        };
    }

    /// Ends the wait.
    pub(crate) fn waited(&mut self) {
        if matches!(self.phase, Phase::Idle(_)) {
            self.phase = Phase::Start;
        }
    }

    /// Everything was read: what differs?
    fn decide(&mut self, secret: Secret, states: &[TargetState], now: Seconds) -> Step {
        match self.wanted(&secret, states, now) {
            Err(error) => {
                self.not_ready = Some(format!("cannot make a certificate: {error}"));
                self.phase = Phase::Idle(CHECK_INTERVAL);
                return Step::Wait(CHECK_INTERVAL);
            }
            Ok(Some(wanted)) => {
                let data = wanted.to_data();
                let request = match secret.version {
                    None => Request::CreateSecret(data),
                    Some(version) => Request::UpdateSecret { version, data },
                };
                return self.send(Phase::Start, request);
            }
            Ok(None) => {}
        }
        let Some(stored) = secret.stored else {
            return Step::Wait(CHECK_INTERVAL);
        };
        self.serve(&stored, states, now);
        self.is_target_incomplete = !states.iter().all(TargetState::is_complete);
        let bundle = self.bundle.insert(stored.bundle()).clone().into_bytes();
        let mut patches = Vec::new();
        for (index, state) in states.iter().enumerate() {
            if let TargetState::Present { version, entries, .. } = state
                && entries.iter().any(|entry| entry.bundle.as_ref() != Some(&bundle))
            {
                patches.push(Request::PatchTarget {
                    index,
                    version: version.clone(),
                    paths: entries.iter().map(|entry| entry.path.clone()).collect(),
                    bundle: bundle.clone(),
                });
            }
        }
        match patches.pop() {
            Some(patch) => self.send(Phase::Patching { patches }, patch),
            None => {
                self.is_settled = true;
                self.restarts = 0;
                self.retry = None;
                self.phase = Phase::Idle(CHECK_INTERVAL);
                Step::Wait(CHECK_INTERVAL)
            }
        }
    }

    /// What the Secret should have; `None` if it has it.
    fn wanted(
        &self,
        secret: &Secret,
        states: &[TargetState],
        now: Seconds,
    ) -> Result<Option<Stored>, rcgen::Error> {
        let Some(stored) = &secret.stored else {
            // Other replicas serve what was signed before, until they have read the new certificate.
            let bundles = states
                .iter()
                .flat_map(TargetState::bundles)
                .chain(secret.old_bundle.as_deref());
            let mut retired = Vec::new();
            for bundle in bundles {
                for certificate in certificates(bundle) {
                    if !retired
                        .iter()
                        .any(|known: &Retired| known.certificate == certificate)
                    {
                        let until = now.saturating_add(OVERLAP_AFTER_LOSS);
                        retired.push(Retired { certificate, until });
                    }
                }
            }
            return self.begin(retired, now).map(Some);
        };
        let mut wanted = stored.clone();
        let authorities = &mut wanted.authorities;
        authorities.retired.retain(|retired| now <= retired.until);
        let is_valid = |authority: &Authority| {
            authority
                .validity()
                .is_some_and(|validity| validity.includes(now))
        };
        if authorities.next.as_ref().is_some_and(|next| !is_valid(next)) {
            authorities.next = None;
        }
        if !is_valid(&authorities.signing) {
            // Too late for an overlap. The next CA may be trusted already.
            match authorities.next.take() {
                Some(next) => promote(&mut wanted, next),
                None => {
                    let mut retired = authorities.retired.clone();
                    retired.push(retire(&wanted));
                    return self.begin(retired, now).map(Some);
                }
            }
        }
        let authorities = &mut wanted.authorities;
        let is_due = |authority: &Authority| {
            authority
                .validity()
                .is_none_or(|validity| now >= validity.renewal())
        };
        if let Some(next) = authorities
            .next
            .take_if(|next| is_trusted_everywhere(next, states))
        {
            promote(&mut wanted, next);
        } else if authorities.next.is_none() && is_due(&authorities.signing) {
            authorities.next = Some(Authority::generate(&self.program, now)?);
        }
        let is_leaf_due = wanted
            .leaf
            .as_ref()
            .and_then(Leaf::validity)
            .is_none_or(|validity| now >= validity.renewal());
        let is_replaced = wanted.authorities.signing != stored.authorities.signing;
        // A leaf that ends with its CA is renewed with the next one, and not again before.
        let is_worth_it = is_leaf_due && Self::would_last_longer(&wanted, now);
        let is_valid = wanted.has_valid_leaf(&self.hosts, now);
        if is_replaced || is_worth_it || !is_valid {
            // Others are added: replicas of another declaration, during a rollout, would make a leaf for theirs in turn.
            let mut hosts = self.hosts.clone();
            if !is_valid {
                let others = stored
                    .authorities
                    .hosts
                    .iter()
                    .filter(|host| !self.hosts.contains(host));
                hosts.extend(others.cloned());
                hosts.truncate(MAX_HOSTS.max(self.hosts.len()));
            }
            wanted.leaf = Some(wanted.authorities.signing.issue(&hosts, now)?);
            wanted.authorities.hosts = hosts;
        }
        Ok((wanted != *stored).then_some(wanted))
    }

    /// Whether a new leaf of the signing CA would end after the present one.
    fn would_last_longer(stored: &Stored, now: Seconds) -> bool {
        let ends = stored
            .leaf
            .as_ref()
            .and_then(Leaf::validity)
            .map(|validity| validity.not_after);
        let authority_ends = stored
            .authorities
            .signing
            .validity()
            .map(|validity| validity.not_after);
        ends.zip(authority_ends).is_none_or(|(ends, authority_ends)| {
            ends < authority_ends && ends < now + super::authority::LEAF_LIFETIME
        })
    }

    /// A first CA with its leaf.
    fn begin(&self, mut retired: Vec<Retired>, now: Seconds) -> Result<Stored, rcgen::Error> {
        retired.retain(|retired| now <= retired.until);
        let surplus = retired.len().saturating_sub(MAX_RETIRED);
        retired.drain(..surplus);
        let signing = Authority::generate(&self.program, now)?;
        Ok(Stored {
            leaf: Some(signing.issue(&self.hosts, now)?),
            authorities: Authorities {
                signing,
                next: None,
                retired,
                hosts: self.hosts.clone(),
            },
        })
    }

    /// Serves the stored leaf as soon as it is trusted everywhere; until then, the one that is served, as long as that is
    /// valid.
    fn serve(&mut self, stored: &Stored, states: &[TargetState], now: Seconds) {
        let Some(leaf) = &stored.leaf else {
            return;
        };
        let trust = |leaf: &Leaf| self.trust(leaf, states, now);
        let new = trust(leaf);
        let keeps_old = new.is_err()
            && self.served.as_ref().is_some_and(|served| {
                served.validity().is_some_and(|validity| validity.includes(now)) && trust(served).is_ok()
            });
        if keeps_old {
            self.not_ready = None;
        } else {
            self.not_ready = new.err();
            self.served = Some(leaf.clone());
        }
        // Later, the webhooks and conversions that are still registered are not to lose this replica.
        if !self.was_ready && self.not_ready.is_none() {
            let incomplete = states
                .iter()
                .zip(&self.targets)
                .find(|(state, _)| !state.is_complete());
            self.not_ready = incomplete.map(|(_, name)| {
                format!(
                    "{name} does not exist, or does not have all of these webhooks: apply it, or start with `--install`"
                )
            });
        }
        self.was_ready |= self.not_ready.is_none();
    }

    /// Whether every bundle trusts a leaf, or which does not.
    fn trust(&self, leaf: &Leaf, states: &[TargetState], now: Seconds) -> Result<(), String> {
        for (state, name) in states.iter().zip(&self.targets) {
            let TargetState::Present { entries, .. } = state else {
                continue;
            };
            for entry in entries {
                entry
                    .bundle()
                    .trusts(&leaf.chain, &self.hosts, now)
                    .map_err(|why| format!("the caBundle of {name} does not trust the certificate: {why}"))?;
            }
        }
        Ok(())
    }
}

impl Secret {
    fn new(found: Option<(String, SecretData)>) -> Self {
        let (version, data) = found.unzip();
        Self {
            version,
            stored: data.as_ref().and_then(Stored::parse),
            old_bundle: data.and_then(|mut data| data.remove(super::stored::BUNDLE_KEY)),
        }
    }
}

/// Whether every bundle that exists has a CA.
fn is_trusted_everywhere(authority: &Authority, states: &[TargetState]) -> bool {
    states.iter().all(|state| match state {
        // Its bundle is written together with it.
        TargetState::Absent => true,
        TargetState::Present { entries, .. } => entries
            .iter()
            .all(|entry| entry.bundle().contains(&authority.certificate)),
    })
}

/// Makes `next` the signing CA, and retires the old one.
fn promote(stored: &mut Stored, next: Authority) {
    let retired = retire(stored);
    stored.authorities.retired.push(retired);
    stored.authorities.signing = next;
    stored.leaf = None;
}

/// The signing CA, as one that signs no more: until the leaf that it has signed expires.
fn retire(stored: &Stored) -> Retired {
    let ends = |validity: super::der::Validity| validity.not_after;
    let leaf = stored.leaf.as_ref().and_then(Leaf::validity);
    let until = leaf.or_else(|| stored.authorities.signing.validity()).map(ends);
    Retired {
        certificate: stored.authorities.signing.certificate.clone(),
        until: until.unwrap_or_default(),
    }
}

/// The certificates of a bundle, each as PEM.
fn certificates(bundle: &[u8]) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let text = String::from_utf8_lossy(bundle);
    let parts = text.split_inclusive(END).filter(|part| part.ends_with(END));
    parts
        .map(|certificate| format!("{}\n", certificate.trim()))
        .filter(|certificate| super::authority::validity(certificate).is_some())
        .take(MAX_RETIRED)
        .collect()
}

#[cfg(test)]
mod tests;
