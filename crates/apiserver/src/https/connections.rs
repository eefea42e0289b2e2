//! Who is connected, and who has to go when there is no room.
//!
//! ```text
//!   accept ─► New ─► first request ─┬─► Anonymous ─┐ at most `connections` of these two; the one that idles longest
//!              │                    ├─► Known ─────┘ makes room for another, and busy ones stay
//!              │                    └─► Administrator   a newcomer makes room
//!              └── at most `connections + reserved` in all: the newcomer that waits longest makes room for another
//! ```
//!
//! A client is refused only when its identity is known, so that silent clients only displace each other. [`Connections`] owns the
//! list; a [`Seat`] is what it knows of one connection, and a [`Place`] is held by the connection itself: it leaves the list when
//! that is dropped.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{auth::User, limits::Limits};

/// All open connections of a server.
pub(crate) struct Connections {
    pub(super) limits: Limits,
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    by_id: HashMap<u64, Arc<Seat>>,
    next: u64,
    /// How many of them are `Anonymous` or `Known`.
    ordinary: usize,
}

/// A connection's hold on its seat.
pub(super) struct Place(pub(super) Arc<Seat>);

/// One connection.
pub(crate) struct Seat {
    id: u64,
    connections: Arc<Connections>,
    state: Mutex<State>,
    /// Told when `State::ending` changes.
    changed: Notify,
}

struct State {
    standing: Standing,
    /// Requests that are not answered completely.
    open: usize,
    /// When there was last a request, or a connection without one.
    quiet_since: Instant,
    /// When the first byte came of a head that is not complete.
    head_since: Option<Instant>,
    /// Whether it has left the list to make room.
    gone: bool,
    ending: Option<Ending>,
    /// Requests that the client took back since `window`.
    resets: usize,
    window: Instant,
}

/// What is known of who is connected, from what they have proved so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    New,
    Anonymous,
    Known,
    Administrator,
}

/// How a connection ends that its client does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// At once.
    Cut,
    /// When the answers have been sent that are on the way, or after this time.
    Drain(Duration),
}

/// No room for a client that is not an administrator.
#[derive(Debug)]
pub(crate) struct Full;

impl Connections {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            seats: Mutex::default(),
        })
    }

    /// A place for a new connection; `None` if every connection is busy.
    pub(super) fn open(self: &Arc<Self>) -> Option<Place> {
        let mut seats = self.seats.lock();
        let most = self.limits.connections.saturating_add(self.limits.reserved);
        if seats.by_id.len() >= most && !seats.make_room(Standing::New) {
            return None;
        }
        let id = seats.next;
        seats.next += 1;
        let now = Instant::now();
        let seat = Arc::new(Seat {
            id,
            connections: self.clone(),
            state: Mutex::new(State {
                standing: Standing::New,
                open: 0,
                quiet_since: now,
                head_since: None,
                gone: false,
                ending: None,
                resets: 0,
                window: now,
            }),
            changed: Notify::new(),
        });
        seats.by_id.insert(id, seat.clone());
        Some(Place(seat))
    }

    /// Closes a connection that is not busy, if there is one: the process has no file descriptors left.
    pub(super) fn relieve(&self) {
        self.seats.lock().make_room(Standing::New);
    }
}

impl Seats {
    /// Closes the connection that idles longest, of those that have at least this standing; newcomers and those who never
    /// proved who they are go before others. Administrators and busy ones stay.
    fn make_room(&mut self, least: Standing) -> bool {
        let idle = self.by_id.values().filter_map(|seat| {
            let state = seat.state.lock();
            let standing = state.standing;
            let may_go = state.open == 0 && standing >= least && standing < Standing::Administrator;
            may_go.then_some(((standing == Standing::Known, state.quiet_since), seat))
        });
        let Some((_, seat)) = idle.min_by_key(|(rank, _)| *rank) else {
            return false;
        };
        let seat = seat.clone();
        let mut state = seat.state.lock();
        self.remove(seat.id, &mut state);
        state.ending = Some(Ending::Cut);
        drop(state);
        seat.changed.notify_one();
        true
    }

    fn remove(&mut self, id: u64, state: &mut State) {
        if std::mem::replace(&mut state.gone, true) {
            return;
        }
        self.by_id.remove(&id);
        if matches!(state.standing, Standing::Anonymous | Standing::Known) {
            self.ordinary -= 1;
        }
    }
}

impl Seat {
    /// Lets the connection stay as this user's, who made a request on it.
    pub(crate) fn admit(&self, user: &User) -> Result<(), Full> {
        let standing = match user {
            user if user.is_master() => Standing::Administrator,
            user if user.is_anonymous() => Standing::Anonymous,
            _ => Standing::Known,
        };
        // Nearly all requests are not the first of their kind.
        if self.state.lock().standing >= standing {
            return Ok(());
        }
        let mut seats = self.connections.seats.lock();
        let is_new = self.state.lock().standing == Standing::New;
        let needs_room = is_new && standing != Standing::Administrator;
        if needs_room
            && seats.ordinary >= self.connections.limits.connections
            && !seats.make_room(Standing::Anonymous)
        {
            self.end(Ending::Drain(self.connections.limits.unread));
            return Err(Full);
        }
        let mut state = self.state.lock();
        if !state.gone {
            match (state.standing, standing) {
                (Standing::New, Standing::Administrator) => {}
                (Standing::New, _) => seats.ordinary += 1,
                (_, Standing::Administrator) => seats.ordinary -= 1,
                _ => {}
            }
        }
        state.standing = standing;
        Ok(())
    }

    /// Notes that a request came.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        state.open += 1;
        state.head_since = None;
    }

    /// Notes that a request is over, and whether it was the client that took it back.
    pub(super) fn finish(&self, is_reset: bool) {
        let now = Instant::now();
        let limits = &self.connections.limits;
        let mut state = self.state.lock();
        state.open -= 1;
        state.quiet_since = now;
        if !is_reset {
            return;
        }
        if now.duration_since(state.window) >= limits.ping {
            (state.window, state.resets) = (now, 0);
        }
        state.resets += 1;
        if state.resets > limits.resets {
            state.ending = Some(Ending::Cut);
            self.changed.notify_one();
        }
    }

    /// Notes that bytes came, of a head if no request is open.
    pub(super) fn received(&self) {
        let mut state = self.state.lock();
        if state.open == 0 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
        }
    }

    fn end(&self, ending: Ending) {
        self.state.lock().ending.get_or_insert(ending);
        self.changed.notify_one();
    }

    /// Waits until the connection has to end, because there is no room or because it is too quiet.
    pub(super) async fn ended(&self) -> Ending {
        loop {
            let wake = match self.verdict() {
                Ok(ending) => return ending,
                Err(wake) => wake,
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// How it has to end now, or when to look again.
    fn verdict(&self) -> Result<Ending, Instant> {
        let limits = &self.connections.limits;
        let (state, now) = (self.state.lock(), Instant::now());
        if let Some(ending) = state.ending {
            return Ok(ending);
        }
        let soon = now + limits.header.min(limits.idle);
        if state.open > 0 {
            return Err(soon);
        }
        let (deadline, ending) = match (state.head_since, state.standing) {
            (Some(since), _) => (since + limits.header, Ending::Cut),
            (None, Standing::New) => (state.quiet_since + limits.header, Ending::Cut),
            (None, _) => (state.quiet_since + limits.idle, Ending::Drain(limits.unread)),
        };
        if now >= deadline {
            return Ok(ending);
        }
        Err(deadline.min(soon))
    }

    /// Waits until there is no room for it any more, while it is drained.
    pub(super) async fn cut(&self) {
        while self.state.lock().ending != Some(Ending::Cut) {
            self.changed.notified().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self(seat) = self;
        let mut seats = seat.connections.seats.lock();
        seats.remove(seat.id, &mut seat.state.lock());
    }
}
