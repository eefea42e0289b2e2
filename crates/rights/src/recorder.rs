//! The recorder: a layer that notes what passes.

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use tower::{Layer, Service};

use crate::{
    access::Access,
    uses::{Names, Use, Uses},
};

/// How many kinds of requests are told apart: users times verbs times resources times namespaces. What comes after is
/// only counted.
const KINDS: usize = 65_536;

/// The header with which a client acts as somebody else.
const IMPERSONATE: &str = "impersonate-user";

/// Notes which verbs on which resources were used, and by whom. Clones share what they noted.
///
/// ```
/// # async fn example() -> Result<(), tower::BoxError> {
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use windlass_rights::Recorder;
///
/// let recorder = Recorder::new();
/// // In a program: `kube::Client::new(recorder.layer("robot").layer(service), "default")`.
/// let mut service = ServiceBuilder::new()
///     .layer(recorder.layer("robot"))
///     .service(service_fn(async |_: http::Request<()>| Ok::<_, tower::BoxError>(http::Response::new(()))));
/// service.ready().await?.call(http::Request::get("/api/v1/pods").body(())?).await?;
/// assert_eq!(recorder.uses().all[0].access.to_string(), "list pods");
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    noted: Arc<Mutex<Noted>>,
}

#[derive(Debug, Default)]
struct Noted {
    /// By user and access without a name; never more than [`KINDS`].
    kinds: BTreeMap<(String, Access), Seen>,
    forgotten: u64,
}

#[derive(Debug)]
struct Seen {
    names: Names,
    count: u64,
    refused: u64,
}

impl Recorder {
    /// A recorder that has noted nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A layer for a client that acts as `user`. Where the client impersonates somebody, it is that somebody's use.
    pub fn layer(&self, user: &str) -> RecorderLayer {
        RecorderLayer {
            recorder: self.clone(),
            user: user.into(),
        }
    }

    /// Notes a request by hand.
    pub fn note(&self, user: &str, access: &Access) {
        self.seen(user, access, |seen| seen.count += 1);
    }

    /// Notes that a request was refused, beside [`Recorder::note`].
    pub fn note_refusal(&self, user: &str, access: &Access) {
        self.seen(user, access, |seen| seen.refused += 1);
    }

    fn seen(&self, user: &str, access: &Access, count: impl FnOnce(&mut Seen)) {
        let kind = (user.to_owned(), access.clone().named(""));
        let mut noted = self.noted.lock();
        if noted.kinds.len() >= KINDS && !noted.kinds.contains_key(&kind) {
            noted.forgotten += 1;
            return;
        }
        let seen = noted.kinds.entry(kind).or_insert_with(|| Seen {
            names: Names::Few(std::collections::BTreeSet::new()),
            count: 0,
            refused: 0,
        });
        seen.names.add(access.name());
        count(seen);
    }

    /// What was noted so far.
    pub fn uses(&self) -> Uses {
        let noted = self.noted.lock();
        let all = noted.kinds.iter().map(|((user, access), seen)| Use {
            user: user.clone(),
            access: access.clone(),
            names: seen.names.clone(),
            count: seen.count,
            refused: seen.refused,
        });
        Uses {
            all: all.collect(),
            forgotten: noted.forgotten,
        }
    }

    /// Forgets everything, for example what a program did before it was ready.
    pub fn clear(&self) {
        *self.noted.lock() = Noted::default();
    }
}

/// Puts a [`Recorder`] in front of a service; made by [`Recorder::layer`].
#[derive(Clone, Debug)]
pub struct RecorderLayer {
    recorder: Recorder,
    user: Arc<str>,
}

impl<S> Layer<S> for RecorderLayer {
    type Service = RecorderService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RecorderService {
            recorder: self.recorder.clone(),
            user: self.user.clone(),
            inner,
        }
    }
}

/// A service whose requests are noted.
#[derive(Clone, Debug)]
pub struct RecorderService<S> {
    recorder: Recorder,
    user: Arc<str>,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for RecorderService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let access = Access::of(request.method(), request.uri().path(), request.uri().query());
        let acting = request
            .headers()
            .get(IMPERSONATE)
            .and_then(|user| user.to_str().ok());
        let user: Arc<str> = acting.map_or_else(|| self.user.clone(), Into::into);
        self.recorder.note(&user, &access);
        let recorder = self.recorder.clone();
        let answered = self.inner.call(request);
        async move {
            let answer = answered.await;
            match answer.as_ref().map(Response::status) {
                Ok(StatusCode::FORBIDDEN) => recorder.note_refusal(&user, &access),
                // An update or a patch that made the object: servers ask for this right too.
                Ok(StatusCode::CREATED) if access.verb != "create" => {
                    let verb = "create".to_owned();
                    recorder.note(&user, &Access { verb, ..access }.named(""));
                }
                _ => {}
            }
            answer
        }
        .boxed()
    }
}
