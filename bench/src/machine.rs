//! The machine and the tools that figures are from: without them they mean nothing.

use std::{fs, process::Command};

use serde::{Deserialize, Serialize};

/// Where a run was; what could not be found out is empty.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// The processor's name for itself.
    pub processor: String,
    /// How many cores this process may use.
    pub cores: usize,
    /// Memory in gigabytes.
    pub memory_gigabytes: f64,
    /// The kernel's name and version.
    pub kernel: String,
    /// The Rust compiler.
    pub rustc: String,
    /// The Go compiler, which made the rivals.
    pub go: String,
    /// How busy the machine was in the minute before: much more than nothing spoils the figures.
    pub load: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processors
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = memory.lines().find_map(|line| {
            let rest = line.strip_prefix("MemTotal:")?;
            rest.split_whitespace().next()?.parse::<f64>().ok()
        });
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            processor: processor
                .map(|name| name.trim_start_matches(['\t', ' ', ':']).to_owned())
                .unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gigabytes: (kilobytes.unwrap_or(0.0) / 1024.0 / 1024.0).round(),
            kernel: said("uname", &["-sr"]),
            rustc: said("rustc", &["--version"]),
            go: said("go", &["version"]),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }

    /// In a line.
    pub fn line(&self) -> String {
        let Self {
            processor,
            cores,
            memory_gigabytes,
            kernel,
            rustc,
            go,
            load,
        } = self;
        format!(
            "{processor}, {cores} cores, {memory_gigabytes} GB, {kernel}; {rustc}; {go}; load before: {load}"
        )
    }
}

/// What a program prints; nothing if there is none.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().trim().to_owned()
}
