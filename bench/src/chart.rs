//! The chart of a run: a bar for each case shows how many times better Windlass is than the rival, on a logarithmic
//! scale.
//!
//! A bar to the right of the line at 1 is a win, one to the left a loss. The SVG has no scripts or embedded fonts, and
//! is readable on light and dark pages.

use std::fmt::Write as _;

use crate::report::{OURS, Report, Run, format_number};

const WIDTH: f64 = 860.0;
/// Where the case names end and the bars begin.
const LEFT: f64 = 400.0;
/// Space for the number after the longest bar.
const RIGHT: f64 = 150.0;
const LINE: f64 = 20.0;
const TITLE: f64 = 30.0;
const TOP: f64 = 40.0;

const WIN_COLOUR: &str = "#2f81f7";
const LOSS_COLOUR: &str = "#d1242f";

/// A bar of the chart.
struct Bar<'a> {
    case: &'a str,
    ratio: f64,
    /// Tooltip with our value and the rival's.
    tooltip: String,
}

/// Draws all cases that have measurements of both Windlass and the rival.
pub fn draw(run: &Run) -> String {
    let groups: Vec<(&Report, Vec<Bar<'_>>)> = run
        .reports
        .iter()
        .map(|report| (report, bars(report)))
        .filter(|(_, bars)| !bars.is_empty())
        .collect();
    let ratios = || {
        groups
            .iter()
            .flat_map(|(_, bars)| bars.iter().map(|one| one.ratio))
    };
    // Powers of ten, always including 1 and 10.
    let least = ratios().fold(1.0, f64::min).log10().floor();
    let most = ratios().fold(10.0, f64::max).log10().ceil();
    let place = |ratio: f64| LEFT + (ratio.log10() - least) / (most - least) * (WIDTH - LEFT - RIGHT);

    let mut y = TOP;
    let mut drawn = String::new();
    for (report, bars) in &groups {
        y += TITLE;
        let title = format!("{}: times better than {}", report.subject, report.rival);
        text(&mut drawn, 10.0, y - 8.0, "start", "title", &title);
        for row in bars {
            let (zero, end) = (place(1.0), place(row.ratio));
            let (from, length) = (zero.min(end), (end - zero).abs().max(1.0));
            let colour = if row.ratio < 1.0 { LOSS_COLOUR } else { WIN_COLOUR };
            let (top, height) = (y + 3.0, LINE - 6.0);
            let _ = writeln!(
                drawn,
                r#"<rect x="{from:.1}" y="{top:.1}" width="{length:.1}" height="{height}" fill="{colour}" rx="2"><title>{}</title></rect>"#,
                escaped(&row.tooltip)
            );
            text(&mut drawn, LEFT - 10.0, y + LINE - 6.0, "end", "case", row.case);
            let behind = zero.max(end) + 5.0;
            let ratio = format!("{}×", format_number(row.ratio));
            text(&mut drawn, behind, y + LINE - 6.0, "start", "ratio", &ratio);
            y += LINE;
        }
    }
    let height = y + 40.0;
    let mut axis = String::new();
    let mut power = least;
    while power <= most {
        let (value, x) = (10_f64.powf(power), place(10_f64.powf(power)));
        let _ = writeln!(
            axis,
            r#"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{:.1}" class="{}"/>"#,
            height - 30.0,
            if power == 0.0 { "one" } else { "grid" }
        );
        let label = format!("{value}×");
        text(&mut axis, x, TOP - 8.0, "middle", "axis", &label);
        power += 1.0;
    }
    text(
        &mut drawn,
        10.0,
        height - 10.0,
        "start",
        "axis",
        &run.machine.summary(),
    );
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="ui-sans-serif, system-ui, sans-serif">
<style>text{{fill:#57606a}} .title{{font-size:14px;font-weight:600}} .case,.ratio{{font-size:12px}} .axis{{font-size:11px}} .grid{{stroke:#8b949e;stroke-opacity:.3}} .one{{stroke:#57606a;stroke-width:1.5}} @media (prefers-color-scheme:dark){{text{{fill:#c9d1d9}} .one{{stroke:#c9d1d9}}}}</style>
{axis}{drawn}</svg>
"#
    )
}

/// Returns a bar for each case, for the first of our variants.
fn bars(report: &Report) -> Vec<Bar<'_>> {
    let draw = |case| {
        let ours = report.of(case).find(|row| row.contender == OURS)?;
        let rival = report.of(case).find(|row| row.contender == report.rival)?;
        let (unit, ratio) = (ours.unit.name(), report.ratio(ours)?);
        let tooltip = format!(
            "{} {unit}; {}: {} {unit}",
            format_number(ours.median()),
            report.rival,
            format_number(rival.median())
        );
        Some(Bar { case, ratio, tooltip })
    };
    report.cases().into_iter().filter_map(draw).collect()
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, class: &str, content: &str) {
    let content = escaped(content);
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{content}</text>"#
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{machine::Machine, report::Unit};

    fn run() -> Run {
        let mut report = Report::new("queue", "client-go");
        report.add("a < b", OURS, Unit::Nanos, 1.0);
        report.add("a < b", "client-go", Unit::Nanos, 50.0);
        report.add("lost", OURS, Unit::PerSecond, 1.0);
        report.add("lost", "client-go", Unit::PerSecond, 2.0);
        report.add("alone", OURS, Unit::Nanos, 1.0);
        Run {
            machine: Machine::current(),
            reports: vec![report, Report::new("empty", "nobody")],
        }
    }

    #[test]
    fn wins_and_losses_have_a_bar_and_cases_without_a_rival_have_none() {
        let svg = draw(&run());
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches(LOSS_COLOUR).count()),
            (2, 1),
            "{svg}"
        );
        assert!(
            svg.contains("a &lt; b") && svg.contains("50.0×") && svg.contains("0.500×"),
            "{svg}"
        );
        assert!(!svg.contains("alone") && !svg.contains("empty"), "{svg}");
    }
}
