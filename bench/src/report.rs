//! Results of several contenders in several cases: the median and range of the rounds, and how many times better each
//! contender is than the rival that all are compared with.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// Name of our contender in every subject. Variants append a word: `windlass in-process`.
pub const OURS: &str = "windlass";

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Unit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanos,
    /// Microseconds.
    #[serde(rename = "µs")]
    Micros,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// Kilobytes of 1,024 bytes.
    #[serde(rename = "KB")]
    Kilobytes,
    /// Megabytes of 1,024 kilobytes.
    #[serde(rename = "MB")]
    Megabytes,
    /// Operations per second; the only unit for which more is better.
    #[serde(rename = "/s")]
    PerSecond,
    /// A number.
    #[serde(rename = "")]
    Count,
}

impl Unit {
    /// Returns the unit's symbol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nanos => "ns",
            Self::Micros => "µs",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Bytes => "B",
            Self::Kilobytes => "KB",
            Self::Megabytes => "MB",
            Self::PerSecond => "/s",
            Self::Count => "",
        }
    }

    /// Returns how many times better `one` is than `other`.
    fn ratio(self, one: f64, other: f64) -> f64 {
        match self {
            Self::PerSecond => one / other,
            _ => other / one,
        }
    }
}

/// All results of a subject, in the order in which their cases were first measured.
#[derive(Debug, Deserialize, Serialize)]
pub struct Report {
    /// The subject: `cache`, `queue`.
    pub subject: String,
    /// The rival that all are compared with.
    pub rival: String,
    rows: Vec<Row>,
}

/// Results of one contender in one case.
#[derive(Debug, Deserialize, Serialize)]
pub struct Row {
    /// Title of the case.
    pub case: String,
    /// Name of the contender.
    pub contender: String,
    /// Unit of the values.
    pub unit: Unit,
    /// One value per round.
    pub rounds: Vec<f64>,
}

/// The reports of a run and its machine, as written to JSON.
#[derive(Debug, Deserialize, Serialize)]
pub struct Run {
    /// The machine of the run.
    pub machine: Machine,
    /// One report per subject.
    pub reports: Vec<Report>,
}

impl Report {
    /// Creates an empty report.
    pub fn new(subject: &str, rival: &str) -> Self {
        Self {
            subject: subject.to_owned(),
            rival: rival.to_owned(),
            rows: Vec::new(),
        }
    }

    /// Adds the value of a round.
    pub fn add(&mut self, case: &str, contender: &str, unit: Unit, value: f64) {
        let same = |row: &&mut Row| row.case == case && row.contender == contender;
        match self.rows.iter_mut().find(same) {
            Some(row) => row.rounds.push(value),
            None => self.rows.push(Row {
                case: case.to_owned(),
                contender: contender.to_owned(),
                unit,
                rounds: vec![value],
            }),
        }
    }

    /// Removes all cases except the wanted ones.
    pub fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.rows.retain(|row| wanted(&row.case));
    }

    /// Returns the titles of the cases, in order.
    pub fn cases(&self) -> Vec<&str> {
        let mut cases: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !cases.contains(&&*row.case) {
                cases.push(&row.case);
            }
        }
        cases
    }

    /// Returns the rows of a case.
    pub fn of(&self, case: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.case == case)
    }

    /// Returns how many times better this row's contender is than the rival; `None` if the rival was not measured or
    /// one of the values is zero.
    pub fn ratio(&self, row: &Row) -> Option<f64> {
        let rival = self.of(&row.case).find(|other| other.contender == self.rival)?;
        let ratio = row.unit.ratio(row.median(), rival.median());
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// Formats the report as a Markdown table.
    pub fn table(&self) -> String {
        let head = [
            "case".to_owned(),
            "contender".to_owned(),
            "median".to_owned(),
            "least–most".to_owned(),
            "unit".to_owned(),
            format!("× {}", self.rival),
        ];
        let rows = self.cases().into_iter().flat_map(|case| self.of(case));
        let lines: Vec<[String; 6]> = rows
            .map(|row| {
                let sorted = row.sorted();
                [
                    row.case.clone(),
                    row.contender.clone(),
                    format_number(row.median()),
                    format!(
                        "{}–{}",
                        format_number(sorted[0]),
                        format_number(sorted[sorted.len() - 1])
                    ),
                    row.unit.name().to_owned(),
                    self.ratio(row)
                        .map_or(String::new(), |ratio| format!("{ratio:.2}")),
                ]
            })
            .collect();
        let width = |column: usize| {
            let cells = lines.iter().map(|line| &line[column]).chain([&head[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: [usize; 6] = std::array::from_fn(width);
        let mut table = String::new();
        for (number, line) in [&head].into_iter().chain(&lines).enumerate() {
            for (column, cell) in line.iter().enumerate() {
                let (width, left) = (widths[column], [0, 1, 4].contains(&column));
                let _ = if left {
                    write!(table, "| {cell:<width$} ")
                } else {
                    write!(table, "| {cell:>width$} ")
                };
            }
            table.push_str("|\n");
            if number == 0 {
                for (column, width) in widths.into_iter().enumerate() {
                    let right = if [0, 1, 4].contains(&column) { "-" } else { ":" };
                    let _ = write!(table, "|{:-<1$}{right}", "", width + 1);
                }
                table.push_str("|\n");
            }
        }
        table
    }
}

impl Row {
    /// Returns the median of the rounds.
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        sorted[sorted.len() / 2]
    }

    /// Whether the contender is ours, in any variant.
    pub fn is_ours(&self) -> bool {
        self.contender.split(' ').next() == Some(OURS)
    }

    /// Returns the values in order. A row always has at least one.
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.rounds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }
}

/// Formats a number with at least three digits and without unnecessary decimals: `0.61`, `17.6`, `10,496`.
pub fn format_number(number: f64) -> String {
    let decimals = match number.abs() {
        ..1.0 => 3,
        ..10.0 => 2,
        ..1_000.0 => 1,
        _ => 0,
    };
    let text = format!("{number:.decimals$}");
    let (whole, rest) = text
        .split_once('.')
        .map_or((&*text, ""), |(whole, rest)| (whole, rest));
    let (sign, whole) = whole
        .strip_prefix('-')
        .map_or(("", whole), |digits| ("-", digits));
    let digits: Vec<char> = whole.chars().collect();
    let groups: Vec<String> = digits
        .rchunks(3)
        .rev()
        .map(|group| group.iter().collect())
        .collect();
    let whole = format!("{sign}{}", groups.join(","));
    if rest.is_empty() {
        whole
    } else {
        format!("{whole}.{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("queue", "client-go");
        for (contender, rounds) in [
            ("windlass", [30.0, 10.0, 20.0]),
            ("client-go", [80.0, 90.0, 100.0]),
        ] {
            for value in rounds {
                report.add("add", contender, Unit::Nanos, value);
            }
        }
        report.add("lists", "windlass in-process", Unit::PerSecond, 10_496.4);
        report.add("lists", "client-go", Unit::PerSecond, 20_992.8);
        report.add("alone", "windlass", Unit::Count, 0.0);
        report
    }

    #[test]
    fn ratio_is_how_many_times_better_for_every_unit() {
        let report = report();
        let ratios: Vec<_> = report.rows.iter().map(|row| report.ratio(row)).collect();
        assert_eq!(ratios, [Some(4.5), Some(1.0), Some(0.5), Some(1.0), None]);
    }

    #[test]
    fn table_has_median_range_and_ratio() {
        let table = report().table();
        let lines: Vec<String> = table
            .lines()
            .skip(2)
            .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                " add windlass 20.0 10.0–30.0 ns 4.50 ",
                " add client-go 90.0 80.0–100.0 ns 1.00 ",
                " lists windlass in-process 10,496 10,496–10,496 /s 0.50 ",
                " lists client-go 20,993 20,993–20,993 /s 1.00 ",
                " alone windlass 0.000 0.000–0.000   ",
            ],
            "\n{table}"
        );
        let widths: Vec<_> = table.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "\n{table}");
    }

    #[test]
    fn report_round_trips_through_json() {
        let written = serde_json::to_string(&report()).expect("plain data");
        let read: Report = serde_json::from_str(&written).expect("what was written");
        assert_eq!(read.table(), report().table());
    }

    #[test]
    fn keep_leaves_wanted_cases_unchanged() {
        let mut report = report();
        report.keep(|case| case == "lists");
        assert_eq!(report.cases(), ["lists"]);
        assert_eq!(report.ratio(&report.rows[0]), Some(0.5));
    }

    #[test]
    fn numbers_have_three_digits_and_groups_of_three() {
        let texts = [0.614, 17.6, -123.24, 10_496.4, -1_234_567.0].map(format_number);
        assert_eq!(texts, ["0.614", "17.6", "-123.2", "10,496", "-1,234,567"]);
    }

    #[test]
    fn variants_of_ours_are_ours() {
        let ours: Vec<_> = report().rows.iter().map(Row::is_ours).collect();
        assert_eq!(ours, [true, false, true, false, true]);
    }
}
