//! What is measured of a cache, and the table.

use serde::{Deserialize, Serialize};

/// The figures of one contender in one case; what the case does not measure is 0.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Figures {
    /// Bytes per pod that stay when everything is there.
    pub(super) retained: f64,
    /// Microseconds of CPU per pod until then, of the process with the cache.
    pub(super) sync_cpu: f64,
    /// Update events per second.
    pub(super) events: f64,
    /// Microseconds of CPU per update event, of the whole process with what makes the events. Not in the table: the
    /// rivals in Go do not tell it.
    pub(super) event_cpu: f64,
    /// Nanoseconds for one `get`.
    pub(super) get: f64,
}

/// One line of the table.
pub(super) struct Line {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) of: fn(&Figures) -> f64,
}

impl Line {
    pub(super) fn print(&self, contender: &str, measured: &[Figures], ours: f64) {
        let figure = self.median(measured);
        let title = format!("{} ({})", self.title, self.unit);
        println!(
            "| {title:<52} | {contender:<20} | {figure:>12.1} | {:>7.2} |",
            figure / ours
        );
    }

    pub(super) fn median(&self, measured: &[Figures]) -> f64 {
        let mut figures: Vec<_> = measured.iter().map(self.of).collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures[figures.len() / 2]
    }
}

pub(super) fn print_head() {
    println!(
        "| {:<52} | {:<20} | {:>12} | {:>7} |",
        "case", "cache", "median", "to ours"
    );
    println!("|{:-<54}|{:-<22}|{:->14}|{:->9}|", "", "", ":", ":");
}
