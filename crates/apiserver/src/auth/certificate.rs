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
    user::{CREDENTIAL, User},
};

/// Whose certificates are good.
///
/// A real server lets everybody finish the handshake, whoever signed their certificate, and answers 401 to those whose
/// signer it does not know; so does this verifier, and [`Clients::peer`] says later whom it let in.
#[derive(Clone, Debug)]
pub(crate) struct Clients(Arc<dyn ClientCertVerifier>);

impl Clients {
    /// Those that one of these authorities signed.
    pub(crate) fn of(authorities: Vec<CertificateDer<'static>>) -> Result<Self, rustls::Error> {
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

    /// Who shows these certificates.
    pub(crate) fn peer(&self, certificates: Option<&[CertificateDer<'_>]>) -> Peer {
        let Some([own, others @ ..]) = certificates else {
            return Peer::Unknown;
        };
        if self.0.verify_client_cert(own, others, UnixTime::now()).is_err() {
            return Peer::Refused;
        }
        match user(own) {
            Some(user) if !user.name.is_empty() => Peer::Known(Arc::new(user.settled())),
            _ => Peer::Unknown,
        }
    }
}

impl ClientCertVerifier for Clients {
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

/// 2.5.4.3, 2.5.4.10 and 1.3.6.1.4.1.57683.2, the contents of DER object identifiers.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const USER_ID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

/// Whom a certificate names; `None` if it is none.
fn user(certificate: &[u8]) -> Option<User> {
    let mut user = User::default();
    // Certificate ::= SEQUENCE { tbs, … }, tbs ::= SEQUENCE { [0] version, serial, algorithm, issuer, validity, subject, … }
    let (tbs, _) = element(element(certificate)?.0)?;
    let mut rest = tbs;
    if rest.first() == Some(&0xa0) {
        rest = element(rest)?.1;
    }
    for _ in ["serial", "algorithm", "issuer", "validity"] {
        rest = element(rest)?.1;
    }
    let mut names = element(rest)?.0;
    while !names.is_empty() {
        let (mut set, after) = element(names)?;
        while !set.is_empty() {
            let (pair, other) = element(set)?;
            let (kind, value) = element(pair)?;
            let text = String::from_utf8(element(value)?.0.to_vec()).ok()?;
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
        write!(id, "{byte:02x}").expect("a string takes all");
    }
    user.extra.insert(CREDENTIAL.to_owned(), vec![id]);
    Some(user)
}

/// The content of the DER element that `bytes` starts with, and what comes after it.
fn element(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
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
