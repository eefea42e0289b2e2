//! One request and its answer on a connection: detects clients that do not read their answer.
//!
//! hyper polls an answer's body for chunks. Between a chunk and the next poll the server waits for the client:
//! [`ReadProgress`] records since when, and the driver of the exchange (an HTTP/1 connection, or the task of an HTTP/2
//! stream) ends when that takes too long. While the body has nothing to send, the client is not late.

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

use super::connections::Connection;
use crate::{Server, body::Body};

tokio::task_local! {
    /// The progress of the exchange that the current task drives.
    static PROGRESS: ReadProgress;
}

/// Since when the client has not read a chunk of an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadProgress(Arc<Mutex<Option<Instant>>>);

impl ReadProgress {
    /// Drives exchanges to completion; `None` if the client reads nothing for too long.
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

    fn chunk_sent(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    fn chunk_requested(&self) {
        *self.0.lock() = None;
    }
}

/// Runs the streams of an HTTP/2 connection, and aborts them when dropped.
#[derive(Clone)]
pub(super) struct StreamExecutor {
    tasks: Arc<Mutex<JoinSet<()>>>,
    unread: Duration,
}

impl StreamExecutor {
    pub(super) fn new(unread: Duration) -> Self {
        Self {
            tasks: Arc::default(),
            unread,
        }
    }
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let unread = self.unread;
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            ReadProgress::default().drive(stream, unread).await;
        });
    }
}

/// The server for one connection.
#[derive(Clone)]
pub(super) struct ConnectionService {
    server: Server,
    connection: Arc<Connection>,
}

impl ConnectionService {
    pub(super) fn new(server: Server, connection: Arc<Connection>) -> Self {
        Self { server, connection }
    }
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response<TrackedBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<TrackedBody>, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut server = self.server.clone();
        let exchange = BusyGuard::begin(self.connection.clone());
        async move {
            let response = server.call(request).await?;
            let progress = PROGRESS.try_with(Clone::clone).unwrap_or_default();
            Ok(response.map(|body| TrackedBody::new(body, exchange, progress)))
        }
        .boxed()
    }
}

/// Marks a connection as busy from a request's head to the end of its answer.
struct BusyGuard {
    connection: Arc<Connection>,
    is_complete: bool,
}

impl BusyGuard {
    fn begin(connection: Arc<Connection>) -> Self {
        connection.request_started();
        Self {
            connection,
            is_complete: false,
        }
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.connection.request_finished(!self.is_complete);
    }
}

/// An answer's body that tracks whether the client reads it.
pub(super) struct TrackedBody {
    body: Body,
    exchange: BusyGuard,
    progress: ReadProgress,
}

impl TrackedBody {
    fn new(body: Body, mut exchange: BusyGuard, progress: ReadProgress) -> Self {
        exchange.is_complete = http_body::Body::is_end_stream(&body);
        Self {
            body,
            exchange,
            progress,
        }
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.progress.chunk_requested();
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = &polled {
            if frame.is_some() {
                self.progress.chunk_sent();
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

impl Drop for TrackedBody {
    fn drop(&mut self) {
        // hyper has the rest, and the connection counts as idle from now on.
        self.progress.chunk_requested();
    }
}

/// The stream of an HTTP/1 connection; reports received bytes, to time heads.
pub(super) struct TrackedStream<S> {
    stream: S,
    connection: Arc<Connection>,
}

impl<S> TrackedStream<S> {
    pub(super) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { stream, connection }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.connection.bytes_received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
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
