//! The answers that a request has got so far.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use super::{Call, CallId, budget::ResponseBody};
use crate::status::Status;

/// An answer of a webhook, as it was received.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The `uid` of the question.
    pub(crate) uid: String,
    /// The body of a successful response, or why there is none.
    pub(crate) response: Result<ResponseBody, CallFailure>,
    /// The place in the order in which answers arrived.
    pub(crate) arrival: usize,
}

impl Answer {
    /// The size of the response, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.response.as_ref().map_or(0, |body| body.bytes.len())
    }
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
pub(crate) struct Answers(Mutex<HashMap<CallId, Arc<Answer>>>);

impl Answers {
    /// The answer to a call, or the status that makes the server ask.
    pub(crate) fn get(&self, call: Call) -> Result<Arc<Answer>, Status> {
        self.find(&call).ok_or_else(|| Status::unanswered(vec![call]))
    }

    /// The answer to a call, if there is one.
    pub(crate) fn find(&self, call: &Call) -> Option<Arc<Answer>> {
        self.0.lock().get(&call.id).cloned()
    }

    /// Adds the answer to a call.
    pub(super) fn add(&self, id: CallId, mut answer: Answer) {
        let mut answers = self.0.lock();
        answer.arrival = answers.len();
        answers.insert(id, Arc::new(answer));
    }

    /// The size of all answers, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.lock().values().map(|answer| answer.size()).sum()
    }
}
