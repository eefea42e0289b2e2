//! A client whose requests are noted.

use kube::{Client, client::Body};
use tower::Layer;
use windlass_rights::Recorder;

/// The same client, with every request noted as `user`'s: on whatever cluster, and without a look at its credentials.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use windlass_cluster::{Cluster, recorded};
/// use windlass_rights::Recorder;
///
/// let (cluster, recorder) = (Cluster::embedded().start().await?, Recorder::new());
/// let client = recorded(&cluster.client(), &recorder, "robot");
/// client.apiserver_version().await?;
/// assert_eq!(recorder.uses().of("robot").all[0].access.to_string(), "get /version");
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
pub fn recorded(client: &Client, recorder: &Recorder, user: &str) -> Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let client = inner.clone();
        async move { client.send(request).await }
    });
    Client::new(recorder.layer(user).layer(service), client.default_namespace())
}
