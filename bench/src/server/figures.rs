//! The table: each case, each server, the median of the rounds and how far they lie apart.

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Millis,
    Micros,
    Megabytes,
    Kilobytes,
    PerSecond,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Millis => "ms",
            Self::Micros => "µs",
            Self::Megabytes => "MB",
            Self::Kilobytes => "KB",
            Self::PerSecond => "/s",
        }
    }

    /// How many times `ours` is better than `theirs`.
    fn ratio(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Self::PerSecond => ours / theirs,
            _ => theirs / ours,
        }
    }
}

/// All figures of a table, in the order in which their cases were first measured.
#[derive(Debug, Default)]
pub(super) struct Figures(Vec<Line>);

#[derive(Debug)]
struct Line {
    case: String,
    server: &'static str,
    unit: Unit,
    measured: Vec<f64>,
}

impl Figures {
    pub(super) fn add(&mut self, case: &str, server: &'static str, unit: Unit, figure: f64) {
        match self
            .0
            .iter_mut()
            .find(|line| line.case == case && line.server == server)
        {
            Some(line) => line.measured.push(figure),
            None => self.0.push(Line {
                case: case.to_owned(),
                server,
                unit,
                measured: vec![figure],
            }),
        }
    }

    /// Prints the lines case by case. The ratio is how many times better a server is than the rival.
    pub(super) fn print(&self, title: &str, rival: &str) {
        println!("\n{title}\n");
        println!(
            "| {:<48} | {:<19} | {:>10} | {:>23} | {:<4} | {:>6} |",
            "case", "server", "median", "least–most", "unit", "ratio"
        );
        println!(
            "|{:-<50}|{:-<21}|{:->12}|{:->25}|{:-<6}|{:->8}|",
            "", "", ":", ":", "", ":"
        );
        let mut cases: Vec<&str> = Vec::new();
        for line in &self.0 {
            if !cases.contains(&&*line.case) {
                cases.push(&line.case);
            }
        }
        for case in cases {
            let lines = || self.0.iter().filter(|line| line.case == case);
            let theirs = lines().find(|line| line.server == rival).map(Line::median);
            for line in lines() {
                let (sorted, median) = (line.sorted(), line.median());
                let ratio = theirs.map_or(String::new(), |theirs| {
                    format!("{:.1}", line.unit.ratio(median, theirs))
                });
                println!(
                    "| {case:<48} | {:<19} | {median:>10.1} | {:>23} | {:<4} | {ratio:>6} |",
                    line.server,
                    format!("{:.1}–{:.1}", sorted[0], sorted[sorted.len() - 1]),
                    line.unit.name(),
                );
            }
        }
    }
}

impl Line {
    /// There is at least one: a line begins with a figure.
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.measured.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }

    fn median(&self) -> f64 {
        let sorted = self.sorted();
        sorted[sorted.len() / 2]
    }
}
