//! What became of each piece of work: how much is done, what went wrong, and since when something waits.
//!
//! ```text
//!   ask ──► waits ──► begin ──► settle ──► Tally ──► status, metrics
//!            └── the watchdog looks at how long nothing has settled
//! ```
//!
//! The engine owns it behind one lock, held for one entry at a time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use crate::{api::SyncFailure, identity::SyncId};

/// How many of a namespace's troubles are remembered one by one.
const REMEMBERED: usize = 10;

/// How many bytes of a message are kept: a webhook may say as much as it likes, and a status has an end.
const LONGEST: usize = 512;

/// What was found of one sync in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) targets: u32,
    pub(crate) synced: u32,
    pub(crate) excluded: u32,
    pub(crate) failed: u32,
    pub(crate) conflicts: u32,
    /// The first of them; their namespace is the tally's.
    pub(crate) troubles: Vec<Trouble>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) name: Arc<str>,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) is_conflict: bool,
}

impl Trouble {
    /// Something that could not be done.
    pub(crate) fn new(name: &Arc<str>, reason: &str, mut message: String) -> Self {
        if message.len() > LONGEST {
            message.truncate(message.floor_char_boundary(LONGEST));
            message.push('…');
        }
        Self {
            name: Arc::clone(name),
            reason: reason.to_owned(),
            message,
            is_conflict: false,
        }
    }
}

impl Tally {
    pub(crate) fn trouble(&mut self, trouble: Trouble) {
        let count = if trouble.is_conflict {
            &mut self.conflicts
        } else {
            &mut self.failed
        };
        *count += 1;
        if self.troubles.len() < REMEMBERED {
            self.troubles.push(trouble);
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Sums over all syncs and namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) synced: u64,
    pub(crate) failed: u64,
    pub(crate) conflicts: u64,
    /// Pieces of work that nobody has looked at since they were asked for.
    pub(crate) waiting: u64,
}

/// All accounts.
pub(crate) struct Ledger {
    accounts: HashMap<SyncId, Account>,
    totals: Totals,
    /// When something was last asked for with nothing waiting, or settled.
    moved: Instant,
}

#[derive(Default)]
struct Account {
    places: HashMap<Arc<str>, Entry>,
    /// How many of them wait.
    waiting: usize,
    /// Everything that it wants has been looked at once.
    was_through: bool,
    /// When the change came that is being copied.
    changed: Option<Instant>,
}

#[derive(Default)]
struct Entry {
    /// Counts up whenever something is asked for.
    asked: u32,
    /// What `asked` was when that was last dealt with.
    settled: u32,
    tally: Tally,
}

impl Entry {
    fn waits(&self) -> bool {
        self.asked != self.settled
    }
}

/// What a piece of work meant for the rest.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// Nothing of this sync waits any more.
    pub(crate) is_quiet: bool,
    /// What was not wrong before.
    pub(crate) new: Vec<Trouble>,
    /// How long the change took that is in all places now.
    pub(crate) lag: Option<Duration>,
}

/// The sums of one sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) tally: Tally,
    pub(crate) failures: Vec<SyncFailure>,
    /// A change is on its way.
    pub(crate) is_moving: bool,
    /// Everything has been looked at once.
    pub(crate) was_through: bool,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            accounts: HashMap::new(),
            totals: Totals::default(),
            moved: Instant::now(),
        }
    }

    /// Something is to be done. `is_change`: because of a change whose way is measured.
    pub(crate) fn ask(&mut self, sync: &SyncId, namespace: &Arc<str>, is_change: bool) {
        let account = match self.accounts.get_mut(sync) {
            Some(account) => account,
            None => self.accounts.entry(sync.clone()).or_default(),
        };
        if is_change {
            account.changed.get_or_insert_with(Instant::now);
        }
        let entry = account.places.entry(Arc::clone(namespace)).or_default();
        if !entry.waits() {
            account.waiting += 1;
            if self.totals.waiting == 0 {
                self.moved = Instant::now();
            }
            self.totals.waiting += 1;
        }
        entry.asked = entry.asked.wrapping_add(1);
        if !entry.waits() {
            // It has counted through all numbers while it waited.
            entry.asked = entry.asked.wrapping_add(1);
        }
    }

    /// Somebody looks now; what is asked for later needs another look.
    pub(crate) fn begin(&self, sync: &SyncId, namespace: &str) -> u32 {
        let entry = self
            .accounts
            .get(sync)
            .and_then(|account| account.places.get(namespace));
        entry.map_or(0, |entry| entry.asked)
    }

    /// What was found by who began with this number. `None`: as before.
    pub(crate) fn settle(
        &mut self,
        sync: &SyncId,
        namespace: &Arc<str>,
        began: u32,
        found: Option<Tally>,
    ) -> Settled {
        self.moved = Instant::now();
        let Some(account) = self.accounts.get_mut(sync) else {
            return Settled::default();
        };
        let Some(entry) = account.places.get_mut(namespace) else {
            return Settled::default();
        };
        let mut settled = Settled::default();
        if entry.waits() && entry.asked == began {
            entry.settled = began;
            account.waiting -= 1;
            self.totals.waiting -= 1;
        }
        if let Some(tally) = found {
            let is_new = |trouble: &&Trouble| !entry.tally.troubles.contains(trouble);
            settled.new = tally.troubles.iter().filter(is_new).cloned().collect();
            self.totals.take(&entry.tally);
            self.totals.give(&tally);
            entry.tally = tally;
        }
        if !entry.waits() && entry.tally.is_empty() {
            account.places.remove(namespace);
        }
        if account.waiting == 0 {
            settled.is_quiet = true;
            settled.lag = account.changed.take().map(|since| since.elapsed());
        }
        settled
    }

    /// Nothing of this sync waits, and all of it was looked at: from now on there is something to tell.
    pub(crate) fn through(&mut self, sync: &SyncId) {
        let account = self.accounts.entry(sync.clone()).or_default();
        account.was_through |= account.waiting == 0;
    }

    /// A sync that is gone, and has nothing left.
    pub(crate) fn forget(&mut self, sync: &SyncId) {
        let Some(account) = self.accounts.get(sync) else {
            return;
        };
        if account.places.is_empty() {
            self.accounts.remove(sync);
        }
    }

    /// The sums of one sync; failures are in the order of their namespaces.
    pub(crate) fn summary(&self, sync: &SyncId, most: usize) -> Summary {
        let Some(account) = self.accounts.get(sync) else {
            return Summary::default();
        };
        let mut sum = Tally::default();
        let mut troubled = BTreeMap::new();
        for (namespace, Entry { tally, .. }) in &account.places {
            sum.targets += tally.targets;
            sum.synced += tally.synced;
            sum.excluded = sum.excluded.max(tally.excluded);
            sum.failed += tally.failed;
            sum.conflicts += tally.conflicts;
            if !tally.troubles.is_empty() {
                troubled.insert(namespace, &tally.troubles);
            }
        }
        let failures = troubled.iter().flat_map(|(namespace, troubles)| {
            troubles.iter().map(|trouble| SyncFailure {
                namespace: namespace.to_string(),
                name: trouble.name.to_string(),
                reason: trouble.reason.clone(),
                message: trouble.message.clone(),
            })
        });
        Summary {
            tally: sum,
            failures: failures.take(most).collect(),
            is_moving: account.changed.is_some(),
            was_through: account.was_through,
        }
    }

    /// Whether the last look found this name taken.
    pub(crate) fn is_in_conflict(&self, sync: &SyncId, namespace: &str, name: &str) -> bool {
        let entry = self
            .accounts
            .get(sync)
            .and_then(|account| account.places.get(namespace));
        entry.is_some_and(|entry| {
            // Of more than are remembered one by one, each may be.
            let Tally {
                conflicts, troubles, ..
            } = &entry.tally;
            let known = troubles
                .iter()
                .any(|trouble| trouble.is_conflict && &*trouble.name == name);
            known || *conflicts as usize >= REMEMBERED
        })
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// How long something has waited without anything being settled.
    pub(crate) fn stalled_for(&self) -> Duration {
        if self.totals.waiting == 0 {
            Duration::ZERO
        } else {
            self.moved.elapsed()
        }
    }

    /// Work may begin: what was asked for before did not wait for anybody's fault.
    pub(crate) fn start(&mut self) {
        self.moved = Instant::now();
    }
}

impl Totals {
    fn give(&mut self, tally: &Tally) {
        self.synced += u64::from(tally.synced);
        self.failed += u64::from(tally.failed);
        self.conflicts += u64::from(tally.conflicts);
    }

    fn take(&mut self, tally: &Tally) {
        self.synced -= u64::from(tally.synced);
        self.failed -= u64::from(tally.failed);
        self.conflicts -= u64::from(tally.conflicts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::SourceKind;

    fn sync() -> SyncId {
        SyncId::Annotated {
            kind: SourceKind::Secret,
            name: "a".into(),
        }
    }

    fn good() -> Tally {
        Tally {
            targets: 1,
            synced: 1,
            ..Tally::default()
        }
    }

    fn bad() -> Tally {
        let mut tally = Tally {
            targets: 1,
            ..Tally::default()
        };
        tally.trouble(Trouble {
            name: "a".into(),
            reason: "Forbidden".to_owned(),
            message: "quota".to_owned(),
            is_conflict: false,
        });
        tally
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_for_during_the_work_needs_another_look() {
        let (mut ledger, ns) = (Ledger::new(), Arc::from("n"));
        ledger.ask(&sync(), &ns, true);
        let began = ledger.begin(&sync(), &ns);
        ledger.ask(&sync(), &ns, false);
        let first = ledger.settle(&sync(), &ns, began, Some(good()));
        assert!(!first.is_quiet && first.lag.is_none());
        tokio::time::advance(Duration::from_secs(3)).await;
        let began = ledger.begin(&sync(), &ns);
        let second = ledger.settle(&sync(), &ns, began, Some(good()));
        assert_eq!(
            (second.is_quiet, second.lag),
            (true, Some(Duration::from_secs(3)))
        );
        assert_eq!(ledger.totals().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trouble_is_new_once_and_counted_while_it_lasts() {
        let (mut ledger, ns) = (Ledger::new(), Arc::from("n"));
        for expected in [1, 0] {
            ledger.ask(&sync(), &ns, false);
            let began = ledger.begin(&sync(), &ns);
            assert_eq!(
                ledger.settle(&sync(), &ns, began, Some(bad())).new.len(),
                expected
            );
            assert_eq!(ledger.totals().failed, 1);
        }
        ledger.ask(&sync(), &ns, false);
        let began = ledger.begin(&sync(), &ns);
        ledger.settle(&sync(), &ns, began, Some(Tally::default()));
        assert_eq!(ledger.totals(), Totals::default());
        ledger.forget(&sync());
        assert!(
            ledger.accounts.is_empty(),
            "nothing is kept of what is not wanted"
        );
    }

    #[test]
    fn a_message_has_an_end() {
        let trouble = Trouble::new(&"a".into(), "Forbidden", "ä".repeat(10_000));
        assert!(trouble.message.len() <= LONGEST + '…'.len_utf8() && trouble.message.ends_with("ä…"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_waits_without_anything_settling_is_stalled() {
        let (mut ledger, one, two) = (Ledger::new(), Arc::from("1"), Arc::from("2"));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(ledger.stalled_for(), Duration::ZERO);
        ledger.ask(&sync(), &one, false);
        ledger.ask(&sync(), &two, false);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(ledger.stalled_for(), Duration::from_mins(1));
        let began = ledger.begin(&sync(), &one);
        ledger.settle(&sync(), &one, began, Some(bad()));
        assert_eq!(ledger.stalled_for(), Duration::ZERO);
    }
}
