//! A connection that can be cut.

use futures::StreamExt;
use http::Request;
use http_body_util::{BodyStream, StreamBody};
use tokio::sync::watch;
use windlass::{kube::client::Body, prelude::Client};

/// A way to the server that can be cut: watches end, and what is asked waits until it is mended.
pub(crate) struct Line {
    inner: Client,
    cut: watch::Sender<bool>,
}

impl Line {
    pub(crate) fn new(inner: Client) -> Self {
        Self {
            inner,
            cut: watch::Sender::new(false),
        }
    }

    pub(crate) fn client(&self) -> Client {
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
                Ok::<_, windlass::kube::Error>(response.map(|body| {
                    let frames = BodyStream::new(body).take_until(until);
                    StreamBody::new(frames)
                }))
            }
        });
        Client::new(service, namespace)
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(crate) fn mend(&self) {
        self.cut.send_replace(false);
    }
}
