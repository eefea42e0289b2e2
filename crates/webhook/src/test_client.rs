//! Clients of processes that are killed.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use kube::{Client, client::Body};
use tower::Service;
use windlass_apiserver::Server;

/// What becomes of the requests of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    /// The number of the last request, from 0. `None`: there is no last one.
    pub(crate) last: Option<usize>,
    /// Whether the last request reaches the server; its answer is never read.
    pub(crate) is_last_sent: bool,
    /// Whether requests fail after that, or never end, as in a process that is gone.
    pub(crate) fails: bool,
}

/// A client of a server, and the number of its requests.
pub(crate) fn client(server: &Server, fate: Fate) -> (Client, Arc<AtomicUsize>) {
    let (server, requests) = (server.clone(), Arc::new(AtomicUsize::new(0)));
    let count = requests.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (number, mut server) = (count.fetch_add(1, Ordering::Relaxed), server.clone());
        async move {
            let last = fate.last.unwrap_or(usize::MAX);
            if number < last || number == last && fate.is_last_sent {
                let answer = server.call(request).await.expect("an answer");
                if number < last {
                    return Ok(answer);
                }
            }
            if !fate.fails {
                pending::<()>().await;
            }
            Err("the process has ended".to_owned())
        }
    });
    (Client::new(service, "default"), requests)
}
