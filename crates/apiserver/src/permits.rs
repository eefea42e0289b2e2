//! Permits for requests, watches and received bytes, of which no user can take all that others need.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{auth::User, status::Status};

/// The smallest pool that is divided, in units of what every user may have: a part of a smaller one would be less than
/// one. Smaller pools are first come, first served.
const MIN_SHARED: usize = 4;

/// Permits that users share.
///
/// While less than half of them are used, anyone may take some. The other half is divided: what a user has of it, times
/// the number of users who have some, must not be more than what remains free. So `n` users who take all they can, in any
/// order, leave one of `n + 1` parts of that half to others. Below that, a user still gets as much as everyone may have.
/// So it takes 15 users to use up a pool of 100, and 158 for one of 10,000. Nothing is counted per user in the first half,
/// since most servers are never so busy.
pub(crate) struct Pool {
    permits: Arc<Semaphore>,
    size: usize,
    /// What every user may have, however many others there are, as long as it is free.
    everyones: usize,
    shares: Arc<Mutex<Shares>>,
}

/// Permits of the second half by user; no entry is 0.
type Shares = HashMap<Box<str>, usize>;

impl Pool {
    /// A pool of this many permits, of which every user may have one.
    pub(crate) fn new(size: usize) -> Self {
        Self::with_minimum(size, 1)
    }

    /// A pool of which every user may have `everyones`.
    pub(crate) fn with_minimum(size: usize, everyones: usize) -> Self {
        let permits = Arc::new(Semaphore::new(size.min(Semaphore::MAX_PERMITS)));
        Self {
            size: permits.available_permits(),
            permits,
            everyones,
            shares: Arc::default(),
        }
    }

    /// Acquires a permit. Administrators need none.
    pub(crate) fn acquire(&self, user: &User) -> Result<Option<Permit>, Status> {
        self.acquire_many(user, 1)
    }

    /// Acquires several permits as one. More than the pool has count as all of them. Administrators need none.
    pub(crate) fn acquire_many(&self, user: &User, count: usize) -> Result<Option<Permit>, Status> {
        let mut permit = None;
        self.extend(&mut permit, user, count)?;
        Ok(permit)
    }

    /// Adds `count` to the permits that a request has. Without so many, it keeps what it has.
    pub(crate) fn extend(&self, held: &mut Option<Permit>, user: &User, count: usize) -> Result<(), Status> {
        if user.is_master() {
            return Ok(());
        }
        let count = count.min(self.size.max(1));
        let number = u32::try_from(count).unwrap_or(u32::MAX);
        let permits = self.permits.clone().try_acquire_many_owned(number);
        let permits = permits.map_err(|_| Status::busy())?;
        let free = self.permits.available_permits();
        let shared = if self.size / self.everyones < MIN_SHARED {
            0
        } else {
            (self.size / 2).saturating_sub(free).min(count)
        };
        if shared > 0 && !self.take_share(user.tenant(), shared, free) {
            return Err(Status::busy());
        }
        let held = match held {
            Some(held) => {
                held.permits.merge(permits);
                held
            }
            None => held.insert(Permit { permits, share: None }),
        };
        if shared > 0 {
            let share = held.share.get_or_insert_with(|| Share {
                shares: self.shares.clone(),
                tenant: user.tenant().into(),
                count: 0,
            });
            share.count += shared;
        }
        Ok(())
    }

    /// Counts permits of the second half as a user's; false if this is too much, with this number of permits free besides.
    fn take_share(&self, tenant: &str, count: usize, free: usize) -> bool {
        let mut shares = self.shares.lock();
        let own = shares.get(tenant).copied();
        let users = shares.len() + usize::from(own.is_none());
        let total = own.unwrap_or_default() + count;
        if total > self.everyones && total.saturating_mul(users) > free {
            return false;
        }
        match shares.get_mut(tenant) {
            Some(own) => *own = total,
            None => drop(shares.insert(tenant.into(), total)),
        }
        true
    }
}

/// The permits of a request or watch; returned when dropped.
pub(crate) struct Permit {
    permits: OwnedSemaphorePermit,
    share: Option<Share>,
}

/// Permits that count as a user's.
struct Share {
    shares: Arc<Mutex<Shares>>,
    tenant: Box<str>,
    count: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.shares.lock();
        if let Some(count) = shares.get_mut(&self.tenant) {
            *count -= self.count;
            if *count == 0 {
                shares.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> User {
        User::new(name, [] as [&str; 0])
    }

    /// Takes permits until there are no more for this user.
    fn take_all(pool: &Pool, user: &User) -> Vec<Permit> {
        std::iter::from_fn(|| pool.acquire(user).ok().flatten()).collect()
    }

    #[test]
    fn greedy_users_leave_permits_for_others() {
        let pool = Pool::new(100);
        let mut held = Vec::new();
        for (name, most) in [("a", 75), ("b", 8), ("c", 4), ("d", 2)] {
            let taken = take_all(&pool, &user(name));
            assert_eq!(taken.len(), most, "{name}");
            held.push(taken);
        }
        assert!(pool.acquire(&user("a")).is_err());
        assert!(pool.acquire(&user("e")).is_ok());
        assert_eq!(pool.shares.lock().len(), 4);
        drop(held);
        assert_eq!(pool.permits.available_permits(), 100);
        assert!(pool.shares.lock().is_empty());
    }

    #[test]
    fn share_shrinks_with_the_number_of_users() {
        for (size, users_to_fill) in [(100, 15), (400, 30), (10_000, 158)] {
            // One after the other, and in turns.
            let pool = Pool::new(size);
            let in_order: Vec<_> = (0..size)
                .map(|number| take_all(&pool, &user(&number.to_string())))
                .take_while(|taken| !taken.is_empty())
                .collect();
            assert_eq!(in_order.len(), users_to_fill, "{size}");
            drop(in_order);
            let names: Vec<_> = (0..users_to_fill - 1).map(|number| number.to_string()).collect();
            let mut in_turns = Vec::new();
            loop {
                let before = in_turns.len();
                in_turns.extend(
                    names
                        .iter()
                        .filter_map(|name| pool.acquire(&user(name)).ok().flatten()),
                );
                if in_turns.len() == before {
                    break;
                }
            }
            assert!(matches!(pool.acquire(&user("another")), Ok(Some(_))), "{size}");
        }
    }

    #[test]
    fn extended_permit_counts_as_its_users_until_it_is_dropped() {
        let pool = Pool::with_minimum(1_000, 30);
        let (a, b) = (user("a"), user("b"));
        let mut held = None;
        while pool.extend(&mut held, &a, 10).is_ok() {}
        assert_eq!(pool.permits.available_permits(), 250);
        let mut other = None;
        // As much as everyone may have, in any case.
        let _greedy: Vec<_> = (0..20)
            .map(|number| {
                let user = user(&number.to_string());
                std::iter::from_fn(|| pool.acquire_many(&user, 10).ok().flatten()).collect::<Vec<_>>()
            })
            .collect();
        assert!(pool.permits.available_permits() < 30);
        drop(held);
        for _ in 0..3 {
            assert!(pool.extend(&mut other, &b, 10).is_ok());
        }
        assert!(!pool.shares.lock().contains_key("a"));
    }

    #[test]
    fn more_than_the_pool_is_all_of_it() {
        let pool = Pool::new(3);
        let held = pool.acquire_many(&user("a"), 10);
        assert!(matches!(held, Ok(Some(_))));
        assert!(pool.acquire(&user("b")).is_err());
        // Also what is taken at once is divided.
        let pool = Pool::new(100);
        assert!(pool.acquire_many(&user("a"), 80).is_err());
        let _held = pool.acquire_many(&user("a"), 75);
        assert!(pool.acquire(&user("a")).is_err());
        assert!(pool.acquire(&user("b")).is_ok());
    }

    #[test]
    fn service_accounts_of_a_namespace_share_permits() {
        let pool = Pool::new(100);
        let account = |namespace, name| User::service_account(namespace, name);
        let _held = take_all(&pool, &account("a", "one"));
        assert!(pool.acquire(&account("a", "two")).is_err());
        assert!(pool.acquire(&account("b", "one")).is_ok());
    }

    #[test]
    fn small_pool_is_used_up_by_one_user_and_not_by_administrators() {
        for size in 1..MIN_SHARED {
            let pool = Pool::new(size);
            let held = take_all(&pool, &user("a"));
            assert_eq!(held.len(), size);
            assert!(matches!(pool.acquire(&User::administrator()), Ok(None)));
            drop(held);
            assert!(matches!(pool.acquire(&user("a")), Ok(Some(_))));
        }
    }
}
