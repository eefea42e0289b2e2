//! The live view on a terminal: draws the model and reads keys.
//!
//! The terminal is always restored: at the end, on an error, when the future is dropped (by the drop of [`Screen`]), and on a
//! panic of any thread, whose message would otherwise be lost on the alternate screen.

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
use windlass::runtime::shows_colour;

use super::{
    Ending,
    cluster_view::ClusterView,
    log_buffer::LogBuffer,
    model::{DemoEvent, Model},
    screen::{self, Capabilities},
};
use crate::signals::Signals;

/// The time between two frames: fast enough for the eye, without taking CPU time from the controllers.
const FRAME_INTERVAL: Duration = Duration::from_millis(66);

/// How long the last frame is shown.
const LAST_FRAME_TIME: Duration = Duration::from_millis(2500);

/// Whether standard output is a terminal that can show the live view.
pub(super) fn is_supported() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdout().is_terminal() && !dumb
}

impl Capabilities {
    /// Detects the terminal's capabilities from the environment.
    fn detect() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        Self {
            colour: shows_colour(&io::stdout()),
            unicode: locale.is_none_or(|locale| {
                let locale = locale.to_ascii_lowercase();
                locale.contains("utf-8") || locale.contains("utf8")
            }),
        }
    }
}

/// Shows the demo until a little after it is complete, or until the user quits.
pub(super) async fn show(
    model: &mut Model,
    view: &mut ClusterView,
    mut events: mpsc::Receiver<DemoEvent>,
    signals: &mut Signals,
    log_buffer: &LogBuffer,
    started: Instant,
) -> anyhow::Result<Ending> {
    let capabilities = Capabilities::detect();
    let mut screen = Screen::open().context("cannot use the terminal: try --plain")?;
    let mut keys = EventStream::new();
    let mut frames = interval(FRAME_INTERVAL);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut over = None;
    loop {
        let lingering = async {
            match over {
                Some(since) => tokio::time::sleep_until(since + LAST_FRAME_TIME).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = events.recv(), if over.is_none() => {
                model.elapsed = started.elapsed();
                match event {
                    Some(event) => {
                        model.apply(event);
                    }
                    None => {
                        model.is_complete = true;
                        over = Some(Instant::now());
                    }
                }
            }
            message = view.next() => {
                model.elapsed = started.elapsed();
                model.apply(message);
            }
            key = keys.next() => match key {
                Some(Ok(Event::Key(key))) if quits(key) => return Ok(ending(over)),
                Some(Ok(_)) => screen.draw(model, capabilities)?,
                Some(Err(error)) => return Err(error).context("cannot read keys: try --plain"),
                // Standard input is closed; the demo goes on.
                None => sleep(FRAME_INTERVAL).await,
            },
            _ = frames.tick() => {
                if over.is_none() {
                    model.elapsed = started.elapsed();
                }
                for line in log_buffer.take() {
                    model.apply(line);
                }
                view.refresh(model);
                screen.draw(model, capabilities)?;
            }
            () = signals.next() => return Ok(ending(over)),
            () = lingering => return Ok(Ending::Finished),
        }
    }
}

fn ending(over: Option<Instant>) -> Ending {
    match over {
        Some(_) => Ending::Finished,
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

type PanicHook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// The terminal in raw mode on the alternate screen; restored on drop.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Whether a thread panicked, and the terminal was restored for its message.
    panicked: Arc<AtomicBool>,
    /// The previous panic hook.
    previous_hook: Arc<PanicHook>,
}

impl Screen {
    fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let opened = execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        let terminal = opened.inspect_err(|_| restore_terminal())?;
        let previous_hook: Arc<PanicHook> = Arc::new(panic::take_hook());
        let panicked = Arc::new(AtomicBool::new(false));
        let (restored, previous) = (Arc::clone(&panicked), Arc::clone(&previous_hook));
        panic::set_hook(Box::new(move |info| {
            if !restored.swap(true, Ordering::Relaxed) {
                restore_terminal();
            }
            previous(info);
        }));
        Ok(Self {
            terminal,
            panicked,
            previous_hook,
        })
    }

    fn draw(&mut self, model: &Model, capabilities: Capabilities) -> anyhow::Result<()> {
        if self.panicked.load(Ordering::Relaxed) {
            bail!("a thread panicked; see the message above");
        }
        self.terminal
            .draw(|frame| screen::draw(frame, model, capabilities))
            .context("cannot draw: try --plain")?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if !self.panicked.load(Ordering::Relaxed) {
            restore_terminal();
        }
        // A panicking thread must not set the hook, and need not: the process is about to exit.
        if !std::thread::panicking() {
            let before = Arc::clone(&self.previous_hook);
            panic::set_hook(Box::new(move |info| before(info)));
        }
    }
}

/// Restores the terminal. Errors are ignored, since there is nowhere to report them.
fn restore_terminal() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_ctrl_c_quit() {
        let key = |code, modifiers| KeyEvent::new(code, modifiers);
        assert!(quits(key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(quits(key(KeyCode::Esc, KeyModifiers::NONE)));
        assert!(quits(key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!quits(key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!quits(key(KeyCode::Enter, KeyModifiers::NONE)));
    }
}
