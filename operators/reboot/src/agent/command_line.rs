//! A command line that runs without a shell: agent images need none.

use std::{process::Stdio, str::FromStr, time::Duration};

use tokio::process::Command;

/// A program and its arguments.
///
/// Parsed from text: split at spaces, or a JSON list of strings if an argument contains spaces.
///
/// ```
/// use windlass_reboot::agent::CommandLine;
///
/// let plain: CommandLine = "/sbin/reboot --force".parse().unwrap();
/// let list: CommandLine = r#"["/sbin/reboot", "--force"]"#.parse().unwrap();
/// assert_eq!(plain, list);
/// assert!(" ".parse::<CommandLine>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    program: String,
    arguments: Vec<String>,
}

impl CommandLine {
    /// Creates a command line from a program and its arguments.
    pub fn new(program: impl Into<String>, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
        }
    }

    /// Runs the command, and kills it after `limit`. Returns its exit status and the last line of its stderr.
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
            .map_err(|error| format!("cannot start `{}`: {error}", self.program))?;
        match tokio::time::timeout(limit, child.wait_with_output()).await {
            Err(_) => Err(format!("`{}` did not finish within {limit:?}", self.program)),
            Ok(Err(error)) => Err(format!("`{}`: {error}", self.program)),
            Ok(Ok(output)) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let last = stderr.trim().lines().last().unwrap_or_default();
                Ok((output.status, last.chars().take(500).collect()))
            }
        }
    }
}

impl FromStr for CommandLine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<String> = if text.trim_start().starts_with('[') {
            serde_json::from_str(text).map_err(|error| format!("not a JSON list of strings: {error}"))?
        } else {
            text.split_whitespace().map(str::to_owned).collect()
        };
        let mut words = words.into_iter();
        let program = words
            .next()
            .filter(|word| !word.is_empty())
            .ok_or("the command is empty")?;
        Ok(Self::new(program, words))
    }
}

impl std::fmt::Display for CommandLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.program)?;
        self.arguments.iter().try_for_each(|word| write!(f, " {word}"))
    }
}
