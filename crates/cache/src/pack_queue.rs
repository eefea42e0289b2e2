//! Recently arrived objects: their JSON stays plain for a while and is then packed off the watch's task.
//!
//! ```text
//!   ingest ──► PackQueue: entries, oldest first ──► pack ──► Entry
//!   driver ◄── wait_for_room: backpressure     (one thread of the blocking pool, started by `run_packer`)
//! ```
//!
//! An object that changes again before its turn is never packed. So frequent changes cost no packing, and an unchanged
//! object is small after a second. Training a dictionary takes some 30 ms and is part of packing: no watch waits for
//! it.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::timeout};

use crate::{
    entry::Entry,
    packing::{MAX_TRAINING_BYTES, Packer},
};

/// Bytes that stay plain when nothing changes. A kind with no more than this is never packed.
const IDLE_BYTES: usize = 256 << 10;

/// Bytes that stay plain while objects change.
const ACTIVE_BYTES: usize = 8 << 20;

/// Above this, packing starts and goes down to [`ACTIVE_BYTES`]; the distance makes a batch worthwhile.
const PACK_ABOVE_BYTES: usize = 12 << 20;

/// Above this, drivers wait: no more arrives than can be packed.
const BACKPRESSURE_BYTES: usize = 32 << 20;

/// Above this, callers that cannot wait pack entries themselves.
const MAX_BYTES: usize = 48 << 20;

/// An object is packed when it has not changed for this long, or up to twice as long.
const PACK_AFTER: Duration = Duration::from_secs(1);

/// Number of entries taken from the queue at once.
const BATCH: usize = 16;

/// The entries of one store that are not packed yet. Their bytes never exceed 48 MiB by more than one object.
pub(crate) struct PackQueue {
    queue: Mutex<Entries>,
    packer: Mutex<Packer>,
    dictionaries: AtomicU32,
    /// The queue has grown beyond one of the limits.
    grown: Notify,
    /// The queue has shrunk.
    packed: Notify,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Entries {
    /// Oldest first. A dropped entry counts until its turn comes.
    pending: VecDeque<(Weak<Entry>, usize)>,
    bytes: usize,
    /// How many entries were ever removed.
    removed: u64,
}

/// What to pack: the oldest entries, while there are more than `down_to` bytes, up to the entry number `before`.
#[derive(Clone, Copy)]
struct PackRequest {
    down_to: usize,
    before: u64,
}

impl PackQueue {
    pub(crate) fn new() -> Self {
        Self {
            queue: Mutex::default(),
            packer: Mutex::new(Packer::new()),
            dictionaries: AtomicU32::new(0),
            grown: Notify::new(),
            packed: Notify::new(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Adds a new entry.
    pub(crate) fn push(&self, entry: &Arc<Entry>) {
        let weight = entry.bytes();
        let bytes = {
            let mut queue = self.queue.lock();
            queue.pending.push_back((Arc::downgrade(entry), weight));
            queue.bytes += weight;
            queue.bytes
        };
        let crossed = |limit: usize| bytes > limit && bytes - weight <= limit;
        if crossed(IDLE_BYTES) || crossed(PACK_ABOVE_BYTES) {
            self.grown.notify_waiters();
        }
        if bytes > MAX_BYTES {
            self.pack_batch(PackRequest {
                down_to: MAX_BYTES,
                before: u64::MAX,
            });
        }
    }

    /// Waits while too much is plain to add more. Cancellation-safe.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            // Register before checking; otherwise a change in between would not wake us.
            let packed = self.packed.notified();
            if self.bytes() <= BACKPRESSURE_BYTES || self.is_stopped() {
                return;
            }
            packed.await;
        }
    }

    /// Stops packing, except for entries beyond the limit.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.grown.notify_waiters();
        self.packed.notify_waiters();
    }

    /// Returns how many dictionaries were trained.
    pub(crate) fn dictionaries(&self) -> u32 {
        self.dictionaries.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> usize {
        self.queue.lock().bytes
    }

    /// Returns the number of the next entry.
    fn next_number(&self) -> u64 {
        let queue = self.queue.lock();
        queue.removed + queue.pending.len() as u64
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    async fn wait_until_above(&self, bytes: usize) {
        loop {
            let grown = self.grown.notified();
            if self.bytes() > bytes || self.is_stopped() {
                return;
            }
            grown.await;
        }
    }

    /// Packs a batch of the oldest entries; returns whether there may be more.
    fn pack_batch(&self, work: PackRequest) -> bool {
        let mut packer = self.packer.lock();
        if packer.needs_training() {
            let samples = self.samples();
            packer.train(samples.iter().map(|text| text.as_slice()));
            self.dictionaries.store(packer.trained(), Ordering::Relaxed);
        }
        let oldest = self.pop_oldest(work);
        for entry in &oldest {
            if let Some(entry) = entry.upgrade()
                && let Some(plain) = entry.plain()
            {
                entry.pack(packer.pack(&plain));
            }
        }
        drop(packer);
        self.packed.notify_waiters();
        !oldest.is_empty()
    }

    fn pop_oldest(&self, PackRequest { down_to, before }: PackRequest) -> Vec<Weak<Entry>> {
        let mut queue = self.queue.lock();
        let mut oldest = Vec::with_capacity(BATCH);
        while oldest.len() < BATCH
            && queue.bytes > down_to
            && queue.removed < before
            && let Some((entry, weight)) = queue.pending.pop_front()
        {
            queue.bytes -= weight;
            queue.removed += 1;
            oldest.push(entry);
        }
        oldest
    }

    /// Samples from the whole queue: neighbours are often nearly identical and do not represent the rest.
    fn samples(&self) -> Vec<Arc<Vec<u8>>> {
        let queue = self.queue.lock();
        let step = (queue.bytes / MAX_TRAINING_BYTES).max(1);
        let entries = queue.pending.iter().step_by(step);
        entries
            .filter_map(|(entry, _)| entry.upgrade()?.plain())
            .collect()
    }
}

/// Packs entries until it is stopped, which takes effect after the current batch or dictionary.
pub(crate) async fn run_packer(fresh: Arc<PackQueue>) {
    loop {
        fresh.wait_until_above(IDLE_BYTES).await;
        let settled = fresh.next_number();
        let work = match timeout(PACK_AFTER, fresh.wait_until_above(PACK_ABOVE_BYTES)).await {
            Ok(()) => PackRequest {
                down_to: ACTIVE_BYTES,
                before: u64::MAX,
            },
            Err(_) => PackRequest {
                down_to: IDLE_BYTES,
                before: settled,
            },
        };
        let packing = Arc::clone(&fresh);
        let done =
            tokio::task::spawn_blocking(move || while !packing.is_stopped() && packing.pack_batch(work) {});
        // It fails only when the runtime shuts down.
        if done.await.is_err() || fresh.is_stopped() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{entry::Body, meta::Interner, scan::ScannedObject};

    const SIZE: usize = 16 << 10;

    /// Returns an entry that differs from all others.
    fn entry(number: usize) -> Arc<Entry> {
        let meta = Interner::default().meta(&ScannedObject::default());
        let line = format!("\"a line that all share, and the number {number}\",");
        let text = line.repeat(SIZE / line.len());
        Arc::new(Entry::new(meta, Body::Plain(Arc::new(text.into_bytes())), None))
    }

    fn plain(entries: &[Arc<Entry>]) -> usize {
        entries.iter().filter(|entry| entry.plain().is_some()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn unchanged_objects_are_packed_after_a_second() {
        let fresh = Arc::new(PackQueue::new());
        let task = tokio::spawn(run_packer(Arc::clone(&fresh)));
        let early: Vec<_> = (0..160).map(entry).collect();
        for entry in &early {
            fresh.push(entry);
        }
        tokio::time::sleep(PACK_AFTER / 2).await;
        assert_eq!(plain(&early), 160);
        let late: Vec<_> = (160..200).map(entry).collect();
        for entry in &late {
            fresh.push(entry);
        }
        tokio::time::sleep(PACK_AFTER).await;
        assert_eq!((plain(&early), plain(&late)), (0, 40));
        tokio::time::sleep(PACK_AFTER * 2).await;
        assert!(
            fresh.bytes() <= IDLE_BYTES && plain(&late) > 0,
            "{}",
            plain(&late)
        );
        assert_eq!(fresh.dictionaries(), 1);
        let text = entry(7).text();
        assert_eq!(early[7].text(), text);

        fresh.stop();
        task.await.expect("it ends when it is stopped");
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_objects_are_not_packed() {
        let fresh = Arc::new(PackQueue::new());
        tokio::spawn(run_packer(Arc::clone(&fresh)));
        let mut last = entry(0);
        for number in 1..3000 {
            fresh.push(&last);
            last = entry(number);
            fresh.wait_for_room().await;
        }
        fresh.push(&last);
        assert!(last.plain().is_some());
        assert!(fresh.bytes() <= BACKPRESSURE_BYTES + SIZE, "{}", fresh.bytes());
    }

    #[tokio::test(start_paused = true)]
    async fn plain_bytes_never_exceed_the_limit() {
        let fresh = Arc::new(PackQueue::new());
        let all: Vec<_> = (0..4000).map(entry).collect();
        for entry in &all {
            fresh.push(entry);
            assert!(fresh.bytes() <= MAX_BYTES, "{}", fresh.bytes());
        }
        let bytes: usize = all
            .iter()
            .filter_map(|entry| entry.plain())
            .map(|text| text.len())
            .sum();
        assert!(bytes <= MAX_BYTES, "{bytes}");
        assert!(
            timeout(PACK_AFTER, fresh.wait_for_room()).await.is_err(),
            "nothing is packed"
        );
        let task = tokio::spawn(run_packer(Arc::clone(&fresh)));
        timeout(PACK_AFTER, fresh.wait_for_room())
            .await
            .expect("packing makes room");
        fresh.stop();
        task.await.expect("it ends when it is stopped");
    }
}
