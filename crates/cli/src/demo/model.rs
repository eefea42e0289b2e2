//! What the screen shows, as plain data without access to a cluster or terminal. Owned and changed by the front end only.

use std::{collections::VecDeque, time::Duration};

use super::claims::{Ledger, Verdict};

/// The maximum number of log lines, more than any screen shows.
const MAX_LINES: usize = 500;

/// Everything on the screen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// A description of the cluster.
    pub(crate) cluster: String,
    /// The time since the start.
    pub(crate) elapsed: Duration,
    pub(crate) chapter: &'static str,
    pub(crate) controllers: Vec<ControllerRow>,
    pub(crate) nodes: Vec<NodeRow>,
    pub(crate) ledger: Ledger,
    /// The log, newest line last.
    pub(crate) log: VecDeque<Line>,
    /// Whether the scenario is complete.
    pub(crate) is_complete: bool,
}

/// A row of the controller table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ControllerRow {
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) queued: usize,
    pub(crate) running: usize,
    /// Reconciles per second.
    pub(crate) rate: f64,
    /// Reconciles since the start.
    pub(crate) total: u64,
    /// Objects whose last reconcile failed.
    pub(crate) failing: usize,
    pub(crate) last: Option<LastRow>,
}

/// A controller's last reconcile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastRow {
    pub(crate) outcome: String,
    pub(crate) succeeded: bool,
    pub(crate) key: String,
    pub(crate) took: Duration,
}

/// A node and its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub(crate) name: String,
    pub(crate) state: NodeState,
    pub(crate) pods_ready: usize,
    pub(crate) pods_waiting: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeState {
    Ready,
    /// Ready, with a `NoExecute` taint.
    Tainted,
    /// Ready, but unschedulable.
    Cordoned,
    NotReady,
}

impl NodeState {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Tainted => "tainted",
            Self::Cordoned => "cordoned",
            Self::NotReady => "not ready",
        }
    }
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: Duration,
    pub(crate) kind: LineKind,
    pub(crate) text: String,
    /// How often it occurred in this chapter.
    pub(crate) count: u32,
    /// Lines of the same topic are merged; `None`: never.
    topic: Option<String>,
}

/// The kind of a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// The title of a chapter.
    Chapter,
    /// An action of the demo.
    Action,
    /// A message of this component.
    Component(String),
    /// A claim that held.
    Held,
    /// A claim that failed.
    Failed,
}

/// An event of the demo, to be shown.
#[derive(Clone, Debug)]
pub(crate) enum DemoEvent {
    /// A chapter starts.
    Chapter(&'static str),
    /// The demo does something, as a user would.
    Action(String),
    /// A message of a component. Messages of the same topic in one chapter are one line.
    Message {
        component: String,
        topic: String,
        text: String,
    },
    /// A claim was checked.
    ClaimChecked { claim: &'static str, verdict: Verdict },
}

impl Model {
    pub(crate) fn new(cluster: String, ledger: Ledger) -> Self {
        Self {
            cluster,
            ledger,
            ..Self::default()
        }
    }

    /// Applies an event; returns the new line, if there is one.
    pub(crate) fn apply(&mut self, event: DemoEvent) -> Option<&Line> {
        let (kind, text, topic) = match event {
            DemoEvent::Chapter(title) => {
                self.chapter = title;
                (LineKind::Chapter, title.to_owned(), None)
            }
            DemoEvent::Action(text) => (LineKind::Action, text, None),
            DemoEvent::Message {
                component,
                topic,
                text,
            } => {
                let topic = format!("{component} {topic}");
                let this_chapter = self.log.iter_mut().rev();
                let mut this_chapter = this_chapter.take_while(|line| line.kind != LineKind::Chapter);
                if let Some(line) = this_chapter.find(|line| line.topic.as_ref() == Some(&topic)) {
                    line.count += 1;
                    return None;
                }
                (LineKind::Component(component), text, Some(topic))
            }
            DemoEvent::ClaimChecked { claim, verdict } => {
                let (voice, text) = match &verdict {
                    Verdict::Held { after } => {
                        (LineKind::Held, format!("{claim} ({} ms)", after.as_millis()))
                    }
                    Verdict::Failed { found } => (LineKind::Failed, format!("{claim}: {found}")),
                    Verdict::Unchecked => return None,
                };
                self.ledger.record(claim, verdict);
                (voice, text, None)
            }
        };
        if self.log.len() == MAX_LINES {
            self.log.pop_front();
        }
        self.log.push_back(Line {
            at: self.elapsed,
            kind,
            text,
            count: 1,
            topic,
        });
        self.log.back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(topic: &str) -> DemoEvent {
        DemoEvent::Message {
            component: "foo".to_owned(),
            topic: topic.to_owned(),
            text: format!("{topic}: well"),
        }
    }

    #[test]
    fn repeated_messages_are_one_line_per_chapter() {
        let mut model = Model::default();
        assert!(model.apply(message("Synced")).is_some());
        assert!(model.apply(DemoEvent::Action("create".to_owned())).is_some());
        assert!(model.apply(message("Synced")).is_none());
        assert!(model.apply(message("Created")).is_some());
        model.apply(DemoEvent::Chapter("next"));
        assert!(model.apply(message("Synced")).is_some());
        let times: Vec<_> = model.log.iter().map(|line| (&*line.text, line.count)).collect();
        assert_eq!(
            times,
            [
                ("Synced: well", 2),
                ("create", 1),
                ("Created: well", 1),
                ("next", 1),
                ("Synced: well", 1)
            ]
        );
    }

    #[test]
    fn log_is_bounded_and_keeps_the_newest() {
        let mut model = Model::default();
        for number in 0..2 * MAX_LINES {
            model.apply(DemoEvent::Action(number.to_string()));
        }
        assert_eq!(model.log.len(), MAX_LINES);
        assert_eq!(
            model.log.back().expect("a line").text,
            (2 * MAX_LINES - 1).to_string()
        );
    }

    #[test]
    fn failed_claim_is_in_the_log_and_the_ledger() {
        let mut model = Model::new(String::new(), Ledger::new(["a"]));
        let verdict = Verdict::Failed {
            found: "nothing".to_owned(),
        };
        let line = model.apply(DemoEvent::ClaimChecked { claim: "a", verdict });
        let line = line.expect("a line");
        assert_eq!((&line.kind, &*line.text), (&LineKind::Failed, "a: nothing"));
        assert!(!model.ledger.all_held());
        assert_eq!(model.ledger.failed(), 1);
    }
}
