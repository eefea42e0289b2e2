//! Process metrics, with the standard Prometheus names. None on systems without `/proc`.

use std::{collections::HashMap, fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// Linux's `USER_HZ`: times in `/proc` are in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let figures = ProcessStats::parse(
            &text("/proc/self/stat"),
            &text("/proc/self/status"),
            &text("/proc/stat"),
            &text("/proc/self/limits"),
        );
        if let Some(cpu) = figures.cpu_seconds.map(ConstCounter::new) {
            let (name, help) = ("process_cpu_seconds", "CPU time of the process");
            cpu.encode(encoder.encode_descriptor(name, help, None, cpu.metric_type())?)?;
        }
        let open = fs::read_dir("/proc/self/fd")
            .ok()
            .map(|fds| to_f64(fds.count() as u64));
        for (name, help, value) in [
            (
                "process_start_time_seconds",
                "When the process started",
                figures.start_seconds,
            ),
            (
                "process_resident_memory_bytes",
                "Memory in use",
                figures.resident_bytes,
            ),
            (
                "process_virtual_memory_bytes",
                "Address space in use",
                figures.virtual_bytes,
            ),
            (
                "process_virtual_memory_max_bytes",
                "Maximum address space",
                figures.max_virtual_bytes,
            ),
            ("process_open_fds", "Open file descriptors", open),
            (
                "process_max_fds",
                "Maximum number of open file descriptors",
                figures.max_open_files,
            ),
        ] {
            if let Some(value) = value.map(ConstGauge::new) {
                value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
struct ProcessStats {
    cpu_seconds: Option<f64>,
    start_seconds: Option<f64>,
    resident_bytes: Option<f64>,
    virtual_bytes: Option<f64>,
    max_virtual_bytes: Option<f64>,
    max_open_files: Option<f64>,
}

impl ProcessStats {
    /// Parses `/proc/self/stat`, `/proc/self/status`, `/proc/stat` and `/proc/self/limits` (proc(5)).
    fn parse(stat: &str, status: &str, system: &str, limits: &str) -> Self {
        // The second field is the program's name in parentheses, which may contain anything.
        let fields: Vec<_> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().collect())
            .unwrap_or_default();
        // Field numbers of proc(5); `fields` starts with field 3, the first after the name.
        let ticks = |field: usize| Some(to_f64(fields.get(field - 3)?.parse().ok()?) / TICKS_PER_SECOND);
        let status: HashMap<_, _> = status.lines().filter_map(|line| line.split_once(':')).collect();
        let kilobytes = |name: &str| {
            let number = status.get(name)?.split_whitespace().next()?;
            Some(to_f64(number.parse().ok()?) * 1024.0)
        };
        let word = |text, line| first_word(text, line)?.parse().ok().map(to_f64);
        let limit = |line| match first_word(limits, line)? {
            "unlimited" => Some(to_f64(u64::MAX)),
            limit => limit.parse().ok().map(to_f64),
        };
        Self {
            cpu_seconds: ticks(14).zip(ticks(15)).map(|(user, kernel)| user + kernel),
            start_seconds: ticks(22)
                .zip(word(system, "btime"))
                .map(|(since_boot, boot)| boot + since_boot),
            resident_bytes: kilobytes("VmRSS"),
            virtual_bytes: kilobytes("VmSize"),
            max_virtual_bytes: limit("Max address space"),
            max_open_files: limit("Max open files"),
        }
    }
}

/// The first word after `name` on the line that starts with it.
fn first_word<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()
}

#[allow(clippy::cast_precision_loss, reason = "metrics need no more than 53 bits")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_stats_parse_with_parentheses_and_spaces_in_the_name() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 3 0 1000 1 2 3";
        let status = "Name:\ta) b\nVmSize:\t   2048 kB\nVmRSS:\t    512 kB\n";
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax address space  unlimited  unlimited  bytes\nMax open files            1024    4096    files\n";
        assert_eq!(
            ProcessStats::parse(stat, status, "cpu 1 2\nbtime 1700000000\n", limits),
            ProcessStats {
                cpu_seconds: Some(3.0),
                start_seconds: Some(1_700_000_010.0),
                resident_bytes: Some(524_288.0),
                virtual_bytes: Some(2_097_152.0),
                max_virtual_bytes: Some(18_446_744_073_709_551_615.0),
                max_open_files: Some(1024.0),
            }
        );
    }

    #[test]
    fn unreadable_process_stats_are_omitted() {
        let none = ProcessStats::parse("", "VmRSS: lots", "", "");
        assert_eq!(
            none,
            ProcessStats {
                cpu_seconds: None,
                start_seconds: None,
                resident_bytes: None,
                virtual_bytes: None,
                max_virtual_bytes: None,
                max_open_files: None,
            }
        );
    }
}
