//! The demo's claims and their results, as data: the scenario checks them, the screen shows them.

use std::time::Duration;

/// A statement that must hold, and that can be verified with kubectl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) text: &'static str,
    pub(crate) verdict: Verdict,
}

/// The result of checking a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not checked yet.
    Unchecked,
    /// It holds, according to the API.
    Held {
        /// The time from the first check.
        after: Duration,
    },
    /// It did not hold in time.
    Failed {
        /// What the API returned instead.
        found: String,
    },
}

/// All claims of a scenario, in order. Expected claims count even if the scenario never reaches them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Vec<Claim>);

impl Ledger {
    pub(crate) fn new(texts: impl IntoIterator<Item = &'static str>) -> Self {
        let open = texts.into_iter().map(|text| Claim {
            text,
            verdict: Verdict::Unchecked,
        });
        Self(open.collect())
    }

    /// Records the result of a claim. A failed one stays failed, and an unexpected one counts too.
    pub(crate) fn record(&mut self, text: &'static str, verdict: Verdict) {
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

    /// Whether there are claims, and all of them held.
    pub(crate) fn all_held(&self) -> bool {
        !self.0.is_empty() && self.held() == self.0.len()
    }

    /// The summary: how many claims held, and each that did not, with what was found instead.
    pub(crate) fn summary(&self) -> String {
        let all = self.0.len();
        if self.0.is_empty() {
            return "No claims were checked.\n".to_owned();
        }
        if self.all_held() {
            return format!("{all} of {all} claims held, each checked against the API.\n");
        }
        let head = format!("{} of {all} claims did not hold:\n", all - self.held());
        let failures = self.0.iter().filter_map(|Claim { text, verdict }| match verdict {
            Verdict::Held { .. } => None,
            Verdict::Failed { found } => Some(format!("  FAILED       {text}: {found}\n")),
            Verdict::Unchecked => Some(format!("  NOT CHECKED  {text}\n")),
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
    fn all_held_requires_every_expected_claim() {
        let mut ledger = Ledger::new(["a", "b"]);
        ledger.record("a", HELD);
        assert!(!ledger.all_held(), "b was never checked");
        assert_eq!(
            ledger.summary(),
            "1 of 2 claims did not hold:\n  NOT CHECKED  b\n"
        );
        ledger.record("b", HELD);
        assert!(ledger.all_held());
        assert_eq!(
            ledger.summary(),
            "2 of 2 claims held, each checked against the API.\n"
        );
    }

    #[test]
    fn failed_claim_stays_failed_and_is_in_the_summary() {
        let mut ledger = Ledger::new(["a", "b"]);
        ledger.record("a", HELD);
        ledger.record("b", failed("Deployment demo/web has 7 replicas"));
        ledger.record("b", HELD);
        assert!(!ledger.all_held());
        assert_eq!((ledger.held(), ledger.failed()), (1, 1));
        assert_eq!(
            ledger.summary(),
            "1 of 2 claims did not hold:\n  FAILED       b: Deployment demo/web has 7 replicas\n"
        );
    }

    #[test]
    fn empty_ledger_is_not_all_held() {
        assert!(!Ledger::default().all_held());
        let mut surprise = Ledger::default();
        surprise.record("c", failed("-"));
        assert_eq!(surprise.failed(), 1, "an unexpected claim counts too");
    }
}
