//! Client certificates: the user is the common name, the groups are the organizations.

use std::{fmt::Write, sync::Arc};

use ring::digest;
use rustls::{
    DigitallySignedStruct, DistinguishedName, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use super::{
    Peer,
    user::{CREDENTIAL_ID_KEY, User},
};

/// Verifies client certificates.
///
/// A real server lets every client finish the TLS handshake, and answers 401 if it does not know the certificate's
/// signer. So this verifier accepts every certificate, and [`ClientVerifier::peer`] verifies it later.
#[derive(Clone, Debug)]
pub(crate) struct ClientVerifier(Arc<dyn ClientCertVerifier>);

impl ClientVerifier {
    /// Accepts certificates signed by one of these authorities.
    pub(crate) fn new(authorities: Vec<CertificateDer<'static>>) -> Result<Self, rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        for authority in authorities {
            roots.add(authority)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build();
        verifier
            .map(Self)
            .map_err(|error| rustls::Error::General(error.to_string()))
    }

    /// Identifies the client that presents these certificates.
    pub(crate) fn peer(&self, certificates: Option<&[CertificateDer<'_>]>) -> Peer {
        let Some([own, others @ ..]) = certificates else {
            return Peer::NoCertificate;
        };
        if self.0.verify_client_cert(own, others, UnixTime::now()).is_err() {
            return Peer::Untrusted;
        }
        match user_from_certificate(own) {
            Some(user) if !user.name.is_empty() => Peer::Verified(Arc::new(user.with_authentication_group())),
            _ => Peer::NoCertificate,
        }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }
}

/// The contents of the DER object identifiers 2.5.4.3, 2.5.4.10 and 1.3.6.1.4.1.57683.2.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const USER_ID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

/// The user that a certificate names. `None` if it cannot be parsed.
fn user_from_certificate(certificate: &[u8]) -> Option<User> {
    let mut user = User::default();
    // Certificate ::= SEQUENCE { tbs, … }, tbs ::= SEQUENCE { [0] version, serial, algorithm, issuer, validity, subject, … }
    let (tbs, _) = der_element(der_element(certificate)?.0)?;
    let mut rest = tbs;
    if rest.first() == Some(&0xa0) {
        rest = der_element(rest)?.1;
    }
    for _ in ["serial", "algorithm", "issuer", "validity"] {
        rest = der_element(rest)?.1;
    }
    let mut names = der_element(rest)?.0;
    while !names.is_empty() {
        let (mut set, after) = der_element(names)?;
        while !set.is_empty() {
            let (pair, other) = der_element(set)?;
            let (kind, value) = der_element(pair)?;
            let text = String::from_utf8(der_element(value)?.0.to_vec()).ok()?;
            match kind {
                COMMON_NAME => user.name = text,
                ORGANIZATION => user.groups.push(text),
                USER_ID => user.uid = text,
                _ => {}
            }
            set = other;
        }
        names = after;
    }
    let print = digest::digest(&digest::SHA256, certificate);
    let mut id = "X509SHA256=".to_owned();
    for byte in print.as_ref() {
        write!(id, "{byte:02x}").expect("writing to a string never fails");
    }
    user.extra.insert(CREDENTIAL_ID_KEY.to_owned(), vec![id]);
    Some(user)
}

/// Returns the content of the DER element at the start of `bytes`, and the remaining bytes.
fn der_element(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, mut rest) = bytes.get(1..)?.split_first()?;
    let mut length = usize::from(*first);
    if *first >= 0x80 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        length = digits.iter().try_fold(0_usize, |sum, digit| {
            sum.checked_mul(256)?.checked_add(usize::from(*digit))
        })?;
        rest = after;
    }
    rest.split_at_checked(length)
}
