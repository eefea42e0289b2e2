//! What a request draws once, although its verb may run several times: its time, the uid of a new object, random numbers.

use std::sync::OnceLock;

use jiff::Timestamp;

use crate::{
    auth::Caller,
    environment::{Environment, name_suffix, rfc3339},
};

/// The time and randomness of one request.
#[derive(Debug, Default)]
pub(crate) struct Draws {
    now: OnceLock<Timestamp>,
    uid: OnceLock<String>,
    seed: OnceLock<u64>,
}

/// What random numbers are for; those for one purpose are independent of the others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The generated name of the object, in this attempt.
    Name(u32),
    /// The name of the volume with a pod's token.
    TokenVolume,
    /// The addresses and ports of a service.
    Allocation,
}

/// The environment of a request. The server's own writes have no caller, and run once.
#[derive(Clone, Copy)]
pub(crate) struct RequestEnvironment<'a> {
    environment: &'a Environment,
    draws: Option<&'a Draws>,
}

impl<'a> RequestEnvironment<'a> {
    pub(crate) fn new(environment: &'a Environment, caller: Option<&'a Caller>) -> Self {
        Self {
            environment,
            draws: caller.map(|caller| &caller.draws),
        }
    }

    /// The time of the request.
    pub(crate) fn now(&self) -> Timestamp {
        let now = || self.environment.now();
        self.draws.map_or_else(now, |draws| *draws.now.get_or_init(now))
    }

    /// The time of the request, as `metav1.Time`.
    pub(crate) fn now_rfc3339(&self) -> String {
        rfc3339(self.now())
    }

    /// The uid of the object that the request creates.
    pub(crate) fn uid(&self) -> String {
        let uid = || self.environment.uid();
        self.draws
            .map_or_else(uid, |draws| draws.uid.get_or_init(uid).clone())
    }

    /// The five characters that complete a generated name.
    pub(crate) fn name_suffix(&self, purpose: Purpose) -> String {
        let mut random = self.random(purpose);
        name_suffix(|limit| random.usize(..limit))
    }

    /// Random numbers for what need not be unguessable.
    pub(crate) fn random(&self, purpose: Purpose) -> fastrand::Rng {
        let draw = || self.environment.random_below(usize::MAX) as u64;
        let seed = self
            .draws
            .map_or_else(draw, |draws| *draws.seed.get_or_init(draw));
        let salt = match purpose {
            Purpose::Name(attempt) => u64::from(attempt),
            Purpose::TokenVolume => 1 << 32,
            Purpose::Allocation => 2 << 32,
        };
        fastrand::Rng::with_seed(seed ^ salt)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use windlass_api::request::RequestInfo;

    use super::*;
    use crate::auth::User;

    #[test]
    fn request_draws_once_and_each_purpose_differs() {
        let environment = Environment::new(None, None);
        let caller = || {
            let info = RequestInfo::of(&Method::POST, "/api/v1/pods", None);
            Caller::new(Arc::new(User::administrator()), Arc::new(info))
        };
        let (one, other) = (caller(), caller());
        let of = |caller| RequestEnvironment::new(&environment, Some(caller));
        let names = |caller| {
            [Purpose::Name(1), Purpose::Name(2), Purpose::TokenVolume]
                .map(|purpose| of(caller).name_suffix(purpose))
        };
        assert_eq!((of(&one).uid(), names(&one)), (of(&one).uid(), names(&one)));
        assert_ne!(of(&one).uid(), of(&other).uid());
        assert_ne!(names(&one), names(&other));
        let [first, second, volume] = names(&one);
        assert!(first != second && first != volume);
        let own = RequestEnvironment::new(&environment, None);
        assert_ne!(own.uid(), own.uid());
    }
}
