//! A tower layer that records requests.

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
    Access,
    access_records::{AccessRecord, AccessRecords, Names},
};

/// Upper bound of distinct records (user, verb, resource and namespace). Further ones are only counted.
const MAX_RECORDS: usize = 65_536;

/// The impersonation header.
const IMPERSONATE_USER_HEADER: &str = "impersonate-user";

/// Records which user used which verbs on which resources. Clones share the records.
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
/// assert_eq!(recorder.records().records[0].access.to_string(), "list pods");
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    state: Arc<Mutex<RecorderState>>,
}

#[derive(Debug, Default)]
struct RecorderState {
    /// By user and access without a name; never more than [`MAX_RECORDS`].
    records: BTreeMap<(String, Access), RecordCounts>,
    unrecorded: u64,
}

#[derive(Debug)]
struct RecordCounts {
    names: Names,
    count: u64,
    forbidden: u64,
}

impl Recorder {
    /// Creates an empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a layer for a client that acts as `user`. A request that impersonates another user is recorded for that
    /// user.
    pub fn layer(&self, user: &str) -> RecorderLayer {
        RecorderLayer {
            recorder: self.clone(),
            user: user.into(),
        }
    }

    /// Records a request.
    pub fn record(&self, user: &str, access: &Access) {
        self.update(user, access, |counts| counts.count += 1);
    }

    /// Records that a request was forbidden, in addition to [`Recorder::record`].
    pub fn record_forbidden(&self, user: &str, access: &Access) {
        self.update(user, access, |counts| counts.forbidden += 1);
    }

    fn update(&self, user: &str, access: &Access, count: impl FnOnce(&mut RecordCounts)) {
        let kind = (user.to_owned(), access.clone().with_name(""));
        let mut noted = self.state.lock();
        if noted.records.len() >= MAX_RECORDS && !noted.records.contains_key(&kind) {
            noted.unrecorded += 1;
            return;
        }
        let counts = noted.records.entry(kind).or_insert_with(|| RecordCounts {
            names: Names::Few(std::collections::BTreeSet::new()),
            count: 0,
            forbidden: 0,
        });
        counts.names.add(access.name());
        count(counts);
    }

    /// Returns the records so far.
    pub fn records(&self) -> AccessRecords {
        let noted = self.state.lock();
        let all = noted.records.iter().map(|((user, access), counts)| AccessRecord {
            user: user.clone(),
            access: access.clone(),
            names: counts.names.clone(),
            count: counts.count,
            forbidden: counts.forbidden,
        });
        AccessRecords {
            records: all.collect(),
            unrecorded: noted.unrecorded,
        }
    }

    /// Drops all records, for example those of a program's start.
    pub fn clear(&self) {
        *self.state.lock() = RecorderState::default();
    }
}

/// Wraps a service with a [`Recorder`]; created by [`Recorder::layer`].
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

/// A service whose requests are recorded.
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
            .get(IMPERSONATE_USER_HEADER)
            .and_then(|user| user.to_str().ok());
        let user: Arc<str> = acting.map_or_else(|| self.user.clone(), Into::into);
        self.recorder.record(&user, &access);
        let recorder = self.recorder.clone();
        let answered = self.inner.call(request);
        async move {
            let answer = answered.await;
            match answer.as_ref().map(Response::status) {
                Ok(StatusCode::FORBIDDEN) => recorder.record_forbidden(&user, &access),
                // An update or patch that created the object: servers require this right too.
                Ok(StatusCode::CREATED) if access.verb != "create" => {
                    let verb = "create".to_owned();
                    recorder.record(&user, &Access { verb, ..access }.with_name(""));
                }
                _ => {}
            }
            answer
        }
        .boxed()
    }
}
