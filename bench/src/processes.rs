//! CPU time and memory of other processes, from Linux's `/proc`. Other systems have no values.

use std::{fs, path::Path};

use anyhow::Context;

/// Returns the resident memory of a process.
pub fn resident_megabytes(process: u32) -> anyhow::Result<f64> {
    status(process, "VmRSS")
}

/// Returns the peak of its resident memory since [`reset_peak`].
pub fn peak_megabytes(process: u32) -> anyhow::Result<f64> {
    status(process, "VmHWM")
}

/// Resets the peak to the current value.
pub fn reset_peak(process: u32) {
    // If this is not permitted, the peak covers the whole life of the process, which is never too favourable.
    fs::write(format!("/proc/{process}/clear_refs"), "5").ok();
}

/// Returns the CPU time of all threads of a process in microseconds. Linux counts in hundredths of a second.
pub fn cpu_micros(process: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).context(path)?;
    // The program's name is in brackets and may contain anything; the times are the 12th and 13th fields after it.
    let (_, after) = stat
        .rsplit_once(')')
        .context("invalid /proc/PID/stat: no name in brackets")?;
    let ticks = after.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? * 10_000.0)
}

fn status(process: u32, field: &str) -> anyhow::Result<f64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).context(path)?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes: f64 = line
        .and_then(|line| line.trim_start_matches(':').split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("/proc/{process}/status has no {field}"))?;
    Ok(kilobytes / 1024.0)
}

/// Returns the processes with `folder` in their arguments, such as a control plane's servers that keep their files
/// there.
pub fn processes_of(folder: &Path) -> Vec<u32> {
    let folder = folder.to_string_lossy().into_owned();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|number| *number != std::process::id())
        .filter(|number| {
            let arguments = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let arguments = String::from_utf8_lossy(&arguments);
            let program = arguments.split('\0').next().unwrap_or_default();
            (program.ends_with("/etcd") || program.ends_with("/kube-apiserver"))
                && arguments.contains(&folder)
        })
        .collect()
}
