//! Which certificates of webhooks are accepted.
//!
//! As in Go, a server's certificate that is itself in the bundle needs no issuer: with such a bundle
//! (`openssl req -x509`), authors trust one certificate and serve it, whether it says that it is an authority or not.

use std::{sync::Arc, time::Duration};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::certificate::Certificate;

/// Go's message about a certificate without other names.
const RELIES_ON_COMMON_NAME: &str = "certificate relies on legacy Common Name field, use SANs instead";

/// Go's message about a certificate that is for something else.
const OTHER_USAGE: &str = "certificate specifies an incompatible key usage";

#[derive(Debug)]
pub(super) struct Verifier {
    /// `None` if no certificate of the bundle can issue others.
    issuers: Option<Arc<WebPkiServerVerifier>>,
    /// The same issuers, for certificates of clients.
    issuers_of_clients: Option<Arc<dyn ClientCertVerifier>>,
    bundle: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Accepts these certificates, and those that they issued.
    pub(super) fn new(bundle: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(bundle.iter().cloned());
        let roots = Arc::new(roots);
        let issuers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let of_clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build();
        Self {
            issuers: issuers.ok(),
            issuers_of_clients: of_clients.ok(),
            bundle,
            provider,
        }
    }
}

impl Verifier {
    /// Whether an issuer of the bundle has issued a certificate that is not for servers. One that is not for clients either
    /// is said to be.
    fn is_issued_for_clients(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> bool {
        let Some(issuers) = &self.issuers_of_clients else {
            return false;
        };
        let verified = issuers.verify_client_cert(certificate, intermediates, now);
        !matches!(
            verified,
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature
            ))
        )
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // In the order of Go, whose messages are known.
        let fields = Certificate::parse(certificate).ok_or(CertificateError::BadEncoding)?;
        check_validity(&fields, now)?;
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name).map_err(|error| {
            if fields.relies_on_common_name(&name.to_str()) {
                other_error(RELIES_ON_COMMON_NAME)
            } else {
                error
            }
        })?;
        let is_known = self.bundle.iter().any(|trusted| trusted == certificate);
        if !fields.is_for_servers() {
            let is_issued = || self.is_issued_for_clients(certificate, intermediates, now);
            return Err(if is_known || is_issued() {
                other_error(OTHER_USAGE)
            } else {
                CertificateError::UnknownIssuer.into()
            });
        }
        if is_known {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.issuers {
            Some(issuers) => issuers.verify_server_cert(certificate, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// An error that has only a message.
fn other_error(message: &'static str) -> Error {
    let error: Box<dyn std::error::Error + Send + Sync> = message.into();
    CertificateError::Other(OtherError(error.into())).into()
}

/// Checks that a certificate is valid now.
fn check_validity(certificate: &Certificate<'_>, now: UnixTime) -> Result<(), Error> {
    let [from, until] = certificate.validity;
    let time = |seconds: i64| UnixTime::since_unix_epoch(Duration::from_secs(seconds.max(0).unsigned_abs()));
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if seconds < from {
        let not_before = time(from);
        return Err(CertificateError::NotValidYetContext {
            time: now,
            not_before,
        }
        .into());
    }
    if seconds > until {
        let not_after = time(until);
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate of its own issuer, valid from 2020 until this year.
    fn certificate(is_authority: bool, until: i32) -> CertificateDer<'static> {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec!["a.b.svc".to_owned()]).expect("a name");
        if is_authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    fn verify(
        bundle: &CertificateDer<'static>,
        served: &CertificateDer<'static>,
        name: &str,
    ) -> Option<Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        // The first second of 2025.
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_hours(482_136));
        let verifier = Verifier::new(vec![bundle.clone()], provider);
        verifier.verify_server_cert(served, &[], &name, &[], now).err()
    }

    #[test]
    fn certificate_of_the_bundle_is_accepted_whether_it_is_an_authority_or_not() {
        for is_authority in [false, true] {
            for until in [2030, 2060] {
                let served = certificate(is_authority, until);
                assert_eq!(verify(&served, &served, "a.b.svc"), None);
                assert!(verify(&served, &served, "other.b.svc").is_some());
                assert!(verify(&certificate(is_authority, until), &served, "a.b.svc").is_some());
            }
            let expired = certificate(is_authority, 2024);
            let error = verify(&expired, &expired, "a.b.svc");
            assert!(matches!(
                error,
                Some(Error::InvalidCertificate(CertificateError::ExpiredContext { .. }))
            ));
        }
    }
}
