//! Which requests a client repeats by itself.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use kube::{
    Client, Config,
    client::{Body, retry::RetryPolicy},
};
use tower::{
    BoxError, Service,
    retry::{Policy, Retry},
};

/// A client that repeats what the server had no time for, evictions excepted.
pub(super) fn client(mut config: Config) -> Result<Client, kube::Error> {
    // It would be asked before ours.
    config.default_retry = false;
    Ok(patient(Client::try_from(config)?))
}

fn patient(client: Client) -> Client {
    let (namespace, expiry) = (client.default_namespace().to_owned(), *client.valid_until());
    let policy = Patience(RetryPolicy::server_retry());
    Client::new(Retry::new(policy, Once(client)), namespace).with_valid_until(expiry)
}

/// kube's policy, except for evictions: a budget that does not allow one says 429 too, and may do so for hours.
#[derive(Clone)]
struct Patience(RetryPolicy);

impl<B> Policy<Request<Body>, Response<B>, BoxError> for Patience {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        self.0.retry(request, result)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        if request.uri().path().ends_with("/eviction") {
            return None;
        }
        Policy::<_, Response<B>, _>::clone_request(&mut self.0, request)
    }
}

/// A client as a service.
#[derive(Clone)]
struct Once(Client);

impl Service<Request<Body>> for Once {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move { client.send(request).await.map_err(Into::into) })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        time::Duration,
    };

    use http_body_util::Empty;
    use tokio::time::Instant;
    use tower::service_fn;

    use super::*;

    /// How often the server was asked, and for how long.
    async fn asked(uri: &str) -> (u32, Duration) {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        let busy = service_fn(move |_: Request<Body>| {
            let code = if counted.fetch_add(1, Ordering::Relaxed) < 2 {
                429
            } else {
                200
            };
            let response = Response::builder().status(code).header("Retry-After", "3");
            async move { Ok::<_, Infallible>(response.body(Empty::<bytes::Bytes>::new()).expect("a response")) }
        });
        let started = Instant::now();
        let request = Request::post(uri)
            .body(Body::from(b"{}".to_vec()))
            .expect("a request");
        let answer = patient(Client::new(busy, "default")).send(request).await;
        answer.expect("an answer");
        (count.load(Ordering::Relaxed), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_server_is_asked_again_after_the_delay_that_it_names_but_not_for_an_eviction() {
        let (times, took) = asked("/api/v1/namespaces/n/pods").await;
        assert_eq!((times, took.as_secs()), (3, 6));
        assert_eq!(
            asked("/api/v1/namespaces/n/pods/p/eviction").await,
            (1, Duration::ZERO)
        );
    }
}
