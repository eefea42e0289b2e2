//! The open connections, and which of them is closed when the limit is reached.
//!
//! ```text
//!   accept ─► New ─► first request ─┬─► Anonymous ─────┐ at most `connections` of these two: a further one closes an
//!              │                    ├─► Authenticated ─┘ idle one, or a busy one of the tenant that has most
//!              │                    └─► Administrator
//!              └── at most `connections + reserved` in all: a further one closes the oldest new one
//! ```
//!
//! A client is rejected only when its identity is known, so clients that do not authenticate only displace each other,
//! whether or not they are busy: a health check, or a response to wrong credentials, keeps a connection busy for as long as
//! its client does not read. And a tenant that opens many connections cannot keep others out: as long as it has two more than
//! a newcomer's tenant, it loses one.
//! [`Connections`] owns the list, a [`Connection`] is an entry of it, and the connection's task holds a
//! [`ConnectionGuard`], which removes the entry when dropped.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{auth::User, limits::Limits};

/// All open connections of a server.
pub(crate) struct Connections {
    pub(super) limits: Limits,
    list: Mutex<ConnectionList>,
}

#[derive(Default)]
struct ConnectionList {
    by_id: HashMap<u64, Arc<Connection>>,
    next: u64,
    /// The ids of those that are `New`. A smaller one is older.
    new: BTreeSet<u64>,
    /// How many of them are `Anonymous` or `Authenticated`.
    ordinary: usize,
    /// How many of these each tenant has; no entry is 0.
    tenants: HashMap<Arc<str>, usize>,
}

/// Removes a connection from the list when dropped.
pub(super) struct ConnectionGuard(pub(super) Arc<Connection>);

/// The state of one connection.
pub(crate) struct Connection {
    id: u64,
    connections: Arc<Connections>,
    state: Mutex<State>,
    /// Notified when `State::closing` changes.
    changed: Notify,
}

struct State {
    class: ClientClass,
    /// Whose it is; none while it is `New`, and of an administrator.
    tenant: Option<Arc<str>>,
    /// Requests that are not completely answered.
    open: usize,
    /// The end of the last request, or the start of the connection.
    idle_since: Instant,
    /// When the first byte of an incomplete head was received.
    head_since: Option<Instant>,
    /// Whether it was removed from the list.
    removed: bool,
    closing: Option<CloseMode>,
    /// Answers that are buffered and not sent, by the window in which they were buffered: the current one and the one
    /// before. An answer that outlives both is not read.
    buffered: [usize; 2],
    buffer_window: BufferWindow,
    buffer_window_start: Instant,
    /// Requests that the client reset since `window`.
    resets: usize,
    reset_window_start: Instant,
}

/// A period of [`Limits::unread_timeout`], by its number. Answers are counted per window because a connection has up to
/// a hundred at a time, and each is nearly always sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferWindow(u64);

impl BufferWindow {
    /// The index of its count.
    fn index(self) -> usize {
        usize::from(!self.0.is_multiple_of(2))
    }

    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The class of a client, from the credentials it has shown so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClientClass {
    New,
    Anonymous,
    Authenticated,
    Administrator,
}

/// How the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseMode {
    /// Immediately.
    Immediate,
    /// After the current answers are sent, or after this time.
    Drain(Duration),
}

/// The connection limit is reached for clients that are not administrators.
#[derive(Debug)]
pub(crate) struct ConnectionLimitReached;

impl Connections {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            list: Mutex::default(),
        })
    }

    /// Adds a connection. Too many new ones displace each other.
    pub(super) fn open(self: &Arc<Self>) -> ConnectionGuard {
        let mut list = self.list.lock();
        let limits = &self.limits;
        let most = limits.connections.saturating_add(limits.reserved_connections);
        while list.by_id.len() >= most && list.close_oldest_new() {}
        let id = list.next;
        list.next += 1;
        let now = Instant::now();
        let connection = Arc::new(Connection {
            id,
            connections: self.clone(),
            state: Mutex::new(State {
                class: ClientClass::New,
                tenant: None,
                open: 0,
                idle_since: now,
                head_since: None,
                removed: false,
                closing: None,
                buffered: [0; 2],
                buffer_window: BufferWindow(0),
                buffer_window_start: now,
                resets: 0,
                reset_window_start: now,
            }),
            changed: Notify::new(),
        });
        list.by_id.insert(id, connection.clone());
        list.new.insert(id);
        ConnectionGuard(connection)
    }

    /// Closes a connection, to free a file descriptor.
    pub(super) fn close_one(&self) {
        let mut list = self.list.lock();
        let _ = list.close_oldest_new() || list.close_idle() || list.close_of_largest_tenant(0);
    }
}

impl ConnectionList {
    /// Closes the oldest new connection, busy or not. Returns whether there was one.
    fn close_oldest_new(&mut self) -> bool {
        let oldest = self.new.first().and_then(|id| self.by_id.get(id)).cloned();
        oldest.is_some_and(|connection| self.close(&connection))
    }

    /// Closes an idle connection: an anonymous one rather than an authenticated one, then one of the tenant that has most,
    /// then the one that is idle longest. Returns whether there was one.
    fn close_idle(&mut self) -> bool {
        let idle = self.by_id.values().filter_map(|connection| {
            let state = connection.state.lock();
            let tenant = state.tenant.as_ref().filter(|_| state.open == 0)?;
            let is_known = state.class == ClientClass::Authenticated;
            Some((
                (is_known, Reverse(self.tenants[tenant]), state.idle_since),
                connection,
            ))
        });
        let found = idle.min_by_key(|(rank, _)| *rank);
        let found = found.map(|(_, connection)| connection.clone());
        found.is_some_and(|connection| self.close(&connection))
    }

    /// Closes the oldest connection of the tenant that has most, if that is more than `least`. Returns whether one was closed.
    fn close_of_largest_tenant(&mut self, least: usize) -> bool {
        let Some((largest, count)) = self.tenants.iter().max_by_key(|(_, count)| **count) else {
            return false;
        };
        if *count <= least {
            return false;
        }
        let own = self
            .by_id
            .values()
            .filter(|connection| connection.state.lock().tenant.as_ref() == Some(largest));
        let oldest = own.min_by_key(|connection| connection.id).cloned();
        oldest.is_some_and(|connection| self.close(&connection))
    }

    fn close(&mut self, connection: &Connection) -> bool {
        let mut state = connection.state.lock();
        self.remove(connection.id, &mut state);
        state.closing = Some(CloseMode::Immediate);
        drop(state);
        connection.changed.notify_one();
        true
    }

    fn remove(&mut self, id: u64, state: &mut State) {
        if std::mem::replace(&mut state.removed, true) {
            return;
        }
        self.by_id.remove(&id);
        self.new.remove(&id);
        self.count(state, None);
    }

    /// Counts a connection as a tenant's, or as that of none.
    fn count(&mut self, state: &mut State, tenant: Option<&str>) {
        let tenant = tenant.map(|name| match self.tenants.get_key_value(name) {
            Some((known, _)) => known.clone(),
            None => name.into(),
        });
        self.ordinary += usize::from(tenant.is_some());
        if let Some(tenant) = &tenant {
            *self.tenants.entry(tenant.clone()).or_default() += 1;
        }
        let Some(before) = std::mem::replace(&mut state.tenant, tenant) else {
            return;
        };
        self.ordinary -= 1;
        if let Some(count) = self.tenants.get_mut(&before) {
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&before);
            }
        }
    }
}

impl Connection {
    /// Sets the class of the connection from the user of its request. Fails if the limit is reached.
    pub(crate) fn admit(&self, user: &User) -> Result<(), ConnectionLimitReached> {
        let class = match user {
            user if user.is_master() => ClientClass::Administrator,
            user if user.is_anonymous() => ClientClass::Anonymous,
            _ => ClientClass::Authenticated,
        };
        // Nearly all requests do not change the class.
        if self.state.lock().class >= class {
            return Ok(());
        }
        let mut list = self.connections.list.lock();
        let is_new = self.state.lock().class == ClientClass::New;
        let tenant = (class != ClientClass::Administrator).then(|| user.tenant());
        if let Some(tenant) = tenant.filter(|_| is_new)
            && list.ordinary >= self.connections.limits.connections
            && !list.close_idle()
        {
            let own = list.tenants.get(tenant).copied().unwrap_or_default();
            // Otherwise two tenants would displace each other in turn.
            if !list.close_of_largest_tenant(own + 1) {
                drop(list);
                self.close(CloseMode::Drain(self.connections.limits.unread_timeout));
                return Err(ConnectionLimitReached);
            }
        }
        let mut state = self.state.lock();
        if !state.removed {
            list.new.remove(&self.id);
            list.count(&mut state, tenant);
        }
        state.class = class;
        Ok(())
    }

    /// Records the start of a request.
    pub(super) fn request_started(&self) {
        let mut state = self.state.lock();
        state.open += 1;
        state.head_since = None;
    }

    /// Records that an answer is buffered and not sent yet.
    pub(super) fn answer_buffered(&self) -> BufferWindow {
        let mut state = self.state.lock();
        let window = state.buffer_window;
        state.buffered[window.index()] += 1;
        window
    }

    /// Records the end of a request, whether the client reset it, and when its answer was buffered.
    pub(super) fn request_finished(&self, is_reset: bool, buffered: Option<BufferWindow>) {
        let now = Instant::now();
        let limits = &self.connections.limits;
        let mut state = self.state.lock();
        if let Some(window) = buffered {
            state.buffered[window.index()] -= 1;
        }
        state.open -= 1;
        state.idle_since = now;
        if !is_reset {
            return;
        }
        if now.duration_since(state.reset_window_start) >= limits.ping_interval {
            (state.reset_window_start, state.resets) = (now, 0);
        }
        state.resets += 1;
        if state.resets > limits.resets {
            state.closing = Some(CloseMode::Immediate);
            self.changed.notify_one();
        }
    }

    /// Records that bytes were received; they belong to a head if no request is open.
    pub(super) fn bytes_received(&self) {
        let mut state = self.state.lock();
        if state.open == 0 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
        }
    }

    fn close(&self, closing: CloseMode) {
        self.state.lock().closing.get_or_insert(closing);
        self.changed.notify_one();
    }

    /// Waits until the connection has to be closed, to free a slot or because of a timeout.
    pub(super) async fn must_close(&self) -> CloseMode {
        loop {
            let wake = match self.close_mode_or_wakeup() {
                Ok(closing) => return closing,
                Err(wake) => wake,
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// How it has to be closed now, or when to check again.
    fn close_mode_or_wakeup(&self) -> Result<CloseMode, Instant> {
        let limits = &self.connections.limits;
        let (mut state, now) = (self.state.lock(), Instant::now());
        if let Some(closing) = state.closing {
            return Ok(closing);
        }
        if now >= state.buffer_window_start + limits.unread_timeout {
            let next = state.buffer_window.next();
            // Those of the window before the current one.
            if state.buffered[next.index()] > 0 {
                return Ok(CloseMode::Immediate);
            }
            (state.buffer_window, state.buffer_window_start) = (next, now);
        }
        let soon = now
            + limits
                .header_timeout
                .min(limits.idle_timeout)
                .min(limits.unread_timeout);
        if state.open > 0 {
            return Err(soon);
        }
        let (deadline, closing) = match (state.head_since, state.class) {
            (Some(since), _) => (since + limits.header_timeout, CloseMode::Immediate),
            (None, ClientClass::New) => (state.idle_since + limits.header_timeout, CloseMode::Immediate),
            (None, _) => (
                state.idle_since + limits.idle_timeout,
                CloseMode::Drain(limits.unread_timeout),
            ),
        };
        if now >= deadline {
            return Ok(closing);
        }
        Err(deadline.min(soon))
    }

    /// Waits until it has to be closed immediately, while it is drained.
    pub(super) async fn must_close_immediately(&self) {
        while self.state.lock().closing != Some(CloseMode::Immediate) {
            self.changed.notified().await;
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let Self(connection) = self;
        let mut list = connection.connections.list.lock();
        list.remove(connection.id, &mut connection.state.lock());
    }
}
