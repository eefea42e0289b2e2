//! The list-and-watch protocol as a state machine without I/O.
//!
//! ```text
//!        ┌────────┐ ──┐ event: Stage, Unstage
//!   ●──► │ Stream │ ◄─┘
//!        └────────┘ ──── initial-events-end bookmark: Replace, same watch ──────┐
//!           │ refused by the server                                             │
//!           ▼                                                                   ▼
//!        ┌──────┐ ──┐ page with a continue token: Stage                 ┌───────┐ ──┐ event: Apply, Remove
//!        │ List │ ◄─┘                                                   │ Watch │ ◄─┘ end: again from the last
//!        └──────┘ ──── last page: Replace ────────────────────────────► └───────┘     resource version
//!           │                                                              │ ▲
//!    failed │        Stream again after any other failure                  ▼ │ refused, 429
//!        ┌──────────────────────────────────────────────────────────────────────┐
//!        │ Wait: 0.8 s doubling to 30 s, each with jitter                       │
//!        └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`ListWatch`] holds resource versions and timing, but no objects: the driver keeps the payload of an [`Input`] and
//! executes the returned [`Effect`] on it. So the rules can be tested with strings, and the driver has none. The rules
//! are those of client-go's reflector.

mod messages;

use std::time::{Duration, Instant};

pub use messages::{Effect, EventType, Input, ListCall, Step, WatchCall, WhenUnserved};

use crate::{
    backoff::Backoff,
    watch_error::{WatchError, WatchErrorKind},
};

/// Objects per page of a paged list (client-go's pager).
pub const PAGE_SIZE: u32 = 500;

/// Range of the random watch timeout, so that watches do not all end together.
const WATCH_SECONDS: std::ops::Range<u64> = 300..600;

/// A watch that ends sooner than this without an event is a failure. Otherwise a broken proxy would cause a busy loop.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);

/// How long after its requested timeout a watch is given up: the server or the connection to it is dead.
const WATCH_GRACE: Duration = Duration::from_secs(30);

/// A server that pauses for this long in the middle of the initial events does not mark their end.
const INITIAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(20);

/// Number of consecutive 404s that prove that the kind is gone. A single one may come from a server that is starting.
const NOT_INSTALLED_THRESHOLD: u32 = 2;

/// The protocol's state for one kind.
#[derive(Debug)]
pub struct ListWatch {
    phase: Phase,
    /// The newest version that the store reflects; empty before the first complete list.
    resource_version: String,
    /// The server does not know `resource_version` any more, or not yet: the next list requests the newest state.
    version_unavailable: bool,
    /// The initial state is streamed (WatchList) if the server supports it.
    watch_list: bool,
    /// A list at version 0 was paged, so the server has no watch cache, and lists at a version are not cheap.
    server_lacks_watch_cache: bool,
    when_unserved: WhenUnserved,
    /// Number of consecutive 404s.
    not_found_count: u32,
    backoff: Backoff,
    random: fastrand::Rng,
}

#[derive(Debug)]
enum Phase {
    List {
        call: ListCall,
        /// The version that the first page requested; later pages have it in their token.
        requested: String,
    },
    /// A WatchList that has not sent all initial objects yet.
    Stream {
        call: WatchCall,
        since: Instant,
        frames: u64,
    },
    Watch {
        call: WatchCall,
        since: Instant,
        frames: u64,
        /// The watch has no start version, so it first sends every object, in no particular order. Until another event
        /// comes, an event's version does not mean that all older ones were sent.
        unordered: bool,
    },
    Wait {
        delay: Duration,
        then: AfterWait,
    },
}

#[derive(Clone, Copy, Debug)]
enum AfterWait {
    Start,
    Watch,
}

impl ListWatch {
    /// Creates a protocol before the first list. `random` spreads timeouts and retries; seed it to reproduce a run.
    pub fn new(mut random: fastrand::Rng, now: Instant) -> Self {
        let backoff = Backoff::new(random.fork());
        let mut protocol = Self {
            phase: list_phase("0".to_owned(), false),
            resource_version: String::new(),
            version_unavailable: false,
            watch_list: true,
            server_lacks_watch_cache: false,
            when_unserved: WhenUnserved::default(),
            not_found_count: 0,
            backoff,
            random,
        };
        protocol.start(now);
        protocol
    }

    /// Lists the initial state instead of streaming it.
    #[must_use]
    pub fn without_watch_list(mut self) -> Self {
        self.watch_list = false;
        self.relist();
        self
    }

    /// Sets what happens to the objects while the server does not serve the kind. Default: they are removed.
    #[must_use]
    pub fn when_unserved(self, when_unserved: WhenUnserved) -> Self {
        Self {
            when_unserved,
            ..self
        }
    }

    /// Returns the current step. It changes only by [`input`](Self::input).
    pub fn step(&self) -> Step {
        match &self.phase {
            Phase::List { call, .. } => Step::List(call.clone()),
            Phase::Watch { call, .. } | Phase::Stream { call, .. } => Step::Watch(call.clone()),
            Phase::Wait { delay, .. } => Step::Wait(*delay),
        }
    }

    /// Returns the newest version that the store reflects after all effects; empty before the first list.
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// Returns when a read of the current watch that starts now has to be given up, with [`Input::TimedOut`].
    pub fn read_deadline(&self, now: Instant) -> Instant {
        match &self.phase {
            Phase::Stream { call, since, .. } => {
                watch_deadline(call, *since).min(now + INITIAL_EVENTS_TIMEOUT)
            }
            Phase::Watch { call, since, .. } => watch_deadline(call, *since),
            Phase::List { .. } | Phase::Wait { .. } => now,
        }
    }

    /// Processes a result of the current [`step`](Self::step).
    ///
    /// An input that does not belong to the current step is a bug of the driver and changes nothing.
    pub fn input(&mut self, input: &Input<'_>, now: Instant) -> Effect {
        match (input, &mut self.phase) {
            (
                Input::Page {
                    resource_version,
                    continue_token,
                },
                Phase::List { call, requested },
            ) => {
                let Some(token) = continue_token.filter(|token| !token.is_empty()) else {
                    (*resource_version).clone_into(&mut self.resource_version);
                    self.version_unavailable = false;
                    self.not_found_count = 0;
                    self.watch(now);
                    return Effect::Replace;
                };
                self.server_lacks_watch_cache |= requested == "0";
                // The token contains the version; a request with both is invalid.
                call.resource_version.clear();
                call.continue_token = Some(token.to_owned());
                Effect::Stage
            }
            (Input::ListFailed(failure), Phase::List { .. }) => self.list_failed(failure, now),
            (input, Phase::Stream { .. }) => self.stream_input(input, now),
            (Input::WatchFailed(failure) | Input::StreamFailed(failure), Phase::Watch { .. }) => {
                let unversioned = self.is_unversioned();
                let then = match failure.kind {
                    // The server is overloaded or restarting; the resource version is still valid.
                    WatchErrorKind::ConnectionRefused | WatchErrorKind::TooManyRequests { .. }
                        if !unversioned =>
                    {
                        AfterWait::Watch
                    }
                    // A 410 does not make the version unavailable for a list: the server may still list at it.
                    _ => AfterWait::Start,
                };
                self.wait(failure.kind, then, now);
                Effect::None
            }
            (
                Input::Event {
                    event_type,
                    resource_version,
                },
                Phase::Watch {
                    frames, unordered, ..
                },
            ) => {
                *frames += 1;
                *unordered &= *event_type == EventType::Added;
                if !*unordered {
                    self.advance(resource_version);
                }
                match event_type {
                    EventType::Added | EventType::Modified => Effect::Apply,
                    EventType::Deleted => Effect::Remove,
                }
            }
            (
                Input::Bookmark { resource_version, .. },
                Phase::Watch {
                    frames, unordered, ..
                },
            ) => {
                *frames += 1;
                *unordered = false;
                self.advance(resource_version);
                Effect::Advance
            }
            (Input::StreamEnded | Input::TimedOut, Phase::Watch { since, frames, .. }) => {
                if *frames == 0 && now.duration_since(*since) < MIN_WATCH_DURATION {
                    self.wait(WatchErrorKind::Other, AfterWait::Start, now);
                } else if self.is_unversioned() {
                    // Another such watch would not report deletions in between.
                    self.start(now);
                } else {
                    self.watch(now);
                }
                Effect::None
            }
            (Input::Waited, Phase::Wait { then, .. }) => {
                match then {
                    AfterWait::Start => self.start(now),
                    AfterWait::Watch => self.watch(now),
                }
                Effect::None
            }
            (input, phase) => {
                debug_assert!(false, "{input:?} does not belong to {phase:?}");
                Effect::None
            }
        }
    }

    /// Processes a result of a WatchList that has not sent all initial objects yet.
    fn stream_input(&mut self, input: &Input<'_>, now: Instant) -> Effect {
        match (input, &mut self.phase) {
            (Input::WatchFailed(failure), Phase::Stream { .. }) => self.initial_stream_failed(failure, now),
            (Input::StreamFailed(failure), Phase::Stream { .. }) => {
                let _ = self.initial_stream_failed(failure, now);
                Effect::Discard
            }
            (Input::Event { event_type, .. }, Phase::Stream { frames, .. }) => {
                *frames += 1;
                match event_type {
                    EventType::Added | EventType::Modified => Effect::Stage,
                    EventType::Deleted => Effect::Unstage,
                }
            }
            (
                Input::Bookmark {
                    resource_version,
                    initial_events_end,
                },
                Phase::Stream { call, since, frames },
            ) => {
                *frames += 1;
                if !initial_events_end {
                    return Effect::None;
                }
                (*resource_version).clone_into(&mut self.resource_version);
                self.version_unavailable = false;
                self.not_found_count = 0;
                self.phase = Phase::Watch {
                    call: call.clone(),
                    since: *since,
                    frames: *frames,
                    unordered: false,
                };
                Effect::Replace
            }
            (Input::TimedOut, Phase::Stream { call, since, .. }) if now < watch_deadline(call, *since) => {
                self.relist();
                Effect::Fallback
            }
            (Input::StreamEnded | Input::TimedOut, Phase::Stream { since, frames, .. }) => {
                if *frames == 0 && now.duration_since(*since) < MIN_WATCH_DURATION {
                    self.wait(WatchErrorKind::Other, AfterWait::Start, now);
                } else {
                    self.start(now);
                }
                Effect::Discard
            }
            (input, phase) => {
                debug_assert!(false, "{input:?} does not belong to {phase:?}");
                Effect::None
            }
        }
    }

    /// Handles a WatchList that was rejected or that broke off.
    fn initial_stream_failed(&mut self, failure: &WatchError, now: Instant) -> Effect {
        let Phase::Stream { call, .. } = &self.phase else {
            return Effect::None;
        };
        match failure.kind {
            WatchErrorKind::Expired | WatchErrorKind::VersionTooLarge
                if !call.resource_version.is_empty() =>
            {
                self.version_unavailable = true;
                self.start(now);
            }
            WatchErrorKind::ConnectionRefused
            | WatchErrorKind::TooManyRequests { .. }
            | WatchErrorKind::Expired
            | WatchErrorKind::VersionTooLarge => {
                self.wait(failure.kind, AfterWait::Start, now);
            }
            // The server does not support it, or not now: list instead.
            WatchErrorKind::ConnectionFailed
            | WatchErrorKind::NotInstalled
            | WatchErrorKind::Forbidden
            | WatchErrorKind::Other => {
                self.relist();
                return Effect::Fallback;
            }
        }
        Effect::Discard
    }

    fn list_failed(&mut self, failure: &WatchError, now: Instant) -> Effect {
        let Phase::List { call, requested } = &mut self.phase else {
            return Effect::None;
        };
        if failure.kind != WatchErrorKind::NotInstalled {
            self.not_found_count = 0;
        }
        match failure.kind {
            // Paging took longer than the server keeps history, and would again: list without pages.
            WatchErrorKind::Expired if call.continue_token.is_some() => {
                *call = ListCall {
                    resource_version: requested.clone(),
                    limit: None,
                    continue_token: None,
                };
            }
            WatchErrorKind::Expired | WatchErrorKind::VersionTooLarge if !requested.is_empty() => {
                self.version_unavailable = true;
                self.relist();
            }
            WatchErrorKind::NotInstalled => {
                self.not_found_count += 1;
                self.wait(failure.kind, AfterWait::Start, now);
                let is_gone = self.not_found_count == NOT_INSTALLED_THRESHOLD
                    && self.when_unserved == WhenUnserved::Clear;
                if is_gone && !self.resource_version.is_empty() {
                    // If the kind is installed again, it starts without a version.
                    self.resource_version.clear();
                    self.version_unavailable = false;
                    return Effect::Clear;
                }
            }
            cause => self.wait(cause, AfterWait::Start, now),
        }
        Effect::Discard
    }

    /// Requests the whole state, not older than the known version.
    fn start(&mut self, now: Instant) {
        if !self.watch_list {
            return self.relist();
        }
        let resource_version = if self.version_unavailable {
            String::new()
        } else {
            self.resource_version.clone()
        };
        let call = WatchCall {
            resource_version,
            initial_events: true,
            timeout: Duration::from_secs(self.random.u64(WATCH_SECONDS)),
        };
        self.phase = Phase::Stream {
            call,
            since: now,
            frames: 0,
        };
    }

    fn relist(&mut self) {
        let version = match self.resource_version.as_str() {
            _ if self.version_unavailable => "",
            "" => "0",
            known => known,
        };
        self.phase = list_phase(version.to_owned(), self.server_lacks_watch_cache);
    }

    fn watch(&mut self, now: Instant) {
        let timeout = Duration::from_secs(self.random.u64(WATCH_SECONDS));
        let call = WatchCall {
            resource_version: self.resource_version.clone(),
            initial_events: false,
            timeout,
        };
        let unordered = self.is_unversioned();
        self.phase = Phase::Watch {
            call,
            since: now,
            frames: 0,
            unordered,
        };
    }

    fn wait(&mut self, cause: WatchErrorKind, then: AfterWait, now: Instant) {
        let requested = match cause {
            WatchErrorKind::TooManyRequests { retry_after } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let delay = self.backoff.next(now).max(requested);
        self.phase = Phase::Wait { delay, then };
    }

    /// Returns whether a watch from here would first send every object.
    fn is_unversioned(&self) -> bool {
        matches!(self.resource_version.as_str(), "" | "0")
    }

    fn advance(&mut self, resource_version: &str) {
        if !resource_version.is_empty() {
            resource_version.clone_into(&mut self.resource_version);
        }
    }
}

fn watch_deadline(call: &WatchCall, since: Instant) -> Instant {
    since + call.timeout + WATCH_GRACE
}

/// The server's watch cache serves a list at a version in one piece, and would read pages from etcd. So only lists
/// without a version or at 0 are paged.
fn list_phase(version: String, server_pages: bool) -> Phase {
    let limit = (server_pages || version.is_empty() || version == "0").then_some(PAGE_SIZE);
    let call = ListCall {
        resource_version: version.clone(),
        limit,
        continue_token: None,
    };
    Phase::List {
        call,
        requested: version,
    }
}

#[cfg(test)]
mod tests;
