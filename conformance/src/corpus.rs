//! Where scenarios and recordings are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Scenario;

/// Which scenarios are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shelf {
    /// Those that the embedded server passes.
    Scenarios,
    /// Those that it does not pass yet.
    Ahead,
}

/// The folder of this crate.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All scenarios of a shelf in order of their names; only the named ones if there are names. A name ending in `-`
/// stands for all that start with it.
pub fn scenarios(shelf: Shelf, names: &[String]) -> Result<Vec<Scenario>> {
    let folder = root().join(match shelf {
        Shelf::Scenarios => "scenarios",
        Shelf::Ahead => "ahead",
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

/// Moves a scenario that the embedded server passes to those that it must pass.
pub fn promote(name: &str) -> Result<()> {
    let file = format!("{name}.yaml");
    let (from, to) = (
        root().join("ahead").join(&file),
        root().join("scenarios").join(&file),
    );
    fs::rename(&from, &to).with_context(|| format!("cannot move {}", from.display()))
}

fn recording(name: &str) -> PathBuf {
    root().join("recordings").join(format!("{name}.json"))
}

/// What the real server said.
pub fn load(name: &str) -> Result<Vec<Value>> {
    let path = recording(name);
    let text = fs::read_to_string(&path).with_context(|| {
        format!("{name} was never recorded: cargo run -p windlass-conformance -- record {name}")
    })?;
    serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
}

/// Keeps what the real server said.
pub fn store(name: &str, outcomes: &[Value]) -> Result<()> {
    ensure_complete(name, outcomes)?;
    let path = recording(name);
    fs::create_dir_all(path.parent().expect("it lies in a folder"))?;
    let mut text = serde_json::to_string_pretty(outcomes)?;
    text.push('\n');
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// A scenario that a real server does not come to the end of is wrong.
fn ensure_complete(name: &str, outcomes: &[Value]) -> Result<()> {
    let problem = outcomes.iter().find(|outcome| !outcome["problem"].is_null());
    ensure!(
        problem.is_none(),
        "{name} is wrong, the real server did not come to its end: {}",
        serde_json::to_string_pretty(&problem)?
    );
    Ok(())
}
