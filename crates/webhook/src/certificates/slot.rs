//! The certificate that new connections get, and whether the replica is ready.
//!
//! Open connections keep the certificate of their handshake: a renewal drops none.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::sync::watch;

use super::{Seconds, authority::validity, bundle::certified_key};

/// The certificate in use. Written by who reads the Secret or the files, read by every handshake.
#[derive(Debug, Default)]
pub(crate) struct CertificateSlot {
    current: ArcSwapOption<CertifiedKey>,
    /// The PEM of the certificate in use, to detect changes.
    source: Mutex<(String, String)>,
}

impl CertificateSlot {
    /// Serves a chain from now on. Nothing happens if it is served already.
    pub(crate) fn serve(&self, chain: &str, key: &str) -> Result<(), String> {
        let mut source = self.source.lock();
        if source.0 == chain && source.1 == key {
            return Ok(());
        }
        self.current.store(Some(Arc::new(certified_key(chain, key)?)));
        *source = (chain.to_owned(), key.to_owned());
        Ok(())
    }

    /// Whether the certificate in use is valid at this time.
    pub(super) fn is_valid(&self, now: Seconds) -> bool {
        let source = self.source.lock();
        validity(&source.0).is_some_and(|validity| validity.includes(now))
    }

    /// The chain in use.
    #[cfg(test)]
    pub(super) fn chain(&self) -> String {
        self.source.lock().0.clone()
    }

    pub(crate) fn is_served(&self) -> bool {
        self.current.load().is_some()
    }
}

impl ResolvesServerCert for CertificateSlot {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

/// Whether the webhooks can be called, or why not yet. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Readiness(watch::Sender<Result<(), String>>);

impl Readiness {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(
            Err("the webhooks have not started".to_owned()),
        ))
    }

    pub(crate) fn set(&self, readiness: Result<(), String>) {
        self.0.send_if_modified(|current| {
            if *current == readiness {
                return false;
            }
            match &readiness {
                Ok(()) => tracing::info!("the webhooks are ready: their certificate is trusted"),
                Err(why) => tracing::warn!(why, "the webhooks are not ready"),
            }
            *current = readiness;
            true
        });
    }

    pub(crate) fn get(&self) -> Result<(), String> {
        self.0.borrow().clone()
    }
}
