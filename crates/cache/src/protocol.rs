//! The list-and-watch protocol without I/O: what came in, what to do to the store, what to ask next.
//!
//! ```text
//!        ┌──────┐ ──┐ a page with a continue token: Stage
//!   ●──► │ List │ ◄─┘
//!        └──────┘ ──── last page: Replace ────► ┌───────┐ ──┐ a frame: Apply, Remove
//!           │ ▲                                 │ Watch │ ◄─┘ the end: again from the last version
//!           │ │                                 └───────┘
//!    failed │ │ ◄─── any other failure ────────┐   │ ▲
//!           ▼ │                                │   ▼ │ refused, 429
//!        ┌──────────────────────────────────────────────────┐
//!        │ Wait: 0.8 s doubling to 30 s, each with jitter   │
//!        └──────────────────────────────────────────────────┘
//! ```
//!
//! [`ListWatch`] holds resource versions and timing, and no objects: the driver keeps the payload of an
//! [`Input`] and does with it what the returned [`Effect`] says. So the rules can be tested with strings, and
//! the driver has none to get wrong. The rules are client-go's reflector's; the tests name each one.
//!
//! Streaming the initial state instead of listing it (watch-list) is not here yet. It will be one more phase: its
//! `ADDED` frames are [`Effect::Stage`], its marked bookmark is [`Effect::Replace`], and its refusal is the list
//! phase below.

use std::time::{Duration, Instant};

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

/// What the driver must do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this list request; answer with [`Input::Page`] or [`Input::ListFailed`].
    List(ListCall),
    /// Send this watch request; answer with [`Input::WatchFailed`], or with any number of [`Input::Event`] and
    /// [`Input::Bookmark`] and then [`Input::StreamEnded`] or [`Input::StreamFailed`].
    Watch(WatchCall),
    /// Do nothing for so long; answer with [`Input::Waited`].
    Wait(Duration),
}

/// The parameters of a list request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCall {
    /// Empty: the newest state, by quorum. `0`: any state. Otherwise: not older than this.
    pub resource_version: String,
    /// `None`: everything in one response.
    pub limit: Option<u32>,
    /// The token of the previous page.
    pub continue_token: Option<String>,
}

/// The parameters of a watch request. Bookmarks are always asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchCall {
    /// Changes after this version.
    pub resource_version: String,
    /// When the server is to end the watch.
    pub timeout: Duration,
}

/// What came back.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A page of a list.
    Page {
        /// The version of the list as a whole.
        resource_version: &'a str,
        /// Where the next page starts, unless this is the last.
        continue_token: Option<&'a str>,
    },
    /// A list request failed.
    ListFailed(&'a Failure),
    /// A watch request failed before any frame.
    WatchFailed(&'a Failure),
    /// An `ADDED`, `MODIFIED` or `DELETED` frame, decodable or not.
    Event {
        /// Which.
        event: Event,
        /// The object's version; empty if it could not be read.
        resource_version: &'a str,
    },
    /// A `BOOKMARK` frame.
    Bookmark {
        /// Everything up to this version has been sent.
        resource_version: &'a str,
    },
    /// An `ERROR` frame.
    StreamFailed(&'a Failure),
    /// The stream ended, by the server, the network, or because it was silent for too long.
    StreamEnded,
    /// The time of [`Step::Wait`] has passed.
    Waited,
}

/// What a frame says about its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It exists in this state, and the watch has not told of it before.
    Added,
    /// It exists in this state.
    Modified,
    /// It is gone; this was its last state.
    Deleted,
}

/// What the driver must do with the payload of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// Nothing.
    None,
    /// Put the page's objects aside.
    Stage,
    /// Put the page's objects aside, then make all that is aside the content of the store.
    Replace,
    /// Forget what is aside: the list starts again.
    Discard,
    /// Store the object.
    Apply,
    /// Remove the object.
    Remove,
    /// Remove all objects: the kind does not exist any more.
    Clear,
}

/// The protocol's state for one kind.
#[derive(Debug)]
pub struct ListWatch {
    phase: Phase,
    /// The newest version that the store reflects; empty before the first complete list.
    resource_version: String,
    /// The server does not know `resource_version` any more, or not yet: the next list asks for the newest state.
    version_unavailable: bool,
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
    List,
    Watch,
}

impl ListWatch {
    /// A protocol that has seen nothing. `random` spreads timeouts and retries; seed it to repeat a run.
    pub fn new(mut random: fastrand::Rng) -> Self {
        let backoff = Backoff::new(random.fork());
        let phase = list_phase("0".to_owned(), false);
        Self {
            phase,
            resource_version: String::new(),
            version_unavailable: false,
            server_pages: false,
            not_installed: 0,
            backoff,
            random,
        }
    }

    /// What to do now. Asking twice gives the same answer.
    pub fn step(&self) -> Step {
        match &self.phase {
            Phase::List { call, .. } => Step::List(call.clone()),
            Phase::Watch { call, .. } => Step::Watch(call.clone()),
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
            (Input::WatchFailed(failure) | Input::StreamFailed(failure), Phase::Watch { .. }) => {
                let unversioned = self.is_unversioned();
                let then = match failure.cause {
                    // The server is busy or restarting; what we hold is as good as before.
                    Cause::Refused | Cause::TooManyRequests { .. } if !unversioned => Then::Watch,
                    // A 410 does not make the version unavailable for a list: the server may still list at it.
                    _ => Then::List,
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
                Input::Bookmark { resource_version },
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
                    self.wait(Cause::Other, Then::List, now);
                } else if self.is_unversioned() {
                    // Another such watch would not tell what was deleted in between.
                    self.relist();
                } else {
                    self.watch(now);
                }
                Effect::None
            }
            (Input::Waited, Phase::Wait { then, .. }) => {
                match then {
                    Then::List => self.relist(),
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
                self.wait(failure.cause, Then::List, now);
                if self.not_installed == NOT_INSTALLED_CONFIRMED && !self.resource_version.is_empty() {
                    // If it is installed again, it starts from nothing.
                    self.resource_version.clear();
                    self.version_unavailable = false;
                    return Effect::Clear;
                }
            }
            cause => self.wait(cause, Then::List, now),
        }
        Effect::Discard
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
