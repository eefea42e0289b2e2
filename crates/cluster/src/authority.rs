//! The cluster's certificate authority, for servers and users.

use std::net::{IpAddr, Ipv4Addr};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType, SigningKey,
};

use crate::Error;

/// Signs the certificates of one cluster. They never expire, because a test may advance the clock.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its private key, both as PEM.
pub(crate) struct CertifiedKey {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut params = named("windlass");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self {
            issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?,
        })
    }

    /// Returns the CA's own certificate and key, with which the controller manager signs CSRs.
    pub(crate) fn ca_certificate(&self) -> CertifiedKey {
        CertifiedKey {
            certificate: self.issuer.pem(),
            key: self.issuer.key().serialize_pem(),
        }
    }

    /// Issues a server certificate for these addresses, loopback, and the DNS names of the `kubernetes` Service.
    pub(crate) fn issue_server(&self, addresses: &[IpAddr]) -> Result<CertifiedKey, Error> {
        let mut params = named("kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ] {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST)].iter().chain(addresses) {
            params.subject_alt_names.push(SanType::IpAddress(*ip));
        }
        let key = KeyPair::generate()?;
        Ok(CertifiedKey {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Issues a client certificate. Kubernetes reads the user from the common name and the groups from the organizations.
    pub(crate) fn issue_client(&self, user: &str, groups: &[String]) -> Result<CertifiedKey, Error> {
        let mut params = named(user);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        // rcgen supports one value per attribute type, so the subject is replaced afterwards.
        let certificate = with_subject(certificate.der(), &subject(user, groups), self.issuer.key())?;
        Ok(CertifiedKey {
            certificate: pem("CERTIFICATE", &certificate),
            key: key.serialize_pem(),
        })
    }
}

fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
/// 2.5.4.3 and 2.5.4.10, encoded as DER object identifiers.
const COMMON_NAME: [u8; 5] = [0x06, 3, 0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 5] = [0x06, 3, 0x55, 0x04, 0x0a];

/// Encodes an X.501 name with one organization per group.
fn subject(user: &str, groups: &[String]) -> Vec<u8> {
    let attribute = |oid: &[u8], value: &str| {
        encode_der(
            SET,
            &encode_der(
                SEQUENCE,
                &[oid, &encode_der(UTF8_STRING, value.as_bytes())].concat(),
            ),
        )
    };
    let mut names: Vec<_> = groups
        .iter()
        .map(|group| attribute(&ORGANIZATION, group))
        .collect();
    names.push(attribute(&COMMON_NAME, user));
    encode_der(SEQUENCE, &names.concat())
}

/// Replaces the subject of a certificate and signs it again.
///
/// `Certificate ::= SEQUENCE { tbs, algorithm, signature }` and the subject is the sixth element of `tbs`
/// (version, serial, algorithm, issuer, validity, subject, …; RFC 5280 §4.1).
fn with_subject(certificate: &[u8], subject: &[u8], key: &KeyPair) -> Result<Vec<u8>, Error> {
    let parts = elements(content(certificate));
    let mut tbs = elements(content(parts[0]));
    tbs[5] = subject;
    let tbs = encode_der(SEQUENCE, &tbs.concat());
    // The leading zero is the number of unused bits in the last byte.
    let signature = [vec![0], key.sign(&tbs)?].concat();
    Ok(encode_der(
        SEQUENCE,
        &[tbs, parts[1].to_vec(), encode_der(BIT_STRING, &signature)].concat(),
    ))
}

/// Encodes one DER element.
fn encode_der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut out = vec![tag];
    if content.len() < 0x80 {
        out.extend(significant);
        if content.is_empty() {
            out.push(0);
        }
    } else {
        out.push(0x80 | u8::try_from(significant.len()).expect("a usize has at most eight bytes"));
        out.extend(significant);
    }
    out.extend(content);
    out
}

/// Returns header size and content size of the element at the start of `bytes`.
fn element_size(bytes: &[u8]) -> (usize, usize) {
    let first = bytes[1];
    if first < 0x80 {
        return (2, usize::from(first));
    }
    let count = usize::from(first & 0x7f);
    let length = bytes[2..2 + count]
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    (2 + count, length)
}

fn content(element: &[u8]) -> &[u8] {
    let (header, length) = element_size(element);
    &element[header..header + length]
}

fn elements(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (header, length) = element_size(bytes);
        let (element, rest) = bytes.split_at(header + length);
        found.push(element);
        bytes = rest;
    }
    found
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<_> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).expect("base64 is ASCII"))
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_elements_round_trip_in_every_length_form() {
        for size in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000] {
            let bytes = vec![7; size];
            let pair = [encode_der(SEQUENCE, &bytes), encode_der(SET, b"x")].concat();
            let parts = elements(&pair);
            assert_eq!(parts.len(), 2, "size {size}");
            assert_eq!(content(parts[0]), bytes, "size {size}");
            assert_eq!(parts[1], encode_der(SET, b"x"), "size {size}");
        }
    }

    #[test]
    fn replacing_the_subject_with_itself_changes_only_the_signature() {
        let authority = Authority::new().unwrap();
        let original = named("alice")
            .signed_by(&KeyPair::generate().unwrap(), &authority.issuer)
            .unwrap();
        let replaced = with_subject(original.der(), &subject("alice", &[]), authority.issuer.key()).unwrap();
        let (before, after) = (elements(content(original.der())), elements(content(&replaced)));
        assert_eq!(before[..2], after[..2]);
    }
}
