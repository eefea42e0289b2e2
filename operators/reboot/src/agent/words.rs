//! A command line without a shell: images of agents need none.

use std::{process::Stdio, str::FromStr, time::Duration};

use tokio::process::Command;

/// A program and its arguments.
///
/// From text: split at spaces, or a JSON list of words where one of them has spaces in it.
///
/// ```
/// use windlass_reboot::agent::Words;
///
/// let plain: Words = "/sbin/reboot --force".parse().unwrap();
/// let list: Words = r#"["/sbin/reboot", "--force"]"#.parse().unwrap();
/// assert_eq!(plain, list);
/// assert!(" ".parse::<Words>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    program: String,
    arguments: Vec<String>,
}

impl Words {
    /// This program, with these arguments.
    pub fn new(program: impl Into<String>, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
        }
    }

    /// Runs it to its end, for so long at most: then it is killed. The answer is how it ended, and what it complained of.
    pub(super) async fn run(&self, limit: Duration) -> Result<(std::process::ExitStatus, String), String> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let child = command
            .spawn()
            .map_err(|error| format!("`{}` cannot be started: {error}", self.program))?;
        match tokio::time::timeout(limit, child.wait_with_output()).await {
            Err(_) => Err(format!("`{}` takes longer than {limit:?}", self.program)),
            Ok(Err(error)) => Err(format!("`{}`: {error}", self.program)),
            Ok(Ok(output)) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let last = said.trim().lines().last().unwrap_or_default();
                Ok((output.status, last.chars().take(500).collect()))
            }
        }
    }
}

impl FromStr for Words {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<String> = if text.trim_start().starts_with('[') {
            serde_json::from_str(text).map_err(|error| format!("it is no JSON list of words: {error}"))?
        } else {
            text.split_whitespace().map(str::to_owned).collect()
        };
        let mut words = words.into_iter();
        let program = words
            .next()
            .filter(|word| !word.is_empty())
            .ok_or("a command has a program at least")?;
        Ok(Self::new(program, words))
    }
}

impl std::fmt::Display for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.program)?;
        self.arguments.iter().try_for_each(|word| write!(f, " {word}"))
    }
}
