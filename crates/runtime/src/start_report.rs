//! Explains what controllers wait for before they start, and which rights they miss: with the fix, in one message.
//!
//! ```text
//!   caches ──► sync failures ─┬─► state of each controller (debug page, /readyz; blocked controllers hold no others)
//!                             └─► one log line for all: at once, when it changes, and at growing intervals
//!   declared reads and writes ──► access reviews ──► missing rights, in the same line
//! ```

mod needs;
mod rights;
mod status_type;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use kube::Client;
use tokio::time::{Instant, sleep, timeout};
use windlass_api::status::StatusClass;
use windlass_cache::{SyncFailure, WatchErrorKind};

use self::rights::Denied;
pub(crate) use self::{
    needs::{CustomKinds, DeclarativeWrites, RequiredKind, election_rights},
    rights::RightsByResource,
    status_type::status_fields,
};
use crate::status_tracker::StatusTracker;

/// What a manager does about a controller that cannot start, because a CRD or a right is missing, or because the server
/// answers the list of a kind with an error for seconds, as it does if a conversion webhook is down; set with
/// [`Manager::on_blocked`](crate::Manager::on_blocked).
///
/// In any case the log names what is missing and the fix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnBlocked {
    /// The other controllers, the leader election and tasks start without it. It starts as soon as nothing is missing.
    /// `/readyz` fails until then.
    #[default]
    Continue,
    /// The leader election and tasks wait for it. Without leader election the other controllers run.
    Wait,
    /// The manager stops with an error.
    Fail,
}

/// How often the caches are looked at. Their lists are sent together, so the first look finds all that fail.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long the first message waits for lists that have not been answered, so that it has everything.
const FIRST_ANSWERS: Duration = Duration::from_secs(5);

/// When the message is repeated for the first time, and the longest time between two.
const FIRST_REPEAT: Duration = Duration::from_secs(10);
const LONGEST_REPEAT: Duration = Duration::from_mins(10);

/// How long the list of a kind must fail, while the server is well, until its controller counts as blocked.
const LASTING: Duration = Duration::from_secs(5);

/// The same after the server was not well. A cache tries again within 30 s, so by then its error is a new one.
const LASTING_AFTER_OUTAGE: Duration = Duration::from_mins(1);

/// Limit of the question whether the server is well.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The kinds that a controller needs to start, and the rights that it surely uses.
#[derive(Default)]
pub(crate) struct Required {
    /// Empty once it has started.
    pub(crate) kinds: Vec<RequiredKind>,
    /// Those of its custom sources.
    pub(crate) custom: Vec<CustomKinds>,
    /// To read the declared kinds, also those that it has listed: a list does not show that it may watch; and to what the
    /// runtime writes for it.
    pub(crate) rights: RightsByResource,
}

impl Required {
    fn for_each_kind(&self, mut act: impl FnMut(&RequiredKind)) {
        self.kinds.iter().for_each(&mut act);
        self.custom.iter().for_each(|kinds| kinds.for_each(&mut act));
    }
}

/// What one controller misses.
#[derive(Default)]
struct Missing {
    /// CRDs and other kinds that the server does not know, with the fix.
    kinds: BTreeSet<String>,
    /// Resources that may not be listed.
    forbidden: BTreeSet<String>,
    /// Other errors, by resource and namespace.
    errors: BTreeMap<(String, String), String>,
    /// How many of them are lists without a response. The log of the connection has them.
    unreachable: usize,
    /// One of the errors lasts.
    is_lasting: bool,
}

impl Missing {
    /// `installable` are the CRDs that the program can install.
    fn of(required: &Required, installable: &BTreeSet<String>) -> Self {
        let mut missing = Self::default();
        required.for_each_kind(|kind| {
            for SyncFailure { namespace, error } in (kind.failures)() {
                match error.kind {
                    WatchErrorKind::NotInstalled => {
                        missing.kinds.insert(kind.describe_missing(installable));
                    }
                    WatchErrorKind::Forbidden => {
                        missing.forbidden.insert(kind.plural.clone());
                    }
                    failure => {
                        let within = if namespace.is_empty() { "" } else { " in " };
                        let text = format!(
                            "cannot list {}{within}{namespace}: {}",
                            kind.plural, error.message
                        );
                        missing.errors.insert((kind.plural.clone(), namespace), text);
                        missing.unreachable += usize::from(matches!(
                            failure,
                            WatchErrorKind::ConnectionRefused | WatchErrorKind::ConnectionFailed
                        ));
                    }
                }
            }
        });
        missing
    }

    /// Whether the controller cannot start before a person acts.
    fn is_blocked(&self) -> bool {
        !self.forbidden.is_empty() || !self.kinds.is_empty() || self.is_lasting
    }

    /// Whether all that is known is that the server cannot be reached.
    fn is_outage(&self) -> bool {
        !self.is_blocked() && self.unreachable > 0 && self.unreachable == self.errors.len()
    }

    fn describe(&self, waiting_for: &[String]) -> String {
        let mut texts: Vec<_> = self.kinds.iter().cloned().collect();
        if !self.forbidden.is_empty() {
            let resources: Vec<_> = self.forbidden.iter().map(String::as_str).collect();
            texts.push(format!("it may not list {}", resources.join(", ")));
        }
        texts.extend(self.errors.values().cloned());
        if texts.is_empty() {
            texts.push(format!("waiting for {}", waiting_for.join(", ")));
        }
        texts.join(", ")
    }
}

/// A controller that has not started.
struct Waiting {
    name: String,
    tracker: Arc<StatusTracker>,
    missing: Missing,
}

impl Waiting {
    /// Whether the list of a kind has neither succeeded nor failed yet.
    fn is_unanswered(&self) -> bool {
        let Missing {
            kinds,
            forbidden,
            errors,
            ..
        } = &self.missing;
        let failed: BTreeSet<_> = errors.keys().map(|(plural, _)| plural).collect();
        self.tracker.waiting_for().len() > kinds.len() + forbidden.len() + failed.len()
    }
}

/// Logs what the controllers of a manager wait for.
pub(crate) struct StartReport {
    pub(crate) controllers: Arc<BTreeMap<String, Arc<StatusTracker>>>,
    /// Neither rate-limited nor retried: its requests must not delay those of the controllers.
    pub(crate) client: Client,
    pub(crate) policy: OnBlocked,
    /// The names of the CRDs that the program can install.
    pub(crate) installable: BTreeSet<String>,
    /// Rights that the manager itself needs.
    pub(crate) rights: RightsByResource,
    /// Asks about rights only if a list is forbidden.
    pub(crate) quiet: bool,
}

impl StartReport {
    /// Runs until all have started and no right is missing. Completes only with [`OnBlocked::Fail`], with what is missing.
    pub(crate) async fn run(self) -> String {
        let started = Instant::now();
        let (mut logged, mut next, mut repeat) = (Vec::new(), started + FIRST_REPEAT, FIRST_REPEAT);
        let (mut failing, mut rules) = (FailingSince::default(), None::<String>);
        loop {
            sleep(CHECK_INTERVAL).await;
            let mut waiting = self.waiting();
            if waiting.is_empty() && rules.as_ref().is_some_and(String::is_empty) {
                return pending().await;
            }
            if started.elapsed() < FIRST_ANSWERS && waiting.iter().any(Waiting::is_unanswered) {
                continue;
            }
            failing.mark_lasting(&mut waiting, &self.client).await;
            let mut texts = Vec::new();
            for Waiting {
                name,
                tracker,
                missing,
            } in &waiting
            {
                let text = missing.describe(&tracker.waiting_for());
                tracker.set_blocked(missing.is_blocked().then(|| text.clone()));
                if !missing.is_outage() {
                    texts.push(format!("controller `{name}`: {text}"));
                }
            }
            let summary = summarize(&waiting);
            let is_new = summary != logged && !summary.is_empty();
            let is_first = rules.is_none();
            // The server can answer nothing about rights either.
            if texts.is_empty() && !waiting.is_empty() {
                continue;
            }
            let is_due = is_new || Instant::now() >= next;
            if !is_due && !is_first {
                continue;
            }
            let missing_rules = rules.insert(self.missing_rules(&waiting).await);
            if waiting.is_empty() && missing_rules.is_empty() {
                return pending().await;
            }
            if !is_due && missing_rules.is_empty() {
                continue;
            }
            if !missing_rules.is_empty() {
                texts.push(missing_rules.clone());
            }
            let reason = texts.join("; ");
            if self.policy == OnBlocked::Fail && waiting.iter().any(|one| one.missing.is_blocked()) {
                return reason;
            }
            let seconds = started.elapsed().as_secs();
            if waiting.is_empty() {
                tracing::warn!(reason, seconds, "rights are missing");
            } else {
                tracing::warn!(reason, seconds, "waiting to start");
            }
            repeat = if is_new || is_first {
                FIRST_REPEAT
            } else {
                (repeat * 2).min(LONGEST_REPEAT)
            };
            (logged, next) = (summary, Instant::now() + repeat);
        }
    }

    fn waiting(&self) -> Vec<Waiting> {
        let waiting = self.controllers.iter().filter(|(_, tracker)| !tracker.is_ready());
        waiting
            .map(|(name, tracker)| Waiting {
                name: name.clone(),
                tracker: Arc::clone(tracker),
                missing: tracker.with_required(|required| Missing::of(required, &self.installable)),
            })
            .collect()
    }

    /// The rules to add to the roles, as YAML on one line. Asks the server which rights are missing, so that all of them are
    /// in one message; if it does not answer, these are the kinds that cannot be listed.
    async fn missing_rules(&self, waiting: &[Waiting]) -> String {
        let is_forbidden = waiting.iter().any(|one| !one.missing.forbidden.is_empty());
        if self.quiet && !is_forbidden {
            return String::new();
        }
        let (mut required, mut forbidden) = (self.rights.clone(), RightsByResource::new());
        let mut add = |rights: &RightsByResource| {
            for (resource, verbs) in rights {
                required.entry(resource.clone()).or_default().extend(verbs);
            }
        };
        for tracker in self.controllers.values() {
            tracker.with_required(|needs| add(&needs.rights));
        }
        for Waiting { tracker, .. } in waiting {
            tracker.with_required(|needs| needs.for_each_kind(|kind| forbidden.extend(kind.denied_rights())));
        }
        add(&forbidden);
        if required.is_empty() {
            return String::new();
        }
        let denied = rights::review(&self.client, &required).await;
        rights::rules(&denied.unwrap_or(Denied {
            rights: forbidden,
            unchecked: 0,
        }))
    }
}

/// What the controllers miss, to notice a change. Without the text of errors, which may differ each time.
fn summarize(waiting: &[Waiting]) -> Vec<(String, BTreeSet<String>, BTreeSet<String>, bool)> {
    let missing = waiting
        .iter()
        .filter(|one| one.missing.is_blocked() || !one.missing.errors.is_empty())
        .filter(|one| !one.missing.is_outage());
    missing
        .map(|Waiting { name, missing, .. }| {
            let Missing {
                kinds,
                forbidden,
                is_lasting,
                ..
            } = missing;
            (name.clone(), kinds.clone(), forbidden.clone(), *is_lasting)
        })
        .collect()
}

/// Since when lists have failed with errors that may pass.
struct FailingSince {
    since: BTreeMap<(String, String), Instant>,
    /// How long an error must last to count.
    lasting: Duration,
    /// The server was well when it was asked last.
    was_well: bool,
    /// One of them has lasted while the server was well.
    is_confirmed: bool,
}

impl Default for FailingSince {
    fn default() -> Self {
        Self {
            since: BTreeMap::new(),
            lasting: LASTING,
            was_well: true,
            is_confirmed: false,
        }
    }
}

impl FailingSince {
    /// Marks controllers with an error that has lasted although the server is well: another server, such as a conversion
    /// webhook or an aggregated API, is not. A server that is down as a whole blocks no controller, because all wait for
    /// the same.
    async fn mark_lasting(&mut self, waiting: &mut [Waiting], client: &Client) {
        let now = Instant::now();
        let errors = |one: &Waiting| one.missing.errors.keys().cloned().collect::<Vec<_>>();
        let failing: BTreeSet<_> = waiting.iter().flat_map(errors).collect();
        self.since.retain(|list, _| failing.contains(list));
        for list in failing {
            self.since.entry(list).or_insert(now);
        }
        let lasting = self.lasting;
        let has_lasted = |since: &Instant| now.duration_since(*since) >= lasting;
        let is_candidate = self.since.values().any(has_lasted);
        self.is_confirmed &= is_candidate;
        if is_candidate && !self.is_confirmed {
            let was_well = std::mem::replace(&mut self.was_well, is_well(client).await);
            self.is_confirmed = was_well && self.was_well;
            if !self.is_confirmed {
                // The errors may be from the outage: they count from the time when it has ended.
                self.since.clear();
                self.lasting = LASTING_AFTER_OUTAGE;
            }
        }
        if self.is_confirmed {
            for one in waiting {
                let mut errors = one.missing.errors.keys();
                one.missing.is_lasting = errors.any(|list| self.since.get(list).is_some_and(has_lasted));
            }
        }
    }
}

/// Whether the server says that it is ready, or cannot say. Everybody may ask.
async fn is_well(client: &Client) -> bool {
    let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else {
        return false;
    };
    match timeout(PROBE_TIMEOUT, client.request_text(request)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => {
            StatusClass::of_error(&error).is_some_and(|class| class != StatusClass::ServerError)
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use windlass_cache::WatchError;

    use super::*;

    fn required(group: &str, plural: &str, failure: Option<(&str, WatchErrorKind)>) -> RequiredKind {
        let failure = failure.map(|(namespace, kind)| (namespace.to_owned(), kind));
        RequiredKind {
            kind: "Foo".to_owned(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            namespaces: None,
            is_partial: false,
            is_owned: false,
            failures: Box::new(move || {
                let failure = failure.clone();
                failure
                    .map(|(namespace, kind)| {
                        let error = WatchError {
                            kind,
                            message: "the reason".to_owned(),
                        };
                        SyncFailure { namespace, error }
                    })
                    .into_iter()
                    .collect()
            }),
        }
    }

    #[test]
    fn missing_kinds_and_errors_are_described_with_the_fix() {
        let described = |kinds: Vec<RequiredKind>, installable: &[&str]| {
            let required = Required {
                kinds,
                ..Required::default()
            };
            let installable = installable.iter().map(ToString::to_string).collect();
            let missing = Missing::of(&required, &installable);
            (
                missing.is_blocked(),
                missing.describe(&["Foo".to_owned(), "Pod".to_owned()]),
            )
        };
        assert_eq!(
            described(vec![required("", "pods", None)], &[]),
            (false, "waiting for Foo, Pod".to_owned())
        );
        let foos = || {
            let absent = Some(("", WatchErrorKind::NotInstalled));
            vec![required("example.com", "foos", absent)]
        };
        assert_eq!(
            described(foos(), &["bars.example.com"]),
            (
                true,
                "the CRD foos.example.com is not installed, or does not serve v1: install it".to_owned()
            )
        );
        assert_eq!(
            described(foos(), &["foos.example.com"]),
            (
                true,
                "the CRD foos.example.com is not installed, or does not serve v1: start with --install, or apply its \
                 manifest with kubectl"
                    .to_owned()
            )
        );
        let broken = Some(("a", WatchErrorKind::Other));
        let forbidden = Some(("", WatchErrorKind::Forbidden));
        assert_eq!(
            described(
                vec![
                    required("", "pods", broken),
                    required("apps", "daemonsets", forbidden)
                ],
                &[]
            ),
            (
                true,
                "it may not list daemonsets, cannot list pods in a: the reason".to_owned()
            )
        );
    }
}
