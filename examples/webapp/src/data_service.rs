//! The HTTP service that stores the data of the applications, outside of the cluster.

use std::time::Duration;

use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use windlass::{prelude::*, testing::outside, tokio::time::timeout};

use crate::WebApp;

/// Limit of one request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The service that stores the data of the applications. `DELETE <url>/<uid>` deletes that of a WebApp, which has its UID in
/// the environment variable `DATA_ID`: a new WebApp of the same name has other data.
#[derive(Clone)]
pub struct DataService {
    url: Uri,
    client: Client<HttpConnector, Empty<&'static [u8]>>,
}

impl DataService {
    /// The service at this base URL.
    pub fn new(url: Uri) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { url, client }
    }

    /// Deletes the data of a WebApp. It may be called again after it has succeeded, so no data is a success.
    pub async fn delete(&self, app: &WebApp) -> Result<(), Error> {
        let base = self.url.to_string();
        let uid = app.uid().ok_or("it has no UID")?;
        let url = format!("{}/{uid}", base.trim_end_matches('/'));
        let request = Request::delete(&url).body(Empty::new())?;
        // `outside` is for tests on a paused clock: the timeout does not fire while the service works.
        let response = timeout(TIMEOUT, outside(self.client.request(request))).await;
        let response = response.map_err(|_| format!("DELETE {url}: no answer within {TIMEOUT:?}"))??;
        match response.status() {
            status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
            status => Err(format!("DELETE {url}: {status}").into()),
        }
    }
}
