//! Threads for large work, so that it does not delay other requests.
//!
//! ```text
//!   small ─────────────────────────────► the caller's thread
//!   large ─► administrators ──────────┐
//!        └─► tenants, by their work ──┴► one of `cores - 1` threads, and one more for administrators
//! ```
//!
//! This is self-clocked fair queueing: a thread is given to the work that would end first if all tenants were served at once,
//! at the same speed. So tenants with much work and tenants with little get the same share, however many requests each of
//! them sends, and no waiter starves.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::oneshot,
};

use crate::auth::User;

/// The size of work that is large and otherwise unknown.
const UNKNOWN_SIZE: usize = 1024 * 1024;

/// The smallest number of tenants from which those without any work are removed.
const MIN_SWEEP: usize = 64;

/// Does large work where it does not delay other requests.
#[derive(Clone)]
pub(crate) struct LargeWork {
    /// Work on more bytes is large.
    most: usize,
    /// Limits the threads that do large work. `None` in the process and on a current-thread runtime: the caller's thread
    /// does it.
    threads: Option<Arc<Threads>>,
    /// Whose work it is.
    user: Arc<User>,
}

impl LargeWork {
    /// In the process, the caller's thread does all work.
    pub(crate) fn in_process(most: usize) -> Self {
        Self {
            most,
            threads: None,
            user: Arc::new(User::anonymous()),
        }
    }

    /// For a server on a socket.
    pub(crate) fn on_socket(most: usize) -> Self {
        if Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread {
            return Self::in_process(most);
        }
        // Large work is CPU-bound: more threads than cores would not finish sooner. One core stays free for small work.
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() - 1);
        Self {
            threads: Some(Threads::new(threads.max(1))),
            ..Self::in_process(most)
        }
    }

    /// For the work of a user.
    pub(crate) fn of(&self, user: &Arc<User>) -> Self {
        Self {
            user: user.clone(),
            ..self.clone()
        }
    }

    /// Whose work it is.
    pub(crate) fn user(&self) -> &Arc<User> {
        &self.user
    }

    pub(crate) fn is_large(&self, size: usize) -> bool {
        size > self.most
    }

    /// Whether work of this size runs on a thread that serves requests, while larger work would not.
    pub(crate) fn delays_others(&self, size: usize) -> bool {
        self.threads.is_some() && !self.is_large(size)
    }

    /// The size up to which work is small.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Does work on `size` bytes: on this thread if small, otherwise on a thread that handles no other request.
    pub(crate) async fn run<T>(&self, size: usize, work: impl FnOnce() -> T) -> T {
        self.run_as(&self.user, size, work).await
    }

    /// Like [`run`](Self::run), for this user.
    pub(crate) async fn run_as<T>(&self, user: &User, size: usize, work: impl FnOnce() -> T) -> T {
        match &self.threads {
            Some(threads) if self.is_large(size) => {
                let size = if size == usize::MAX { UNKNOWN_SIZE } else { size };
                let _thread = threads.acquire(user, size).await;
                tokio::task::block_in_place(work)
            }
            _ => work(),
        }
    }

    /// Does a part of large work. Where there is no thread for it, other tasks run before.
    pub(crate) async fn run_part<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.threads.is_none() {
            tokio::task::yield_now().await;
        }
        self.run(usize::MAX, work).await
    }
}

/// The threads for large work, and who waits for one.
struct Threads(Mutex<Waiting>);

struct Waiting {
    free: usize,
    /// Whether the thread that only administrators get is free.
    reserved_is_free: bool,
    administrators: VecDeque<oneshot::Sender<Thread>>,
    tenants: HashMap<Box<str>, Tenant>,
    /// When the work that began last ends, if all tenants were served at once. Time is counted in bytes of work.
    now: u64,
    sweep_at: usize,
}

#[derive(Default)]
struct Tenant {
    /// The end of its last work that began.
    end: u64,
    waiting: VecDeque<Request>,
}

/// Work that waits.
struct Request {
    size: usize,
    since: u64,
    turn: oneshot::Sender<Thread>,
}

impl Tenant {
    /// When work would end.
    fn end_of(&self, since: u64, size: usize) -> u64 {
        self.end.max(since).saturating_add(size as u64)
    }
}

/// A thread to work on. Given to the next who waits when dropped.
struct Thread {
    /// `None` if it was not handed over.
    threads: Option<Arc<Threads>>,
    is_reserved: bool,
}

impl Threads {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Waiting {
            free: count,
            reserved_is_free: true,
            administrators: VecDeque::new(),
            tenants: HashMap::new(),
            now: 0,
            sweep_at: MIN_SWEEP,
        })))
    }

    /// Waits for a thread to do work of this size.
    async fn acquire(self: &Arc<Self>, user: &User, size: usize) -> Thread {
        let turn = {
            let mut waiting = self.0.lock();
            let is_master = user.is_master();
            let is_reserved = is_master && waiting.free == 0 && waiting.reserved_is_free;
            if waiting.free > 0 || is_reserved {
                if is_reserved {
                    waiting.reserved_is_free = false;
                } else {
                    waiting.free -= 1;
                }
                if !is_master {
                    let now = waiting.now;
                    waiting.begin(user.tenant(), now, size);
                }
                return self.thread(is_reserved);
            }
            let (sender, turn) = oneshot::channel();
            if is_master {
                waiting.administrators.push_back(sender);
            } else {
                let since = waiting.now;
                let turn = sender;
                let request = Request { size, since, turn };
                waiting.tenant(user.tenant()).waiting.push_back(request);
            }
            turn
        };
        turn.await
            .expect("senders are dropped only when their receiver is")
    }

    fn thread(self: &Arc<Self>, is_reserved: bool) -> Thread {
        Thread {
            threads: Some(self.clone()),
            is_reserved,
        }
    }

    /// Gives a thread to the next who waits.
    fn hand_over(self: &Arc<Self>, is_reserved: bool) {
        loop {
            // A thread is dropped only after the lock is released, since that locks it again.
            let Some(next) = self.0.lock().next(is_reserved) else {
                return;
            };
            match next.send(self.thread(is_reserved)) {
                Ok(()) => return,
                Err(mut refused) => refused.threads = None,
            }
        }
    }
}

impl Waiting {
    fn tenant(&mut self, name: &str) -> &mut Tenant {
        if !self.tenants.contains_key(name) {
            if self.tenants.len() >= self.sweep_at {
                let now = self.now;
                self.tenants
                    .retain(|_, tenant| tenant.end > now || !tenant.waiting.is_empty());
                self.sweep_at = (self.tenants.len() * 2).max(MIN_SWEEP);
            }
            self.tenants.insert(name.into(), Tenant::default());
        }
        self.tenants.get_mut(name).expect("inserted above")
    }

    /// Begins work of a tenant that waited since then.
    fn begin(&mut self, tenant: &str, since: u64, size: usize) {
        let tenant = self.tenant(tenant);
        tenant.end = tenant.end_of(since, size);
        self.now = tenant.end.max(since);
    }

    /// The next who waits for a thread; if there is none, it is free.
    fn next(&mut self, is_reserved: bool) -> Option<oneshot::Sender<Thread>> {
        while let Some(next) = self.administrators.pop_front() {
            if !next.is_closed() {
                return Some(next);
            }
        }
        if is_reserved {
            self.reserved_is_free = true;
            return None;
        }
        // Those that were cancelled take no turn.
        let waiting = self.tenants.iter_mut().filter_map(|(name, tenant)| {
            while tenant.waiting.front().is_some_and(|first| first.turn.is_closed()) {
                tenant.waiting.pop_front();
            }
            let first = tenant.waiting.front()?;
            Some((tenant.end_of(first.since, first.size), name))
        });
        let next = waiting.min().map(|(_, name)| name.clone());
        let first = next.and_then(|name| {
            let first = self.tenants.get_mut(&name)?.waiting.pop_front()?;
            Some((name, first))
        });
        let Some((name, Request { size, since, turn })) = first else {
            // Nothing waits, so no tenant has to make up for past work.
            self.tenants.clear();
            self.free += 1;
            return None;
        };
        self.begin(&name, since, size);
        Some(turn)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.hand_over(self.is_reserved);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, future::BoxFuture};

    use super::*;

    fn user(name: &str) -> User {
        User::new(name, [] as [&str; 0])
    }

    /// Takes a thread that is free.
    fn take(threads: &Arc<Threads>, user: &User, size: usize) -> Thread {
        threads
            .acquire(user, size)
            .now_or_never()
            .expect("a thread is free")
    }

    /// Work that waits for a thread, by whose it is.
    struct Queue {
        threads: Arc<Threads>,
        waiting: Vec<(String, BoxFuture<'static, Thread>)>,
    }

    impl Queue {
        fn new(count: usize) -> Self {
            Self {
                threads: Threads::new(count),
                waiting: Vec::new(),
            }
        }

        fn add(&mut self, user: &User, size: usize, count: usize) {
            for _ in 0..count {
                let (threads, owner) = (self.threads.clone(), user.clone());
                let mut waiting = async move { threads.acquire(&owner, size).await }.boxed();
                assert!((&mut waiting).now_or_never().is_none(), "no thread is free");
                self.waiting.push((user.name.clone(), waiting));
            }
        }

        /// Whose work gets the thread that is given back.
        fn next(&mut self, thread: Thread) -> Option<(String, Thread)> {
            drop(thread);
            for index in 0..self.waiting.len() {
                if let Some(thread) = (&mut self.waiting[index].1).now_or_never() {
                    return Some((self.waiting.remove(index).0, thread));
                }
            }
            None
        }

        /// Whose work is done, in order, until none waits.
        fn order(&mut self, first: Thread) -> Vec<String> {
            let (mut order, mut thread) = (Vec::new(), first);
            while let Some((name, next)) = self.next(thread) {
                order.push(name);
                thread = next;
            }
            order
        }
    }

    #[test]
    fn work_of_one_user_waits_for_one_piece_of_another_users_work_at_most() {
        let mut queue = Queue::new(1);
        let first = take(&queue.threads, &user("mallory"), 1_000);
        queue.add(&user("mallory"), 1_000, 150);
        queue.add(&user("alice"), 1_000, 1);
        queue.add(&user("bob"), 1_000, 2);
        let order = queue.order(first);
        let place = |name: &str| order.iter().position(|other| other == name);
        assert_eq!(order.len(), 153);
        assert!(
            place("alice") < Some(3) && place("bob") < Some(3),
            "{:?}",
            &order[..5]
        );
        assert_eq!(queue.threads.0.lock().free, 1);
    }

    #[test]
    fn tenants_share_threads_by_the_size_of_their_work() {
        let mut queue = Queue::new(1);
        let first = take(&queue.threads, &user("mallory"), 3_000);
        queue.add(&user("mallory"), 3_000, 20);
        queue.add(&user("alice"), 300, 100);
        let order = queue.order(first);
        let small = order[..55].iter().filter(|name| *name == "alice").count();
        assert!((48..=52).contains(&small), "{small} of 55");
    }

    #[test]
    fn administrators_have_a_thread_of_their_own_and_come_first() {
        let mut queue = Queue::new(1);
        let first = take(&queue.threads, &user("mallory"), 1_000);
        queue.add(&user("mallory"), 1_000, 10);
        let administrator = User::administrator();
        let own = take(&queue.threads, &administrator, 1_000);
        queue.add(&administrator, 1_000, 2);
        let (next, first) = queue.next(first).expect("one waits");
        assert_eq!(next, "admin");
        let (next, own) = queue.next(own).expect("one waits");
        assert_eq!(next, "admin");
        assert!(queue.next(own).is_none(), "others do not get it");
        assert_eq!(queue.order(first).len(), 10);
        let waiting = queue.threads.0.lock();
        assert!(waiting.free == 1 && waiting.reserved_is_free);
    }

    #[test]
    fn cancelled_work_gives_its_turn_to_the_next() {
        let mut queue = Queue::new(1);
        let first = take(&queue.threads, &user("mallory"), 1_000);
        for name in ["alice", "mallory", "bob"] {
            queue.add(&user(name), 1_000, 3);
        }
        queue.waiting.retain(|(name, _)| name == "bob");
        drop(first);
        // Dropped after it got its turn, before it noticed.
        let (threads, owner) = (queue.threads.clone(), user("carol"));
        let mut carol = async move { threads.acquire(&owner, 1).await }.boxed();
        assert!((&mut carol).now_or_never().is_none());
        queue.waiting.truncate(0);
        assert!((&mut carol).now_or_never().is_some());
        assert_eq!(queue.threads.0.lock().free, 1);
    }

    #[test]
    fn tenants_without_work_are_forgotten() {
        let threads = Threads::new(1);
        for number in 0..10_000 {
            drop(take(&threads, &user(&number.to_string()), 1));
        }
        let count = threads.0.lock().tenants.len();
        assert_eq!(count, 0);
        // Also while others wait all the time.
        let mut queue = Queue::new(1);
        let mut thread = take(&queue.threads, &user("first"), 1);
        queue.add(&user("next"), 1, 1);
        for number in 0..1_000 {
            queue.add(&user(&number.to_string()), 1, 1);
            thread = queue.next(thread).expect("one waits").1;
        }
        let count = queue.threads.0.lock().tenants.len();
        assert!(count <= MIN_SWEEP, "{count}");
    }
}
