//! A network connection that tests can interrupt.

use futures::StreamExt;
use http::Request;
use http_body_util::{BodyStream, StreamBody};
use kube::{Client, client::Body};
use tokio::sync::watch;

/// A connection to the server that can be interrupted: watches end, and requests wait until it is restored.
pub struct NetworkLink {
    inner: Client,
    interrupted: watch::Sender<bool>,
}

impl NetworkLink {
    /// Creates a connection that works.
    pub fn new(inner: Client) -> Self {
        Self {
            inner,
            interrupted: watch::Sender::new(false),
        }
    }

    /// Returns a client that uses this connection.
    pub fn client(&self) -> Client {
        let (inner, cut) = (self.inner.clone(), self.interrupted.clone());
        let namespace = inner.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, cut) = (inner.clone(), cut.clone());
            async move {
                // Cannot fail: `cut` is the sender.
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

    /// Interrupts the connection.
    pub fn disconnect(&self) {
        self.interrupted.send_replace(true);
    }

    /// Restores the connection; waiting requests continue.
    pub fn reconnect(&self) {
        self.interrupted.send_replace(false);
    }
}
