//! The answers that a request has got so far.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use super::{
    Call, CallId,
    budget::{ResponseBody, Share},
};
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
    /// The server holds too many reviews and responses for this user. No failure policy excuses that: a client can cause it.
    #[error("the server holds too many responses of webhooks")]
    NoRoom,
}

/// The answers to the calls of one request.
///
/// A run of the verb that has all answers to its first questions finds out the next ones. If the object has changed
/// meanwhile, it asks something else, and what it has not read is dropped.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<HashMap<CallId, Known>>);

#[derive(Debug)]
struct Known {
    answer: Arc<Answer>,
    was_read: bool,
}

impl Answers {
    /// The answer to a call, or the status that makes the server ask.
    pub(crate) fn get(&self, call: Call) -> Result<Arc<Answer>, Status> {
        self.find(&call).ok_or_else(|| Status::unanswered(vec![call]))
    }

    /// The answer to a call, if there is one.
    pub(crate) fn find(&self, call: &Call) -> Option<Arc<Answer>> {
        let mut answers = self.0.lock();
        let known = answers.get_mut(&call.id)?;
        known.was_read = true;
        Some(known.answer.clone())
    }

    /// Begins a run of the verb.
    pub(crate) fn begin_run(&self) {
        for known in self.0.lock().values_mut() {
            known.was_read = false;
        }
    }

    /// Drops the answers that the run has not read.
    pub(crate) fn drop_unread(&self) {
        self.0.lock().retain(|_, known| known.was_read);
    }

    /// Adds the answer to a call.
    pub(super) fn add(&self, id: CallId, mut answer: Answer) {
        let mut answers = self.0.lock();
        answer.arrival = answers.len();
        let known = Known {
            answer: Arc::new(answer),
            was_read: false,
        };
        answers.insert(id, known);
    }

    /// A share of the budget from which the answers have theirs, without bytes. `None` without answers.
    pub(crate) fn share(&self) -> Option<Share> {
        let answers = self.0.lock();
        let mut bodies = answers
            .values()
            .filter_map(|known| known.answer.response.as_ref().ok());
        bodies.next().map(|body| body.share().another())
    }

    /// The size of all answers, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.lock().values().map(|known| known.answer.size()).sum()
    }
}
