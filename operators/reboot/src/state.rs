//! The annotations on a Node through which controller, agents and users communicate.
//!
//! ```text
//!   users, triggers ──► P/reboot-needed         the request, with any value; removed once the reboot is verified
//!   controller ───────► P/state                 the node's phase (JSON)
//!                       P/cordoned              the controller cordoned the node, and will uncordon it
//!                       P/reboot-now            armed: reboot if the current boot ID is the one named here (JSON)
//!   agent ────────────► P/reboot-in-progress    the agent is about to reboot; later, that it did (JSON)
//! ```
//!
//! Each annotation has one writer, and together they are the whole state, except for the slots in the policy's
//! status. `P/cordoned` is separate from the state, so that removing the state by hand does not leave a node cordoned
//! forever.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use windlass::api::naming::{InvalidName, check_name};

/// Default prefix of all annotations.
pub const DEFAULT_ANNOTATION_PREFIX: &str = "reboot.windlass.dev";

/// The annotation keys under one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationKeys {
    /// The request. Any value; users write the reason there.
    pub reboot_needed: String,
    /// A [`State`]. Written by the controller.
    pub state: String,
    /// Present while the node is unschedulable because the controller cordoned it.
    pub cordoned: String,
    /// A [`RebootCommand`]. Written by the controller.
    pub reboot_now: String,
    /// A [`Progress`]. Written by the agent.
    pub reboot_in_progress: String,
}

impl AnnotationKeys {
    /// Returns the keys under this prefix, which must be a DNS name.
    pub fn new(prefix: &str) -> Result<Self, InvalidName> {
        check_name(prefix)?;
        Ok(Self::with_prefix(prefix))
    }

    fn with_prefix(prefix: &str) -> Self {
        let name = |word: &str| format!("{prefix}/{word}");
        Self {
            reboot_needed: name("reboot-needed"),
            state: name("state"),
            cordoned: name("cordoned"),
            reboot_now: name("reboot-now"),
            reboot_in_progress: name("reboot-in-progress"),
        }
    }
}

impl Default for AnnotationKeys {
    fn default() -> Self {
        Self::with_prefix(DEFAULT_ANNOTATION_PREFIX)
    }
}

/// How far a node's reboot has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// The node has a slot; nothing was done to it yet.
    Granted,
    /// The node is unschedulable.
    Cordoned,
    /// Its pods are being evicted.
    Draining,
    /// Its pods are gone, or the policy does not drain.
    Drained,
    /// Its agent may reboot it.
    Armed,
    /// It has rebooted and has to become healthy again.
    Rebooted,
    /// It is healthy again and has to stay so for the soak time.
    Soaking,
    /// An administrator has to look at it. It keeps its slot.
    Failed,
    /// The attempt ended before the node was armed; it is retried after the backoff. It has no slot.
    Aborted,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 9] = [
        Self::Granted,
        Self::Cordoned,
        Self::Draining,
        Self::Drained,
        Self::Armed,
        Self::Rebooted,
        Self::Soaking,
        Self::Failed,
        Self::Aborted,
    ];

    /// Returns whether a node in this phase occupies a slot.
    pub fn is_active(self) -> bool {
        self != Self::Aborted
    }

    /// Returns the name that is written to annotations and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Granted => "Granted",
            Self::Cordoned => "Cordoned",
            Self::Draining => "Draining",
            Self::Drained => "Drained",
            Self::Armed => "Armed",
            Self::Rebooted => "Rebooted",
            Self::Soaking => "Soaking",
            Self::Failed => "Failed",
            Self::Aborted => "Aborted",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The annotation `P/state`: everything that another controller process needs to continue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Current phase.
    pub phase: Phase,
    /// The policy that granted the slot.
    pub policy: String,
    /// Number of the grant; it increases with every grant of the policy.
    pub epoch: u64,
    /// How many slots the node was granted for this request.
    #[serde(default = "one")]
    pub attempt: u32,
    /// How many of these attempts ended because of the node itself, such as a drain that timed out: the backoff grows
    /// with each. A pause or a closed window does not count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub aborts: u32,
    /// When the node entered this phase.
    pub since: Timestamp,
    /// When the phase times out or ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The boot ID that has to change; set when the node is armed.
    #[serde(default, rename = "bootIDBefore", skip_serializing_if = "Option::is_none")]
    pub boot_id_before: Option<String>,
    /// Until when the node may lose readiness and start its soak time over; set when it has rebooted.
    #[serde(default, rename = "healthyDeadline", skip_serializing_if = "Option::is_none")]
    pub healthy_deadline: Option<Timestamp>,
    /// Whether the controller cordoned the node. Informational: `P/cordoned` decides.
    #[serde(default)]
    pub cordoned: bool,
    /// Why the node is in this phase, for humans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Fields written by another version of this program; they are preserved.
    #[serde(flatten)]
    pub unknown_fields: BTreeMap<String, Value>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The annotation `P/reboot-now`: which boot of the node has to end, under which grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebootCommand {
    /// The boot that has to end. An agent that runs in a different boot ignores the command.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// Number of the grant.
    pub epoch: u64,
    /// When the maintenance window opened. The node reboots only if both the agent's and the controller's clock allow
    /// it.
    #[serde(default, rename = "notBefore", skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// When the window closes. It also stops an agent whose controller is no longer there to withdraw the command.
    #[serde(default, rename = "notAfter", skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
}

/// The annotation `P/reboot-in-progress`: what an agent is about to do, and the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The boot in which it was written.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// Number of the grant that it acts on.
    pub epoch: u64,
    /// How many times it has requested a reboot, this time included.
    #[serde(default = "one")]
    pub attempt: u32,
    /// When it last requested the reboot.
    #[serde(rename = "attemptedAt")]
    pub attempted_at: Timestamp,
    /// The boot ID after the reboot.
    #[serde(default, rename = "newBootID", skip_serializing_if = "Option::is_none")]
    pub new_boot_id: Option<String>,
    /// The boot in which the agent's health check passed, if it has one.
    #[serde(default, rename = "checkedBootID", skip_serializing_if = "Option::is_none")]
    pub checked_boot_id: Option<String>,
    /// Why it gave up.
    #[serde(default, rename = "failureReason", skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Fields written by another version of this program; they are preserved.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

impl Progress {
    /// Truncates the texts, which an agent can choose freely, so that they can be copied elsewhere. No real boot ID
    /// is that long.
    pub(crate) fn truncated(mut self) -> Self {
        for text in [
            &mut self.new_boot_id,
            &mut self.checked_boot_id,
            &mut self.failure_reason,
        ]
        .into_iter()
        .flatten()
        {
            *text = truncate(text);
        }
        self
    }
}

/// An annotation that cannot be parsed: another version or a user wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot parse annotation `{key}`: {error}; it is ignored: remove it unless another version of this program wrote it"
)]
pub struct InvalidAnnotation {
    /// The annotation's key.
    pub key: String,
    /// The parse error.
    pub error: String,
}

/// Longest text from users and agents (a request's reason, an agent's failure), in characters, that is copied into
/// state, conditions and events. All annotations of an object share 256 KiB, so the state must stay small.
const MAX_TEXT_CHARS: usize = 1024;

/// Truncates a text from users or agents, and puts it on one line.
pub(crate) fn truncate(text: &str) -> String {
    let mut clipped: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_TEXT_CHARS)
        .collect();
    if text.chars().nth(MAX_TEXT_CHARS).is_some() {
        clipped.push('…');
    }
    clipped
}

/// Parses an annotation's value.
pub(crate) fn parse_annotation<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, InvalidAnnotation> {
    serde_json::from_str(text).map_err(|error| InvalidAnnotation {
        key: name.to_owned(),
        // The error quotes the input.
        error: truncate(&error.to_string()),
    })
}

/// Serializes an annotation's value.
pub fn to_annotation(value: &impl Serialize) -> String {
    // Plain structs with string keys always serialize.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn state_preserves_fields_of_other_versions() {
        let written = r#"{"phase":"Draining","policy":"p","epoch":7,"attempt":2,"since":"2026-01-02T03:04:05Z","cordoned":true,"mood":{"good":[1]}}"#;
        let state: State = parse_annotation("s", written).expect("valid JSON");
        assert_eq!((state.phase, state.epoch, state.attempt), (Phase::Draining, 7, 2));
        let again: Value = serde_json::from_str(&to_annotation(&state)).expect("valid JSON");
        assert_eq!(again, serde_json::from_str::<Value>(written).expect("valid JSON"));
        assert_eq!(parse_annotation::<State>("s", &to_annotation(&state)), Ok(state));
    }

    #[test]
    fn state_parses_without_optional_fields() {
        let state: State = parse_annotation(
            "s",
            r#"{"phase":"Armed","policy":"p","epoch":1,"since":"2026-01-02T03:04:05Z"}"#,
        )
        .expect("valid JSON");
        assert_eq!((state.attempt, state.cordoned, state.deadline), (1, false, None));
    }

    #[test]
    fn unknown_phase_error_names_the_annotation() {
        let rendered = parse_annotation::<State>("example.com/state", r#"{"phase":"Levitating"}"#)
            .expect_err("not known");
        let rendered = rendered.to_string();
        assert!(
            rendered.starts_with("cannot parse annotation `example.com/state`"),
            "{rendered}"
        );
        assert!(rendered.contains("Levitating"), "{rendered}");
    }

    #[test]
    fn clip_truncates_and_removes_control_characters() {
        assert_eq!(truncate("kernel 6.18"), "kernel 6.18");
        assert_eq!(truncate("a\nb\u{1b}[2Jc"), "a b [2Jc");
        assert_eq!(truncate(&"é".repeat(1024)), "é".repeat(1024));
        assert_eq!(truncate(&"é".repeat(1025)), format!("{}…", "é".repeat(1024)));
        let long = format!(r#"{{"epoch":"{}"}}"#, "x".repeat(100_000));
        let error = parse_annotation::<RebootCommand>("o", &long).expect_err("not a number");
        assert!(error.error.len() < 1100, "{}", error.error.len());
    }

    #[test]
    fn annotation_prefix_must_be_a_dns_name() {
        let names = AnnotationKeys::new("reboot.example.com").expect("a domain");
        assert_eq!(names.reboot_needed, "reboot.example.com/reboot-needed");
        for wrong in ["", "a/b", "Reboot", "a b"] {
            assert!(AnnotationKeys::new(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Users can write anything there.
        #[test]
        fn parsing_arbitrary_text_does_not_panic(text in ".*", json in "\\{.{0,40}\\}") {
            let _ = (parse_annotation::<State>("s", &text), parse_annotation::<RebootCommand>("o", &json), parse_annotation::<Progress>("p", &json));
        }
    }
}
