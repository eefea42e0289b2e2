//! The fence: a layer around a client that lets writes through only while this process holds the lease.
//!
//! ```text
//!   reconcile ──► Client ──► Fenced ──► the server
//!                              │ a write: is the term's grant open? until when?
//!                              └── the election's driver owns the grant
//! ```

use std::{
    error::Error as StdError,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request, Response, Uri};
use kube::{Client, client::Body};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tower::{BoxError, Layer, Service, util::service_fn};

use super::{elector::Grant, status::Epoch};

/// Ties writes to a lease, from [`Election::fence`](crate::Election::fence). Cheap to clone.
///
/// A write is a POST, PUT, PATCH or DELETE, and a GET of `exec` or `attach`, which run commands. Not fenced, because
/// they change nothing: reads, rehearsals (`dryRun`), and the reviews of `authentication.k8s.io` and
/// `authorization.k8s.io`, which a standby needs to serve its own endpoints.
///
/// ```no_run
/// # async fn run(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use windlass_runtime::{Election, ElectionConfig};
///
/// let election = Election::new(client.clone(), ElectionConfig::new("foo-controller"))?;
/// let writes = election.fence().client(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Fence {
    grant: watch::Receiver<Option<Grant>>,
    /// Each write on its way holds a receiver.
    in_flight: Arc<watch::Sender<()>>,
}

/// Why a write did not go through the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// This process does not lead, or not in the term that the client belongs to. Nothing was sent.
    #[error("refused to write: this process does not hold the leader's lease (any more)")]
    NotLeading,
    /// The lease ran out or was lost while the write was on its way. The server may have carried it out or may still
    /// do so.
    #[error("the leader's lease ended during a write: whether it was carried out is unknown")]
    OutcomeUnknown,
}

impl FenceError {
    /// The fence's error in an error or its causes.
    pub fn of<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
            (*error).source()
        })
        .find_map(|error| error.downcast_ref())
    }
}

/// Whether a request failed because this process does not hold the lease; see [`FenceError::of`] for how.
pub fn is_fenced(error: &kube::Error) -> bool {
    FenceError::of(error).is_some()
}

impl Fence {
    pub(crate) fn new() -> (watch::Sender<Option<Grant>>, Self) {
        let (sender, grant) = watch::channel(None);
        let in_flight = Arc::new(watch::Sender::new(()));
        (sender, Self { grant, in_flight })
    }

    /// A client that writes while this process leads, in whatever term.
    ///
    /// For what runs in one term, [`client_of`](Self::client_of) is safer: it does not come back to life when the
    /// process is elected again.
    pub fn client(&self, client: Client) -> Client {
        fenced(client, &self.layer())
    }

    /// A client that writes in one term only.
    pub fn client_of(&self, client: Client, epoch: Epoch) -> Client {
        fenced(client, &self.layer().epoch(epoch))
    }

    /// The fence as a layer, for a service under a client.
    pub fn layer(&self) -> FenceLayer {
        FenceLayer {
            fence: self.clone(),
            epoch: None,
        }
    }

    /// Returns once no write is on its way.
    pub(crate) async fn idle(&self) {
        self.in_flight.closed().await;
    }
}

fn fenced(client: Client, layer: &FenceLayer) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(layer.layer(service), namespace)
}

/// Puts a [`Fence`] around a service.
#[derive(Clone, Debug)]
pub struct FenceLayer {
    fence: Fence,
    epoch: Option<Epoch>,
}

impl FenceLayer {
    /// Lets writes through in this term only. Default: in each term of this process.
    #[must_use]
    pub fn epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = Some(epoch);
        self
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced {
            inner,
            fence: self.clone(),
        }
    }
}

/// A service with a [`Fence`] around it.
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    inner: S,
    fence: FenceLayer,
}

impl<S, B> Service<Request<Body>> for Fenced<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if !is_write(request.method(), request.uri()) {
            let response = self.inner.call(request);
            return Box::pin(async move { response.await.map_err(Into::into) });
        }
        let Some(mut pass) = self.fence.enter() else {
            return Box::pin(async { Err(FenceError::NotLeading.into()) });
        };
        let response = self.inner.call(request);
        Box::pin(async move {
            tokio::select! {
                // An answer that is there is never thrown away.
                biased;
                answer = response => answer.map_err(Into::into),
                () = pass.ended() => Err(FenceError::OutcomeUnknown.into()),
            }
        })
    }
}

impl FenceLayer {
    fn enter(&self) -> Option<Pass> {
        // Counted before the grant is read: who closes the fence and then waits until it is idle misses no write.
        let in_flight = self.fence.in_flight.subscribe();
        let grant = self.fence.grant.clone();
        let epoch = open(&grant, self.epoch)?.epoch;
        Some(Pass {
            grant,
            epoch,
            _in_flight: in_flight,
        })
    }
}

/// A write on its way.
struct Pass {
    grant: watch::Receiver<Option<Grant>>,
    /// The term in which it was sent.
    epoch: Epoch,
    _in_flight: watch::Receiver<()>,
}

impl Pass {
    /// Returns once the term is over. A renewal in time prolongs it.
    async fn ended(&mut self) {
        while let Some(grant) = {
            self.grant.mark_unchanged();
            open(&self.grant, Some(self.epoch))
        } {
            tokio::select! {
                () = sleep_until(grant.valid_until) => {}
                // Without a driver nothing renews: the clock decides.
                Ok(()) = self.grant.changed() => {}
            }
        }
    }
}

fn open(grant: &watch::Receiver<Option<Grant>>, epoch: Option<Epoch>) -> Option<Grant> {
    let grant = *grant.borrow();
    grant.filter(|grant| grant.is_open(Instant::now()) && epoch.is_none_or(|epoch| epoch == grant.epoch))
}

fn is_write(method: &Method, uri: &Uri) -> bool {
    if *method == Method::GET {
        let mut end = uri.path().rsplit('/');
        let connects = matches!(end.next(), Some("exec" | "attach"));
        return connects && end.nth(1) == Some("pods");
    }
    let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let is_rehearsal = || {
        let query = uri.query().unwrap_or_default();
        form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "dryRun" && !value.is_empty())
    };
    let is_review = || {
        ["/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"]
            .iter()
            .any(|group| uri.path().starts_with(group))
    };
    writes.contains(method) && !is_rehearsal() && !is_review()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_is_a_write() {
        let cases = [
            (Method::GET, "/api/v1/pods", false),
            (Method::GET, "/api/v1/namespaces/n/pods/attach", false),
            (Method::GET, "/api/v1/namespaces/n/pods/p/exec?command=x", true),
            (Method::GET, "/api/v1/namespaces/n/pods/p/log", false),
            (Method::POST, "/api/v1/namespaces/n/pods", true),
            (Method::POST, "/api/v1/namespaces/n/pods/p/eviction", true),
            (Method::POST, "/api/v1/namespaces/n/serviceaccounts/a/token", true),
            (Method::PUT, "/api/v1/namespaces/n/pods/p", true),
            (Method::PATCH, "/api/v1/namespaces/n/pods/p/status", true),
            (Method::DELETE, "/api/v1/namespaces/n/pods", true),
            (Method::POST, "/api/v1/namespaces/n/pods?dryRun=All", false),
            (Method::POST, "/api/v1/namespaces/n/pods?dryRun=", true),
            (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", false),
            (
                Method::POST,
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                false,
            ),
            (
                Method::POST,
                "/apis/rbac.authorization.k8s.io/v1/clusterroles",
                true,
            ),
        ];
        for (method, uri, expected) in cases {
            let is_write = is_write(&method, &uri.parse().expect("a path"));
            assert_eq!(is_write, expected, "{method} {uri}");
        }
    }
}
