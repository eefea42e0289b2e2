//! Records which RBAC rights a client uses.

use kube::{Client, client::Body};
use tower::Layer;
use windlass_rights::Recorder;

/// Wraps a client so that `recorder` records every request as a request of `user`.
///
/// Works on every backend, and does not change or inspect the client's credentials.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use windlass_cluster::{Cluster, record_rbac};
/// use windlass_rights::Recorder;
///
/// let (cluster, recorder) = (Cluster::embedded().start().await?, Recorder::new());
/// let client = record_rbac(&cluster.client(), &recorder, "robot");
/// client.apiserver_version().await?;
/// assert_eq!(recorder.records().for_user("robot").records[0].access.to_string(), "get /version");
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
pub fn record_rbac(client: &Client, recorder: &Recorder, user: &str) -> Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let client = inner.clone();
        async move { client.send(request).await }
    });
    Client::new(recorder.layer(user).layer(service), client.default_namespace())
}
