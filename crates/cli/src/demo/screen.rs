//! The live view: a pure function from the model to cells, for a terminal or a test backend.
//!
//! ```text
//!   80×24: controllers      160×50: controllers │ log
//!          nodes                    nodes       │
//!          log                      claims      │
//!          claims in a line         claims in a line
//! ```

use std::time::Duration;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    symbols,
    text::{Line, Span, Text},
    widgets::{Block, Borders, Cell, Paragraph, Row, Table},
};

use super::{
    claims::Verdict,
    model::{self, ControllerRow, LineKind, Model, NodeRow, NodeState},
};

/// The capabilities of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) colour: bool,
    pub(crate) unicode: bool,
}

/// The minimum width and height for the layout with the log at the side.
const MIN_WIDE_SIZE: (u16, u16) = (120, 30);

/// The minimum width of a controller's name.
const MIN_NAME_WIDTH: usize = 9;

/// The minimum width of the column `LAST`: outcome and duration.
const MIN_LAST_WIDTH: usize = "requeued <1 ms".len();

/// The minimum and maximum width of the controller table on a wide screen, in percent.
const TABLE_PERCENT: (u16, u16) = (45, 55);

/// The length of the progress bar.
const BAR_WIDTH: usize = 20;

/// Draws the whole screen.
pub(crate) fn draw(frame: &mut Frame, model: &Model, capabilities: Capabilities) {
    let [title, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    self::title(frame, title, model);
    capabilities.footer(frame, foot, model);
    let controllers = Constraint::Length(lines(model.controllers.len()) + 2);
    if (frame.area().width, frame.area().height) < MIN_WIDE_SIZE || frame.area().height < MIN_WIDE_SIZE.1 {
        let columns = 2;
        let nodes = Constraint::Length(lines(model.nodes.len().div_ceil(columns)) + 1);
        let [top, middle, bottom] = Layout::vertical([controllers, nodes, Constraint::Min(4)]).areas(body);
        capabilities.controllers(frame, top, model);
        capabilities.nodes(frame, middle, model, columns);
        capabilities.log(frame, bottom, model);
        return;
    }
    let percent = |percent: u16| frame.area().width.saturating_mul(percent) / 100;
    let needed = lines(Columns::for_rows(&model.controllers).needed());
    let [left, _, right] = Layout::horizontal([
        Constraint::Length(needed.clamp(percent(TABLE_PERCENT.0), percent(TABLE_PERCENT.1))),
        Constraint::Length(2),
        Constraint::Fill(1),
    ])
    .areas(body);
    let nodes = Constraint::Length(lines(model.nodes.len()) + 1);
    let gap = Constraint::Length(1);
    let [top, _, middle, _, bottom] =
        Layout::vertical([controllers, gap, nodes, gap, Constraint::Min(0)]).areas(left);
    capabilities.controllers(frame, top, model);
    capabilities.nodes(frame, middle, model, 1);
    capabilities.claims(frame, bottom, model);
    capabilities.log(frame, right, model);
}

fn lines(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX - 2)
}

fn title(frame: &mut Frame, area: Rect, model: &Model) {
    let name = Span::styled(
        " windlass demo ",
        Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
    );
    let line = Line::from_iter([name, Span::raw("  "), Span::raw(&model.cluster)]);
    frame.render_widget(line, area);
    let elapsed = format!("{:.1} s ", model.elapsed.as_secs_f64());
    frame.render_widget(Line::raw(elapsed).right_aligned(), area);
}

impl Capabilities {
    fn footer(self, frame: &mut Frame, area: Rect, model: &Model) {
        let ledger = &model.ledger;
        let (all, held, failed) = (ledger.claims().len(), ledger.held(), ledger.failed());
        let (text, style) = match (failed, model.is_complete) {
            (0, false) => (
                format!("{held} of {all} claims checked, all held"),
                self.bold(Color::Green),
            ),
            (0, true) if ledger.all_held() => (format!("all {all} claims held"), self.bold(Color::Green)),
            (0, true) => (
                format!("{} of {all} claims were not checked", all - held),
                self.bold(Color::Red),
            ),
            (failed, _) => (
                format!("{failed} of {all} claims did not hold"),
                self.bold(Color::Red),
            ),
        };
        let full = (BAR_WIDTH * (held + failed)).checked_div(all).unwrap_or(0);
        let (done, left) = if self.unicode { ("━", "─") } else { ("=", "-") };
        let line = Line::from_iter([
            Span::raw(" "),
            Span::styled(done.repeat(full), style),
            Span::styled(left.repeat(BAR_WIDTH - full), dim()),
            Span::raw("  "),
            Span::styled(text, style),
        ]);
        frame.render_widget(line, area);
        let keys = if model.is_complete {
            "q closes "
        } else {
            "q quits "
        };
        frame.render_widget(Line::styled(keys, dim()).right_aligned(), area);
    }

    fn controllers(self, frame: &mut Frame, area: Rect, model: &Model) {
        let columns = Columns::for_rows(&model.controllers).fit(area.width.into());
        let mut head = vec![Cell::from(format!(" {}", HEADERS[0])), Cell::from(HEADERS[1])];
        head.extend(HEADERS[2..].iter().map(|head| right_aligned(*head)));
        let mut widths = columns
            .widths
            .map(|width| Constraint::Length(lines(width)))
            .to_vec();
        if columns.last > 0 {
            head.push(Cell::from("LAST"));
            widths.push(Constraint::Fill(1));
        }
        let rows = model.controllers.iter().map(|row| self.controller(row, &columns));
        let table = Table::new(rows, widths)
            .header(Row::new(head).style(dim()))
            .column_spacing(1)
            .block(self.block("Controllers"));
        frame.render_widget(table, area);
    }

    fn controller<'a>(self, row: &'a ControllerRow, columns: &Columns) -> Row<'a> {
        let state = match row.state {
            "running" => self.colour(Color::Green),
            _ => self.colour(Color::Yellow),
        };
        let failing = match row.failing {
            0 => Style::new(),
            _ => self.bold(Color::Red),
        };
        let [name, state_name, queue, rate, done, failed] = cells(row);
        let name = self.truncate_middle(&name, columns.widths[0] - 1);
        let mut cells = vec![
            Cell::from(format!(" {name}")).style(self.bold(Color::Reset)),
            Cell::from(state_name).style(state),
            right_aligned(queue),
            right_aligned(rate),
            right_aligned(done),
            right_aligned(failed).style(failing),
        ];
        if let Some(last) = row.last.as_ref().filter(|_| columns.last > 0) {
            let style = if last.succeeded {
                self.colour(Color::Green)
            } else {
                self.bold(Color::Red)
            };
            let took = format!(" {:<5} ", short_duration(last.took));
            let used = last.outcome.chars().count() + took.len();
            cells.push(Cell::from(Line::from_iter([
                Span::styled(last.outcome.clone(), style),
                Span::styled(took, dim()),
                Span::raw(self.truncate(&last.key, columns.last.saturating_sub(used))),
            ])));
        }
        Row::new(cells)
    }

    /// Draws the nodes, column by column.
    fn nodes(self, frame: &mut Frame, area: Rect, model: &Model, columns: usize) {
        let block = self.block("Nodes");
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let places = Layout::horizontal(vec![Constraint::Fill(1); columns])
            .spacing(2)
            .split(inner);
        let each = model.nodes.len().div_ceil(columns).max(1);
        for (place, nodes) in places.iter().zip(model.nodes.chunks(each)) {
            let lines = nodes.iter().map(|row| self.node(row, place.width.into()));
            frame.render_widget(lines.collect::<Text>(), *place);
        }
    }

    fn node(self, row: &NodeRow, width: usize) -> Line<'_> {
        let state = match row.state {
            NodeState::Ready => self.colour(Color::Green),
            NodeState::Tainted | NodeState::Cordoned => self.bold(Color::Yellow),
            NodeState::NotReady => self.bold(Color::Red),
        };
        let (ready, waiting, more) = if self.unicode {
            ("▮", "▯", "…")
        } else {
            ("#", ".", "+")
        };
        let head = format!(" {:<8}", row.name);
        let word = format!("{:<10}", row.state.label());
        let count = format!("{:>3} ", row.pods_ready + row.pods_waiting);
        let room = width.saturating_sub(head.chars().count() + word.len() + count.len() + 1);
        let shown = row.pods_ready.min(room);
        let shown_waiting = row.pods_waiting.min(room - shown);
        let cut = shown + shown_waiting < row.pods_ready + row.pods_waiting;
        Line::from_iter([
            Span::styled(head, Style::new().add_modifier(Modifier::BOLD)),
            Span::styled(word, state),
            Span::raw(count),
            Span::styled(ready.repeat(shown), self.colour(Color::Green)),
            Span::styled(waiting.repeat(shown_waiting), self.colour(Color::Yellow)),
            Span::raw(if cut { more } else { "" }),
        ])
    }

    fn claims(self, frame: &mut Frame, area: Rect, model: &Model) {
        let block = self.block("Claims, each checked against the API");
        // After the mark.
        let room = usize::from(area.width).saturating_sub(4);
        let lines = model.ledger.claims().iter().map(|claim| match &claim.verdict {
            Verdict::Unchecked => Line::from_iter([
                Span::styled(if self.unicode { " ·  " } else { " .  " }, dim()),
                Span::styled(claim.text, dim()),
            ]),
            Verdict::Held { after } => {
                let took = format!("  {}", short_duration(*after));
                Line::from_iter([
                    Span::styled(format!(" {:<3}", self.mark(true)), self.bold(Color::Green)),
                    Span::raw(self.truncate(claim.text, room.saturating_sub(took.len()))),
                    Span::styled(took, dim()),
                ])
            }
            Verdict::Failed { found } => Line::styled(
                format!(
                    " {:<3}{}",
                    self.mark(false),
                    self.truncate(&format!("{}: {found}", claim.text), room)
                ),
                self.bold(Color::Red),
            ),
        });
        frame.render_widget(Paragraph::new(lines.collect::<Text>()).block(block), area);
    }

    /// Draws the newest log lines that fit.
    fn log(self, frame: &mut Frame, area: Rect, model: &Model) {
        let block = self.block("Log");
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let skipped = model.log.len().saturating_sub(inner.height.into());
        let lines = model
            .log
            .iter()
            .skip(skipped)
            .map(|line| self.line(line, inner.width.into()));
        frame.render_widget(lines.collect::<Text>(), inner);
    }

    fn line(self, line: &model::Line, width: usize) -> Line<'_> {
        let at = format!(" {:>4.1} ", line.at.as_secs_f64());
        let (mark, mark_style) = match &line.kind {
            LineKind::Chapter => (if self.unicode { "──" } else { "==" }, self.bold(Color::Reset)),
            LineKind::Action => (if self.unicode { "▸" } else { ">" }, self.bold(Color::Cyan)),
            LineKind::Component(_) => (if self.unicode { "·" } else { "-" }, dim()),
            LineKind::Held => (self.mark(true), self.bold(Color::Green)),
            LineKind::Failed => (self.mark(false), self.bold(Color::Red)),
        };
        let mut spans = vec![
            Span::styled(at, dim()),
            Span::styled(format!("{mark:<3}"), mark_style),
        ];
        let text = match line.count {
            1 => line.text.clone(),
            times if self.unicode => format!("{times}× {}", line.text),
            times => format!("{times}x {}", line.text),
        };
        let style = match &line.kind {
            LineKind::Chapter => self.bold(Color::Reset),
            LineKind::Action => self.colour(Color::Cyan),
            LineKind::Failed => self.bold(Color::Red),
            LineKind::Held => Style::new(),
            LineKind::Component(who) => {
                spans.push(Span::styled(format!("{who}: "), self.colour(Color::Magenta)));
                dim()
            }
        };
        let used: usize = spans.iter().map(Span::width).sum();
        spans.push(Span::styled(
            self.truncate(&text, width.saturating_sub(used + 1)),
            style,
        ));
        Line::from(spans)
    }

    /// Truncates a text, with an ellipsis.
    fn truncate(self, text: &str, width: usize) -> String {
        if text.chars().count() <= width {
            return text.to_owned();
        }
        let sign = if self.unicode { "…" } else { ".." };
        let kept = width.saturating_sub(sign.chars().count());
        text.chars().take(kept).chain(sign.chars()).collect()
    }

    /// Shortens a name in the middle, which keeps names with a common prefix distinct.
    fn truncate_middle(self, name: &str, width: usize) -> String {
        let count = name.chars().count();
        if count <= width {
            return name.to_owned();
        }
        let sign = if self.unicode { "…" } else { ".." };
        let kept = width.saturating_sub(sign.chars().count());
        let end = kept.div_ceil(2);
        let begin = name.chars().take(kept - end);
        begin
            .chain(sign.chars())
            .chain(name.chars().skip(count - end))
            .collect()
    }

    fn block(self, title: &'static str) -> Block<'static> {
        let mut set = symbols::border::PLAIN;
        if !self.unicode {
            set.horizontal_top = "-";
        }
        let title = Line::from_iter([
            Span::raw(" "),
            Span::styled(title, Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(" "),
        ]);
        Block::new()
            .borders(Borders::TOP)
            .border_set(set)
            .border_style(dim())
            .title(title)
    }

    fn mark(self, held: bool) -> &'static str {
        match (self.unicode, held) {
            (true, true) => "✔",
            (true, false) => "✘",
            (false, true) => "ok",
            (false, false) => "NO",
        }
    }

    fn colour(self, colour: Color) -> Style {
        if !self.colour {
            return Style::new();
        }
        Style::new().fg(colour)
    }

    fn bold(self, colour: Color) -> Style {
        self.colour(colour).add_modifier(Modifier::BOLD)
    }
}

/// The headers of the controller table's fixed columns.
const HEADERS: [&str; 6] = ["NAME", "STATE", "QUEUE", "RATE", "DONE", "FAILING"];

/// The cells of those columns.
fn cells(row: &ControllerRow) -> [String; HEADERS.len()] {
    [
        row.name.clone(),
        row.state.to_owned(),
        (row.queued + row.running).to_string(),
        // Fixed width, since it changes all the time.
        format!("{:>5}", format!("{:.0}/s", row.rate)),
        row.total.to_string(),
        row.failing.to_string(),
    ]
}

/// The column widths of the controller table.
struct Columns {
    /// Those of [`HEADERS`]; the first one includes a leading space.
    widths: [usize; HEADERS.len()],
    /// The width of the column `LAST`; 0 if there is too little room for it.
    last: usize,
}

impl Columns {
    /// The widths that the content needs.
    fn for_rows(controllers: &[ControllerRow]) -> Self {
        let mut widths = HEADERS.map(str::len);
        for row in controllers {
            for (width, cell) in widths.iter_mut().zip(cells(row)) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths[0] += 1;
        Self {
            widths,
            last: MIN_LAST_WIDTH,
        }
    }

    /// The total width, with a space after each column.
    fn needed(&self) -> usize {
        self.widths.iter().map(|width| width + 1).sum::<usize>() + self.last
    }

    /// Fits the table into this width: `LAST` gets the rest or is dropped, then names are shortened.
    fn fit(mut self, width: usize) -> Self {
        let needed = self.needed() - self.last;
        self.last = width.saturating_sub(needed);
        if self.last >= MIN_LAST_WIDTH {
            return self;
        }
        self.last = 0;
        // Without `LAST`, there is no space after the last column.
        let missing = (needed - 1).saturating_sub(width);
        let name = self.widths[0].min(1 + MIN_NAME_WIDTH);
        self.widths[0] = self.widths[0].saturating_sub(missing).max(name);
        self
    }
}

fn right_aligned<'a>(text: impl Into<Text<'a>>) -> Cell<'a> {
    Cell::from(text.into().right_aligned())
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// A duration in a few characters.
fn short_duration(took: Duration) -> String {
    match took.as_millis() {
        0 => "<1 ms".to_owned(),
        millis @ 1..10_000 => format!("{millis} ms"),
        _ => format!("{:.0} s", took.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests;
