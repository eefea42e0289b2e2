//! CA bundles: the certificates that a webhook's certificate must come from.

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer,
        pem::{PemObject, SectionKind},
    },
};

/// Why a CA bundle is invalid, with the real server's message. `None` if it is valid or empty.
pub(crate) fn ca_bundle_problem(pem: &[u8]) -> Option<String> {
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
            assert_eq!(ca_bundle_problem(pem.as_bytes()), why, "{pem}");
        }
    }
}
