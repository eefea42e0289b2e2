//! The debug pages as text tables: one row per controller or cache, then running and failing objects.

use std::fmt::Write as _;

use windlass_cache::{STATISTICS, StatisticValue};

use super::{CacheFailure, CacheStatus, ControllerState, ControllerStatus, OutcomeCounts};

pub(super) fn controllers(status: &[ControllerStatus]) -> String {
    let mut table = Table::new(&[
        "NAME", "STATE", "WORKERS", "RUNNING", "QUEUED", "DELAYED", "FAILING", "OUTCOMES",
    ]);
    for controller in status {
        table.row([
            controller.name.clone(),
            state(&controller.state),
            controller.workers.to_string(),
            controller.running.len().to_string(),
            controller.queued.to_string(),
            controller.delayed.to_string(),
            controller.failing.len().to_string(),
            outcomes(&controller.outcomes),
        ]);
    }
    let mut text = table.to_text();

    let mut running = Table::new(&["CONTROLLER", "RUNNING", "FOR", "TRIGGER", "ID"]);
    let mut last = Table::new(&["CONTROLLER", "LAST", "AGO", "TOOK", "OUTCOME", "TRIGGER"]);
    let mut failing = Table::new(&["CONTROLLER", "FAILING", "TIMES", "NEXT", "LAST ERROR"]);
    for controller in status {
        for run in &controller.running {
            running.row([
                controller.name.clone(),
                run.key.clone(),
                seconds(run.seconds),
                run.trigger.clone(),
                run.id.clone(),
            ]);
        }
        if let Some(run) = &controller.last {
            last.row([
                controller.name.clone(),
                run.key.clone(),
                seconds(run.seconds_ago),
                seconds(run.seconds),
                run.outcome.to_string(),
                run.trigger.clone(),
            ]);
        }
        for object in &controller.failing {
            failing.row([
                controller.name.clone(),
                object.key.clone(),
                object.failures.to_string(),
                object
                    .retry_in_seconds
                    .map_or("when it changes".to_owned(), |retry| {
                        format!("in {}", seconds(retry))
                    }),
                one_line(&object.last_error),
            ]);
        }
    }
    for table in [running, last, failing] {
        if table.rows.len() > 1 {
            text.push('\n');
            text.push_str(&table.to_text());
        }
    }
    text
}

pub(super) fn caches(status: &[CacheStatus]) -> String {
    let statistics = || {
        let shown = STATISTICS.iter();
        shown.filter_map(|statistic| Some((statistic.column?, statistic.value)))
    };
    let mut head = vec!["KIND", "SCOPE"];
    head.extend(statistics().map(|(column, _)| column));
    head.extend(["VERSION", "USERS", "INDEXES", "LAST ERROR"]);
    let mut table = Table::new(&head);
    for cache in status {
        let mut row = vec![cache.kind.clone(), cache.scope.clone()];
        row.extend(statistics().map(|(_, value)| match value(&cache.stats) {
            Some(StatisticValue::Count(count)) => count.to_string(),
            Some(StatisticValue::Time(time)) => seconds(time.as_secs_f64()),
            None => String::new(),
        }));
        row.extend([
            cache.resource_version.clone(),
            cache.users.to_string(),
            cache.indexes.join(","),
            cache.last_error.as_ref().map(failure).unwrap_or_default(),
        ]);
        table.row(row);
    }
    table.to_text()
}

/// When, what, and whether it is over.
fn failure(failure: &CacheFailure) -> String {
    let resolved = if failure.resolved { ", resolved" } else { "" };
    format!(
        "{} ago{resolved}: {}",
        seconds(failure.seconds_ago),
        one_line(&failure.message)
    )
}

/// An error on one line, even if it has several.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn state(state: &ControllerState) -> String {
    match state {
        ControllerState::Starting => "starting".to_owned(),
        ControllerState::Syncing {
            blocked_by: Some(missing),
            ..
        } => format!("blocked: {missing}"),
        ControllerState::Syncing { waiting_for, .. } if waiting_for.is_empty() => "syncing".to_owned(),
        ControllerState::Syncing { waiting_for, .. } => format!("syncing {}", waiting_for.join("+")),
        ControllerState::Standby => "standby".to_owned(),
        ControllerState::Running => "running".to_owned(),
        ControllerState::Stopping => "stopping".to_owned(),
    }
}

/// The counts that are not zero.
fn outcomes(counts: &OutcomeCounts) -> String {
    let named = [
        ("done", counts.done),
        ("requeued", counts.requeued),
        ("failed", counts.failed),
        ("terminal", counts.terminal),
        ("panicked", counts.panicked),
        ("timed out", counts.timed_out),
    ];
    let nonzero: Vec<_> = named
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    nonzero.join(", ")
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.1}s")
}

/// Columns as wide as their widest cell, two spaces apart, like kubectl's.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|name| (*name).to_owned()).collect()],
        }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // An empty cell would look like a gap.
        let cells = cells.into_iter();
        let cells = cells.map(|cell| if cell.is_empty() { "-".to_owned() } else { cell });
        self.rows.push(cells.collect());
    }

    fn to_text(&self) -> String {
        let columns = self.rows[0].len();
        let widths: Vec<_> = (0..columns)
            .map(|column| self.rows.iter().map(|row| row[column].chars().count()).max())
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "{cell:<0$}  ", width.unwrap_or(0));
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}
