//! A sink that writes to standard output or any other writer.

use std::{
    io::{self, Write},
    sync::Arc,
};

use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use windlass::runtime::shows_colour;

use super::{DeliveryError, Sink, encoding, text};
use crate::notice::Notice;

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineFormat {
    /// Human-readable: time, event and object.
    #[default]
    Text,
    /// As `Text`, with the changed fields.
    Diff,
    /// JSON, one object per line.
    Json,
}

/// Writes each notice as a line, with one write.
///
/// A blocked write, as to a full pipe, cannot be cancelled. It blocks this sink only; stop the runtime with `shutdown_timeout`.
pub struct Stream {
    writer: Arc<Mutex<dyn Write + Send>>,
    format: LineFormat,
    coloured: bool,
}

impl Stream {
    /// Writes to standard output; in color if it is a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    pub fn stdout(shape: LineFormat) -> Self {
        Self {
            coloured: shows_colour(&io::stdout()),
            ..Self::new(io::stdout(), shape)
        }
    }

    /// Writes to any writer, without color.
    pub fn new(to: impl Write + Send + 'static, format: LineFormat) -> Self {
        Self {
            writer: Arc::new(Mutex::new(to)),
            format,
            coloured: false,
        }
    }
}

impl Sink for Stream {
    fn deliver<'a>(&'a self, notice: &'a Arc<Notice>) -> BoxFuture<'a, Result<(), DeliveryError>> {
        let line = match self.format {
            LineFormat::Text => text::line(notice, false, self.coloured),
            LineFormat::Diff => text::line(notice, true, self.coloured),
            LineFormat::Json => encoding::line(notice),
        };
        let to = Arc::clone(&self.writer);
        // A full pipe must not block the runtime's threads.
        let written = tokio::task::spawn_blocking(move || {
            let mut to = to.lock();
            to.write_all(&line)?;
            to.flush()
        });
        async move {
            let written = written.await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
            written.map_err(|error| DeliveryError::Unavailable {
                reason: match error.kind() {
                    io::ErrorKind::BrokenPipe => "its reader closed the pipe".to_owned(),
                    _ => format!("cannot write: {error}"),
                },
                retry_after: None,
            })
        }
        .boxed()
    }
}
