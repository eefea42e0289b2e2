//! Standard output, or anything else that takes bytes in order.

use std::{
    io::{self, IsTerminal, Write},
    sync::Arc,
};

use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;

use super::{Sink, Trouble, form, text};
use crate::notice::Notice;

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// For people: when, what and which object.
    #[default]
    Text,
    /// The same, and what changed.
    Diff,
    /// In the words of client-go's example: `Sync/Add/Update for Pod web`, `Pod default/web does not exist anymore`.
    Sync,
    /// JSON, one object a line.
    Json,
}

/// Writes each notice as a line, with one write.
///
/// A write that nobody reads cannot be cancelled; it holds up this sink alone, and a runtime that is to end should
/// `shutdown_timeout`.
pub struct Stream {
    to: Arc<Mutex<dyn Write + Send>>,
    shape: Shape,
    coloured: bool,
}

impl Stream {
    /// Standard output; with colours if it is a terminal, and `NO_COLOR` is not set.
    pub fn stdout(shape: Shape) -> Self {
        let coloured =
            io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
        Self {
            coloured,
            ..Self::new(io::stdout(), shape)
        }
    }

    /// Another place, without colours.
    pub fn new(to: impl Write + Send + 'static, shape: Shape) -> Self {
        Self {
            to: Arc::new(Mutex::new(to)),
            shape,
            coloured: false,
        }
    }
}

impl Sink for Stream {
    fn deliver<'a>(&'a mut self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), Trouble>> {
        let line = match self.shape {
            Shape::Text => text::line(notice, false, self.coloured),
            Shape::Diff => text::line(notice, true, self.coloured),
            Shape::Sync => text::sync(notice),
            Shape::Json => form::line(notice),
        };
        let to = Arc::clone(&self.to);
        // A pipe may be full; the runtime's threads are not to wait for whoever reads it.
        let written = tokio::task::spawn_blocking(move || {
            let mut to = to.lock();
            to.write_all(&line)?;
            to.flush()
        });
        async move {
            let written = written.await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
            written.map_err(|error| Trouble::Down {
                why: match error.kind() {
                    io::ErrorKind::BrokenPipe => "nobody reads it any more".to_owned(),
                    _ => format!("cannot write: {error}"),
                },
                after: None,
            })
        }
        .boxed()
    }
}
