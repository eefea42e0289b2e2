//! One request and its answer on a connection: who is being waited for.
//!
//! An answer is a body that hyper asks for pieces. Between handing out a piece and being asked for the next, the client is being
//! waited for: [`Progress`] notes since when, and whatever drives the exchange (an HTTP/1 connection, or the task of an HTTP/2
//! stream) ends when that is too long. While the body itself has nothing to send, the client is not late.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::JoinSet,
    time::Instant,
};
use tower::Service as _;

use super::connections::Seat;
use crate::{Server, body::Body};

tokio::task_local! {
    /// Of the exchange that the current task drives.
    static PROGRESS: Progress;
}

/// Since when the client has left a piece of an answer unread.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<Mutex<Option<Instant>>>);

impl Progress {
    /// Drives exchanges until they are done or the client reads nothing for too long; `None` then.
    pub(super) async fn drive<F: Future>(self, exchanges: F, unread: Duration) -> Option<F::Output> {
        let waiting = self.clone();
        tokio::select! {
            biased;
            output = PROGRESS.scope(self, exchanges) => Some(output),
            () = waiting.stalled(unread) => None,
        }
    }

    async fn stalled(&self, unread: Duration) {
        loop {
            let now = Instant::now();
            let since = self.0.lock().unwrap_or(now);
            let deadline = since + unread;
            if deadline <= now {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }

    fn hand_out(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    fn ask(&self) {
        *self.0.lock() = None;
    }
}

/// Runs the streams of an HTTP/2 connection, which end with it.
#[derive(Clone)]
pub(super) struct Streams {
    tasks: Arc<Mutex<JoinSet<()>>>,
    unread: Duration,
}

impl Streams {
    pub(super) fn new(unread: Duration) -> Self {
        Self {
            tasks: Arc::default(),
            unread,
        }
    }
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let unread = self.unread;
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            Progress::default().drive(stream, unread).await;
        });
    }
}

/// The server for one connection.
#[derive(Clone)]
pub(super) struct Connected {
    server: Server,
    seat: Arc<Seat>,
}

impl Connected {
    pub(super) fn new(server: Server, seat: Arc<Seat>) -> Self {
        Self { server, seat }
    }
}

impl hyper::service::Service<Request<Incoming>> for Connected {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Answer>, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut server = self.server.clone();
        let exchange = Exchange::begin(self.seat.clone());
        async move {
            let response = server.call(request).await?;
            let progress = PROGRESS.try_with(Clone::clone).unwrap_or_default();
            Ok(response.map(|body| Answer::new(body, exchange, progress)))
        }
        .boxed()
    }
}

/// Keeps a connection busy from a request's head to the end of its answer.
struct Exchange {
    seat: Arc<Seat>,
    is_complete: bool,
}

impl Exchange {
    fn begin(seat: Arc<Seat>) -> Self {
        seat.begin();
        Self {
            seat,
            is_complete: false,
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.seat.finish(!self.is_complete);
    }
}

/// An answer's body that notes how the client reads it.
pub(super) struct Answer {
    body: Body,
    exchange: Exchange,
    progress: Progress,
}

impl Answer {
    fn new(body: Body, mut exchange: Exchange, progress: Progress) -> Self {
        exchange.is_complete = http_body::Body::is_end_stream(&body);
        Self {
            body,
            exchange,
            progress,
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.progress.ask();
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = &polled {
            if frame.is_some() {
                self.progress.hand_out();
            }
            if frame.is_none() || self.body.is_end_stream() {
                self.exchange.is_complete = true;
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // What is left is hyper's, and the connection counts as idle from now on.
        self.progress.ask();
    }
}

/// An HTTP/1 connection's bytes; notes when the first of a head comes.
pub(super) struct Heard<S> {
    stream: S,
    seat: Arc<Seat>,
}

impl<S> Heard<S> {
    pub(super) fn new(stream: S, seat: Arc<Seat>) -> Self {
        Self { stream, seat }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.seat.received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
