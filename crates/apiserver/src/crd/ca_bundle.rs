//! The CA bundle of a CRD's conversion webhook.
//!
//! A new CRD may have an invalid one, but is not established then. That of an established CRD cannot become invalid.

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer,
        pem::{PemObject, SectionKind},
    },
};
use serde_json::Value;

use super::spec;
use crate::object::Object;

/// The CA bundle in a CRD, encoded; empty if it has none.
pub(super) fn of(crd: &Object) -> &str {
    let bundle = spec(crd).pointer("/conversion/webhook/clientConfig/caBundle");
    bundle.and_then(Value::as_str).unwrap_or_default()
}

/// Why an encoded CA bundle is invalid, with the real server's message. `None` if it is valid or empty.
pub(super) fn problem(bundle: &str) -> Option<String> {
    // Decoding the CRD has checked the encoding.
    problem_of_pem(&STANDARD.decode(bundle).unwrap_or_default())
}

/// Why a CA bundle is invalid.
pub(crate) fn problem_of_pem(pem: &[u8]) -> Option<String> {
    if pem.is_empty() {
        return None;
    }
    let mut problem = None;
    let mut sections = 0;
    for (kind, content) in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).map_while(Result::ok) {
        sections += 1;
        if kind != SectionKind::Certificate {
            continue;
        }
        // One valid certificate is enough.
        if RootCertStore::empty().add(CertificateDer::from(content)).is_ok() {
            return None;
        }
        problem = problem.or(Some("failed to parse certificate: x509: malformed certificate"));
    }
    let why = match problem {
        Some(problem) => problem,
        None if sections == 0 => "unable to parse bytes as PEM block",
        None => "no valid certificate authority data seen",
    };
    Some(format!("unable to load root certificates: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_of(pem: &str) -> Option<String> {
        problem(&STANDARD.encode(pem))
    }

    #[test]
    fn bundle_needs_one_valid_certificate() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["a".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (pem, why) in [
            (String::new(), None),
            (certificate.clone(), None),
            (
                format!("text\n{broken}{}{certificate}", key.serialize_pem()),
                None,
            ),
            (" \n".to_owned(), Some("unable to parse bytes as PEM block")),
            (
                broken.to_owned(),
                Some("failed to parse certificate: x509: malformed certificate"),
            ),
            (
                key.serialize_pem(),
                Some("no valid certificate authority data seen"),
            ),
        ] {
            let why = why.map(|why| format!("unable to load root certificates: {why}"));
            assert_eq!(problem_of(&pem), why, "{pem}");
        }
    }
}
