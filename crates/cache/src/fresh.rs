//! Objects that arrived lately: their JSON stays plain for a while, and is packed apart from the watch.
//!
//! ```text
//!   ingest ──► Fresh: entries, oldest first ──► pack ──► Entry
//!   driver ◄── room: waits while too much is plain     (one thread of the blocking pool, asked by `keep_packed`)
//! ```
//!
//! An object that changes again before its turn comes is never packed. So what changes often costs no packing, and what
//! does not change is small after a second. Training a dictionary takes some 30 ms and is part of packing: no watch
//! waits for it.

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
    packing::{LARGEST_SAMPLE, Packer},
};

/// What stays plain when it is quiet. A kind that has no more than this is never packed.
const QUIET_BYTES: usize = 256 << 10;

/// What stays plain while things change.
const FRESH_BYTES: usize = 8 << 20;

/// With so much it is packed down to [`FRESH_BYTES`]; the distance makes it worth a call.
const FLOOD_BYTES: usize = 12 << 20;

/// With more than this, drivers wait until it is less: as much arrives as can be packed.
const MOST_BYTES: usize = 32 << 20;

/// Who cannot wait packs by itself what would be more than this.
const LIMIT_BYTES: usize = 48 << 20;

/// An object that has not changed for so long, or up to twice as long, is packed.
const SETTLED: Duration = Duration::from_secs(1);

/// So many are taken from the queue at once.
const AT_ONCE: usize = 16;

/// The entries of one store that are not packed. The bytes that it counts never exceed 48 MiB by more than one
/// object.
pub(crate) struct Fresh {
    queue: Mutex<Queue>,
    packer: Mutex<Packer>,
    dictionaries: AtomicU32,
    /// More has come than one of the limits.
    grown: Notify,
    /// It has become less.
    packed: Notify,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Queue {
    /// Oldest first. An entry that is gone weighs until its turn comes.
    entries: VecDeque<(Weak<Entry>, usize)>,
    bytes: usize,
    /// How many were ever taken out.
    taken: u64,
}

/// What is to be packed: the oldest, while there are more bytes than this, up to the entry with this number.
#[derive(Clone, Copy)]
struct Work {
    down_to: usize,
    before: u64,
}

impl Fresh {
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

    /// Takes an entry that has just been made.
    pub(crate) fn admit(&self, entry: &Arc<Entry>) {
        let weight = entry.bytes();
        let bytes = {
            let mut queue = self.queue.lock();
            queue.entries.push_back((Arc::downgrade(entry), weight));
            queue.bytes += weight;
            queue.bytes
        };
        let crossed = |limit: usize| bytes > limit && bytes - weight <= limit;
        if crossed(QUIET_BYTES) || crossed(FLOOD_BYTES) {
            self.grown.notify_waiters();
        }
        if bytes > LIMIT_BYTES {
            self.pack_some(Work {
                down_to: LIMIT_BYTES,
                before: u64::MAX,
            });
        }
    }

    /// Waits while so much is plain that nothing should be added. Cancellation-safe.
    pub(crate) async fn room(&self) {
        loop {
            // Registered before looking, or a change in between would not wake us.
            let packed = self.packed.notified();
            if self.bytes() <= MOST_BYTES || self.is_stopped() {
                return;
            }
            packed.await;
        }
    }

    /// Nothing is packed from now on, except what would be too much.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.grown.notify_waiters();
        self.packed.notify_waiters();
    }

    /// How many dictionaries were trained.
    pub(crate) fn dictionaries(&self) -> u32 {
        self.dictionaries.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> usize {
        self.queue.lock().bytes
    }

    /// The number of the next entry.
    fn next(&self) -> u64 {
        let queue = self.queue.lock();
        queue.taken + queue.entries.len() as u64
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    async fn more_than(&self, bytes: usize) {
        loop {
            let grown = self.grown.notified();
            if self.bytes() > bytes || self.is_stopped() {
                return;
            }
            grown.await;
        }
    }

    /// Packs some of the oldest, and says whether there is more to do.
    fn pack_some(&self, work: Work) -> bool {
        let mut packer = self.packer.lock();
        if packer.wants_samples() {
            let samples = self.samples();
            packer.train(samples.iter().map(|text| text.as_slice()));
            self.dictionaries.store(packer.trained(), Ordering::Relaxed);
        }
        let oldest = self.oldest(work);
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

    fn oldest(&self, Work { down_to, before }: Work) -> Vec<Weak<Entry>> {
        let mut queue = self.queue.lock();
        let mut oldest = Vec::with_capacity(AT_ONCE);
        while oldest.len() < AT_ONCE
            && queue.bytes > down_to
            && queue.taken < before
            && let Some((entry, weight)) = queue.entries.pop_front()
        {
            queue.bytes -= weight;
            queue.taken += 1;
            oldest.push(entry);
        }
        oldest
    }

    /// Texts from all over the queue: neighbours are often copies of each other, and say little of the rest.
    fn samples(&self) -> Vec<Arc<Vec<u8>>> {
        let queue = self.queue.lock();
        let step = (queue.bytes / LARGEST_SAMPLE).max(1);
        let entries = queue.entries.iter().step_by(step);
        entries
            .filter_map(|(entry, _)| entry.upgrade()?.plain())
            .collect()
    }
}

/// Packs what is fresh until it is told to stop, which it heeds after a few objects, or after the dictionary that it
/// is making.
pub(crate) async fn keep_packed(fresh: Arc<Fresh>) {
    loop {
        fresh.more_than(QUIET_BYTES).await;
        let settled = fresh.next();
        let work = match timeout(SETTLED, fresh.more_than(FLOOD_BYTES)).await {
            Ok(()) => Work {
                down_to: FRESH_BYTES,
                before: u64::MAX,
            },
            Err(_) => Work {
                down_to: QUIET_BYTES,
                before: settled,
            },
        };
        let packing = Arc::clone(&fresh);
        let done =
            tokio::task::spawn_blocking(move || while !packing.is_stopped() && packing.pack_some(work) {});
        // Only a runtime that ends gives up on it.
        if done.await.is_err() || fresh.is_stopped() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{entry::Body, meta::Interner, scan::Scanned};

    const SIZE: usize = 16 << 10;

    /// An entry that differs from all others.
    fn entry(number: usize) -> Arc<Entry> {
        let meta = Interner::default().meta(&Scanned::default());
        let line = format!("\"a line that all have, and the number {number}\",");
        let text = line.repeat(SIZE / line.len());
        Arc::new(Entry::new(meta, Body::Plain(Arc::new(text.into_bytes())), None))
    }

    fn plain(entries: &[Arc<Entry>]) -> usize {
        entries.iter().filter(|entry| entry.plain().is_some()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_change_is_packed_after_a_second() {
        let fresh = Arc::new(Fresh::new());
        let task = tokio::spawn(keep_packed(Arc::clone(&fresh)));
        let early: Vec<_> = (0..160).map(entry).collect();
        for entry in &early {
            fresh.admit(entry);
        }
        tokio::time::sleep(SETTLED / 2).await;
        assert_eq!(plain(&early), 160);
        let late: Vec<_> = (160..200).map(entry).collect();
        for entry in &late {
            fresh.admit(entry);
        }
        tokio::time::sleep(SETTLED).await;
        assert_eq!((plain(&early), plain(&late)), (0, 40));
        tokio::time::sleep(SETTLED * 2).await;
        assert!(
            fresh.bytes() <= QUIET_BYTES && plain(&late) > 0,
            "{}",
            plain(&late)
        );
        assert_eq!(fresh.dictionaries(), 1);
        let text = entry(7).text();
        assert_eq!(early[7].text(), text);

        fresh.stop();
        task.await.expect("it ends when it is told to");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_replaced_is_not_packed() {
        let fresh = Arc::new(Fresh::new());
        tokio::spawn(keep_packed(Arc::clone(&fresh)));
        let mut last = entry(0);
        for number in 1..3000 {
            fresh.admit(&last);
            last = entry(number);
            fresh.room().await;
        }
        fresh.admit(&last);
        assert!(last.plain().is_some());
        assert!(fresh.bytes() <= MOST_BYTES + SIZE, "{}", fresh.bytes());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_held_up_and_nobody_exceeds_the_limit() {
        let fresh = Arc::new(Fresh::new());
        let all: Vec<_> = (0..4000).map(entry).collect();
        for entry in &all {
            fresh.admit(entry);
            assert!(fresh.bytes() <= LIMIT_BYTES, "{}", fresh.bytes());
        }
        let bytes: usize = all
            .iter()
            .filter_map(|entry| entry.plain())
            .map(|text| text.len())
            .sum();
        assert!(bytes <= LIMIT_BYTES, "{bytes}");
        assert!(timeout(SETTLED, fresh.room()).await.is_err(), "nobody packs");
        let task = tokio::spawn(keep_packed(Arc::clone(&fresh)));
        timeout(SETTLED, fresh.room()).await.expect("somebody packs");
        fresh.stop();
        task.await.expect("it ends when it is told to");
    }
}
