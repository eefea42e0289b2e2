//! Limits on concurrent requests, and threads for large work.

use std::{pin::pin, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use windlass_api::request::RequestInfo;

use super::Server;
use crate::{
    auth::User,
    limits::{self, Limits},
    status::Status,
};

/// The unit in which bodies are counted, in bytes.
const BODY_UNIT: usize = 1024;

/// The remaining capacity for requests.
pub(super) struct InFlight {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    /// In units of [`BODY_UNIT`] bytes.
    received: Arc<Semaphore>,
}

impl InFlight {
    pub(super) fn new(limits: &Limits) -> Self {
        let semaphore = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self {
            reads: semaphore(limits.reads),
            writes: semaphore(limits.writes),
            received: semaphore(limits.received_bytes.div_ceil(BODY_UNIT)),
        }
    }

    /// How many reads and writes are in flight.
    pub(super) fn used(&self, limits: &Limits) -> (usize, usize) {
        let used = |most: usize, permits: &Semaphore| most.saturating_sub(permits.available_permits());
        (used(limits.reads, &self.reads), used(limits.writes, &self.writes))
    }

    /// Acquires a permit for a request. Administrators and long-running requests need none.
    pub(super) fn acquire(
        &self,
        user: &User,
        info: &RequestInfo,
    ) -> Result<Option<OwnedSemaphorePermit>, Status> {
        if user.is_master() || info.is_long_running() {
            return Ok(None);
        }
        let permits = match &*info.access.verb {
            "get" | "list" => &self.reads,
            _ => &self.writes,
        };
        let permit = permits.clone().try_acquire_owned();
        permit.map(Some).map_err(|_| Status::busy())
    }
}

/// Limits the threads that do large work.
#[derive(Clone)]
pub(super) struct LargeWorkLimit(Arc<Semaphore>);

impl LargeWorkLimit {
    /// For a server on a socket; `None` on a current-thread runtime.
    pub(super) fn new() -> Option<Self> {
        if Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread {
            return None;
        }
        // Large work is CPU-bound: more threads than cores would not finish sooner. One core stays free for small work.
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() - 1);
        Some(Self(Arc::new(Semaphore::new(threads.max(1)))))
    }
}

/// A received request body.
pub(super) struct ReceivedBody {
    pub(super) bytes: Bytes,
    /// Its share of [`Limits::received_bytes`].
    _permit: Option<OwnedSemaphorePermit>,
}

impl Server {
    /// Does work on `size` bytes: on this thread if small, otherwise on a thread that handles no other request.
    pub(super) async fn work<T>(&self, size: usize, work: impl FnOnce() -> T) -> T {
        match &self.large_work {
            Some(LargeWorkLimit(threads)) if size > self.api.limits.large_work_bytes => {
                let _one = threads.acquire().await;
                tokio::task::block_in_place(work)
            }
            _ => work(),
        }
    }

    /// Receives a body, within the limits on its size and on pauses.
    pub(super) async fn receive<B>(&self, body: B, user: &User) -> Result<ReceivedBody, Status>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let load = &self.api.in_flight;
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        let mut held: Option<OwnedSemaphorePermit> = None;
        let mut body = pin!(Limited::new(body, limits::MAX_BODY_BYTES));
        loop {
            let frame = match tokio::time::timeout(self.api.limits.body_timeout, body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) if error.is::<LengthLimitError>() => {
                    return Err(Status::too_large(limits::MAX_BODY_BYTES));
                }
                Ok(Some(Err(error))) => {
                    return Err(Status::bad_request(format!(
                        "the body could not be read: {error}"
                    )));
                }
                Err(_) => return Err(Status::timeout()),
            };
            let Ok(mut data) = frame.into_data() else {
                continue;
            };
            if first.is_empty() {
                first = data.copy_to_bytes(data.remaining());
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                while data.has_remaining() {
                    let chunk = data.chunk();
                    let length = chunk.len();
                    rest.extend_from_slice(chunk);
                    data.advance(length);
                }
            }
            let units = first.len().max(rest.len()).div_ceil(BODY_UNIT);
            let missing = units - held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            if missing > 0 && !user.is_master() {
                let missing = u32::try_from(missing).unwrap_or(u32::MAX);
                let more = load.received.clone().try_acquire_many_owned(missing);
                let more = more.map_err(|_| Status::busy())?;
                match &mut held {
                    Some(held) => held.merge(more),
                    None => held = Some(more),
                }
            }
        }
        let bytes = if rest.is_empty() { first } else { rest.freeze() };
        Ok(ReceivedBody { bytes, _permit: held })
    }
}
