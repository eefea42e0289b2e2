//! The answers that a request has got so far.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{Call, CallKey};
use crate::status::Status;

/// An answer of a webhook, as it was received.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The `uid` of the question.
    pub(crate) uid: String,
    /// The body of a successful response, or why there is none.
    pub(crate) response: Result<Bytes, CallFailure>,
    /// The place in the order in which answers arrived.
    pub(crate) arrival: usize,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallFailure {
    /// The configuration of the webhook cannot be used.
    #[error("{0}")]
    NotSent(String),
    /// The HTTP client failed, or the response is an error.
    #[error("{0}")]
    Failed(String),
}

/// The answers to the calls of one request.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<HashMap<CallKey, Arc<Answer>>>);

impl Answers {
    /// The answer to a call, or the status that makes the server ask.
    pub(crate) fn get(&self, call: Call) -> Result<Arc<Answer>, Status> {
        self.find(&call).ok_or_else(|| Status::unanswered(vec![call]))
    }

    /// The answer to a call, if there is one.
    pub(crate) fn find(&self, call: &Call) -> Option<Arc<Answer>> {
        self.0.lock().get(&call.key).cloned()
    }

    /// Adds the answer to a call.
    pub(super) fn add(&self, key: CallKey, mut answer: Answer) {
        let mut answers = self.0.lock();
        answer.arrival = answers.len();
        answers.insert(key, Arc::new(answer));
    }

    /// The size of all answers, in bytes.
    pub(crate) fn size(&self) -> usize {
        let answers = self.0.lock();
        let sizes = answers
            .values()
            .map(|answer| answer.response.as_ref().map_or(0, Bytes::len));
        sizes.sum()
    }
}
