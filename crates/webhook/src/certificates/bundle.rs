//! A bundle of CAs, and whether a chain is trusted by it.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    sign::CertifiedKey,
};

use super::{Seconds, der::Validity};

/// The largest bundle that is read.
const MAX_BYTES: usize = 1024 * 1024;

/// The CAs of a `caBundle`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bundle(Vec<CertificateDer<'static>>);

impl Bundle {
    /// Reads the certificates of a PEM document. Other blocks are skipped, as in Go.
    pub(crate) fn parse(pem: &[u8]) -> Self {
        if pem.len() > MAX_BYTES {
            return Self::default();
        }
        Self(
            CertificateDer::pem_slice_iter(pem)
                .filter_map(Result::ok)
                .collect(),
        )
    }

    pub(super) fn contains(&self, certificate: &str) -> bool {
        CertificateDer::from_pem_slice(certificate.as_bytes())
            .is_ok_and(|certificate| self.0.contains(&certificate))
    }

    /// Whether a chain for all these hosts is trusted at this time, as an API server decides it.
    pub(crate) fn trusts(&self, chain: &str, hosts: &[String], now: Seconds) -> Result<(), String> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes())
            .filter_map(Result::ok)
            .collect();
        let (leaf, intermediates) = chain.split_first().ok_or("the chain has no certificate")?;
        let mut roots = RootCertStore::empty();
        for root in &self.0 {
            // Go checks the dates of roots; rustls does not.
            if Validity::of(root).is_some_and(|validity| validity.includes(now)) {
                roots.add(root.clone()).ok();
            }
        }
        if roots.is_empty() {
            return Err("the bundle has no certificate that is valid now".to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        let now = std::time::Duration::from_secs(u64::try_from(now).unwrap_or_default());
        for host in hosts {
            let name = ServerName::try_from(host.as_str()).map_err(|error| format!("{host}: {error}"))?;
            verifier
                .verify_server_cert(leaf, intermediates, &name, &[], UnixTime::since_unix_epoch(now))
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// A chain and its key for rustls; an error if the key is another one.
pub(crate) fn certified_key(chain: &str, key: &str) -> Result<CertifiedKey, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the certificate is no PEM: {error}"))?;
    if chain.is_empty() {
        return Err("there is no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("the key is no PEM: {error}"))?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|error| error.to_string())?;
    let certified = CertifiedKey::new(chain, key);
    certified
        .keys_match()
        .map_err(|_| "the key does not belong to the certificate".to_owned())?;
    Ok(certified)
}
