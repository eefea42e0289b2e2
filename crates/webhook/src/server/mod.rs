//! The webhooks on a socket: TLS, HTTP/1.1 and HTTP/2, and limits on everything that a client can make the server hold.
//!
//! ```text
//!   TcpListener ─► connection limit ─► TLS (CertificateSlot) ─► HTTP, by ALPN ─► body limit ─► WebhookService
//! ```
//!
//! Its only client should be the API server, but every pod of the cluster can connect, and clients do not authenticate. So an
//! address gets no more than half of the connections and of the memory, and each request a limited time: the limits below.
//! For a further connection, an idle one makes room: of the address that has most of them, and first one without a request.
//!
//! It differs from the API server's own socket, which knows users and tenants, and streams that do not end. What they share
//! is hyper.

mod shares;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    convert::Infallible,
    future::Future,
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use parking_lot::Mutex;
use rustls::server::ResolvesServerCert;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::TlsAcceptor;

use self::shares::{Share, Shares};
use crate::service::{ReceivedAt, WebhookService, deadline};

/// Limits on what clients can make the server hold, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Open connections, of which an address has at most half; for a further one, an idle one makes room, and if there is none
    /// it is closed itself. An API server needs one, or one for each request with HTTP/1.1. Default: 512.
    pub connections: usize,
    /// The largest body. A review has an object and its old state, each with at most 3 MiB, and a conversion a list of
    /// objects. Default: 16 MiB.
    pub body_bytes: usize,
    /// All bodies in memory together, of which an address has at most half, and a quarter is for bodies of up to 256 KiB. What
    /// has no room is refused with 429. Default: 128 MiB.
    pub received_bytes: usize,
    /// Timeout of a TLS handshake. Default: 10 s.
    pub handshake_timeout: Duration,
    /// Timeout of a request's head. Default: 10 s.
    pub header_timeout: Duration,
    /// Timeout of a request's body, and of the client to read its answer. Default: 30 s, the longest timeout of a webhook.
    pub body_timeout: Duration,
    /// How long a connection stays open without a request. Default: 2 min; an API server keeps one for 90 s.
    pub idle_timeout: Duration,
    /// Concurrent requests of one HTTP/2 connection. Default: 256.
    pub streams: u32,
    /// The largest head of a request. Default: 32 KiB.
    pub header_bytes: u32,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            body_bytes: 16 * 1024 * 1024,
            received_bytes: 128 * 1024 * 1024,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_mins(2),
            streams: 256,
            header_bytes: 32 * 1024,
        }
    }
}

/// Pause after a failure to accept a connection.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(10);
/// How long requests may continue after the stop: as long as the longest timeout of a webhook.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);
/// Interval of HTTP/2 keep-alive pings, and the timeout of their answers.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest time in which a review is handled, which is the longest timeout of a webhook.
const MAX_HANDLING: Duration = Duration::from_secs(30);
/// The size of the pieces in which an answer is sent.
const PIECE: usize = 16 * 1024;
/// Flow control of HTTP/2: what a client may send before it is read.
const WINDOW_BYTES: u32 = 256 * 1024;
/// Refused certificates are logged at most this often: any client can refuse one.
const REFUSALS_LOGGED_EVERY: Duration = Duration::from_mins(1);

/// A bound socket.
pub(crate) struct Server {
    listener: TcpListener,
    tls: TlsAcceptor,
    service: WebhookService,
    shared: Arc<SharedLimits>,
    /// Notified when a client has refused the certificate.
    refused: Arc<Notify>,
}

struct SharedLimits {
    limits: ServerLimits,
    bytes: Arc<Shares>,
    /// When a refused certificate was logged last.
    logged_refusal: Mutex<Option<Instant>>,
}

impl Server {
    /// Serves on a bound socket. Connections wait until [`serve`](Self::serve) runs.
    pub(crate) fn new(
        listener: TcpListener,
        certificate: Arc<dyn ResolvesServerCert>,
        service: WebhookService,
        limits: ServerLimits,
        refused: Arc<Notify>,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(certificate);
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            listener,
            tls: TlsAcceptor::from(Arc::new(tls)),
            service,
            shared: Arc::new(SharedLimits {
                bytes: Shares::new(limits.received_bytes),
                limits,
                logged_refusal: Mutex::default(),
            }),
            refused,
        })
    }

    /// Serves until `stop` completes. Then what is under way is answered, and nothing new accepted. Dropping the future
    /// closes all connections at once.
    pub(crate) async fn serve(self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(());
        let (mut tasks, mut open) = (JoinSet::new(), OpenConnections::default());
        let mut stop = pin!(stop);
        loop {
            let (stream, peer) = tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
                    // The client has gone, or there is no file descriptor left at the moment.
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        open.close_idle(None);
                        tokio::time::sleep(ACCEPT_ERROR_PAUSE).await;
                        continue;
                    }
                },
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            };
            if !open.make_room(self.shared.limits.connections, peer) {
                continue;
            }
            let activity = Arc::new(Activity::default());
            let connection = Connection {
                tls: self.tls.clone(),
                service: self.service.clone(),
                shared: self.shared.clone(),
                refused: self.refused.clone(),
                activity: activity.clone(),
                peer,
                stopped: stopped.clone(),
            };
            open.push(peer, activity, tasks.spawn(connection.serve(stream)));
        }
        drop(self.listener);
        drop(stopping);
        let ended = async { while tasks.join_next().await.is_some() {} };
        timeout(SHUTDOWN_GRACE, ended).await.ok();
        tasks.shutdown().await;
    }
}

/// The open connections, the oldest first.
#[derive(Default)]
struct OpenConnections(VecDeque<(IpAddr, Arc<Activity>, AbortHandle)>);

impl OpenConnections {
    fn push(&mut self, peer: IpAddr, activity: Arc<Activity>, task: AbortHandle) {
        self.0.push_back((peer, activity, task));
    }

    /// Makes room for a connection of an address, if possible: it has at most half of all.
    fn make_room(&mut self, most: usize, peer: IpAddr) -> bool {
        let share = most.div_ceil(2);
        if self.count(peer) >= share || self.0.len() >= most {
            self.0.retain(|(_, _, task)| !task.is_finished());
        }
        if self.count(peer) >= share {
            return self.close_idle(Some(peer));
        }
        self.0.len() < most || self.close_idle(None)
    }

    fn count(&self, peer: IpAddr) -> usize {
        self.0.iter().filter(|(other, ..)| *other == peer).count()
    }

    /// Closes a connection without a request, of this address or of the one that has most. One that never had a request comes
    /// first, then the oldest. Returns whether there was one.
    fn close_idle(&mut self, peer: Option<IpAddr>) -> bool {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for (peer, ..) in &self.0 {
            *counts.entry(*peer).or_default() += 1;
        }
        let idle = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, (of, activity, _))| peer.is_none_or(|peer| peer == *of) && activity.is_idle());
        // Of equals, `max_by_key` returns the last one.
        let chosen = idle
            .rev()
            .max_by_key(|(_, (peer, activity, _))| (counts.get(peer), !activity.was_used()))
            .map(|(index, _)| index);
        let Some((_, _, task)) = chosen.and_then(|index| self.0.remove(index)) else {
            return false;
        };
        task.abort();
        true
    }
}

/// What a connection does, to close it when it does nothing, or nothing more.
#[derive(Debug)]
struct Activity(Mutex<Exchanges>);

#[derive(Debug)]
struct Exchanges {
    /// When each request that is under way began; a smaller number is an older one.
    open: BTreeMap<u64, Instant>,
    /// How many requests there were.
    count: u64,
    /// The end of the last request, or the start of the connection.
    idle_since: Instant,
}

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new(Exchanges {
            open: BTreeMap::new(),
            count: 0,
            idle_since: Instant::now(),
        }))
    }
}

/// A request that is under way, until its answer is sent or dropped.
struct Busy(Arc<Activity>, u64);

impl Activity {
    fn start(self: &Arc<Self>) -> Busy {
        let mut exchanges = self.0.lock();
        exchanges.count += 1;
        let id = exchanges.count;
        exchanges.open.insert(id, Instant::now());
        Busy(self.clone(), id)
    }

    fn is_idle(&self) -> bool {
        self.0.lock().open.is_empty()
    }

    /// Whether there was a request.
    fn was_used(&self) -> bool {
        self.0.lock().count > 0
    }

    /// Completes when the client has used up its time: without a request, or for one, if it does not send it or does not read
    /// the answer.
    async fn overdue(&self, limits: &ServerLimits) {
        loop {
            let until = self.0.lock().overdue_at(limits);
            tokio::time::sleep_until(until).await;
            if self.0.lock().overdue_at(limits) <= until {
                return;
            }
        }
    }
}

impl Exchanges {
    fn overdue_at(&self, limits: &ServerLimits) -> Instant {
        match self.open.values().next() {
            // To be received, handled and sent.
            Some(started) => *started + limits.body_timeout * 2 + MAX_HANDLING,
            None if self.count == 0 => self.idle_since + limits.header_timeout,
            None => self.idle_since + limits.idle_timeout,
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut exchanges = self.0.0.lock();
        exchanges.open.remove(&self.1);
        exchanges.idle_since = Instant::now();
    }
}

struct Connection {
    tls: TlsAcceptor,
    service: WebhookService,
    shared: Arc<SharedLimits>,
    refused: Arc<Notify>,
    activity: Arc<Activity>,
    peer: IpAddr,
    stopped: watch::Receiver<()>,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        let limits = self.shared.limits.clone();
        stream.set_nodelay(true).ok();
        let stream = match timeout(limits.handshake_timeout, self.tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                // An API server that does not trust the certificate says so.
                if error.to_string().contains("received fatal alert") {
                    self.refused.notify_one();
                    if self.shared.logs_refusal() {
                        tracing::warn!(%error, peer = %self.peer, "a client has refused the certificate of the webhooks");
                    }
                }
                return;
            }
            Err(_) => return,
        };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let (service, shared, activity) = (self.service, self.shared, self.activity.clone());
        let peer = self.peer;
        let service = service_fn(move |request: Request<Incoming>| {
            let (service, shared, busy) = (service.clone(), shared.clone(), activity.start());
            async move { Ok::<_, Infallible>(answer(service, shared, request, (peer, busy)).await) }
        });
        if is_http2 {
            let mut http = http2::Builder::new(TokioExecutor::new());
            http.timer(TokioTimer::new())
                .keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT)
                .max_concurrent_streams(limits.streams)
                .max_header_list_size(limits.header_bytes)
                .initial_stream_window_size(WINDOW_BYTES)
                .initial_connection_window_size(WINDOW_BYTES)
                .max_send_buf_size(WINDOW_BYTES as usize)
                // Resets that are not answered yet: rapid resets end the connection.
                .max_pending_accept_reset_streams(32)
                .max_local_error_reset_streams(64);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            drive(connection, &self.activity, &limits, self.stopped).await;
        } else {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(limits.header_timeout.max(limits.idle_timeout))
                .max_header_size(limits.header_bytes as usize);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            drive(connection, &self.activity, &limits, self.stopped).await;
        }
    }
}

/// Drives a connection until it ends, is idle for too long, or the server stops. Errors concern only its client.
async fn drive<C: GracefulConnection>(
    connection: C,
    activity: &Activity,
    limits: &ServerLimits,
    mut stopped: watch::Receiver<()>,
) {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = activity.overdue(limits) => return,
        _ = stopped.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    timeout(SHUTDOWN_GRACE, connection).await.ok();
}

/// An answer in pieces, which holds its request's guards until the last one is taken: hyper takes the next piece when the
/// client has read enough.
struct AnswerBody {
    rest: Bytes,
    /// Only held.
    _guards: (Busy, Share),
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let size = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(size);
        Poll::Ready((size > 0).then_some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

impl SharedLimits {
    /// Whether a refused certificate is logged.
    fn logs_refusal(&self) -> bool {
        let (mut last, now) = (self.logged_refusal.lock(), Instant::now());
        let is_due = last.is_none_or(|last| now - last >= REFUSALS_LOGGED_EVERY);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

async fn answer(
    service: WebhookService,
    shared: Arc<SharedLimits>,
    request: Request<Incoming>,
    (peer, busy): (IpAddr, Busy),
) -> Response<AnswerBody> {
    let is_http1 = request.version() <= Version::HTTP_11;
    let (mut parts, body) = request.into_parts();
    // The API server's clock runs already.
    let received_at = Instant::now();
    parts.extensions.insert(ReceivedAt(received_at));
    let until = deadline(received_at, &parts.uri).min(received_at + shared.limits.body_timeout);
    let mut share = shared.bytes.share(peer);
    let received = timeout_at(until, receive(&shared.limits, &mut share, body)).await;
    let response = match received.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT)) {
        Ok(body) => service.answer(Request::from_parts(parts, body)).await,
        Err(code) => {
            tracing::debug!(%peer, path = parts.uri.path(), %code, "a request is refused before it is complete");
            refuse(code, is_http1)
        }
    };
    response.map(|rest| AnswerBody {
        rest,
        _guards: (busy, share),
    })
}

fn refuse(code: StatusCode, is_http1: bool) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = code;
    if is_http1 {
        // The rest of the body is not read.
        let close = http::HeaderValue::from_static("close");
        response.headers_mut().insert(http::header::CONNECTION, close);
    }
    response
}

/// Receives a body within the limit on its size, and takes room for what arrives.
async fn receive(limits: &ServerLimits, share: &mut Share, mut body: Incoming) -> Result<Bytes, StatusCode> {
    if body.size_hint().lower() > limits.body_bytes as u64 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let mut received = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else {
            continue;
        };
        if received.len() + data.len() > limits.body_bytes {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if !share.grow(data.len()) {
            return Err(StatusCode::TOO_MANY_REQUESTS);
        }
        received.extend_from_slice(&data);
    }
    Ok(received.freeze())
}
