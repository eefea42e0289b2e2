//! A table of figures, a line for each contender in each case.

/// One line of the table: which of a case's figures `F`, and what it is called.
pub(crate) struct Line<F> {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) of: fn(&F) -> f64,
}

impl<F> Line<F> {
    pub(crate) fn print(&self, contender: &str, measured: &[F], ours: f64) {
        let figure = self.median(measured);
        let title = format!("{} ({})", self.title, self.unit);
        println!(
            "| {title:<52} | {contender:<20} | {figure:>12.1} | {:>7.2} |",
            figure / ours
        );
    }

    pub(crate) fn median(&self, measured: &[F]) -> f64 {
        let mut figures: Vec<_> = measured.iter().map(self.of).collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures[figures.len() / 2]
    }
}

pub(crate) fn print_head(what: &str) {
    println!(
        "| {:<52} | {what:<20} | {:>12} | {:>7} |",
        "case", "median", "to ours"
    );
    println!("|{:-<54}|{:-<22}|{:->14}|{:->9}|", "", "", ":", ":");
}
