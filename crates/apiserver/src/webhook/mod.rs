//! Webhooks: programs outside of the server that it asks about admission and conversion.
//!
//! The verbs are synchronous and wait for nothing. One that needs an answer ends with a [`Status`] that carries the
//! [`Call`]s. The server makes them, keeps the [`Answers`] with the request, and runs the verb once more, which finds them:
//!
//! ```text
//!   request ─► verb ── all answers are known ─► commit ─► response
//!                ▲ └── some are missing ─► Status with Calls ─► WebhookClient ─► Answers ─┐
//!                └────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! So no lock, no guard of an allocation and no thread is held while a webhook works, a client that gives up leaves nothing
//! behind, and a server without webhooks pays nothing for them. Before its commit a verb has no effect, so running it again
//! is harmless. An answer belongs to the content of its call: if an object has changed meanwhile, the webhook is asked again,
//! as a real server does. For that, what a request draws (its time, a uid, names) is drawn once, by its [`Draws`].
//!
//! - [`endpoint`] is where a webhook listens, from its `clientConfig`, which [`client_config`] validates.
//! - [`client`] makes the calls: to a service in the process, or over HTTPS ([`connection`], [`tls`]). [`url`] and
//!   [`media_type`] read what Go's libraries read, with their messages.
//! - [`verifier`] decides which certificates are accepted; [`certificate`] reads them.

mod answers;
mod budget;
mod ca_bundle;
mod certificate;
mod client;
mod client_config;
mod connection;
mod draws;
mod endpoint;
mod first_bytes;
mod in_process;
mod media_type;
mod review;
mod tls;
mod url;
mod verifier;

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;

pub(crate) use answers::{Answer, Answers, CallFailure};
pub(crate) use budget::{Share, WebhookBudget, size_of};
pub(crate) use ca_bundle::ca_bundle_problem;
pub(crate) use client::WebhookClient;
pub(crate) use client_config::client_config_problems;
pub(crate) use draws::{Draws, Purpose, RequestEnvironment};
pub(crate) use endpoint::Endpoint;
pub use in_process::InProcessWebhook;
pub(crate) use review::{ReviewType, not_an_object, type_mismatch};

/// A question to a webhook.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    id: CallId,
    endpoint: Arc<Endpoint>,
    timeout: Duration,
    /// Whether the webhook sees this timeout, even if the request ends earlier.
    shows_whole_timeout: bool,
    /// The beginning of the review, until the value of `request.uid`.
    head: Box<str>,
    /// The fields of `request` after its `uid`, and what follows them.
    rest: Bytes,
}

/// Identifies what a call asks: two calls with the same id have the same answer within a request.
///
/// It is a hash of the question with keys that no client knows, and not the question, which would be kept until the request
/// ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallId([u64; 2]);

static HASHERS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Call {
    /// A question to this endpoint. `webhook` says which webhook is asked, and for which time.
    pub(crate) fn new(
        (endpoint, timeout): (Arc<Endpoint>, Duration),
        webhook: &str,
        head: String,
        rest: Bytes,
    ) -> Self {
        let question = (webhook, &*head, &*rest);
        Self {
            id: CallId([0, 1].map(|index: usize| HASHERS[index].hash_one(question))),
            endpoint,
            timeout,
            shows_whole_timeout: false,
            head: head.into(),
            rest,
        }
    }

    /// The same call, with a webhook that always sees the whole timeout.
    pub(crate) fn with_whole_timeout(mut self) -> Self {
        self.shows_whole_timeout = true;
        self
    }

    /// The whole review.
    fn body(&self, uid: &str) -> Bytes {
        let mut body = Vec::with_capacity(self.head.len() + uid.len() + self.rest.len() + 2);
        body.extend_from_slice(self.head.as_bytes());
        body.extend_from_slice(uid.as_bytes());
        body.extend_from_slice(b"\",");
        body.extend_from_slice(&self.rest);
        body.into()
    }
}
