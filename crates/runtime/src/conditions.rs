//! Status conditions, with their transition times and observed generations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use windlass_api::conditions;

use crate::clock::Clock;

/// Sets and reads the `conditions` of a status.
///
/// Implemented for `Vec<Condition>`, so the status type stays plain data:
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
/// use windlass_runtime::{Clock, ConditionUpdate, Conditions};
///
/// let mut conditions: Vec<Condition> = Vec::new();
/// let generation = Some(3);
/// let waiting = ConditionUpdate::false_("Ready", "Waiting").message("0 of 2 pods run");
/// conditions.set(waiting.observed_generation(generation), &Clock::system());
/// assert!(!conditions.is_true("Ready"));
/// let ready = ConditionUpdate::true_("Ready", "AllRun");
/// conditions.set(ready.observed_generation(generation), &Clock::system());
/// assert!(conditions.is_true("Ready") && !conditions.is_stale("Ready", generation));
/// ```
pub trait Conditions {
    /// Sets the condition of the update's type; there is one condition per type. `lastTransitionTime` changes only with
    /// the status. A known type keeps its position in the list, a new type goes to the end. `observedGeneration` is kept
    /// if the update has none.
    ///
    /// Returns whether anything changed; an unchanged status need not be written.
    fn set(&mut self, update: ConditionUpdate, clock: &Clock) -> bool;

    /// Returns the condition of this type.
    fn of_type(&self, kind: &str) -> Option<&Condition>;

    /// Whether the condition is `True`. A missing or unknown condition is not.
    fn is_true(&self, kind: &str) -> bool {
        self.of_type(kind)
            .is_some_and(|condition| condition.status == "True")
    }

    /// Whether the condition is missing or was observed for an older generation. Without an observed generation, or for an
    /// object without a generation, it counts as current.
    fn is_stale(&self, kind: &str, generation: Option<i64>) -> bool {
        let observed = |condition: &Condition| condition.observed_generation.zip(generation);
        self.of_type(kind)
            .is_none_or(|condition| observed(condition).is_some_and(|(observed, current)| observed < current))
    }

    /// Removes the condition of this type. Returns whether there was one.
    fn unset(&mut self, kind: &str) -> bool;
}

/// New value of one condition, for [`Conditions::set`] and [`Desired::condition`](crate::Desired::condition).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "pass it to `Conditions::set`"]
pub struct ConditionUpdate {
    kind: String,
    status: &'static str,
    reason: String,
    message: String,
    observed_generation: Option<i64>,
}

impl ConditionUpdate {
    /// Status `True`. Type and reason are CamelCase (`Ready`, `AllReplicasRun`); the API server requires a reason.
    pub fn true_(kind: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(kind.into(), "True", reason.into())
    }

    /// Status `False`.
    pub fn false_(kind: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(kind.into(), "False", reason.into())
    }

    /// Status `Unknown`.
    pub fn unknown(kind: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(kind.into(), "Unknown", reason.into())
    }

    /// Human-readable details. Default: empty.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// The `metadata.generation` that was observed. Default: that of the existing condition.
    pub fn observed_generation(mut self, generation: Option<i64>) -> Self {
        self.observed_generation = generation;
        self
    }

    /// The type of the condition.
    pub fn condition_type(&self) -> &str {
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
    fn set(&mut self, update: ConditionUpdate, clock: &Clock) -> bool {
        let ConditionUpdate {
            kind,
            status,
            reason,
            message,
            observed_generation,
        } = update;
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
        conditions::find(self, kind)
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
        Clock::starting_at("2026-01-02T03:04:05.678Z".parse().expect("valid timestamp"))
    }

    async fn seconds(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    fn since(conditions: &Vec<Condition>, kind: &str) -> String {
        conditions
            .of_type(kind)
            .expect("condition is set")
            .last_transition_time
            .0
            .to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn transition_time_changes_only_with_the_status() {
        let (clock, mut conditions) = (clock(), Vec::new());
        assert!(conditions.set(ConditionUpdate::false_("Ready", "Waiting"), &clock));
        assert_eq!(since(&conditions, "Ready"), "2026-01-02T03:04:05Z");
        seconds(10).await;
        assert!(
            conditions.set(
                ConditionUpdate::false_("Ready", "Pulling").message("1 of 2"),
                &clock
            ),
            "a new reason"
        );
        assert_eq!(since(&conditions, "Ready"), "2026-01-02T03:04:05Z");
        seconds(10).await;
        assert!(conditions.set(ConditionUpdate::true_("Ready", "Done"), &clock));
        assert_eq!(since(&conditions, "Ready"), "2026-01-02T03:04:25Z");
        assert_eq!(
            conditions.of_type("Ready").expect("condition is set").message,
            "",
            "the old message is cleared"
        );
        seconds(10).await;
        assert!(conditions.set(ConditionUpdate::unknown("Ready", "Lost"), &clock));
        assert_eq!(since(&conditions, "Ready"), "2026-01-02T03:04:35Z");
    }

    #[tokio::test(start_paused = true)]
    async fn setting_the_same_condition_again_changes_nothing() {
        let (clock, mut conditions) = (clock(), Vec::new());
        let update = ConditionUpdate::true_("Ready", "Done")
            .message("m")
            .observed_generation(Some(2));
        assert!(conditions.set(update.clone(), &clock));
        let before = conditions.clone();
        seconds(5).await;
        assert!(!conditions.set(update.clone(), &clock));
        assert_eq!(conditions, before);
        assert!(
            conditions.set(update.observed_generation(Some(3)), &clock),
            "a newer generation was observed"
        );
        assert_eq!(since(&conditions, "Ready"), "2026-01-02T03:04:05Z");
    }

    #[tokio::test(start_paused = true)]
    async fn conditions_keep_their_order_and_are_unique_by_type() {
        let (clock, mut conditions) = (clock(), Vec::new());
        for kind in ["B", "A", "C"] {
            conditions.set(ConditionUpdate::false_(kind, "R"), &clock);
        }
        conditions.set(ConditionUpdate::true_("A", "R"), &clock);
        let types =
            |conditions: &Vec<Condition>| conditions.iter().map(|c| c.type_.clone()).collect::<Vec<_>>();
        assert_eq!(types(&conditions), ["B", "A", "C"]);
        assert!(conditions.unset("B") && !conditions.unset("B"));
        assert_eq!(types(&conditions), ["A", "C"]);
    }

    #[tokio::test(start_paused = true)]
    async fn condition_is_stale_if_it_observed_an_older_generation() {
        let (clock, mut conditions) = (clock(), Vec::new());
        assert!(conditions.is_stale("Ready", Some(1)), "missing");
        conditions.set(ConditionUpdate::true_("Ready", "R"), &clock);
        assert!(!conditions.is_stale("Ready", Some(1)), "no observed generation");
        conditions.set(
            ConditionUpdate::true_("Ready", "R").observed_generation(Some(1)),
            &clock,
        );
        assert!(!conditions.is_stale("Ready", Some(1)) && !conditions.is_stale("Ready", None));
        assert!(conditions.is_stale("Ready", Some(2)));
        conditions.set(ConditionUpdate::true_("Ready", "Other"), &clock);
        assert!(conditions.is_stale("Ready", Some(2)), "the generation is kept");
        assert!(conditions.is_true("Ready") && !conditions.is_true("Other"));
    }
}
