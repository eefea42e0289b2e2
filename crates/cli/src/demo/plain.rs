//! The plain view: ASCII lines for files, pipes and simple terminals.

use tokio::{sync::mpsc, time::Instant};

use super::{
    Ending,
    cluster_view::ClusterView,
    model::{DemoEvent, Line, LineKind, Model},
};
use crate::{drop_in::print, signals::Signals};

/// Prints each new line until the scenario is complete or a signal comes.
pub(super) async fn show(
    model: &mut Model,
    view: &mut ClusterView,
    mut events: mpsc::Receiver<DemoEvent>,
    signals: &mut Signals,
    started: Instant,
) -> anyhow::Result<Ending> {
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            message = view.next() => Some(message),
            () = signals.next() => return Ok(Ending::Stopped),
        };
        let Some(event) = event else {
            return Ok(Ending::Finished);
        };
        model.elapsed = started.elapsed();
        if let Some(line) = model.apply(event) {
            print(&text(line))?;
        }
    }
}

fn text(line: &Line) -> String {
    let (at, message) = (line.at.as_millis(), &line.text);
    match &line.kind {
        LineKind::Chapter => format!("{at:>7} ms  == {message}\n"),
        LineKind::Action => format!("{at:>7} ms  do   {message}\n"),
        LineKind::Held => format!("{at:>7} ms  ok   {message}\n"),
        LineKind::Failed => format!("{at:>7} ms  NO   {message}\n"),
        LineKind::Component(who) => format!("{at:>7} ms   -   {who}: {message}\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::demo::claims::Verdict;

    #[test]
    fn lines_show_time_and_result_in_ascii() {
        let mut model = Model {
            elapsed: Duration::from_millis(1234),
            ..Model::default()
        };
        let mut line = |event| text(model.apply(event).expect("a line"));
        let after = Duration::from_millis(7);
        let claim = "it is there";
        let found = "it is not".to_owned();
        let lines = [
            line(DemoEvent::Chapter("One")),
            line(DemoEvent::Action("create it".to_owned())),
            line(DemoEvent::Message {
                component: "foo".to_owned(),
                topic: "Synced".to_owned(),
                text: "Synced: well".to_owned(),
            }),
            line(DemoEvent::ClaimChecked {
                claim,
                verdict: Verdict::Held { after },
            }),
            line(DemoEvent::ClaimChecked {
                claim,
                verdict: Verdict::Failed { found },
            }),
        ];
        let expected = "   1234 ms  == One
   1234 ms  do   create it
   1234 ms   -   foo: Synced: well
   1234 ms  ok   it is there (7 ms)
   1234 ms  NO   it is there: it is not
";
        assert_eq!(lines.concat(), expected);
    }
}
