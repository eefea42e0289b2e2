//! Checks the events of watchers against the acknowledged writes.
//!
//! ```text
//!   writers ── acknowledged (revision, key, event) ──► Log ──┐
//!                                                            ├──► audit: lost, reordered or wrong events
//!   watchers ── observed (revision, key, event) ──► View ────┘
//! ```
//!
//! An acknowledgement can arrive after its event, but only within the request timeout. So an audit checks only events
//! that were observed before the previous audit, and audits are further apart than a request may take. Audited events
//! are dropped, so memory is bounded. No I/O, no clock.

use std::collections::{BTreeMap, VecDeque};

/// Type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Added,
    Modified,
    Deleted,
}

impl Event {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ADDED" => Self::Added,
            "MODIFIED" => Self::Modified,
            "DELETED" => Self::Deleted,
            _ => return None,
        })
    }
}

/// Acknowledged writes of a namespace, by revision. The response to a delete has no revision, so deletes are checked by
/// the set of existing objects: see [`View::observe`] and [`View::compare`].
#[derive(Debug, Default)]
pub(crate) struct Log {
    acknowledged: BTreeMap<u64, (String, Event)>,
    /// Number of writes with an unknown outcome: each may cause an event or not.
    unknown: u64,
}

impl Log {
    pub(crate) fn acknowledge(&mut self, revision: u64, key: &str, event: Event) {
        self.acknowledged.insert(revision, (key.to_owned(), event));
    }

    pub(crate) fn unknown(&mut self) {
        self.unknown += 1;
    }

    /// Drops writes for which every watcher has been audited.
    pub(crate) fn forget_up_to(&mut self, revision: u64) {
        self.acknowledged = self.acknowledged.split_off(&(revision + 1));
    }
}

/// One watcher's view of a namespace.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// Existing objects with their revisions.
    objects: BTreeMap<String, u64>,
    /// Events that are not audited yet, oldest first.
    observed: VecDeque<(u64, String, Event)>,
    /// The latest revision.
    last: u64,
    /// Where the previous audit ended, and where the next one ends.
    audited: u64,
    next_audit: u64,
    unexplained: u64,
    pub(crate) events: u64,
    pub(crate) relists: u64,
}

impl View {
    /// Restarts from a list: earlier events are no longer expected.
    pub(crate) fn list(&mut self, revision: u64, objects: BTreeMap<String, u64>) {
        self.objects = objects;
        self.observed.clear();
        self.last = revision;
        self.audited = revision;
        self.next_audit = revision;
        self.relists += 1;
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn audited(&self) -> u64 {
        self.audited
    }

    /// Applies an event; the error describes what is wrong with it.
    pub(crate) fn observe(&mut self, revision: u64, key: &str, event: Event) -> Result<(), String> {
        if revision <= self.last {
            return Err(format!(
                "{event:?} {key} at {revision} arrived after {}",
                self.last
            ));
        }
        let known = self.objects.contains_key(key);
        if known == (event == Event::Added) {
            let state = if known { "exists already" } else { "does not exist" };
            return Err(format!("{event:?} {key} at {revision}, which {state}"));
        }
        match event {
            Event::Deleted => {
                self.objects.remove(key);
            }
            Event::Added | Event::Modified => {
                self.objects.insert(key.to_owned(), revision);
            }
        }
        self.last = revision;
        self.events += 1;
        self.observed.push_back((revision, key.to_owned(), event));
        Ok(())
    }

    /// Applies a bookmark: there are no events up to this revision.
    pub(crate) fn bookmark(&mut self, revision: u64) {
        self.last = self.last.max(revision);
    }

    /// Compares the events observed before the last audit with the acknowledged writes.
    pub(crate) fn audit(&mut self, log: &Log) -> Vec<String> {
        let until = std::mem::replace(&mut self.next_audit, self.last);
        self.compare_up_to(until, log)
    }

    /// Compares all events, once no request is in flight.
    pub(crate) fn audit_all(&mut self, log: &Log) -> Vec<String> {
        self.compare_up_to(self.last, log)
    }

    fn compare_up_to(&mut self, until: u64, log: &Log) -> Vec<String> {
        let mut violations = Vec::new();
        let mut expected = if until > self.audited {
            log.acknowledged.range(self.audited + 1..=until).peekable()
        } else {
            log.acknowledged.range(..0).peekable()
        };
        while let Some((revision, _, _)) = self.observed.front().filter(|(revision, ..)| *revision <= until) {
            while let Some((lost, (key, event))) = expected.next_if(|(expected, _)| *expected < revision) {
                violations.push(format!("lost: {event:?} {key} at {lost}"));
            }
            let acknowledged = expected.next_if(|(expected, _)| *expected == revision);
            let Some((revision, key, event)) = self.observed.pop_front() else {
                break;
            };
            match acknowledged {
                Some((_, (known, kind))) if *known == key && *kind == event => {}
                Some((_, (known, kind))) => {
                    violations.push(format!(
                        "{kind:?} {known} at {revision} was observed as {event:?} {key}"
                    ));
                }
                None if event == Event::Deleted => {}
                None => self.unexplained += 1,
            }
        }
        for (lost, (key, event)) in expected {
            violations.push(format!("lost: {event:?} {key} at {lost}"));
        }
        if self.unexplained > log.unknown {
            violations.push(format!(
                "{} events without a write, and only {} writes with an unknown outcome",
                self.unexplained, log.unknown
            ));
            self.unexplained = 0;
        }
        self.audited = self.audited.max(until);
        violations
    }

    /// Compares the objects with a list.
    pub(crate) fn compare(&self, listed: &BTreeMap<String, u64>) -> Vec<String> {
        let mut violations = Vec::new();
        for (key, revision) in listed {
            if self.objects.get(key) != Some(revision) {
                violations.push(format!(
                    "{key} is at {revision}, but the watcher has {:?}",
                    self.objects.get(key)
                ));
            }
        }
        let gone = self.objects.keys().filter(|key| !listed.contains_key(*key));
        violations.extend(gone.map(|key| format!("{key} is deleted, but the watcher has it")));
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(writes: &[(u64, &str, Event)]) -> Log {
        let mut log = Log::default();
        for (revision, key, event) in writes {
            log.acknowledge(*revision, key, *event);
        }
        log
    }

    fn view(events: &[(u64, &str, Event)]) -> View {
        let mut view = View::default();
        view.list(1, BTreeMap::new());
        for (revision, key, event) in events {
            view.observe(*revision, key, *event).expect("in order");
        }
        view
    }

    const HISTORY: [(u64, &str, Event); 3] = [
        (2, "a", Event::Added),
        (4, "a", Event::Modified),
        (7, "b", Event::Added),
    ];

    #[test]
    fn events_in_order_pass_the_audit() {
        let mut view = view(&HISTORY);
        view.observe(9, "a", Event::Deleted).expect("the object exists");
        assert_eq!(view.audit_all(&log(&HISTORY)), Vec::<String>::new());
        assert_eq!(
            view.compare(&BTreeMap::from([("b".to_owned(), 7)])),
            Vec::<String>::new()
        );
    }

    #[test]
    fn audit_finds_a_lost_event() {
        let mut observed = view(&[HISTORY[0], HISTORY[2]]);
        assert_eq!(observed.audit_all(&log(&HISTORY)), ["lost: Modified a at 4"]);
        let mut observed = view(&HISTORY[..2]);
        observed.bookmark(8);
        assert_eq!(observed.audit_all(&log(&HISTORY)), ["lost: Added b at 7"]);
    }

    #[test]
    fn observe_rejects_events_out_of_order_or_of_the_wrong_type() {
        let mut observed = view(&HISTORY);
        assert!(
            observed.observe(6, "c", Event::Added).is_err(),
            "a lower revision"
        );
        assert!(
            observed.observe(8, "a", Event::Added).is_err(),
            "the object exists"
        );
        assert!(
            observed.observe(8, "c", Event::Modified).is_err(),
            "the object does not exist"
        );
        assert!(
            observed.observe(8, "c", Event::Deleted).is_err(),
            "the object does not exist"
        );
    }

    #[test]
    fn audit_finds_an_event_that_differs_from_its_write() {
        let mut observed = view(&HISTORY);
        let log = log(&[HISTORY[0], (4, "other", Event::Modified), HISTORY[2]]);
        assert_eq!(observed.audit_all(&log).len(), 1);
    }

    #[test]
    fn event_without_a_write_needs_one_with_an_unknown_outcome() {
        let mut log = log(&[HISTORY[0], HISTORY[2]]);
        assert_eq!(view(&HISTORY).audit_all(&log).len(), 1);
        log.unknown();
        assert_eq!(view(&HISTORY).audit_all(&log), Vec::<String>::new());
    }

    #[test]
    fn acknowledgement_may_be_one_audit_late() {
        let mut observed = view(&HISTORY);
        let early = log(&[]);
        assert_eq!(observed.audit(&early), Vec::<String>::new(), "nothing is due yet");
        assert_eq!(observed.audit(&log(&HISTORY)), Vec::<String>::new());
        assert_eq!(observed.audited(), 7);
    }

    #[test]
    fn list_replaces_lost_events() {
        let mut observed = view(&HISTORY[..1]);
        observed.list(7, BTreeMap::from([("a".to_owned(), 4), ("b".to_owned(), 7)]));
        assert_eq!(observed.audit_all(&log(&HISTORY)), Vec::<String>::new());
        assert_eq!(
            observed.compare(&BTreeMap::from([("a".to_owned(), 4)])),
            ["b is deleted, but the watcher has it"]
        );
    }
}
