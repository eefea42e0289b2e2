//! The machine and tools of a run, without which its results mean nothing.

use std::{fs, process::Command};

use serde::{Deserialize, Serialize};

/// The machine of a run; unknown values are empty.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub processor: String,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Memory in gigabytes.
    pub memory_gigabytes: f64,
    /// Name and version of the kernel.
    pub kernel: String,
    /// Version of the Rust compiler.
    pub rustc: String,
    /// Version of the Go compiler, which builds the rivals.
    pub go: String,
    /// Load average of the minute before the run; anything much above zero distorts the results.
    pub load: String,
}

impl Machine {
    /// Describes this machine.
    pub fn current() -> Self {
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
            kernel: output_of("uname", &["-sr"]),
            rustc: output_of("rustc", &["--version"]),
            go: output_of("go", &["version"]),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }

    /// Formats the description as one line.
    pub fn summary(&self) -> String {
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

/// Returns the output of a program; empty if it does not exist.
fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().trim().to_owned()
}
