//! Permits for requests and watches, of which no user can take all that others need.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{auth::User, status::Status};

/// A smaller pool is first come, first served: a part of it would be less than one permit.
const MIN_SHARED: usize = 4;

/// Permits that users share.
///
/// While less than half of them are used, anyone may take one. Of the other half, a user may take one only if at least as
/// many remain free as that user has of it already. So `n` users who take all they can leave one of `n + 1` parts of that
/// half to others. Nothing is counted per user in the first half, since most servers are never so busy.
pub(crate) struct Pool {
    permits: Arc<Semaphore>,
    size: usize,
    /// Permits of the second half by user; no entry is 0.
    shares: Arc<Mutex<HashMap<Box<str>, usize>>>,
}

impl Pool {
    pub(crate) fn new(size: usize) -> Self {
        let permits = Arc::new(Semaphore::new(size.min(Semaphore::MAX_PERMITS)));
        Self {
            size: permits.available_permits(),
            permits,
            shares: Arc::default(),
        }
    }

    /// Acquires a permit. Administrators need none.
    pub(crate) fn acquire(&self, user: &User) -> Result<Option<Permit>, Status> {
        if user.is_master() {
            return Ok(None);
        }
        let permit = self.permits.clone().try_acquire_owned();
        let permit = permit.map_err(|_| Status::busy())?;
        // Including this one.
        let free = self.permits.available_permits() + 1;
        let share = if free > self.size / 2 || self.size < MIN_SHARED {
            None
        } else {
            Some(self.take_share(user.tenant(), free).ok_or_else(Status::busy)?)
        };
        Ok(Some(Permit {
            _permit: permit,
            _share: share,
        }))
    }

    /// Counts a permit as a user's; `None` if this is too much, with this number of permits free.
    fn take_share(&self, tenant: &str, free: usize) -> Option<Share> {
        let mut shares = self.shares.lock();
        match shares.get_mut(tenant) {
            Some(count) if *count >= free => return None,
            Some(count) => *count += 1,
            None => drop(shares.insert(tenant.into(), 1)),
        }
        Some(Share {
            shares: self.shares.clone(),
            tenant: tenant.into(),
        })
    }
}

/// The permit of a request or watch; returned when dropped.
pub(crate) struct Permit {
    _permit: OwnedSemaphorePermit,
    _share: Option<Share>,
}

/// A permit that counts as a user's.
struct Share {
    shares: Arc<Mutex<HashMap<Box<str>, usize>>>,
    tenant: Box<str>,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.shares.lock();
        if let Some(count) = shares.get_mut(&self.tenant) {
            *count -= 1;
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
        for (name, most) in [("a", 75), ("b", 13), ("c", 6)] {
            let taken = take_all(&pool, &user(name));
            assert_eq!(taken.len(), most, "{name}");
            held.push(taken);
        }
        assert!(pool.acquire(&user("a")).is_err());
        assert!(pool.acquire(&user("d")).is_ok());
        assert_eq!(pool.shares.lock().len(), 3);
        drop(held);
        assert_eq!(pool.permits.available_permits(), 100);
        assert!(pool.shares.lock().is_empty());
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
