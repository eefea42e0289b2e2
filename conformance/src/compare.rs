//! Compares what happened with what was recorded, and knows the differences that are meant to be.

use std::{collections::BTreeSet, fmt, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// One place where two outcomes differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The step.
    pub step: String,
    /// Where in its outcome, as a JSON pointer.
    pub pointer: String,
    /// What the real server said; none if it said nothing there.
    pub expected: Option<Value>,
    /// What was said now.
    pub got: Option<Value>,
}

/// All places where the outcomes of a run differ from the recorded ones.
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
        writeln!(f, "    - {}", shown(self.expected.as_ref()))?;
        write!(f, "    + {}", shown(self.got.as_ref()))
    }
}

/// The differences as a developer reads them.
#[derive(Debug)]
pub struct Summary {
    /// How many steps differ.
    pub steps: usize,
    /// One entry a difference; a step with another status has one in all, because nothing else in it can be the same.
    pub lines: Vec<String>,
}

/// See [`Summary`].
pub fn summary(expected: &[Value], got: &[Value], differences: &[Difference]) -> Summary {
    let mut lines = Vec::new();
    let mut steps = Vec::new();
    for difference in differences {
        if !steps.contains(&&difference.step) {
            steps.push(&difference.step);
        } else if other_status(differences, &difference.step) {
            continue;
        }
        if other_status(differences, &difference.step) {
            let gist = |outcomes: &[Value]| {
                let outcome = outcomes
                    .iter()
                    .find(|outcome| outcome["step"] == *difference.step);
                let body = outcome.and_then(|outcome| outcome.get("body"));
                let message = body.and_then(|body| body.get("message")).or(body);
                format!(
                    "{} {}",
                    shown(outcome.map(|outcome| &outcome["status"])),
                    shown(message)
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

fn other_status(differences: &[Difference], step: &str) -> bool {
    differences
        .iter()
        .any(|difference| difference.step == step && difference.pointer == "/status")
}

/// Long values are cut: whoever needs all of it finds it in the recording.
fn shown(value: Option<&Value>) -> String {
    const ENOUGH: usize = 400;
    let text = value.map_or_else(|| "(absent)".to_owned(), Value::to_string);
    match text.char_indices().nth(ENOUGH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The differences that are meant to be: `differences.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differences {
    #[serde(default)]
    difference: Vec<Meant>,
}

/// One of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meant {
    /// Which scenario.
    pub scenario: String,
    /// Which step of it.
    pub step: String,
    /// The JSON pointer in the step's outcome; everything below it is meant too.
    pub pointer: String,
    /// Why it is right that the servers differ here.
    pub reason: String,
}

impl Differences {
    /// Reads the file. A reason must be given for each.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let all: Self = toml::from_str(&text).with_context(|| format!("{} is wrong", path.display()))?;
        let silent = all.difference.iter().find(|meant| meant.reason.trim().is_empty());
        anyhow::ensure!(silent.is_none(), "a difference has no reason: {silent:?}");
        Ok(all)
    }

    /// Which of `found` are not meant, and which entries for `scenario` excuse nothing.
    pub fn apply(&self, scenario: &str, found: Vec<Difference>) -> (Vec<Difference>, Vec<Meant>) {
        let mut unused: Vec<_> = self
            .difference
            .iter()
            .filter(|meant| meant.scenario == scenario)
            .cloned()
            .collect();
        let mine = unused.clone();
        let remaining = found
            .into_iter()
            .filter(|difference| {
                let covers: Vec<_> = mine.iter().filter(|meant| meant.covers(difference)).collect();
                unused.retain(|meant| {
                    !covers
                        .iter()
                        .any(|used| used.pointer == meant.pointer && used.step == meant.step)
                });
                covers.is_empty()
            })
            .collect();
        (remaining, unused)
    }

    /// The scenarios that are named.
    pub fn scenarios(&self) -> impl Iterator<Item = &str> {
        self.difference.iter().map(|meant| meant.scenario.as_str())
    }
}

impl Meant {
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
    fn an_entry_excuses_what_is_below_it_and_an_unused_one_is_reported() {
        let all: Differences = toml::from_str(
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
