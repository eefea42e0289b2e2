//! The known differences, by case and with a reason: a test fails for one that is not in the file, and for an entry that does not
//! differ any more.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::Failed;
use serde::Deserialize;

/// How many unknown differences a failure shows.
const SHOWN: usize = 40;

/// Characters of a case's name.
const LONGEST_NAME: usize = 100;

#[derive(Deserialize)]
struct File {
    difference: Vec<Entry>,
}

/// A cause, and the cases in which it shows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The recording: `expressions`, `rules` or `validations`.
    recording: String,
    /// What differs first: `value`, `cost`, `error text`, ….
    part: String,
    /// Why that is accepted.
    reason: String,
    /// The cases, with their group.
    cases: BTreeSet<String>,
}

/// The comparison of the cases of a recording.
pub(super) struct Differences {
    recording: &'static str,
    /// The cases that are known to differ, and in which part.
    known: BTreeMap<String, String>,
    cases: usize,
    equal: usize,
    seen: BTreeSet<String>,
    unknown: Vec<String>,
}

impl Differences {
    pub(super) fn of(recording: &'static str) -> Result<Self, Failed> {
        let file: File = toml::from_str(include_str!("differences.toml"))?;
        let entries = file.difference.into_iter();
        let mut known = BTreeMap::new();
        for entry in entries.filter(|entry| entry.recording == recording) {
            if entry.reason.is_empty() {
                return Err(format!("no reason for {:?}", entry.cases).into());
            }
            known.extend(entry.cases.into_iter().map(|case| (case, entry.part.clone())));
        }
        Ok(Self {
            recording,
            known,
            cases: 0,
            equal: 0,
            seen: BTreeSet::new(),
            unknown: Vec::new(),
        })
    }

    /// Counts a case: what differs first, and how; `None` if nothing does.
    pub(super) fn add(&mut self, case: &str, difference: Option<(&str, String)>) {
        let case = &name(case);
        self.cases += 1;
        let Some((part, details)) = difference else {
            self.equal += 1;
            return;
        };
        if self.known.get(case).is_some_and(|known| known == part) {
            self.seen.insert(case.to_owned());
        } else {
            self.unknown.push(format!("{part}: {case}\n{details}"));
        }
    }

    /// Fails if there are no cases, other differences than those of the file, or fewer.
    pub(super) fn finish(self) -> Result<(), Failed> {
        let Self { cases, equal, .. } = self;
        eprintln!("{:24} {equal:5} of {cases:5} equal", self.recording);
        if cases == 0 {
            return Err("no cases were recorded".into());
        }
        if !self.unknown.is_empty() {
            let shown: Vec<_> = self.unknown.iter().take(SHOWN).map(String::as_str).collect();
            let count = self.unknown.len();
            return Err(format!("{count} unknown differences:\n{}", shown.join("\n")).into());
        }
        let stale: Vec<_> = self
            .known
            .keys()
            .filter(|case| !self.seen.contains(*case))
            .collect();
        if !stale.is_empty() {
            return Err(format!("not different any more: {stale:#?}").into());
        }
        Ok(())
    }
}

/// The name of a case: one line, which begins like it.
fn name(case: &str) -> String {
    let line = case.replace('\n', "⏎");
    match line.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}… ({} bytes)", &line[..end], case.len()),
        None => line,
    }
}
