//! What a screen shows: plain data, with no way to a cluster or a terminal. The front owns it and is the only one to change it.

use std::{collections::VecDeque, time::Duration};

use super::claims::{Ledger, Verdict};

/// Lines that are kept; more fit on no screen.
const LINES: usize = 500;

/// Everything that is to be seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// What the cluster is.
    pub(crate) cluster: String,
    /// Since the start.
    pub(crate) elapsed: Duration,
    pub(crate) chapter: &'static str,
    pub(crate) controllers: Vec<ControllerRow>,
    pub(crate) nodes: Vec<NodeRow>,
    pub(crate) ledger: Ledger,
    /// The newest last.
    pub(crate) log: VecDeque<Line>,
    /// The story is over.
    pub(crate) over: bool,
}

/// A controller in the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ControllerRow {
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) queued: usize,
    pub(crate) running: usize,
    /// Reconciles a second, of late.
    pub(crate) rate: f64,
    /// Reconciles since the start.
    pub(crate) total: u64,
    /// Objects whose last reconcile failed.
    pub(crate) failing: usize,
    pub(crate) last: Option<LastRow>,
}

/// How a controller's last reconcile ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastRow {
    pub(crate) outcome: String,
    pub(crate) well: bool,
    pub(crate) key: String,
    pub(crate) took: Duration,
}

/// A node, and what is on it.
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
    /// Ready, and pods have to leave it.
    Tainted,
    /// Ready, and takes no more pods.
    Cordoned,
    NotReady,
}

impl NodeState {
    pub(crate) fn word(self) -> &'static str {
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
    pub(crate) voice: Voice,
    pub(crate) text: String,
    /// How often it was said in this chapter.
    pub(crate) times: u32,
    /// What makes another line the same; `None` if nothing does.
    topic: Option<String>,
}

/// Who says a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// The title of a chapter.
    Chapter,
    /// The demo in the place of a person: what was done.
    You,
    /// A component that wrote an event: what happened, and why.
    Component(String),
    /// A claim that held.
    Held,
    /// A claim that did not.
    Failed,
}

/// Something to be shown.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// A chapter begins.
    Chapter(&'static str),
    /// Something is done as a person would do it.
    Act(String),
    /// A component says something. Lines of the same topic in one chapter are one line.
    Said {
        who: String,
        topic: String,
        text: String,
    },
    /// A claim was checked.
    Settled { claim: &'static str, verdict: Verdict },
}

impl Model {
    pub(crate) fn new(cluster: String, ledger: Ledger) -> Self {
        Self {
            cluster,
            ledger,
            ..Self::default()
        }
    }

    /// Takes in what happened; returns the line that is new, if there is one.
    pub(crate) fn apply(&mut self, happening: Happening) -> Option<&Line> {
        let (voice, text, topic) = match happening {
            Happening::Chapter(title) => {
                self.chapter = title;
                (Voice::Chapter, title.to_owned(), None)
            }
            Happening::Act(text) => (Voice::You, text, None),
            Happening::Said { who, topic, text } => {
                let topic = format!("{who} {topic}");
                let this_chapter = self.log.iter_mut().rev();
                let mut this_chapter = this_chapter.take_while(|line| line.voice != Voice::Chapter);
                if let Some(line) = this_chapter.find(|line| line.topic.as_ref() == Some(&topic)) {
                    line.times += 1;
                    return None;
                }
                (Voice::Component(who), text, Some(topic))
            }
            Happening::Settled { claim, verdict } => {
                let (voice, text) = match &verdict {
                    Verdict::Held { after } => (Voice::Held, format!("{claim} ({} ms)", after.as_millis())),
                    Verdict::Failed { found } => (Voice::Failed, format!("{claim}: {found}")),
                    Verdict::Open => return None,
                };
                self.ledger.settle(claim, verdict);
                (voice, text, None)
            }
        };
        if self.log.len() == LINES {
            self.log.pop_front();
        }
        self.log.push_back(Line {
            at: self.elapsed,
            voice,
            text,
            times: 1,
            topic,
        });
        self.log.back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(topic: &str) -> Happening {
        Happening::Said {
            who: "foo".to_owned(),
            topic: topic.to_owned(),
            text: format!("{topic}: well"),
        }
    }

    #[test]
    fn what_is_said_often_is_one_line_in_each_chapter() {
        let mut model = Model::default();
        assert!(model.apply(said("Synced")).is_some());
        assert!(model.apply(Happening::Act("create".to_owned())).is_some());
        assert!(model.apply(said("Synced")).is_none());
        assert!(model.apply(said("Created")).is_some());
        model.apply(Happening::Chapter("next"));
        assert!(model.apply(said("Synced")).is_some());
        let times: Vec<_> = model.log.iter().map(|line| (&*line.text, line.times)).collect();
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
    fn the_log_is_bounded_and_keeps_the_newest() {
        let mut model = Model::default();
        for number in 0..2 * LINES {
            model.apply(Happening::Act(number.to_string()));
        }
        assert_eq!(model.log.len(), LINES);
        assert_eq!(
            model.log.back().expect("a line").text,
            (2 * LINES - 1).to_string()
        );
    }

    #[test]
    fn a_claim_that_failed_is_in_the_log_and_in_the_ledger() {
        let mut model = Model::new(String::new(), Ledger::promise(["a"]));
        let verdict = Verdict::Failed {
            found: "nothing".to_owned(),
        };
        let line = model.apply(Happening::Settled { claim: "a", verdict });
        let line = line.expect("a line");
        assert_eq!((&line.voice, &*line.text), (&Voice::Failed, "a: nothing"));
        assert!(!model.ledger.all_held());
        assert_eq!(model.ledger.failed(), 1);
    }
}
