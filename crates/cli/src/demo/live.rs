//! The live view on a terminal: draws the model, reads keys, and leaves the terminal as it was.
//!
//! The terminal is given back whatever happens: at the end, on an error, when the future is dropped, and on a panic of any
//! thread, since [`Screen`] does it when it is dropped and a panic's message would be lost on the screen.

use std::{
    io::{self, IsTerminal, Stdout},
    panic::{self, PanicHookInfo},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use crossterm::{
    cursor,
    event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute,
    terminal::{self, EnterAlternateScreen, LeaveAlternateScreen},
};
use futures::StreamExt;
use ratatui::{Terminal, backend::CrosstermBackend};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use super::{
    Ending,
    model::{Happening, Model},
    notes::Notes,
    screen::{self, Look},
    sight::Sight,
};
use crate::signals::Signals;

/// Between two frames. More can nobody see, and each costs the controllers a little.
const FRAME: Duration = Duration::from_millis(66);

/// How long the last frame stays.
const LINGER: Duration = Duration::from_millis(2500);

/// Whether there is a terminal that can show it.
pub(super) fn is_possible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdout().is_terminal() && !dumb
}

impl Look {
    /// What this terminal can show, as far as it says.
    fn of_the_terminal() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        Self {
            colour: set("NO_COLOR").is_none(),
            unicode: locale.is_none_or(|locale| {
                let locale = locale.to_ascii_lowercase();
                locale.contains("utf-8") || locale.contains("utf8")
            }),
        }
    }
}

/// Shows the story until it is over and a little longer, or until somebody has seen enough.
pub(super) async fn show(
    model: &mut Model,
    sight: &mut Sight,
    mut told: mpsc::Receiver<Happening>,
    signals: &mut Signals,
    notes: &Notes,
    started: Instant,
) -> anyhow::Result<Ending> {
    let look = Look::of_the_terminal();
    let mut screen = Screen::open().context("cannot use the terminal: try --plain")?;
    let mut keys = EventStream::new();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut over = None;
    loop {
        let lingering = async {
            match over {
                Some(since) => tokio::time::sleep_until(since + LINGER).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            happening = told.recv(), if over.is_none() => {
                model.elapsed = started.elapsed();
                match happening {
                    Some(happening) => {
                        model.apply(happening);
                    }
                    None => {
                        model.over = true;
                        over = Some(Instant::now());
                    }
                }
            }
            said = sight.next() => {
                model.elapsed = started.elapsed();
                model.apply(said);
            }
            key = keys.next() => match key {
                Some(Ok(Event::Key(key))) if quits(key) => return Ok(ending(over)),
                Some(Ok(_)) => screen.draw(model, look)?,
                Some(Err(error)) => return Err(error).context("cannot read keys: try --plain"),
                // Nobody types any more, and the story goes on.
                None => sleep(FRAME).await,
            },
            _ = frames.tick() => {
                if over.is_none() {
                    model.elapsed = started.elapsed();
                }
                for note in notes.take() {
                    model.apply(note);
                }
                sight.look(model);
                screen.draw(model, look)?;
            }
            () = signals.next() => return Ok(ending(over)),
            () = lingering => return Ok(Ending::Told),
        }
    }
}

fn ending(over: Option<Instant>) -> Ending {
    match over {
        Some(_) => Ending::Told,
        None => Ending::Stopped,
    }
}

fn quits(key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let wanted = match key.code {
        KeyCode::Char('c' | 'd') => control,
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
        _ => false,
    };
    wanted && key.kind != KeyEventKind::Release
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// The terminal while it is ours.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Some thread panicked, and the terminal was given back for its message.
    panicked: Arc<AtomicBool>,
    /// What panics did before.
    before: Arc<Hook>,
}

impl Screen {
    fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let opened = execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        let terminal = opened.inspect_err(|_| give_back())?;
        let before: Arc<Hook> = Arc::new(panic::take_hook());
        let panicked = Arc::new(AtomicBool::new(false));
        let (told, said) = (Arc::clone(&panicked), Arc::clone(&before));
        panic::set_hook(Box::new(move |info| {
            if !told.swap(true, Ordering::Relaxed) {
                give_back();
            }
            said(info);
        }));
        Ok(Self {
            terminal,
            panicked,
            before,
        })
    }

    fn draw(&mut self, model: &Model, look: Look) -> anyhow::Result<()> {
        if self.panicked.load(Ordering::Relaxed) {
            bail!("something panicked; see above");
        }
        self.terminal
            .draw(|frame| screen::draw(frame, model, look))
            .context("cannot draw: try --plain")?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if !self.panicked.load(Ordering::Relaxed) {
            give_back();
        }
        // A thread that panics may not change what panics do, and needs not: the process is about to end.
        if !std::thread::panicking() {
            let before = Arc::clone(&self.before);
            panic::set_hook(Box::new(move |info| before(info)));
        }
    }
}

/// Makes the terminal what it was. There is nobody to be told if that fails.
fn give_back() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_a_person_has_seen_enough() {
        let key = |code, modifiers| KeyEvent::new(code, modifiers);
        assert!(quits(key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(quits(key(KeyCode::Esc, KeyModifiers::NONE)));
        assert!(quits(key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!quits(key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!quits(key(KeyCode::Enter, KeyModifiers::NONE)));
    }
}
