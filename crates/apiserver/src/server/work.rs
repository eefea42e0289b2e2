//! How much is worked on at once, and where.

use std::{pin::pin, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use windlass_rights::RequestInfo;

use super::Server;
use crate::{
    auth::User,
    limits::{self, Limits},
    status::Status,
};

/// The unit in which bodies are counted.
const UNIT: usize = 1024;

/// What is left of the limits on work.
pub(crate) struct Load {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    /// In units of [`UNIT`] bytes.
    received: Arc<Semaphore>,
}

impl Load {
    pub(super) fn new(limits: &Limits) -> Self {
        let semaphore = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self {
            reads: semaphore(limits.reads),
            writes: semaphore(limits.writes),
            received: semaphore(limits.received.div_ceil(UNIT)),
        }
    }

    /// A place among the requests that are worked on; administrators and what runs long need none.
    pub(super) fn enter(
        &self,
        user: &User,
        info: &RequestInfo,
    ) -> Result<Option<OwnedSemaphorePermit>, Status> {
        if user.is_master() || info.is_long_running() {
            return Ok(None);
        }
        let places = match &*info.access.verb {
            "get" | "list" => &self.reads,
            _ => &self.writes,
        };
        let place = places.clone().try_acquire_owned();
        place.map(Some).map_err(|_| Status::busy())
    }
}

/// Threads for large work, beside those that answer.
#[derive(Clone)]
pub(super) struct Workshop(Arc<Semaphore>);

impl Workshop {
    /// For a socket's server; `None` on a runtime that has only one thread.
    pub(super) fn new() -> Option<Self> {
        if Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread {
            return None;
        }
        // Large work is a matter of the processor: more of it at once would finish none of it sooner.
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() - 1);
        Some(Self(Arc::new(Semaphore::new(threads.max(1)))))
    }
}

/// A request's body.
pub(super) struct Received {
    pub(super) bytes: Bytes,
    /// Its part of what may be held at once.
    _held: Option<OwnedSemaphorePermit>,
}

impl Server {
    /// Does work on `size` bytes: on this thread if that is little, otherwise on a thread that answers no other request.
    pub(super) async fn work<T>(&self, size: usize, work: impl FnOnce() -> T) -> T {
        match &self.workshop {
            Some(Workshop(threads)) if size > self.api.limits.large => {
                let _one = threads.acquire().await;
                tokio::task::block_in_place(work)
            }
            _ => work(),
        }
    }

    /// Reads a body, while its client goes on sending it.
    pub(super) async fn receive<B>(&self, body: B, user: &User) -> Result<Received, Status>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let load = &self.api.load;
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        let mut held: Option<OwnedSemaphorePermit> = None;
        let mut body = pin!(Limited::new(body, limits::BODY));
        loop {
            let frame = match tokio::time::timeout(self.api.limits.body, body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) if error.is::<LengthLimitError>() => {
                    return Err(Status::too_large(limits::BODY));
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
            let units = first.len().max(rest.len()).div_ceil(UNIT);
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
        Ok(Received { bytes, _held: held })
    }
}
