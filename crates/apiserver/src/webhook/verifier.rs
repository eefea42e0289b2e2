//! Which certificates of webhooks are accepted.
//!
//! As in Go, a server's certificate that is itself in the bundle needs no issuer: with such a bundle
//! (`openssl req -x509`), authors trust one certificate and serve it, whether it says that it is an authority or not.

use std::{sync::Arc, time::Duration};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// The tags of DER that lead to the validity of a certificate.
const SEQUENCE: u8 = 0x30;
const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

#[derive(Debug)]
pub(super) struct Verifier {
    /// `None` if no certificate of the bundle can issue others.
    issuers: Option<Arc<WebPkiServerVerifier>>,
    bundle: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Accepts these certificates, and those that they issued.
    pub(super) fn new(bundle: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(bundle.iter().cloned());
        let issuers = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        Self {
            issuers: issuers.ok(),
            bundle,
            provider,
        }
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
        if self.bundle.iter().any(|trusted| trusted == certificate) {
            check_validity(certificate, now)?;
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
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

/// Checks that a certificate is valid now.
fn check_validity(certificate: &[u8], now: UnixTime) -> Result<(), Error> {
    let [from, until] = validity(certificate).ok_or(CertificateError::BadEncoding)?;
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

/// From when until when a certificate is valid, in seconds since 1970.
fn validity(certificate: &[u8]) -> Option<[i64; 2]> {
    let (_, content, _) = element(certificate, SEQUENCE)?;
    let (_, mut fields, _) = element(content, SEQUENCE)?;
    if let Some((_, _, rest)) = element(fields, EXPLICIT_VERSION) {
        fields = rest;
    }
    // The serial number, the signature's algorithm and the issuer.
    for _ in 0..3 {
        (_, _, fields) = any_element(fields)?;
    }
    let (_, times, _) = element(fields, SEQUENCE)?;
    let (from, text, rest) = any_element(times)?;
    let (until, last, _) = any_element(rest)?;
    Some([seconds(from, text)?, seconds(until, last)?])
}

/// The first element: its tag, its content, and what follows it. `None` if it has another tag.
fn element(der: &[u8], tag: u8) -> Option<(u8, &[u8], &[u8])> {
    any_element(der).filter(|(found, ..)| *found == tag)
}

fn any_element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if bytes.len() > 4 {
            return None;
        }
        let length = bytes
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ` in seconds since 1970.
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let century = match tag {
        UTC_TIME if digits.len() == 12 => {
            if digits < "50" {
                "20"
            } else {
                "19"
            }
        }
        GENERALIZED_TIME => "",
        _ => return None,
    };
    let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", format!("{century}{digits}")).ok()?;
    Some(
        time.to_zoned(jiff::tz::TimeZone::UTC)
            .ok()?
            .timestamp()
            .as_second(),
    )
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

    #[test]
    fn damaged_certificate_has_no_validity() {
        let whole = certificate(true, 2030);
        assert_eq!(validity(&whole), Some([1_577_836_800, 1_893_456_000]));
        for length in 0..whole.len() {
            assert_eq!(validity(&whole[..length]), None);
        }
        assert_eq!(
            any_element(&[SEQUENCE, 0x88, 255, 255, 255, 255, 255, 255, 255, 255]),
            None
        );
    }
}
