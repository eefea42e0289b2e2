//! How somebody comes in, and who they are.

use std::sync::Arc;

use http::{HeaderMap, header};

use super::{ISSUER, User, policy::together};
use crate::{status::Status, verbs::Api};

/// What a request comes through.
#[derive(Clone, Debug)]
pub(crate) enum Door {
    /// It is made by this user, without proof: the caller is in this process and holds the server itself.
    Trusted(Arc<User>),
    /// It is made by whom its credentials prove.
    Guarded(Peer),
}

/// Who is at the other end of the connection.
#[derive(Clone, Debug, Default)]
pub(crate) enum Peer {
    /// Nobody says.
    #[default]
    Unknown,
    /// A certificate that one of ours signed says so.
    Known(Arc<User>),
    /// A certificate says so, but nobody we know signed it, or not for that.
    Refused,
}

/// What requests without credentials are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Anonymous {
    /// Made by `system:anonymous`.
    #[default]
    Allowed,
    /// Refused.
    Refused,
}

/// Who was found, and what the client should know of how it came.
pub(crate) struct Found {
    pub(crate) user: Arc<User>,
    pub(crate) warning: Option<&'static str>,
}

/// What is said of every token that is not good, before what else there is to say.
const INVALID: &str = "invalid bearer token";

const SPACE_WARNING: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

impl Api {
    /// Who makes a request; an error if it has credentials and none is good.
    pub(crate) fn authenticate(&self, door: &Door, headers: &HeaderMap) -> Result<Found, Status> {
        let found = |user| Ok(Found { user, warning: None });
        let peer = match door {
            Door::Trusted(user) | Door::Guarded(Peer::Known(user)) => return found(user.clone()),
            Door::Guarded(peer) => peer,
        };
        match bearer(headers) {
            Bearer::Token(token) => match self.user_of_token(token, &[ISSUER.to_owned()]) {
                Ok((user, _)) => found(user),
                Err(why) => {
                    tracing::debug!(why, "a bearer token is not good");
                    Err(Status::unauthorized())
                }
            },
            _ if matches!(peer, Peer::Refused) => Err(Status::unauthorized()),
            _ if self.guard.anonymous == Anonymous::Refused => Err(Status::unauthorized()),
            other => Ok(Found {
                user: Arc::new(User::anonymous()),
                warning: matches!(other, Bearer::Space).then_some(SPACE_WARNING),
            }),
        }
    }

    /// Whose token it is and for which of the audiences, or why it is nobody's.
    pub(super) fn user_of_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(Arc<User>, Vec<String>), String> {
        let ours = audiences.iter().any(|audience| audience == ISSUER);
        if let Some(user) = self.guard.tokens.get(token).filter(|_| ours) {
            return Ok((user.clone(), vec![ISSUER.to_owned()]));
        }
        match self.account_of_token(token, audiences) {
            Ok(Some((user, audiences))) => Ok((Arc::new(user), audiences)),
            Ok(None) => Err(INVALID.to_owned()),
            Err(why) => Err(together(&[INVALID.to_owned(), why])),
        }
    }
}

/// What stands in `Authorization`.
enum Bearer<'a> {
    Token(&'a str),
    /// A blank before the token hides it.
    Space,
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
        (Some(""), Some(_)) => Bearer::Space,
        (None | Some(""), _) => Bearer::None,
        (Some(token), _) => Bearer::Token(token),
    }
}
