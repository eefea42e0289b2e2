//! A story: what was seen, told object by object and step by step, in words that are the same each time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::PathBuf,
};

use anyhow::{Context as _, Result, ensure};

use crate::watcher::Seen;

/// Set to `1` to add what a real control plane does to the recordings, instead of comparing with them.
const RECORD: &str = "WINDLASS_RECORD";

/// How many states of one object may go by unseen in one step.
const MAY_BE_MISSED: usize = 2;

/// How many states may be two recorded ones at once.
const MAY_BE_TOGETHER: usize = 1;

/// What happened to one object in one step.
type Chapter = Vec<String>;

/// By object and step, the ways in which a real control plane was seen to go. Its controllers race each other, so that
/// there may be several.
type Recording = BTreeMap<String, BTreeSet<Chapter>>;

/// How much of a story is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Every state of every object.
    States,
    /// What was decided: where several controllers act at the same time, how much each has told of itself when another
    /// looks is chance.
    Decisions,
}

/// Compares what was seen with what was recorded, or records it.
///
/// A real control plane may have a way that it did not go while it was recorded: of it, only where it gets to is compared.
pub(crate) fn compare(
    case: &str,
    is_real: bool,
    detail: Detail,
    seen: &[Seen],
    chance: &[String],
) -> Result<()> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/rollouts/recorded")
        .join(format!("{case}.json"));
    let story = tell(seen, chance, detail);
    if is_real && std::env::var(RECORD).is_ok_and(|value| value == "1") {
        let before = std::fs::read(&file).ok();
        let before = before.map(|text| serde_json::from_slice(&text)).transpose()?;
        let mut text = serde_json::to_string_pretty(&add(before, story))?;
        text.push('\n');
        return Ok(std::fs::write(&file, text)?);
    }
    let text = std::fs::read(&file).with_context(|| format!("no recording {}", file.display()))?;
    let recording: Recording = serde_json::from_slice(&text)?;
    let mut report = String::new();
    let titles: BTreeSet<_> = recording.keys().chain(story.keys()).collect();
    for title in titles {
        let told = story.get(title).cloned().unwrap_or_default();
        let ways = recording.get(title).cloned().unwrap_or_default();
        let fits = |way: &Chapter| {
            if is_real {
                way.last() == told.last()
            } else {
                follows(&told, way)
            }
        };
        if !ways.iter().any(fits) {
            let _ = writeln!(report, "{title}");
            for line in &told {
                let _ = writeln!(report, "  was   {line}");
            }
            for way in &ways {
                let _ = writeln!(report, "  recorded");
                for line in way {
                    let _ = writeln!(report, "        {line}");
                }
            }
        }
    }
    ensure!(
        report.is_empty(),
        "it went another way than any that was recorded:\n{report}"
    );
    Ok(())
}

/// Whether it went this way. A state may be missing if another followed before anybody looked, but not the last, nor many;
/// and where two controllers write at the same time, two steps may be seen together in one state that nobody recorded.
fn follows(told: &[String], way: &[String]) -> bool {
    let (mut rest, mut matched) = (way, 0);
    for line in told {
        if let Some(at) = rest.iter().position(|state| state == line) {
            rest = &rest[at + 1..];
            matched += 1;
        }
    }
    let together = told.len() - matched;
    told.last() == way.last()
        && together <= MAY_BE_TOGETHER
        && way.len() - matched <= MAY_BE_MISSED + together
}

/// The recording with one more story. A chapter that is missing in one of them is an empty one there.
fn add(before: Option<Recording>, mut story: BTreeMap<String, Chapter>) -> Recording {
    let is_first = before.is_none();
    let mut recording = before.unwrap_or_default();
    for (title, ways) in &mut recording {
        ways.insert(story.remove(title).unwrap_or_default());
    }
    for (title, chapter) in story {
        let ways = recording.entry(title).or_default();
        ways.insert(chapter);
        if !is_first {
            ways.insert(Chapter::new());
        }
    }
    recording
}

/// `chance` are names that differ each time, and mean nothing.
fn tell(seen: &[Seen], chance: &[String], detail: Detail) -> BTreeMap<String, Chapter> {
    let names = Names::of(seen, chance);
    let mut story: BTreeMap<String, Chapter> = BTreeMap::new();
    let mut pods: BTreeMap<&str, (String, Chapter)> = BTreeMap::new();
    let (mut step, mut number) = (String::new(), 0);
    for Seen {
        kind,
        name,
        what,
        decision,
    } in seen
    {
        if kind.is_empty() {
            number += 1;
            step = format!("{number:02} {what}");
            continue;
        }
        let (line, name_told) = (names.plain(what), names.plain(name));
        match kind.as_str() {
            "Event" => story.entry(format!("Events, {step}")).or_default().push(line),
            // Pods of one owner are alike, and which of them goes first is chance: each has a life, and a step so many
            // that come and go.
            "Pod" => {
                for verb in ["ADDED", "DELETED"]
                    .into_iter()
                    .filter(|verb| line.starts_with(verb))
                {
                    let title = format!("Pods {name_told}, {step}");
                    story.entry(title).or_default().push(verb.to_owned());
                }
                let (_, states) = pods.entry(name).or_insert_with(|| (name_told, Chapter::new()));
                states.push(line);
            }
            kind => {
                let chapter = story.entry(format!("{kind} {name_told}, {step}")).or_default();
                if detail == Detail::Decisions {
                    // All but the last state: where it gets to is certain.
                    chapter.pop();
                    let decision = names.plain(decision);
                    if chapter.last() != Some(&decision) {
                        chapter.push(decision);
                    }
                }
                chapter.push(line);
            }
        }
    }
    for (title, chapter) in &mut story {
        if title.starts_with("Event") || title.starts_with("Pods") {
            chapter.sort();
        }
        if title.starts_with("Event") {
            chapter.dedup();
        }
    }
    let mut lives: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, life) in pods.into_values() {
        lives.entry(name).or_default().insert(life.join(", "));
    }
    for (name, lives) in lives {
        story.insert(format!("Lives of {name}"), lives.into_iter().collect());
    }
    story
}

/// What stands for each name that was made by chance.
struct Names(Vec<(String, String)>);

impl Names {
    fn of(seen: &[Seen], chance: &[String]) -> Self {
        let mut names: Vec<(String, String)> = Vec::new();
        let mut pods = Vec::new();
        let mut made = BTreeMap::<String, usize>::new();
        for one in seen {
            let known = |name: &str| names.iter().any(|(known, _)| known == name);
            match one.kind.as_str() {
                "ReplicaSet" | "ControllerRevision" if !known(&one.name) => {
                    // What a test names itself has no dash.
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

    fn plain(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, plain) in &self.0 {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), plain);
            }
        }
        text
    }
}
