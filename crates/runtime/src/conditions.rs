//! Conditions: what holds of an object, since when, and for which generation of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::clock::Clock;

/// A list of conditions, as a status has it.
///
/// Implemented for `Vec<Condition>`, so that the status type stays plain data:
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
/// use windlass_runtime::{Clock, Conditions, Finding};
///
/// let mut conditions: Vec<Condition> = Vec::new();
/// let generation = Some(3);
/// conditions.set(Finding::no("Ready", "Waiting").message("0 of 2 pods run").at(generation), &Clock::system());
/// assert!(!conditions.is_true("Ready"));
/// conditions.set(Finding::yes("Ready", "AllRun").at(generation), &Clock::system());
/// assert!(conditions.is_true("Ready") && !conditions.is_stale("Ready", generation));
/// ```
pub trait Conditions {
    /// Notes what was found: one condition per type. `lastTransitionTime` stays as it is while the status is the same,
    /// and so does the place in the list; a new type goes to the end. `observedGeneration` stays as it is if the
    /// finding has none.
    ///
    /// Whether anything changed: a status that did not need not be written.
    fn set(&mut self, finding: Finding, clock: &Clock) -> bool;

    /// The condition of this type.
    fn of_type(&self, kind: &str) -> Option<&Condition>;

    /// Whether it is `True`; one that is missing or unknown is not.
    fn is_true(&self, kind: &str) -> bool {
        self.of_type(kind)
            .is_some_and(|condition| condition.status == "True")
    }

    /// Whether it says nothing of this generation: it is missing, or was found for an older one. A condition that
    /// notes no generation, or an object that has none, is taken as current.
    fn is_stale(&self, kind: &str, generation: Option<i64>) -> bool {
        let observed = |condition: &Condition| condition.observed_generation.zip(generation);
        self.of_type(kind)
            .is_none_or(|condition| observed(condition).is_some_and(|(seen, now)| seen < now))
    }

    /// Takes the condition of this type out; whether there was one.
    fn unset(&mut self, kind: &str) -> bool;
}

/// What a reconcile found about one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it is noted by `Conditions::set`"]
pub struct Finding {
    kind: String,
    status: &'static str,
    reason: String,
    message: String,
    observed_generation: Option<i64>,
}

impl Finding {
    /// It is so. The type and the reason are words in CamelCase (`Ready`, `AllReplicasRun`): the server wants a reason
    /// for each.
    pub fn yes(kind: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(kind.into(), "True", reason.into())
    }

    /// It is not so.
    pub fn no(kind: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(kind.into(), "False", reason.into())
    }

    /// It cannot be told.
    pub fn unknown(kind: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(kind.into(), "Unknown", reason.into())
    }

    /// More, for people. Default: nothing.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// The generation of the object that was looked at: its `metadata.generation`. Default: what the condition had.
    pub fn at(mut self, generation: Option<i64>) -> Self {
        self.observed_generation = generation;
        self
    }

    /// The type of the condition.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    fn new(kind: String, status: &'static str, reason: String) -> Self {
        Self {
            kind,
            status,
            reason,
            message: String::new(),
            observed_generation: None,
        }
    }
}

impl Conditions for Vec<Condition> {
    fn set(&mut self, finding: Finding, clock: &Clock) -> bool {
        let Finding {
            kind,
            status,
            reason,
            message,
            observed_generation,
        } = finding;
        let place = self.iter().position(|condition| condition.type_ == kind);
        let before = place.map(|place| &self[place]);
        let since = before.filter(|before| before.status == status);
        let condition = Condition {
            last_transition_time: since
                .map_or_else(|| Time(clock.now()), |before| before.last_transition_time.clone()),
            message,
            observed_generation: observed_generation.or(before.and_then(|before| before.observed_generation)),
            reason,
            status: status.to_owned(),
            type_: kind,
        };
        match place {
            Some(place) if self[place] == condition => false,
            Some(place) => {
                self[place] = condition;
                true
            }
            None => {
                self.push(condition);
                true
            }
        }
    }

    fn of_type(&self, kind: &str) -> Option<&Condition> {
        self.iter().find(|condition| condition.type_ == kind)
    }

    fn unset(&mut self, kind: &str) -> bool {
        let before = self.len();
        self.retain(|condition| condition.type_ != kind);
        self.len() < before
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn clock() -> Clock {
        Clock::starting_at("2026-01-02T03:04:05.678Z".parse().expect("a time"))
    }

    async fn seconds(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    fn since(conditions: &Vec<Condition>, kind: &str) -> String {
        conditions
            .of_type(kind)
            .expect("it was set")
            .last_transition_time
            .0
            .to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_condition_is_when_its_status_changed() {
        let (clock, mut conditions) = (clock(), Vec::new());
        assert!(conditions.set(Finding::no("Ready", "Waiting"), &clock));
        assert_eq!(since(&conditions, "Ready"), "2026-01-02T03:04:05Z");
        seconds(10).await;
        assert!(
            conditions.set(Finding::no("Ready", "Pulling").message("1 of 2"), &clock),
            "a new reason"
        );
        assert_eq!(since(&conditions, "Ready"), "2026-01-02T03:04:05Z");
        seconds(10).await;
        assert!(conditions.set(Finding::yes("Ready", "Done"), &clock));
        assert_eq!(since(&conditions, "Ready"), "2026-01-02T03:04:25Z");
        assert_eq!(
            conditions.of_type("Ready").expect("it was set").message,
            "",
            "the old message is gone"
        );
        seconds(10).await;
        assert!(conditions.set(Finding::unknown("Ready", "Lost"), &clock));
        assert_eq!(since(&conditions, "Ready"), "2026-01-02T03:04:35Z");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_finding_again_changes_nothing() {
        let (clock, mut conditions) = (clock(), Vec::new());
        let finding = Finding::yes("Ready", "Done").message("m").at(Some(2));
        assert!(conditions.set(finding.clone(), &clock));
        let before = conditions.clone();
        seconds(5).await;
        assert!(!conditions.set(finding.clone(), &clock));
        assert_eq!(conditions, before);
        assert!(
            conditions.set(finding.at(Some(3)), &clock),
            "a newer generation was looked at"
        );
        assert_eq!(since(&conditions, "Ready"), "2026-01-02T03:04:05Z");
    }

    #[tokio::test(start_paused = true)]
    async fn conditions_keep_their_order_and_there_is_one_of_a_type() {
        let (clock, mut conditions) = (clock(), Vec::new());
        for kind in ["B", "A", "C"] {
            conditions.set(Finding::no(kind, "R"), &clock);
        }
        conditions.set(Finding::yes("A", "R"), &clock);
        let types =
            |conditions: &Vec<Condition>| conditions.iter().map(|c| c.type_.clone()).collect::<Vec<_>>();
        assert_eq!(types(&conditions), ["B", "A", "C"]);
        assert!(conditions.unset("B") && !conditions.unset("B"));
        assert_eq!(types(&conditions), ["A", "C"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_is_stale_for_a_generation_that_it_has_not_seen() {
        let (clock, mut conditions) = (clock(), Vec::new());
        assert!(conditions.is_stale("Ready", Some(1)), "it is missing");
        conditions.set(Finding::yes("Ready", "R"), &clock);
        assert!(!conditions.is_stale("Ready", Some(1)), "it does not say");
        conditions.set(Finding::yes("Ready", "R").at(Some(1)), &clock);
        assert!(!conditions.is_stale("Ready", Some(1)) && !conditions.is_stale("Ready", None));
        assert!(conditions.is_stale("Ready", Some(2)));
        conditions.set(Finding::yes("Ready", "Other"), &clock);
        assert!(conditions.is_stale("Ready", Some(2)), "it keeps the generation");
        assert!(conditions.is_true("Ready") && !conditions.is_true("Other"));
    }
}
