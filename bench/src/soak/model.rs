//! What watchers must see, given what writers were told.
//!
//! ```text
//!   writers ── acknowledged (revision, key, event) ──► Log ──┐
//!                                                            ├──► audit: lost, reordered or wrong events
//!   watchers ── seen (revision, key, event) ──► View ────────┘
//! ```
//!
//! An acknowledgement can come after the event, never much later: an audit looks only at what was seen before the audit before
//! it, and those are further apart than a request may take. What was audited is forgotten, so that memory is bounded. No I/O, no clock.

use std::collections::{BTreeMap, VecDeque};

/// What happened to an object.
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

/// Writes of a namespace that were acknowledged, by their revision. A deletion's answer does not say its revision, so that deletions are
/// checked by what is there: see [`View::see`] and [`View::compare`].
#[derive(Debug, Default)]
pub(crate) struct Log {
    acknowledged: BTreeMap<u64, (String, Event)>,
    /// Writes with an unknown outcome: each may be seen, and need not be.
    unknown: u64,
}

impl Log {
    pub(crate) fn acknowledge(&mut self, revision: u64, key: &str, event: Event) {
        self.acknowledged.insert(revision, (key.to_owned(), event));
    }

    pub(crate) fn unknown(&mut self) {
        self.unknown += 1;
    }

    /// Forgets what every watcher has been audited for.
    pub(crate) fn forget_up_to(&mut self, revision: u64) {
        self.acknowledged = self.acknowledged.split_off(&(revision + 1));
    }
}

/// What one watcher has seen of a namespace.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// The objects that there are, with their revisions.
    objects: BTreeMap<String, u64>,
    /// Revisions that were seen and not audited yet, oldest first.
    seen: VecDeque<(u64, String, Event)>,
    /// The last revision.
    last: u64,
    /// Where the audit before ended, and where the next one ends.
    audited: u64,
    next_audit: u64,
    unexplained: u64,
    pub(crate) events: u64,
    pub(crate) relists: u64,
}

impl View {
    /// Begins again from a list: what happened before it need not be seen any more.
    pub(crate) fn list(&mut self, revision: u64, objects: BTreeMap<String, u64>) {
        self.objects = objects;
        self.seen.clear();
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

    /// Takes an event; the error says what is wrong with it.
    pub(crate) fn see(&mut self, revision: u64, key: &str, event: Event) -> Result<(), String> {
        if revision <= self.last {
            return Err(format!("{event:?} {key} at {revision} came after {}", self.last));
        }
        let known = self.objects.contains_key(key);
        if known == (event == Event::Added) {
            let state = if known { "is there already" } else { "is not there" };
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
        self.seen.push_back((revision, key.to_owned(), event));
        Ok(())
    }

    /// A bookmark: nothing happened up to there.
    pub(crate) fn bookmark(&mut self, revision: u64) {
        self.last = self.last.max(revision);
    }

    /// Compares what was seen before the last audit with what was acknowledged.
    pub(crate) fn audit(&mut self, log: &Log) -> Vec<String> {
        let until = std::mem::replace(&mut self.next_audit, self.last);
        self.compare_up_to(until, log)
    }

    /// The same for everything that was seen, once nothing is in flight any more.
    pub(crate) fn audit_all(&mut self, log: &Log) -> Vec<String> {
        self.compare_up_to(self.last, log)
    }

    fn compare_up_to(&mut self, until: u64, log: &Log) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut expected = if until > self.audited {
            log.acknowledged.range(self.audited + 1..=until).peekable()
        } else {
            log.acknowledged.range(..0).peekable()
        };
        while let Some((revision, _, _)) = self.seen.front().filter(|(revision, ..)| *revision <= until) {
            while let Some((lost, (key, event))) = expected.next_if(|(expected, _)| *expected < revision) {
                wrong.push(format!("lost: {event:?} {key} at {lost}"));
            }
            let acknowledged = expected.next_if(|(expected, _)| *expected == revision);
            let Some((revision, key, event)) = self.seen.pop_front() else {
                break;
            };
            match acknowledged {
                Some((_, (known, kind))) if *known == key && *kind == event => {}
                Some((_, (known, kind))) => {
                    wrong.push(format!(
                        "{kind:?} {known} at {revision} was seen as {event:?} {key}"
                    ));
                }
                None if event == Event::Deleted => {}
                None => self.unexplained += 1,
            }
        }
        for (lost, (key, event)) in expected {
            wrong.push(format!("lost: {event:?} {key} at {lost}"));
        }
        if self.unexplained > log.unknown {
            wrong.push(format!(
                "{} events that no writer caused, and {} writes whose outcome is unknown",
                self.unexplained, log.unknown
            ));
            self.unexplained = 0;
        }
        self.audited = self.audited.max(until);
        wrong
    }

    /// Compares the objects with a list.
    pub(crate) fn compare(&self, listed: &BTreeMap<String, u64>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, revision) in listed {
            if self.objects.get(key) != Some(revision) {
                wrong.push(format!(
                    "{key} is at {revision}, and the watcher knows {:?}",
                    self.objects.get(key)
                ));
            }
        }
        let gone = self.objects.keys().filter(|key| !listed.contains_key(*key));
        wrong.extend(gone.map(|key| format!("{key} is gone, and the watcher has it")));
        wrong
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
            view.see(*revision, key, *event).expect("in order");
        }
        view
    }

    const STORY: [(u64, &str, Event); 3] = [
        (2, "a", Event::Added),
        (4, "a", Event::Modified),
        (7, "b", Event::Added),
    ];

    #[test]
    fn everything_in_order_is_right() {
        let mut view = view(&STORY);
        view.see(9, "a", Event::Deleted).expect("it is there");
        assert_eq!(view.audit_all(&log(&STORY)), Vec::<String>::new());
        assert_eq!(
            view.compare(&BTreeMap::from([("b".to_owned(), 7)])),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_lost_event_is_found() {
        let mut seen = view(&[STORY[0], STORY[2]]);
        assert_eq!(seen.audit_all(&log(&STORY)), ["lost: Modified a at 4"]);
        let mut seen = view(&STORY[..2]);
        seen.bookmark(8);
        assert_eq!(seen.audit_all(&log(&STORY)), ["lost: Added b at 7"]);
    }

    #[test]
    fn events_out_of_order_or_place_are_found() {
        let mut seen = view(&STORY);
        assert!(seen.see(6, "c", Event::Added).is_err(), "a lower revision");
        assert!(seen.see(8, "a", Event::Added).is_err(), "it is there");
        assert!(seen.see(8, "c", Event::Modified).is_err(), "it is not there");
        assert!(seen.see(8, "c", Event::Deleted).is_err(), "it is not there");
    }

    #[test]
    fn an_event_that_differs_from_the_write_is_found() {
        let mut seen = view(&STORY);
        let log = log(&[STORY[0], (4, "other", Event::Modified), STORY[2]]);
        assert_eq!(seen.audit_all(&log).len(), 1);
    }

    #[test]
    fn an_event_without_a_write_needs_one_whose_outcome_is_unknown() {
        let mut log = log(&[STORY[0], STORY[2]]);
        assert_eq!(view(&STORY).audit_all(&log).len(), 1);
        log.unknown();
        assert_eq!(view(&STORY).audit_all(&log), Vec::<String>::new());
    }

    #[test]
    fn an_acknowledgement_may_be_late_by_one_audit() {
        let mut seen = view(&STORY);
        let early = log(&[]);
        assert_eq!(seen.audit(&early), Vec::<String>::new(), "nothing is due yet");
        assert_eq!(seen.audit(&log(&STORY)), Vec::<String>::new());
        assert_eq!(seen.audited(), 7);
    }

    #[test]
    fn a_list_takes_the_place_of_lost_events() {
        let mut seen = view(&STORY[..1]);
        seen.list(7, BTreeMap::from([("a".to_owned(), 4), ("b".to_owned(), 7)]));
        assert_eq!(seen.audit_all(&log(&STORY)), Vec::<String>::new());
        assert_eq!(
            seen.compare(&BTreeMap::from([("a".to_owned(), 4)])),
            ["b is gone, and the watcher has it"]
        );
    }
}
