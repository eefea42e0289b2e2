//! Transcripts: the observed changes by object and step, normalized so that runs can be compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::PathBuf,
};

use anyhow::{Context as _, Result, ensure};

use crate::rollouts::watcher::Change;

/// Set to `1` to add the transcripts of a real control plane to the recordings, instead of comparing with them.
const RECORD: &str = "WINDLASS_RECORD";

/// How many states of one object may be missed in one step.
const MAX_MISSED: usize = 2;

/// How many states may combine two recorded ones.
const MAX_COMBINED: usize = 1;

/// The changes of one object in one step.
type Changes = Vec<String>;

/// By object and step, the variants that were observed on a real control plane. There may be several, because its
/// controllers race.
type Recording = BTreeMap<String, BTreeSet<Changes>>;

/// How much of a transcript is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Every state of every object.
    States,
    /// Only decisions: with several concurrent controllers, the intermediate statuses that one sees of another are random.
    Decisions,
}

/// Compares the observed changes with the recording, or records them.
///
/// A real control plane may show a variant that was not recorded, so only its final states are compared.
pub(crate) fn compare(
    case: &str,
    is_real: bool,
    detail: Detail,
    seen: &[Change],
    chance: &[String],
) -> Result<()> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/rollouts/recorded")
        .join(format!("{case}.json"));
    let transcript = build_transcript(seen, chance, detail);
    if is_real && std::env::var(RECORD).is_ok_and(|value| value == "1") {
        let before = std::fs::read(&file).ok();
        let before = before.map(|text| serde_json::from_slice(&text)).transpose()?;
        let mut text = serde_json::to_string_pretty(&add(before, transcript))?;
        text.push('\n');
        return Ok(std::fs::write(&file, text)?);
    }
    let text = std::fs::read(&file).with_context(|| format!("no recording {}", file.display()))?;
    let recording: Recording = serde_json::from_slice(&text)?;
    let mut report = String::new();
    let titles: BTreeSet<_> = recording.keys().chain(transcript.keys()).collect();
    for title in titles {
        let observed = transcript.get(title).cloned().unwrap_or_default();
        let variants = recording.get(title).cloned().unwrap_or_default();
        let fits = |variant: &Changes| {
            if is_real {
                variant.last() == observed.last()
            } else {
                matches_variant(&observed, variant)
            }
        };
        if !variants.iter().any(fits) {
            let _ = writeln!(report, "{title}");
            for line in &observed {
                let _ = writeln!(report, "  was   {line}");
            }
            for variant in &variants {
                let _ = writeln!(report, "  recorded");
                for line in variant {
                    let _ = writeln!(report, "        {line}");
                }
            }
        }
    }
    ensure!(report.is_empty(), "no recorded variant matches:\n{report}");
    Ok(())
}

/// Whether the changes match a recorded variant. A few states may be missing, because another one followed quickly, but not
/// the last one. If two controllers write at the same time, one state may combine two recorded ones.
fn matches_variant(observed: &[String], variant: &[String]) -> bool {
    let (mut rest, mut matched) = (variant, 0);
    for line in observed {
        if let Some(at) = rest.iter().position(|state| state == line) {
            rest = &rest[at + 1..];
            matched += 1;
        }
    }
    let together = observed.len() - matched;
    observed.last() == variant.last()
        && together <= MAX_COMBINED
        && variant.len() - matched <= MAX_MISSED + together
}

/// Adds a transcript to the recording. An object and step that is missing in one of them counts as empty there.
fn add(before: Option<Recording>, mut transcript: BTreeMap<String, Changes>) -> Recording {
    let is_first = before.is_none();
    let mut recording = before.unwrap_or_default();
    for (title, variants) in &mut recording {
        variants.insert(transcript.remove(title).unwrap_or_default());
    }
    for (title, changes) in transcript {
        let variants = recording.entry(title).or_default();
        variants.insert(changes);
        if !is_first {
            variants.insert(Changes::new());
        }
    }
    recording
}

/// Builds the transcript. `chance` are names that differ in every run.
fn build_transcript(seen: &[Change], chance: &[String], detail: Detail) -> BTreeMap<String, Changes> {
    let names = Replacements::of(seen, chance);
    let mut transcript: BTreeMap<String, Changes> = BTreeMap::new();
    let mut pods: BTreeMap<&str, (String, Changes)> = BTreeMap::new();
    let (mut step, mut number) = (String::new(), 0);
    for Change {
        kind,
        name,
        text,
        decision,
    } in seen
    {
        if kind.is_empty() {
            number += 1;
            step = format!("{number:02} {text}");
            continue;
        }
        let (line, plain_name) = (names.normalize(text), names.normalize(name));
        match kind.as_str() {
            "Event" => transcript
                .entry(format!("Events, {step}"))
                .or_default()
                .push(line),
            // Pods of one owner are interchangeable, and their order is random. So a step only counts created and deleted
            // pods, and the states of each pod are compared separately.
            "Pod" => {
                for verb in ["ADDED", "DELETED"]
                    .into_iter()
                    .filter(|verb| line.starts_with(verb))
                {
                    let title = format!("Pods {plain_name}, {step}");
                    transcript.entry(title).or_default().push(verb.to_owned());
                }
                let (_, states) = pods.entry(name).or_insert_with(|| (plain_name, Changes::new()));
                states.push(line);
            }
            kind => {
                let changes = transcript
                    .entry(format!("{kind} {plain_name}, {step}"))
                    .or_default();
                if detail == Detail::Decisions {
                    // Only the last state is complete, since it is deterministic.
                    changes.pop();
                    let decision = names.normalize(decision);
                    if changes.last() != Some(&decision) {
                        changes.push(decision);
                    }
                }
                changes.push(line);
            }
        }
    }
    for (title, changes) in &mut transcript {
        if title.starts_with("Event") || title.starts_with("Pods") {
            changes.sort();
        }
        if title.starts_with("Event") {
            changes.dedup();
        }
    }
    let mut histories: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, history) in pods.into_values() {
        histories.entry(name).or_default().insert(history.join(", "));
    }
    for (name, histories) in histories {
        transcript.insert(format!("Lives of {name}"), histories.into_iter().collect());
    }
    transcript
}

/// Replacements for generated names.
struct Replacements(Vec<(String, String)>);

impl Replacements {
    fn of(seen: &[Change], chance: &[String]) -> Self {
        let mut names: Vec<(String, String)> = Vec::new();
        let mut pods = Vec::new();
        let mut made = BTreeMap::<String, usize>::new();
        for one in seen {
            let known = |name: &str| names.iter().any(|(known, _)| known == name);
            match one.kind.as_str() {
                "ReplicaSet" | "ControllerRevision" if !known(&one.name) => {
                    // Names that a test chooses have no dash.
                    let Some((base, hash)) = one.name.rsplit_once('-') else {
                        continue;
                    };
                    let number = made.entry(one.kind.clone()).or_default();
                    *number += 1;
                    names.push((one.name.clone(), format!("{base}-<{number}>")));
                    names.push((hash.to_owned(), format!("<{number}>")));
                }
                "Pod" if one.name.contains('-') => pods.push(one.name.clone()),
                _ => {}
            }
        }
        for pod in pods {
            let Some((owner, _)) = pod.rsplit_once('-') else {
                continue;
            };
            let owner = names
                .iter()
                .find(|(known, _)| known == owner)
                .map_or(owner, |(_, plain)| plain);
            names.push((pod.clone(), format!("{owner}-*")));
        }
        names.extend(chance.iter().map(|name| (name.clone(), "<chance>".to_owned())));
        // The longest first: a pod's name contains its ReplicaSet's.
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        names.dedup();
        Self(names)
    }

    fn normalize(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, plain) in &self.0 {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), plain);
            }
        }
        text
    }
}
