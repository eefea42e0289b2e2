//! How many bytes the server holds for webhooks at a time: reviews that wait, responses, and what is made of them.
//!
//! ```text
//!   WebhookBudget ── Pool, divided between users ─► Share of a request ─► its reviews and responses
//!        │                                                           └─► a Permit in each converted entry
//!        └── recent: the entries that were converted last, an eighth of the budget at most
//! ```

use std::{collections::VecDeque, fmt, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;

use super::connection::MAX_RESPONSE_BYTES;
use crate::{
    auth::User,
    permits::{Permit, Pool},
    storage::Entry,
};

/// How many bytes of converted entries are kept beside those that are in use.
const MAX_RECENT_BYTES: usize = 32 * 1024 * 1024;

/// What an entry takes beside its object.
const ENTRY_BYTES: usize = 256;

/// Counts what is held for the webhooks of all requests, which [`Limits`](crate::Limits) limits. Users share it;
/// administrators have no limit.
#[derive(Clone)]
pub(crate) struct WebhookBudget(Arc<Budget>);

struct Budget {
    pool: Pool,
    limit: usize,
    recent: Mutex<Recent>,
}

/// The entries that were converted last, so that they stay in the caches of their CRDs for a while.
#[derive(Default)]
struct Recent {
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
}

/// What a user's request holds of the budget, which is free again when this is dropped.
pub(crate) struct Share {
    budget: WebhookBudget,
    user: Arc<User>,
    bytes: usize,
    permit: Option<Permit>,
    is_exhausted: bool,
}

/// The body of a response, and its share of the budget.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    pub(crate) bytes: Bytes,
    share: Share,
}

impl WebhookBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Budget {
            // Every user may have one response of any size.
            pool: Pool::with_minimum(limit, MAX_RESPONSE_BYTES),
            limit,
            recent: Mutex::default(),
        }))
    }

    /// A share of a user, without bytes.
    pub(crate) fn share(&self, user: &Arc<User>) -> Share {
        Share {
            budget: self.clone(),
            user: user.clone(),
            bytes: 0,
            permit: None,
            is_exhausted: false,
        }
    }

    /// Keeps an entry until enough others were converted after it.
    pub(crate) fn keep(&self, entry: &Arc<Entry>) {
        let limit = MAX_RECENT_BYTES.min(self.0.limit / 8);
        let mut recent = self.0.recent.lock();
        recent.bytes += size_of(entry);
        recent.entries.push_back(entry.clone());
        while recent.bytes > limit
            && let Some(oldest) = recent.entries.pop_front()
        {
            recent.bytes -= size_of(&oldest);
        }
    }
}

/// What an entry takes.
pub(crate) fn size_of(entry: &Entry) -> usize {
    entry.object.json().len() + ENTRY_BYTES
}

impl Share {
    /// Adds bytes. Returns whether there were enough left for the user.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let fits = self.user.is_master() || self.bytes <= self.budget.0.limit;
        let pool = &self.budget.0.pool;
        self.is_exhausted |= !fits || pool.extend(&mut self.permit, &self.user, bytes).is_err();
        !self.is_exhausted
    }

    /// Whether there were not enough bytes left.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Another share of the same user, without bytes.
    pub(crate) fn another(&self) -> Self {
        self.budget.share(&self.user)
    }

    pub(crate) fn budget(&self) -> &WebhookBudget {
        &self.budget
    }

    pub(super) fn hold(self, bytes: Bytes) -> ResponseBody {
        ResponseBody { bytes, share: self }
    }

    /// The permit for the bytes of the share, without the budget. An administrator has none.
    pub(crate) fn into_permit(self) -> Option<Permit> {
        self.permit
    }
}

impl ResponseBody {
    pub(super) fn share(&self) -> &Share {
        &self.share
    }
}

impl fmt::Debug for WebhookBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WebhookBudget").field(&self.0.limit).finish()
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        object::Object,
        storage::{Key, Revision},
    };

    fn user(name: &str) -> Arc<User> {
        Arc::new(User::new(name, [] as [&str; 0]))
    }

    #[test]
    fn budget_is_shared_and_freed() {
        let budget = WebhookBudget::new(10);
        let user = user("a");
        let (mut one, mut other) = (budget.share(&user), budget.share(&user));
        assert!(one.grow(10));
        assert!(!other.grow(1) && other.is_exhausted());
        drop(one.hold(Bytes::new()));
        let mut third = budget.share(&user);
        assert!(third.grow(9));
        assert!(!third.grow(2) && third.is_exhausted());
        assert!(!budget.share(&user).grow(11), "more than there is at all");
    }

    #[test]
    fn greedy_user_leaves_room_for_others_and_administrators_have_no_limit() {
        let budget = WebhookBudget::new(256 * 1024 * 1024);
        let greedy = user("greedy");
        let mut held = Vec::new();
        loop {
            let mut share = budget.share(&greedy);
            if !share.grow(1024 * 1024) {
                break;
            }
            held.push(share);
        }
        assert_eq!(held.len(), 192);
        assert!(budget.share(&user("other")).grow(MAX_RESPONSE_BYTES));
        let administrator = Arc::new(User::administrator());
        assert!(budget.share(&administrator).grow(usize::MAX / 2));
    }

    #[test]
    fn few_bytes_of_converted_entries_are_kept() {
        let budget = WebhookBudget::new(80 * 1024);
        let entries: Vec<_> = (1..100)
            .map(|revision| {
                let object = json!({"metadata": {"name": "a"}, "data": "x".repeat(1024)});
                let revision = Revision(revision);
                let object = Object::new(object).unwrap().encode(revision, &[]);
                let key = Key::new("default", "a");
                Arc::new(Entry {
                    key,
                    revision,
                    object,
                })
            })
            .collect();
        for entry in &entries {
            budget.keep(entry);
        }
        let kept = entries.iter().filter(|entry| Arc::strong_count(entry) > 1);
        let bytes: usize = kept.map(|entry| size_of(entry)).sum();
        assert!((8 * 1024..=10 * 1024).contains(&bytes), "{bytes}");
        assert_eq!(Arc::strong_count(&entries[98]), 2, "the last");
    }
}
