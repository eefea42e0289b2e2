//! What other processes take, as Linux tells it. Elsewhere there are no figures.

use std::{fs, path::Path};

use anyhow::Context;

/// The resident memory of a process.
pub fn resident_megabytes(process: u32) -> anyhow::Result<f64> {
    status(process, "VmRSS")
}

/// The most that it had since [`forget_peak`].
pub fn peak_megabytes(process: u32) -> anyhow::Result<f64> {
    status(process, "VmHWM")
}

/// Makes the peak what the process has now.
pub fn forget_peak(process: u32) {
    // Where that is not allowed the peak is that of the whole life, which is more, and never too good.
    fs::write(format!("/proc/{process}/clear_refs"), "5").ok();
}

/// How long a process has been computing, all threads together, in microseconds. Linux counts in hundredths of a second.
pub fn cpu_micros(process: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).context(path)?;
    // The program's name stands in brackets and may hold anything; the times are the 12th and 13th after it.
    let (_, after) = stat.rsplit_once(')').context("a name in brackets")?;
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
        .with_context(|| format!("no {field} of process {process}"))?;
    Ok(kilobytes / 1024.0)
}

/// The processes that have `folder` in their arguments: a control plane's servers keep their files there.
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
