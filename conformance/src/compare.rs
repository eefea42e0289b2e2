//! Compares outcomes with the recorded ones, apart from intentional differences.

use std::{collections::BTreeSet, fmt, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// A difference between two outcomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Name of the step.
    pub step: String,
    /// JSON pointer into the step's outcome.
    pub pointer: String,
    /// The recorded value of the real server; `None` if absent.
    pub expected: Option<Value>,
    /// The value of this run; `None` if absent.
    pub got: Option<Value>,
}

/// Returns all differences between the outcomes of a run and the recorded ones.
pub fn compare(expected: &[Value], got: &[Value]) -> Vec<Difference> {
    let mut found = Vec::new();
    let named =
        |outcomes: &[Value], step: &str| outcomes.iter().find(|outcome| outcome["step"] == step).cloned();
    let steps: BTreeSet<_> = expected
        .iter()
        .filter_map(|outcome| outcome["step"].as_str())
        .collect();
    let mut in_order: Vec<_> = expected
        .iter()
        .filter_map(|outcome| outcome["step"].as_str())
        .collect();
    in_order.extend(
        got.iter()
            .filter_map(|outcome| outcome["step"].as_str())
            .filter(|step| !steps.contains(step)),
    );
    for step in in_order {
        let mut differ = |pointer: String, expected, got| {
            found.push(Difference {
                step: step.to_owned(),
                pointer,
                expected,
                got,
            });
        };
        walk(
            "",
            named(expected, step).as_ref(),
            named(got, step).as_ref(),
            &mut differ,
        );
    }
    found
}

fn walk(
    pointer: &str,
    expected: Option<&Value>,
    got: Option<&Value>,
    differ: &mut impl FnMut(String, Option<Value>, Option<Value>),
) {
    match (expected, got) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let key_text = key.replace('~', "~0").replace('/', "~1");
                walk(&format!("{pointer}/{key_text}"), a.get(key), b.get(key), differ);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                walk(&format!("{pointer}/{index}"), a.get(index), b.get(index), differ);
            }
        }
        (a, b) if a == b => {}
        (a, b) => differ(pointer.to_owned(), a.cloned(), b.cloned()),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  [{}] {}", self.step, self.pointer)?;
        writeln!(f, "    - {}", truncated(self.expected.as_ref()))?;
        write!(f, "    + {}", truncated(self.got.as_ref()))
    }
}

/// Differences, formatted for developers.
#[derive(Debug)]
pub struct Summary {
    /// How many steps differ.
    pub steps: usize,
    /// One entry per difference. A step with another status code has only one, because the rest of it differs anyway.
    pub lines: Vec<String>,
}

/// Formats differences; see [`Summary`].
pub fn summary(expected: &[Value], got: &[Value], differences: &[Difference]) -> Summary {
    let mut lines = Vec::new();
    let mut steps = Vec::new();
    for difference in differences {
        if !steps.contains(&&difference.step) {
            steps.push(&difference.step);
        } else if status_differs(differences, &difference.step) {
            continue;
        }
        if status_differs(differences, &difference.step) {
            let gist = |outcomes: &[Value]| {
                let outcome = outcomes
                    .iter()
                    .find(|outcome| outcome["step"] == *difference.step);
                let body = outcome.and_then(|outcome| outcome.get("body"));
                let message = body.and_then(|body| body.get("message")).or(body);
                format!(
                    "{} {}",
                    truncated(outcome.map(|outcome| &outcome["status"])),
                    truncated(message)
                )
            };
            lines.push(format!(
                "  [{}]\n    - {}\n    + {}",
                difference.step,
                gist(expected),
                gist(got)
            ));
        } else {
            lines.push(difference.to_string());
        }
    }
    let steps = steps.len();
    Summary { steps, lines }
}

fn status_differs(differences: &[Difference], step: &str) -> bool {
    differences
        .iter()
        .any(|difference| difference.step == step && difference.pointer == "/status")
}

/// Truncates long values; the recording has the full ones.
fn truncated(value: Option<&Value>) -> String {
    const MAX_LENGTH: usize = 400;
    let text = value.map_or_else(|| "(absent)".to_owned(), Value::to_string);
    match text.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The intentional differences: `differences.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntentionalDifferences {
    #[serde(default)]
    difference: Vec<IntentionalDifference>,
}

/// An intentional difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntentionalDifference {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the step.
    pub step: String,
    /// JSON pointer into the step's outcome; covers everything below it.
    pub pointer: String,
    /// Why the servers differ here on purpose.
    pub reason: String,
}

impl IntentionalDifferences {
    /// Reads the file. Every entry must have a reason.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let all: Self = toml::from_str(&text).with_context(|| format!("invalid file {}", path.display()))?;
        let without_reason = all.difference.iter().find(|entry| entry.reason.trim().is_empty());
        anyhow::ensure!(
            without_reason.is_none(),
            "a difference needs a reason: {without_reason:?}"
        );
        Ok(all)
    }

    /// Returns the differences that are not intentional, and the entries for `scenario` that match no difference.
    pub fn apply(
        &self,
        scenario: &str,
        found: Vec<Difference>,
    ) -> (Vec<Difference>, Vec<IntentionalDifference>) {
        let mut unused: Vec<_> = self
            .difference
            .iter()
            .filter(|entry| entry.scenario == scenario)
            .cloned()
            .collect();
        let mine = unused.clone();
        let remaining = found
            .into_iter()
            .filter(|difference| {
                let covers: Vec<_> = mine.iter().filter(|entry| entry.covers(difference)).collect();
                unused.retain(|entry| {
                    !covers
                        .iter()
                        .any(|used| used.pointer == entry.pointer && used.step == entry.step)
                });
                covers.is_empty()
            })
            .collect();
        (remaining, unused)
    }

    /// Returns the names of the scenarios that have entries.
    pub fn scenarios(&self) -> impl Iterator<Item = &str> {
        self.difference.iter().map(|entry| entry.scenario.as_str())
    }
}

impl IntentionalDifference {
    fn covers(&self, difference: &Difference) -> bool {
        let below = difference.pointer.strip_prefix(&self.pointer);
        self.step == difference.step && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_null_and_empty_are_different() {
        let values = [
            json!({"step": "a"}),
            json!({"step": "a", "x": null}),
            json!({"step": "a", "x": {}}),
        ];
        for (i, a) in values.iter().enumerate() {
            for (j, b) in values.iter().enumerate() {
                let found = compare(std::slice::from_ref(a), std::slice::from_ref(b));
                assert_eq!(found.is_empty(), i == j, "{a} and {b}");
            }
        }
    }

    #[test]
    fn entry_covers_everything_below_its_pointer_and_unused_entries_are_reported() {
        let all: IntentionalDifferences = toml::from_str(
            r#"
            [[difference]]
            scenario = "s"
            step = "a"
            pointer = "/body/x"
            reason = "because"
            [[difference]]
            scenario = "s"
            step = "a"
            pointer = "/body/gone"
            reason = "because"
            "#,
        )
        .unwrap();
        let expected = [json!({"step": "a", "body": {"x": {"y": 1}, "xy": 1}})];
        let got = [json!({"step": "a", "body": {"x": {"y": 2}, "xy": 2}})];
        let (remaining, unused) = all.apply("s", compare(&expected, &got));
        assert_eq!(remaining.len(), 1);
        assert_eq!(remaining[0].pointer, "/body/xy");
        assert_eq!(unused.len(), 1);
        assert_eq!(unused[0].pointer, "/body/gone");
    }
}
