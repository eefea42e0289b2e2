//! The story as lines: for files, pipes, and terminals that can do no better. Nothing in them is beyond ASCII.

use tokio::{sync::mpsc, time::Instant};

use super::{
    Ending,
    model::{Happening, Line, Model, Voice},
    sight::Sight,
};
use crate::{drop_in::print, signals::Signals};

/// Prints each line when it is new, until the story is over or a signal comes.
pub(super) async fn show(
    model: &mut Model,
    sight: &mut Sight,
    mut told: mpsc::Receiver<Happening>,
    signals: &mut Signals,
    started: Instant,
) -> anyhow::Result<Ending> {
    loop {
        let happening = tokio::select! {
            happening = told.recv() => happening,
            said = sight.next() => Some(said),
            () = signals.next() => return Ok(Ending::Stopped),
        };
        let Some(happening) = happening else {
            return Ok(Ending::Told);
        };
        model.elapsed = started.elapsed();
        if let Some(line) = model.apply(happening) {
            print(&text(line))?;
        }
    }
}

fn text(line: &Line) -> String {
    let (at, said) = (line.at.as_millis(), &line.text);
    match &line.voice {
        Voice::Chapter => format!("{at:>7} ms  == {said}\n"),
        Voice::You => format!("{at:>7} ms  do   {said}\n"),
        Voice::Held => format!("{at:>7} ms  ok   {said}\n"),
        Voice::Failed => format!("{at:>7} ms  NO   {said}\n"),
        Voice::Component(who) => format!("{at:>7} ms   -   {who}: {said}\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::demo::claims::Verdict;

    #[test]
    fn a_line_says_when_and_whether_in_ascii() {
        let mut model = Model {
            elapsed: Duration::from_millis(1234),
            ..Model::default()
        };
        let mut line = |happening| text(model.apply(happening).expect("a line"));
        let after = Duration::from_millis(7);
        let claim = "it is there";
        let found = "it is not".to_owned();
        let lines = [
            line(Happening::Chapter("One")),
            line(Happening::Act("create it".to_owned())),
            line(Happening::Said {
                who: "foo".to_owned(),
                topic: "Synced".to_owned(),
                text: "Synced: well".to_owned(),
            }),
            line(Happening::Settled {
                claim,
                verdict: Verdict::Held { after },
            }),
            line(Happening::Settled {
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
