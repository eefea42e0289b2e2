//! A connection that can be cut.

use futures::StreamExt;
use http::Request;
use http_body_util::{BodyStream, StreamBody};
use kube::{Client, client::Body};
use tokio::sync::watch;

/// A way to the server that can be cut: watches end, and what is asked waits until it is mended.
pub struct Line {
    inner: Client,
    cut: watch::Sender<bool>,
}

impl Line {
    /// One that holds.
    pub fn new(inner: Client) -> Self {
        Self {
            inner,
            cut: watch::Sender::new(false),
        }
    }

    /// A client whose requests take this line.
    pub fn client(&self) -> Client {
        let (inner, cut) = (self.inner.clone(), self.cut.clone());
        let namespace = inner.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, cut) = (inner.clone(), cut.clone());
            async move {
                // The sender is here.
                let _ = cut.subscribe().wait_for(|cut| !cut).await;
                let response = inner.send(request).await?;
                let until = async move {
                    let _ = cut.subscribe().wait_for(|cut| *cut).await;
                };
                Ok::<_, kube::Error>(response.map(|body| {
                    let frames = BodyStream::new(body).take_until(until);
                    StreamBody::new(frames)
                }))
            }
        });
        Client::new(service, namespace)
    }

    /// From now on nothing passes.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// It holds again, and what waits goes on.
    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}
