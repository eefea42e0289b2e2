//! The fence: a client layer that allows writes only while this process holds the lease.
//!
//! ```text
//!   reconcile ──► Client ──► FenceService ──► API server
//!                              │ a write: is the term's grant open, and until when?
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
use windlass_api::request::{AccessTarget, RequestInfo};

use super::{elector::Grant, status::Epoch};

/// Allows writes only while this process holds the lease. From [`Election::fence`](crate::Election::fence). Cheap to clone.
///
/// A write is a POST, PUT, PATCH or DELETE, and a GET of `exec` or `attach`, which run commands. Requests that change nothing
/// are not fenced: reads, dry runs, and the reviews of `authentication.k8s.io` and `authorization.k8s.io`, which a standby
/// needs to serve its own endpoints.
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
    /// Each write in flight holds a receiver.
    in_flight: Arc<watch::Sender<()>>,
}

/// Why the fence failed a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// This process does not lead, or not in the client's term. Nothing was sent.
    #[error("write rejected: this process does not hold the leader lease")]
    NotLeading,
    /// The lease expired or was lost while the write was in flight. The server may have processed it, or may still do so.
    #[error("the leader lease ended during a write: the server may or may not have processed it")]
    OutcomeUnknown,
}

impl FenceError {
    /// Finds the fence's error in an error or its sources.
    pub fn find_in<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
            (*error).source()
        })
        .find_map(|error| error.downcast_ref())
    }
}

/// Whether a request failed because this process does not hold the lease; see [`FenceError::find_in`].
pub fn is_fenced(error: &kube::Error) -> bool {
    FenceError::find_in(error).is_some()
}

impl Fence {
    pub(crate) fn new() -> (watch::Sender<Option<Grant>>, Self) {
        let (sender, grant) = watch::channel(None);
        let in_flight = Arc::new(watch::Sender::new(()));
        (sender, Self { grant, in_flight })
    }

    /// Returns a client that can write while this process leads, in any term.
    ///
    /// For work of one term, [`client_for_epoch`](Self::client_for_epoch) is safer: it cannot write again when the process
    /// is elected again.
    pub fn client(&self, client: Client) -> Client {
        fence_client(client, &self.layer())
    }

    /// Returns a client that can write in one term only.
    pub fn client_for_epoch(&self, client: Client, epoch: Epoch) -> Client {
        fence_client(client, &self.layer().epoch(epoch))
    }

    /// Returns the fence as a tower layer, for the service of a client.
    pub fn layer(&self) -> FenceLayer {
        FenceLayer {
            fence: self.clone(),
            epoch: None,
        }
    }

    /// Completes when no write is in flight.
    pub(crate) async fn idle(&self) {
        self.in_flight.closed().await;
    }
}

fn fence_client(client: Client, layer: &FenceLayer) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(layer.layer(service), namespace)
}

/// Layer of [`FenceService`].
#[derive(Clone, Debug)]
pub struct FenceLayer {
    fence: Fence,
    epoch: Option<Epoch>,
}

impl FenceLayer {
    /// Allows writes in this term only. Default: in each term of this process.
    #[must_use]
    pub fn epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = Some(epoch);
        self
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService {
            inner,
            fence: self.clone(),
        }
    }
}

/// A service behind a [`Fence`].
#[derive(Clone, Debug)]
pub struct FenceService<S> {
    inner: S,
    fence: FenceLayer,
}

impl<S, B> Service<Request<Body>> for FenceService<S>
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
                // A response that has arrived is never discarded.
                biased;
                answer = response => answer.map_err(Into::into),
                () = pass.ended() => Err(FenceError::OutcomeUnknown.into()),
            }
        })
    }
}

impl FenceLayer {
    fn enter(&self) -> Option<InFlightWrite> {
        // Counted before the grant is read: closing the fence and then waiting until it is idle misses no write.
        let in_flight = self.fence.in_flight.subscribe();
        let grant = self.fence.grant.clone();
        let epoch = open_grant(&grant, self.epoch)?.epoch;
        Some(InFlightWrite {
            grant,
            epoch,
            _in_flight: in_flight,
        })
    }
}

struct InFlightWrite {
    grant: watch::Receiver<Option<Grant>>,
    /// The term in which the write was sent.
    epoch: Epoch,
    _in_flight: watch::Receiver<()>,
}

impl InFlightWrite {
    /// Completes when the term is over. Each renewal extends it.
    async fn ended(&mut self) {
        while let Some(grant) = {
            self.grant.mark_unchanged();
            open_grant(&self.grant, Some(self.epoch))
        } {
            tokio::select! {
                () = sleep_until(grant.valid_until) => {}
                // Without a driver there are no renewals: the clock decides.
                Ok(()) = self.grant.changed() => {}
            }
        }
    }
}

fn open_grant(grant: &watch::Receiver<Option<Grant>>, epoch: Option<Epoch>) -> Option<Grant> {
    let grant = *grant.borrow();
    grant.filter(|grant| grant.is_open(Instant::now()) && epoch.is_none_or(|epoch| epoch == grant.epoch))
}

fn is_write(method: &Method, uri: &Uri) -> bool {
    let info = RequestInfo::of(method, uri.path(), uri.query());
    let (group, resource, subresource) = match &info.access.target {
        AccessTarget::Resource {
            group,
            resource,
            subresource,
            ..
        } => (&**group, &**resource, &**subresource),
        AccessTarget::Path(_) => ("", "", ""),
    };
    if *method == Method::GET {
        return resource == "pods" && matches!(subresource, "exec" | "attach");
    }
    let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let is_review = matches!(group, "authentication.k8s.io" | "authorization.k8s.io");
    writes.contains(method) && !info.is_dry_run() && !is_review
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_write_excludes_reads_dry_runs_and_reviews() {
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
            let is_write = is_write(&method, &uri.parse().expect("valid path"));
            assert_eq!(is_write, expected, "{method} {uri}");
        }
    }
}
