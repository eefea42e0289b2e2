//! A controller's work queue, with the trigger of each queued key.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use windlass_workqueue::{AddOptions, Priority, WorkItem, WorkQueue};

use crate::{
    key::ReconcileKey,
    trigger::{Trigger, TriggerCause},
};

/// The queue that sources add keys to. Clones share it.
///
/// Triggers are beside the queue, not in it: it deduplicates keys, and a key is the same whatever triggered it. Initial
/// objects, which are most of the keys at the start, have no entry: a key without one runs because of the start.
///
/// The lock is held while a key is added, so that at any time each queued key has the triggers of all its adds.
#[derive(Clone)]
pub(crate) struct KeyQueue<Key> {
    pub(crate) queue: WorkQueue<Key>,
    /// The triggers of pending keys, about 120 bytes each.
    triggers: Arc<Mutex<Triggers<Key>>>,
}

type Triggers<Key> = HashMap<Key, Trigger, foldhash::fast::RandomState>;

impl<Key: ReconcileKey> KeyQueue<Key> {
    pub(crate) fn new(queue: WorkQueue<Key>) -> Self {
        Self {
            queue,
            triggers: Arc::default(),
        }
    }

    /// Adds a key; `None`: because of the start.
    pub(crate) fn add(&self, key: Key, priority: Priority, trigger: Option<Trigger>) {
        let add = AddOptions {
            priority,
            ..AddOptions::default()
        };
        let Some(trigger) = trigger else {
            return self.queue.add_with(key, add);
        };
        let mut triggers = self.triggers.lock();
        match triggers.get_mut(&key) {
            Some(pending) => pending.merge_later(trigger),
            None => drop(triggers.insert(key.clone(), trigger)),
        }
        self.queue.add_with(key, add);
    }

    /// Returns why this key runs.
    pub(crate) fn take_trigger(&self, item: &WorkItem<Key>) -> Trigger {
        let mut triggers = self.triggers.lock();
        // A key that was added since the run started runs again for the same trigger.
        let taken = if item.is_queued_again() {
            triggers.get(item.key()).cloned()
        } else {
            triggers.remove(item.key())
        };
        taken.unwrap_or_default()
    }

    /// Sets the trigger of a key that is about to be queued again by its own run, unless something else has queued it.
    pub(crate) fn expect(&self, key: &Key, cause: TriggerCause) {
        let mut triggers = self.triggers.lock();
        if !triggers.contains_key(key) {
            triggers.insert(key.clone(), Trigger::new(cause));
        }
    }

    /// Removes the trigger of a key that was not retried after all.
    pub(crate) fn forget_retry(&self, key: &Key) {
        let mut triggers = self.triggers.lock();
        if let Some(trigger) = triggers.get(key)
            && matches!(trigger.cause(), TriggerCause::Retry { .. })
        {
            triggers.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> KeyQueue<String> {
        KeyQueue::new(WorkQueue::new())
    }

    fn source() -> Trigger {
        Trigger::new(TriggerCause::Source)
    }

    #[test]
    fn triggers_are_kept_until_the_key_runs() {
        let queue = queue();
        queue.add("a".to_owned(), Priority::NORMAL, Some(source()));
        queue.add("a".to_owned(), Priority::NORMAL, Some(source()));
        queue.add("b".to_owned(), Priority::LOW, None);
        let item = queue.queue.try_next().expect("a key");
        assert_eq!(queue.take_trigger(&item).to_string(), "source (queued 2 times)");
        queue.expect(item.key(), TriggerCause::Retry { failures: 1 });
        item.fail();
        let item = queue.queue.try_next().expect("a key");
        assert_eq!(
            (item.key().as_str(), queue.take_trigger(&item)),
            ("b", Trigger::default())
        );
        item.done();
        queue.add("a".to_owned(), Priority::NORMAL, Some(source()));
        let item = queue.queue.try_next().expect("a key");
        assert_eq!(
            queue.take_trigger(&item).to_string(),
            "source (queued 2 times)",
            "its retry is pending"
        );
        item.done();
        assert!(queue.triggers.lock().is_empty());
    }

    /// The change came between the start of the run and the look at its trigger.
    #[test]
    fn key_that_is_queued_again_at_once_keeps_its_trigger() {
        let queue = queue();
        queue.add("a".to_owned(), Priority::LOW, None);
        let item = queue.queue.try_next().expect("a key");
        queue.add("a".to_owned(), Priority::NORMAL, Some(source()));
        assert_eq!(queue.take_trigger(&item).cause(), &TriggerCause::Source);
        item.done();
        let item = queue.queue.try_next().expect("a key");
        assert_eq!(queue.take_trigger(&item).cause(), &TriggerCause::Source);
        item.give_up();
        assert!(queue.triggers.lock().is_empty());
    }

    #[test]
    fn trigger_of_a_dropped_retry_is_forgotten() {
        let queue = queue();
        queue.expect(&"a".to_owned(), TriggerCause::Retry { failures: 1 });
        queue.forget_retry(&"a".to_owned());
        queue.expect(&"b".to_owned(), TriggerCause::Requeue);
        queue.forget_retry(&"b".to_owned());
        assert_eq!(queue.triggers.lock().len(), 1, "a requeue is not a retry");
    }
}
