//! Status conditions, with their transition times and observed generations.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use windlass_api::conditions;
use windlass_clock::Clock;

/// Condition type: the object is as desired. A declarative reconcile writes it at every outcome, if the status has
/// `conditions`; see `docs/status.md`.
///
/// - `True`: every child is applied and pruning is complete (reason [`RECONCILED_REASON`]). It does not mean that the
///   children work: return a `Ready` of your own from `desired` to say that.
/// - `False`: something failed. The reason is the kind of failure, such as `Forbidden` or `Invalid`; the message names
///   each failed child with the server's message.
/// - `Unknown`: the reconcile is [undecided](crate::Desired::undecided).
pub const READY_CONDITION: &str = "Ready";

/// Condition type, present only while it is `True`: the controller works towards the desired state, waits, or retries
/// after a failure. Tools that follow kstatus report the object as in progress.
pub const RECONCILING_CONDITION: &str = "Reconciling";

/// Condition type, present only while it is `True`: only a user or a change helps, after a
/// [terminal error](crate::Error::terminal) or if [pruning is blocked](crate::PrunePolicy). Tools that follow kstatus
/// report the object as failed.
pub const STALLED_CONDITION: &str = "Stalled";

/// Reason of a `Ready` condition that the runtime sets to `True`.
pub const RECONCILED_REASON: &str = "Reconciled";

/// The condition types that the runtime writes.
pub(crate) const STANDARD_CONDITIONS: [&str; 3] = [READY_CONDITION, RECONCILING_CONDITION, STALLED_CONDITION];

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
    ///
    /// A reason that the API does not accept is corrected, because the server would reject the whole status: words are
    /// joined in CamelCase, other characters are left out, and `Unspecified` replaces an empty one.
    ///
    /// ```
    /// use windlass_runtime::ConditionUpdate;
    /// let update = ConditionUpdate::true_("Ready", "secret is-missing!");
    /// assert_eq!(update.to_string(), "Ready=True SecretIsMissing");
    /// ```
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

    /// Human-readable details. Default: empty. It is cut at 32,768 characters, the API's limit.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        if let Some((end, _)) = self.message.char_indices().nth(MAX_MESSAGE) {
            let shorter = self.message[..end].char_indices().next_back();
            self.message.truncate(shorter.map_or(0, |(end, _)| end));
            self.message.push('…');
        }
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

    pub(crate) fn is_true(&self) -> bool {
        self.status == "True"
    }

    fn new(kind: String, status: &'static str, reason: String) -> Self {
        Self {
            kind,
            status,
            reason: valid_reason(reason),
            message: String::new(),
            observed_generation: None,
        }
    }
}

/// Longest `message` of a `metav1.Condition`, in characters.
const MAX_MESSAGE: usize = 32_768;

/// Longest `reason` of a `metav1.Condition`.
const MAX_REASON: usize = 1024;

/// Corrects a reason that does not match the API's pattern `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`.
fn valid_reason(reason: String) -> String {
    let is_middle = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    let is_valid = reason.len() <= MAX_REASON
        && reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && reason.chars().all(is_middle);
    if is_valid {
        return reason;
    }
    let mut valid = String::new();
    for word in reason.split(|c| !is_middle(c)) {
        let mut letters = word.chars();
        valid.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        valid.push_str(letters.as_str());
    }
    let valid = valid.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let valid = &valid[..valid.len().min(MAX_REASON)];
    match valid.trim_end_matches([',', ':']) {
        "" => "Unspecified".to_owned(),
        valid => valid.to_owned(),
    }
}

/// The condition as an update, without its transition time.
impl From<Condition> for ConditionUpdate {
    fn from(condition: Condition) -> Self {
        let status = match &*condition.status {
            "True" => "True",
            "False" => "False",
            _ => "Unknown",
        };
        Self::new(condition.type_, status, condition.reason)
            .message(condition.message)
            .observed_generation(condition.observed_generation)
    }
}

impl fmt::Display for ConditionUpdate {
    /// In one line, for logs: `Ready=False Waiting: 0 of 2 pods run`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} {}", self.kind, self.status, self.reason)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
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
        let before = conditions::find(self, &kind).and_then(|before| before.observed_generation);
        let condition = Condition {
            last_transition_time: Time(clock.now()),
            message,
            observed_generation: observed_generation.or(before),
            reason,
            status: status.to_owned(),
            type_: kind,
        };
        conditions::set(self, condition)
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

    #[test]
    fn reason_and_message_are_valid_for_the_server() {
        let long = "X".repeat(2000);
        for (reason, expected) in [
            ("AllReplicasRun", "AllReplicasRun"),
            ("a_b,c:d_", "a_b,c:d_"),
            ("secret missing", "SecretMissing"),
            ("  7 days ago: ", "DaysAgo"),
            ("über\nlang", "BerLang"),
            ("", "Unspecified"),
            ("!?", "Unspecified"),
            ("42", "Unspecified"),
            (&long, &long[..1024]),
        ] {
            let update = ConditionUpdate::unknown("Ready", reason);
            assert_eq!(update.reason, expected);
        }
        for (length, expected) in [(10, 10), (32_768, 32_768), (32_769, 32_768), (100_000, 32_768)] {
            let update = ConditionUpdate::unknown("Ready", "R").message("é".repeat(length));
            assert_eq!(update.message.chars().count(), expected);
            assert_eq!(update.message.ends_with('…'), length > 32_768);
        }
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
