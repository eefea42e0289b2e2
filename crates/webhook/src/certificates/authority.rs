//! Makes certificates: CAs, and the leaves that they sign.
//!
//! Keys are ECDSA P-256 from the system's generator, by `ring`.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};

use super::{Seconds, bundle::certified_key, der::Validity};

/// How long a CA is valid.
pub(super) const AUTHORITY_LIFETIME: Seconds = 365 * 86_400;
/// How long a leaf is valid.
pub(super) const LEAF_LIFETIME: Seconds = 90 * 86_400;
/// How long before its making a certificate is valid, for API servers whose clock is behind ours.
const BACKDATED: Seconds = 3_600;

/// A CA with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Authority {
    /// The common name, which is different for each CA.
    subject: String,
    pub(super) certificate: String,
    key: String,
}

/// The certificate that is served, with its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) chain: String,
    pub(super) key: String,
}

impl Authority {
    /// Makes a CA.
    pub(super) fn generate(program: &str, now: Seconds) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut id = [0; 8];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut id)
            .map_err(|_| rcgen::Error::RemoteKeyError)?;
        let subject = format!("{program} webhooks {:016x}", u64::from_be_bytes(id));
        let mut params = params(&subject);
        set_validity(&mut params, now, AUTHORITY_LIFETIME);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            subject,
            certificate,
            key: key.serialize_pem(),
        })
    }

    /// Signs a leaf for these host names and addresses. It is not valid for longer than the CA.
    pub(super) fn issue(&self, hosts: &[String], now: Seconds) -> Result<Leaf, rcgen::Error> {
        let issuer = Issuer::new(params(&self.subject), KeyPair::from_pem(&self.key)?);
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // Not a host, whose name may be too long for this field. It is not compared with anything.
        params.distinguished_name.push(DnType::CommonName, "webhooks");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        for host in hosts {
            params.subject_alt_names.push(match host.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(host.as_str().try_into()?),
            });
        }
        let until = self.validity().map_or(now, |validity| validity.not_after);
        set_validity(&mut params, now, LEAF_LIFETIME.min(until.saturating_sub(now)));
        let key = KeyPair::generate()?;
        Ok(Leaf {
            chain: params.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }

    pub(super) fn validity(&self) -> Option<Validity> {
        validity(&self.certificate)
    }

    /// Whether the leaves that it signs are trusted by its certificate: the key and the name are those of the certificate.
    pub(super) fn is_usable(&self) -> bool {
        // As DER writes a text of less than 128 bytes.
        let length = u8::try_from(self.subject.len()).unwrap_or_default();
        let subject = [&[0x0c, length], self.subject.as_bytes()].concat();
        let has_subject = CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .is_ok_and(|certificate| certificate.windows(subject.len()).any(|text| text == subject));
        has_subject
            && self.validity().is_some()
            && KeyPair::from_pem(&self.key).is_ok()
            && certified_key(&self.certificate, &self.key).is_ok()
    }
}

impl Leaf {
    pub(super) fn validity(&self) -> Option<Validity> {
        validity(&self.chain)
    }
}

/// The validity of the first certificate in PEM.
pub(super) fn validity(pem: &str) -> Option<Validity> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    Validity::of(&certificate)
}

fn params(subject: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn set_validity(params: &mut CertificateParams, now: Seconds, lifetime: Seconds) {
    let at = |seconds: Seconds| {
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    };
    params.not_before = at(now.saturating_sub(BACKDATED));
    params.not_after = at(now.saturating_add(lifetime));
}

// Keys are never shown.
impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaf")
            .field("validity", &self.validity())
            .finish_non_exhaustive()
    }
}
