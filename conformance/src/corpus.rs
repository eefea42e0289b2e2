//! Files of scenarios and recordings.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Scenario;

/// A folder of scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioFolder {
    /// Scenarios that the embedded server passes.
    Scenarios,
    /// Scenarios that it does not pass yet.
    Pending,
}

/// Returns the folder of this crate.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Reads the scenarios of a folder, sorted by name: all, or only the named ones. A name that ends in `-` matches as a
/// prefix.
pub fn scenarios(folder_kind: ScenarioFolder, names: &[String]) -> Result<Vec<Scenario>> {
    let folder = root().join(match folder_kind {
        ScenarioFolder::Scenarios => "scenarios",
        ScenarioFolder::Pending => "pending",
    });
    let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
        Ok(entries) => entries
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<_>>()?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", folder.display())),
    };
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort_unstable();
    let wanted = |file: &Path| {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        names.is_empty()
            || names
                .iter()
                .any(|name| *name == stem || name.ends_with('-') && stem.starts_with(name.as_str()))
    };
    files
        .iter()
        .filter(|file| wanted(file))
        .map(|file| Scenario::read(file))
        .collect()
}

/// Moves a scenario from `pending/` to `scenarios/`.
pub fn promote(name: &str) -> Result<()> {
    let file = format!("{name}.yaml");
    let (from, to) = (
        root().join("pending").join(&file),
        root().join("scenarios").join(&file),
    );
    fs::rename(&from, &to).with_context(|| format!("cannot move {}", from.display()))
}

fn recording(name: &str) -> PathBuf {
    root().join("recordings").join(format!("{name}.json"))
}

/// Reads the recorded outcomes of the real server.
pub fn load(name: &str) -> Result<Vec<Value>> {
    let path = recording(name);
    let text = fs::read_to_string(&path).with_context(|| {
        format!("{name} has no recording: run `cargo run -p windlass-conformance -- record {name}`")
    })?;
    serde_json::from_str(&text).with_context(|| format!("invalid recording {}", path.display()))
}

/// Stores the outcomes of the real server.
pub fn store(name: &str, outcomes: &[Value]) -> Result<()> {
    ensure_complete(name, outcomes)?;
    let path = recording(name);
    fs::create_dir_all(path.parent().expect("the path has a parent"))?;
    let mut text = serde_json::to_string_pretty(outcomes)?;
    text.push('\n');
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Checks that the real server got to the end of the scenario; otherwise the scenario is wrong.
fn ensure_complete(name: &str, outcomes: &[Value]) -> Result<()> {
    let problem = outcomes.iter().find(|outcome| !outcome["problem"].is_null());
    ensure!(
        problem.is_none(),
        "invalid scenario {name}: the real server did not complete it: {}",
        serde_json::to_string_pretty(&problem)?
    );
    Ok(())
}
