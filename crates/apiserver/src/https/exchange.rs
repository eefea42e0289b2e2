//! One request and its answer on a connection: detects clients that do not read their answer.
//!
//! hyper polls an answer's body for chunks. Between the head or a chunk and the next poll the server waits for the client:
//! [`ReadProgress`] records since when, and the driver of the exchange (an HTTP/1 connection, or the task of an HTTP/2
//! stream) ends when that takes too long. While the body has nothing to send, the client is not late.
//!
//! hyper drops a body when it has buffered the last chunk. The chunks hold the [`Exchange`], so that it ends when the
//! last of them is sent; until then the [`Connection`] times them.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
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

use super::connections::{BufferWindow, Connection};
use crate::{Server, body::Body, permits::Permit};

tokio::task_local! {
    /// The progress of the exchange that the current task drives.
    static PROGRESS: ReadProgress;
}

/// Since when the client has not read a chunk of an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadProgress(Arc<Mutex<Option<Instant>>>);

impl ReadProgress {
    /// Drives exchanges whose progress is recorded here.
    pub(super) async fn scope<F: Future>(self, exchanges: F) -> F::Output {
        PROGRESS.scope(self, exchanges).await
    }

    /// Waits until the client has not read a chunk for this long.
    pub(super) async fn stalled(&self, unread: Duration) {
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
            let progress = ReadProgress::default();
            tokio::select! {
                biased;
                _ = progress.clone().scope(stream) => {}
                () = progress.stalled(unread) => {}
            }
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
        let server = self.server.clone();
        let exchange = Exchange::begin(self.connection.clone());
        async move {
            let response = server.handle(request).await;
            let progress = PROGRESS.try_with(Clone::clone).unwrap_or_default();
            Ok(response.map(|body| TrackedBody::new(body, exchange, progress)))
        }
        .boxed()
    }
}

/// A request, from its head until its answer is sent or dropped. The connection is busy until then.
struct Exchange {
    connection: Arc<Connection>,
    /// The permit of the request, once it is answered; only held.
    permit: Option<Permit>,
    /// Whether hyper has the whole answer.
    is_complete: AtomicBool,
    /// When hyper got the whole answer before all of it was sent.
    buffered_in: OnceLock<BufferWindow>,
}

impl Exchange {
    fn begin(connection: Arc<Connection>) -> Self {
        connection.request_started();
        Self {
            connection,
            permit: None,
            is_complete: AtomicBool::new(false),
            buffered_in: OnceLock::new(),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let is_reset = !*self.is_complete.get_mut();
        self.connection
            .request_finished(is_reset, self.buffered_in.get().copied());
    }
}

/// A chunk of an answer, which holds the exchange until it is sent.
pub(super) struct TrackedChunk {
    bytes: Bytes,
    _exchange: Arc<Exchange>,
}

impl Buf for TrackedChunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

/// An answer's body that tracks whether the client reads it.
pub(super) struct TrackedBody {
    body: Body,
    exchange: Arc<Exchange>,
    progress: ReadProgress,
}

impl TrackedBody {
    fn new(mut body: Body, mut exchange: Exchange, progress: ReadProgress) -> Self {
        exchange.permit = body.take_permit();
        exchange.is_complete = http_body::Body::is_end_stream(&body).into();
        let exchange = Arc::new(exchange);
        // The head is unread, too: a client whose window is closed never lets hyper poll the body.
        progress.chunk_sent();
        Self {
            body,
            exchange,
            progress,
        }
    }
}

impl http_body::Body for TrackedBody {
    type Data = TrackedChunk;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<TrackedChunk>, Infallible>>> {
        self.progress.chunk_requested();
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = &polled {
            if frame.is_some() {
                self.progress.chunk_sent();
            }
            if frame.is_none() || self.body.is_end_stream() {
                self.exchange.is_complete.store(true, Ordering::Relaxed);
            }
        }
        let track = |bytes| TrackedChunk {
            bytes,
            _exchange: self.exchange.clone(),
        };
        polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(track))))
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
        // hyper has the rest, or the client has reset the stream.
        self.progress.chunk_requested();
        if Arc::strong_count(&self.exchange) > 1 {
            let exchange = &self.exchange;
            exchange
                .buffered_in
                .get_or_init(|| exchange.connection.answer_buffered());
        }
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
