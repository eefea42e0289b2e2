//! Authentication: which user makes a request.

use std::sync::Arc;

use http::{HeaderMap, header};

use super::{AccessControl, ISSUER, User, policy::aggregate_messages};
use crate::status::Status;

/// How the user of a request is determined.
#[derive(Clone, Debug)]
pub(crate) enum Authenticator {
    /// The given user, without proof: the caller is in this process and holds the server itself.
    Trusted(Arc<User>),
    /// The user that the request's credentials prove.
    Credentials(Peer),
}

/// The client at the other end of the connection.
#[derive(Clone, Debug, Default)]
pub(crate) enum Peer {
    /// It presented no certificate.
    #[default]
    NoCertificate,
    /// It presented a certificate that a trusted authority signed.
    Verified(Arc<User>),
    /// It presented a certificate that no trusted authority signed, or not for client authentication.
    Untrusted,
}

/// How requests without credentials are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AnonymousAuth {
    /// As the user `system:anonymous`.
    #[default]
    Allowed,
    /// Answered with 401.
    Refused,
}

/// The authenticated user, and a warning for the client.
pub(crate) struct Authenticated {
    pub(crate) user: Arc<User>,
    pub(crate) warning: Option<&'static str>,
}

/// The first message for every invalid token; details follow it.
const INVALID_TOKEN: &str = "invalid bearer token";

const SPACE_WARNING: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

impl AccessControl {
    /// Determines the user of a request. Fails if the request has credentials and none is valid.
    pub(crate) fn authenticate(
        &self,
        authenticator: &Authenticator,
        headers: &HeaderMap,
    ) -> Result<Authenticated, Status> {
        let found = |user| Ok(Authenticated { user, warning: None });
        let peer = match authenticator {
            Authenticator::Trusted(user) | Authenticator::Credentials(Peer::Verified(user)) => {
                return found(user.clone());
            }
            Authenticator::Credentials(peer) => peer,
        };
        match bearer(headers) {
            Bearer::Token(token) => match self.user_of_token(token, &[ISSUER.to_owned()]) {
                Ok((user, _)) => found(user),
                Err(why) => {
                    tracing::debug!(why, "invalid bearer token");
                    Err(Status::unauthorized())
                }
            },
            _ if matches!(peer, Peer::Untrusted) => Err(Status::unauthorized()),
            _ if self.anonymous == AnonymousAuth::Refused => Err(Status::unauthorized()),
            other => Ok(Authenticated {
                user: Arc::new(User::anonymous()),
                warning: matches!(other, Bearer::ExtraSpace).then_some(SPACE_WARNING),
            }),
        }
    }

    /// Returns the user of a token and the audiences that match, or why it is invalid.
    pub(crate) fn user_of_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(Arc<User>, Vec<String>), String> {
        let ours = audiences.iter().any(|audience| audience == ISSUER);
        if let Some(user) = self.tokens.get(token).filter(|_| ours) {
            return Ok((user.clone(), vec![ISSUER.to_owned()]));
        }
        match self.service_account_of_token(token, audiences) {
            Ok(Some((user, audiences))) => Ok((Arc::new(user), audiences)),
            Ok(None) => Err(INVALID_TOKEN.to_owned()),
            Err(why) => Err(aggregate_messages(&[INVALID_TOKEN.to_owned(), why])),
        }
    }
}

/// The content of the `Authorization` header.
enum Bearer<'a> {
    Token(&'a str),
    /// An extra space before the token, which makes the real server ignore it.
    ExtraSpace,
    None,
}

fn bearer(headers: &HeaderMap) -> Bearer<'_> {
    let text = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let mut parts = text.unwrap_or_default().trim().splitn(3, ' ');
    if !parts.next().unwrap_or_default().eq_ignore_ascii_case("bearer") {
        return Bearer::None;
    }
    match (parts.next(), parts.next()) {
        (Some(""), Some(_)) => Bearer::ExtraSpace,
        (None | Some(""), _) => Bearer::None,
        (Some(token), _) => Bearer::Token(token),
    }
}
