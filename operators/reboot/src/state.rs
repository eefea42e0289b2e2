//! What stands on a Node: the annotations by which controller, agents and people talk, and how they are read and written.
//!
//! ```text
//!   people, triggers ──► P/reboot-needed        the request; whatever its value, it stays until the reboot is proved
//!   controller ────────► P/state                where the node is on its way (JSON)
//!                        P/cordoned             we made it unschedulable, and will undo it
//!                        P/reboot-now           armed: reboot, if you still are the boot that this names (JSON)
//!   agent ─────────────► P/reboot-in-progress   it is about to reboot; later, that it did (JSON)
//! ```
//!
//! Each of them has one author, and all of them together are the whole state: nothing is remembered elsewhere, but for the
//! slots in the status of the policy. `P/cordoned` stands apart from the state, so that somebody who takes off a state by hand
//! leaves no node unschedulable for ever.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use windlass::runtime::names::{InvalidName, check_name};

/// The prefix of all annotations, unless another one is asked for.
pub const PREFIX: &str = "reboot.windlass.dev";

/// The names of the annotations, under one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The request. Any value; what people write there is the reason.
    pub needed: String,
    /// A [`State`]. The controller's.
    pub state: String,
    /// It is there while the node is unschedulable because the controller made it so.
    pub cordoned: String,
    /// An [`Order`]. The controller's.
    pub now: String,
    /// A [`Progress`]. The agent's.
    pub in_progress: String,
}

impl Names {
    /// The names under this prefix, which is a DNS name.
    pub fn new(prefix: &str) -> Result<Self, InvalidName> {
        check_name(prefix)?;
        Ok(Self::under(prefix))
    }

    fn under(prefix: &str) -> Self {
        let name = |word: &str| format!("{prefix}/{word}");
        Self {
            needed: name("reboot-needed"),
            state: name("state"),
            cordoned: name("cordoned"),
            now: name("reboot-now"),
            in_progress: name("reboot-in-progress"),
        }
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::under(PREFIX)
    }
}

/// Where a node is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// It has a slot; nothing was done to it.
    Granted,
    /// It takes no new pods.
    Cordoned,
    /// Its pods are evicted.
    Draining,
    /// Its pods are gone, or were not to go.
    Drained,
    /// Its agent may reboot it.
    Armed,
    /// It did; it has to become good again.
    Rebooted,
    /// It is good again, and has to stay so for a while.
    Soaking,
    /// Somebody has to look. It keeps its slot.
    Failed,
    /// It was let go before it was armed, and rests before it is tried again. It has no slot.
    Aborted,
}

impl Phase {
    /// All of them, in the order of the way.
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

    /// Whether a node in it takes up a slot.
    pub fn is_active(self) -> bool {
        self != Self::Aborted
    }

    /// Its name, as it is written.
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

/// The annotation `P/state`: everything that a successor of this process has to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Where it is.
    pub phase: Phase,
    /// Whose slot it has.
    pub policy: String,
    /// Which grant of that policy; each has a greater one.
    pub epoch: u64,
    /// How often it was granted a slot for this request.
    #[serde(default = "one")]
    pub attempt: u32,
    /// Since when it is in this phase.
    pub since: Timestamp,
    /// When the phase must be over, or is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The boot that is to end; from when it is armed.
    #[serde(default, rename = "bootIDBefore", skip_serializing_if = "Option::is_none")]
    pub boot_id_before: Option<String>,
    /// Until when it may lose its readiness and begin to soak anew; from its reboot on.
    #[serde(default, rename = "goodBy", skip_serializing_if = "Option::is_none")]
    pub good_by: Option<Timestamp>,
    /// Whether we made it unschedulable; for readers, `P/cordoned` is what counts.
    #[serde(default)]
    pub cordoned: bool,
    /// Why it is in this phase, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What another version of this program wrote there; it stays.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

fn one() -> u32 {
    1
}

/// The annotation `P/reboot-now`: which boot of the node is to end, and by which grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The boot that is to end. An agent that runs in another one has nothing to do.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// Which grant.
    pub epoch: u64,
    /// When the window opened. Agent and controller have clocks of their own: the machine reboots when both say that it may.
    #[serde(default, rename = "notBefore", skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// When it closes; also for an agent whose controller is not there any more to take the order back.
    #[serde(default, rename = "notAfter", skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
}

/// The annotation `P/reboot-in-progress`: what an agent is about to do, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The boot in which it was written.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// The grant by which it acts.
    pub epoch: u64,
    /// How often it has asked the machine to reboot, this time included.
    #[serde(default = "one")]
    pub attempt: u32,
    /// When it did last.
    pub at: Timestamp,
    /// The boot after it: it rebooted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proved: Option<String>,
    /// The boot in which the agent's own check has passed, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
    /// Why it gave up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// What another version of this program wrote there; it stays.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

impl Progress {
    /// The same with texts that can be repeated elsewhere, whatever the agent wrote: no boot ID is so long that it is clipped.
    pub(crate) fn clipped(mut self) -> Self {
        for text in [&mut self.proved, &mut self.checked, &mut self.failed]
            .into_iter()
            .flatten()
        {
            *text = clip(text);
        }
        self
    }
}

/// An annotation that cannot be read: another version wrote it, or a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation `{name}` cannot be read ({why}): it is left alone; take it off if no other version of this program wrote it"
)]
pub struct Unreadable {
    /// Which one.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

/// The most characters of a text by others (a request's reason, an agent's failure) that go into state, conditions and events. All
/// annotations of an object share 256 KiB: a text that is repeated in the state must leave room for it.
const LONGEST_TEXT: usize = 1024;

/// The beginning of a text by others, on one line.
pub(crate) fn clip(text: &str) -> String {
    let mut clipped: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(LONGEST_TEXT)
        .collect();
    if text.chars().nth(LONGEST_TEXT).is_some() {
        clipped.push('…');
    }
    clipped
}

/// Reads an annotation.
pub(crate) fn read<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|error| Unreadable {
        name: name.to_owned(),
        // It quotes what it could not read.
        why: clip(&error.to_string()),
    })
}

/// The text of an annotation.
pub fn text(value: &impl Serialize) -> String {
    // Plain structs with text for keys: nothing in them can fail.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_another_version_wrote_beside_is_kept() {
        let written = r#"{"phase":"Draining","policy":"p","epoch":7,"attempt":2,"since":"2026-01-02T03:04:05Z","cordoned":true,"mood":{"good":[1]}}"#;
        let state: State = read("s", written).expect("it can be read");
        assert_eq!((state.phase, state.epoch, state.attempt), (Phase::Draining, 7, 2));
        let again: Value = serde_json::from_str(&text(&state)).expect("it is JSON");
        assert_eq!(again, serde_json::from_str::<Value>(written).expect("it is JSON"));
        assert_eq!(read::<State>("s", &text(&state)), Ok(state));
    }

    #[test]
    fn the_first_version_left_things_out() {
        let state: State = read(
            "s",
            r#"{"phase":"Armed","policy":"p","epoch":1,"since":"2026-01-02T03:04:05Z"}"#,
        )
        .expect("it can be read");
        assert_eq!((state.attempt, state.cordoned, state.deadline), (1, false, None));
    }

    #[test]
    fn a_phase_that_is_not_known_is_told_with_the_annotation() {
        let told = read::<State>("example.com/state", r#"{"phase":"Levitating"}"#).expect_err("not known");
        let told = told.to_string();
        assert!(
            told.starts_with("annotation `example.com/state` cannot be read"),
            "{told}"
        );
        assert!(told.contains("Levitating"), "{told}");
    }

    #[test]
    fn clip_bounds_texts_of_others() {
        assert_eq!(clip("kernel 6.18"), "kernel 6.18");
        assert_eq!(clip("a\nb\u{1b}[2Jc"), "a b [2Jc");
        assert_eq!(clip(&"é".repeat(1024)), "é".repeat(1024));
        assert_eq!(clip(&"é".repeat(1025)), format!("{}…", "é".repeat(1024)));
        let long = format!(r#"{{"epoch":"{}"}}"#, "x".repeat(100_000));
        let error = read::<Order>("o", &long).expect_err("not a number");
        assert!(error.why.len() < 1100, "{}", error.why.len());
    }

    #[test]
    fn a_prefix_is_a_domain() {
        let names = Names::new("reboot.example.com").expect("a domain");
        assert_eq!(names.needed, "reboot.example.com/reboot-needed");
        for wrong in ["", "a/b", "Reboot", "a b"] {
            assert!(Names::new(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// People can write anything there.
        #[test]
        fn no_text_is_too_much(text in ".*", json in "\\{.{0,40}\\}") {
            let _ = (read::<State>("s", &text), read::<Order>("o", &json), read::<Progress>("p", &json));
        }
    }
}
