//! Certificates of the webhook server: the valid one, and those that a client may refuse.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use anyhow::Result;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Name of the Service for which the valid certificate is, in the namespace of the scenario.
const SERVICE: &str = "webhook";

/// A certificate with its key.
pub(super) struct Served {
    certificate: Certificate,
    key: KeyPair,
}

impl Served {
    /// The certificate in PEM, as a bundle of its own.
    pub(super) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// The TLS configuration of a server with this certificate.
    pub(super) fn tls_config(&self) -> Result<rustls::ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        Ok(builder
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.der().clone()], key)?)
    }
}

/// Creates a CA.
pub(super) fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Creates the valid certificate, for 127.0.0.1 and the Service.
pub(super) fn valid(authority: &CertifiedIssuer<'static, KeyPair>, namespace: &str) -> Result<Served> {
    let mut params = server_params();
    let service = format!("{SERVICE}.{namespace}.svc");
    params
        .subject_alt_names
        .push(SanType::DnsName(service.try_into()?));
    issue(&params, Some(authority))
}

/// Creates the other certificates, by name. The README lists them.
pub(super) fn odd(authority: &CertifiedIssuer<'static, KeyPair>) -> Result<Vec<(&'static str, Served)>> {
    let without_names = |common_name: &str| {
        let mut params = server_params();
        params.subject_alt_names.clear();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params
    };
    let for_clients = || {
        let mut params = server_params();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params
    };
    let valid_in = |from: i32, until: i32| {
        let mut params = server_params();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        params
    };
    [
        ("host_cn", without_names("localhost"), true),
        ("address_cn", without_names("127.0.0.1"), true),
        ("client", for_clients(), true),
        ("expired", valid_in(2020, 2021), true),
        ("future", valid_in(2090, 2091), true),
        ("own", server_params(), false),
        ("own_client", for_clients(), false),
        ("own_cn", without_names("localhost"), false),
        ("own_expired", valid_in(2020, 2021), false),
    ]
    .into_iter()
    .map(|(name, params, is_issued)| Ok((name, issue(&params, is_issued.then_some(authority))?)))
    .collect()
}

fn server_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, SERVICE);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    params
}

/// Creates a certificate of this issuer, by default itself.
fn issue(params: &CertificateParams, issuer: Option<&CertifiedIssuer<'static, KeyPair>>) -> Result<Served> {
    let key = KeyPair::generate()?;
    let certificate = match issuer {
        Some(issuer) => params.signed_by(&key, issuer)?,
        None => params.self_signed(&key)?,
    };
    Ok(Served { certificate, key })
}
