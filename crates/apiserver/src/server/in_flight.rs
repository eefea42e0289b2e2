//! Limits on concurrent requests.

use std::pin::pin;

use bytes::{Buf, Bytes, BytesMut};
use http::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use windlass_api::request::RequestInfo;

use super::{Server, respond::too_many_requests};
use crate::{
    auth::User,
    body::Body,
    limits::{self, Limits},
    permits::{Permit, Pool},
    status::Status,
};

/// The unit in which bodies are counted, in bytes.
const BODY_UNIT: usize = 1024;

/// What every user may have of the answers that are not objects, in bytes.
const MIN_ANSWER_BYTES: usize = 1024 * 1024;

/// The length of selectors that a watch may have for one permit, in bytes. Each byte takes up to fifty in memory until the
/// watch ends.
const SELECTOR_UNIT: usize = 256;

/// The remaining capacity for requests.
pub(super) struct InFlight {
    reads: Pool,
    writes: Pool,
    watches: Pool,
    /// Reads that wait for a revision that the server has not reached: they need no memory and no CPU, so they must not
    /// take the place of other reads.
    waiting: Pool,
    /// In units of [`BODY_UNIT`] bytes.
    received: Pool,
    /// Answers that hold no other permit: errors and small documents. In units of [`BODY_UNIT`] bytes.
    answers: Pool,
}

impl InFlight {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            reads: Pool::new(limits.reads),
            writes: Pool::new(limits.writes),
            watches: Pool::new(limits.watches),
            waiting: Pool::new(limits.reads),
            received: Pool::with_minimum(
                limits.received_bytes.div_ceil(BODY_UNIT),
                limits::MAX_BODY_BYTES.div_ceil(BODY_UNIT),
            ),
            answers: Pool::with_minimum(
                limits.answer_bytes.div_ceil(BODY_UNIT),
                MIN_ANSWER_BYTES.div_ceil(BODY_UNIT),
            ),
        }
    }

    /// Makes an answer count until it is sent, if it is in memory and holds no permit: an error quotes what the client
    /// sent, and a client that reads nothing can have thousands of them. Beyond the limit the answer is a 429, which is
    /// too small to count. Without a user the request is an anonymous one.
    pub(super) fn hold_answer(&self, response: &mut Response<Body>, user: Option<&User>) {
        let units = response.body().uncounted_bytes() / BODY_UNIT;
        if units == 0 {
            return;
        }
        let permit = match user {
            Some(user) => self.answers.acquire_many(user, units),
            None => self.answers.acquire_many(&User::anonymous(), units),
        };
        match permit {
            Ok(permit) => response.body_mut().hold_permit(permit),
            Err(_) => *response = too_many_requests(),
        }
    }

    /// Acquires a permit for a request. Administrators and long-running requests need none.
    pub(super) fn acquire(&self, user: &User, info: &RequestInfo) -> Result<Option<Permit>, Status> {
        if info.is_long_running() {
            return Ok(None);
        }
        let pool = match &*info.access.verb {
            "get" | "list" => &self.reads,
            _ => &self.writes,
        };
        pool.acquire(user)
    }

    /// Acquires a permit for a read, also for one that streams its answer. Administrators need none.
    pub(super) fn acquire_read(&self, user: &User) -> Result<Option<Permit>, Status> {
        self.reads.acquire(user)
    }

    /// Acquires a permit for a write, also to ask webhooks about a connection. Administrators need none.
    pub(super) fn acquire_write(&self, user: &User) -> Result<Option<Permit>, Status> {
        self.writes.acquire(user)
    }

    /// Acquires a permit for an open watch or a log that is followed; a watch with a long selector is more than one.
    /// Administrators need none, nor do controllers in the process.
    pub(super) fn acquire_watch(&self, user: &User, info: &RequestInfo) -> Result<Option<Permit>, Status> {
        let length = |key| info.query.text(key).map_or(0, str::len);
        let selectors = length("labelSelector") + length("fieldSelector");
        self.watches.acquire_many(user, 1 + selectors / SELECTOR_UNIT)
    }

    /// Acquires a permit to wait for a revision. Administrators need none.
    pub(super) fn acquire_wait(&self, user: &User) -> Result<Option<Permit>, Status> {
        self.waiting.acquire(user)
    }
}

/// A received request body.
pub(super) struct ReceivedBody {
    pub(super) bytes: Bytes,
    /// Its share of [`Limits::received_bytes`].
    _permit: Option<Permit>,
}

impl Server {
    /// See [`LargeWork::run_as`].
    pub(super) async fn work<T>(&self, user: &User, size: usize, work: impl FnOnce() -> T) -> T {
        self.large_work.run_as(user, size, work).await
    }

    /// Receives a body, within the limits on its size and on pauses.
    pub(super) async fn receive<B>(&self, body: B, user: &User) -> Result<ReceivedBody, Status>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let load = &self.api.in_flight;
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        let (mut held, mut counted) = (None, 0);
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
            if units > counted {
                load.received.extend(&mut held, user, units - counted)?;
                counted = units;
            }
        }
        let bytes = if rest.is_empty() { first } else { rest.freeze() };
        Ok(ReceivedBody { bytes, _permit: held })
    }
}
