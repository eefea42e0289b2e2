//! What the demo promises, and what became of it. Data: who checks is the story, who shows is the screen.

use std::time::Duration;

/// Something that must hold, in words that a person can check with kubectl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) text: &'static str,
    pub(crate) verdict: Verdict,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not looked at yet.
    Open,
    /// The API said so.
    Held {
        /// How long it took from when it was first asked.
        after: Duration,
    },
    /// It did not come true in time.
    Failed {
        /// What the API said instead.
        found: String,
    },
}

/// All claims of a story, in the order in which they are made. What is promised counts also if the story never gets there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Vec<Claim>);

impl Ledger {
    pub(crate) fn promise(texts: impl IntoIterator<Item = &'static str>) -> Self {
        let open = texts.into_iter().map(|text| Claim {
            text,
            verdict: Verdict::Open,
        });
        Self(open.collect())
    }

    /// Notes what became of a claim. One that failed stays failed, and one that nobody promised counts as well.
    pub(crate) fn settle(&mut self, text: &'static str, verdict: Verdict) {
        match self.0.iter_mut().find(|claim| claim.text == text) {
            Some(claim) if matches!(claim.verdict, Verdict::Failed { .. }) => {}
            Some(claim) => claim.verdict = verdict,
            None => self.0.push(Claim { text, verdict }),
        }
    }

    pub(crate) fn claims(&self) -> &[Claim] {
        &self.0
    }

    pub(crate) fn held(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Held { .. }))
    }

    pub(crate) fn failed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Failed { .. }))
    }

    /// Whether there is something to claim, and all of it held.
    pub(crate) fn all_held(&self) -> bool {
        !self.0.is_empty() && self.held() == self.0.len()
    }

    /// The last words, for a person who saw nothing else: how many held, and each that did not, with what was there instead.
    pub(crate) fn summary(&self) -> String {
        let all = self.0.len();
        if self.0.is_empty() {
            return "Nothing was claimed.\n".to_owned();
        }
        if self.all_held() {
            return format!("{all} of {all} claims held, each checked against the API.\n");
        }
        let head = format!("{} of {all} claims did not hold:\n", all - self.held());
        let failures = self.0.iter().filter_map(|Claim { text, verdict }| match verdict {
            Verdict::Held { .. } => None,
            Verdict::Failed { found } => Some(format!("  FAILED       {text}: {found}\n")),
            Verdict::Open => Some(format!("  NOT CHECKED  {text}\n")),
        });
        std::iter::once(head).chain(failures).collect()
    }

    fn count(&self, of: impl Fn(&Verdict) -> bool) -> usize {
        self.0.iter().filter(|claim| of(&claim.verdict)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Verdict = Verdict::Held {
        after: Duration::from_millis(3),
    };

    fn failed(found: &str) -> Verdict {
        Verdict::Failed {
            found: found.to_owned(),
        }
    }

    #[test]
    fn all_held_means_all_that_were_promised() {
        let mut ledger = Ledger::promise(["a", "b"]);
        ledger.settle("a", HELD);
        assert!(!ledger.all_held(), "b was never looked at");
        assert_eq!(
            ledger.summary(),
            "1 of 2 claims did not hold:\n  NOT CHECKED  b\n"
        );
        ledger.settle("b", HELD);
        assert!(ledger.all_held());
        assert_eq!(
            ledger.summary(),
            "2 of 2 claims held, each checked against the API.\n"
        );
    }

    #[test]
    fn one_that_failed_is_named_with_what_was_there_and_cannot_be_made_good() {
        let mut ledger = Ledger::promise(["a", "b"]);
        ledger.settle("a", HELD);
        ledger.settle("b", failed("Deployment demo/web has 7 replicas"));
        ledger.settle("b", HELD);
        assert!(!ledger.all_held());
        assert_eq!((ledger.held(), ledger.failed()), (1, 1));
        assert_eq!(
            ledger.summary(),
            "1 of 2 claims did not hold:\n  FAILED       b: Deployment demo/web has 7 replicas\n"
        );
    }

    #[test]
    fn nothing_claimed_is_nothing_shown() {
        assert!(!Ledger::default().all_held());
        let mut surprise = Ledger::default();
        surprise.settle("c", failed("-"));
        assert_eq!(surprise.failed(), 1, "what was not promised counts too");
    }
}
