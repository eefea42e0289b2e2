//! The list-and-watch protocol without I/O: what came in, what to do to the store, what to ask next.
//!
//! ```text
//!        ┌────────┐ ──┐ a frame: Stage, Unstage
//!   ●──► │ Stream │ ◄─┘
//!        └────────┘ ──── the marked bookmark: Replace, the same watch goes on ──┐
//!           │ refused by the server                                             │
//!           ▼                                                                   ▼
//!        ┌──────┐ ──┐ a page with a continue token: Stage               ┌───────┐ ──┐ a frame: Apply, Remove
//!        │ List │ ◄─┘                                                   │ Watch │ ◄─┘ the end: again from the last
//!        └──────┘ ──── last page: Replace ────────────────────────────► └───────┘     version
//!           │                                                              │ ▲
//!    failed │        Stream again after any other failure                  ▼ │ refused, 429
//!        ┌──────────────────────────────────────────────────────────────────────┐
//!        │ Wait: 0.8 s doubling to 30 s, each with jitter                       │
//!        └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`ListWatch`] holds resource versions and timing, and no objects: the driver keeps the payload of an
//! [`Input`] and does with it what the returned [`Effect`] says. So the rules can be tested with strings, and
//! the driver has none to get wrong. The rules are client-go's reflector's; the tests name each one.

mod messages;

use std::time::{Duration, Instant};

pub use messages::{Effect, Event, Input, ListCall, Step, WatchCall};

use crate::{
    backoff::Backoff,
    failure::{Cause, Failure},
};

/// Objects per page where paging does not cost the server more than it saves (client-go's pager).
pub const PAGE_SIZE: u32 = 500;

/// The server ends a watch after a random time in this range, so that watches do not end all together.
const WATCH_SECONDS: std::ops::Range<u64> = 300..600;

/// A watch that ends sooner than this with nothing seen is a failure, or a broken proxy would be asked in a loop.
const VERY_SHORT: Duration = Duration::from_secs(1);

/// So many 404s in a row say that the kind is gone. One alone may be a server that is just starting.
const NOT_INSTALLED_CONFIRMED: u32 = 2;

/// The protocol's state for one kind.
#[derive(Debug)]
pub struct ListWatch {
    phase: Phase,
    /// The newest version that the store reflects; empty before the first complete list.
    resource_version: String,
    /// The server does not know `resource_version` any more, or not yet: the next list asks for the newest state.
    version_unavailable: bool,
    /// The initial state is streamed if the server can.
    streaming: bool,
    /// A list at version 0 came in pages, so the server has no watch cache, and lists at a version are not cheap.
    server_pages: bool,
    /// 404s in a row.
    not_installed: u32,
    backoff: Backoff,
    random: fastrand::Rng,
}

#[derive(Debug)]
enum Phase {
    List {
        call: ListCall,
        /// The version that the first page asked for; later pages carry it in their token.
        requested: String,
    },
    /// A watch that has not told of all initial objects yet.
    Stream {
        call: WatchCall,
        since: Instant,
        frames: u64,
    },
    Watch {
        call: WatchCall,
        since: Instant,
        frames: u64,
        /// The watch has no version to start from, so it starts by telling of every object, in no certain order.
        /// Until something else comes, the versions say nothing about what was told.
        unordered: bool,
    },
    Wait {
        delay: Duration,
        then: Then,
    },
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Start,
    Watch,
}

impl ListWatch {
    /// A protocol that has seen nothing. `random` spreads timeouts and retries; seed it to repeat a run.
    pub fn new(mut random: fastrand::Rng, now: Instant) -> Self {
        let backoff = Backoff::new(random.fork());
        let mut protocol = Self {
            phase: list_phase("0".to_owned(), false),
            resource_version: String::new(),
            version_unavailable: false,
            streaming: true,
            server_pages: false,
            not_installed: 0,
            backoff,
            random,
        };
        protocol.start(now);
        protocol
    }

    /// The initial state is listed, never streamed.
    #[must_use]
    pub fn listing(mut self) -> Self {
        self.streaming = false;
        self.relist();
        self
    }

    /// What to do now. Asking twice gives the same answer.
    pub fn step(&self) -> Step {
        match &self.phase {
            Phase::List { call, .. } => Step::List(call.clone()),
            Phase::Watch { call, .. } | Phase::Stream { call, .. } => Step::Watch(call.clone()),
            Phase::Wait { delay, .. } => Step::Wait(*delay),
        }
    }

    /// The newest version that the store reflects once the effects are done; empty before the first list.
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// Takes what came back for the current [`step`](Self::step).
    ///
    /// An input that does not belong to the current step is a mistake of the driver and changes nothing.
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
                    self.not_installed = 0;
                    self.watch(now);
                    return Effect::Replace;
                };
                self.server_pages |= requested == "0";
                // The token carries the version; a request with both is invalid.
                call.resource_version.clear();
                call.continue_token = Some(token.to_owned());
                Effect::Stage
            }
            (Input::ListFailed(failure), Phase::List { .. }) => self.list_failed(failure, now),
            (input, Phase::Stream { .. }) => self.stream_input(input, now),
            (Input::WatchFailed(failure) | Input::StreamFailed(failure), Phase::Watch { .. }) => {
                let unversioned = self.is_unversioned();
                let then = match failure.cause {
                    // The server is busy or restarting; what we hold is as good as before.
                    Cause::Refused | Cause::TooManyRequests { .. } if !unversioned => Then::Watch,
                    // A 410 does not make the version unavailable for a list: the server may still list at it.
                    _ => Then::Start,
                };
                self.wait(failure.cause, then, now);
                Effect::None
            }
            (
                Input::Event {
                    event,
                    resource_version,
                },
                Phase::Watch {
                    frames, unordered, ..
                },
            ) => {
                *frames += 1;
                *unordered &= *event == Event::Added;
                if !*unordered {
                    self.advance(resource_version);
                }
                match event {
                    Event::Added | Event::Modified => Effect::Apply,
                    Event::Deleted => Effect::Remove,
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
                Effect::None
            }
            (Input::StreamEnded, Phase::Watch { since, frames, .. }) => {
                if *frames == 0 && now.duration_since(*since) < VERY_SHORT {
                    self.wait(Cause::Other, Then::Start, now);
                } else if self.is_unversioned() {
                    // Another such watch would not tell what was deleted in between.
                    self.start(now);
                } else {
                    self.watch(now);
                }
                Effect::None
            }
            (Input::Waited, Phase::Wait { then, .. }) => {
                match then {
                    Then::Start => self.start(now),
                    Then::Watch => self.watch(now),
                }
                Effect::None
            }
            (input, phase) => {
                debug_assert!(false, "{input:?} does not belong to {phase:?}");
                Effect::None
            }
        }
    }

    /// Takes what came back for a watch that has not told of all initial objects yet.
    fn stream_input(&mut self, input: &Input<'_>, now: Instant) -> Effect {
        match (input, &mut self.phase) {
            (Input::WatchFailed(failure) | Input::StreamFailed(failure), Phase::Stream { .. }) => {
                self.initial_stream_failed(failure, now)
            }
            (Input::Event { event, .. }, Phase::Stream { frames, .. }) => {
                *frames += 1;
                match event {
                    Event::Added | Event::Modified => Effect::Stage,
                    Event::Deleted => Effect::Unstage,
                }
            }
            (
                Input::Bookmark {
                    resource_version,
                    initial_end,
                },
                Phase::Stream { call, since, frames },
            ) => {
                *frames += 1;
                if !initial_end {
                    return Effect::None;
                }
                (*resource_version).clone_into(&mut self.resource_version);
                self.version_unavailable = false;
                self.not_installed = 0;
                self.phase = Phase::Watch {
                    call: call.clone(),
                    since: *since,
                    frames: *frames,
                    unordered: false,
                };
                Effect::Replace
            }
            (Input::StreamEnded, Phase::Stream { since, frames, .. }) => {
                if *frames == 0 && now.duration_since(*since) < VERY_SHORT {
                    self.wait(Cause::Other, Then::Start, now);
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

    /// The stream of initial events was refused or broke off.
    fn initial_stream_failed(&mut self, failure: &Failure, now: Instant) -> Effect {
        let Phase::Stream { call, .. } = &self.phase else {
            return Effect::None;
        };
        match failure.cause {
            Cause::Expired | Cause::TooLarge if !call.resource_version.is_empty() => {
                self.version_unavailable = true;
                self.start(now);
            }
            Cause::Refused | Cause::TooManyRequests { .. } | Cause::Expired | Cause::TooLarge => {
                self.wait(failure.cause, Then::Start, now);
            }
            // The server cannot do it, or not now: this time it is a list.
            Cause::NotInstalled | Cause::Other => self.relist(),
        }
        Effect::Discard
    }

    fn list_failed(&mut self, failure: &Failure, now: Instant) -> Effect {
        let Phase::List { call, requested } = &mut self.phase else {
            return Effect::None;
        };
        if failure.cause != Cause::NotInstalled {
            self.not_installed = 0;
        }
        match failure.cause {
            // Paging took longer than the server keeps history: page by page it would again.
            Cause::Expired if call.continue_token.is_some() => {
                *call = ListCall {
                    resource_version: requested.clone(),
                    limit: None,
                    continue_token: None,
                };
            }
            Cause::Expired | Cause::TooLarge if !requested.is_empty() => {
                self.version_unavailable = true;
                self.relist();
            }
            Cause::NotInstalled => {
                self.not_installed += 1;
                self.wait(failure.cause, Then::Start, now);
                if self.not_installed == NOT_INSTALLED_CONFIRMED && !self.resource_version.is_empty() {
                    // If it is installed again, it starts from nothing.
                    self.resource_version.clear();
                    self.version_unavailable = false;
                    return Effect::Clear;
                }
            }
            cause => self.wait(cause, Then::Start, now),
        }
        Effect::Discard
    }

    /// Gets the whole state, not older than what is known.
    fn start(&mut self, now: Instant) {
        if !self.streaming {
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
        self.phase = list_phase(version.to_owned(), self.server_pages);
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

    fn wait(&mut self, cause: Cause, then: Then, now: Instant) {
        let asked = match cause {
            Cause::TooManyRequests { retry_after } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let delay = self.backoff.next(now).max(asked);
        self.phase = Phase::Wait { delay, then };
    }

    /// A watch from here starts by telling of every object.
    fn is_unversioned(&self) -> bool {
        matches!(self.resource_version.as_str(), "" | "0")
    }

    fn advance(&mut self, resource_version: &str) {
        if !resource_version.is_empty() {
            resource_version.clone_into(&mut self.resource_version);
        }
    }
}

/// A list at a version comes from the server's watch cache, which answers in one piece and would go to etcd for
/// pages; at no version or at 0 it may page.
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
