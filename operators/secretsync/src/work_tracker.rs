//! Tracks queue items: which are pending, their results, and since when there was no progress.
//!
//! ```text
//!   mark_pending ──► begin ──► finish ──► NamespaceResult ──► status, metrics
//!            └── the health check looks at the time without progress
//! ```
//!
//! The engine owns it behind one lock, held for one entry at a time.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use crate::{api::SyncFailure, copy_outcome::REMOVAL_NOT_CONFIRMED, identity::SyncId};

/// Maximum number of failures per namespace that are kept in detail. Of the others, a hash is kept.
const MAX_FAILURES: usize = 10;

/// How often a failure that lasts is reported: the server deletes events after an hour.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_mins(30);

/// Maximum length of a message, in bytes: a webhook's message may be arbitrarily long, a status may not.
const MAX_MESSAGE_LEN: usize = 512;

/// The result of one sync in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamespaceResult {
    pub(crate) targets: u32,
    pub(crate) synced: u32,
    pub(crate) excluded: u32,
    pub(crate) failed: u32,
    pub(crate) conflicts: u32,
    /// How many of the failed ones are removals that wait for a confirmation.
    pub(crate) unconfirmed: u32,
    /// All failures of a run, and then the first of them; their namespace is that of the result.
    pub(crate) failures: Vec<CopyFailure>,
}

/// A failure or conflict of one copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CopyFailure {
    pub(crate) name: Arc<str>,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) is_conflict: bool,
}

impl CopyFailure {
    /// Creates a failure.
    pub(crate) fn new(name: &Arc<str>, reason: &str, mut message: String) -> Self {
        if message.len() > MAX_MESSAGE_LEN {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_LEN));
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

impl NamespaceResult {
    pub(crate) fn add_failure(&mut self, failure: CopyFailure) {
        let count = if failure.is_conflict {
            &mut self.conflicts
        } else {
            &mut self.failed
        };
        *count += 1;
        self.unconfirmed += u32::from(failure.reason == REMOVAL_NOT_CONFIRMED);
        self.failures.push(failure);
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
    /// Number of pending items.
    pub(crate) pending: u64,
    /// How many of them wait for a retry, because the server could not be reached.
    disconnected: u64,
}

/// The state of all queue items.
pub(crate) struct WorkTracker {
    syncs: HashMap<SyncId, SyncProgress>,
    totals: Totals,
    /// For the hashes of failures. Random, since messages of servers and names of tenants are hashed.
    hash: RandomState,
    /// The last time that an item was finished, or became pending while none was.
    last_progress: Instant,
}

#[derive(Default)]
struct SyncProgress {
    namespaces: HashMap<Arc<str>, NamespaceProgress>,
    /// Number of pending namespaces.
    pending: usize,
    /// All of its items were processed once.
    is_complete: bool,
    /// When the change that is being copied was made.
    changed_at: Option<Instant>,
    /// When the failures in each namespace that has any were last reported.
    reported: HashMap<Arc<str>, Instant>,
}

#[derive(Default)]
struct NamespaceProgress {
    /// Incremented whenever the item is enqueued.
    requested: u32,
    /// The value of `requested` when the item was last finished.
    finished: u32,
    result: NamespaceResult,
    /// The hashes of all its failures, sorted.
    failures: Box<[u64]>,
    /// It waits for a retry, because the server could not be reached.
    is_disconnected: bool,
}

impl NamespaceProgress {
    fn is_pending(&self) -> bool {
        self.requested != self.finished
    }
}

/// The effects of a finished item.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    /// Nothing of this sync is pending any more.
    pub(crate) is_idle: bool,
    pub(crate) new_failures: Vec<CopyFailure>,
    /// Failures that were reported before, and are due to be reported again.
    pub(crate) lasting_failures: Vec<CopyFailure>,
    /// How long it took until the change was in all namespaces.
    pub(crate) propagation: Option<Duration>,
}

/// The sums of one sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) result: NamespaceResult,
    pub(crate) failures: Vec<SyncFailure>,
    /// A change is being copied.
    pub(crate) has_pending_change: bool,
    /// All items were processed once.
    pub(crate) is_complete: bool,
    /// Nothing is pending.
    pub(crate) is_idle: bool,
}

impl WorkTracker {
    pub(crate) fn new() -> Self {
        Self {
            syncs: HashMap::new(),
            totals: Totals::default(),
            hash: RandomState::new(),
            last_progress: Instant::now(),
        }
    }

    /// Marks an item as pending. `is_change`: because of a change whose duration is measured.
    pub(crate) fn mark_pending(&mut self, sync: &SyncId, namespace: &Arc<str>, is_change: bool) {
        let progress = match self.syncs.get_mut(sync) {
            Some(progress) => progress,
            None => self.syncs.entry(sync.clone()).or_default(),
        };
        if is_change {
            progress.changed_at.get_or_insert_with(Instant::now);
        }
        let entry = progress.namespaces.entry(Arc::clone(namespace)).or_default();
        if !entry.is_pending() {
            progress.pending += 1;
            if self.totals.pending == 0 {
                self.last_progress = Instant::now();
            }
            self.totals.pending += 1;
        }
        entry.requested = entry.requested.wrapping_add(1);
        if !entry.is_pending() {
            // The counter has wrapped around while the item was pending.
            entry.requested = entry.requested.wrapping_add(1);
        }
    }

    /// Begins to process an item; if it is enqueued again later, it stays pending.
    pub(crate) fn begin(&mut self, sync: &SyncId, namespace: &str) -> u32 {
        let Some(entry) = entry_mut(&mut self.syncs, sync, namespace) else {
            return 0;
        };
        if std::mem::take(&mut entry.is_disconnected) {
            self.totals.disconnected -= 1;
            self.last_progress = Instant::now();
        }
        entry.requested
    }

    /// Records that an item could not be processed because the server could not be reached. Its result stays, and it stays
    /// pending; it is no stall while it waits for its retry.
    pub(crate) fn disconnect(&mut self, sync: &SyncId, namespace: &str) {
        self.last_progress = Instant::now();
        if let Some(entry) = entry_mut(&mut self.syncs, sync, namespace)
            && entry.is_pending()
            && !std::mem::replace(&mut entry.is_disconnected, true)
        {
            self.totals.disconnected += 1;
        }
    }

    /// Records the result of an item that was begun with this number. `None`: unchanged.
    pub(crate) fn finish(
        &mut self,
        sync: &SyncId,
        namespace: &Arc<str>,
        began: u32,
        found: Option<NamespaceResult>,
    ) -> Completion {
        self.last_progress = Instant::now();
        let Some(progress) = self.syncs.get_mut(sync) else {
            return Completion::default();
        };
        let Some(entry) = progress.namespaces.get_mut(namespace) else {
            return Completion::default();
        };
        let mut settled = Completion::default();
        if entry.is_pending() && entry.requested == began {
            entry.finished = began;
            progress.pending -= 1;
            self.totals.pending -= 1;
        }
        if let Some(mut result) = found {
            let hash = |failure: &CopyFailure| self.hash.hash_one(failure);
            let mut hashes: Box<[_]> = result.failures.iter().map(hash).collect();
            hashes.sort_unstable();
            let known = std::mem::replace(&mut entry.failures, hashes);
            let is_new = |failure: &CopyFailure| known.binary_search(&hash(failure)).is_err();
            let (new, lasting): (Vec<_>, Vec<_>) = result.failures.iter().cloned().partition(is_new);
            let reported = progress.reported.get(namespace);
            if result.failures.is_empty() {
                progress.reported.remove(namespace);
            } else if reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
                progress.reported.insert(Arc::clone(namespace), Instant::now());
                settled.lasting_failures = lasting;
            }
            settled.new_failures = new;
            result.failures.truncate(MAX_FAILURES);
            result.failures.shrink_to_fit();
            self.totals.subtract(&entry.result);
            self.totals.add(&result);
            entry.result = result;
        }
        if !entry.is_pending() && entry.result.is_empty() {
            progress.namespaces.remove(namespace);
        }
        if progress.pending == 0 {
            settled.is_idle = true;
            settled.propagation = progress.changed_at.take().map(|since| since.elapsed());
        }
        settled
    }

    /// Marks a sync as complete if nothing of it is pending: from now on its status is meaningful.
    pub(crate) fn mark_complete(&mut self, sync: &SyncId) {
        let progress = self.syncs.entry(sync.clone()).or_default();
        progress.is_complete |= progress.pending == 0;
    }

    /// Returns whether all items of a sync were processed once.
    pub(crate) fn is_complete(&self, sync: &SyncId) -> bool {
        self.syncs.get(sync).is_some_and(|progress| progress.is_complete)
    }

    /// Forgets a deleted sync that has nothing left.
    pub(crate) fn forget(&mut self, sync: &SyncId) {
        let Some(progress) = self.syncs.get(sync) else {
            return;
        };
        if progress.namespaces.is_empty() {
            self.syncs.remove(sync);
        }
    }

    /// Returns the sums of one sync; failures are sorted by namespace.
    pub(crate) fn summary(&self, sync: &SyncId, most: usize) -> Summary {
        let Some(progress) = self.syncs.get(sync) else {
            return Summary::default();
        };
        let mut sum = NamespaceResult::default();
        let mut by_namespace = BTreeMap::new();
        for (namespace, NamespaceProgress { result, .. }) in &progress.namespaces {
            sum.targets += result.targets;
            sum.synced += result.synced;
            sum.excluded = sum.excluded.max(result.excluded);
            sum.failed += result.failed;
            sum.conflicts += result.conflicts;
            sum.unconfirmed += result.unconfirmed;
            if !result.failures.is_empty() {
                by_namespace.insert(namespace, &result.failures);
            }
        }
        let failures = by_namespace.iter().flat_map(|(namespace, failures)| {
            failures.iter().map(|failure| SyncFailure {
                namespace: namespace.to_string(),
                name: failure.name.to_string(),
                reason: failure.reason.clone(),
                message: failure.message.clone(),
            })
        });
        Summary {
            result: sum,
            failures: failures.take(most).collect(),
            has_pending_change: progress.changed_at.is_some(),
            is_complete: progress.is_complete,
            is_idle: progress.pending == 0,
        }
    }

    /// Returns whether the last result for this name was a conflict.
    pub(crate) fn is_in_conflict(&self, sync: &SyncId, namespace: &str, name: &str) -> bool {
        let entry = self
            .syncs
            .get(sync)
            .and_then(|progress| progress.namespaces.get(namespace));
        entry.is_some_and(|entry| {
            // If there are more than are kept in detail, this may be one of them.
            let NamespaceResult {
                conflicts, failures, ..
            } = &entry.result;
            let known = failures
                .iter()
                .any(|failure| failure.is_conflict && &*failure.name == name);
            known || *conflicts as usize >= MAX_FAILURES
        })
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns how long items have been pending without progress.
    pub(crate) fn stalled_for(&self) -> Duration {
        if self.totals.pending == self.totals.disconnected {
            Duration::ZERO
        } else {
            self.last_progress.elapsed()
        }
    }

    /// Restarts the measurement when work may begin: earlier waiting does not count as a stall.
    pub(crate) fn start(&mut self) {
        self.last_progress = Instant::now();
    }
}

fn entry_mut<'a>(
    syncs: &'a mut HashMap<SyncId, SyncProgress>,
    sync: &SyncId,
    namespace: &str,
) -> Option<&'a mut NamespaceProgress> {
    syncs.get_mut(sync)?.namespaces.get_mut(namespace)
}

impl Totals {
    fn add(&mut self, result: &NamespaceResult) {
        self.synced += u64::from(result.synced);
        self.failed += u64::from(result.failed);
        self.conflicts += u64::from(result.conflicts);
    }

    fn subtract(&mut self, result: &NamespaceResult) {
        self.synced -= u64::from(result.synced);
        self.failed -= u64::from(result.failed);
        self.conflicts -= u64::from(result.conflicts);
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

    fn good() -> NamespaceResult {
        NamespaceResult {
            targets: 1,
            synced: 1,
            ..NamespaceResult::default()
        }
    }

    fn bad() -> NamespaceResult {
        let mut result = NamespaceResult {
            targets: 1,
            ..NamespaceResult::default()
        };
        result.add_failure(CopyFailure {
            name: "a".into(),
            reason: "Forbidden".to_owned(),
            message: "quota".to_owned(),
            is_conflict: false,
        });
        result
    }

    #[tokio::test(start_paused = true)]
    async fn item_enqueued_during_processing_stays_pending() {
        let (mut tracker, ns) = (WorkTracker::new(), Arc::from("n"));
        tracker.mark_pending(&sync(), &ns, true);
        let began = tracker.begin(&sync(), &ns);
        tracker.mark_pending(&sync(), &ns, false);
        let first = tracker.finish(&sync(), &ns, began, Some(good()));
        assert!(!first.is_idle && first.propagation.is_none());
        tokio::time::advance(Duration::from_secs(3)).await;
        let began = tracker.begin(&sync(), &ns);
        let second = tracker.finish(&sync(), &ns, began, Some(good()));
        assert_eq!(
            (second.is_idle, second.propagation),
            (true, Some(Duration::from_secs(3)))
        );
        assert_eq!(tracker.totals().pending, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn failure_is_new_once_and_counted_while_it_lasts() {
        let (mut tracker, ns) = (WorkTracker::new(), Arc::from("n"));
        for expected in [1, 0] {
            tracker.mark_pending(&sync(), &ns, false);
            let began = tracker.begin(&sync(), &ns);
            assert_eq!(
                tracker
                    .finish(&sync(), &ns, began, Some(bad()))
                    .new_failures
                    .len(),
                expected
            );
            assert_eq!(tracker.totals().failed, 1);
        }
        tracker.mark_pending(&sync(), &ns, false);
        let began = tracker.begin(&sync(), &ns);
        tracker.finish(&sync(), &ns, began, Some(NamespaceResult::default()));
        assert_eq!(tracker.totals(), Totals::default());
        tracker.forget(&sync());
        assert!(tracker.syncs.is_empty(), "nothing is kept of a deleted sync");
    }

    /// A status shows ten of them; the log and the counts have all.
    #[tokio::test(start_paused = true)]
    async fn every_failure_is_reported_once_however_many_there_are() {
        let (mut tracker, ns) = (WorkTracker::new(), Arc::from("n"));
        let mut run = |names: std::ops::Range<usize>| {
            let mut result = NamespaceResult::default();
            for number in names {
                let name = Arc::from(format!("name-{number}"));
                result.add_failure(CopyFailure::new(&name, "Forbidden", "quota".to_owned()));
            }
            tracker.mark_pending(&sync(), &ns, false);
            let began = tracker.begin(&sync(), &ns);
            let settled = tracker.finish(&sync(), &ns, began, Some(result));
            let kept = tracker.summary(&sync(), usize::MAX).failures.len();
            (settled.new_failures.len(), tracker.totals().failed, kept)
        };
        assert_eq!(run(0..12), (12, 12, 10));
        assert_eq!(run(0..12), (0, 12, 10));
        assert_eq!(run(1..14), (2, 13, 10));
        assert_eq!(run(0..1), (1, 1, 1), "it was gone meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn lasting_failure_is_reported_again_every_half_hour() {
        let (mut tracker, ns) = (WorkTracker::new(), Arc::from("n"));
        let mut reports = (0, 0);
        for _ in 0..90 {
            tracker.mark_pending(&sync(), &ns, false);
            let began = tracker.begin(&sync(), &ns);
            let settled = tracker.finish(&sync(), &ns, began, Some(bad()));
            reports.0 += settled.new_failures.len();
            reports.1 += settled.lasting_failures.len();
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        assert_eq!(reports, (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn outage_keeps_the_result_and_is_no_stall() {
        let (mut tracker, ns) = (WorkTracker::new(), Arc::from("n"));
        tracker.mark_pending(&sync(), &ns, false);
        let began = tracker.begin(&sync(), &ns);
        tracker.finish(&sync(), &ns, began, Some(good()));
        tracker.mark_pending(&sync(), &ns, true);
        for _ in 0..3 {
            tracker.begin(&sync(), &ns);
            tracker.disconnect(&sync(), &ns);
            tokio::time::advance(Duration::from_mins(6)).await;
            assert_eq!(tracker.stalled_for(), Duration::ZERO);
        }
        let summary = tracker.summary(&sync(), 10);
        assert!(summary.result.synced == 1 && summary.has_pending_change && !summary.is_idle);
        // A request that hangs is a stall.
        let began = tracker.begin(&sync(), &ns);
        tokio::time::advance(Duration::from_mins(6)).await;
        assert_eq!(tracker.stalled_for(), Duration::from_mins(6));
        assert!(tracker.finish(&sync(), &ns, began, Some(good())).is_idle);
        assert_eq!(tracker.totals().pending, 0);
    }

    #[test]
    fn long_messages_are_truncated() {
        let failure = CopyFailure::new(&"a".into(), "Forbidden", "ä".repeat(10_000));
        assert!(failure.message.len() <= MAX_MESSAGE_LEN + '…'.len_utf8() && failure.message.ends_with("ä…"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_pending_items_without_progress_are_a_stall() {
        let (mut tracker, one, two) = (WorkTracker::new(), Arc::from("1"), Arc::from("2"));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(tracker.stalled_for(), Duration::ZERO);
        tracker.mark_pending(&sync(), &one, false);
        tracker.mark_pending(&sync(), &two, false);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(tracker.stalled_for(), Duration::from_mins(1));
        let began = tracker.begin(&sync(), &one);
        tracker.finish(&sync(), &one, began, Some(bad()));
        assert_eq!(tracker.stalled_for(), Duration::ZERO);
    }
}
