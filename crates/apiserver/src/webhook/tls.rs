//! TLS to webhooks: which certificates are trusted, and errors in the words of Go's `crypto/tls`.

use std::{
    io,
    sync::{Arc, LazyLock},
    time::Duration,
};

use rustls::{
    CertificateError, ClientConfig, Error,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    time_provider::TimeProvider,
};
use windlass_clock::Clock;

use super::verifier::Verifier;
use crate::environment::rfc3339;

/// The certificates that the system trusts, read once.
static SYSTEM_CERTIFICATES: LazyLock<Vec<CertificateDer<'static>>> =
    LazyLock::new(|| rustls_native_certs::load_native_certs().certs);

/// The time of the server, which may run on a paused clock.
#[derive(Debug)]
struct ServerTime(Clock);

impl TimeProvider for ServerTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// The configuration of a client that trusts this PEM bundle, or the system's certificates if it is empty. Certificates have
/// to be valid at the time of this clock.
pub(super) fn client_config(ca_bundle: &[u8], clock: Clock) -> Arc<ClientConfig> {
    let bundle = if ca_bundle.is_empty() {
        SYSTEM_CERTIFICATES.clone()
    } else {
        let certificates = CertificateDer::pem_slice_iter(ca_bundle);
        certificates.map_while(Result::ok).collect()
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(bundle, provider.clone());
    let config = ClientConfig::builder_with_details(provider, Arc::new(ServerTime(clock)))
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Arc::new(config)
}

/// The message for a failed handshake with a server whose answer began so.
pub(super) fn handshake_error(error: &io::Error, first: &[u8]) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        Some(Error::InvalidCertificate(why)) => {
            format!(
                "tls: failed to verify certificate: x509: {}",
                certificate_error(why)
            )
        }
        Some(Error::InvalidMessage(_)) if first == b"HTTP/" => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        Some(Error::InvalidMessage(_)) => "tls: first record does not look like a TLS handshake".to_owned(),
        Some(Error::AlertReceived(alert)) => format!("remote error: tls: {alert:?}"),
        Some(other) => format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => error.to_string(),
    }
}

fn certificate_error(why: &CertificateError) -> String {
    match why {
        // An issuer of the same name has another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::Expired | CertificateError::NotValidYet => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "certificate has expired or is not yet valid: current time {} is after {}",
            shown_time(*time),
            shown_time(*not_after)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "certificate has expired or is not yet valid: current time {} is before {}",
            shown_time(*time),
            shown_time(*not_before)
        ),
        CertificateError::NotValidForNameContext { expected, presented } => {
            // Names of the other kind are not compared.
            let is_address = matches!(expected, ServerName::IpAddress(_));
            let comparable = presented
                .iter()
                .filter(|name| name.starts_with("IpAddress(") == is_address);
            let names: Vec<_> = comparable.map(|name| subject_name(name)).collect();
            if names.is_empty() && is_address {
                return format!(
                    "cannot validate certificate for {} because it doesn't contain any IP SANs",
                    expected.to_str()
                );
            }
            if names.is_empty() {
                return format!(
                    "certificate is not valid for any names, but wanted to match {}",
                    expected.to_str()
                );
            }
            format!(
                "certificate is valid for {}, not {}",
                names.join(", "),
                expected.to_str()
            )
        }
        CertificateError::Other(why) => why.to_string(),
        other => other.to_string(),
    }
}

fn shown_time(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    rfc3339(jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX))
}

/// `DnsName("a.b.svc")` and `IpAddress(127.0.0.1)` as Go shows them.
fn subject_name(presented: &str) -> &str {
    let inner = presented
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(presented, |inner| inner.trim_matches('"'))
}
